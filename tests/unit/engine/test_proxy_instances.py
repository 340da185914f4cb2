"""Proxy instances in the protocol, in a virtual world: what the beginning of a new one ends (rules R4, R10)."""

import struct
from typing import Any

import pytest

from idemproxy.codecs.headers import encode_request_header
from idemproxy.reactor import Wire
from testkit.virtual import broker as virtual_broker
from testkit.virtual import kafka_bytes as kafka
from testkit.virtual.broker_faults import BrokerFault, BrokerFaultRates, ProduceSeen
from testkit.virtual.cluster import Partition
from testkit.virtual.log import PartitionLog
from testkit.virtual.world import TOPIC, World, WorldSettings


def a_world() -> World:
    world = World(1, WorldSettings(brokers=1))
    world.start()
    return world


def test_a_new_lease_epoch_closes_connections_that_only_used_a_producer_id() -> None:
    world = a_world()
    (client,) = world.clients
    client.send(TOPIC, 0)
    assert world.network.run(10, lambda: client.is_done)
    client.disconnect()
    client.send(TOPIC, 0)  # over a connection that never asked for a producer id
    assert world.network.run(10, lambda: client.is_done)
    opened = client.connections_opened
    assert opened == 2
    world.redis.restart()
    client.send(TOPIC, 0)
    assert world.network.run(60, lambda: client.is_done)
    assert client.connections_opened > opened
    assert world.errors() == []


def test_a_new_instance_id_resets_connections_with_an_append_of_the_old_one() -> None:
    world = a_world()
    world.cluster.rates = BrokerFaultRates(slow=(8.0, 8.0))
    (client,) = world.clients
    lost: list[float] = []

    def slow(seen: ProduceSeen) -> BrokerFault:
        return BrokerFault.SLOW if seen.number == 1 else BrokerFault.NONE

    world.cluster.choose_fault = slow
    world.cluster.on_produce_over.append(lambda _seen: lost.append(world.network.now))
    client.send(TOPIC, 0)
    assert world.network.run(10, lambda: world.cluster.produce_count == 1)
    world.redis.restart()
    restarted = world.network.now
    assert world.network.run(60, lambda: client.is_done)
    assert lost[0] - restarted < 5.0
    values = [record.value for stored in world.cluster.log(TOPIC, 0).messages for record in stored.message.records]
    assert values == client.batches[0].values
    assert world.errors() == []


class Consumer:
    """A connection with a fetch that waits for records, long."""

    WAIT_MS = 60_000

    def connected(self, wire: Wire) -> None:
        where = struct.pack(">iiqi", 1, 0, 0, 1 << 20)
        body = struct.pack(">iiii", -1, self.WAIT_MS, 1, 1 << 20) + struct.pack(">ih", 1, 1) + TOPIC.encode() + where
        header = encode_request_header(1, 3, 7, "consumer")
        wire.send((len(header) + len(body)).to_bytes(4, "big"), header, body)

    def received(self, data: bytes) -> None:
        raise AssertionError("there is nothing to be fetched")

    def lost(self, reason: str) -> None:
        pass


def test_a_drain_does_not_wait_for_consumers_that_wait() -> None:
    world = a_world()
    (proxy,) = world.proxies
    world.network.host("consumer").connect(proxy.address, Consumer())
    world.network.run(1)
    assert any(connection.handler.in_flight for connection in proxy.engine.sessions)
    began = world.network.now
    proxy.drain(down_seconds=None)
    assert world.network.run(20, lambda: not proxy.is_up)
    assert world.network.now - began < 2


@pytest.mark.promise("creates-no-topic")
def test_a_topic_that_is_not_there_is_looked_for_without_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old broker that creates topics by itself creates what Metadata names."""
    world = a_world()
    (client,) = world.clients
    named: list[object] = []
    shipped = virtual_broker.BrokerConnection._metadata

    def metadata(self: Any, request: kafka.Request) -> None:
        before = request.body.position
        named.append(kafka.parse_metadata(request.body, request.api_version))
        request.body.position = before
        shipped(self, request)

    monkeypatch.setattr(virtual_broker.BrokerConnection, "_metadata", metadata)
    batch = client.send("no-such", 0)
    world.network.run(5)
    assert {answer.error_code for answer in batch.answers} == {3}
    assert len(batch.answers) > 1
    assert None in named, "it has looked at the whole cluster"
    assert not [topics for topics in named if topics and "no-such" in topics]  # type: ignore[operator]


def test_a_missing_partition_is_looked_up_before_a_produce_is_refused() -> None:
    world = a_world()
    (client,) = world.clients
    client.send(TOPIC, 0)
    assert world.network.run(10, lambda: client.is_done)
    world.network.run(0.2)
    world.cluster.partitions[TOPIC, 1] = Partition(PartitionLog(), (1,), 1)
    batch = client.send(TOPIC, 1)
    assert world.network.run(10, lambda: client.is_done)
    assert [answer.error_code for answer in batch.answers] == [0]


def test_a_partition_that_is_not_there_is_not_looked_for_at_every_produce(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world()
    (client,) = world.clients
    asked: list[float] = []
    shipped = virtual_broker.BrokerConnection._metadata

    def metadata(self: Any, request: kafka.Request) -> None:
        asked.append(world.network.now)
        shipped(self, request)

    monkeypatch.setattr(virtual_broker.BrokerConnection, "_metadata", metadata)
    looks = list[float]()
    for step in range(1_000):
        world.proxies[0].engine.look_for_topic(TOPIC, lambda: looks.append(world.network.now))
        world.network.run(0.01)
        assert len(looks) >= step - 10
    assert 10 < len(asked) < 60
    client.send(TOPIC, 0)
    assert world.network.run(10, lambda: client.is_done)
