"""Batches that the proxy appends as their clients sent them, in front of brokers that check their sequences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulation.test_forms import INVALID_RECORD, PLACE, RETRIABLE, Scene

from idemproxy.codecs.batch_marker import parse_batch_marker
from idemproxy.proxy import limits
from idemproxy.state.store import MODE_PROXY, mode_key, without_ids_key
from testkit.virtual.batches import MAGIC
from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.client_bytes import batch_bytes
from testkit.virtual.conditional_writer import ConditionalWriter
from testkit.virtual.producer import Batch
from testkit.virtual.proxy import CLUSTER_NAME
from testkit.virtual.releases import RAISED_2_8, RAISED_3_9, RAISED_4_3, Release
from testkit.virtual.world import World, WorldSettings

OUT_OF_ORDER, FENCED, TIMED_OUT = 45, 47, 7
MODE, WITHOUT_IDS = mode_key(CLUSTER_NAME), without_ids_key(CLUSTER_NAME)
RETRY_SECONDS = 120


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

    def lose(self, *, is_seen_again: bool) -> Batch:
        """A batch is appended, its answer is lost, and the log does not tell while it is looked for."""
        self.fail_next(BrokerFault.LOST_ANSWER)
        lost = self.client.send(*PLACE)
        self.run(0.1)
        kept = list(self.log.messages)
        del self.log.messages[1:]
        while INVALID_RECORD not in codes(lost):
            self.run(0.1)
        self.log.messages[1:] = kept[1:] if is_seen_again else []
        return lost

    def send_other(self, batch: Batch, seconds: float) -> tuple[int, int]:
        """Records under the batch's numbers that are not its own: the code and the offset of the answer."""
        identity = batch.answers[0].identity
        double = self.world.double
        double.produce(self.world.proxies[0].address, PLACE, identity, [b"another"])
        self.run(seconds)
        return double.answers[-1][2:]

    def others(self) -> list[tuple[int, int]]:
        """The answers that are due to what ``send_other`` has sent, and the log has."""
        return [(0, one.first_offset) for one in self.log.messages if one.message.inner[0].value == b"another"]

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


class TakenOverScene(OwnScene):
    """The brokers may take over from the proxy. A new leader lacks records of the producer."""

    def __init__(self) -> None:
        super().__init__(brokers=2)
        engine = self.world.proxies[0].engine
        assert engine is not None
        engine.context.left_out_ids.begin(RETRY_SECONDS)
        self.send()
        self.send()
        self.world.redis.put(MODE, MODE_PROXY)
        self.world.cluster.move_leader(*PLACE, 2, truncate_to=1, unclean=True)
        self.run(0.5)

    @property
    def is_told(self) -> bool:
        return self.world.redis.get(WITHOUT_IDS) is not None


def test_before_a_batch_goes_without_its_id_redis_is_told_again_while_it_may_be_sent_again() -> None:
    scene = TakenOverScene()
    assert not scene.is_told
    for seconds in (0.0, 1.5 * RETRY_SECONDS, 0.6 * RETRY_SECONDS):
        scene.run(seconds)
        assert codes(scene.send(seconds=8.0))[-1] == 0
        assert scene.is_told
    scene.run(1.3 * RETRY_SECONDS)
    assert scene.is_told
    scene.run(0.7 * RETRY_SECONDS)
    assert not scene.is_told


@pytest.mark.parametrize("stored", [b"changing to native", None])
def test_no_batch_goes_without_its_id_while_the_brokers_take_over(stored: bytes | None) -> None:
    scene = TakenOverScene()
    scene.world.redis.put(MODE, stored)
    waits = scene.send(seconds=20.0)
    assert set(codes(waits)) <= {*RETRIABLE, TIMED_OUT}
    assert len(scene.log.messages) == 1
    scene.world.redis.put(MODE, MODE_PROXY)
    scene.run(8.0)
    assert codes(waits)[-1] == 0


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


def test_an_old_offset_with_an_error_code_is_compared_too() -> None:
    """What is there has the batch's numbers, whatever the broker says with the offset."""
    scene = OwnScene()
    scene.send()
    scene.write_past(1, b"somebody else")
    scene.world.clients[1].send(*PLACE)
    scene.run(2.0)
    scene.fail_next(BrokerFault.ERROR_AFTER_APPEND)
    assert INVALID_RECORD in codes(scene.send(seconds=30.0))


@pytest.mark.parametrize("delay", [0.002, 0.005, 0.01, 0.02])
def test_a_comparison_that_fails_for_a_moment_is_no_proof_of_other_records(delay: float) -> None:
    """The log has the batch below the bound, and its broker dies before that is read."""
    scene = OwnScene(brokers=2)
    scene.send()
    scene.write_past(1, b"client-1/t-0/1")
    scene.world.clients[1].send(*PLACE)
    scene.run(2.0)
    cluster = scene.world.cluster

    def once(_seen: ProduceSeen) -> BrokerFault:
        cluster.choose_fault = lambda _seen: BrokerFault.NONE
        scene.world.network.schedule(delay, lambda: cluster.crash_broker(1))
        return BrokerFault.NONE

    cluster.choose_fault = once
    batch = scene.send(seconds=40.0)
    assert batch.acknowledged is not None
    assert scene.named().count(scene.expected(1)[0]) == 1


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


def test_a_topic_that_changes_to_the_old_format_loses_one_batch_marker_at_most() -> None:
    """The first batch shows it, though the partition was probed a moment ago."""
    scene = OwnScene(keeps=RAISED_2_8)
    for _ in range(2):
        scene.send(seconds=1.0)
    scene.log.keeps_old_format = True
    assert [codes(scene.send(seconds=1.0)) for _ in range(3)] == [[0]] * 3
    first, *others = [stored.message for stored in scene.log.messages[2:]]
    assert first.magic == 1
    assert all(parse_batch_marker(one.key) is not None for one in others)
    assert len(others) == 2


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


@pytest.mark.parametrize("is_seen_again", [False, True], ids=["gone", "seen_again"])
@pytest.mark.parametrize("fault", [BrokerFault.NONE, BrokerFault.ERROR_AFTER_APPEND, BrokerFault.REFUSED])
def test_what_takes_the_place_of_an_unrecoverable_batch_is_stored_before_it_is_a_success(
    fault: BrokerFault, is_seen_again: bool
) -> None:
    """The broker has the numbers, and would call other records a success."""
    scene = OwnScene()
    scene.send(seconds=0.5)
    lost = scene.lose(is_seen_again=is_seen_again)
    scene.world.cluster.rates = replace(scene.world.cluster.rates, refusals=(19,))
    scene.fail_next(fault)
    answer = scene.send_other(lost, seconds=0.5)
    if answer not in scene.others():
        assert answer[0] in RETRIABLE
        answer = scene.send_other(lost, seconds=30.0)
    assert answer in scene.others()


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


def test_another_batch_with_the_same_numbers_is_not_committed_by_a_takeover() -> None:
    scene = OwnScene(proxies=2)
    identity = scene.leave_unrecoverable()
    found = scene.take_another_batch_over(identity, BrokerFault.LATE_ANSWER)
    assert set(found) <= {*RETRIABLE, INVALID_RECORD}
