"""Which broker is asked and believed: one of them may know nothing of what has happened, or belong to somebody else."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.codecs.message_set import encode_message
from idemproxy.proxy.partition_log.log_offsets import Later, Position
from idemproxy.proxy.partition_log.log_search import LogSearch, Wanted
from idemproxy.state.entry import NO_ANCHOR
from testkit.virtual import broker as virtual_broker
from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.cluster import VirtualCluster
from testkit.virtual.world import TOPIC, World, WorldSettings

WAITS_SECONDS_MAX = 2.0
"""A few retries of the client, each after another broker was asked."""


def values_of(cluster: VirtualCluster) -> list[Any]:
    return [record.value for stored in cluster.log(TOPIC, 0).messages for record in stored.message.records]


@pytest.mark.promise("stale-metadata")
def test_a_broker_that_the_controller_does_not_reach_makes_nobody_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lives and answers, and its metadata stand still (KAFKA-2729 and its like), while a partition that it does not
    even lead moves from another broker to a third one."""
    world = World(1, WorldSettings(brokers=3))
    world.start()
    (client,), cluster = world.clients, world.cluster
    cluster.partitions[TOPIC, 0].leader = 2
    client.send(TOPIC, 0)
    assert world.network.run(30, lambda: client.is_done)
    stale, shipped = cluster.described(None), virtual_broker.BrokerConnection._metadata

    def metadata(self: Any, request: Any) -> None:
        if self._broker.number != 1:
            shipped(self, request)
            return
        with monkeypatch.context() as patch:
            patch.setattr(cluster, "described", lambda _wanted: stale)
            shipped(self, request)

    monkeypatch.setattr(virtual_broker.BrokerConnection, "_metadata", metadata)
    cluster.partitions[TOPIC, 0].leader = 3
    client.send(TOPIC, 0)
    assert world.network.run(WAITS_SECONDS_MAX, lambda: client.is_done)
    assert len(values_of(cluster)) == 2


@pytest.mark.promise("other-cluster")
@pytest.mark.parametrize("is_listed", [False, True])
def test_another_clusters_broker_at_a_down_brokers_address_is_not_believed(is_listed: bool) -> None:
    world = World(1, WorldSettings(brokers=2))
    world.start()
    (client,), ours = world.clients, world.cluster
    client.send(TOPIC, 0)
    assert world.network.run(30, lambda: client.is_done)
    ours.brokers[1].host.crash()
    ours.partitions[TOPIC, 0].leader = 2
    if not is_listed:
        world.network.run(5)  # the proxy learns that it is down
    other = VirtualCluster(world.network, {TOPIC: 1}, broker_count=1)
    other.cluster_id = "another-cluster"
    world.network.run(60)
    client.send(TOPIC, 0)
    assert world.network.run(60, lambda: client.is_done)
    assert values_of(other) == []
    assert len(values_of(ours)) == 2


def test_an_unknown_outcome_does_not_wait_for_log_reads_of_its_broker() -> None:
    """Every fetch takes long; the look whether the broker is awake goes another way (rule R6)."""
    world = World(1, WorldSettings(brokers=1, partitions=5, clients=1))
    world.start()
    (client,), network = world.clients, world.network
    client.send(TOPIC, 0)
    assert network.run(60, lambda: client.is_done)
    for partition in range(1, 5):
        log = world.cluster.log(TOPIC, partition)
        for _ in range(60):
            log.append(encode_message(None, b"x" * 900_000, magic=1), 0.0)
        log.advance(log.end_offset)
    engine, scanned = world.proxies[0].engine, list[object]()
    shipped = virtual_broker.BrokerConnection._fetch

    def slow(self: Any, request: Any, **more: Any) -> None:
        self._broker.host.later(0.1, lambda: shipped(self, request, **more))

    async def scan(partition: int) -> object:
        search = LogSearch(Wanted(TOPIC, partition, 1, Position(0, NO_ANCHOR), None, frozenset()))
        while isinstance(found := await search.run(), Later):
            pass
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(virtual_broker.BrokerConnection, "_fetch", slow)
        for partition in range(1, 5):
            engine.runner.start(scan(partition), scanned.append)
        network.run(3)
        seen: list[ProduceSeen] = []

        def lose_the_first_answer(one: ProduceSeen) -> BrokerFault:
            seen.append(one)
            return BrokerFault.LOST_ANSWER if len(seen) == 1 else BrokerFault.NONE

        world.cluster.choose_fault = lose_the_first_answer
        client.send(TOPIC, 0)
        assert network.run(5, lambda: client.is_done)
        assert scanned == [], "they are still at it"
