"""Appending under an append reservation (rules R2, R6, R8, R12, R17): a busy producer's batches leave without a swap
each, and whatever becomes of them and of the proxies, each is in the log once, as with a swap for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mutants.scenes import SleepingBroker, dies_after, foreign

from idemproxy.proxy import limits
from idemproxy.proxy.events import UnknownOutcomeOpened
from idemproxy.proxy.flow.effects import Append, Swap
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.state.entry import NO_CONTENT, NO_DIGEST, NOBODY, Entry, Intent, unpack
from testkit.stage.bursts import MEANWHILE, OUTCOMES, Burst, compare_owned, owned_groups
from testkit.stage.sequencer import (
    INSTANCE_ID,
    KEY,
    NEXT_INSTANCE_ID,
    PARTITION,
    TOPIC,
    Client,
    Request,
    Stage,
)

OUT_OF_ORDER = 45
PAUSE_SECONDS = 0.01
LEASE_OUT_SECONDS = 20.0


class Busy:
    """A producer that sends a batch of one record each hundredth of a second, at a proxy that takes append
    reservations."""

    def __init__(self, stage: Stage | None = None) -> None:
        self.stage = stage or Stage(answers_later=True, owns=True)
        self.client = Client()
        self.requests: list[Request] = []
        self.sequence = 0
        self.swaps: list[Entry] = []
        self.stage.before[Swap] = lambda swap: self.swaps.append(unpack(swap.value))

    def send(self, batches: int = 1) -> None:
        for _ in range(batches):
            self.send_one()
            self.stage.run(PAUSE_SECONDS)

    def send_one(self) -> Request:
        """Time stands still."""
        request = self.stage.send(self.client, self.sequence)
        self.sequence += 1
        self.requests.append(request)
        return request

    def owns(self) -> bool:
        append_reservation = self.stage.stream.held.append_reservation
        return append_reservation is not None and append_reservation.is_confirmed

    def is_all_stored_once(self) -> bool:
        """Was every batch answered with where it is, and is it there once?"""
        values = [b"value %d" % number for number in range(self.sequence)]
        return self.stage.stored_values() == values and [one.offset for one in self.requests] == list(
            range(self.sequence)
        )


def owner(batches: int = 4) -> Busy:
    """It has taken its append reservation and appended under it. Of that Redis has only the first batch."""
    busy = Busy()
    busy.send(batches)
    assert busy.owns()
    return busy


def append_reservation(entry: Entry) -> Intent:
    assert entry.intent is not None
    assert entry.intent.is_append_reservation
    return entry.intent


# ---------------------------------------------------------------------- the usual
def test_a_busy_producer_makes_a_swap_every_50_ms_and_not_for_each_batch() -> None:
    busy = Busy()
    busy.send(100)
    assert len(busy.swaps) < 2 + 100 * PAUSE_SECONDS / limits.APPEND_RESERVATION_WRITE_SECONDS + 1
    assert [len(entry.intent.batches) for entry in busy.swaps if entry.intent is not None] == [1] + [0] * (
        len(busy.swaps) - 1
    )
    busy.stage.run(1)
    assert busy.is_all_stored_once()
    assert (busy.stage.entry().intent, busy.stage.entry().next_sequence) == (None, 100)


def test_without_the_setting_there_is_no_append_reservation() -> None:
    busy = Busy(Stage(answers_later=True))
    busy.send(20)
    assert [entry.intent.is_append_reservation for entry in busy.swaps if entry.intent is not None] == [False] * 20


def test_a_producer_that_sends_now_and_then_takes_none() -> None:
    busy = Busy()
    for _ in range(5):
        busy.send()
        busy.stage.run(0.2)
    assert not any(entry.intent is not None and entry.intent.is_append_reservation for entry in busy.swaps)


def test_nothing_leaves_before_the_swap_that_takes_it_is_confirmed() -> None:
    busy = Busy()
    busy.send()
    busy.stage.store_away = True
    busy.send_one()
    busy.stage.run(0.2)
    assert [entry.intent for entry in busy.swaps if entry.intent is not None][1].is_append_reservation
    assert len(busy.stage.sent) == 1
    busy.stage.store_away = False
    busy.stage.run(1)
    assert busy.is_all_stored_once()


def test_a_written_append_reservation_is_bounded_by_the_last_commit_alone() -> None:
    busy = owner()
    foreign(busy.stage, *[b"foreign"] * 5)
    busy.stage.context.bounds.note(TOPIC, PARTITION, Position(9, b"somebody"))
    busy.stage.outcomes.append(busy.stage.never_answers)
    busy.send_one()
    busy.stage.run(0.2)
    written = append_reservation(busy.stage.entry())
    assert written.lower_bound == busy.stage.entry().end_offset == 4


def test_what_nobody_uses_is_handed_over() -> None:
    busy = owner()
    busy.stage.run(limits.APPEND_RESERVATION_WRITE_SECONDS + 2 * limits.COMMIT_IDLE_SECONDS)
    assert not busy.owns()
    assert busy.stage.entry().intent is None
    assert busy.stage.sequencer.is_idle


def test_it_is_not_handed_over_while_a_batch_is_in_flight() -> None:
    busy = owner()
    broker = SleepingBroker(busy.stage, is_heard_of=False)
    busy.send()
    busy.stage.run(2)
    assert append_reservation(busy.stage.entry()).owner == INSTANCE_ID
    broker.wake()


def test_nothing_begins_under_it_while_it_is_handed_over() -> None:
    """Whatever is sent has something in the store that says so."""
    busy = owner()
    stage = busy.stage
    unsaid: list[Append] = []

    def is_said(effect: Append) -> None:
        intent = stage.entry().intent
        if intent is None or intent.owner != INSTANCE_ID:
            unsaid.append(effect)

    def one_more(swap: Swap) -> None:
        if unpack(swap.value).intent is None:
            del stage.before[Swap]
            busy.send_one()

    stage.on_append, stage.before[Swap] = is_said, one_more
    stage.run(1)
    assert len(stage.sent) == 5
    assert not unsaid
    assert busy.is_all_stored_once()


def test_it_does_not_expire_with_entries_at_rest() -> None:
    busy = Busy()
    seen: list[tuple[bool, int]] = []
    busy.stage.before[Swap] = lambda swap: seen.append((unpack(swap.value).intent is not None, swap.ttl_ms))
    busy.send(20)
    busy.stage.run(1)
    assert {ttl for is_open, ttl in seen if is_open} == {busy.stage.context.instance.ids_ttl_ms}


def test_a_proxy_that_ends_hands_it_over() -> None:
    busy = owner()
    busy.stage.context.instance.is_draining = True
    assert not busy.stage.sequencer.is_idle
    busy.stage.run(0.3)
    assert busy.stage.sequencer.is_idle
    assert busy.stage.entry().intent is None
    assert busy.stage.entry().next_sequence == 4


def test_what_a_dead_owner_had_not_written_is_known_by_its_numbers_alone() -> None:
    """The batch markers in the log tell nothing of the content; a batch that the owner had written has its digest."""
    busy = owner()
    stage = busy.stage
    assert [batch.base_sequence for batch in stage.entry().window] == [0]
    stage.die()
    other = stage.send(Client(), 3, b"other records")
    stage.run(LEASE_OUT_SECONDS)
    assert [batch.digest == NO_DIGEST for batch in stage.entry().window] == [False, True, True, True]
    again = [stage.send(Client(), sequence, timestamp=1) for sequence in range(4)]
    written = stage.send(Client(), 0, b"other records")
    stage.run(LEASE_OUT_SECONDS)
    assert (other.code, other.offset) == (0, 3)
    assert [one.offset for one in again] == [0, 1, 2, 3]
    assert written.code == OUT_OF_ORDER
    assert busy.is_all_stored_once()


# ---------------------------------------------------------------------- where there is none
def no_batch_markers(stage: Stage) -> None:
    stage.context.topics.note_batch_marker_lost(TOPIC, PARTITION)


def gives_up(stage: Stage) -> None:
    """The producer has a batch of which nobody can tell whether it is in the log."""
    entry = stage.entry()
    left = Intent(NOBODY, 0, (), 0, bytes(8), NO_CONTENT, 1, 255)
    stage.stream.held.hold(replace(entry, version=entry.version + 1, intent=left))


UNFIT: dict[str, Callable[[Stage], Any]] = {
    "no batch markers": no_batch_markers,
    "parts": lambda stage: stage.context.topics.note_too_large(TOPIC, 10_000),
    "another leader": lambda stage: setattr(stage, "leader", 2),
    "draining": lambda stage: setattr(stage.context.instance, "is_draining", True),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_it_does_not_cover_has_an_intent_of_its_own(name: str) -> None:
    busy = owner()
    UNFIT[name](busy.stage)
    said: list[Intent | None] = []
    busy.stage.on_append = lambda _effect: said.append(busy.stage.entry().intent)
    busy.send_one()
    busy.stage.run(1)
    assert said[0] is not None
    assert [one.base_sequence for one in said[0].batches] == [4]
    assert busy.is_all_stored_once()


def test_no_append_reservation_is_taken_next_to_an_unrecoverable_batch() -> None:
    busy = Busy()
    busy.send(2)
    busy.stage.run(1)
    gives_up(busy.stage)
    busy.swaps.clear()
    busy.send(3)
    assert not any(entry.intent is not None and entry.intent.is_append_reservation for entry in busy.swaps)


def test_while_the_store_is_away_it_is_used_for_a_second_and_no_longer() -> None:
    busy = owner(10)
    busy.stage.store_away = True
    busy.send(80)
    assert {one.code for one in busy.requests} == {0}
    busy.send(25)
    assert busy.requests[-1].code is None
    busy.stage.store_away = False
    busy.stage.run(1)
    assert busy.is_all_stored_once()


# ---------------------------------------------------------------------- the owner dies
def test_all_that_a_dead_owner_has_appended_is_found_in_the_log() -> None:
    """Its clients know of batches that Redis has never heard of, and one more is in doubt."""
    busy = owner(5)
    stage = busy.stage
    stage.outcomes.append(lambda effect: (stage.take(effect), stage.never_answers(effect))[1])
    busy.send_one()
    stage.run(0.0)
    assert stage.entry().next_sequence == 1
    stage.die()
    stage.run(0.01)
    retry = stage.send(Client(), 5)
    stage.run(LEASE_OUT_SECONDS)
    assert (retry.code, retry.offset) == (0, 5)
    assert stage.send(Client(), 6).code is None
    stage.run(1)
    assert stage.stored_values() == [b"value %d" % number for number in range(7)]
    duplicate = stage.send(Client(), 4)
    stage.run(1)
    assert (duplicate.code, duplicate.offset) == (0, 4)
    assert not stage.failures()


def test_what_a_dead_owner_was_about_to_append_is_appended_once() -> None:
    busy = owner(5)
    stage = busy.stage
    broker = SleepingBroker(stage, is_heard_of=False)
    busy.send_one()
    stage.run(0.0)
    stage.die()
    stage.later(0.5, broker.wake)
    retry = stage.send(Client(), 5)
    stage.run(LEASE_OUT_SECONDS)
    assert (retry.code, retry.offset) == (0, 5)
    assert stage.stored_values() == [b"value %d" % number for number in range(6)]


def test_a_proxy_that_rebuilds_it_owns_nothing_meanwhile() -> None:
    busy = owner(5)
    stage = busy.stage
    stage.die()
    stage.send(Client(), 5)
    stage.run(0.01)
    intent = stage.entry().intent
    assert intent is not None
    assert (intent.owner, intent.batches, intent.is_append_reservation) == (NEXT_INSTANCE_ID, (), False)


def test_a_living_owner_is_not_robbed() -> None:
    busy = owner(5)
    stage = busy.stage
    stage.die()
    stage.alive.add(INSTANCE_ID)
    stage.send(Client(), 5)
    stage.run(LEASE_OUT_SECONDS)
    assert append_reservation(stage.entry()).owner == INSTANCE_ID
    stage.alive.clear()
    stage.run(LEASE_OUT_SECONDS)
    assert stage.entry().next_sequence == 6


def test_deleted_records_of_a_dead_owner_are_no_proof_that_there_were_none() -> None:
    """Retention has taken what it appended: what comes next is no gap, and nobody can tell."""
    busy = owner(5)
    stage = busy.stage
    stage.die()
    stage.log.retain(5)
    stage.earliest = 5
    late = stage.send(Client(), 5)
    stage.run(LEASE_OUT_SECONDS)
    assert late.code == 87
    assert stage.entry().is_ambiguous


@pytest.mark.parametrize("sequence", [2, 3, 4, 5])
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_nor_are_they_in_a_new_data_generation(is_interrupted: bool, sequence: int) -> None:
    busy = owner(5)
    stage = busy.stage
    stage.die()
    stage.log.retain(5)
    stage.earliest = 5
    stage.begin_lease_epoch()
    if is_interrupted:
        dies_in_the_rebuild(stage, sequence)
    late = stage.send(Client(), sequence)
    stage.run(LEASE_OUT_SECONDS)
    assert late.code == 87


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_what_is_ambiguous_stays_so_in_a_new_data_generation(is_interrupted: bool) -> None:
    busy = owner(5)
    stage = busy.stage
    stage.die()
    stage.log.retain(5)
    stage.earliest = 5
    stage.send(Client(), 4)
    stage.run(LEASE_OUT_SECONDS)
    assert stage.entry().is_ambiguous
    stage.begin_lease_epoch()
    if is_interrupted:
        dies_in_the_rebuild(stage, 4)
    codes = []
    for sequence in (4, 1):
        late = stage.send(Client(), sequence)
        stage.run(LEASE_OUT_SECONDS)
        codes.append(late.code)
    assert (codes, stage.stored_values()) == ([87, 87], [])


def dies_in_the_rebuild(stage: Stage, sequence: int) -> None:
    """A proxy has written its takeover, and dies before it has read the log."""
    stage.send(Client(), sequence)
    stage.run(7.5)
    claim, data_generation = stage.entry().intent, stage.context.instance.data_generation
    assert claim is not None
    assert (claim.owner, claim.batches) == (NEXT_INSTANCE_ID, ())
    stage.die()
    stage.context.instance.data_generation, stage.context.instance.instance_id = data_generation, b"the.next"


def begin_to_take_over(stage: Stage) -> None:
    """A proxy takes over what the dead owner had. A new lease epoch begins for it before it has read the log."""
    stage.send(Client(), 5)
    stage.run(0.01)
    intent = stage.entry().intent
    assert intent is not None
    assert (intent.owner, intent.is_append_reservation) == (NEXT_INSTANCE_ID, False)
    stage.begin_lease_epoch(stage.context.instance.data_generation)
    stage.context.instance.grace_until = stage.now


def test_who_finishes_the_takeover_of_another_knows_that_it_was_an_append_reservation() -> None:
    """Seed 8666 of the random worlds: the first proxy was interrupted, and retention came before the second one."""
    busy = owner(5)
    stage = busy.stage
    stage.die()
    begin_to_take_over(stage)
    stage.log.retain(5)
    stage.earliest = 5
    late = stage.send(Client(), 4)
    stage.run(LEASE_OUT_SECONDS)
    assert late.code == 87
    assert stage.entry().is_ambiguous


@pytest.mark.parametrize("is_interrupted", [False, True])
@pytest.mark.parametrize(("sequence", "codes"), [(5, [45, 45]), (4, [7, 87])], ids=["absent", "stored"])
def test_what_comes_behind_records_that_lost_their_batch_markers_is_looked_for_itself(
    sequence: int, codes: list[int], is_interrupted: bool
) -> None:
    """The topic's settings were changed under the append reservation, and its owner died. What is not in the log gets
    the broker's own answer to a gap; what is there never does (rule R11)."""
    busy = Busy()
    busy.send(2)
    stage = busy.stage
    assert busy.owns()
    stage.log.keeps_wrapper_keys = False
    busy.send(3)
    assert {one.code for one in busy.requests} == {0}
    stage.die()
    if is_interrupted:
        begin_to_take_over(stage)
    client = Client()
    tries = [stage.send(client, sequence)]
    stage.run(limits.GAP_SECONDS + LEASE_OUT_SECONDS)
    tries.append(stage.send(client, sequence))
    stage.run(LEASE_OUT_SECONDS)
    assert [one.code for one in tries] == codes
    assert len(stage.stored_values()) == 5
    newer = stage.send(client, 0, epoch=1)
    stage.run(LEASE_OUT_SECONDS)
    assert newer.code == 0


