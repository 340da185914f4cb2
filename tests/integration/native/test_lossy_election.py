"""A clean election at real brokers loses what an old client got acknowledged with acks 1: what it sends next is stored
all the same, once and in order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.record_batch import iterate_records, iterate_stored
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.raw_client import HIGH_WATERMARK, RawClient
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

pytestmark = pytest.mark.long

TOPIC = "lossy"
LEADER, FOLLOWER = 1, 2
"""Broker 0 is the controller, and has no replica."""
REPLICATED, MORE = 10, 20
SESSION_MS = 6_000
"""For longer than the follower is paused: it stays in sync, so the election is a clean one."""
NO_LIMIT = 1 << 24


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LegacyCluster, ProxyProcess]]:
    directory = tmp_path_factory.mktemp("lossy")
    settings: dict[str, str | int] = {"broker.session.timeout.ms": SESSION_MS}
    with KraftCluster(directory / "kafka", brokers=3, auto_create_topics=False, broker_settings=settings) as cluster:
        cluster.create_topic(TOPIC, replication=2, assignment=[[LEADER, FOLLOWER]])
        wait_until(lambda: in_sync(cluster) == {LEADER, FOLLOWER}, "both are in sync", 60)
        with ProxyProcess(directory / "proxy", cluster.address(0), brokers=3) as proxy:
            yield cluster, proxy


def client(proxy: ProxyProcess, broker: int) -> RawClient:
    host, port = proxy.address
    return RawClient((host, port + 1 + broker), client_id="old")


def send(producer: RawClient, values: list[bytes]) -> list[tuple[int, int]]:
    """Each in a request of its own; return code and offset of each."""
    found = []
    for value in values:
        message = encode_set([(None, value, int(time.time() * 1000))], magic=1)
        answer = producer.produce_one(TOPIC, 0, message, version=2, acks=1)
        found.append((answer.error_code, answer.base_offset))
    return found


def partition(cluster: LegacyCluster) -> Any:
    with RawClient(cluster.address(0)) as asking:
        (topic,) = asking.ask(ApiKey.METADATA, 1, topics=[{"name": TOPIC}]).topics
    return topic.partitions[0]


def leads(cluster: LegacyCluster, broker: int) -> bool:
    """By its own word: the others may know it earlier."""
    try:
        with RawClient(cluster.address(broker)) as asking:
            return asking.end_offset(TOPIC, 0) >= 0
    except (AssertionError, OSError):
        return False


def in_sync(cluster: LegacyCluster) -> set[int]:
    return set(partition(cluster).isr_nodes)


def test_what_follows_an_acknowledged_batch_that_an_election_has_lost_is_stored(
    world: tuple[LegacyCluster, ProxyProcess],
) -> None:
    cluster, proxy = world
    with client(proxy, LEADER) as producing:
        first = send(producing, [b"first-%d" % number for number in range(REPLICATED)])
        assert first == [(0, number) for number in range(REPLICATED)]
        with RawClient(cluster.address(LEADER)) as leading:
            wait_until(
                lambda: leading.end_offset(TOPIC, 0, HIGH_WATERMARK) == REPLICATED, "the follower has the first ones"
            )
        cluster.pause_broker(FOLLOWER)
        lost = [b"lost-%d" % number for number in range(MORE)]
        assert send(producing, lost) == [(0, REPLICATED + number) for number in range(MORE)]
    cluster.kill_broker(LEADER)
    cluster.resume_broker(FOLLOWER)
    wait_until(lambda: leads(cluster, FOLLOWER), "the follower leads", 60)
    values = [b"next-%d" % number for number in range(MORE)]
    with client(proxy, FOLLOWER) as producing:
        after = send(producing, values)
    assert [code for code, _ in after] == [0] * MORE

    with RawClient(cluster.address(FOLLOWER)) as reading:
        batches = list(iterate_stored(reading.fetch(TOPIC, 0)))
    stored = [
        (one.base_offset + record.offset_delta, record.value)
        for one in batches
        for record in iterate_records(one.records, one.header, NO_LIMIT)
    ]
    kept = [value for _, value in stored if value is not None and value.startswith(b"lost")]
    assert kept == lost[: len(kept)]
    assert len(kept) < MORE, "nothing was lost, so nothing is tried here"
    assert [value for _, value in stored] == [b"first-%d" % number for number in range(REPLICATED)] + kept + values
    assert [offset for _, offset in after] == [offset for offset, _ in stored[-MORE:]]
    epochs = [(one.header.producer_id, one.header.producer_epoch) for one in batches]
    assert len({number for number, _ in epochs}) == 1
    assert [epoch for _, epoch in epochs] == [0] * (len(stored) - MORE) + [1] * MORE, "the next epoch, from there on"
