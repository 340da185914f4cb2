"""Brokers of both message formats, and brokers that change theirs, under proxies that give idempotence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idemproxy.codecs.batch_marker import parse_batch_marker
from testkit.virtual.batches import MAGIC
from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.client import VirtualClient
from testkit.virtual.producer import Batch, Identity
from testkit.virtual.releases import KEEPS_2_8, KEEPS_3_9, RAISED_2_8, RAISED_3_9, RAISED_4_3, Release
from testkit.virtual.world import TOPIC, World, WorldSettings

RETRIABLE, INVALID_RECORD = (6, 7, 19), 87
PLACE = TOPIC, 0


class Scene:
    """A world in which nothing breaks by itself; its brokers have producer ids and store format v1."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        keeps: Release = KEEPS_2_8,
        partitions: int = 1,
        proxies: int = 1,
        has_pass_through: bool = False,
        appends_with_ids: bool = False,
    ) -> None:
        how = WorldSettings(clocks=((0.0, 1.0),) * proxies, brokers=brokers, clients=2, partitions=partitions)
        self.world = World(
            1,
            replace(how, proxies=proxies, has_pass_through=has_pass_through, appends_with_ids=appends_with_ids),
        )
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

    def send(self, seconds: float = 3.0, partition: int = 0) -> Batch:
        batch = self.client.send(TOPIC, partition)
        self.run(seconds)
        return batch

    def fail_next(self, fault: BrokerFault) -> None:
        cluster = self.world.cluster

        def once(_seen: ProduceSeen) -> BrokerFault:
            cluster.choose_fault = lambda _seen: BrokerFault.NONE
            return fault

        cluster.choose_fault = once

    def leave_unrecoverable(self) -> Identity:
        """A batch is in the log, and its client was answered that this is not known: the log could not tell for a
        while. Return its identity."""
        self.send(seconds=0.5)
        self.fail_next(BrokerFault.LOST_ANSWER)
        lost = self.client.send(TOPIC, 0)
        self.run(0.1)
        kept = list(self.log.messages)
        del self.log.messages[1:]
        for _ in range(300):
            self.run(0.1)
            if INVALID_RECORD in (codes := [answer.error_code for answer in lost.answers]):
                break
        assert INVALID_RECORD in codes
        self.log.messages[:] = kept
        return lost.answers[0].identity

    def take_another_batch_over(self, identity: Identity, fault: BrokerFault) -> list[int]:
        """Another batch with these numbers is reserved, its append ends so, and its proxy dies. Return the error codes
        of its tries at the next one."""
        values = [b"another"] * identity.record_count
        double, proxies = self.world.double, self.world.proxies
        self.fail_next(fault)
        double.produce(proxies[0].address, PLACE, identity, values)
        self.run(0.05)
        proxies[0].crash()
        self.run(5.0)
        for _ in range(4):
            double.produce(proxies[1].address, PLACE, identity, values)
            self.run(10.0)
        return [answer[2] for answer in double.answers]

    def judge(self, formats: list[int]) -> None:
        """All is in the log once, in these formats."""
        assert [stored.message.magic for stored in self.log.messages] == formats
        assert self.world.errors() == []
        assert self.world.cluster.all_violations() == []


@pytest.mark.parametrize("release", [RAISED_2_8, RAISED_3_9, RAISED_4_3])
def test_a_broker_that_stores_v2_gets_batches_as_their_client_sent_them(release: Release) -> None:
    scene = Scene(keeps=release)
    batches = [scene.send(seconds=0.5) for _ in range(3)]
    assert [batch.acknowledged is not None for batch in batches] == [True] * 3
    scene.judge([MAGIC] * 3)
    for number, stored in enumerate(scene.log.messages):
        assert stored.message.producer_id == -1
        assert stored.message.marked_as == (scene.client.producer.producer_id, 0, number, 1)


@pytest.mark.parametrize(("keeps", "raised"), [(KEEPS_2_8, RAISED_2_8), (KEEPS_3_9, RAISED_3_9)])
def test_each_leader_gets_batches_in_the_format_that_it_stores(keeps: Release, raised: Release) -> None:
    scene = Scene(brokers=2, keeps=keeps)
    batches = [scene.send()]
    scene.restart(1, raised)
    batches.append(scene.send())
    scene.lead(2)
    batches.append(scene.send())
    scene.lead(1)
    batches.append(scene.send())
    scene.restart(1, keeps)
    batches.append(scene.send())
    assert [batch.acknowledged and batch.acknowledged[1] for batch in batches] == [0, 1, 2, 3, 4]
    assert scene.world.proxies[0].lives == 1
    scene.judge([1, MAGIC, 1, MAGIC, 1])


@pytest.mark.parametrize(
    ("fault", "is_stored"),
    [(BrokerFault.LOST_ANSWER, True), (BrokerFault.LOST_REQUEST, False)],
    ids=["stored", "not stored"],
)
@pytest.mark.parametrize(("first", "then"), [(KEEPS_2_8, RAISED_2_8), (RAISED_2_8, KEEPS_2_8)], ids=["up", "down"])
def test_a_batch_whose_leader_changes_its_format_meanwhile_is_stored_once(
    fault: BrokerFault, is_stored: bool, first: Release, then: Release
) -> None:
    scene = Scene(keeps=first)
    scene.send()
    cluster = scene.world.cluster

    def lose_one(_seen: ProduceSeen) -> BrokerFault:
        cluster.choose_fault = lambda _seen: BrokerFault.NONE
        return fault

    cluster.choose_fault = lose_one
    lost = scene.send(seconds=0.1)
    scene.restart(1, then)
    scene.run(15.0)
    assert lost.acknowledged is not None
    assert lost.acknowledged[1] == 1
    old, new = first.message_format, then.message_format
    scene.judge([old, old if is_stored else new])
    assert scene.send().acknowledged is not None


