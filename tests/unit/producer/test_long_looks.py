"""Looks into the log that take longer than a client waits. It gets a retriable error, and some clients make their batch
again for each try: the next look resumes where the last one ended, and all tries that wait get what a look has found
(rules R9, R10, R11)."""

from dataclasses import replace
from random import Random

import pytest
from mutants.scenes import LATER, comes_again, foreign

from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import FetchRecords
from idemproxy.proxy.events import UnknownOutcomeResolved
from idemproxy.proxy.flow.effects import Ask
from idemproxy.proxy.partition_log.log_chunk import ReadLog
from idemproxy.proxy.producer.batch import Answer
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.stage.sequencer import KEY, TOPIC, Client, Stage

TIMED_OUT, OUT_OF_ORDER, STORED_BEFORE, INVALID = 7, 45, 46, 87
AGAIN = pytest.mark.parametrize("is_recreated", [False, True])


def with_batches(count: int, *, producer_id: int | None = None) -> Stage:
    """So many are stored, and no connection to the broker remembers it. From now on a look takes 1.9 s."""
    stage = Stage() if producer_id is None else Stage(producer_id=producer_id)
    for sequence in range(count):
        stage.send(Client(), sequence)
        stage.run(10)
    stage.sequencer = stage.new_sequencer()
    stage.log_seconds = 1.9
    return stage


@AGAIN
@pytest.mark.parametrize(("stored", "answer"), [(3, (0, 2)), (8, (STORED_BEFORE, -1))])
def test_who_comes_again_learns_that_it_is_stored(stored: int, answer: tuple[int, int], is_recreated: bool) -> None:
    """Seed 11644 of the random worlds. The batch is in the window, or below it."""
    stage = with_batches(stored)
    request = comes_again(stage, 2, b"value 2", is_recreated=is_recreated)
    assert (request.code, request.offset) == answer
    assert len(stage.stored_values()) == stored


@AGAIN
@pytest.mark.parametrize("stored", [3, 8])
def test_who_comes_again_learns_that_other_records_lie_there(stored: int, is_recreated: bool) -> None:
    stage = with_batches(stored)
    assert comes_again(stage, 2, b"another", is_recreated=is_recreated).code == OUT_OF_ORDER


@AGAIN
def test_who_comes_again_learns_that_it_has_vanished(is_recreated: bool) -> None:
    stage = with_batches(3)
    stage.log.truncate(2, unclean=True)
    foreign(stage, b"foreign")
    assert comes_again(stage, 2, b"value 2", is_recreated=is_recreated).code == INVALID


@AGAIN
def test_who_comes_again_on_a_conditional_topic_learns_where_it_lies(is_recreated: bool) -> None:
    stage = with_batches(3, producer_id=CONDITIONAL_ID)
    request = comes_again(stage, 2, b"value 2", is_recreated=is_recreated)
    assert (request.code, request.offset) == (0, 2)


@AGAIN
def test_who_comes_again_on_a_conditional_topic_learns_of_a_conflict(is_recreated: bool) -> None:
    stage = with_batches(3, producer_id=CONDITIONAL_ID)
    assert comes_again(stage, 2, b"another", is_recreated=is_recreated).code == OUT_OF_ORDER


def test_a_lone_request_gets_out_of_order_though_proxies_raise_the_version() -> None:
    """The entry was confirmed by a swap after the batch came, and the log was read; nothing more is asked for."""
    stage = with_batches(8)

    def raises() -> None:
        entry = stage.entry()
        if entry.intent is None:
            stage.put(replace(entry, version=entry.version + 2))
        stage.later(1.0, raises)

    stage.later(1.0, raises)
    request = stage.send(Client(), 2, b"another")
    stage.run(60, until=lambda: request.is_done)
    assert request.code == OUT_OF_ORDER


