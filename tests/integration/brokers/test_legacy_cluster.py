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
from confluent_kafka import Producer

from idemproxy.demo import broker_metadata, jars
from idemproxy.demo.legacy_cluster import ClusterError, LegacyCluster
from testkit.real.brokers.class_archive import make_class_archive
from testkit.real.brokers.kafka_cluster import (
    fresh_topic,
    librdkafka_settings,
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


def test_every_broker_lists_every_broker_once_the_cluster_is_entered(cluster: LegacyCluster) -> None:
    wanted = {broker: cluster.address(broker) for broker in cluster.broker_ids}
    assert [broker_metadata.ask(address).brokers for address in wanted.values()] == [wanted, wanted]


def test_a_topic_has_the_assignment_that_was_asked_for_and_leaders_when_it_is_created(cluster: LegacyCluster) -> None:
    cluster.create_topic("assigned", assignment=[[1, 0], [0], [1]])
    known = cluster.state(1).topics["assigned"]
    assert {number: (one.leader, set(one.replicas)) for number, one in known.items()} == {
        0: (1, {0, 1}),
        1: (0, {0}),
        2: (1, {1}),
    }


def test_a_topic_can_not_be_created_twice(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster)
    with pytest.raises(ClusterError, match=topic):
        cluster.create_topic(topic)


def test_a_deleted_topic_is_forgotten_by_all_brokers(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, PARTITIONS, 2)
    cluster.delete_topic(topic)
    assert all(topic not in cluster.state(broker).topics for broker in cluster.broker_ids)


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


def test_a_setting_of_a_topic_that_is_altered_takes_effect(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, 1)
    cluster.alter_topic_config(topic, {"max.message.bytes": 1000})
    errors: list[object] = []
    producer = Producer(librdkafka_settings(cluster.bootstrap))
    deadline = time.monotonic() + 60
    while not errors and time.monotonic() < deadline:
        producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error) if error else None)
        producer.flush(10)
    assert errors, "the broker went on taking large messages"


def test_a_killed_leader_is_replaced_and_comes_back_in_sync_with_nothing_lost(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, PARTITIONS, 2)
    settings = librdkafka_settings(cluster.bootstrap)
    acknowledged = produce(settings, topic, PARTITIONS, 200, "before")
    cluster.kill_broker(0)
    cluster.wait_for_leaders(topic, PARTITIONS)
    cluster.wait_in_sync(topic, PARTITIONS)
    assert {cluster.leader(topic, number) for number in range(PARTITIONS)} == {1}
    acknowledged |= produce(settings, topic, PARTITIONS, 200, "between")
    cluster.start_broker(0)
    cluster.wait_in_sync(topic, PARTITIONS)
    judged = verdict(cluster, topic, PARTITIONS, acknowledged)
    # A plain producer may well have written something twice.
    assert (judged.lost, judged.misplaced, judged.foreign) == (0, 0, 0), judged
    wait_until(partial(have_the_same, cluster, topic), "the follower has all that the leader has")


def test_a_stopped_broker_comes_back(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, PARTITIONS, 2)
    cluster.stop_broker(1)
    with pytest.raises(ConnectionRefusedError):
        broker_metadata.ask(cluster.address(1))
    cluster.start_broker(1)
    cluster.wait_in_sync(topic, PARTITIONS)


def test_a_paused_broker_is_silent_until_it_is_resumed(cluster: LegacyCluster) -> None:
    cluster.pause_broker(1)
    try:
        with pytest.raises(TimeoutError):
            broker_metadata.ask(cluster.address(1), timeout_seconds=0.3)
    finally:
        cluster.resume_broker(1)
    cluster.wait_until_ready()


def test_clients_are_told_the_advertised_address(tmp_path: Path) -> None:
    with LegacyCluster(tmp_path, advertised={0: ("127.0.0.1", 9)}) as cluster:
        assert cluster.state().brokers == {0: ("127.0.0.1", 9)}


def test_topics_are_created_automatically_only_if_wanted_and_with_the_settings_given(tmp_path: Path) -> None:
    with LegacyCluster(tmp_path / "one", auto_create_topics=False) as cluster:
        asked = Producer(librdkafka_settings(cluster.bootstrap)).list_topics("never-made", 60)
        assert asked.topics["never-made"].error is not None
        assert cluster.state().topics == {}
    with LegacyCluster(tmp_path / "other", broker_settings={"num.partitions": 3}) as cluster:
        Producer(librdkafka_settings(cluster.bootstrap)).list_topics("made-now", 60)
        cluster.wait_for_leaders("made-now", 3)


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1", "0.10.0.1"])
def test_older_brokers_start_take_records_and_survive_a_kill(tmp_path: Path, version: str) -> None:
    with LegacyCluster(tmp_path, version=version, session_timeout_ms=1500) as cluster:
        topic = fresh_topic(cluster, PARTITIONS)
        settings = patient_settings(cluster.bootstrap)
        if version != "0.10.0.1":  # a 0.9 broker drops other clients' requests when it is asked for its API versions
            settings |= {"api.version.request": False, "broker.version.fallback": version}
        acknowledged = produce(settings, topic, PARTITIONS, 200)
        cluster.kill_broker(0)
        cluster.start_broker(0)
        cluster.wait_for_leaders(topic, PARTITIONS)
        assert verdict(cluster, topic, PARTITIONS, acknowledged).is_exactly_once


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
