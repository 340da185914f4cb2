from __future__ import annotations

import struct
from importlib import import_module

import pytest
from crc32c import crc32c

from idemproxy.codecs import messages  # noqa: F401  (imports the library without warnings)
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.errors import ChecksumMismatch, LimitExceeded, Malformed, Truncated, WireError
from idemproxy.codecs.primitives import encode_varlong
from idemproxy.codecs.record_batch import (
    BATCH_OVERHEAD_BYTES,
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    Record,
    encode_batch,
    iterate_records,
    iterate_stored,
    magic_of,
    parse_single_batch,
    stamp,
    verify_crc,
)
from testkit.stage.either_way import either_way  # noqa: F401

library = import_module("kafka.record.default_records")
aiokafka_records = import_module("aiokafka.record._crecords")

NO_LIMIT = 10_000_000
RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value"),
    Record(1, 1_700_000_000_001, None, b"", (("h", b"1"), ("h", None), ("ü", b""))),
    Record(2, 1_699_999_999_000, b"", None),
    Record(3, 1_700_000_900_000, b"k" * 200, b"v" * 20_000),
]


def as_view(batch: bytes) -> memoryview:
    return memoryview(batch)


def read_and_verify(batch: memoryview) -> None:
    verify_crc(batch, parse_single_batch(batch))


def resigned(batch: bytes) -> memoryview:
    return memoryview(batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:])


def with_payload(payload: bytes, record_count: int) -> memoryview:
    """A batch with these bytes for its records."""
    start = encode_batch([Record(0, 0, None, None)])[:BATCH_OVERHEAD_BYTES]
    batch = bytearray(start + payload)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, record_count - 1)
    struct.pack_into(">i", batch, 57, record_count)
    return resigned(bytes(batch))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_batch_of_the_library_is_read(codec: Codec) -> None:
    builder = library.DefaultRecordBatchBuilder(2, codec, False, 2**40, 7, 99, 1 << 20)
    for record in RECORDS:
        builder.append(record.offset_delta, record.timestamp, record.key, record.value, list(record.headers))
    batch = as_view(bytes(builder.build()))

    header = parse_single_batch(batch)

    verify_crc(batch, header)
    assert header.size_bytes == len(batch)
    assert header.attributes == header.codec == codec
    assert (header.last_offset_delta, header.record_count) == (3, 4)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_900_000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**40, 7, 99)
    assert list(iterate_records(batch, header, NO_LIMIT)) == RECORDS
    if codec is Codec.NONE:
        encoded = encode_batch(RECORDS, producer_id=2**40, producer_epoch=7, base_sequence=99)
        # Outside of the checksum is the leader's epoch: -1 as Java's producer writes it, where the library has 0.
        assert encoded[:12] + bytes(4) + encoded[16:] == bytes(batch)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_of_ours_is_read_by_another_library(codec: Codec) -> None:
    batch = encode_batch(RECORDS, codec=codec)

    reader = aiokafka_records.DefaultRecordBatch(batch)

    assert reader.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader] == [tuple(r) for r in RECORDS]
    header = parse_single_batch(as_view(batch))
    assert list(iterate_records(as_view(batch), header, NO_LIMIT)) == RECORDS


def test_attributes_are_distinguished() -> None:
    flags = TRANSACTIONAL_FLAG | CONTROL_FLAG | LOG_APPEND_TIME_FLAG

    header = parse_single_batch(as_view(encode_batch(RECORDS, codec=Codec.ZSTD, attributes=flags)))

    assert header.attributes == flags | Codec.ZSTD
    assert header.is_log_append_time
    assert header.codec == Codec.ZSTD


def test_a_flipped_bit_anywhere_after_the_checksum_is_noticed() -> None:
    batch = encode_batch(RECORDS[:2])
    for position in range(21, len(batch)):
        flipped = bytearray(batch)
        flipped[position] ^= 0x10
        with pytest.raises(WireError):
            read_and_verify(memoryview(flipped))
    with pytest.raises(ChecksumMismatch, match="CRC-32C"):
        read_and_verify(memoryview(flipped))


