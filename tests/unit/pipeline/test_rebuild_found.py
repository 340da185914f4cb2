"""What a range of a log has of every producer, and where something may hide more of it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from idemproxy.codecs.batch_marker import Identity, anchor_of, encode_batch_marker
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.logged import anchor_of as logged_anchor_of
from idemproxy.codecs.logged import iterate_logged
from idemproxy.codecs.message_set import encode_message, encode_set, iterate_shallow
from idemproxy.pipeline.rebuild.found import FoundRange, RangeReading, joined
from idemproxy.proxy.partition_log.recognised import Recogniser, Recognisers, joints_of
from idemproxy.state.commit import Stored
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.entry import NO_OFFSET
from testkit.stage.logs import marked, modern, numbered


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


NAMES = [Identity(7, 1, 0, 2), Identity(8, 0, 4, 3), Identity(7, 1, 2, 2), Identity(8, 1, 0, 1), Identity(9, 0, 0, 1)]
OFFSETS = [0, 2, 5, 7, 8]
MARKED = b"".join(marked(numbered(at, name.record_count), at, name) for at, name in zip(OFFSETS, NAMES, strict=True))


def recognised(joints: dict[int, tuple[int, int]], data: bytes = MARKED, end: int = 9) -> RangeReading:
    """Read a log of format v2 of which is known at which epoch and sequence some producers continue."""
    known = [Recogniser(one, joints=joints_of(BatchIdentity(*joint, 0))) for one, joint in joints.items()]
    reading = RangeReading(0, end, Recognisers(known))
    reading.take(memoryview(data))
    return reading


def test_batches_that_name_nobody_are_recognised_from_where_their_producers_are_known() -> None:
    found = recognised({7: (1, 0), 8: (0, 4)}).found()
    by_id = {one.producer_id: one for one in joined([found]).producers}
    assert by_id[7].pieces == (Stored(1, 0, 2, 0), Stored(1, 2, 2, 5))
    assert by_id[8].pieces == (Stored(0, 4, 3, 2), Stored(1, 0, 1, 7)), "its next epoch, too"
    assert (found.unrecognised, found.unknown_outcome_to) == (1, 9), "the batch of producer 9 may be anybody's"
    last = list(iterate_logged(MARKED))[3]
    assert (by_id[8].end_offset, by_id[8].anchor, by_id[8].has_unmarked) == (8, logged_anchor_of(last), True)


def test_what_nobody_knows_is_counted_and_may_be_of_any_producer() -> None:
    found = recognised({}).found()
    assert (found.producers, found.unrecognised, found.unknown_outcome_to) == ((), 5, 9)
    assert recognised({one.producer_id: one[1:3] for one in reversed(NAMES)}).found().unknown_outcome_to == NO_OFFSET


def test_a_wrapper_says_where_its_producer_continues_in_format_v2() -> None:
    data = wrapper(0, Identity(7, 1, 0, 2)) + marked(numbered(2, 2), 2, Identity(7, 1, 2, 2))
    (found,) = recognised({7: (0, 99)}, data, 4).found().producers
    assert found.pieces == (Stored(1, 0, 2, 0), Stored(1, 2, 2, 2))


def test_a_batch_with_a_producer_id_is_its_producers_without_any_entry() -> None:
    data = modern(numbered(0, 3), 0, Identity(5, 2, 7, 3)) + modern(numbered(3, 1), 3, Identity(5, -1, -1, 1))
    found = recognised({}, data, 4).found()
    assert [(one.producer_id, one.pieces) for one in found.producers] == [(5, (Stored(2, 7, 3, 0),))]
    assert (found.unrecognised, found.unknown_outcome_to) == (0, NO_OFFSET), "the end of a transaction has no sequence"


def test_where_an_entry_ends_is_seen_by_the_anchor_of_the_batch_there() -> None:
    first, second = list(iterate_logged(MARKED))[:2]
    right, moved = (1, logged_anchor_of(first)), (1, logged_anchor_of(second))
    reading = RangeReading(0, 9, None, {right, moved})
    reading.take(memoryview(MARKED))
    assert reading.holding == {right}