@pytest.mark.parametrize("how", ["dies", "era", "evicted"])
def test_who_has_not_read_the_log_itself_reads_it(how: str) -> None:
    """The proxy that took it over knew that there are records without a batch marker, and that knowledge is gone with
    it. The batch is there, so it is no gap that is proven."""
    busy = Busy()
    stage = busy.stage
    busy.send(2)
    assert busy.owns()
    stage.log.keeps_wrapper_keys = False
    busy.send(3)
    stage.die()
    stage.send(Client(), 5)
    stage.run(LEASE_OUT_SECONDS)
    if how == "era":
        stage.begin_lease_epoch(stage.context.instance.data_generation)
        stage.context.instance.grace_until = stage.now
    elif how == "dies":
        stage.die()
        stage.context.instance.instance_id = b"the.next"
    else:
        stage.sequencer = stage.new_sequencer()
    late = stage.send(Client(), 4)
    stage.run(LEASE_OUT_SECONDS)
    assert late.code == 7
    assert len(stage.stored_values()) == 5


def beside(first: Stage, instance_id: bytes) -> Stage:
    """Another proxy on the same store and log."""
    stage = Stage(answers_later=True, owns=True)
    stage.values, stage.log = first.values, first.log
    stage.now = stage.context.time.now = first.now
    stage.context.instance.instance_id = instance_id
    return stage


