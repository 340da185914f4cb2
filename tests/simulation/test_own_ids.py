"""Batches that the proxy appends as their clients sent them, in front of brokers that check their sequences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulation.test_forms import Scene

from idemproxy.proxy import limits
from testkit.virtual.batches import MAGIC
from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.client_bytes import batch_bytes
from testkit.virtual.conditional_writer import ConditionalWriter
from testkit.virtual.producer import Batch
from testkit.virtual.releases import RAISED_2_8, RAISED_3_9, RAISED_4_3, Release
from testkit.virtual.world import TOPIC, World, WorldSettings

OUT_OF_ORDER, FENCED, INVALID_RECORD = 45, 47, 87
RETRIABLE = (6, 7, 19)
PLACE = TOPIC, 0


class OwnScene(Scene):
    """The proxy appends with the clients' ids."""

    def __init__(self, *, brokers: int = 1, keeps: Release = RAISED_3_9, proxies: int = 1) -> None:
        super().__init__(brokers=brokers, keeps=keeps, proxies=proxies, appends_with_ids=True)

    def named(self) -> list[tuple[int, int, int, int]]:
        """What the log has: producer id, epoch, base sequence, number of records."""
        found = [stored.message for stored in self.log.messages]
        return [(one.producer_id, one.producer_epoch, one.base_sequence, one.record_count) for one in found]

    def expected(self, *sequences: int, epoch: int = 0) -> list[tuple[int, int, int, int]]:
        return [(self.client.producer.producer_id, epoch, sequence, 1) for sequence in sequences]

    def fail_next(self, fault: BrokerFault) -> None:
        cluster = self.world.cluster

        def once(_seen: ProduceSeen) -> BrokerFault:
            cluster.choose_fault = lambda _seen: BrokerFault.NONE
            return fault

        cluster.choose_fault = once

    def write_past(self, sequence: int, *values: bytes, epoch: int = 0) -> None:
        """The same producer, past the proxy."""
        data = batch_bytes(values, self.client.producer.producer_id, epoch, sequence, 0)
        self.log.append(data, self.world.network.now, stores=MAGIC)
        self.log.advance(self.log.end_offset)


def codes(batch: Batch) -> list[int]:
    return [answer.error_code for answer in batch.answers]


@pytest.mark.parametrize("release", [RAISED_3_9, RAISED_4_3])
def test_batches_are_appended_with_the_numbers_of_their_client(release: Release) -> None:
    scene = OwnScene(keeps=release)
    for _ in range(7):
        scene.send(seconds=0.5)
    assert scene.named() == scene.expected(*range(7))
    scene.judge([MAGIC] * 7)


@pytest.mark.parametrize("fault", [BrokerFault.LOST_ANSWER, BrokerFault.LOST_REQUEST])
@pytest.mark.parametrize("forgets", [False, True])
def test_an_unknown_outcome_is_ended_by_the_log(fault: BrokerFault, forgets: bool) -> None:
    scene = OwnScene()
    scene.send()
    scene.fail_next(fault)
    lost = scene.send(seconds=0.2)
    if forgets:
        scene.log.producers.clear()
    scene.run(8.0)
    assert codes(lost) == [0]
    scene.send()
    assert scene.named() == scene.expected(0, 1, 2)
    scene.judge([MAGIC] * 3)


def test_a_producer_that_the_broker_has_forgotten_goes_on_where_it_was() -> None:
    scene = OwnScene()
    scene.send()
    scene.log.producers.clear()
    assert codes(scene.send()) == [0]
    assert scene.named() == scene.expected(0, 1)


def test_a_new_leader_that_lacks_records_gets_the_rest_of_the_epoch_without_its_numbers() -> None:
    """Its sequences would leave a gap there. No client hears of it, and a new epoch has its numbers again."""
    scene = OwnScene(brokers=2)
    scene.send()
    scene.send()
    scene.world.cluster.move_leader(*PLACE, 2, truncate_to=1, unclean=True)
    scene.run(0.5)
    after = [scene.send(seconds=8.0), scene.send(), scene.send()]
    assert [code for batch in after for code in codes(batch) if code not in RETRIABLE] == [0] * 3
    producer_id = scene.client.producer.producer_id
    assert [stored.message.marked_as for stored in scene.log.messages[1:]] == [
        (producer_id, 0, sequence, 1) for sequence in (2, 3, 4)
    ]
    scene.world.redis.flush()
    scene.run(8.0)
    assert codes(scene.send(seconds=12.0))[-1] == 0
    scene.client.producer.producer_epoch += 1
    scene.client.producer.state(PLACE).next_sequence = 0
    scene.send(seconds=8.0)
    assert scene.named()[-1] == (producer_id, 1, 0, 1)


