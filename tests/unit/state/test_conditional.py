"""What is decided of a batch that says at which offset it has to be (rule R23)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.producing.numbered_batch import CONDITIONAL
from idemproxy.state.commit import Stored, committed, fresh
from idemproxy.state.conditional import (
    Ahead,
    CutOff,
    FencedPartition,
    HeldBack,
    NotYet,
    Past,
    begun,
    decide_conditional,
    ended_at,
    expected_end,
    fenced_by,
    is_conditional,
    is_fenced,
    sequence_of,
    shift_of,
    unsure,
)
from idemproxy.state.decide import Append, BatchIdentity
from idemproxy.state.entry import NO_ANCHOR, NO_DATA_GENERATION, NO_PRINCIPAL, Entry, WindowBatch
from idemproxy.state.names import is_named
from idemproxy.state.producer_ids import BLOCK_SIZE, CONDITIONAL_ID, PRODUCER_ID_BITS

LIFE = bytes(range(16))
RING = 2**31
OFFSETS = st.integers(0, 2**40)


def conditional_partition(next_offset: int) -> Entry:
    return begun(fresh(NO_DATA_GENERATION, NO_PRINCIPAL, 0, 0), LIFE, next_offset)


def batch(offset: int, count: int = 1) -> BatchIdentity:
    return BatchIdentity(0, sequence_of(offset), count)


def appended(entry: Entry, offset: int, count: int = 1, *, at: int | None = None) -> Entry:
    base = offset if at is None else at
    return committed(entry, [WindowBatch(sequence_of(offset), count, base)], base + count, NO_ANCHOR)


@given(OFFSETS, st.integers(1, 100))
def test_only_what_is_expected_where_the_log_ends_is_appended(end: int, count: int) -> None:
    entry = conditional_partition(end)
    assert decide_conditional(entry, batch(end, count)) == Append()
    assert decide_conditional(entry, batch(end + count)) == NotYet()
    assert decide_conditional(entry, batch(end + 1)) == NotYet()
    behind = decide_conditional(entry, batch(end - count, count)) if end >= count else None
    assert behind is None or behind == Past((end - count,))
    across = decide_conditional(entry, batch(end - 1, 2)) if end else None
    assert across is None or across == Past(())


@given(OFFSETS, st.lists(st.integers(1, 1000), max_size=8))
def test_offset_and_sequence_stay_together_over_the_end_of_the_sequences(end: int, counts: list[int]) -> None:
    entry = conditional_partition(end)
    for count in counts:
        entry = appended(entry, entry.end_offset, count)
        assert not is_fenced(entry)
    assert entry.end_offset == end + sum(counts)
    assert entry.next_sequence == sequence_of(entry.end_offset)


@given(OFFSETS, st.integers(-1000, 1000).filter(bool), st.integers(1, 50))
def test_what_lies_elsewhere_fences_for_good(end: int, shift: int, count: int) -> None:
    at = end + shift
    if at < 0:
        return
    entry = appended(conditional_partition(end), end, count, at=at)
    assert is_fenced(entry)
    assert (expected_end(entry), entry.end_offset) == (end + count, at + count)
    verdict = decide_conditional(entry, batch(end, count))
    assert isinstance(verdict, FencedPartition)
    assert at in verdict.offsets
    for offset in (at + count, end + count, end + count + 5):
        assert isinstance(decide_conditional(entry, batch(offset)), FencedPartition)
    later = fenced_by(entry, NO_DATA_GENERATION, entry.end_offset, ())
    assert later is not None
    assert is_fenced(later)


def test_at_the_end_of_the_ring_and_one_round_later() -> None:
    entry = conditional_partition(RING - 1)
    assert decide_conditional(entry, batch(RING - 1, 2)) == Append()
    entry = appended(entry, RING - 1, 2)
    assert (entry.end_offset, entry.next_sequence) == (RING + 1, 1)
    assert decide_conditional(entry, batch(RING)) == Past((RING,))
    assert decide_conditional(entry, batch(RING - 1, 2)) == Past((RING - 1,))


def test_the_whole_offset_is_compared_where_it_is_known() -> None:
    entry = conditional_partition(RING + 7)
    assert decide_conditional(entry, batch(7)) == Append(), "its sequence alone does not tell"
    assert decide_conditional(entry, batch(7), 7) == Past((7,))
    assert isinstance(decide_conditional(entry, batch(7), 2 * RING + 7), NotYet)
    assert decide_conditional(entry, batch(7), RING + 7) == Append()


def test_what_others_have_appended_after_the_expected_end_fences_the_partition() -> None:
    entry = ended_at(appended(conditional_partition(3), 3), 6)
    assert (is_fenced(entry), expected_end(entry), entry.end_offset) == (True, 4, 6)
    verdict = decide_conditional(entry, batch(3))
    assert isinstance(verdict, FencedPartition)
    assert verdict.offsets == (3,)


def test_pieces_that_lie_elsewhere_are_noticed() -> None:
    assert fenced_by(conditional_partition(5), LIFE, 8, [Stored(0, 5, 2, 5), Stored(0, 7, 1, 7)]) is None
    found = fenced_by(conditional_partition(5), LIFE, 9, [Stored(0, 5, 2, 5), Stored(0, 7, 1, 8)])
    assert found is not None
    assert (is_fenced(found), expected_end(found), found.end_offset) == (True, 8, 9)
    verdict = decide_conditional(found, batch(7))
    assert isinstance(verdict, FencedPartition)
    assert verdict.offsets == (8, 7), "the one that lies elsewhere is told where"


def test_a_log_that_ends_before_where_it_ended_fences() -> None:
    assert fenced_by(conditional_partition(5), LIFE, 5, ()) is None
    found = fenced_by(conditional_partition(5), LIFE, 3, ())
    assert found is not None
    assert (is_fenced(found), expected_end(found), found.end_offset, found.data_generation) == (True, 5, 3, LIFE)
    blank = fresh(LIFE, NO_PRINCIPAL, 0, 0)
    assert fenced_by(blank, LIFE, 0, ()) is None, "one that was forgotten begins again"


@pytest.mark.parametrize(("sequence", "offset", "shift"), [(5, 5, 0), (5, 8, 3), (8, 5, -3), (RING - 1, RING, 1)])
def test_shifts(sequence: int, offset: int, shift: int) -> None:
    assert shift_of(sequence, offset) == shift
    assert shift_of(sequence, offset + 4 * RING) == shift


def test_who_is_unsure_has_no_life_and_no_intent() -> None:
    entry = unsure(replace(conditional_partition(5), version=9))
    assert (entry.version, entry.data_generation, entry.intent, entry.end_offset) == (10, NO_DATA_GENERATION, None, 5)


def test_nobody_is_issued_the_producer_id() -> None:
    assert is_conditional(CONDITIONAL_ID)
    assert not is_named(CONDITIONAL_ID)
    assert CONDITIONAL_ID >= 2**PRODUCER_ID_BITS
    assert CONDITIONAL_ID % BLOCK_SIZE
    assert (CONDITIONAL.number, CONDITIONAL.epoch) == (CONDITIONAL_ID, 0)


def test_a_pipelined_batch_follows_the_previous_one_or_is_not_appended() -> None:
    entry = conditional_partition(5)
    verdicts = {ahead: [decide_conditional(entry, batch(at), at, ahead) for at in (4, 5, 6)] for ahead in Ahead}
    assert verdicts == {
        Ahead.NOTHING: [Past((4,)), Append(), NotYet()],
        Ahead.OPEN: [Past((4,)), HeldBack(), HeldBack()],
        Ahead.AGAIN: [Past((4,)), HeldBack(), HeldBack()],
        Ahead.REFUSED: [Past((4,)), CutOff(), NotYet()],
    }
