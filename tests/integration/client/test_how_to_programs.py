"""Programs on how-to pages are run as they stand there. Those of docs/how-to/resume-a-producer.md are killed at random,
while proxies are killed as well; and a producer that chooses its own sequences resumes by the steps of that page."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic, stored_values
from testkit.real.brokers.retention import DELETES_SOON, assert_retention_takes_nothing
from testkit.real.clients import foreign_clients
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.scenes.followed_page import blocks_of, changed

pytestmark = pytest.mark.long

HOW_TO = Path(__file__).resolve().parents[3] / "docs/how-to"
RESUMING = {block.language: block.text for block in blocks_of(HOW_TO / "resume-a-producer.md")}
ROWS = [b"row %d" % number for number in range(100)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    directory = tmp_path_factory.mktemp("resume")
    with LegacyCluster(directory, auto_create_topics=False, broker_settings=DELETES_SOON) as running:
        running.create_topic("wal-orders", 1)
        yield running


@pytest.fixture(scope="module")
def pair(cluster: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoProxies]:
    directory = tmp_path_factory.mktemp("resume-proxies")
    with TwoProxies(
        directory, cluster, settings="producers: {names: [job-*]}\ntopics: {conditional: [wal-*]}"
    ) as running:
        yield running
        assert running.errors_of_ours(["internal error"]) == []


def here(text: str, pair: TwoProxies, topic: str) -> str:
    return changed(text, {"127.0.0.1:9092": "{}:{}".format(*pair.addresses[0]), '"orders"': f'"{topic}"'})


def assert_each_row_is_stored_once(
    command: Sequence[str], pair: TwoProxies, cluster: LegacyCluster, topic: str, directory: Path, done: str
) -> None:
    """Run it, killed at random moments, until it comes to its end; then again, as if it had saved less."""
    dice, kills = random.Random(5), 0
    while True:
        with subprocess.Popen(command, cwd=directory) as run:
            try:
                assert run.wait(dice.uniform(0.005, 0.1) + 0.1 * kills) == 0
                break
            except subprocess.TimeoutExpired:
                run.kill()
                kills += 1
        if kills % 5 == 2:
            pair.proxies[0].kill()
            pair.proxies[0].start()
    assert kills > 0
    saved = directory / "numbers.json"
    state = json.loads(saved.read_text())
    assert state[done] == 10
    for less in (7, 0):
        saved.write_text(json.dumps(state | {done: less}))
        subprocess.run(command, cwd=directory, check=True, timeout=240)
    assert_retention_takes_nothing(cluster, topic)
    assert [value for _, value in stored_values(cluster, (topic, 0))] == ROWS


@pytest.mark.promise("saved-numbers")
def test_the_program_in_python_has_each_row_stored_once(
    pair: TwoProxies, cluster: LegacyCluster, tmp_path: Path
) -> None:
    topic = fresh_topic(cluster, 1)
    command = [sys.executable, "-W", "error", "-c", here(RESUMING["python"], pair, topic)]
    assert_each_row_is_stored_once(command, pair, cluster, topic, tmp_path, "done")


@pytest.mark.promise("saved-numbers")
def test_the_program_in_go_has_each_row_stored_once(pair: TwoProxies, cluster: LegacyCluster, tmp_path: Path) -> None:
    topic = fresh_topic(cluster, 1)
    program = foreign_clients.go_program(here(RESUMING["go"], pair, topic), tmp_path / "source")
    assert_each_row_is_stored_once([os.fspath(program)], pair, cluster, topic, tmp_path, "Done")


@pytest.mark.promise("name-last-batch")
def test_a_producer_that_chooses_its_sequences_reads_where_it_stopped(pair: TwoProxies, cluster: LegacyCluster) -> None:
    topic, runs = fresh_topic(cluster, 1), 6
    dice, instances = random.Random(6), []
    for number in range(runs):
        bootstrap = "{}:{}".format(*pair.addresses[number % 2])
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, client_id="job-1", enable_idempotence=True, acks="all", retries=5
        )
        instances.append(producer)  # it does not end, and sends what it has
        producer.send(topic, b"begin", partition=0).get(60)
        wait_until(partial(is_described, bootstrap, topic), "every outcome is known", 60)
        stored = [value for _, value in stored_values(cluster, (topic, 0)) if value != b"begin"]
        assert stored == ROWS[: len(stored)]
        futures = [producer.send(topic, row, partition=0) for row in ROWS[len(stored) : 20 * (number + 1)]]
        if number < runs - 1 and futures:
            futures[dice.randrange(min(10, len(futures)))].get(60)
            pair.proxies[number % 2].kill()
            pair.proxies[number % 2].start()
    for future in futures:
        future.get(60)
    assert [value for _, value in stored_values(cluster, (topic, 0)) if value != b"begin"] == ROWS
    for one in instances:
        one.close(30)


def is_described(bootstrap: str, topic: str) -> bool:
    """Is the outcome of all that older instances have sent known?"""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        return bool(admin.describe_producers([TopicPartition(topic, 0)]))
    except KafkaError:
        return False
    finally:
        admin.close()


@pytest.mark.parametrize(
    ("page", "printed"), [("fence-by-name.md", "None\n"), ("conditional-publish.md", "")], ids=lambda text: text[:5]
)
def test_a_short_program_of_a_page_does_what_the_page_says(
    pair: TwoProxies, cluster: LegacyCluster, page: str, printed: str
) -> None:
    (program,) = (block.text for block in blocks_of(HOW_TO / page) if block.language == "python")
    text = here(program, pair, fresh_topic(cluster, 1))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    if page == "conditional-publish.md":
        assert stored_values(cluster, ("wal-orders", 0)) == [(0, b"mine")]
