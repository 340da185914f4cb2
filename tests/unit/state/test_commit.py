"""How an entry changes: every change raises the version, and nothing is forgotten that a later decision needs."""

from dataclasses import replace

import pytest

from idemproxy.state.commit import Gathered, Stored, committed, fresh, rebuilt, released, renewed, reserved
from idemproxy.state.entry import NO_OFFSET, Entry, Intent, IntentBatch, WindowBatch

DATA_GENERATION, NEXT_DATA_GENERATION = b"g" * 16, b"h" * 16
OWNER, OTHER = b"o" * 8, b"x" * 8
ANCHOR, END_ANCHOR = b"a" * 8, b"e" * 8


def intent(epoch: int, *sequences: int) -> Intent:
    members = tuple(IntentBatch(sequence, 1, b"digest-0") for sequence in sequences)
    return Intent(OWNER, epoch, members, 50, ANCHOR, b"c" * 8, 1)


def after(count: int, epoch: int = 1) -> Entry:
    """The entry after so many batches of one record, at offsets from 100 on."""
    entry = fresh(DATA_GENERATION, b"p" * 8, epoch, 0)
    for sequence in range(count):
        entry = committed(entry, [WindowBatch(sequence, 1, 100 + sequence)], 101 + sequence, ANCHOR)
    return entry


def test_a_fresh_entry_has_the_version_of_an_absent_value() -> None:
    entry = fresh(DATA_GENERATION, b"p" * 8, 4, 9)
    assert (entry.version, entry.producer_epoch, entry.next_sequence, entry.window) == (0, 4, 9, ())
    assert (entry.first_base_offset, entry.end_offset, entry.intent) == (NO_OFFSET, NO_OFFSET, None)


def test_every_change_raises_the_version_by_one() -> None:
    entry = reserved(after(2), intent(1, 2))
    assert entry.version == 3
    for changed in (
        renewed(entry, OTHER),
        released(entry),
        committed(entry, [WindowBatch(2, 1, 102)], 103, END_ANCHOR),
        rebuilt(entry, [], NEXT_DATA_GENERATION, 0, ANCHOR),
        reserved(entry, intent(2, 0)),
    ):
        assert changed.version == 4


def test_a_release_of_nothing_raises_the_version_too() -> None:
    entry = after(1)
    assert released(entry) == replace(entry, version=entry.version + 1)


def test_a_reserve_keeps_everything_else() -> None:
    entry = after(3)
    assert reserved(entry, intent(1, 3)) == replace(entry, version=4, intent=intent(1, 3))


def test_a_reserve_under_a_new_epoch_clears_the_window_and_keeps_end_and_anchor() -> None:
    entry = reserved(after(3), intent(5, 0))
    assert (entry.producer_epoch, entry.next_sequence, entry.window) == (5, 0, ())
    assert entry.first_base_offset == NO_OFFSET
    assert (entry.end_offset, entry.anchor) == (103, ANCHOR)
    again = committed(entry, [WindowBatch(0, 2, 200)], 202, END_ANCHOR)
    assert (again.first_base_offset, again.end_offset, again.anchor) == (200, 202, END_ANCHOR)


def test_a_renewal_changes_the_owner_and_the_attempts_and_keeps_the_bound() -> None:
    entry = reserved(after(1), intent(1, 1))
    taken_over = renewed(entry, OTHER)
    assert taken_over.intent == replace(intent(1, 1), owner=OTHER)
    assert renewed(taken_over, OTHER, 2).intent == replace(intent(1, 1), owner=OTHER, attempts=2)


def test_a_commit_of_a_group_ends_the_intent_and_remembers_the_last_five() -> None:
    entry = reserved(after(3), intent(1, 3, 4, 5))
    group = [WindowBatch(sequence, 1, 200 + sequence, 7) for sequence in (3, 4, 5)]
    entry = committed(entry, group, 206, END_ANCHOR)
    assert entry.intent is None
    assert [batch.base_sequence for batch in entry.window] == [1, 2, 3, 4, 5]
    assert [batch.base_offset for batch in entry.window] == [101, 102, 203, 204, 205]
    assert (entry.next_sequence, entry.first_base_offset, entry.end_offset) == (6, 100, 206)


def test_a_commit_across_the_wrap_continues_at_zero() -> None:
    entry = fresh(DATA_GENERATION, b"p" * 8, 0, 2**31 - 2)
    entry = committed(entry, [WindowBatch(2**31 - 2, 3, 10)], 13, ANCHOR)
    assert entry.next_sequence == 1


def test_a_commit_that_is_not_the_next_one_is_an_error_of_ours() -> None:
    with pytest.raises(AssertionError):
        committed(after(3), [WindowBatch(4, 1, 104)], 105, ANCHOR)


# ---------------------------------------------------------------------- rebuilt from the log
def stored(*sequences: int, epoch: int = 1, offset: int = 100) -> list[Stored]:
    return [Stored(epoch, sequence, 1, offset + sequence) for sequence in sequences]