def test_what_is_ahead_of_batches_in_flight_at_another_worker_gets_the_answer_of_a_broker() -> None:
    """Seed 923 of chaos. The leader moves while five batches are in flight: the first comes to the worker that takes
    the append reservation over, the sixth over another connection to one that has not. INVALID_RECORD would make its
    client begin a new epoch and send the five again; a broker's answer makes it wait for them."""
    taking = beside(owner(5).stage, b"worker.1")
    other = beside(taking, b"worker.2")
    first = taking.send(Client(), 4)
    taking.run(LEASE_OUT_SECONDS)
    assert first.code == 0
    assert taking.entry().is_rebuilt
    other.now = other.context.time.now = taking.now
    ahead = other.send(Client(), 9)
    other.run(LEASE_OUT_SECONDS)
    assert ahead.code == 45
    taking.now = taking.context.time.now = other.now
    in_flight = [taking.send(Client(), sequence) for sequence in range(5, 9)]
    taking.run(LEASE_OUT_SECONDS)
    assert [one.code for one in in_flight] == [0] * 4


@pytest.mark.parametrize(("is_acknowledged", "code"), [(False, 87), (True, 7)])
def test_so_does_who_read_the_log_before_another_owner_died(is_acknowledged: bool, code: int) -> None:
    """A has taken the producer over once, when all had batch markers. B had an append reservation since, and the
    topic's settings were changed meanwhile. C has taken it over, with no client there. What A knew is of a time before
    that."""
    a = beside(owner(5).stage, b"proxy..A")
    first = a.send(Client(), 5)
    a.run(LEASE_OUT_SECONDS)
    assert first.code == 0
    b = Busy(beside(a, b"proxy..B"))
    b.sequence = 6
    b.send(3)
    assert b.owns()
    b.stage.log.keeps_wrapper_keys = False
    if is_acknowledged:
        b.send(2)
    else:
        b.stage.outcomes.append(dies_after(b.stage, b.stage.take))
        b.send_one()
        b.stage.run(0.005)
    last = b.sequence - 1
    c, client = beside(b.stage, b"proxy..C"), Client()
    c.alive.add(b"proxy..B")
    c.send(client, last)
    c.run(1)
    client.is_closed = True
    c.alive.clear()
    c.run(LEASE_OUT_SECONDS)
    a.now = a.context.time.now = c.now
    late = a.send(Client(), last)
    a.run(LEASE_OUT_SECONDS)
    assert late.code == code
    assert a.stored_values().count(b"value %d" % last) == 1