def test_a_retry_joining_a_confirmed_batch_is_refused_after_another_swap() -> None:
    stage = with_batches(8)
    stage.send(Client(), 2, b"another")
    stage.run(1)
    late = stage.send(Client(), 2, b"another")
    stage.run(0.1)
    swaps = len(stage.swapped)
    stage.run(60, until=lambda: late.is_done)
    assert late.code == OUT_OF_ORDER
    assert len(stage.swapped) > swaps


@pytest.mark.parametrize("producer_id", [None, CONDITIONAL_ID])
@pytest.mark.parametrize("sequence", [2, 5, 9])
def test_a_retry_joining_during_the_confirmation_is_refused_after_another_swap(
    sequence: int, producer_id: int | None
) -> None:
    """Another proxy may have appended it since that swap was carried out."""
    stage = with_batches(8, producer_id=producer_id)
    stage.log_seconds, stage.swap_seconds = 0.0, 1.0
    before = len(stage.swapped)
    stage.send(Client(), sequence, b"another")
    stage.run(0.5)
    joined_at, swaps = stage.now, len(stage.swapped)
    assert swaps > before, "it is out"
    late = stage.send(Client(), sequence, b"another")
    stage.run(60, until=lambda: late.is_done)
    assert late.code == OUT_OF_ORDER
    assert len(stage.swapped) > swaps
    assert stage.now >= joined_at + 1.0


def test_a_confirmation_from_an_earlier_lease_epoch_does_not_count_later() -> None:
    """The state of before may be lost: the entry is rebuilt first (rule R10)."""
    stage = with_batches(8)
    stage.log_seconds = 5
    stage.send(Client(), 2, b"another")
    stage.run(1)
    stage.begin_lease_epoch()
    late = stage.send(Client(), 2, b"another")
    swaps, began = len(stage.swapped), stage.now
    stage.run(60, until=lambda: late.is_done)
    assert late.code == OUT_OF_ORDER
    assert len(stage.swapped) > swaps
    assert stage.now >= began + 7.0


def test_a_request_later_than_the_confirmation_is_refused_after_another_swap() -> None:
    """Another proxy may have appended it meanwhile, and has written that (rule R11)."""
    stage = with_batches(8)
    stage.send(Client(), 2, b"another")
    stage.run(1)
    late = stage.send(Client(), 2, b"another", timestamp=LATER)
    stage.run(0.1)
    swaps = len(stage.swapped)
    stage.run(60, until=lambda: late.is_done)
    assert late.code == OUT_OF_ORDER
    assert len(stage.swapped) > swaps


# ---------------------------------------------------------------------- longer than one try may take
def behind_a_long_log(stage: Stage, messages: int) -> None:
    for number in range(messages):
        foreign(stage, Random(number).randbytes(900_000))


def with_old_batches(count: int) -> Stage:
    """So many lie before a long log, and seven after it. Each reading of a part of it takes four seconds."""
    stage, client = Stage(), Client()
    for sequence in range(count + 7):
        if sequence == count:
            behind_a_long_log(stage, 12)
        stage.send(client, sequence)
        stage.run(1)
    stage.log_seconds = 4
    return stage


def test_a_search_below_the_window_resumes_with_the_next_try() -> None:
    stage = with_old_batches(1)
    codes = []
    for _ in range(4):
        request = stage.send(Client(), 1)
        stage.run(60, until=lambda request=request: request.is_done)  # type: ignore[misc]
        codes.append(request.code)
        if request.code != TIMED_OUT:
            break
        stage.run(0.1)
    assert codes == [TIMED_OUT, STORED_BEFORE]


