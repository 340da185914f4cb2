"""Brokers that get message format v2 under proxies that give idempotence: they are read, and sent no batch."""

from __future__ import annotations

import pytest

from testkit.virtual.batches import MAGIC
from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.client import VirtualClient
from testkit.virtual.producer import Batch
from testkit.virtual.releases import KEEPS_2_8, KEEPS_3_9, RAISED_2_8, RAISED_3_9, Release
from testkit.virtual.world import TOPIC, World, WorldSettings


class Scene:
    """A world in which nothing breaks by itself; its brokers have producer ids and store format v1."""

    def __init__(self, *, brokers: int = 1, keeps: Release = KEEPS_2_8) -> None:
        self.world = World(1, WorldSettings(clocks=((0.0, 1.0),), brokers=brokers, clients=1))
        for broker in self.world.cluster.brokers.values():
            broker.release = broker.next_release = keeps
        self.log = self.world.cluster.log(TOPIC, 0)
        self.world.start()

    @property
    def client(self) -> VirtualClient:
        return self.world.clients[0]

    def restart(self, number: int, release: Release) -> None:
        """It leads the partition when it is back."""
        self.world.cluster.upgrade_broker(number, release, is_clean=True, down_seconds=0.3)
        self.run(0.5)
        self.lead(number)

    def lead(self, number: int) -> None:
        self.world.cluster.move_leader(TOPIC, 0, number, keep=True)
        self.run(0.5)

    def run(self, seconds: float) -> None:
        self.world.network.run(seconds)

    def send(self, seconds: float = 3.0) -> Batch:
        batch = self.client.send(TOPIC, 0)
        self.run(seconds)
        return batch

    def judge(self, formats: list[int]) -> None:
        """All is in the log once, in these formats."""
        assert [stored.message.magic for stored in self.log.messages] == formats
        assert self.world.errors() == []
        assert self.world.cluster.all_violations() == []


@pytest.mark.parametrize(("keeps", "raised"), [(KEEPS_2_8, RAISED_2_8), (KEEPS_3_9, RAISED_3_9)])
def test_a_broker_that_stores_v2_gets_no_batch_and_one_that_stores_v1_does(keeps: Release, raised: Release) -> None:
    scene = Scene(brokers=2, keeps=keeps)
    assert scene.send().acknowledged is not None
    scene.restart(1, raised)
    waits = scene.send(seconds=15.0)
    assert not waits.is_done
    assert waits.answers
    scene.lead(2)
    scene.run(5.0)
    assert waits.acknowledged is not None
    scene.lead(1)
    waits = scene.send(seconds=5.0)
    scene.restart(2, raised)
    scene.run(5.0)
    assert not waits.is_done
    scene.restart(1, keeps)
    scene.run(15.0)
    assert waits.acknowledged is not None
    assert len(scene.world.proxies) == 1
    assert scene.world.proxies[0].lives == 1
    scene.judge([1, 1, 1])


@pytest.mark.parametrize(
    ("fault", "is_stored", "formats"),
    [(BrokerFault.LOST_ANSWER, True, [1, 1, MAGIC]), (BrokerFault.LOST_REQUEST, False, [1, MAGIC, 1])],
    ids=["stored", "not stored"],
)
def test_a_batch_sent_before_the_format_upgrade_is_found_or_waits(
    fault: BrokerFault, is_stored: bool, formats: list[int]
) -> None:
    scene = Scene()
    scene.send()
    cluster = scene.world.cluster

    def lose_one(_seen: ProduceSeen) -> BrokerFault:
        cluster.choose_fault = lambda _seen: BrokerFault.NONE
        return fault

    cluster.choose_fault = lose_one
    lost = scene.send(seconds=0.1)
    scene.restart(1, RAISED_2_8)
    direct = VirtualClient(scene.world.network, "direct", [cluster.addresses[0]])
    assert direct.send(TOPIC, 0) is not None  # in format v2, which the search reads over
    scene.run(10.0)
    assert len(scene.log.messages) == 2 + is_stored
    assert lost.is_done is is_stored
    scene.restart(1, KEEPS_2_8)
    scene.run(15.0)
    assert lost.acknowledged is not None
    assert lost.acknowledged[1] == (1 if is_stored else 2)
    scene.judge(formats)
