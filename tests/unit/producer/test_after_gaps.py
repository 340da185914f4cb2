"""What comes after a gap of a rebuilt entry is looked for in the log (rules R10, R11): what that costs others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from mutants.scenes import foreign
from unit.producer.test_owned import LEASE_OUT_SECONDS, beside, owner

from idemproxy.codecs.convert import digesting_whole
from idemproxy.codecs.record_batch import parse_single_batch
from idemproxy.codecs.steps import at_once
from idemproxy.proxy import limits
from idemproxy.proxy.flow.effects import Ask, Swap, Work
from idemproxy.proxy.partition_log.log_chunk import ReadLog
from idemproxy.state.entry import NO_ANCHOR, NO_CONTENT, NOBODY, Intent, IntentBatch, IntentKind
from testkit.stage.sequencer import Client, Request, Stage, batch_of

AGAIN_SECONDS = 0.1
RETRIABLE = (5, 6, 7, 14, 19)


def readings(stage: Stage) -> list[int]:
    """Return a list that gets the offset of each reading of the log from now on."""
    offsets: list[int] = []

    def note(effect: Any) -> None:
        if isinstance(effect.question, ReadLog):
            offsets.append(effect.question.offset)

    stage.before[Ask] = note
    return offsets


def rebuilt(*, is_mixed: bool = True) -> Stage:
    """The owner of an append reservation has died, another proxy has rebuilt the entry: 5 is due. ``is_mixed``: clients
    without a producer id write to the topic, too."""
    first = owner(5).stage
    if is_mixed:
        foreign(first, b"somebody else's")
    stage = beside(first, b"worker.1")
    stage.send(Client(), 4)
    stage.run(LEASE_OUT_SECONDS)
    assert stage.entry().is_rebuilt
    return stage


def both(stages: Sequence[Stage], seconds: float) -> None:
    """Let time pass for all of them."""
    end = stages[0].now + seconds
    while due := [(one._timers[0][0], one) for one in stages if one._timers and one._timers[0][0] <= end]:
        at, first = min(due, key=lambda one: one[0])
        for stage in stages:
            stage.now = stage.context.time.now = max(stage.now, at)
        first.run(0)
    for stage in stages:
        stage.now = stage.context.time.now = end


def test_two_that_come_again_in_turn_are_looked_for_once_each() -> None:
    stage = rebuilt()
    read = readings(stage)
    for _ in range(5):
        for sequence in (7, 8):
            request = stage.send(Client(), sequence)
            stage.run(2)
            assert request.code == 45
            stage.run(AGAIN_SECONDS)
    assert read == [stage.entry().end_offset - 1, stage.entry().end_offset] * 2


def test_they_do_not_keep_the_due_one_waiting_at_another_worker() -> None:
    a = rebuilt()
    b = beside(a, b"worker.2")
    a.alive.add(b"worker.2")
    b.alive.add(b"worker.1")
    ahead: dict[int, Request] = {}
    again_at: dict[int, float] = {}
    for sequence in (6, 7):
        ahead[sequence] = a.send(Client(), sequence)
        both([a, b], 0.05)
    both([a, b], 0.2)
    due = b.send(Client(), 5)
    for _ in range(6000):
        for sequence, request in ahead.items():
            if request.is_done:
                if sequence not in again_at:
                    again_at[sequence] = a.now + AGAIN_SECONDS
                elif a.now >= again_at[sequence]:
                    del again_at[sequence]
                    ahead[sequence] = a.send(Client(), sequence)
        both([a, b], 0.01)
        if due.is_done:
            break
    assert due.code == 0


def test_what_is_held_back_anyway_is_not_looked_for() -> None:
    stage, client = rebuilt(), Client()
    stage.outcomes.append(stage.refuses(6))
    due = stage.send(client, 5)
    stage.run(5)
    assert due.code == 6
    read = readings(stage)
    for sequence in (6, 7, 8):
        ahead = stage.send(client, sequence)
        stage.run(2)
        assert ahead.code == 19
    assert read == []


def digest(sequence: int, *values: bytes) -> bytes:
    records = batch_of(values, sequence)
    return at_once(digesting_whole(records, parse_single_batch(records), limits.UNPACKED_BYTES_MAX))


def test_the_due_one_that_comes_while_another_is_compared_is_looked_for_too() -> None:
    """5 and 7 were unrecoverable. 7 comes again and takes long to compare; meanwhile the client has built 5 again, with
    fewer records."""
    stage, large = rebuilt(), b"b" * (3 << 20)
    entry = stage.entry()
    members = IntentBatch(5, 2, digest(5, b"5a", b"5b")), IntentBatch(7, 1, digest(7, large))
    where = entry.end_offset, entry.anchor, NO_CONTENT, 1
    left = Intent(NOBODY, 0, members, *where, kind=IntentKind.UNRECOVERABLE)
    stage.put(replace(entry, version=entry.version + 1, intent=left))
    foreign(stage, b"5a", b"5b")  # these have lost their batch marker
    stage.sequencer = stage.new_sequencer()
    sent: list[Request] = []

    def overtakes(_effect: Any) -> None:
        if not sent:
            sent.append(stage.send(Client(), 5, b"5a"))

    stage.before[Work] = overtakes
    stage.send(Client(), 7, large)
    stage.run(LEASE_OUT_SECONDS)
    assert sent[0].code == 87
    assert stage.stored_values().count(b"5a") == 1


@pytest.mark.parametrize("how", ["an equal record of somebody else", "a compacted log"])
def test_what_cannot_be_decided_of_it_says_nothing_of_the_due_one(how: str) -> None:
    a = rebuilt(is_mixed=False)
    foreign(a, b"x", b"equal", b"z")
    if how == "a compacted log":
        del a.log.messages[6]
    b = beside(a, b"worker.2")
    b.send(Client(), 6, b"equal" if how != "a compacted log" else b"value 6")
    b.run(LEASE_OUT_SECONDS)
    a.now = a.context.time.now = b.now
    due = a.send(Client(), 5)
    a.run(LEASE_OUT_SECONDS)
    assert not a.entry().is_ambiguous
    assert due.code == 0


def codes_until_final(
    stage: Stage, client: Client, sequence: int, seconds: float, *, epoch: int = 0
) -> list[int | None]:
    """Send it again and again, as a client does."""
    codes: list[int | None] = []
    end = stage.now + seconds
    while stage.now < end and (not codes or codes[-1] in RETRIABLE):
        request = stage.send(client, sequence, epoch=epoch)
        stage.run(100, until=lambda: request.is_done)  # noqa: B023 - asked before the next one is made
        codes.append(request.code)
        stage.run(AGAIN_SECONDS)
    return codes


def test_a_search_that_was_left_goes_on_with_the_next_try() -> None:
    stage, client = rebuilt(), Client()
    foreign(stage, b"one more")
    stage.log.high_watermark -= 1
    first = stage.send(client, 7)
    stage.run(100, until=lambda: first.is_done)
    assert first.code == 7
    stage.log.high_watermark += 1
    assert codes_until_final(stage, client, 7, 60)[-1] == 45


@pytest.mark.parametrize("how", ["by a batch after a gap", "by its own takeover"])
def test_what_was_reserved_since_and_is_unrecoverable_was_not_looked_for(how: str) -> None:
    """The client has built 5 again, with fewer records."""
    a = rebuilt(is_mixed=False)
    stage = a
    if how == "by a batch after a gap":
        stage = beside(a, b"worker.2")
        ahead = stage.send(Client(), 7)
        stage.run(LEASE_OUT_SECONDS)
        assert ahead.code == 45
    entry = stage.entry()
    members = (IntentBatch(5, 2, digest(5, b"5a", b"5b")),)
    where = entry.end_offset, entry.anchor, NO_CONTENT, 1
    left = Intent(NOBODY, 0, members, *where, kind=IntentKind.UNRECOVERABLE)
    stage.put(replace(entry, version=entry.version + 1, intent=left))
    foreign(stage, b"5a", b"5b")  # these have lost their batch marker
    due = stage.send(Client(), 5, b"5a")
    stage.run(LEASE_OUT_SECONDS)
    assert due.code == 87
    assert stage.stored_values().count(b"5a") == 1


def compacted() -> Stage:
    """The log has a gap after what is known of the producer, so it can tell of no batch whether it is there."""
    stage = rebuilt()
    foreign(stage, b"x", b"y", b"z")
    del stage.log.messages[-2]
    return beside(stage, b"worker.2")


def test_what_cannot_be_decided_is_read_once_and_refused_when_its_client_has_given_up() -> None:
    stage = compacted()
    read = readings(stage)
    codes = codes_until_final(stage, Client(), 7, 2 * limits.GAP_SECONDS)
    assert (set(codes[:-1]), codes[-1]) == ({7}, 87)
    assert len(codes) * AGAIN_SECONDS > limits.GAP_SECONDS / 2
    assert len(read) < 10


def test_a_new_epoch_has_its_own_time() -> None:
    stage = compacted()
    stage.send(Client(), 7)
    stage.run(limits.GAP_SECONDS + LEASE_OUT_SECONDS)
    ahead = stage.send(Client(), 3, epoch=1)
    stage.run(LEASE_OUT_SECONDS)
    assert ahead.code == 7


@pytest.mark.parametrize("is_first_asked_for_another", [True, False])
def test_in_a_topic_that_was_recreated_an_end_without_an_anchor_is_no_bound(is_first_asked_for_another: bool) -> None:
    a = rebuilt()
    entry = a.entry()
    a.log.begin_again()
    foreign(a, b"value 5", *[b"other %d" % number for number in range(8)])
    a.put(replace(entry, version=entry.version + 1, anchor=NO_ANCHOR, end_offset=9))
    stage = beside(a, b"worker.2")
    if is_first_asked_for_another:
        stage.send(Client(), 7)
        stage.run(LEASE_OUT_SECONDS)
    due = stage.send(Client(), 5)
    stage.run(LEASE_OUT_SECONDS)
    assert due.code == 87
    assert stage.stored_values().count(b"value 5") == 1


def test_what_is_held_back_stays_so_if_the_connection_of_what_is_before_it_closes_meanwhile() -> None:
    stage, a, b = rebuilt(), Client(), Client()
    stage.outcomes.append(stage.refuses(6))
    due = stage.send(a, 5)
    stage.run(5)
    assert due.code == 6
    foreign(stage, b"value 7")  # it has lost its batch marker
    stage.swap_seconds = 0.05
    stage.send(a, 7)
    stage.run(0.01)
    ahead = stage.send(b, 7)

    def closes(_effect: Any) -> None:
        del stage.before[Swap]
        stage.later(0.01, lambda: setattr(a, "is_closed", True))

    stage.before[Swap] = closes
    stage.run(LEASE_OUT_SECONDS)
    assert ahead.code in RETRIABLE
