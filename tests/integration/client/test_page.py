"""resume-a-producer.md: its programs are run as they are, each in a process of its own, through a real proxy."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic, stored_values
from testkit.real.brokers.retention import DELETES_SOON, assert_retention_takes_nothing
from testkit.real.clients.numbered_batches import Place
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.scenes.followed_page import blocks_of, changed

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/resume-a-producer.md"


def run(program: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=directory, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_under_kills(program: str, directory: Path, dice: random.Random) -> int:
    """Run it, killed at random moments, until it comes to its end; return how often it was killed."""
    kills = 0
    while True:
        life = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program], cwd=directory, stderr=subprocess.PIPE, text=True
        )
        with life:
            try:
                life.wait(dice.uniform(0.05, 0.4) + 0.2 * kills)
            except subprocess.TimeoutExpired:
                life.kill()
                kills += 1
                continue
            assert life.stderr is not None
            assert life.returncode == 0, life.stderr.read()
            return kills


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    directory = tmp_path_factory.mktemp("page")
    with LegacyCluster(directory, auto_create_topics=False, broker_settings=DELETES_SOON) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(cluster: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with ProxyProcess(tmp_path_factory.mktemp("page-proxy"), cluster.address(0)) as running:
        yield running


@pytest.mark.promise("saved-numbers")
def test_the_programs_of_the_page_do_what_it_says(proxy: ProxyProcess, cluster: LegacyCluster, tmp_path: Path) -> None:
    place, other_place = (fresh_topic(cluster, 1), 0), (fresh_topic(cluster, 1), 0)

    def here(text: str, where: Place) -> str:
        address = "{}:{}".format(*proxy.address)
        return changed(text, {"127.0.0.1:9092": address, '"orders", 0': f'"{where[0]}", {where[1]}'})

    programs = [block.text for block in blocks_of(PAGE) if block.language == "python"]
    short, resuming, where, on_trio, reading, committing = programs
    assert len(short.strip().splitlines()) == 5
    assert run(here(short, place), tmp_path) == "0\n"
    assert run(here(on_trio, place), tmp_path).splitlines()[0] == str(list(range(2, 12)))
    shown = run(here(reading, place), tmp_path).splitlines()
    assert len(shown) == 13
    assert shown[-1] == "12 12"
    assert run(here(committing, place), tmp_path) == "12 anything\n"

    assert run(here(where, place), tmp_path) == "None\n", "nothing was written under this name"

    saved = tmp_path / "numbers.json"
    assert run_under_kills(here(resuming, other_place), tmp_path, random.Random(5)) > 0
    state = json.loads(saved.read_text())
    assert (state["done"], state["next"]) == (10, 100)
    run(here(resuming, other_place), tmp_path)
    for done in (7, 0):  # as if it had been killed before it saved more
        saved.write_text(json.dumps(state | {"done": done, "next": done * 10}))
        run(here(resuming, other_place), tmp_path)
    assert_retention_takes_nothing(cluster, place[0], other_place[0])
    rows = [value for _, value in stored_values(cluster, other_place)]
    assert rows == [b"row %d" % number for number in range(100)]
    assert run(here(reading, place), tmp_path).splitlines() == shown
