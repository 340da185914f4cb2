"""How much of an answer is looked into at once, and that a client gets all the rest with its next fetches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set, inner_messages, iterate_shallow
from idemproxy.proxy import limits
from idemproxy.proxy.hidden_ranges.known import KnownHiddenRanges, LogRanges
from idemproxy.proxy.hidden_ranges.leaving_out import LeavingOut
from idemproxy.state.hidden_ranges import HiddenRange, OffsetRange, State

KIB = 1024


class Spans(tuple[tuple[int, int], ...]):
    """Counts how many of them are looked at."""

    looked_at = 0

    def __getitem__(self, at: Any) -> Any:
        self.looked_at += 1
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for one in super().__iter__():
            self.looked_at += 1
            yield one


def wrapper(first: int, count: int, size_bytes: int = 0, codec: Codec = Codec.GZIP) -> bytes:
    inside = encode_set([(None, bytes(size_bytes), 7)] * count, magic=1)
    packed = compress(codec, inside, magic=1)
    return encode_message(b"m", packed, magic=1, offset=first + count - 1, timestamp=7, codec=codec)


def wrappers(count: int, records: int, size_bytes: int = 0) -> list[bytes]:
    return [wrapper(number * records, records, size_bytes) for number in range(count)]


def logs_with(named: Sequence[tuple[int, int]], log: Sequence[bytes]) -> tuple[LogRanges, ...]:
    """``named``: ranges, from and up to, in a log without gaps."""
    hidden_ranges = {}
    stored = []
    at = 0
    for message in log:
        (shallow,) = iterate_shallow(message)
        stored.append((shallow.offset, shallow.crc, at))
        at = shallow.offset + 1
    for first, end in named:
        found = tuple(one for one in stored if one[2] < end and first <= one[0])
        hidden_ranges[OffsetRange("t", 0, first, end)] = HiddenRange(State.ACTIVE, 1, messages=found)
    known = KnownHiddenRanges(lambda: 0.0)
    known.take_list(hidden_ranges)
    return known.ranges_of("t", 0)


def offsets_of(records: memoryview) -> list[int]:
    return [
        one.offset
        for message in iterate_shallow(records)
        for one in (inner_messages(message, 100 << 20) if message.is_wrapper else [message])
    ]


def answers(log: Sequence[bytes], logs: Sequence[LogRanges]) -> list[tuple[int, list[int]]]:
    """A client reads to the end: what of the log each answer covers, in bytes, and the offsets in it."""
    data, position, got = memoryview(b"".join(log)), 0, []
    while position < len(data):
        looked, left = LeavingOut().of(data[position:], logs)
        assert looked, "each fetch brings it on"
        got.append((len(looked), offsets_of(left)))
        position += len(looked)
    return got


def test_what_is_no_longer_than_a_step_is_one_answer() -> None:
    log = wrappers(limits.HIDDEN_RANGES_PARTS_MAX, 100)
    named = [(number * 100 + 10, number * 100 + 20) for number in range(len(log))]
    ((_, offsets),) = answers(log, logs_with(named, log))
    assert offsets == [one for one in range(len(log) * 100) if not 10 <= one % 100 < 20]


@pytest.mark.parametrize(
    ("count", "records", "size_bytes", "at_once"),
    [
        (40, 10, 0, limits.HIDDEN_RANGES_PARTS_MAX),
        (6, limits.HIDDEN_RANGES_PART_RECORDS_MAX // 2, 0, 2),
        (5, 100, 10 * KIB, 1),
    ],
)
def test_so_many_wrappers_are_taken_apart_for_one_answer(
    count: int, records: int, size_bytes: int, at_once: int
) -> None:
    """As many as there may be; as have so many records; as are so large, unpacked."""
    log = wrappers(count, records, size_bytes)
    named = [(number * records + 1, number * records + 2) for number in range(count)]
    got = answers(log, logs_with(named, log))
    assert [offset for _, offsets in got for offset in offsets] == [
        offset for offset in range(count * records) if offset % records != 1
    ]
    assert len(got) == -(-count // at_once)


def test_what_cannot_be_read_stays_and_holds_nobody_up() -> None:
    """Others may have stored it, or it was named while another limit held."""
    log = [wrapper(at, 10, limits.HIDDEN_RANGES_UNPACKED_BYTES_MAX // 9) for at in (0, 10, 20)]
    got = answers(log, logs_with([(1, 2), (11, 12), (21, 22)], log))
    assert [offsets for _, offsets in got] == [[*range(at, at + 10)] for at in (0, 10, 20)]


def test_all_partitions_of_an_answer_have_one_limit() -> None:
    log = [encode_message(None, bytes(KIB), magic=1, offset=at, timestamp=7) for at in range(2_000)]
    logs, data = logs_with([(1_999, 2_000)], log), memoryview(b"".join(log))
    leaving_out = LeavingOut()
    looked = [len(leaving_out.of(data[:size], logs)[0]) for size in (600 * KIB, 600 * KIB, 600 * KIB)]
    assert abs(sum(looked) - limits.HIDDEN_RANGES_FETCH_BYTES_MAX) < 2 * KIB, "but for messages that are cut off"
    assert looked[0] > looked[1] > looked[2] == 0


def test_a_message_that_is_larger_than_the_limit_comes_whole() -> None:
    large = [encode_message(None, bytes(2 << 20), magic=1, offset=at, timestamp=7) for at in range(3)]
    assert [offsets for _, offsets in answers(large, logs_with([(2, 3)], large))] == [[0], [1], []]


def test_an_answer_is_not_cut_off_after_the_last_range() -> None:
    log = [encode_message(None, bytes(KIB), magic=1, offset=at, timestamp=7) for at in range(4_000)]
    ((_, offsets),) = answers(log, logs_with([(1, 2)], log))
    assert offsets == [0, *range(2, 4_000)]


def test_a_message_is_compared_with_few_of_many_ranges() -> None:
    """One in every second offset, as an audit of many small batches finds them."""
    log = [encode_message(None, b"", magic=1, offset=at, timestamp=7) for at in range(4_000)]
    logs = logs_with([(at, at + 1) for at in range(0, 4_000, 2)], log)
    assert [offset for _, offsets in answers(log, logs) for offset in offsets] == [*range(1, 4_000, 2)]
    compared = Spans(logs[0].spans)
    assert not logs[0]._replace(spans=compared).have(2_000, 2_001)
    assert compared.looked_at < 20


def test_ranges_that_lie_in_each_other_count_all() -> None:
    log = [wrapper(0, 10), wrapper(10, 10), wrapper(20, 10)]
    ((_, offsets),) = answers(log, logs_with([(2, 28), (5, 7), (11, 12)], log))
    assert offsets == [0, 1, 28, 29]
