"""Topics that were deleted: before 0.11 a broker creates again whatever a question for Metadata names."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.proxy import limits
from testkit.virtual import broker as virtual_broker
from testkit.virtual import kafka_bytes as kafka
from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.world import TOPIC, World, WorldSettings

UNKNOWN = 3
SETTLED_SECONDS = 2.0


class Scene:
    """One producer has written to a topic, some time ago; what brokers are asked by Metadata is written down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World(1, WorldSettings(brokers=2))
        self.world.start()
        self.network, self.cluster = self.world.network, self.world.cluster
        (self.client,) = self.world.clients
        self.engine = self.world.proxies[0].engine
        self.send()
        self.asked: list[Any] = []
        shipped = virtual_broker.BrokerConnection._metadata

        def metadata(connection: Any, request: kafka.Request) -> None:
            if connection._peer == self.world.proxies[0].name:
                before = request.body.position
                self.asked.append(kafka.parse_metadata(request.body, request.api_version))
                request.body.position = before
            shipped(connection, request)

        monkeypatch.setattr(virtual_broker.BrokerConnection, "_metadata", metadata)
        self.network.run(SETTLED_SECONDS)
        self.asked.clear()

    def send(self) -> Any:
        batch = self.client.send(TOPIC, 0)
        assert self.network.run(60, lambda: self.client.is_done)
        return batch

    @property
    def named(self) -> set[str]:
        return {name for topics in self.asked for name in topics or ()}


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_a_topic_that_its_broker_does_not_know_is_not_named(scene: Scene) -> None:
    scene.cluster.delete_topic(TOPIC, seconds=10)
    batch = scene.client.send(TOPIC, 0)
    scene.network.run(9)
    assert UNKNOWN in {answer.error_code for answer in batch.answers}
    assert None in scene.asked
    assert scene.named == set()
    assert not scene.engine.has_partition(TOPIC, 0)
    assert scene.network.run(60, lambda: scene.client.is_done), "it is found when it is there again"


def test_nor_is_it_while_a_batch_for_it_is_in_doubt(scene: Scene) -> None:
    seen: list[ProduceSeen] = []

    def lose_the_answer(one: ProduceSeen) -> BrokerFault:
        seen.append(one)
        return BrokerFault.LOST_ANSWER if len(seen) == 1 else BrokerFault.NONE

    scene.cluster.choose_fault = lose_the_answer
    scene.client.send(TOPIC, 0)
    assert scene.network.run(10, lambda: bool(seen))
    scene.asked.clear()
    scene.cluster.delete_topic(TOPIC, seconds=1000)
    scene.network.run(1)
    scene.asked.clear()
    scene.network.run(30)
    assert None in scene.asked
    assert scene.named == set()


def test_a_topic_whose_leader_has_moved_away_is_found_without_its_name(scene: Scene) -> None:
    """A broker that has given a replica away says 3 as well."""
    partition = scene.cluster.partitions[TOPIC, 0]
    first = partition.leader
    scene.cluster.move_leader(TOPIC, 0, 3 - (first or 0), keep=True)
    scene.engine.topology.distrust(TOPIC)
    found: list[int | None] = []
    scene.engine.topology.leader(TOPIC, 0, True, found.append)
    scene.network.run(1)
    assert found == [partition.leader]
    assert scene.asked == [None]
    assert scene.send().answers[-1].error_code == 0


def test_a_topic_that_is_there_after_all_is_named_again(scene: Scene) -> None:
    topology, found = scene.engine.topology, list[Any]()
    topology.distrust(TOPIC)
    for _ in range(3):
        topology.leader(TOPIC, 0, True, found.append)
        scene.network.run(1)
    assert scene.asked == [None, None, [TOPIC]]
    assert len(found) == 3


@pytest.mark.promise("creates-no-topic")
def test_in_a_large_cluster_this_is_no_burden(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition counts for a second, as 20,000 do otherwise."""
    monkeypatch.setattr(limits, "METADATA_PARTITION_SECONDS", 1.0)
    topology, found = scene.engine.topology, list[Any]()
    for _ in range(1000):
        topology.distrust(TOPIC)
        topology.leader(TOPIC, 0, True, found.append)
        scene.network.run(0.01)
    assert len(scene.asked) <= 11
    scene.network.run(limits.METADATA_WAIT_SECONDS)
    assert len(found) == 1000


def test_a_topic_is_not_named_for_clients_that_may_not_create_it(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    topology, done = scene.engine.topology, list[None]()
    topology.refresh_if_stale((TOPIC,), False, lambda: done.append(None))
    scene.network.run(0.1)
    assert (scene.asked, len(done)) == ([None], 1)
    scene.network.run(SETTLED_SECONDS)
    monkeypatch.setattr(limits, "METADATA_PARTITION_SECONDS", 1.0)
    topology.refresh_if_stale((TOPIC,), False, lambda: done.append(None))
    scene.network.run(0.1)
    assert (scene.asked, len(done)) == ([None, [TOPIC]], 2), "of a large cluster one topic is asked for"
    topology.changed((TOPIC,))
    topology.refresh_if_stale((TOPIC,), False, lambda: done.append(None))
    scene.network.run(SETTLED_SECONDS)
    assert (scene.asked, len(done)) == ([None, [TOPIC], None], 3), "unless it may be gone"
