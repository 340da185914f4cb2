"""What a range of a log has of every producer, and where something may hide more of it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from idemproxy.codecs.batch_marker import Identity, anchor_of, encode_batch_marker
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set, iterate_shallow
from idemproxy.pipeline.rebuild.found import FoundRange, RangeReading, joined
from idemproxy.state.commit import Stored
from idemproxy.state.entry import NO_OFFSET
from testkit.stage.logs import modern, numbered


def wrapper(first: int, *identities: Identity) -> bytes:
    """A stored wrapper with a batch marker, whose first record is at this offset."""
    count = sum(identity.record_count for identity in identities)
    inside = encode_set([(None, b"value", 1000)] * count, magic=1)
    packed = compress(Codec.GZIP, inside)
    return encode_message(
        encode_batch_marker(identities),
        packed,
        magic=1,
        offset=first + count - 1,
        timestamp=1000 + first,
        codec=Codec.GZIP,
    )


def plain(offset: int) -> bytes:
    return encode_message(None, b"of nobody", magic=1, offset=offset, timestamp=1000)


def read(data: bytes, start: int, end: int) -> FoundRange:
    reading = RangeReading(start, end)
    reading.take(memoryview(data))
    return reading.found()


LOG = (
    wrapper(0, Identity(7, 0, 0, 2))
    + wrapper(2, Identity(7, 0, 2, 1), Identity(8, 3, 5, 2))
    + plain(5)
    + wrapper(6, Identity(9, 0, 0, 1))
    + wrapper(7, Identity(7, 0, 3, 1))
)


def test_each_producer_has_its_pieces_with_offsets_and_the_end_of_its_last_message() -> None:
    found = joined([read(LOG, 0, 8)])
    by_id = {one.producer_id: one for one in found.producers}
    assert by_id[7].pieces == (Stored(0, 0, 2, 0), Stored(0, 2, 1, 2), Stored(0, 3, 1, 7))
    assert by_id[8].pieces == (Stored(3, 5, 2, 3),)
    last = list(iterate_shallow(LOG))[-1]
    assert (by_id[7].end_offset, by_id[7].anchor, by_id[7].time_ms) == (8, anchor_of(last), 1007)
    assert found.last == (7, anchor_of(last))


def test_an_unmarked_batch_may_be_of_any_producer_without_later_batches() -> None:
    found = joined([read(LOG, 0, 8)])
    assert {one.producer_id: one.has_unmarked for one in found.producers} == {7: False, 8: True, 9: False}


def test_so_may_what_is_missing() -> None:
    data = wrapper(0, Identity(7, 0, 0, 2)) + wrapper(4, Identity(8, 0, 0, 1))
    found = joined([read(data, 0, 5)])
    assert {one.producer_id: one.has_unmarked for one in found.producers} == {7: True, 8: False}
    reading = RangeReading(0, 5)
    reading.take(memoryview(wrapper(0, Identity(7, 0, 0, 2))))
    reading.missing_to(5)
    assert joined([reading.found()]).producers[0].has_unmarked


def test_what_cannot_be_found_any_more_is_a_problem() -> None:
    broken = LOG + b"\0" * 7 + b"\x09" + b"\0\0\0\1" + b"x" * 20
    assert "behind offset 7" in read(broken, 0, 20).problem


@given(st.sets(st.integers(1, 7), max_size=4))
def test_ranges_together_have_what_the_whole_has(cuts: set[int]) -> None:
    """A wrapper belongs to the range that has its last offset, wherever the cuts are."""
    borders = [0, *sorted(cuts), 8]
    parts = []
    for start, end in pairwise(borders):
        # A fetch begins with the whole wrapper that has the offset.
        data = b"".join(bytes(LOG[m.start : m.start + m.size_bytes]) for m in iterate_shallow(LOG) if m.offset >= start)
        parts.append(read(data, start, end))
    whole, together = joined([read(LOG, 0, 8)]), joined(parts)
    assert together.producers == whole.producers
    assert (together.start, together.end, together.unknown_outcome_to, together.last) == (0, 8, 6, whole.last)
    assert whole.unknown_outcome_to == 6 != NO_OFFSET


def test_a_v2_batch_seeming_to_end_after_its_range_hides_the_rest() -> None:
    """One bit of its last offset is another one. What comes after it is not read, so nobody is known as a whole."""
    batch = bytearray(modern(numbered(0, 2), 2))
    batch[24] ^= 1
    log = wrapper(0, Identity(7, 0, 0, 2)) + bytes(batch) + wrapper(4, Identity(7, 0, 2, 2))
    found = joined([read(log, 0, 6)])
    assert [one.has_unmarked for one in found.producers] == [True]
