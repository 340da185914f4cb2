"""What was unrecoverable is remembered over data generations, also where a rebuild comes to no end, its proxy dies in
the middle of it, or the store loses what was written of it (rules R10, R17)."""

from dataclasses import replace
from typing import Any

import pytest
from mutants.scenes import LATER

from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy import limits
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import Outcome
from idemproxy.state.entry import NOBODY, IntentKind, pack
from testkit.stage.sequencer import KEY, NEXT_INSTANCE_ID, Client, Stage

OUT_OF_ORDER, INVALID = 45, 87
LIVES_OUT_SECONDS = 60
LATE_SECONDS = limits.HAND_OVER_SECONDS - 2 * limits.QUIESCENCE_SECONDS
"""Before the time is up after which nobody's unknown outcome is left to others, but not decided in what is left of
it."""
TO_THE_REBUILD_SECONDS = 7.5
"""The time of grace, and a part of the second in which the broker has to pass the quiescence check."""


def in_doubt(*, keeps_batch_markers: bool) -> Stage:
    """Of two batches the second one's answer was lost, and the log does not tell: retention has deleted it, or there
    are no batch markers. Its client has gone."""
    stage = Stage(keeps_batch_markers=keeps_batch_markers)
    client = Client()
    stage.send(client, 0)
    stage.run(1)

    def lost_and_deleted(effect: Append) -> Outcome:
        outcome = stage.loses_answer(effect)
        if keeps_batch_markers:
            stage.log.append(encode_set([(None, b"foreign", 0)], magic=1), stage.now)
            stage.log.advance(stage.log.end_offset)
            stage.log.retain(2)
            stage.earliest = 2
        return outcome

    stage.outcomes.append(lost_and_deleted)
    stage.send(client, 1)
    client.is_closed = True
    return stage


def after_giving_up(*, keeps_batch_markers: bool) -> Stage:
    """The same, long after."""
    stage = in_doubt(keeps_batch_markers=keeps_batch_markers)
    stage.run(LIVES_OUT_SECONDS)
    intent = stage.entry().intent
    assert intent is not None
    assert intent.is_unrecoverable
    return stage


def beside(first: Stage) -> Stage:
    """A second proxy on the same store and log, in the same data generation; the first one lives."""
    second = Stage()
    second.values, second.log, second.now, second.earliest = first.values, first.log, first.now, first.earliest
    second.begin_lease_epoch()
    second.context.instance.grace_until = first.context.instance.grace_until
    second.context.instance.instance_id = b"the.next"
    second.alive.add(first.context.instance.instance_id)
    return second


def is_told_and_not_sent_again(stage: Stage, **more: Any) -> None:
    sent = len(stage.sent)
    retry = stage.send(Client(), 1, **more)
    stage.run(LIVES_OUT_SECONDS)
    assert retry.code == INVALID
    assert len(stage.sent) == sent
    intent = stage.entry().intent
    assert intent is not None
    assert intent.is_unrecoverable
    assert stage.failures() == []


# ---------------------------------------------------------------------- recognised
@pytest.mark.parametrize("keeps_batch_markers", [True, False])
def test_an_unrecoverable_batch_that_its_client_recreated_is_not_sent_again(
    keeps_batch_markers: bool,
) -> None:
    stage = after_giving_up(keeps_batch_markers=keeps_batch_markers)
    sent = len(stage.sent)
    retry = stage.send(Client(), 1, timestamp=1_700_000_000_777)
    stage.run(LIVES_OUT_SECONDS)
    assert (retry.code, len(stage.sent)) == (INVALID, sent)


def test_another_batch_with_its_numbers_takes_its_place() -> None:
    """Clients like Java's before 2.5 give the sequences of a batch that failed to the next one."""
    stage = after_giving_up(keeps_batch_markers=False)
    following = stage.send(Client(), 1, b"the next one")
    stage.run(LIVES_OUT_SECONDS)
    assert following.code == 0
    assert stage.entry().intent is None


# ---------------------------------------------------------------------- what comes after it
def test_the_batch_directly_after_it_fails_with_invalid_record() -> None:
    """Its client may have been answered that the one unrecoverable is stored, by a proxy that died before it noted
    that."""
    stage = after_giving_up(keeps_batch_markers=True)
    sent = len(stage.sent)
    following = stage.send(Client(), 2)
    stage.run(LIVES_OUT_SECONDS)
    assert (following.code, len(stage.sent)) == (INVALID, sent)


def test_a_batch_after_a_further_one_that_is_missing_is_a_gap() -> None:
    stage = after_giving_up(keeps_batch_markers=True)
    far = stage.send(Client(), 3)
    stage.run(LIVES_OUT_SECONDS)
    assert far.code == OUT_OF_ORDER


def test_after_its_invalid_record_the_next_batch_is_a_gap() -> None:
    stage, client = after_giving_up(keeps_batch_markers=True), Client()
    retry = stage.send(client, 1)
    stage.run(LIVES_OUT_SECONDS)
    following = stage.send(client, 2)
    stage.run(LIVES_OUT_SECONDS)
    assert (retry.code, following.code) == (INVALID, OUT_OF_ORDER)


def test_what_its_client_sends_together_with_its_retry_is_a_gap_too() -> None:
    stage, client = after_giving_up(keeps_batch_markers=True), Client()
    retry, following = stage.send(client, 1), stage.send(client, 2)
    stage.run(LIVES_OUT_SECONDS)
    assert (retry.code, following.code) == (INVALID, OUT_OF_ORDER)