@pytest.mark.parametrize("together", [1, 2, 5])
def test_searches_for_several_old_batches_all_resume(together: int) -> None:
    """A client resends what it has in flight; each search is set aside for a while for the next one's (rule
    R18)."""
    stage, client = with_old_batches(together), Client()
    waiting = {sequence: (stage.send(client, sequence), stage.now) for sequence in range(together, 2 * together)}
    end = stage.now + 600
    while waiting and stage.now < end:
        stage.run(0.5)
        for sequence, (request, asked_at) in list(waiting.items()):
            if not request.is_done and stage.now - asked_at >= 22.5:
                request.answer(Answer(TIMED_OUT))
            if request.code == STORED_BEFORE or request.code == 0:
                del waiting[sequence]
            elif request.is_done:
                waiting[sequence] = stage.send(client, sequence), stage.now
    assert not waiting


def test_an_unknown_outcome_ends_though_others_append_as_fast_as_the_log_is_read() -> None:
    stage, client = Stage(), Client()
    stage.send(Client(), 0)
    stage.run(1)
    stage.outcomes.append(stage.loses_request)
    stage.send(client, 1)
    behind_a_long_log(stage, 14)
    stage.log_seconds, record = 2.6, Random(1).randbytes(900_000)
    stage.before[Ask] = lambda ask: foreign(stage, record) if isinstance(ask.question, ReadLog) else None
    stage.run(1)
    client.is_closed = True
    stage.run(120)
    assert stage.entry().intent is None
    assert [one.result for one in stage.events if isinstance(one, UnknownOutcomeResolved)] == ["not_found"]


def test_nor_does_a_search_resume_long_after_the_last_try() -> None:
    """What was read then may not be there any more."""
    stage = with_old_batches(1)
    for _ in range(2):
        request = stage.send(Client(), 1)
        stage.run(60, until=lambda request=request: request.is_done)  # type: ignore[misc]
        assert request.code == TIMED_OUT
        stage.run(limits.SEARCH_LEFT_SECONDS + 1)


@pytest.mark.parametrize("is_draining", [False, True])
def test_a_long_rebuild_survives_its_client_being_away_for_a_second(
    is_draining: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client gets an error after 22.5 s, and comes again a second later. A proxy that ends leaves it to others."""
    stage = Stage()
    stage.send(Client(), 0)
    stage.run(1)
    behind_a_long_log(stage, 40)
    stage.send(Client(), 1)
    stage.run(1)
    stage.die()
    stage.begin_lease_epoch()
    stage.values.pop(KEY)
    monkeypatch.setattr(limits, "SCAN_BYTES_MAX", 800_000)
    stage.log_seconds = 2.6
    client = Client()
    codes: list[int | None] = []
    while len(codes) < 20:
        request = stage.send(client, 2, timestamp=LATER)
        stage.run(22.5, until=lambda request=request: request.is_done)  # type: ignore[misc]
        codes.append(request.code)
        if request.is_done:
            break
        request.answers.append(Answer(TIMED_OUT))
        if is_draining and len(codes) == 2:
            stage.context.instance.is_draining = True
        stage.run(1)
    left_open = [one for one in stage.events if isinstance(one, UnknownOutcomeResolved) and one.result == "left_open"]
    if is_draining:
        assert left_open
    else:
        assert (codes[-1], left_open) == (0, [])


def test_a_rebuild_that_retention_overtakes_is_left_open_once_its_client_has_gone() -> None:
    """Each try reads something, and begins again above what was deleted meanwhile: it comes no further."""
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    stage.begin_lease_epoch()
    stage.log_seconds = 1.0

    def deletes(_broker_id: int, question: object) -> None:
        if isinstance(question, FetchRecords) and question.offset >= stage.earliest:
            foreign(stage, *(b"%d" % number + bytes(900_000) for number in range(5)))
            stage.later(0.5, lambda: setattr(stage, "earliest", stage.log.end_offset - 4))

    deletes(1, FetchRecords(TOPIC, 0, 0, 1))
    stage.reply = deletes
    stage.send(client, 1)
    stage.run(20)
    assert not stage.sequencer.is_idle
    client.is_closed = True
    stage.run(3 * limits.HAND_OVER_SECONDS)
    assert stage.sequencer.is_idle
