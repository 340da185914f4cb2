"""Message sets without ranges of their records, against a reading of every record by itself."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set, inner_messages, iterate_shallow
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.codecs.without_ranges import Left, Ranges, without_ranges
from idemproxy.proxy import limits
from idemproxy.proxy.hidden_ranges.known import LogRanges
from idemproxy.proxy.hidden_ranges.leaving_out import LeavingOut

OUTPUT_BYTES_MAX = 1 << 20
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


@dataclass(frozen=True)
class Log:
    records: bytes
    ranges: Ranges


def message_of(magic: int, codec: Codec, offsets: list[int]) -> bytes:
    """One message: a wrapper around records at these offsets, or one plain record."""
    if codec is Codec.NONE:
        return encode_message(b"k", b"v%d" % offsets[0], magic=magic, offset=offsets[0], timestamp=7)
    shift = offsets[0] if magic else 0
    inside = b"".join(
        encode_set([(None, b"v%d" % offset, 7)], magic=magic, first_offset=offset - shift) for offset in offsets
    )
    packed = compress(codec, inside, magic=magic)
    return encode_message(b"marker", packed, magic=magic, offset=offsets[-1], timestamp=7, codec=codec)


def read(records: bytes) -> list[tuple[int, bytes]]:
    """Every record with its offset."""
    found: list[tuple[int, bytes]] = []
    for message in iterate_shallow(records):
        inner = inner_messages(message, OUTPUT_BYTES_MAX) if message.is_wrapper else [message]
        found += [(one.offset, bytes(one.value or b"")) for one in inner]
    return found


@st.composite
def logs(draw: st.DrawFn) -> Log:
    offset, records, all_messages = draw(st.integers(0, 1 << 40)), b"", []
    for _ in range(draw(st.integers(1, 6))):
        codec = draw(st.sampled_from(CODECS))
        count = 1 if codec is Codec.NONE else draw(st.integers(1, 4))
        offsets = []
        for _ in range(count):
            offset += draw(st.integers(1, 3))  # compaction leaves gaps
            offsets.append(offset)
        message = message_of(draw(st.sampled_from((0, 1))), codec, offsets)
        (shallow,) = iterate_shallow(message)
        all_messages.append((offsets, shallow.crc))
        records += message
    first = all_messages[0][0][0]
    cuts = sorted(draw(st.sets(st.integers(first, offset + 2), min_size=2, max_size=4)))
    spans = tuple(zip(cuts[::2], cuts[1::2], strict=False))
    noted = {
        offsets[-1]: (crc, offsets[0])
        for offsets, crc in all_messages
        if any(start < offsets[-1] + 1 and offsets[0] < end for start, end in spans)
    }
    return Log(records, Ranges(spans, noted, max(noted, default=-1)))


@given(logs())
def test_what_is_left_are_the_records_outside_of_the_ranges_at_their_offsets(log: Log) -> None:
    wanted = [
        record for record in read(log.records) if not any(start <= record[0] < end for start, end in log.ranges.spans)
    ]
    left = without_ranges(memoryview(log.records), log.ranges, OUTPUT_BYTES_MAX)
    assert read(b"".join(left.records)) == wanted
    assert (left.skipped_to >= 0) == (not wanted)
    if not wanted:
        assert left.skipped_to == read(log.records)[-1][0] + 1


@given(logs(), st.data())
def test_a_cut_off_set_never_leaves_a_part_of_a_message_alone(log: Log, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log.records)))
    records = log.records[:cut]
    left = without_ranges(memoryview(records), log.ranges, OUTPUT_BYTES_MAX)
    whole = read(records)
    wanted = [record for record in whole if not any(start <= record[0] < end for start, end in log.ranges.spans)]
    assert read(b"".join(left.records)) == wanted
    if whole and not wanted:
        assert left.records == (), "a part of a message alone is what a client takes for a message too large"


@given(logs(), st.integers(1, 3), st.integers(1, 400), st.integers(1, 100))
def test_what_takes_several_answers_is_what_one_would_have(
    log: Log, parts_max: int, bytes_max: int, more_bytes_max: int
) -> None:
    """However little of it is looked at for each of them."""
    ranges = LogRanges(*log.ranges)
    left, position = b"", 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "HIDDEN_RANGES_PARTS_MAX", parts_max)
        patch.setattr(limits, "HIDDEN_RANGES_FETCH_BYTES_MAX", bytes_max)
        patch.setattr(limits, "HIDDEN_RANGES_MORE_UNPACKED_BYTES_MAX", more_bytes_max)
        while position < len(log.records):
            looked, some = LeavingOut().of(memoryview(log.records)[position:], (ranges,))
            assert looked
            left += some
            position += len(looked)
    assert read(left) == read(b"".join(without_ranges(memoryview(log.records), log.ranges, OUTPUT_BYTES_MAX).records))


@given(logs())
def test_a_log_that_was_recreated_loses_nothing(log: Log) -> None:
    others = {offset: (crc ^ 1, first) for offset, (crc, first) in log.ranges.messages.items()}
    left = without_ranges(memoryview(log.records), log.ranges._replace(messages=others), OUTPUT_BYTES_MAX)
    assert b"".join(left.records) == log.records
    assert left.skipped_to == -1


@given(logs(), st.binary(max_size=200), st.integers(0, 400))
def test_anything_else_stays_as_it_is(log: Log, garbage: bytes, at: int) -> None:
    records = log.records[:at] + garbage
    left = without_ranges(memoryview(records), log.ranges, OUTPUT_BYTES_MAX)
    assert sum(map(len, left.records)) <= len(records) + 200


def test_a_wrapper_that_unpacks_to_too_much_stays_whole() -> None:
    message = message_of(1, Codec.GZIP, [5, 6])
    (shallow,) = iterate_shallow(message)
    ranges = Ranges(((5, 6),), {6: (shallow.crc, 5)}, 6)
    assert read(b"".join(without_ranges(memoryview(message), ranges, OUTPUT_BYTES_MAX).records)) == [(6, b"v6")]
    assert without_ranges(memoryview(message), ranges, 10).records == (memoryview(message),)


@pytest.mark.parametrize("behind", ["v1", "v2"])
def test_a_part_of_a_message_after_the_ranges_is_not_left_alone(behind: str) -> None:
    hidden = message_of(1, Codec.NONE, [7])
    (shallow,) = iterate_shallow(hidden)
    ranges = Ranges(((7, 8),), {7: (shallow.crc, 7)}, 7)
    record = Record(0, 7, None, b"v", ())
    whole = message_of(1, Codec.NONE, [8]) if behind == "v1" else encode_batch([record], base_offset=8)
    assert without_ranges(memoryview(hidden + whole[:-3]), ranges, OUTPUT_BYTES_MAX) == Left((), 8)
    left = without_ranges(memoryview(hidden + whole), ranges, OUTPUT_BYTES_MAX)
    assert b"".join(left.records) == whole