def test_an_unverified_entry_takes_what_it_lacks_from_the_log() -> None:
    entry = rebuilt(after(3), stored(1, 2, 3, 4), NEXT_DATA_GENERATION, 105, END_ANCHOR)
    assert [batch.base_sequence for batch in entry.window] == [0, 1, 2, 3, 4]
    assert [batch.base_offset for batch in entry.window] == [100, 101, 102, 103, 104]
    assert (entry.next_sequence, entry.end_offset, entry.anchor) == (5, 105, END_ANCHOR)
    assert entry.data_generation == NEXT_DATA_GENERATION


def test_an_entry_that_lacks_nothing_only_gets_the_new_data_generation() -> None:
    before = reserved(after(3), intent(1, 3))
    entry = rebuilt(before, [], NEXT_DATA_GENERATION, 0, END_ANCHOR)
    assert entry == replace(before, version=before.version + 1, data_generation=NEXT_DATA_GENERATION, intent=None)


def test_a_lost_entry_is_what_the_log_has() -> None:
    lost = fresh(bytes(16), bytes(8), 0, 0)
    entry = rebuilt(lost, stored(*range(7), epoch=3), NEXT_DATA_GENERATION, 107, END_ANCHOR)
    assert (entry.producer_epoch, entry.next_sequence, entry.first_base_offset) == (3, 7, 100)
    assert [batch.base_sequence for batch in entry.window] == [2, 3, 4, 5, 6]


def test_the_newest_epoch_in_the_log_wins_over_older_pieces_after_it() -> None:
    pieces = [*stored(0, 1, 2), *stored(0, 1, epoch=4, offset=200), *stored(3, offset=300)]
    entry = rebuilt(after(2), pieces, NEXT_DATA_GENERATION, 304, END_ANCHOR)
    assert (entry.producer_epoch, entry.next_sequence, entry.first_base_offset) == (4, 2, 200)
    assert [batch.base_offset for batch in entry.window] == [200, 201]


def test_a_log_that_begins_in_the_middle_of_the_epoch_is_taken_from_there() -> None:
    entry = rebuilt(fresh(bytes(16), bytes(8), 0, 0), stored(40, 41, epoch=0), NEXT_DATA_GENERATION, 142, END_ANCHOR)
    assert (entry.next_sequence, len(entry.window)) == (42, 2)


def test_a_rebuild_across_the_wrap_continues_at_zero() -> None:
    last = 2**31 - 1
    start = committed(fresh(DATA_GENERATION, b"p" * 8, 1, last - 1), [WindowBatch(last - 1, 1, 10)], 11, ANCHOR)
    pieces = [Stored(1, last - 1, 1, 10), Stored(1, last, 1, 11), Stored(1, 0, 1, 12)]
    entry = rebuilt(start, pieces, NEXT_DATA_GENERATION, 13, END_ANCHOR)
    assert [batch.base_offset for batch in entry.window] == [10, 11, 12]
    assert entry.next_sequence == 1


def test_what_a_log_has_of_known_batches_further_down_is_where_the_epoch_begins() -> None:
    entry = rebuilt(after(3), stored(1, 2, 3, offset=50), NEXT_DATA_GENERATION, 54, END_ANCHOR)
    assert (entry.first_base_offset, entry.next_sequence) == (51, 4)
    assert [batch.base_offset for batch in entry.window] == [100, 101, 102, 53]


# ---------------------------------------------------------------------- what is kept of the pieces
def kept_of(pieces: list[Stored]) -> list[Stored]:
    gathered = Gathered()
    for piece in pieces:
        gathered.take(piece)
    return list(gathered)


def test_of_many_pieces_the_first_one_and_a_whole_window_are_kept() -> None:
    pieces = stored(*range(10_000))
    assert kept_of(pieces) == [pieces[0], *pieces[-5:]]
    lost = fresh(bytes(16), bytes(8), 0, 0)
    assert rebuilt(lost, kept_of(pieces), NEXT_DATA_GENERATION, 0, ANCHOR) == rebuilt(
        lost, pieces, NEXT_DATA_GENERATION, 0, ANCHOR
    )


def test_an_ended_epoch_keeps_its_first_piece_and_no_duplicates() -> None:
    old, new = stored(*range(3, 30)), stored(*range(20), epoch=4, offset=200)
    kept = kept_of([*old, *new, *stored(40, offset=300), *stored(2, epoch=4, offset=500)])
    assert kept == [old[0], new[0], *new[-5:]]


def test_a_producer_that_begins_its_sequences_again_begins_another_stretch() -> None:
    before, anew = stored(*range(1000, 1020)), stored(*range(20), offset=2000)
    assert kept_of([*before, *anew]) == [before[0], *before[-5:], anew[0], *anew[-5:]]
