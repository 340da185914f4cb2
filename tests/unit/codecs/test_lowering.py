"""Record batches as message sets of format v0 and v1, for consumers that read nothing newer."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.errors import ChecksumMismatch, LimitExceeded, Malformed, WireError
from idemproxy.codecs.message_set import LOG_APPEND_TIME_FLAG, encode_message, encode_set, iterate_shallow
from idemproxy.codecs.old_formats import REVISION, usable
from idemproxy.codecs.old_formats.lowering import AbortedTransaction, Lowered, lowering
from idemproxy.codecs.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from idemproxy.codecs.steps import STEP_BYTES, at_once
from testkit.real.machine import kernel_build
from testkit.stage.stored_batches import (
    FIRST_TIMESTAMP,
    Entry,
    StoredRecord,
    aiokafka_reads,
    entries,
    header,
    kafka_python_reads,
    numbered,
    signed,
    stored_batch,
    with_lower,
)

NO_LIMIT = 1 << 30
APPEND_TIME = FIRST_TIMESTAMP + 1_000_000
WAYS = ["python", *(["compiled"] if kernel_build.COMPILER else [])]


@pytest.fixture(scope="module", autouse=True, params=WAYS)
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """All tests with the compiled library and without."""
    with with_lower(kernel_build.current_lower() if request.param == "compiled" else None):
        yield


def lowered(data: bytes, offset: int = 0, **options: Any) -> tuple[Lowered, list[Entry]]:
    """What is made of the records from an offset on, after something else in the same answer."""
    out = bytearray(b"in front")
    made = at_once(lowering(data, offset, out, **{"magic": 1, "bytes_max": NO_LIMIT, **options}))
    assert out[:8] == b"in front"
    return made, entries(memoryview(out)[8:])


def message_set(data: bytes, offset: int = 0, **options: Any) -> bytes:
    out = bytearray()
    at_once(lowering(data, offset, out, **{"magic": 1, "bytes_max": NO_LIMIT, **options}))
    return bytes(out)


def offsets(found: Sequence[Entry]) -> list[int]:
    return [one.offset for one in found]


def test_an_uncompressed_batch_is_one_plain_message_for_each_record_from_the_offset_on() -> None:
    records = [StoredRecord(0), StoredRecord(3, FIRST_TIMESTAMP + 9, None, b""), StoredRecord(7, 5, b"", None)]
    data = stored_batch(records, base_offset=2**40, last_offset_delta=9)
    for magic in (0, 1):
        made, found = lowered(data, 2**40 + 2, magic=magic)
        assert made == Lowered(2**40 + 10, 2**40 + 7, 0, 0)
        times = [FIRST_TIMESTAMP + 9, 5] if magic else [-1, -1]
        assert found == [
            Entry(2**40 + 3, magic, 0, times[0], None, b"", ()),
            Entry(2**40 + 7, magic, 0, times[1], b"", None, ()),
        ]


@pytest.mark.parametrize(
    ("codec", "magic", "expected"),
    [
        (Codec.GZIP, 0, Codec.GZIP),
        (Codec.GZIP, 1, Codec.GZIP),
        (Codec.SNAPPY, 0, Codec.SNAPPY),
        (Codec.SNAPPY, 1, Codec.SNAPPY),
        (Codec.LZ4, 0, Codec.GZIP),
        (Codec.LZ4, 1, Codec.LZ4),
        (Codec.ZSTD, 0, Codec.GZIP),
        (Codec.ZSTD, 1, Codec.GZIP),
    ],
)
def test_a_compressed_batch_is_one_wrapper_in_a_codec_that_its_clients_read(
    codec: Codec, magic: int, expected: Codec
) -> None:
    records = [StoredRecord(2, FIRST_TIMESTAMP), StoredRecord(5, FIRST_TIMESTAMP + 7), StoredRecord(6, FIRST_TIMESTAMP)]
    made, (wrapper,) = lowered(
        stored_batch(records, base_offset=100, last_offset_delta=9, codec=codec), 105, magic=magic
    )
    assert made == Lowered(110, 106, 0, 0)
    time = FIRST_TIMESTAMP + 7 if magic else -1
    assert wrapper[:6] == (106, magic, expected, time, None, None)
    # Relative to the first one with v1, absolute with v0; the records before the offset stay inside.
    assert offsets(wrapper.inner) == ([0, 3, 4] if magic else [102, 105, 106])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_log_append_time_is_in_each_message_of_v1(codec: Codec) -> None:
    records = [StoredRecord(0), StoredRecord(1, FIRST_TIMESTAMP + 5)]
    data = stored_batch(records, codec=codec, append_time=APPEND_TIME)
    for magic in (0, 1):
        _, found = lowered(data, magic=magic)
        flag = LOG_APPEND_TIME_FLAG if magic else 0
        assert {one.attributes for one in found} == {codec | flag}
        every = [*found, *(inner for one in found for inner in one.inner)]
        assert {one.timestamp for one in every} == {APPEND_TIME if magic else -1}
        assert {inner.attributes for one in found for inner in one.inner} <= {flag}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("magic", [0, 1])
def test_other_implementations_read_what_was_written(codec: Codec, magic: int) -> None:
    records = [StoredRecord(3 * i, FIRST_TIMESTAMP + i, b"k%d" % i, b"v" * (i % 700)) for i in range(3_000)]
    data = stored_batch(records, base_offset=50, codec=codec)
    made = message_set(data, magic=magic)
    expected = [(50 + one.offset_delta, one.timestamp if magic else -1, one.key, one.value) for one in records]
    assert kafka_python_reads(made) == expected
    assert aiokafka_reads(made) == expected


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_wrapper_may_hold_exactly_what_is_compressed_in_one_step(codec: Codec) -> None:
    records = [StoredRecord(i, key=None, value=bytes(STEP_BYTES - 34)) for i in range(2)]
    for count in (1, 2):
        made = message_set(stored_batch(records[:count], codec=codec))
        assert [one[0] for one in kafka_python_reads(made)] == list(range(count))
        assert [len(one.value or b"") for one in entries(made)[0].inner] == [STEP_BYTES - 34] * count


def test_headers_are_left_out_and_counted_whatever_is_in_them() -> None:
    records = [
        StoredRecord(0, headers=(header(b"name", b"value"), header(b"name", None))),
        StoredRecord(1),
        StoredRecord(2, headers=(b"\xff\xff",)),
        StoredRecord(3, headers=(b"\0\0",) * 20_000),
    ]
    for codec in (Codec.NONE, Codec.ZSTD):
        made, found = lowered(stored_batch(records, codec=codec))
        assert made.messages_without_headers == 3
        assert len(found[0].inner or found) == 4


def test_a_set_ends_before_a_message_that_exceeds_its_limit() -> None:
    data = stored_batch(numbered(10, bytes(66)), base_offset=5) + stored_batch(numbered(2), base_offset=15)
    size = 34 + 2 + 66
    for limit, count in ((0, 1), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (10 * size + 10, 10)):
        made, found = lowered(data, 5, bytes_max=limit)
        assert offsets(found) == [5 + i for i in range(count)]
        assert made == Lowered(5 + count, 4 + count, 0, 0, -1 if count == 10 else 0)


def test_a_wrapper_is_whole_and_alone_if_the_limit_is_small() -> None:
    batch = stored_batch(numbered(10), codec=Codec.GZIP)
    data = batch + stored_batch(numbered(10), base_offset=10, codec=Codec.GZIP)
    made, found = lowered(data, bytes_max=0)
    assert offsets(found) == [9]
    assert made.next_offset == 10
    assert offsets(lowered(data, bytes_max=3 * len(batch))[1]) == [9, 19]


def test_no_wrapper_follows_a_plain_message() -> None:
    """The Rust client returns what is in the first wrapper, and drops the messages in front of it."""
    parts = [
        stored_batch(numbered(2), base_offset=2 * i, codec=codec)
        for i, codec in enumerate((Codec.GZIP, Codec.SNAPPY, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.NONE))
    ]
    made, found = lowered(b"".join(parts))
    assert offsets(found) == [1, 3, 4, 5, 6, 7]
    assert made.next_offset == 8
    assert offsets(lowered(b"".join(parts), 8)[1]) == [9, 10, 11]


def control(offset: int, producer_id: int) -> bytes:
    record = StoredRecord(0, key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")
    return stored_batch(
        [record], base_offset=offset, attributes=CONTROL_FLAG | TRANSACTIONAL_FLAG, producer_id=producer_id
    )


def transactional(offset: int, producer_id: int, codec: Codec = Codec.NONE) -> bytes:
    return stored_batch(
        numbered(2), base_offset=offset, attributes=TRANSACTIONAL_FLAG, producer_id=producer_id, codec=codec
    )


def test_control_batches_and_empty_batches_are_passed_over() -> None:
    data = transactional(0, 7) + control(2, 7) + stored_batch([], base_offset=3, last_offset_delta=4)
    made, found = lowered(data)
    assert offsets(found) == [0, 1]
    assert made == Lowered(8, 1, 0, 0)
    assert lowered(data, 2)[0] == Lowered(8, -1, 0, 0)
    assert lowered(data, 4) == (Lowered(8, -1, 0, 0), [])


def test_aborted_transactions_are_left_out_if_they_are_named() -> None:
    data = b"".join(
        (
            transactional(0, 7),  # committed
            transactional(2, 8),  # aborted
            control(4, 7),
            transactional(5, 7, Codec.GZIP),  # aborted
            stored_batch(numbered(1), base_offset=7, producer_id=8),  # no transaction's
            control(8, 8),
            transactional(9, 8),  # the next transaction of 8
            control(11, 7),
        )
    )
    aborted = [AbortedTransaction(5, 7), AbortedTransaction(2, 8)]
    made, found = lowered(data, aborted=aborted)
    assert offsets(found) == [0, 1, 7, 9, 10]
    assert made.next_offset == 12
    _, every = lowered(data)
    assert offsets(every) == [0, 1, 2, 3]  # up to the wrapper


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_a_batch_of_which_compaction_took_what_was_asked_for_gives_nothing_and_the_place_after_it(
    codec: Codec,
) -> None:
    data = stored_batch(numbered(10), base_offset=0, last_offset_delta=19, codec=codec)
    assert lowered(data, 10) == (Lowered(20, -1, 0, 0), [])
    after = stored_batch(numbered(1), base_offset=20, codec=codec)
    made, found = lowered(data + after, 10)
    assert (made[:2], offsets(found)) == ((21, 20), [20])


def test_a_part_of_a_batch_at_the_end_is_left_out_or_wanted_whole() -> None:
    batch = stored_batch(numbered(3))
    later = stored_batch(numbered(3), base_offset=3)
    for cut in (1, 11, 12, 17, 60, len(later) - 1):
        made, found = lowered(batch + later[:cut])
        assert (made, offsets(found)) == (Lowered(3, 2, 0, 0), [0, 1, 2])
        made, found = lowered(batch[:cut])
        assert (made, found) == (Lowered(-1, -1, 0, made.bytes_wanted), [])
        assert made.bytes_wanted == (len(batch) if cut >= 12 else 24)
    assert lowered(b"")[0] == Lowered(-1, -1, 0, 0)


def test_stored_messages_are_passed_as_they_are_if_their_readers_know_them() -> None:
    plain = encode_set([(b"k", b"v", 5)] * 3, magic=1, first_offset=10)
    v0 = encode_set([(b"k", b"v", -1)] * 2, magic=0, first_offset=13)
    wrapper = encode_message(
        b"key", compress(Codec.LZ4, encode_set([(None, b"x", 1)] * 2, magic=1)), magic=1, offset=9, codec=Codec.LZ4
    )
    assert message_set(wrapper + plain + v0, 8) == wrapper + plain + v0
    assert offsets(lowered(wrapper + plain + v0 + stored_batch(numbered(2), base_offset=15), 12)[1]) == [
        12,
        13,
        14,
        15,
        16,
    ]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_stored_messages_become_those_of_v0_with_absolute_offsets(codec: Codec, magic: int) -> None:
    inner = b"".join(
        encode_message(b"k", b"v%d" % i, magic=magic, offset=i + (0 if magic else 40), timestamp=FIRST_TIMESTAMP)
        for i in (0, 2, 5)
    )
    wrapper = encode_message(
        None, compress(codec, inner, magic=magic), magic=magic, offset=45, codec=codec, timestamp=FIRST_TIMESTAMP
    )
    plain = encode_set([(b"k", b"v", 5)], magic=magic, first_offset=46)
    made, found = lowered(wrapper + plain, 41, magic=0)
    assert made[:2] == (47, 46)
    assert offsets(found) == [45, 46]
    assert {one.magic for one in (*found, *found[0].inner)} == {0}
    assert found[0].attributes == (Codec.GZIP if codec is Codec.LZ4 else codec)
    assert offsets(found[0].inner) == [40, 42, 45]
    assert [one.value for one in found[0].inner] == [b"v0", b"v2", b"v5"]


def flipped(data: bytes, at: int = -1) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def with_codec(number: int) -> bytes:
    """An uncompressed batch that says it is compressed."""
    batch = stored_batch(numbered(2), base_offset=1)
    return signed(batch[:22] + bytes([number]) + batch[23:])


WRONG = {
    "checksum": (flipped(stored_batch(numbered(2), base_offset=1)), ChecksumMismatch),
    "offsets fall": (stored_batch([StoredRecord(1), StoredRecord(0)], base_offset=1), Malformed),
    "offset twice": (stored_batch([StoredRecord(1), StoredRecord(1)], base_offset=1, last_offset_delta=1), Malformed),
    "offset above the last": (
        stored_batch([StoredRecord(0), StoredRecord(3)], base_offset=1, last_offset_delta=2),
        Malformed,
    ),
    "offset too high": (stored_batch(numbered(2), base_offset=2**63 - 1), Malformed),
    "offset below 0": (stored_batch(numbered(2), base_offset=-2), Malformed),
    "more after the records": (signed(stored_batch(numbered(2), base_offset=1)[:-1] + b"\0\0"), WireError),
    "unknown codec": (with_codec(5), Malformed),
    "no gzip": (with_codec(Codec.GZIP), WireError),
    "message's checksum": (flipped(encode_set([(b"k", b"v", 5)], magic=1, first_offset=1)), ChecksumMismatch),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_an_error_only_if_nothing_is_before_it(name: str) -> None:
    data, error = WRONG[name]
    out = bytearray(b"before")
    with pytest.raises(error):
        at_once(lowering(data, 0, out, magic=0, bytes_max=NO_LIMIT))
    assert out == b"before"
    made, found = lowered(stored_batch(numbered(1)) + data, magic=0)
    assert (made, offsets(found)) == (Lowered(1, 0, 0, 0), [0])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("magic", [0, 1])
def test_what_unpacks_to_more_than_the_limit_is_an_error(codec: Codec, magic: int) -> None:
    data = stored_batch(numbered(3, bytes(10_000)), codec=codec)
    with pytest.raises(LimitExceeded):
        lowered(data, magic=magic, unpacked_bytes_max=30_000)
    assert len(lowered(data, magic=magic, unpacked_bytes_max=31_000)[1]) == 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("append_time", [None, APPEND_TIME])
def test_a_large_record_is_whole_whatever_the_limit(codec: Codec, append_time: int | None) -> None:
    large = StoredRecord(1, key=b"k" * (STEP_BYTES + 5), value=bytes(5 * STEP_BYTES // 2))
    data = stored_batch([StoredRecord(0), large, StoredRecord(2)], codec=codec, append_time=append_time)
    _, found = lowered(data, 1, bytes_max=1_000)
    assert found
    one = next(one for one in (*found, *found[0].inner) if one.offset == 1 and one.value)
    assert (one.key, one.value) == (large.key, large.value)
    assert one.timestamp == (FIRST_TIMESTAMP if append_time is None else APPEND_TIME)
    assert len(found) == 1


def test_a_hundred_megabytes_from_a_hundred_kilobytes_are_never_in_memory_together() -> None:
    records = [StoredRecord(i, value=bytes(1_000_000)) for i in range(100)]
    data = stored_batch(records, codec=Codec.GZIP)
    del records
    assert len(data) < 250_000
    tracemalloc.start()
    try:
        made = message_set(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 * STEP_BYTES + 2 * len(made)
    assert sum(1 for _ in iterate_shallow(made)) == 1


def test_no_step_takes_long() -> None:
    """Counted by what is appended: a step is a megabyte of messages, or what a codec makes of one."""
    data = stored_batch(numbered(40_000, bytes(90)))
    out, before, largest, turns = bytearray(), 0, 0, 0
    for _ in lowering(data, 0, out, magic=1, bytes_max=NO_LIMIT):
        turns += 1
        largest, before = max(largest, len(out) - before), len(out)
    assert turns > 3
    assert largest <= STEP_BYTES
    many = b"".join(stored_batch([StoredRecord(0)], base_offset=i, codec=Codec.GZIP) for i in range(3_000))
    assert sum(1 for _ in lowering(many, 0, bytearray(), magic=1, bytes_max=NO_LIMIT)) >= 5
    bomb = stored_batch(numbered(60, bytes(900_000)), codec=Codec.GZIP)
    assert sum(1 for _ in lowering(bomb, 0, bytearray(), magic=1, bytes_max=NO_LIMIT)) > 100


def test_a_library_from_other_sources_is_not_used() -> None:
    for revision, is_used in ((REVISION, True), (REVISION - 1, False), (REVISION + 1, False)):
        found: Any = type("Library", (), {"REVISION": revision})
        assert usable(found) is (found if is_used else None)