@pytest.mark.parametrize(("first", "then"), [(KEEPS_2_8, RAISED_2_8), (RAISED_2_8, KEEPS_2_8)], ids=["up", "down"])
def test_a_broker_that_died_unnoticed_gets_nothing_in_the_format_that_it_stored_before(
    first: Release, then: Release
) -> None:
    scene = Scene(keeps=first, partitions=2)
    for partition in (0, 1):
        scene.send(partition=partition)
    scene.world.cluster.upgrade_broker(1, then, is_clean=False, down_seconds=0.2, is_silent=True)
    scene.run(0.5)
    scene.send(seconds=0.05)  # the one produce connection is busy, and the next one leads to the broker as it is now
    batch = scene.send(seconds=60.0, partition=1)
    assert batch.acknowledged is not None
    before, after = scene.world.cluster.log(TOPIC, 1).messages
    formats = [before.message.magic, after.message.magic]
    assert formats == [first.message_format, then.message_format]
    if then.message_format == MAGIC:
        assert after.message.marked_as == (scene.client.producer.producer_id, 0, 1, 1)
    else:
        assert parse_batch_marker(after.message.key) is not None
    assert scene.world.errors() == []


def test_nor_over_a_clients_own_new_connection_to_it() -> None:
    scene = Scene(keeps=KEEPS_2_8, has_pass_through=True)
    assert scene.send().acknowledged is not None
    scene.world.cluster.upgrade_broker(1, RAISED_2_8, is_clean=False, down_seconds=0.2, is_silent=True)
    scene.run(0.5)
    scene.client.disconnect()
    assert scene.send(seconds=60.0).acknowledged is not None
    before, after = scene.log.messages
    assert [before.message.magic, after.message.magic] == [1, MAGIC]
    assert after.message.marked_as == (scene.client.producer.producer_id, 0, 1, 1)
    assert scene.world.errors() == []


def unheard(scene: Scene, count: int) -> list[Batch]:
    """Batches that are in the log, and whose answers their client has not read when its proxy dies and Redis loses its
    data. It sends the first one again, alone."""
    scene.client.read_nothing(60.0)
    batches = [scene.client.send(TOPIC, 0) for _ in range(count)]
    scene.run(1.0)
    assert not any(batch.answers for batch in batches)
    scene.world.proxies[0].crash()
    scene.client.disconnect()
    scene.world.redis.flush()
    return batches


def appends_of(scene: Scene, batch: Batch) -> int:
    """How often it was appended."""
    stored = [record.value for one in scene.log.history for record in one.message.records]
    return stored.count(batch.values[0])


@pytest.mark.parametrize("kept", [1, 2])
def test_what_retention_took_is_not_appended_again_where_the_log_may_have_more_of_its_producer(kept: int) -> None:
    """Redis has lost the producer, and retention its first batches. That the others are its own nothing tells."""
    scene = Scene(keeps=RAISED_3_9)
    scene.send()
    batches = unheard(scene, 4)
    left = scene.log.messages[-kept:]
    scene.log.retain(left[0].first_offset)
    scene.run(60.0)
    assert scene.log.messages[:kept] == left
    assert batches[0].answers[-1].error_code == INVALID_RECORD
    assert appends_of(scene, batches[0]) == 1
    assert scene.world.errors() == []


def test_a_retry_of_what_a_broker_has_converted_up_is_found_by_its_content() -> None:
    """A topic of format v1 is raised to v2: wrappers that came until that was seen are batches without a marker."""
    scene = Scene(keeps=RAISED_2_8)
    scene.log.keeps_old_format = True
    for _ in range(3):
        assert scene.send().acknowledged is not None
    scene.log.keeps_old_format = False
    batch = scene.send()
    assert batch.acknowledged is not None
    stored = scene.log.messages[-1].message
    assert (stored.magic, stored.producer_id, stored.marked_as) == (MAGIC, -1, None)
    scene.restart(1, RAISED_2_8)
    scene.world.double.produce(scene.world.proxies[0].address, PLACE, batch.answers[0].identity, batch.values)
    scene.run(30.0)
    (answer,) = scene.world.double.answers
    assert answer[2:] == (0, batch.acknowledged[1])


@pytest.mark.parametrize("release", [KEEPS_2_8, RAISED_2_8])
@pytest.mark.parametrize("fault", [BrokerFault.LOST_REQUEST, BrokerFault.LATE_ANSWER])
def test_another_batch_with_the_same_numbers_is_not_committed_by_a_takeover(
    release: Release, fault: BrokerFault
) -> None:
    scene = Scene(keeps=release, proxies=2)
    identity = scene.leave_unrecoverable()
    assert set(scene.take_another_batch_over(identity, fault)) <= {*RETRIABLE, INVALID_RECORD}
