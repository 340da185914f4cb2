"""What is rebuilt from the pieces that are kept is what is rebuilt from all, whatever the log and the entry are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.proxy.partition_log.log_search import Searched
from idemproxy.proxy.producer.rebuild import is_enough
from idemproxy.state.commit import Gathered, Stored, fresh
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.entry import NO_OFFSET, Entry, Intent, IntentBatch, WindowBatch
from idemproxy.state.rebuilding import completed
from idemproxy.state.sequence import SEQUENCE_MODULUS, advance

HALF = SEQUENCE_MODULUS // 2
DATA_GENERATION, ANCHOR = b"g" * 16, b"a" * 8

steps = st.tuples(
    st.one_of(  # how far from where the last piece has ended
        st.just(0),
        st.integers(-12, 12),
        st.sampled_from([-HALF, HALF, HALF // 2, -HALF // 2]).flatmap(lambda far: st.integers(far - 9, far + 9)),
    ),
    st.integers(1, 12),  # so many pieces that follow each other
    st.one_of(st.integers(1, 3), st.sampled_from([HALF // 8, HALF - 1, HALF])),  # of so many records
    st.sampled_from([0] * 12 + [-1, 1, 2]),  # of a later or an earlier epoch
)
starts = st.sampled_from([0, 5, HALF, SEQUENCE_MODULUS - 4])


def pieces_of(start: int, moves: list[tuple[int, int, int, int]]) -> Iterator[Stored]:
    epoch, sequence, offset = 5, start, 1000
    for ahead, count, record_count, epochs_ahead in moves:
        newest = max(epoch, epoch + epochs_ahead)
        sequence = advance(sequence, ahead)
        for _ in range(count):
            yield Stored(max(0, epoch + epochs_ahead), sequence, record_count, offset)
            sequence = advance(sequence, record_count)
            offset += record_count + 1
        epoch = newest


@st.composite
def entries(draw: st.DrawFn, pieces: list[Stored]) -> Entry:
    """One that knows nothing, or whose next sequence is near something that the log has."""
    near = draw(st.sampled_from(pieces[-6:]) | st.sampled_from(pieces)) if pieces else Stored(5, 0, 1, 1000)
    epoch = draw(st.sampled_from([near.producer_epoch, near.producer_epoch, 0, 5, 8]))
    due = advance(
        near.base_sequence, draw(st.integers(-9, 9) | st.sampled_from([near.record_count, HALF - 1, HALF, -HALF]))
    )
    window: list[WindowBatch] = []
    base = due
    for record_count in draw(st.lists(st.integers(1, 3), max_size=5)):
        base = advance(base, -record_count)
        window.insert(0, WindowBatch(base, record_count, 1))
    first = draw(st.sampled_from([0, 1, near.base_offset, 10**9])) if window else NO_OFFSET
    return replace(
        fresh(DATA_GENERATION, b"p" * 8, epoch, due),
        window=tuple(window),
        first_base_offset=first,
        is_rebuilt=draw(st.booleans()),
    )


def kept_of(pieces: list[Stored]) -> list[Stored]:
    gathered = Gathered()
    for piece in pieces:
        gathered.take(piece)
    return list(gathered)


@settings(max_examples=500)
@given(starts, st.lists(steps, max_size=12), st.data())
def test_what_is_kept_of_the_pieces_tells_as_much_as_all(
    start: int, moves: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    pieces = list(pieces_of(start, moves))
    kept = kept_of(pieces)
    entry = data.draw(entries(pieces))
    gap_at = data.draw(st.sampled_from([NO_OFFSET, 0, 1010]))
    unrecoverable = data.draw(st.none() | st.sampled_from(pieces or [Stored(5, 0, 1, 0)]))
    intent = None
    if unrecoverable is not None:
        after = advance(unrecoverable.base_sequence, unrecoverable.record_count)
        intent = Intent(
            b"o" * 8, unrecoverable.producer_epoch, (IntentBatch(after, 1, b"digest-0"),), 0, ANCHOR, b"c" * 8, 0
        )
    all_of_it, folded = (Searched(tuple(some), 10**6, ANCHOR, gap_at) for some in (pieces, kept))
    for is_since_checkpoint in (False, True):
        expected = completed(entry, all_of_it, DATA_GENERATION, intent, is_since_checkpoint=is_since_checkpoint)
        assert completed(entry, folded, DATA_GENERATION, intent, is_since_checkpoint=is_since_checkpoint) == expected
    for epoch in {piece.producer_epoch for piece in pieces} | {0, 9}:
        for sequence in {piece.base_sequence for piece in kept} | {entry.next_sequence}:
            lowest = BatchIdentity(epoch, sequence, 1)
            assert is_enough(entry, kept, lowest) == is_enough(entry, pieces, lowest)
    assert is_enough(entry, kept, None) == is_enough(entry, pieces, None)


@settings(max_examples=30)
@given(
    starts,
    st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 1, 40, -3, -30]), st.integers(20, 60), st.integers(1, 3)), max_size=40
    ),
)
def test_of_a_log_with_gaps_and_duplicates_little_is_kept(start: int, moves: list[tuple[int, int, int]]) -> None:
    pieces = list(pieces_of(start, [(40, 1, 1, 0), *((*move, 0) for move in moves)]))
    assert len(kept_of(pieces)) <= 40
