"""Message sets of formats v0 and v1 become record batches: the same records, in order, within the limit."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from importlib import import_module

import pytest
from crc32c import crc32c

from idemproxy.codecs import messages  # noqa: F401  (imports the library without warnings)
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.old_formats.raising import MISSING_TIMESTAMP, RefusedSet, raising, splitting
from idemproxy.codecs.primitives import Buffer
from idemproxy.codecs.record_batch import (
    CONTROL_FLAG,
    Record,
    encode_batch,
    iterate_records,
    parse_single_batch,
    verify_crc,
)
from idemproxy.codecs.steps import STEP_BYTES, at_once

default_records = import_module("kafka.record.default_records")

ARRIVAL_MS = 1_800_000_000_000
LIMIT = 1_000_012
UNPACKED_BYTES_MAX = 8 << 20
RECORDS = [(b"key", b"value", 1_700_000_000_000), (None, b"", 5), (b"", None, -1), (b"k" * 300, b"v" * 300, 7)]
OF_V0 = [(key, value, ARRIVAL_MS) for key, value, _ in RECORDS]
LEGACY_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]

Fields = tuple[bytes | None, bytes | None, int]


def raised(
    message_set: bytes,
    batch_bytes_max: int = LIMIT,
    unpacked_bytes_max: int = UNPACKED_BYTES_MAX,
    arrival_ms: int = ARRIVAL_MS,
) -> list[Buffer]:
    made = at_once(
        raising(
            message_set,
            arrival_ms=arrival_ms,
            batch_bytes_max=batch_bytes_max,
            unpacked_bytes_max=unpacked_bytes_max,
        )
    )
    assert not isinstance(made, RefusedSet), made
    return made


def refused(message_set: bytes, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> ErrorCode:
    made = at_once(
        raising(message_set, arrival_ms=ARRIVAL_MS, batch_bytes_max=LIMIT, unpacked_bytes_max=unpacked_bytes_max)
    )
    assert isinstance(made, RefusedSet)
    assert made.reason
    return made.code


def records_of(batches: list[Buffer]) -> list[Fields]:
    """Key, value and timestamp of all records; each batch is one that a producer may send."""
    found: list[Fields] = []
    for batch in batches:
        view = memoryview(batch)
        header = parse_single_batch(view)
        verify_crc(view, header)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        records = [(one.key, one.value, one.timestamp) for one in iterate_records(view, header, UNPACKED_BYTES_MAX)]
        assert header.base_timestamp == records[0][2]
        assert header.max_timestamp == max(one[2] for one in records)
        found += records
    return found


def codecs_of(batches: list[Buffer]) -> list[int]:
    return [parse_single_batch(memoryview(batch)).codec for batch in batches]


def wrapper(records: Sequence[Fields], codec: Codec, magic: int = 1) -> bytes:
    return encode_message(
        None, compress(codec, encode_set(records, magic=magic), magic=magic), magic=magic, timestamp=9, codec=codec
    )


@pytest.mark.parametrize(("magic", "expected"), [(0, OF_V0), (1, RECORDS)])
def test_plain_messages_become_one_batch(magic: int, expected: list[Fields]) -> None:
    batches = raised(encode_set(RECORDS, magic=magic))

    assert len(batches) == 1
    assert records_of(batches) == expected


def test_the_batch_is_the_one_that_the_library_makes() -> None:
    builder = default_records.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for offset, (key, value, timestamp) in enumerate(RECORDS):
        builder.append(offset, timestamp, key, value, [])

    (batch,) = raised(encode_set(RECORDS, magic=1))
    parsed = default_records.DefaultRecordBatch(bytes(batch))

    assert bytes(batch)[61:] == bytes(builder.build())[61:]
    assert [(one.key, one.value, one.timestamp) for one in parsed] == RECORDS


def test_messages_of_format_v0_have_no_timestamp_where_they_are_to_keep_none() -> None:
    batches = raised(encode_set(RECORDS, magic=0), arrival_ms=MISSING_TIMESTAMP)

    assert [timestamp for _, _, timestamp in records_of(batches)] == [-1] * len(RECORDS)


@pytest.mark.parametrize("first_offset", [0, -1, 2**40])
def test_offsets_of_clients_mean_nothing(first_offset: int) -> None:
    message_set = b"".join(
        encode_message(key, value, magic=1, offset=first_offset, timestamp=timestamp)
        for key, value, timestamp in RECORDS
    )

    assert raised(message_set) == raised(encode_set(RECORDS, magic=1))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_a_wrapper_becomes_a_batch_of_its_codec(codec: Codec, magic: int) -> None:
    batches = raised(wrapper(RECORDS, codec, magic))

    assert codecs_of(batches) == [codec]
    assert records_of(batches) == (RECORDS if magic else OF_V0)


def test_lz4_with_the_header_checksum_of_format_v0_is_read() -> None:
    proper = compress(Codec.LZ4, encode_set(RECORDS, magic=0), magic=1)
    legacy = compress(Codec.LZ4, encode_set(RECORDS, magic=0), magic=0)
    assert proper != legacy

    for value in (proper, legacy):
        assert records_of(raised(encode_message(None, value, magic=0, codec=Codec.LZ4))) == OF_V0


def test_wrappers_and_plain_messages_are_merged_into_one_batch() -> None:
    plain, first, second = ([record] for record in RECORDS[:3])
    message_set = encode_set(plain, magic=1) + wrapper(first, Codec.GZIP, 0) + wrapper(second, Codec.SNAPPY)

    batches = raised(message_set)

    assert codecs_of(batches) == [Codec.SNAPPY]
    assert records_of(batches) == [RECORDS[0], OF_V0[1], RECORDS[2]]


def test_messages_of_both_formats_stand_in_one_set() -> None:
    batches = raised(encode_set(RECORDS, magic=0) + encode_set(RECORDS, magic=1))

    assert len(batches) == 1
    assert records_of(batches) == OF_V0 + RECORDS


def test_a_batch_of_format_v2_in_the_set_stays_as_it_is() -> None:
    own = encode_batch([Record(0, 5, b"k", b"v", (("name", b"header"),))], codec=Codec.GZIP, base_offset=77)

    batches = raised(encode_set(RECORDS, magic=1) + own + encode_set(RECORDS, magic=0))

    assert bytes(batches[1]) == bytes(8) + own[8:]
    assert records_of([batches[0], batches[2]]) == RECORDS + OF_V0


@pytest.mark.parametrize(
    "batch",
    [
        encode_batch([Record(0, 5, None, b"v")], producer_id=4, producer_epoch=0, base_sequence=0),
        encode_batch([Record(0, 5, None, b"v")], attributes=CONTROL_FLAG),
        encode_batch([Record(0, 5, None, b"v")], codec=Codec.ZSTD),
    ],
)
def test_a_batch_of_another_producer_id_or_with_zstd_is_refused(batch: bytes) -> None:
    assert refused(batch) == ErrorCode.INVALID_REQUEST


def test_an_empty_set_has_no_batches() -> None:
    assert raised(b"") == []


@pytest.mark.parametrize("cut", [1, 30])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_that_is_cut_off_is_corrupt(magic: int, cut: int) -> None:
    assert refused(encode_set(RECORDS, magic=magic)[:-cut]) == ErrorCode.CORRUPT_MESSAGE
    assert refused(encode_set(RECORDS, magic=magic) + bytes(cut)) == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_that_is_cut_off_is_corrupt() -> None:
    assert refused(encode_batch([Record(0, 5, None, b"v")])[:-1]) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_any_changed_byte_after_the_checksum_is_corrupt(magic: int) -> None:
    message_set = encode_set([(b"key", b"value", 5)], magic=magic)
    for position in range(12, len(message_set)):
        changed = bytearray(message_set)
        changed[position] ^= 0x40
        assert refused(bytes(changed)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_a_damaged_message_inside_a_wrapper_is_corrupt(codec: Codec) -> None:
    inside = bytearray(encode_set(RECORDS, magic=1))
    inside[-1] ^= 1
    damaged = encode_message(None, compress(codec, inside), magic=1, codec=codec)

    assert refused(encode_set(RECORDS, magic=1) + damaged) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    "value", [None, b"", b"no gzip", compress(Codec.GZIP, b""), compress(Codec.GZIP, encode_set(RECORDS, magic=0))]
)
def test_a_wrapper_without_messages_of_its_format_is_corrupt(value: bytes | None) -> None:
    assert refused(encode_message(None, value, magic=1, codec=Codec.GZIP)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [4, 5, 7])
def test_a_codec_that_the_format_lacks_is_corrupt(codec: int) -> None:
    assert refused(encode_message(None, b"x" * 9, magic=1, codec=codec)) == ErrorCode.CORRUPT_MESSAGE  # type: ignore[arg-type]


def test_what_unpacks_to_more_than_allowed_is_too_large() -> None:
    zeros = encode_message(None, compress(Codec.GZIP, encode_set([(None, bytes(100_000), 1)], magic=1)), magic=1,
                           codec=Codec.GZIP)  # fmt: skip

    assert refused(zeros * 3, unpacked_bytes_max=250_000) == ErrorCode.MESSAGE_TOO_LARGE
    assert len(raised(zeros * 2, unpacked_bytes_max=250_000)) == 1


@pytest.mark.parametrize("limit", [100, 150, 1000, 5000])
def test_plain_messages_are_split_within_the_limit(limit: int) -> None:
    records = [(b"k%d" % number, b"v" * (number % 90), number) for number in range(200)]

    batches = raised(encode_set(records, magic=1), limit)

    assert records_of(batches) == records
    for batch in batches:
        assert len(batch) <= limit or parse_single_batch(memoryview(batch)).record_count == 1
    assert len(batches) <= 2 * sum(map(len, batches)) / limit + len(records) // 2


@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_wrappers_are_split_where_they_are_too_large_together(codec: Codec) -> None:
    records = [(None, b"%d" % (number * 7919 % 10_007), number) for number in range(3_000)]
    wrappers = [wrapper(records[start : start + 300], codec) for start in range(0, 3_000, 300)]
    limit = 3 * max(map(len, wrappers))

    batches = raised(b"".join(wrappers), limit)

    assert records_of(batches) == records
    assert all(len(batch) <= limit for batch in batches)
    assert set(codecs_of(batches)) == {codec}
    assert len(batches) < len(wrappers)


def test_a_wrapper_above_the_limit_is_split() -> None:
    records = [(None, b"%d" % (number * 7919 % 10_007), number) for number in range(3_000)]

    batches = raised(wrapper(records, Codec.GZIP), 1_000)

    assert records_of(batches) == records
    assert all(len(batch) <= 1_000 for batch in batches)


@pytest.mark.parametrize("codec", [Codec.NONE, *LEGACY_CODECS, Codec.ZSTD])
def test_a_batch_that_a_broker_finds_too_large_is_split(codec: Codec) -> None:
    records = [Record(number, 1000 - number, None, b"%d" % (number**3), (("h", None),)) for number in range(500)]
    batch = encode_batch(records, codec=codec)
    pieces = at_once(splitting(batch, len(batch) // 4, UNPACKED_BYTES_MAX))

    assert 4 <= len(pieces) < 16
    assert all(len(piece) <= len(batch) // 4 for piece in pieces)
    assert records_of(pieces) == [(None, one.value, one.timestamp) for one in records]
    headers = parse_single_batch(memoryview(pieces[1]))
    assert {one.headers for one in iterate_records(memoryview(pieces[1]), headers, UNPACKED_BYTES_MAX)} == {
        (("h", None),)
    }


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_two_records_become_two_batches_whatever_the_limit(codec: Codec) -> None:
    for sizes in ((1, 1), (1, 900), (900, 1)):
        batch = encode_batch([Record(index, 5, None, bytes(size)) for index, size in enumerate(sizes)], codec=codec)
        assert len(at_once(splitting(batch, 10**9, UNPACKED_BYTES_MAX))) == 2
        assert len(at_once(splitting(batch, 1, UNPACKED_BYTES_MAX))) == 2


def test_a_batch_of_one_record_is_not_split() -> None:
    batch = encode_batch([Record(0, 5, None, b"v")])

    assert at_once(splitting(batch, 10, UNPACKED_BYTES_MAX)) == [batch]


def test_a_large_message_is_the_same_as_in_one_go() -> None:
    value = bytes(range(256)) * (3 * STEP_BYTES // 256) + b"end"

    (batch,) = raised(encode_set([(b"k", value, 5)], magic=1))

    assert records_of([batch]) == [(b"k", value, 5)]
    assert bytes(batch) == encode_batch([Record(0, 5, b"k", value)])
    assert struct.unpack_from(">I", batch, 17)[0] == crc32c(bytes(batch)[21:])


def test_timestamps_far_apart_wrap_as_those_of_kafka() -> None:
    records = [(None, b"a", -(2**63)), (None, b"b", 2**63 - 1)]

    assert records_of(raised(encode_set(records, magic=1))) == records
