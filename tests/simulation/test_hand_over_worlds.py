"""Brokers that are upgraded under the proxies (rule R21): the shortest scenes, and random worlds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from simulation.chaos import Outcome
from simulation.hand_over import HandOver, run_seed

from idemproxy.proxy import limits
from testkit.virtual.batches import MAGIC
from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.client import VirtualClient
from testkit.virtual.producer import Batch
from testkit.virtual.releases import KEEPS_2_8, KEEPS_3_9, RAISED_2_8, RAISED_3_9, Release
from testkit.virtual.upgrading_proxy import HANDING_OVER, PROXY, UpgradingProxy
from testkit.virtual.world import TOPIC, World, WorldSettings

LEAVES_SECONDS = limits.METADATA_AGE_SECONDS + limits.LEFT_LOOK_SECONDS + limits.LEADER_GONE_SECONDS
"""So long after a broker was seen last it has left the cluster."""
SEEDS = range(1, 41)
CROWDED = 3
"""Of the seeds so many at least have to show each thing that these worlds are made for."""


class Upgrade:
    """A world in which nothing breaks by itself; its brokers have producer ids and store the old format."""

    def __init__(self, *, brokers: int = 1, proxies: int = 1, clients: int = 1, keeps: Release = KEEPS_2_8) -> None:
        clocks = ((0.0, 1.0),) * proxies
        self.world = World(1, WorldSettings(clocks=clocks, brokers=brokers, clients=clients, chooses_idempotence=True))
        for broker in self.world.cluster.brokers.values():
            broker.release = broker.next_release = keeps
        self.log = self.world.cluster.log(TOPIC, 0)
        self.world.start()

    @property
    def proxies(self) -> list[UpgradingProxy]:
        return [proxy for proxy in self.world.proxies if isinstance(proxy, UpgradingProxy)]

    @property
    def clients(self) -> list[VirtualClient]:
        return self.world.clients

    def restart(self, number: int, release: Release) -> None:
        """It leads the partition when it is back."""
        self.world.cluster.upgrade_broker(number, release, is_clean=True, down_seconds=0.3)
        self.run(0.5)
        self.world.cluster.move_leader(TOPIC, 0, number, keep=True)
        self.run(0.5)

    def run(self, seconds: float) -> None:
        self.world.network.run(seconds)

    def send(self, client: int = 0, seconds: float = 2.0) -> Batch:
        """One batch of a client, and time for it."""
        batch = self.clients[client].send(TOPIC, 0)
        self.run(seconds)
        return batch

    def formats(self) -> list[int]:
        """Of what is in the log, in its order."""
        return [stored.message.magic for stored in self.log.messages]

    def judge(self) -> None:
        assert self.world.errors() == []
        assert self.world.cluster.all_violations() == []


@pytest.mark.parametrize(("keeps", "raised"), [(KEEPS_2_8, RAISED_2_8), (KEEPS_3_9, RAISED_3_9)])
def test_a_raised_broker_gets_nothing_before_the_last_one_is_raised(keeps: Release, raised: Release) -> None:
    scene = Upgrade(brokers=2, keeps=keeps)
    before = scene.send()
    scene.restart(1, raised)
    meanwhile = scene.send(seconds=5.0)
    assert (before.is_done, meanwhile.is_done) == (True, False)
    assert [proxy.mode for proxy in scene.proxies] == [PROXY]
    scene.restart(2, raised)
    scene.run(5.0)
    assert meanwhile.acknowledged is not None
    assert [proxy.mode for proxy in scene.proxies] == [HANDING_OVER]
    assert scene.formats() == [1, MAGIC]
    scene.judge()


def test_when_the_last_old_broker_leaves_the_cluster_producers_are_handed_over_to_the_others() -> None:
    """New brokers in, old ones out: nobody raises the last one."""
    scene = Upgrade(brokers=3)
    world = scene.world
    world.cluster.partitions[TOPIC, 0].replicas = (1, 2)
    world.cluster.move_leader(TOPIC, 0, 1, keep=True)
    scene.run(LEAVES_SECONDS)
    for number in (1, 2):
        scene.restart(number, RAISED_2_8)
    world.cluster.move_leader(TOPIC, 0, 1, keep=True)
    assert [proxy.mode for proxy in scene.proxies] == [PROXY]
    world.cluster.brokers[3].host.crash()
    scene.run(2 * LEAVES_SECONDS)
    assert [proxy.mode for proxy in scene.proxies] == [HANDING_OVER]
    assert scene.send(seconds=5.0).acknowledged is not None
    scene.judge()


@pytest.mark.parametrize(
    ("fault", "offset", "formats"),
    [(BrokerFault.LOST_ANSWER, 2, [1, 1, 1, MAGIC]), (BrokerFault.LOST_REQUEST, 3, [1, 1, MAGIC, MAGIC])],
    ids=["stored", "not stored"],
)
def test_a_doubt_that_is_open_at_the_hand_over_is_resolved_among_batches_of_the_new_format(
    fault: BrokerFault, offset: int, formats: list[int]
) -> None:
    scene = Upgrade(clients=2)
    scene.send(0)
    scene.send(1)
    cluster = scene.world.cluster

    def lose_one(_seen: ProduceSeen) -> BrokerFault:
        cluster.choose_fault = lambda _seen: BrokerFault.NONE
        return fault

    cluster.choose_fault = lose_one
    in_doubt = scene.send(0, seconds=0.1)
    scene.restart(1, RAISED_2_8)
    passed_on = scene.send(1, seconds=0.3)
    assert (in_doubt.is_done, passed_on.is_done) == (False, True)
    scene.run(8.0)
    assert in_doubt.acknowledged is not None
    assert in_doubt.acknowledged[1] == offset
    assert scene.formats() == formats
    scene.judge()


def test_a_proxy_that_starts_later_knows_that_producers_were_handed_over() -> None:
    scene = Upgrade(proxies=2)
    scene.send()
    scene.restart(1, RAISED_2_8)
    handed_over = scene.send()
    scene.proxies[1].crash()
    scene.restart(1, KEEPS_2_8)
    scene.run(5.0)
    assert [proxy.mode for proxy in scene.proxies] == [HANDING_OVER, HANDING_OVER]
    refused = scene.send(seconds=5.0)
    scene.restart(1, RAISED_2_8)
    scene.run(15.0)
    assert handed_over.is_done
    assert refused.acknowledged is not None
    assert scene.formats() == [1, MAGIC, MAGIC]
    scene.judge()


@dataclass
class Met:
    """In how many worlds it was seen what they are made for."""

    both_ways: int = 0
    """A producer has records in the log in either format."""
    set_back: int = 0
    restarted: int = 0
    passed: int = 0

    def look(self, played: HandOver, outcome: Outcome) -> None:
        world = outcome.world
        senders: dict[bool, set[bytes]] = {False: set(), True: set()}
        for partition in world.cluster.partitions.values():
            for stored in partition.log.history:
                is_new = stored.message.magic == MAGIC
                senders[is_new] |= {(record.value or b"").split(b"/")[0] for record in stored.message.records}
        self.both_ways += bool(senders[False] & senders[True])
        self.set_back += played.is_set_back
        self.restarted += any(proxy.lives > 1 for proxy in world.proxies)
        self.passed += played.passed_on > 0


@pytest.mark.timeout(600)
def test_nothing_is_lost_or_twice_in_random_worlds_whose_brokers_are_upgraded() -> None:
    met, failures = Met(), []
    for seed in SEEDS:
        played = HandOver(seed)
        outcome = played.run()
        met.look(played, outcome)
        failures += [outcome.explain()] if outcome.problems else []
    assert not failures, "\n".join(failures)
    assert min(met.both_ways, met.set_back, met.restarted, met.passed) >= CROWDED, met


def test_the_same_seed_is_the_same_world_to_the_last_byte() -> None:
    first, second, other = run_seed(5), run_seed(5), run_seed(6)
    assert first.world.network.digest == second.world.network.digest != other.world.network.digest


def test_a_failing_seed_tells_how_to_see_it_again() -> None:
    assert "python -m simulation.hand_over 3\n" in run_seed(3).explain()