def test_in_a_new_data_generation_what_comes_behind_them_is_looked_for_too() -> None:
    """The entry is rebuilt, twice if the proxy that does it is interrupted."""
    busy = Busy()
    stage = busy.stage
    busy.send(2)
    stage.log.keeps_wrapper_keys = False
    busy.send(3)
    stage.die()
    stage.begin_lease_epoch()
    dies_in_the_rebuild(stage, 5)
    late = stage.send(Client(), 4)
    stage.run(LEASE_OUT_SECONDS)
    assert late.code == 87


def test_in_a_new_lease_epoch_the_log_decides_its_earlier_append_reservation() -> None:
    busy = owner(5)
    stage = busy.stage
    stage.begin_lease_epoch(stage.context.instance.data_generation)
    stage.context.instance.grace_until = stage.now
    busy.send()
    stage.run(LEASE_OUT_SECONDS)
    assert busy.is_all_stored_once()


def test_in_a_new_lease_epoch_nothing_of_it_is_written_on() -> None:
    busy = owner(4)
    stage = busy.stage
    SleepingBroker(stage, is_heard_of=False)  # so it is not handed over
    busy.send_one()
    stage.run(0.0)
    busy.swaps.clear()
    stage.begin_lease_epoch(stage.context.instance.data_generation)
    stage.run(1)
    assert busy.swaps == []


