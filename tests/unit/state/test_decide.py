"""``decide``, case by case: the table of what a batch can be, given the stored entry."""

import pytest

from idemproxy.state.commit import committed, fresh, reserved
from idemproxy.state.decide import (
    Append,
    BatchIdentity,
    BelowWindow,
    Duplicate,
    Fenced,
    OutOfOrder,
    Verdict,
    decide,
    is_in_intent,
)
from idemproxy.state.entry import Entry, Intent, IntentBatch, WindowBatch

GENERATION = b"g" * 16
MODULUS = 2**31


def entry_after(*counts: int, epoch: int = 2, start: int = 0) -> Entry:
    """The entry after batches of so many records, each 1000 offsets behind the one before."""
    entry = fresh(GENERATION, b"p" * 8, epoch, start)
    for index, count in enumerate(counts):
        batch = WindowBatch(entry.next_sequence, count, 1000 * index, 10 * index)
        entry = committed(entry, [batch], 1000 * index + count, b"a" * 8)
    return entry


# Seven batches of three records: 0-2, 3-5, then in the window 6-8, 9-11, 12-14, 15-17, 18-20; 21 is due.
SEVEN = entry_after(3, 3, 3, 3, 3, 3, 3)


@pytest.mark.parametrize(
    ("batch", "verdict"),
    [
        (BatchIdentity(2, 21, 1), Append()),
        (BatchIdentity(2, 21, 500), Append()),
        (BatchIdentity(2, 6, 3), Duplicate(2000, 20)),
        (BatchIdentity(2, 9, 3), Duplicate(3000, 30)),
        (BatchIdentity(2, 18, 3), Duplicate(6000, 60)),
        (BatchIdentity(2, 3, 3), BelowWindow()),
        (BatchIdentity(2, 0, 3), BelowWindow()),
        (BatchIdentity(2, 0, 6), BelowWindow()),
        (BatchIdentity(2, 5, 1), BelowWindow()),
        (BatchIdentity(2, MODULUS - 1, 1), BelowWindow()),
        (BatchIdentity(2, MODULUS - 1, 7), BelowWindow()),
        (BatchIdentity(1, 21, 1), Fenced(2)),
        (BatchIdentity(1, 18, 3), Fenced(2)),
        (BatchIdentity(0, 0, 1), Fenced(2)),
        (BatchIdentity(3, 0, 1), Append()),
        (BatchIdentity(32767, 0, 9), Append()),
    ],
)
def test_a_batch_is_next_or_a_duplicate_or_below_or_fenced(batch: BatchIdentity, verdict: Verdict) -> None:
    assert decide(SEVEN, batch) == verdict


@pytest.mark.parametrize(
    ("batch", "expected", "word"),
    [
        (BatchIdentity(2, 22, 1), 21, "gap"),
        (BatchIdentity(2, 21 + 2**30 - 1, 1), 21, "gap"),
        (BatchIdentity(2, 6, 1), 21, "overlaps"),
        (BatchIdentity(2, 6, 2), 21, "overlaps"),
        (BatchIdentity(2, 7, 1), 21, "overlaps"),
        (BatchIdentity(2, 20, 1), 21, "overlaps"),
        (BatchIdentity(2, 20, 5), 21, "overlaps"),
        (BatchIdentity(2, 18, 4), 21, "overlaps"),
        (BatchIdentity(2, 0, 30), 21, "overlaps"),
        (BatchIdentity(2, MODULUS - 1, 30), 21, "overlaps"),
        (BatchIdentity(3, 1, 1), 0, "epoch"),
        (BatchIdentity(3, 21, 1), 0, "epoch"),
    ],
)
def test_whatever_else_is_out_of_order_and_says_what_is_due(batch: BatchIdentity, expected: int, word: str) -> None:
    verdict = decide(SEVEN, batch)
    assert isinstance(verdict, OutOfOrder)
    assert verdict.expected == expected
    assert word in verdict.reason


@pytest.mark.parametrize("batch", [BatchIdentity(2, 5, 2), BatchIdentity(2, MODULUS - 1, 8), BatchIdentity(2, 0, 21)])
def test_the_log_decides_about_what_begins_below_the_window_and_ends_in_it(batch: BatchIdentity) -> None:
    """It may have been stored in parts, of which the window has the last ones."""
    assert decide(SEVEN, batch) == BelowWindow()


def test_two_neighbours_of_the_window_sent_as_one_batch_are_their_duplicate() -> None:
    assert decide(SEVEN, BatchIdentity(2, 6, 6)) == Duplicate(2000, 20), "so a batch is found that was stored in parts"
    assert decide(SEVEN, BatchIdentity(2, 6, 15)) == Duplicate(2000, 20)


def test_nothing_known_starts_at_zero_unless_its_state_has_expired() -> None:
    assert decide(None, BatchIdentity(7, 0, 5)) == Append()
    assert decide(None, BatchIdentity(0, 5, 5), any_start=True) == Append()
    verdict = decide(None, BatchIdentity(0, 5, 5))
    assert isinstance(verdict, OutOfOrder)
    assert verdict.expected == 0


def test_the_window_reaches_across_the_wrap() -> None:
    entry = entry_after(2, 4, 2, start=MODULUS - 4)  # MODULUS-4..-3, MODULUS-2..1, 2..3
    assert entry.next_sequence == 4
    assert decide(entry, BatchIdentity(2, MODULUS - 2, 4)) == Duplicate(1000, 10)
    assert decide(entry, BatchIdentity(2, MODULUS - 4, 2)) == Duplicate(0, 0)
    assert decide(entry, BatchIdentity(2, 4, 1)) == Append()
    assert decide(entry, BatchIdentity(2, MODULUS - 5, 1)) == BelowWindow()
    assert decide(entry, BatchIdentity(2, MODULUS - 5, 2)) == BelowWindow()
    assert isinstance(decide(entry, BatchIdentity(2, MODULUS - 5, 10)), OutOfOrder)
    assert isinstance(decide(entry, BatchIdentity(2, 5, 1)), OutOfOrder)


def test_an_entry_without_a_window_has_nothing_before_what_is_due() -> None:
    verdict = decide(entry_after(start=10), BatchIdentity(2, 3, 1))
    assert isinstance(verdict, OutOfOrder)
    assert verdict.expected == 10


def test_a_batch_is_found_in_the_group_of_an_intent_by_epoch_sequence_count_and_content() -> None:
    members = tuple(IntentBatch(sequence, 3, 0) for sequence in (21, 24, 27))
    intent = Intent(b"o" * 8, 2, members, 0, b"a" * 8, b"c" * 8, 0)
    assert reserved(SEVEN, intent).intent is intent
    assert all(is_in_intent(intent, BatchIdentity(2, sequence, 3), 0) for sequence in (21, 24, 27))
    assert not is_in_intent(intent, BatchIdentity(2, 21, 3), 1), "another content"
    for stranger in (
        BatchIdentity(3, 21, 3),
        BatchIdentity(2, 21, 2),
        BatchIdentity(2, 22, 3),
        BatchIdentity(2, 30, 3),
    ):
        assert not is_in_intent(intent, stranger, 0)