@pytest.mark.parametrize("records_since", [0, 1])
def test_other_records_under_the_due_sequence_are_not_taken_for_the_batch(records_since: int) -> None:
    """Below the bound the proxy looks; above it the broker answers as to any producer."""
    scene = OwnScene()
    scene.send()
    scene.write_past(1, b"somebody else")
    for _ in range(records_since):
        scene.world.clients[1].send(*PLACE)
        scene.run(2.0)
    refused = scene.send(seconds=12.0)
    assert (INVALID_RECORD in codes(refused)) == bool(records_since)


def test_more_records_than_the_batch_has_are_refused_by_name() -> None:
    scene = OwnScene()
    scene.send()
    scene.write_past(1, b"one", b"two")
    refused = scene.send(seconds=12.0)
    assert OUT_OF_ORDER not in codes(refused)
    assert INVALID_RECORD in codes(refused)


def test_a_newer_epoch_past_the_proxy_fences() -> None:
    scene = OwnScene()
    scene.send()
    scene.write_past(0, b"newer", epoch=3)
    assert FENCED in codes(scene.send(seconds=12.0))


def test_a_topic_that_keeps_the_old_format_gets_wrappers() -> None:
    scene = OwnScene(keeps=RAISED_2_8)
    scene.log.keeps_old_format = True
    assert codes(scene.send()) == [0]
    assert codes(scene.send()) == [0]
    scene.judge([1, 1])


def test_what_is_unverified_is_rebuilt_of_all_batches_that_the_producer_has_in_the_log() -> None:
    scene = OwnScene()
    for _ in range(3):
        scene.send(seconds=0.5)
    scene.world.redis.flush()
    scene.run(8.0)
    assert scene.send(seconds=12.0).acknowledged is not None
    assert scene.named() == scene.expected(0, 1, 2, 3)
    entry = scene.world.proxies[0].engine.sequencer(scene.client.producer.producer_id, *PLACE).stream.held.entry
    assert [(one.base_sequence, one.base_offset) for one in entry.window] == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_broker_that_knows_less_than_the_log_has_is_no_reason_for_an_error() -> None:
    scene = OwnScene()
    for _ in range(3):
        scene.send(seconds=0.5)
    scene.log.producers[scene.client.producer.producer_id].batches.pop()
    assert codes(scene.send(seconds=8.0)) == [0]
    assert scene.log.end_offset == 4


def test_what_takes_the_place_of_an_unrecoverable_batch_is_compared_with_what_is_stored() -> None:
    """The broker has the numbers, and would call other records a success."""
    scene = OwnScene()
    scene.send()
    scene.fail_next(BrokerFault.LOST_ANSWER)
    lost = scene.client.send(*PLACE)
    scene.run(0.1)
    scene.log.messages.clear()  # the log cannot tell: its records are gone, and the numbers are known
    scene.log.start_offset = scene.log.end_offset
    scene.run(30.0)
    assert INVALID_RECORD in codes(lost)
    identity = lost.answers[0].identity
    scene.world.double.produce(scene.world.proxies[0].address, PLACE, identity)
    scene.run(30.0)
    (answer,) = scene.world.double.answers
    assert answer[2] in (*RETRIABLE, INVALID_RECORD)


def test_conditional_batches_have_a_batch_marker_all_the_same() -> None:
    settings = WorldSettings(clocks=((0.0, 1.0),), brokers=1, release=RAISED_3_9)
    world = World(1, replace(settings, is_conditional=True, appends_with_ids=True))
    log = world.cluster.log(*PLACE)
    writer = ConditionalWriter(world.network, "writer", world.proxies[0].addresses, PLACE, log, 3, 1)
    world.start()
    writer.go_on()
    world.network.run(20.0)
    assert writer.is_over
    assert [stored.message.producer_id for stored in log.messages] == [-1] * 3


def test_a_copy_that_was_appended_late_is_found_by_the_audit() -> None:
    scene = OwnScene()
    scene.fail_next(BrokerFault.LOST_REQUEST)
    batch = scene.send(seconds=8.0)
    assert codes(batch) == [0]
    scene.log.producers.clear()
    scene.write_past(0, b"client-1/t-0/0")
    scene.run(sum(limits.DUPLICATE_AUDITS_SECONDS) + 60)
    found = [event.offsets for _, _, event in scene.world.proxies[0].events if type(event).__name__ == "DuplicateFound"]
    assert found == [(0, 1)]