# ---------------------------------------------------------------------- somebody asks for it
class Neighbours:
    """Two proxies on one store and one log. The first one owns the entry."""

    def __init__(self, busy: Busy) -> None:
        self.first = busy.stage
        self.second = second = Stage(answers_later=True, owns=True)
        second.values, second.log, second.now = self.first.values, self.first.log, self.first.now
        second.context.instance.instance_id = NEXT_INSTANCE_ID
        second.alive.add(INSTANCE_ID)
        self.first.alive.add(NEXT_INSTANCE_ID)

    def run(self, seconds: float) -> None:
        end = self.first.now + seconds
        while self.first.now < end:
            self.first.run(0.01)
            self.second.run(0.01)


def test_a_busy_owner_is_asked_for_its_append_reservation_and_hands_over() -> None:
    """Its client sends on under the older epoch; the newer one begins at another proxy, and is not kept waiting."""
    busy = owner(5)
    both = Neighbours(busy)
    newer = both.second.send(Client(), 0, epoch=1)
    for _ in range(40):
        busy.send_one()
        both.run(PAUSE_SECONDS)
    assert newer.code == 0
    stored = both.first.stored_values()
    both.run(3)
    epochs = [one for one in both.first.stored_values() if one == b"value 0"]
    assert len(epochs) == 2
    assert both.first.stored_values() == stored, "nothing of the older epoch comes behind the newer one"
    assert both.second.entry().producer_epoch == 1
    assert not both.first.failures()
    assert not both.second.failures()


