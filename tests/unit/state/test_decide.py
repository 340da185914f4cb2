"""``decide``, case by case: the table of what a batch can be, given the stored entry."""

import pytest

from idemproxy.state.commit import committed, fresh, reserved
from idemproxy.state.decide import (
    Append,
    BatchIdentity,
    Duplicate,
    Fenced,
    OutOfOrder,
    Overlap,
    Verdict,
    decide,
    is_directly_after,
    numbered_as,
    rest_of,
)
from idemproxy.state.entry import Entry, Intent, IntentBatch, WindowBatch

DATA_GENERATION = b"g" * 16
MODULUS = 2**31


def entry_after(*counts: int, epoch: int = 2, start: int = 0) -> Entry:
    """The entry after batches of so many records, each 1000 offsets after the one before."""
    entry = fresh(DATA_GENERATION, b"p" * 8, epoch, start)
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
        (BatchIdentity(2, 3, 3), Overlap(3)),
        (BatchIdentity(2, 0, 3), Overlap(3)),
        (BatchIdentity(2, 0, 6), Overlap(6)),
        (BatchIdentity(2, 5, 1), Overlap(1)),
        (BatchIdentity(2, 5, 2), Overlap(2)),
        (BatchIdentity(2, 0, 21), Overlap(21)),
        (BatchIdentity(2, MODULUS - 1, 1), Overlap(1)),
        (BatchIdentity(2, MODULUS - 1, 8), Overlap(8)),
        (BatchIdentity(2, 6, 1), Overlap(1)),
        (BatchIdentity(2, 6, 6), Overlap(6)),
        (BatchIdentity(2, 7, 1), Overlap(1)),
        (BatchIdentity(2, 20, 1), Overlap(1)),
        (BatchIdentity(2, 20, 5), Overlap(1)),
        (BatchIdentity(2, 18, 4), Overlap(3)),
        (BatchIdentity(2, 0, 30), Overlap(21)),
        (BatchIdentity(2, MODULUS - 1, 30), Overlap(22)),
        (BatchIdentity(1, 21, 1), Fenced(2)),
        (BatchIdentity(1, 18, 3), Fenced(2)),
        (BatchIdentity(0, 0, 1), Fenced(2)),
        (BatchIdentity(3, 0, 1), Append()),
        (BatchIdentity(32767, 0, 9), Append()),
    ],
)
def test_a_batch_is_next_or_a_duplicate_or_fenced_or_the_log_tells(batch: BatchIdentity, verdict: Verdict) -> None:
    assert decide(SEVEN, batch) == verdict


@pytest.mark.parametrize(
    ("batch", "expected", "word"),
    [
        (BatchIdentity(2, 22, 1), 21, "gap"),
        (BatchIdentity(2, 21 + 2**30 - 1, 1), 21, "gap"),
        (BatchIdentity(3, 1, 1), 0, "epoch"),
        (BatchIdentity(3, 21, 1), 0, "epoch"),
    ],
)
def test_whatever_else_is_out_of_order_and_says_what_is_due(batch: BatchIdentity, expected: int, word: str) -> None:
    verdict = decide(SEVEN, batch)
    assert isinstance(verdict, OutOfOrder)
    assert verdict.expected == expected
    assert word in verdict.reason


@pytest.mark.parametrize("stored", [1, 2, 5, 8])
def test_of_a_batch_that_is_stored_in_parts_the_window_remembers_one_that_grows(stored: int) -> None:
    entry = entry_after(3, 3)
    for count in range(1, stored + 1):
        entry = committed(entry, [WindowBatch(6, count, 500)], 600 + count, b"a" * 8)
    assert [(one.base_sequence, one.record_count, one.base_offset) for one in entry.window] == [
        (0, 3, 0),
        (3, 3, 1000),
        (6, stored, 500),
    ]
    assert decide(entry, BatchIdentity(2, 6, stored)) == Duplicate(500)
    assert decide(entry, BatchIdentity(2, 6, stored + 1)) == Overlap(stored)
    assert rest_of(BatchIdentity(2, 6, 9), stored) == BatchIdentity(2, 6 + stored, 9 - stored)


def test_it_takes_the_place_of_its_parts_that_others_have_committed_for_themselves() -> None:
    entry = entry_after(3, 2, 4)
    entry = committed(entry, [WindowBatch(3, 8, 1000)], 4000, b"a" * 8)
    assert [(one.base_sequence, one.record_count) for one in entry.window] == [(0, 3), (3, 8)]
    assert entry.next_sequence == 11


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
    assert decide(entry, BatchIdentity(2, MODULUS - 5, 1)) == Overlap(1)
    assert decide(entry, BatchIdentity(2, MODULUS - 5, 2)) == Overlap(2)
    assert decide(entry, BatchIdentity(2, MODULUS - 5, 10)) == Overlap(9)
    assert rest_of(BatchIdentity(2, MODULUS - 5, 10), 9) == BatchIdentity(2, 4, 1)
    assert isinstance(decide(entry, BatchIdentity(2, 5, 1)), OutOfOrder)


def test_an_entry_without_a_window_has_nothing_before_what_is_due() -> None:
    verdict = decide(entry_after(start=10), BatchIdentity(2, 3, 1))
    assert isinstance(verdict, OutOfOrder)
    assert verdict.expected == 10


def test_an_intents_batch_is_found_by_epoch_sequence_and_record_count() -> None:
    members = tuple(IntentBatch(sequence, 3, b"digest-0") for sequence in (21, 24, 27))
    intent = Intent(b"o" * 8, 2, members, 0, b"a" * 8, b"c" * 8, 0)
    assert reserved(SEVEN, intent).intent is intent
    assert [numbered_as(intent, BatchIdentity(2, sequence, 3)) for sequence in (21, 24, 27)] == list(members)
    for whole in (BatchIdentity(2, 20, 4), BatchIdentity(2, 10, 14)):
        assert numbered_as(intent, whole) is members[0], "the intent has what is left of it"
    for stranger in (
        BatchIdentity(3, 21, 3),
        BatchIdentity(2, 21, 2),
        BatchIdentity(2, 22, 3),
        BatchIdentity(2, 30, 3),
    ):
        assert numbered_as(intent, stranger) is None


@pytest.mark.parametrize(
    ("epoch", "sequence", "due", "is_after"),
    [
        (2, 27, 21, True),
        (2, 24, 21, True),
        (2, 28, 21, False),
        (2, 21, 21, False),
        (2, 20, 21, False),
        (2, 27, 24, True),
        (3, 27, 21, False),
    ],
)
def test_a_batch_is_directly_after_an_intent_only_if_nothing_else_is_missing(
    epoch: int, sequence: int, due: int, is_after: bool
) -> None:
    members = tuple(IntentBatch(start, 3, b"digest-0") for start in (21, 24))
    intent = Intent(b"o" * 8, 2, members, 0, b"a" * 8, b"c" * 8, 0)
    assert is_directly_after(intent, BatchIdentity(epoch, sequence, 1), due) is is_after


def test_a_batch_directly_after_an_intent_may_lie_beyond_the_wrap() -> None:
    intent = Intent(b"o" * 8, 2, (IntentBatch(MODULUS - 2, 4, b"digest-0"),), 0, b"a" * 8, b"c" * 8, 0)
    assert is_directly_after(intent, BatchIdentity(2, 2, 1), MODULUS - 2)
    assert not is_directly_after(intent, BatchIdentity(2, 3, 1), MODULUS - 2)