def test_formats_are_known_by_their_magic_byte() -> None:
    assert magic_of(encode_batch(RECORDS)) == 2
    assert magic_of(bytes(16) + b"\1") == 1
    with pytest.raises(Malformed, match="magic at 16: 3"):
        magic_of(bytes(16) + b"\3")
    with pytest.raises(Truncated):
        magic_of(bytes(16))


def test_two_batches_are_not_one() -> None:
    with pytest.raises(Malformed, match="more than one batch"):
        parse_single_batch(as_view(encode_batch(RECORDS) * 2))


def test_a_part_of_a_batch_is_truncated() -> None:
    batch = encode_batch(RECORDS)
    for cut in (0, 1, 60, 61, len(batch) - 1):
        with pytest.raises(Truncated):
            parse_single_batch(as_view(batch)[:cut])


@pytest.mark.parametrize(
    ("position", "layout", "value", "reason"),
    [
        (0, ">q", 5, "base offset 5"),
        (8, ">i", -1, "length -1"),
        (16, ">b", 1, "magic 1"),
        (23, ">i", 4, "4 records, last offset delta 4"),
        (57, ">i", 5, "5 records, last offset delta 3"),
        (57, ">i", -1, "-1 records"),
    ],
)
def test_impossible_headers_are_malformed(position: int, layout: str, value: int, reason: str) -> None:
    batch = bytearray(encode_batch(RECORDS))
    struct.pack_into(layout, batch, position, value)

    with pytest.raises(Malformed, match=reason):
        parse_single_batch(memoryview(batch))


def test_a_batch_without_records_is_malformed() -> None:
    with pytest.raises(Malformed, match="0 records"):
        parse_single_batch(with_payload(b"", 0))


def record_bytes(body: bytes) -> bytes:
    return encode_varlong(len(body)) + body


PLAIN = b"\0\0\0\1\1\0"  # attributes, time delta, offset delta 0, null key, null value, no headers


@pytest.mark.parametrize(
    ("payload", "record_count"),
    [
        (record_bytes(PLAIN), 2),  # one record too few
        (record_bytes(PLAIN) + record_bytes(PLAIN), 1),  # one too many
        (record_bytes(PLAIN) + record_bytes(PLAIN), 2),  # the second says offset delta 0 again
        (record_bytes(PLAIN + b"\0"), 1),  # a byte after the fields
        (record_bytes(PLAIN[:-1]), 1),  # the fields end early
        (b"\x01" + PLAIN, 1),  # length -1
        (b"\x7f" + PLAIN, 1),  # a length beyond the data
        (record_bytes(b"\0\0\0\1\x7e\0"), 1),  # a value beyond the data
        (record_bytes(b"\0\0\0\1\1\1"), 1),  # -1 headers
        (record_bytes(b"\0\0\0\1\1\x7e"), 1),  # 63 headers
        (record_bytes(b"\0\0\0\1\1\2\1\1"), 1),  # a header without a name
        (record_bytes(b"\0\0\0\1\1\2\2\xff\1"), 1),  # a name that is not UTF-8
        (record_bytes(b"\0" + b"\xff" * 10 + b"\0\0\1\1\0"), 1),  # a varint without an end
        (record_bytes(b"\0" + b"\xff" * 9 + b"\x7f" + b"\0\1\1\0"), 1),  # more than 64 bits
    ],
)
def test_records_that_do_not_fit_their_batch_are_refused(payload: bytes, record_count: int) -> None:
    batch = with_payload(payload, record_count)

    with pytest.raises(WireError):
        list(iterate_records(batch, parse_single_batch(batch), NO_LIMIT))


def test_any_negative_length_is_null_as_in_kafka() -> None:
    batch = with_payload(record_bytes(b"\0\0\0\3\5\0"), 1)

    assert list(iterate_records(batch, parse_single_batch(batch), NO_LIMIT)) == [Record(0, 0, None, None)]


def test_a_count_that_the_bytes_can_not_hold_is_refused_first() -> None:
    batch = with_payload(record_bytes(PLAIN), 1_000_000)

    with pytest.raises(Malformed, match="1000000 records in 7 bytes"):
        next(iterate_records(batch, parse_single_batch(batch), NO_LIMIT))


def test_decompressed_records_have_a_limit() -> None:
    batch = as_view(encode_batch([Record(0, 0, None, bytes(1_000_000))], codec=Codec.GZIP))

    with pytest.raises(LimitExceeded):
        list(iterate_records(batch, parse_single_batch(batch), 999_999))