def test_the_batch_after_it_is_a_gap_on_topics_without_batch_markers() -> None:
    stage = after_giving_up(keeps_batch_markers=False)
    assert stage.context.topics.unmarked
    following = stage.send(Client(), 2)
    stage.run(LIVES_OUT_SECONDS)
    assert following.code == OUT_OF_ORDER


# ---------------------------------------------------------------------- when it is unrecoverable
@pytest.mark.promise("log-cannot-tell")
@pytest.mark.parametrize("keeps_batch_markers", [True, False])
def test_an_append_that_cannot_be_decided_late_is_unrecoverable_though_nobody_waits(keeps_batch_markers: bool) -> None:
    """A client whose requests time out sooner than it is decided may be away at each of the moments that count. Left
    open for the next request, it would begin again each time, and the client would never learn the outcome."""
    stage = in_doubt(keeps_batch_markers=keeps_batch_markers)
    stage.leader = None
    stage.run(LATE_SECONDS)
    stage.leader = 1
    stage.run(LIVES_OUT_SECONDS)
    intent = stage.entry().intent
    assert intent is not None
    assert intent.is_unrecoverable
    is_told_and_not_sent_again(stage)


@pytest.mark.parametrize("keeps_batch_markers", [True, False])
def test_a_dead_proxys_undecidable_append_is_unrecoverable_though_nobody_waits(
    keeps_batch_markers: bool,
) -> None:
    stage = in_doubt(keeps_batch_markers=keeps_batch_markers)
    stage.die()
    stage.leader = None
    client = Client()
    stage.send(client, 1)
    stage.run(0.1)
    client.is_closed = True
    stage.run(LATE_SECONDS)
    stage.leader = 1
    stage.run(LIVES_OUT_SECONDS)
    intent = stage.entry().intent
    assert intent is not None
    assert intent.is_unrecoverable
    is_told_and_not_sent_again(stage)


@pytest.mark.promise("log-cannot-tell")
@pytest.mark.parametrize("keeps_batch_markers", [True, False])
@pytest.mark.parametrize("sequence", [1, 2])
def test_a_rebuild_that_comes_to_no_end_does_not_forget_it(keeps_batch_markers: bool, sequence: int) -> None:
    stage = after_giving_up(keeps_batch_markers=keeps_batch_markers)
    known = stage.entry().intent
    assert known is not None
    stage.begin_lease_epoch()
    stage.leader = None
    client = Client()
    stage.send(client, sequence)
    stage.run(TO_THE_REBUILD_SECONDS)
    client.is_closed = True
    stage.run(LIVES_OUT_SECONDS)
    intent = stage.entry().intent
    assert intent is not None
    assert (intent.owner, intent.content, intent.batches) == (NOBODY, known.content, known.batches)
    stage.leader = 1
    is_told_and_not_sent_again(stage)


@pytest.mark.parametrize("more", [{}, {"timestamp": LATER}], ids=["the same bytes", "recreated"])
@pytest.mark.parametrize("keeps_batch_markers", [True, False])
def test_an_unrecoverable_batch_is_remembered_though_a_rebuilding_proxy_dies(
    keeps_batch_markers: bool, more: dict[str, int]
) -> None:
    stage = after_giving_up(keeps_batch_markers=keeps_batch_markers)
    stage.begin_lease_epoch()
    stage.send(Client(), 1)
    stage.run(TO_THE_REBUILD_SECONDS)
    claim = stage.entry().intent
    assert claim is not None
    assert claim.owner == NEXT_INSTANCE_ID
    data_generation = stage.context.instance.data_generation
    stage.die()
    stage.context.instance.data_generation = data_generation
    stage.context.instance.instance_id = b"the.next"
    is_told_and_not_sent_again(stage, **more)
    stage.begin_lease_epoch(bytes(16))
    is_told_and_not_sent_again(stage, **more)


def test_a_proxy_waits_for_another_one_that_rebuilds() -> None:
    first = after_giving_up(keeps_batch_markers=True)
    first.begin_lease_epoch()
    second = beside(first)
    mine = first.send(Client(), 1)
    first.run(TO_THE_REBUILD_SECONDS)
    theirs = second.send(Client(), 1)
    second.run(TO_THE_REBUILD_SECONDS + 10)
    assert (second.swapped, theirs.code) == ([], None)
    first.run(10)
    second.run(2 * limits.RESOLVE_WAIT_SECONDS_MAX)
    assert (mine.code, theirs.code) == (INVALID, INVALID)
    assert second.sent == []


@pytest.mark.parametrize("lost", ["all of it", "that it was unrecoverable"])
def test_what_the_store_has_lost_of_it_is_known_to_who_wrote_it(lost: str) -> None:
    stage = after_giving_up(keeps_batch_markers=True)
    known = stage.entry()
    assert known.intent is not None
    assert known.intent.owner == NOBODY, "it does nothing with it any more"
    if lost == "all of it":
        stage.values.pop(KEY)
    else:
        stage.values[KEY] = pack(
            replace(known, version=known.version - 1, intent=replace(known.intent, kind=IntentKind.PLAIN))
        )
    is_told_and_not_sent_again(stage)
