"""Batches, message sets, wrappers, batch markers: round trips, two readers that agree, hostile bytes."""

from __future__ import annotations

import struct
from contextlib import suppress
from importlib import import_module
from typing import Any

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.codecs import messages  # noqa: F401  (imports the library without warnings)
from idemproxy.codecs.batch_marker import (
    Identity,
    anchor_of,
    anchor_of_batch_marker,
    encode_batch_marker,
    parse_batch_marker,
)
from idemproxy.codecs.compression import Codec, compress, decompress, store_gzip
from idemproxy.codecs.convert import HeaderPolicy, border_of_halves, cutting, digesting_batch
from idemproxy.codecs.errors import WireError
from idemproxy.codecs.message_set import (
    encode_message,
    encode_set,
    inner_messages,
    iterate_shallow,
    span,
    tail_is_partial,
    verify_crc,
)
from idemproxy.codecs.record_batch import (
    BATCH_OVERHEAD_BYTES,
    Record,
    encode_batch,
    iterate_records,
    iterate_stored,
    magic_of,
    parse_single_batch,
    stamp,
)
from idemproxy.codecs.record_batch import verify_crc as verify_batch
from idemproxy.codecs.steps import at_once
from testkit.stage.either_way import either_way  # noqa: F401
from testkit.stage.wrappers import to_inner, to_message_set, to_wrapper

library = import_module("kafka.record.memory_records")
aiokafka_records = import_module("aiokafka.record._crecords")

LIMIT = 1_000_000
DROP_ALL = HeaderPolicy(["*"])

fields = st.none() | st.binary(max_size=12)
times = st.integers(-1, 2**62)
headers = st.lists(st.tuples(st.text(max_size=4), fields), max_size=2).map(tuple)
record_lists = st.lists(st.tuples(times, fields, fields, headers), min_size=1, max_size=8).map(
    lambda rows: [Record(index, *row) for index, row in enumerate(rows)]
)
codecs = st.sampled_from(Codec)
old_codecs = st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
identities = st.lists(
    st.builds(
        Identity,
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
        st.integers(0, 2**31 - 1),
        st.integers(1, 2**31 - 1),
    ),
    min_size=1,
    max_size=5,
)


def damaged(data: st.DataObject, original: bytes, first: int) -> bytearray:
    changed = bytearray(original)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(first, len(changed) - 1))] = data.draw(st.integers(0, 255))
    return changed


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 300), codecs)
def test_every_codec_gives_back_what_it_took_or_refuses_by_the_limit(data: bytes, limit: int, codec: Codec) -> None:
    packed = store_gzip(data) if codec is Codec.NONE else compress(codec, data, magic=2)

    try:
        assert decompress(codec or Codec.GZIP, packed, limit) == data
    except WireError:
        assert len(data) > limit
    else:
        assert len(data) <= limit


@settings(deadline=None)
@given(st.binary(max_size=100), codecs)
def test_any_bytes_decompress_within_the_limit_or_are_a_wire_error(data: bytes, codec: Codec) -> None:
    with suppress(WireError):
        assert len(decompress(codec, data, 1000)) <= 1000


@settings(deadline=None)
@given(st.data(), st.binary(min_size=1, max_size=300), codecs)
def test_damaged_data_decompresses_within_the_limit_or_is_a_wire_error(
    data: st.DataObject, plain: bytes, codec: Codec
) -> None:
    with suppress(WireError):
        assert len(decompress(codec, damaged(data, compress(codec, plain * 10, magic=2), 0), 5000)) <= 5000


