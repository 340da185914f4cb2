"""``idemproxy rebuild`` on a real 0.10.2.2: after Redis has lost everything, producers continue at once, and nothing is
in the log twice."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.pipeline.rebuild import plan
from idemproxy.proxy.main import main
from idemproxy.state.entry import pack, unpack
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.scenes.bulk_rebuild import PARTITIONS, PRODUCERS, RECORDS, RUN_SECONDS_MAX, Scene

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def scene(legacy_broker: LegacyCluster, tmp_path: Path) -> Iterator[Scene]:
    with ProxyProcess(tmp_path, legacy_broker.address(0)) as proxy:
        yield Scene(legacy_broker, proxy)


def test_after_flushall_producers_continue_at_once_and_retries_are_duplicates(scene: Scene) -> None:
    for number in range(7):
        scene.send_all(number)
    scene.proxy.entries()  # nothing is under way
    assert scene.rebuild("--dry-run")["differences"] == {"same": PRODUCERS}
    assert scene.proxy.redis("FLUSHALL") == b"OK"
    found = scene.rebuild("--dry-run", status=1)
    assert (found["differences"], found["written"]) == ({"missing": PRODUCERS}, {})
    found = scene.rebuild()
    assert (found["differences"], found["written"]) == ({"missing": PRODUCERS}, {"whole": PRODUCERS})
    assert scene.rebuild("--dry-run")["differences"] == {"same": PRODUCERS}
    searches = scene.searches()
    with RawClient(scene.proxy.address) as client:
        for producer in range(PRODUCERS):
            again = scene.send(client, producer, 6)  # its answer was lost, as far as this client knows
            assert (again.error_code, again.base_offset) == (0, scene.told[producer][6])
            below = scene.send(client, producer, 0)
            assert below.error_code == 46
            gap = scene.send(client, producer, 8)
            assert gap.error_code == 45
    scene.send_all(7)
    assert scene.searches() == searches  # nobody waited for a rebuild
    expected = [value for p in range(PRODUCERS) for number in range(8) for value in scene.values(p, number)]
    assert sorted(scene.stored()) == sorted(expected)


def test_spark_does_the_same_range_by_range(
    spark: SparkSession, scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.version
    for number in range(3):
        scene.send_all(number)
    scene.proxy.entries()
    scene.proxy.redis("FLUSHALL")
    monkeypatch.setattr(plan, "RANGE_OFFSETS", 7)  # a wrapper of two records lies across every second border
    command = scene.command("--master", "local[2]")
    assert main(command[command.index("rebuild") :]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["written"], found["problems"]) == ({"whole": PRODUCERS}, {})
    searches = scene.searches()
    scene.send_all(3)
    assert scene.searches() == searches
    assert len(scene.stored()) == PRODUCERS * RECORDS * 4


def test_an_entry_before_unmarked_records_stays_unverified_and_is_read_from_there(
    scene: Scene,
) -> None:
    scene.send_all(0)
    with RawClient(scene.proxy.address) as client:
        for partition in range(PARTITIONS):
            (answer,) = client.produce([(scene.topic, partition, batch([b"of nobody"]))])
            assert answer.error_code == 0
    scene.proxy.entries()
    scene.proxy.redis("FLUSHALL")
    assert scene.rebuild()["written"] == {"bound": PRODUCERS}
    assert scene.rebuild("--dry-run", status=1)["differences"] == {"unverified": PRODUCERS}
    scene.send_all(1)
    assert len(scene.stored()) == PRODUCERS * 2 * RECORDS + PARTITIONS


def test_an_entry_below_the_log_is_raised_and_one_above_is_left(scene: Scene) -> None:
    """Less, as of a replica that was promoted by hand; more, as of a log that has lost its end."""
    scene.send_all(0)
    keys = [key for key in scene.proxy.entries() if scene.topic.encode() in key]
    old = [(key, scene.proxy.redis("GET", key)) for key in keys[:2]]
    scene.send_all(1)
    now = scene.proxy.entries()
    for key, value in old:
        assert isinstance(value, bytes)
        scene.proxy.redis("SET", key, value)
    entry = unpack(now[keys[2]])
    ahead = pack(replace(entry, next_sequence=entry.next_sequence + 5))
    scene.proxy.redis("SET", keys[2], ahead)
    found = scene.rebuild("--dry-run", status=1)
    assert found["differences"] == {"behind": 2, "ahead": 1, "same": PRODUCERS - 3}
    assert scene.rebuild()["written"] == {"whole": 2}
    assert scene.proxy.redis("GET", keys[2]) == ahead
    scene.proxy.redis("SET", keys[2], now[keys[2]])
    assert scene.rebuild("--dry-run")["differences"] == {"same": PRODUCERS}


def test_a_task_of_spark_that_fails_ends_the_run_with_its_sentence(scene: Scene) -> None:
    scene.send_all(0)
    scene.proxy.entries()
    scene.proxy.kill()  # it would start its Redis again
    command = scene.command("--dry-run", "--master", "local[2]")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        told = []
        for line in running.stderr:
            told.append(line)
            if line.startswith("Spark reads"):
                scene.proxy.kill_redis()  # the tasks that conclude ask it, after all those that read
        assert running.wait(RUN_SECONDS_MAX) == 2, told
        assert running.stdout is not None
        assert running.stdout.read() == ""
    assert "Traceback" not in "".join(told)
    assert told[-1].startswith("idemproxy rebuild: Spark failed: Redis: "), told


def test_a_partition_without_a_leader_is_left_and_named_and_the_others_are_written(tmp_path: Path) -> None:
    with (
        LegacyCluster(tmp_path / "kafka", brokers=2, replication=1, auto_create_topics=False) as cluster,
        ProxyProcess(tmp_path / "proxy", cluster.address(0), brokers=2) as proxy,
    ):
        scene = Scene(cluster, proxy)  # partitions 0 and 2 are the first broker's, 1 is the second one's
        scene.send_all(0)
        scene.proxy.entries()
        scene.proxy.redis("FLUSHALL")
        cluster.kill_broker(1)
        wait_until(lambda: cluster.leader(scene.topic, 1) == -1, "the partition has no leader")
        command = [word for word in scene.command() if word != "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert f"{scene.topic}-1 was left to the proxies: it has no leader" in done.stdout.splitlines()
    led = sum(producer % PARTITIONS != 1 for producer in range(PRODUCERS))
    assert f"written: {led} complete, 0 that a proxy completes" in done.stdout.splitlines()
