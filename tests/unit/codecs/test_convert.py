from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import pytest

from idemproxy.codecs import messages  # noqa: F401  (imports the library without warnings)
from idemproxy.codecs.batch_marker import Identity, content_digest, encode_batch_marker, parse_batch_marker
from idemproxy.codecs.compression import Codec, compress, decompress
from idemproxy.codecs.convert import (
    TRACING_HEADERS,
    Converted,
    HeaderPolicy,
    HeaderRefused,
    content_of_message,
)
from idemproxy.codecs.errors import LimitExceeded, WireError
from idemproxy.codecs.message_set import ShallowMessage, inner_messages, iterate_shallow, verify_crc
from idemproxy.codecs.primitives import encode_varlong
from idemproxy.codecs.record_batch import (
    LOG_APPEND_TIME_FLAG,
    Record,
    encode_batch,
    iterate_records,
    parse_single_batch,
)
from testkit.stage.either_way import either_way  # noqa: F401
from testkit.stage.wrappers import to_message_set, to_wrapper

library = import_module("kafka.record.memory_records")
aiokafka_records = import_module("aiokafka.record._crecords")

NO_LIMIT = 100_000_000
POLICY = HeaderPolicy()
BATCH_MARKER = encode_batch_marker([Identity(1000, 3, 0, 4)])
RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value"),
    Record(1, 1_700_000_000_900, None, b""),
    Record(2, 1_700_000_000_100, b"", None),
    Record(3, -1, b"k" * 200, b"v" * 100_000),
]


def batch(records: Sequence[Record] = RECORDS, **fields: Any) -> memoryview:
    return memoryview(encode_batch(records, **fields))


def convert(*batches: memoryview, codec: Codec = Codec.NONE, limit: int = NO_LIMIT, harder: bool = False) -> Converted:
    return to_wrapper(
        batches, key=BATCH_MARKER, codec=codec, policy=POLICY, output_bytes_max=limit, compress_harder=harder
    )


def only_message(converted: Converted) -> ShallowMessage:
    (message,) = iterate_shallow(converted.message_set)
    verify_crc(converted.message_set, message)
    return message


def verify_inner_crcs(message: ShallowMessage) -> None:
    assert message.value is not None
    data = decompress(Codec(message.codec), message.value, NO_LIMIT)
    for inner in iterate_shallow(data):
        verify_crc(data, inner)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("sent", Codec)
def test_a_wrapper_holds_all_records_of_all_batches_in_order(sent: Codec, codec: Codec) -> None:
    converted = convert(batch(codec=sent), batch(RECORDS[:1]), batch(), codec=codec)

    message = only_message(converted)
    expected = [*RECORDS, RECORDS[0], *RECORDS]
    assert converted.record_count == 9
    assert (message.offset, message.magic, message.timestamp) == (8, 1, 1_700_000_000_900)
    assert message.codec == (Codec.GZIP if codec in (Codec.NONE, Codec.ZSTD) else codec)
    assert parse_batch_marker(message.key) == (Identity(1000, 3, 0, 4),)
    assert [(m.offset, m.timestamp, m.key, m.value) for m in inner_messages(message, NO_LIMIT)] == [
        (index, record.timestamp, record.key, record.value) for index, record in enumerate(expected)
    ]
    verify_inner_crcs(message)
    assert converted.first_content == content_digest(b"key", b"value")
    assert converted.first_content == content_of_message(inner_messages(message, NO_LIMIT)[0])


