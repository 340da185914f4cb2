"""A broker that is reported at another address: what waits for the old connections continues at the new one."""

import pytest

from testkit.virtual.broker import BrokerConnection
from testkit.virtual.broker_faults import BrokerFault
from testkit.virtual.kafka_bytes import Request
from testkit.virtual.world import TOPIC, World, WorldSettings

PARTITIONS = 8
"""More than are read at a time."""
DISK_SECONDS = 0.3


def test_unknown_outcomes_end_though_the_brokers_address_changes_during_log_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(1, WorldSettings(brokers=2, partitions=PARTITIONS))
    world.start()
    (client,), (proxy,) = world.clients, world.proxies
    cluster, network = world.cluster, world.network
    for partition in cluster.partitions.values():
        partition.leader = 1
    network.run(40)
    fetches: list[float] = []
    shipped = BrokerConnection._fetch

    def from_a_slow_disk(connection: BrokerConnection, request: Request) -> None:
        fetches.append(network.now)
        connection._broker.host.later(DISK_SECONDS, lambda: shipped(connection, request))

    def send_to_all() -> None:
        for number in range(PARTITIONS):
            client.send(TOPIC, number)

    send_to_all()
    assert network.run(60, lambda: client.is_done)
    network.run(20)
    monkeypatch.setattr(BrokerConnection, "_fetch", from_a_slow_disk)
    cluster.choose_fault = lambda _seen: BrokerFault.LOST_ANSWER
    send_to_all()
    assert network.run(60, lambda: bool(fetches))
    cluster.choose_fault = lambda _seen: BrokerFault.NONE
    broker = cluster.brokers[1]
    broker.address = ("kafka-1b", 9092)
    network.listen(broker.host, broker.address, lambda: BrokerConnection(cluster, broker))
    proxy.engine.topology.refresh(None, lambda: None)
    assert network.run(120, lambda: client.is_done)
    assert [batch.answers[-1].error_code for batch in client.batches] == [0] * 2 * PARTITIONS
    assert world.errors() == []
