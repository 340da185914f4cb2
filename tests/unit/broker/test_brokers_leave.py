"""Brokers that are down, and brokers that have left the cluster: who is still connected to."""

from typing import Any

import pytest

from idemproxy.proxy import limits
from testkit.virtual.world import TOPIC, World, WorldSettings

LEAVES, STAYS = 3, 1
SOON_SECONDS = limits.METADATA_AGE_SECONDS + limits.LEFT_LOOK_SECONDS + limits.LEADER_GONE_SECONDS


class Scene:
    """Three brokers; the partition lies on the first two."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World(1, WorldSettings(brokers=3))
        self.world.start()
        self.cluster, (self.proxy,) = self.world.cluster, self.world.proxies
        self.topology = self.proxy.engine.topology
        self.cluster.partitions[TOPIC, 0].replicas = (STAYS, 2)
        self.cluster.partitions[TOPIC, 0].leader = STAYS
        self.world.network.run(SOON_SECONDS)  # the proxy learns where it lies
        self.dialled: list[Any] = []
        reactor = self.proxy.engine.reactor
        shipped = reactor.connect

        def connect(address: Any, endpoint: Any) -> None:
            self.dialled.append(address)
            shipped(address, endpoint)

        monkeypatch.setattr(reactor, "connect", connect)

    def known(self) -> set[int]:
        return {broker.id for broker in self.topology.brokers}

    def said(self, words: str) -> list[str]:
        return [what for _, _, event in self.proxy.events if words in (what := str(getattr(event, "what", "")))]


def test_a_broker_that_has_left_the_cluster_is_connected_to_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    network, address = scene.world.network, scene.cluster.brokers[LEAVES].address
    scene.cluster.brokers[LEAVES].host.crash()
    network.run(SOON_SECONDS)
    assert scene.known() == {1, 2}
    assert address in scene.dialled, "it might have come back"
    assert len(scene.said("broker 3 at kafka-3:9092 has left the cluster")) == 1
    scene.dialled.clear()
    network.run(60)
    assert address not in scene.dialled
    (client,) = scene.world.clients
    client.send(TOPIC, 0)
    assert network.run(30, lambda: client.is_done)
    scene.cluster.brokers[LEAVES].start()
    assert network.run(
        SOON_SECONDS, lambda: LEAVES in scene.known() and all(b.is_ready for b in scene.topology.brokers)
    )


def test_a_broker_that_is_down_is_dialled_while_it_has_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.cluster.brokers[2].host.crash()
    scene.world.network.run(10 * SOON_SECONDS)
    assert scene.known() == {1, 2, 3}
    scene.dialled.clear()
    scene.world.network.run(limits.CONNECT_BACKOFF_SECONDS_MAX + limits.CONNECT_SECONDS_MAX)
    assert scene.cluster.brokers[2].address in scene.dialled


def test_an_unknown_outcome_at_a_broker_that_left_the_cluster_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(monkeypatch)
    network, cluster, (client,) = scene.world.network, scene.cluster, scene.world.clients
    cluster.partitions[TOPIC, 0].leader = LEAVES
    client.send(TOPIC, 0)
    assert network.run(30, lambda: client.is_done)
    cluster.on_produce.append(lambda _seen: cluster.brokers[LEAVES].host.crash())
    batch = client.send(TOPIC, 0)
    assert network.run(10, lambda: not cluster.brokers[LEAVES].is_up)
    cluster.on_produce.clear()
    cluster.move_leader(TOPIC, 0, STAYS, keep=True)
    network.run(SOON_SECONDS)
    assert network.run(60, lambda: client.is_done)
    assert batch.answers[-1].error_code == 0
    values = [record.value for stored in cluster.log(TOPIC, 0).messages for record in stored.message.records]
    assert len(values) == 2