def test_a_wrapper_is_read_by_kafka_python() -> None:
    data = convert(batch(), batch(RECORDS[:2])).message_set + convert(batch(RECORDS[:1])).message_set

    reader = library.MemoryRecords(data)

    read = []
    while reader.has_next():
        one = reader.next_batch()
        assert one.validate_crc()
        records = list(one)
        assert all(record.validate_crc() for record in records)
        read += [(r.offset, r.timestamp, r.key, r.value) for r in records]
    expected = [*RECORDS, *RECORDS[:2]]
    assert read == [(i, r.timestamp, r.key, r.value) for i, r in enumerate(expected)] + [
        (0, RECORDS[0].timestamp, b"key", b"value")
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_wrapper_is_read_by_aiokafka(codec: Codec) -> None:
    reader = aiokafka_records.MemoryRecords(convert(batch(), batch(), codec=codec).message_set)

    one = reader.next_batch()

    assert one.validate_crc()
    # Its reader gives None for a time of -1.
    assert [(r.offset, r.timestamp, r.key, r.value) for r in one] == [
        (i, r.timestamp if r.timestamp != -1 else None, r.key, r.value) for i, r in enumerate([*RECORDS, *RECORDS])
    ]
    assert reader.next_batch() is None


def test_uncompressed_producers_are_stored_unless_it_must_be_smaller() -> None:
    stored = convert(batch())
    smaller = convert(batch(), harder=True)

    assert len(stored.message_set) > 100_000
    assert len(smaller.message_set) < 2_000
    assert inner_messages(only_message(smaller), NO_LIMIT)[3].value == RECORDS[3].value


def test_own_times_are_kept_where_the_batch_says_log_append_time() -> None:
    for codec in (Codec.NONE, Codec.GZIP):
        message = only_message(convert(batch(codec=codec, attributes=LOG_APPEND_TIME_FLAG)))

        assert not message.is_log_append_time
        assert [m.timestamp for m in inner_messages(message, NO_LIMIT)] == [r.timestamp for r in RECORDS]


def test_a_wrapper_without_times_has_none() -> None:
    message = only_message(convert(batch([Record(0, -1, None, b"v")])))

    assert message.timestamp == -1
    assert inner_messages(message, NO_LIMIT)[0].timestamp == -1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_times_before_1970_are_kept_as_brokers_keep_them(codec: Codec) -> None:
    times = [5, -2, -315_619_200_000, -(1 << 63)]
    message = only_message(convert(batch([Record(i, time, None, b"v") for i, time in enumerate(times)], codec=codec)))

    assert message.timestamp == 5
    assert [one.timestamp for one in inner_messages(message, NO_LIMIT)] == times


def test_a_wrapper_of_times_before_1970_has_no_time_like_a_brokers() -> None:
    message = only_message(convert(batch([Record(0, -2, None, b"v")])))

    assert message.timestamp == -1
    assert inner_messages(message, NO_LIMIT)[0].timestamp == -2


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", Codec)
def test_a_message_set_has_the_records_in_the_format_asked_for(codec: Codec, magic: int, wrap: bool) -> None:
    converted = to_message_set(
        batch(codec=codec), codec=codec, magic=magic, policy=POLICY, output_bytes_max=NO_LIMIT, wrap=wrap
    )

    read = list(iterate_shallow(converted.message_set))
    if codec is Codec.NONE and not wrap:
        for message in read:
            verify_crc(converted.message_set, message)
    else:
        assert only_message(converted).key is None
        verify_inner_crcs(read[0])
        read = inner_messages(read[0], NO_LIMIT)
    assert converted.record_count == 4
    assert [(m.offset, m.magic, m.key, m.value) for m in read] == [
        (r.offset_delta, magic, r.key, r.value) for r in RECORDS
    ]
    assert [m.timestamp for m in read] == [r.timestamp if magic else -1 for r in RECORDS]
    assert converted.first_content == content_of_message(read[0])


@pytest.mark.parametrize("name", ["traceparent", "tracestate", "baggage", "b3", "X-B3-TraceId", "x-b3-", "TRACEPARENT"])
def test_tracing_headers_are_dropped(name: str) -> None:
    converted = convert(batch([Record(0, 1, b"k", b"v", ((name, b"x"), ("baggage", None)))]))

    assert bytes(inner_messages(only_message(converted), NO_LIMIT)[0].value or b"") == b"v"


@pytest.mark.parametrize("name", ["id", "", "b33", "x-b3", "traceparent2", "my-traceparent", "ü\n"])
def test_any_other_header_is_refused_by_name(name: str) -> None:
    records = [Record(0, 1, b"k", b"v"), Record(1, 1, b"k", b"v", (("b3", b"x"), (name, b"y")))]

    with pytest.raises(HeaderRefused) as refused:
        convert(batch(records))

    assert refused.value.header == name


def test_a_policy_can_drop_more_or_nothing() -> None:
    HeaderPolicy(["*"]).check([("anything\n", b"1"), ("", None)])
    HeaderPolicy([*TRACING_HEADERS, "x-*-id"]).check([("x-request-id", b"1"), ("b3", b"1")])
    with pytest.raises(HeaderRefused):
        HeaderPolicy([]).check([("traceparent", b"1")])
    with pytest.raises(HeaderRefused):
        HeaderPolicy(["a.c"]).check([("abc", b"1")])


def test_the_limit_is_on_the_converted_messages_of_all_batches() -> None:
    one = batch([Record(0, 1, None, bytes(1000))])

    convert(one, limit=1_040)
    with pytest.raises(LimitExceeded):
        convert(one, limit=1_033)
    with pytest.raises(LimitExceeded):
        convert(one, one, limit=2_000)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_refused(codec: Codec) -> None:
    with pytest.raises(LimitExceeded):
        convert(batch([Record(0, 1, None, bytes(50_000_000))], codec=codec), limit=1_000_000)


def test_many_small_records_grow_only_to_the_limit() -> None:
    records = [Record(index, 1, None, None) for index in range(10_000)]

    with pytest.raises(LimitExceeded):
        convert(batch(records, codec=Codec.GZIP), limit=300_000)
    assert convert(batch(records, codec=Codec.GZIP), limit=400_000).record_count == 10_000


def with_bytes(data: memoryview, position: int, new: bytes) -> memoryview:
    changed = bytearray(data)
    changed[position : position + len(new)] = new
    return memoryview(changed)


ONE = encode_batch([Record(0, 0, b"k", b"v", (("b3", b"1"),))])
# Its record: length, attributes, time delta, offset delta, key length, key, value length, value, header count, ...
HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2**63 - 1


@pytest.mark.parametrize(
    ("position", "new"),
    [
        (61, b"\x00"),  # the record's length is too small
        (61, b"\x7e"),  # or too large
        (61, b"\x01"),  # or negative
        (64, b"\x02"),  # offset delta 1
        (65, b"\x7e"),  # a key beyond the data
        (67, b"\x7e"),  # a value beyond the data
        (69, b"\x01"),  # -1 headers
        (69, b"\x7e"),  # more headers than there are
        (70, b"\x01"),  # a header's name of length -1
        (71, b"\xff"),  # a header's name that is not UTF-8
        (73, b"\x7e"),  # a header's value beyond the data
        (57, struct.pack(">i", 2)),
        (61, b"\xff" * 14),  # a varint that never ends
    ],
)
def test_records_that_do_not_fit_are_refused(position: int, new: bytes) -> None:
    changed = with_bytes(memoryview(ONE), position, new)
    if position == 57:
        changed = with_bytes(changed, 23, struct.pack(">i", 1))

    with pytest.raises(WireError):
        convert(changed)


@pytest.mark.parametrize("prefix", [b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1\2"])
@pytest.mark.parametrize("length", [HUGE, b"\xfc" + HUGE[1:], b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\x01"])
def test_a_length_near_the_end_of_64_bits_is_refused(prefix: bytes, length: bytes) -> None:
    body = prefix + length + bytes(30)
    data = bytearray(ONE[:61] + bytes((2 * len(body),)) + body)
    struct.pack_into(">i", data, 8, len(data) - 12)

    with pytest.raises(WireError):
        convert(memoryview(data))


@pytest.mark.parametrize("behind", [b"", b"\x81", b"\x81\x81\x81\x81\xff\xff\xff\xff", b"\xff" * 20])
@pytest.mark.parametrize("last", [b"\x81", b"\xff", b"\x80", b"\x01"])
def test_a_number_that_runs_over_the_end_of_the_data_is_refused(last: bytes, behind: bytes) -> None:
    # A header's value whose length would end after the data, as null, and more headers to come.
    body = b"\0\0\0\1\1\6" + b"\2b" + last
    data = bytearray(ONE[:61] + encode_varlong(len(body) + 1) + body)
    struct.pack_into(">i", data, 8, len(data) - 12)

    with pytest.raises(WireError):
        convert(memoryview(bytes(data) + behind)[: len(data)])


def test_a_batch_followed_by_more_bytes_ends_at_its_own_length() -> None:
    frame = ONE + b"\xff" * 50
    view = memoryview(frame)[: len(ONE)]

    assert convert(view).record_count == 1
    with pytest.raises(WireError):
        convert(with_bytes(view, 69, b"\x7e"))


def batch_with_headers(header_count: int, value_bytes: int) -> memoryview:
    """One record that ends with this many nameless, empty headers: two bytes each."""
    body = b"\0\0\0\1" + encode_varlong(value_bytes) + bytes(value_bytes) + encode_varlong(header_count)
    body += bytes(2 * header_count)
    start = encode_batch([Record(0, 0, None, None)], codec=Codec.GZIP)[:61]
    payload = compress(Codec.GZIP, encode_varlong(len(body)) + body)
    return memoryview(start[:8] + struct.pack(">i", 49 + len(payload)) + start[12:] + payload)


def test_a_record_of_countless_headers_is_refused_before_they_are_listed() -> None:
    bomb = batch_with_headers(4_000_000, 0)
    assert len(bomb) < 100_000

    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded, match="4000000 headers, the limit is 10000"):
            to_wrapper([bomb], key=None, codec=Codec.NONE, policy=HeaderPolicy(["*"]), output_bytes_max=NO_LIMIT)
        with pytest.raises(LimitExceeded, match="4000000 headers"):
            list(iterate_records(bomb, parse_single_batch(bomb), NO_LIMIT))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # Twice the decompressed 8 MB while they grow: nothing for the headers.
    assert peak < 30_000_000


def test_a_large_record_with_few_headers_passes() -> None:
    large = batch_with_headers(10_000, 3_000_000)

    converted = to_wrapper([large], key=None, codec=Codec.NONE, policy=HeaderPolicy(["*"]), output_bytes_max=NO_LIMIT)

    assert len(converted.message_set) > 3_000_000
    (record,) = iterate_records(large, parse_single_batch(large), NO_LIMIT)
    assert len(record.headers) == 10_000


@pytest.mark.parametrize("length", [b"\x00", b"\x01", b"\xff\xff\x7f", b"\xff" * 20])
@pytest.mark.parametrize("index", [0, 9])
def test_a_large_batch_with_a_wrong_record_length_is_still_refused(index: int, length: bytes) -> None:
    records = [Record(i, 1, None, bytes(300_000)) for i in range(10)]
    first_bytes = len(batch(records[:1])) - 61

    with pytest.raises(WireError):
        convert(with_bytes(batch(records), 61 + index * first_bytes, length))
