"""The demo's own cluster, against itself: real 0.10.2.2 brokers, real faults, and the segment files as the judge."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from idemproxy.demo import jars
from idemproxy.demo.legacy_cluster import ClusterError, LegacyCluster
from testkit.real.brokers.class_archive import make_class_archive
from testkit.real.brokers.kafka_cluster import (
    fresh_topic,
    patient_settings,
    produce,
    stored,
    verdict,
)
from testkit.real.proxies.proxy_process import wait_until

PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    settings = {"replica.lag.time.max.ms": 2000}  # so that a dead follower leaves the in-sync replicas soon
    with LegacyCluster(
        tmp_path_factory.mktemp("cluster"), brokers=2, session_timeout_ms=1500, broker_settings=settings
    ) as running:
        yield running


def have_the_same(cluster: LegacyCluster, topic: str) -> bool:
    """Do both brokers have the same records of the topic?"""
    return stored(cluster, topic, PARTITIONS, broker=0) == stored(cluster, topic, PARTITIONS, broker=1)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
def test_what_was_produced_stands_in_the_segment_files_of_leader_and_follower(
    cluster: LegacyCluster, compression: str
) -> None:
    topic = fresh_topic(cluster, PARTITIONS, 2)
    settings = patient_settings(cluster.bootstrap, compression_codec=compression)
    acknowledged = produce(settings, topic, PARTITIONS, 400)
    judged = verdict(cluster, topic, PARTITIONS, acknowledged)
    assert (judged.stored, judged.is_exactly_once) == (400, True), judged
    wait_until(partial(have_the_same, cluster, topic), "the follower has all that the leader has")
    codecs = {record.codec > 0 for records in stored(cluster, topic, PARTITIONS).values() for record in records}
    # A client leaves a batch as it is when compression would make it larger, as it does for one short record.
    assert (compression != "none") in codecs
    assert compression != "none" or codecs == {False}


def test_children_die_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import pathlib, time\n"
        "from idemproxy.demo.child_processes import ChildProcesses\n"
        "children = ChildProcesses()\n"
        "started = [children.start('s', ['sleep', '600'], pathlib.Path('out')) for _ in range(3)]\n"
        "started[0].kill()\n"
        "print(*(child.pid for child in started), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=tmp_path) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert [_is_alive(pid) for pid in pids] == [False, True, True]
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
    deadline = time.monotonic() + 30
    while any(map(_is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(_is_alive, pids))


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_jars_that_can_not_be_had_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jars.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setenv(jars.REPOSITORY_VARIABLE, "http://127.0.0.1:9")
    with pytest.raises(jars.JarsUnavailable) as caught:
        jars.broker_class_path()
    assert "kafka_2.11:0.10.2.2 can not be had" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_class_path_that_was_resolved_before_needs_no_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    before = jars.broker_class_path()
    monkeypatch.setenv(jars.REPOSITORY_VARIABLE, "http://127.0.0.1:9")
    assert jars.broker_class_path() == before
    assert all(Path(jar).is_file() for jar in before.split(os.pathsep))


def test_brokers_take_their_classes_from_the_archive_if_there_is_one(tmp_path: Path) -> None:
    archive = make_class_archive()
    with LegacyCluster(tmp_path, java_options=["-Xshare:on"]) as cluster:  # which ends Java if it cannot be used
        mapped = Path(f"/proc/{cluster.process_id(0)}/maps").read_text()
    assert str(archive) in mapped


def test_a_broker_that_can_not_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with (
        pytest.raises(ClusterError, match="broker 0 ended with code 1") as caught,
        LegacyCluster(tmp_path, broker_settings={"log.retention.ms": "never"}),
    ):
        raise AssertionError("it started")
    assert "log.retention.ms" in str(caught.value)