def test_it_is_asked_once_for_each_version() -> None:
    busy = owner(5)
    both = Neighbours(busy)
    SleepingBroker(both.first, is_heard_of=False)  # a batch is out, so it is not handed over yet
    busy.send_one()
    asked: list[int] = []
    both.second.before[Swap] = lambda swap: asked.append(swap.ttl_ms)
    both.second.send(Client(), 0, epoch=1)
    both.run(3)
    assert asked == [both.second.context.instance.ids_ttl_ms]
    assert append_reservation(both.first.entry()).owner == INSTANCE_ID


def test_a_plain_intent_is_not_asked_for() -> None:
    busy = Busy()
    busy.send()
    SleepingBroker(busy.stage, is_heard_of=False)
    busy.stage.run(1)
    busy.send_one()
    both = Neighbours(busy)
    both.second.send(Client(), 0, epoch=1)
    asked: list[Any] = []
    both.second.before[Swap] = asked.append
    both.run(3)
    assert not asked


def test_what_the_owner_knows_is_not_lost_when_it_is_asked() -> None:
    """The version is taken along, never the value: that is older than what it has appended since."""
    busy = owner(9)
    both = Neighbours(busy)
    assert both.first.entry().next_sequence < 9
    newer = both.second.send(Client(), 9)
    both.run(1)
    assert newer.code == 0
    assert both.second.entry().next_sequence == 10
    assert both.first.stored_values() == [b"value %d" % number for number in range(10)]


def test_a_swap_refused_by_its_own_name_hands_the_append_reservation_over() -> None:
    """It was carried out, the reply is lost, and somebody has asked since."""
    busy = Busy()
    busy.send()
    stage = busy.stage

    def carried_out(swap: Swap) -> None:
        del stage.before[Swap]
        stage.values[KEY] = swap.value
        entry = unpack(swap.value)
        assert entry.intent is not None
        assert entry.intent.is_append_reservation
        stage.put(replace(entry, version=entry.version + 1))

    stage.before[Swap] = carried_out
    busy.send_one()
    stage.run(1)
    assert not [event for event in stage.events if isinstance(event, UnknownOutcomeOpened)], "it knows what it is"
    assert busy.is_all_stored_once()
    assert stage.entry().intent is None


# ---------------------------------------------------------------------- the same is left
EXTRA: tuple[dict[str, Any], ...] = ({}, {"comes_again": True}, {"newer_epoch": True}, {"records": (1, 1, 2)})


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_whatever_becomes_of_it_the_same_is_left_as_with_a_swap_for_each(outcome: str, meanwhile: str) -> None:
    for extra in EXTRA:
        burst = Burst(outcomes=(outcome,), meanwhile=("Append", meanwhile), pause_seconds=0.02, **extra)
        assert compare_owned([*[Burst(pause_seconds=0.02)] * 3, burst, Burst()]) >= 2


def test_most_groups_of_a_busy_producer_leave_without_a_swap() -> None:
    assert owned_groups([Burst(pause_seconds=0.02)] * 20) == 19, "the first one takes it"