@settings(deadline=None)
@given(record_lists, codecs, st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1))
def test_batches_come_back(
    records: list[Record], codec: Codec, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    batch = memoryview(
        encode_batch(
            records, codec=codec, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
        )
    )

    header = parse_single_batch(batch)

    verify_batch(batch, header)
    assert list(iterate_records(batch, header, LIMIT)) == records
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (
        producer_id,
        producer_epoch,
        base_sequence,
    )
    assert header.max_timestamp == max(record.timestamp for record in records)


@settings(deadline=None)
@given(st.data(), record_lists, codecs)
def test_pieces_hold_the_same_records(data: st.DataObject, records: list[Record], codec: Codec) -> None:
    whole = memoryview(encode_batch(records, codec=codec))
    borders = data.draw(
        st.lists(st.integers(1, len(records) - 1), unique=True).map(sorted) if records[1:] else st.just([])
    )
    inner = to_inner([whole], policy=DROP_ALL, output_bytes_max=LIMIT)

    read: list[tuple[int, Any, Any]] = []
    for piece in at_once(cutting(inner, borders)):
        found = list(iterate_shallow(piece.message_set))
        assert [message.offset for message in found] == list(range(piece.record_count))
        for message in found:
            verify_crc(piece.message_set, message)
            read.append((message.timestamp, message.key, message.value))
    assert read == [(record.timestamp, record.key, record.value) for record in records]
    if len(records) > 1:
        assert 0 < at_once(border_of_halves(inner)) < len(records)


def library_reads(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    reader = library.MemoryRecords(data)
    one = reader.next_batch()
    assert one.validate_crc()
    records = list(one)
    assert all(record.validate_crc() for record in records)
    assert not reader.has_next()
    return [(r.offset, r.timestamp, r.key, r.value) for r in records]


def aiokafka_reads(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    one = aiokafka_records.MemoryRecords(data).next_batch()
    assert one.validate_crc()
    return [(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in one]


@settings(deadline=None)
@given(st.lists(st.tuples(record_lists, codecs), min_size=1, max_size=3), old_codecs, identities, st.booleans())
def test_wrappers_are_read_back_by_every_reader(
    batches: list[tuple[list[Record], Codec]], codec: Codec, marked: list[Identity], harder: bool
) -> None:
    key = encode_batch_marker(marked)
    converted = to_wrapper(
        [memoryview(encode_batch(records, codec=sent)) for records, sent in batches],
        key=key,
        codec=codec,
        policy=DROP_ALL,
        output_bytes_max=LIMIT,
        compress_harder=harder,
    )
    rows = [record for records, _ in batches for record in records]
    expected = [(index, r.timestamp, r.key, r.value) for index, r in enumerate(rows)]

    (message,) = iterate_shallow(converted.message_set)

    verify_crc(converted.message_set, message)
    assert (message.offset, converted.record_count) == (len(rows) - 1, len(rows))
    assert message.timestamp == max(row.timestamp for row in rows)
    inner = inner_messages(message, LIMIT)
    assert [(m.offset, m.timestamp, m.key, m.value) for m in inner] == expected
    assert span(message, LIMIT) == (0, len(rows) - 1)
    assert parse_batch_marker(message.key) == tuple(marked)
    assert anchor_of(message) == anchor_of_batch_marker(key)
    assert message.value is not None
    plain = decompress(Codec(message.codec), message.value, LIMIT)
    for one in iterate_shallow(plain):
        verify_crc(plain, one)
    assert aiokafka_reads(bytes(converted.message_set)) == expected
    if codec in (Codec.NONE, Codec.GZIP):  # the only codec for which the library needs nothing else
        assert library_reads(bytes(converted.message_set)) == expected


def resigned(data: bytearray) -> memoryview:
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return memoryview(data)


@settings(max_examples=300, deadline=None)
@given(st.data(), record_lists)
def test_both_readers_read_a_damaged_batch_alike_or_raise_a_wire_error(
    data: st.DataObject, records: list[Record]
) -> None:
    original = encode_batch(records)
    view = resigned(damaged(data, original, BATCH_OVERHEAD_BYTES))
    header = parse_single_batch(view)

    read: list[Record] | None = None
    with suppress(WireError):
        read = list(iterate_records(view, header, LIMIT))
    converted = None
    with suppress(WireError):
        converted = to_message_set(view, codec=Codec.NONE, magic=1, policy=DROP_ALL, output_bytes_max=LIMIT)

    # The first is stricter with numbers of too many bits, the second with times.
    if read is not None and all(record.timestamp >= -1 for record in read):
        assert converted is not None
        assert [(m.offset, m.timestamp, m.key, m.value) for m in iterate_shallow(converted.message_set)] == [
            (r.offset_delta, r.timestamp, r.key, r.value) for r in read
        ]


@settings(max_examples=300, deadline=None)
@given(st.data(), record_lists, codecs)
def test_a_batch_with_a_damaged_header_is_read_or_is_a_wire_error(
    data: st.DataObject, records: list[Record], codec: Codec
) -> None:
    view = resigned(damaged(data, encode_batch(records, codec=codec), 0))

    with suppress(WireError):
        magic_of(view)
    with suppress(WireError):
        header = parse_single_batch(view)
        with suppress(WireError):
            list(iterate_records(view, header, LIMIT))
        with suppress(WireError):
            at_once(digesting_batch(view, header, LIMIT))
        with suppress(WireError):
            to_wrapper([view], key=None, codec=Codec.NONE, policy=DROP_ALL, output_bytes_max=LIMIT)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.integers(1, 5))
def test_a_batch_of_any_bytes_is_read_or_is_a_wire_error(payload: bytes, count: int) -> None:
    batch = bytearray(encode_batch([Record(0, 0, None, None)])[:BATCH_OVERHEAD_BYTES] + payload)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    view = resigned(batch)
    header = parse_single_batch(view)

    with suppress(WireError):
        list(iterate_records(view, header, LIMIT))
    with suppress(WireError):
        to_wrapper([view], key=None, codec=Codec.NONE, policy=DROP_ALL, output_bytes_max=LIMIT)


rows = st.lists(st.tuples(fields, fields, times), max_size=6)


@settings(deadline=None)
@given(rows, st.integers(0, 1), st.integers(0, 2**62), st.integers(0, 400))
def test_message_sets_come_back_and_cut_ones_give_their_whole_messages(
    written: list[tuple[Any, Any, int]], magic: int, first_offset: int, cut: int
) -> None:
    data = encode_set(written, magic=magic, first_offset=first_offset)

    read = list(iterate_shallow(data))

    assert [(m.offset, m.key, m.value, m.timestamp) for m in read] == [
        (first_offset + index, key, value, time if magic else -1) for index, (key, value, time) in enumerate(written)
    ]
    assert not tail_is_partial(data)
    for message in read:
        verify_crc(data, message)
    whole = list(iterate_shallow(data[:cut]))
    assert whole == read[: len(whole)]
    assert tail_is_partial(data[:cut]) == (sum(m.size_bytes for m in whole) != min(cut, len(data)))


@settings(max_examples=300, deadline=None)
@given(st.data(), rows.filter(bool), st.integers(0, 1), old_codecs)
def test_damaged_message_sets_are_read_or_are_a_wire_error(
    data: st.DataObject, written: list[tuple[Any, Any, int]], magic: int, codec: Codec
) -> None:
    original = encode_set(written, magic=magic)
    if codec is not Codec.NONE and data.draw(st.booleans()):
        original = bytes(damaged(data, original, 0))  # then the damage is inside
    if codec is not Codec.NONE:
        original = encode_message(b"k", compress(codec, original, magic=magic), magic=magic, codec=codec)

    with suppress(WireError):
        tail_is_partial(damaged(data, original, 0))
    for candidate in (original, damaged(data, original, 0)):
        with suppress(WireError):
            for message in iterate_shallow(candidate):
                anchor_of(message)
                if message.is_wrapper:
                    inner_messages(message, LIMIT)


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_set_or_a_wire_error(data: bytes) -> None:
    with suppress(WireError):
        for message in iterate_shallow(data):
            if message.is_wrapper:
                inner_messages(message, LIMIT)
    with suppress(WireError):
        tail_is_partial(data)


@settings(deadline=None)
@given(identities)
def test_batch_markers_come_back(marked: list[Identity]) -> None:
    assert parse_batch_marker(encode_batch_marker(marked)) == tuple(marked)


@settings(deadline=None)
@given(st.none() | st.binary(max_size=60), identities, st.data())
def test_any_other_key_is_no_batch_marker(key: bytes | None, marked: list[Identity], data: st.DataObject) -> None:
    original = encode_batch_marker(marked)
    changed = damaged(data, original, 0)

    assert parse_batch_marker(key) is None
    assert parse_batch_marker(changed) is None or changed == original


@given(
    record_lists,
    st.sampled_from([Codec.NONE, Codec.GZIP]),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
)
def test_the_library_reads_a_stamped_batch(
    rows: list[Record], codec: Codec, producer_id: int, epoch: int, sequence: int
) -> None:
    batch = bytearray(encode_batch(rows, codec=codec))
    stamp(batch, producer_id, epoch, sequence)
    read = library.MemoryRecords(bytes(batch)).next_batch()
    assert read.validate_crc()
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (producer_id, epoch, sequence)
    assert [(one.key, one.value, one.timestamp, tuple(one.headers)) for one in read] == [
        (row.key, row.value, row.timestamp, row.headers) for row in rows
    ]


@given(st.lists(record_lists, min_size=1, max_size=4), st.integers(0, 2**62), st.binary(max_size=80))
def test_what_a_log_holds_is_read_batch_by_batch(batches: list[list[Record]], first: int, rest: bytes) -> None:
    data = b"".join(encode_batch(rows, base_offset=first + index) for index, rows in enumerate(batches))
    found = list(iterate_stored(data))
    assert [one.base_offset for one in found] == [first + index for index in range(len(batches))]
    for rows, one in zip(batches, found, strict=True):
        assert list(iterate_records(one.records, one.header, LIMIT, is_stored=True)) == rows
    with suppress(WireError):
        for one in iterate_stored(data + rest):
            list(iterate_records(one.records, one.header, LIMIT, is_stored=True))
