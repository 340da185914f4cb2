"""No step of what is done in steps handles more than a bounded number of records or bytes, whatever a client sends."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import cramjam
import pytest

from idemproxy.codecs import compression, convert
from idemproxy.codecs.batch_marker import content_digest
from idemproxy.codecs.compression import BLOCK_BYTES_MAX, Codec, compress, compressing, decompressing
from idemproxy.codecs.convert import (
    HeaderPolicy,
    border_of_halves,
    converting,
    cutting,
    digesting_batch,
    digesting_inner,
    wrapping,
)
from idemproxy.codecs.errors import LimitExceeded, Malformed, Truncated
from idemproxy.codecs.message_set import ShallowMessage, encode_message, encode_set, iterate_shallow, spanning
from idemproxy.codecs.record_batch import (
    HEADERS_BYTES_UNCHECKED,
    Record,
    encode_batch,
    finding_longest,
    parse_single_batch,
)
from idemproxy.codecs.steps import STEP_BYTES, STEP_RECORDS, Steps, at_once
from testkit.stage.either_way import either_way  # noqa: F401
from testkit.stage.step_sizes import MessagesRead
from testkit.stage.wrappers import to_inner

NO_LIMIT = 100_000_000
compiled_reader: Any = vars(convert)["DefaultRecordBatch"]
MANY = 12 * STEP_RECORDS
LARGE_BYTES = 8 * STEP_BYTES
DROPS_ALL = HeaderPolicy(["*"])


def count_of(steps: Steps[Any]) -> int:
    """How many turns others had."""
    turns = 0
    for _ in steps:
        turns += 1
    return turns


def batch_of(records: Sequence[Record], codec: Codec = Codec.NONE) -> memoryview:
    return memoryview(encode_batch(records, codec=codec))


def empty_records(count: int) -> list[Record]:
    return [Record(index, 1, None, None) for index in range(count)]


def test_the_result_of_all_steps_is_given_at_once() -> None:
    def steps() -> Steps[str]:
        yield
        yield
        return "done"

    assert at_once(steps()) == "done"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_large_data_are_compressed_in_steps(codec: Codec) -> None:
    assert count_of(compressing(codec, bytes(LARGE_BYTES))) >= LARGE_BYTES // STEP_BYTES - 1


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_large_data_are_decompressed_in_steps(codec: Codec) -> None:
    data = bytes(LARGE_BYTES)
    packed = compress(codec, data, magic=2)
    assert count_of(decompressing(codec, packed, NO_LIMIT)) >= LARGE_BYTES // STEP_BYTES - 2
    assert at_once(decompressing(codec, packed, NO_LIMIT)) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_small_data_take_one_step(codec: Codec) -> None:
    data = bytes(60_000)
    assert count_of(compressing(codec, data, magic=2)) == 0
    assert count_of(decompressing(codec, compress(codec, data, magic=2), NO_LIMIT)) == 0


def test_many_small_blocks_are_steps_too() -> None:
    one = compress(Codec.SNAPPY, b"x")
    start, block = one[:16], one[16:]
    assert count_of(decompressing(Codec.SNAPPY, start + block * 9_990, NO_LIMIT)) >= 9


def test_random_data_in_gzip_are_read_piece_by_piece() -> None:
    data = b"".join(index.to_bytes(4, "big") for index in range(LARGE_BYTES // 4))
    packed = gzip.compress(data, 0)
    assert at_once(decompressing(Codec.GZIP, packed, NO_LIMIT)) == data
    assert count_of(decompressing(Codec.GZIP, packed, NO_LIMIT)) >= LARGE_BYTES // STEP_BYTES - 1


def test_what_can_only_be_decompressed_in_one_piece_has_a_limit() -> None:
    def packed(size: int) -> bytes:
        return bytes(cramjam.snappy.compress_raw(bytes(size)))

    assert len(at_once(decompressing(Codec.SNAPPY, packed(BLOCK_BYTES_MAX), NO_LIMIT))) == BLOCK_BYTES_MAX
    with pytest.raises(LimitExceeded):
        at_once(decompressing(Codec.SNAPPY, packed(BLOCK_BYTES_MAX + 1), NO_LIMIT))


class CountedReader:
    """The compiled reader, and how many records were taken from it in each step."""

    taken = 0

    def __init__(self, data: memoryview) -> None:
        self._records = iter(compiled_reader(data))

    def __iter__(self) -> CountedReader:
        return self

    def __next__(self) -> Any:
        CountedReader.taken += 1
        return next(self._records)


@pytest.fixture
def largest_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[Steps[Any]], int]:
    """Records of the step that takes most of them."""
    monkeypatch.setattr("idemproxy.codecs.convert.DefaultRecordBatch", CountedReader)

    def measured(steps: Steps[Any]) -> int:
        largest, CountedReader.taken = 0, 0
        while True:
            try:
                next(steps)
            except StopIteration:
                return max(largest, CountedReader.taken)
            largest, CountedReader.taken = max(largest, CountedReader.taken), 0

    return measured


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_batch_of_many_records_is_converted_in_steps(codec: Codec, largest_step: Callable[[Steps[Any]], int]) -> None:
    batch = batch_of(empty_records(MANY), codec)
    header = parse_single_batch(batch)

    steps = converting([batch], [header], policy=DROPS_ALL, output_bytes_max=NO_LIMIT)
    assert largest_step(steps) <= STEP_RECORDS + 1
    assert largest_step(digesting_batch(batch, header, NO_LIMIT)) <= STEP_RECORDS + 1


def test_headers_of_records_count_as_records_do(largest_step: Callable[[Steps[Any]], int]) -> None:
    headers = (("traceparent", b"x"),) * 100
    batch = batch_of([Record(index, 1, None, None, headers) for index in range(1_000)])

    steps = converting([batch], [parse_single_batch(batch)], policy=DROPS_ALL, output_bytes_max=NO_LIMIT)
    assert largest_step(steps) <= STEP_RECORDS // 100 + 2


def test_headers_count_where_records_are_only_compared(largest_step: Callable[[Steps[Any]], int]) -> None:
    """A batch with the numbers of a stored one is compared with it before anybody has looked at its headers."""
    headers = (("b3", None),) * 60_000
    batch = batch_of([Record(index, 1, None, None, headers) for index in range(30)], Codec.GZIP)
    assert len(batch) < 64 * 1024
    assert largest_step(digesting_batch(batch, parse_single_batch(batch), NO_LIMIT)) <= 2


def test_large_blocks_of_snappy_are_steps_each(monkeypatch: pytest.MonkeyPatch) -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(BLOCK_BYTES_MAX)))
    framed = compress(Codec.SNAPPY, b"x")[:16] + (len(block).to_bytes(4, "big") + block) * 4
    done, largest, plain = 0, 0, vars(compression)["_unsnappy_block"]

    def counted(*given: Any) -> bytes:
        nonlocal done
        done += 1
        made: bytes = plain(*given)
        return made

    monkeypatch.setattr(compression, "_unsnappy_block", counted)
    for _ in decompressing(Codec.SNAPPY, framed, NO_LIMIT):
        largest, done = max(largest, done), 0
    assert max(largest, done) <= 1


@pytest.mark.parametrize("is_framed", [False, True])
def test_one_block_of_snappy_is_decompressed_in_steps_where_there_is_a_kernel(is_framed: bool) -> None:
    data = bytes(index * 7 % 251 for index in range(STEP_BYTES)) * 16
    packed = bytes(cramjam.snappy.compress_raw(data))
    if is_framed:
        packed = compress(Codec.SNAPPY, b"x")[:16] + len(packed).to_bytes(4, "big") + packed
    assert at_once(decompressing(Codec.SNAPPY, packed, NO_LIMIT)) == data
    assert count_of(decompressing(Codec.SNAPPY, packed, NO_LIMIT)) >= (15 if vars(compression)["KERNEL"] else 0)
    for damaged in (packed[:-1], packed[: len(packed) // 2], packed[:-3] + b"\xff\xff\xff"):
        with pytest.raises((Malformed, Truncated), match="snappy"):
            at_once(decompressing(Codec.SNAPPY, damaged, NO_LIMIT))


def test_what_is_decompressed_in_one_piece_is_limited_on_both_sides() -> None:
    """Frames with nothing in them: no limit of what comes out ends that."""
    nothing = compress(Codec.ZSTD, b"", magic=2)
    with pytest.raises(LimitExceeded):
        at_once(decompressing(Codec.ZSTD, nothing * (4 * BLOCK_BYTES_MAX // len(nothing)), NO_LIMIT))


def test_bytes_of_records_count_too(largest_step: Callable[[Steps[Any]], int]) -> None:
    batch = batch_of([Record(index, 1, None, bytes(STEP_BYTES // 4)) for index in range(40)])

    steps = converting([batch], [parse_single_batch(batch)], policy=DROPS_ALL, output_bytes_max=NO_LIMIT)
    assert largest_step(steps) <= 6


def test_one_large_record_takes_several_steps_and_is_what_it_was() -> None:
    value = b"".join(index.to_bytes(4, "big") for index in range(LARGE_BYTES // 4))
    rows = [Record(0, 5, b"k", b"v"), Record(1, 6, b"k", value), Record(2, 4, value, None), Record(3, 1, None, b"v")]
    batch = batch_of(rows)

    steps = converting([batch], [parse_single_batch(batch)], policy=DROPS_ALL, output_bytes_max=NO_LIMIT)
    assert count_of(steps) > 2 * LARGE_BYTES // STEP_BYTES
    inner = to_inner([batch], policy=DROPS_ALL, output_bytes_max=NO_LIMIT)
    small = [
        to_inner([batch_of([row._replace(offset_delta=0)])], policy=DROPS_ALL, output_bytes_max=NO_LIMIT)
        for row in rows
    ]
    offsets = [bytes(8), b"\0" * 7 + b"\1", b"\0" * 7 + b"\2", b"\0" * 7 + b"\3"]
    assert inner.message_set == b"".join(o + one.message_set[8:] for o, one in zip(offsets, small, strict=True))
    assert (inner.record_count, inner.max_timestamp) == (4, 6)


@pytest.mark.parametrize("others", [0, 3000])
def test_no_step_copies_a_large_record(others: int) -> None:
    small = [Record(index, 1, None, b"x") for index in range(1, others + 1)]
    batch = batch_of([Record(0, 1, b"key", random.Random(1).randbytes(LARGE_BYTES)), *small])
    largest = 0
    tracemalloc.start()
    steps = converting([batch], [parse_single_batch(batch)], policy=DROPS_ALL, output_bytes_max=NO_LIMIT)
    before = 0
    for _ in steps:
        held = tracemalloc.get_traced_memory()[0]
        before, largest = held, max(largest, held - before)
    tracemalloc.stop()
    assert largest < 3 * STEP_BYTES


def test_a_converted_batch_is_cut_and_wrapped_in_steps() -> None:
    inner = to_inner([batch_of(empty_records(MANY))], policy=DROPS_ALL, output_bytes_max=NO_LIMIT)
    turns = MANY // STEP_RECORDS
    assert count_of(border_of_halves(inner)) >= turns // 2 - 1
    assert count_of(cutting(inner, [MANY // 2])) >= 2 * turns - 3
    assert count_of(wrapping(inner, key=None, codec=Codec.GZIP)) >= len(inner.message_set) // STEP_BYTES


def test_a_large_batch_is_walked_over_in_steps_for_its_headers() -> None:
    batch = batch_of([Record(index, 1, None, b"xxxx") for index in range(MANY)])
    assert len(batch) > HEADERS_BYTES_UNCHECKED
    assert count_of(finding_longest(batch[61:])) >= 2


def test_a_thousand_to_one_batch_costs_no_more_than_what_is_in_it() -> None:
    """What is unpacked, its copy for the reader and what is made of it: no step makes one more."""
    batch = batch_of([Record(0, 1, None, bytes(LARGE_BYTES))], Codec.GZIP)
    tracemalloc.start()
    to_inner([batch], policy=DROPS_ALL, output_bytes_max=NO_LIMIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * LARGE_BYTES


# ---------------------------------------------------------------------- wrappers that others have stored
def wrapper_of(*values: bytes, offset: int | None = None) -> ShallowMessage:
    packed = compress(Codec.GZIP, encode_set([(None, value, 0) for value in values], magic=1))
    last = len(values) - 1 if offset is None else offset
    (message,) = iterate_shallow(encode_message(None, packed, magic=1, offset=last, codec=Codec.GZIP))
    return message


@pytest.mark.parametrize("reading", [digesting_inner, spanning])
def test_a_wrapper_of_many_records_is_read_in_steps(
    reading: Callable[[ShallowMessage, int], Steps[Any]], messages_read: MessagesRead
) -> None:
    message = wrapper_of(*[b""] * MANY)
    assert messages_read.largest_step(reading(message, NO_LIMIT)) <= STEP_RECORDS + 1


def test_what_is_read_of_a_wrapper_in_steps_is_what_is_in_it() -> None:
    values = [b"%d" % number for number in range(MANY)]
    message = wrapper_of(*values, offset=7_000_000 + MANY - 1)
    inner = at_once(digesting_inner(message, NO_LIMIT))
    assert list(inner.offsets) == list(range(7_000_000, 7_000_000 + MANY))
    assert list(inner.of(0, MANY)) == [content_digest(None, value) for value in values]
    assert list(inner.of(MANY - 1, MANY + 9)) == [content_digest(None, values[-1])]
    assert at_once(spanning(message, NO_LIMIT)) == (7_000_000, 7_000_000 + MANY - 1)


def test_bytes_of_what_is_in_a_wrapper_count_too(messages_read: MessagesRead) -> None:
    small, large = wrapper_of(*[bytes(STEP_BYTES // 4)] * 40), wrapper_of(bytes(LARGE_BYTES))
    assert messages_read.largest_step(digesting_inner(small, NO_LIMIT)) <= 6
    turns = LARGE_BYTES // STEP_BYTES
    assert count_of(digesting_inner(large, NO_LIMIT)) >= 2 * turns - 2, "it is unpacked and digested in steps"


def test_offsets_in_a_wrapper_that_no_log_has_are_an_error() -> None:
    inner = encode_message(None, b"a", magic=1, offset=1 << 62) + encode_message(None, b"b", magic=1, offset=-(1 << 62))
    packed = compress(Codec.GZIP, inner)
    (message,) = iterate_shallow(encode_message(None, packed, magic=1, offset=1 << 62, codec=Codec.GZIP))
    with pytest.raises(Malformed):
        at_once(digesting_inner(message, NO_LIMIT))