def test_an_unknown_codec_is_refused() -> None:
    batch = bytearray(encode_batch(RECORDS))
    batch[22] = 5

    with pytest.raises(Malformed, match="codec 5"):
        list(iterate_records(memoryview(batch), parse_single_batch(memoryview(batch)), NO_LIMIT))


def test_times_wrap_like_javas_long() -> None:
    batch = bytearray(encode_batch([Record(0, 1, None, None), Record(1, 11, None, None)]))
    struct.pack_into(">q", batch, 27, 2**63 - 5)

    records = list(iterate_records(memoryview(batch), parse_single_batch(memoryview(batch)), NO_LIMIT))

    assert [record.timestamp for record in records] == [2**63 - 5, -(2**63) + 5]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_finished_batch_is_stamped_in_place_as_if_it_had_been_made_so(codec: Codec) -> None:
    batch = bytearray(encode_batch(RECORDS, codec=codec))
    header = stamp(batch, 2**63 - 1, 2**15 - 1, 2**31 - 1)
    made = encode_batch(RECORDS, producer_id=2**63 - 1, producer_epoch=2**15 - 1, base_sequence=2**31 - 1, codec=codec)
    assert bytes(batch) == made
    assert header == parse_single_batch(memoryview(made))
    stamp(batch, 7, 0, 0)
    assert bytes(batch) == encode_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0, codec=codec)


@pytest.mark.parametrize("at", [8, 16, 17, 30, 60, 70])
def test_what_is_damaged_is_not_signed_again(at: int) -> None:
    batch = bytearray(encode_batch(RECORDS))
    batch[at] ^= 1
    before = bytes(batch)
    with pytest.raises(WireError):
        stamp(batch, 7, 0, 0)
    assert bytes(batch) == before


def test_stored_batches_are_read_up_to_the_one_that_was_cut_off() -> None:
    first, second = encode_batch(RECORDS, base_offset=100), encode_batch(RECORDS[:1], base_offset=104)
    for cut in range(len(second)):
        assert [batch.base_offset for batch in iterate_stored(first + second[:cut])] == [100]
    found = list(iterate_stored(first + second))
    assert [(one.base_offset, one.header.record_count, len(one.records)) for one in found] == [
        (100, 4, len(first)),
        (104, 1, len(second)),
    ]
    assert list(iterate_records(found[0].records, found[0].header, NO_LIMIT, is_stored=True)) == RECORDS
    old_format = b"\0" * 11 + b"\x20" + b"\0" * 4 + b"\x01" + b"\0" * 60
    assert len(list(iterate_stored(first + old_format))) == 1


def test_a_compacted_batch_has_fewer_records_than_offsets() -> None:
    kept = bytearray(encode_batch([Record(index, 5, b"k", b"%d" % index) for index in range(2)]))
    # as if the first and the last of five had been taken away
    at = BATCH_OVERHEAD_BYTES
    for delta in (1, 3):
        assert kept[at] >> 1 < 0x40
        kept[at + 3] = delta << 1
        at += 1 + (kept[at] >> 1)
    struct.pack_into(">i", kept, 23, 4)
    (batch,) = iterate_stored(resigned(bytes(kept)))
    read = list(iterate_records(batch.records, batch.header, NO_LIMIT, is_stored=True))
    assert [(one.offset_delta, one.value) for one in read] == [(1, b"0"), (3, b"1")]
    with pytest.raises(Malformed):
        list(iterate_records(batch.records, batch.header, NO_LIMIT))
    kept[at - (1 + (kept[BATCH_OVERHEAD_BYTES] >> 1)) + 3] = 0  # a delta that falls
    (batch,) = iterate_stored(resigned(bytes(kept)))
    with pytest.raises(Malformed):
        list(iterate_records(batch.records, batch.header, NO_LIMIT, is_stored=True))


@pytest.mark.parametrize(("at", "value"), [(8, 48), (8, -1), (57, 5), (57, -1)])
def test_stored_lengths_that_cannot_be_are_refused(at: int, value: int) -> None:
    batch = bytearray(encode_batch(RECORDS))
    struct.pack_into(">i", batch, at, value)
    with pytest.raises(Malformed):
        list(iterate_stored(batch))
