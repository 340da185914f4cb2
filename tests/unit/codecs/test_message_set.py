from __future__ import annotations

import struct
from importlib import import_module

import pytest

from idemproxy.codecs import messages  # noqa: F401  (imports the library without warnings)
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.errors import ChecksumMismatch, LimitExceeded, Malformed, Truncated, WireError
from idemproxy.codecs.message_set import (
    ShallowMessage,
    encode_message,
    encode_set,
    inner_messages,
    iterate_shallow,
    span,
    tail_is_partial,
    verify_crc,
)

library = import_module("kafka.record.legacy_records")
aiokafka_records = import_module("aiokafka.record._crecords")

NO_LIMIT = 1_000_000
RECORDS = [(b"key", b"value", 1_700_000_000_000), (None, b"", 5), (b"", None, -1), (b"k" * 300, b"v" * 300, 7)]


def wrapper(
    inner: bytes, offset: int, *, magic: int = 1, codec: Codec = Codec.GZIP, log_append_time: bool = False
) -> ShallowMessage:
    data = encode_message(
        b"a key",
        compress(codec, inner, magic=magic),
        magic=magic,
        offset=offset,
        timestamp=99,
        codec=codec,
        log_append_time=log_append_time,
    )
    (message,) = iterate_shallow(data)
    verify_crc(data, message)
    return message


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_sets_are_those_of_the_library(magic: int) -> None:
    builder = library.LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    for index, (key, value, timestamp) in enumerate(RECORDS):
        builder.append(index, timestamp, key, value)

    assert encode_set(RECORDS, magic=magic) == bytes(builder.build())


@pytest.mark.parametrize("magic", [0, 1])
def test_a_plain_set_is_read(magic: int) -> None:
    data = encode_set(RECORDS, magic=magic, first_offset=2**40)

    read = list(iterate_shallow(data))

    assert [(m.offset, m.magic, m.key, m.value) for m in read] == [
        (2**40 + index, magic, key, value) for index, (key, value, _) in enumerate(RECORDS)
    ]
    assert [m.timestamp for m in read] == [timestamp if magic else -1 for _, _, timestamp in RECORDS]
    assert [m.start for m in read] == [sum(m.size_bytes for m in read[:index]) for index in range(4)]
    assert sum(m.size_bytes for m in read) == len(data)
    for message in read:
        verify_crc(data, message)
        assert not message.is_wrapper
        assert span(message, NO_LIMIT) == (message.offset, message.offset)


def test_an_empty_set_has_no_messages() -> None:
    assert list(iterate_shallow(b"")) == []
    assert not tail_is_partial(b"")


@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_that_was_cut_gives_its_whole_messages(magic: int) -> None:
    data = encode_set(RECORDS, magic=magic)
    whole = list(iterate_shallow(data))
    ends = [message.start + message.size_bytes for message in whole]

    for cut in range(len(data) + 1):
        expected = sum(end <= cut for end in ends)
        assert list(iterate_shallow(data[:cut])) == whole[:expected]
        assert tail_is_partial(data[:cut]) == (cut not in (0, *ends))


def test_a_flipped_bit_after_the_checksum_is_noticed() -> None:
    data = encode_set(RECORDS[:1], magic=1)
    (message,) = iterate_shallow(data)

    for position in range(16, len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 0x40
        with pytest.raises(ChecksumMismatch, match="message at 0"):
            verify_crc(flipped, message)


@pytest.mark.parametrize(
    ("position", "layout", "value", "error"),
    [
        (8, ">i", 13, Malformed),  # smaller than any message
        (8, ">i", -1, Malformed),
        (16, ">b", 2, Malformed),  # a record batch
        (16, ">b", 0, WireError),  # v1 fields read as v0
        (26, ">i", -2, Malformed),  # key
        (26, ">i", 2**31 - 1, Truncated),
        (33, ">i", -2, Malformed),  # value
        (33, ">i", 6, Truncated),
        (33, ">i", 4, Malformed),  # a byte after the value
    ],
)
def test_impossible_messages_are_refused(position: int, layout: str, value: int, error: type[WireError]) -> None:
    data = bytearray(encode_set(RECORDS[:1], magic=1))
    struct.pack_into(layout, data, position, value)

    with pytest.raises(error):
        list(iterate_shallow(data))


def test_a_message_too_small_for_its_own_fields_is_truncated() -> None:
    data = bytearray(encode_message(None, None, magic=0))
    data[16] = 1

    with pytest.raises(Truncated, match="end within a field"):
        list(iterate_shallow(data))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_offsets_inside_a_new_wrapper_are_relative_to_its_own(codec: Codec) -> None:
    message = wrapper(encode_set(RECORDS, magic=1), 1003, codec=codec)

    inner = inner_messages(message, NO_LIMIT)

    assert message.is_wrapper
    assert bytes(message.key or b"") == b"a key"
    assert [(m.offset, m.timestamp, m.key, m.value) for m in inner] == [
        (1000 + index, timestamp, key, value) for index, (key, value, timestamp) in enumerate(RECORDS)
    ]
    assert span(message, NO_LIMIT) == (1000, 1003)


def test_offsets_with_gaps_inside_a_compacted_wrapper_stay_relative_to_the_last() -> None:
    inner = b"".join(encode_message(None, b"v", magic=1, offset=offset, timestamp=1) for offset in (2, 5, 9))

    assert [m.offset for m in inner_messages(wrapper(inner, 509), NO_LIMIT)] == [502, 505, 509]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_offsets_inside_an_old_wrapper_are_absolute(codec: Codec) -> None:
    message = wrapper(encode_set(RECORDS, magic=0, first_offset=1000), 1003, magic=0, codec=codec)

    assert [m.offset for m in inner_messages(message, NO_LIMIT)] == [1000, 1001, 1002, 1003]
    assert span(message, NO_LIMIT) == (1000, 1003)


def test_log_append_time_of_a_wrapper_is_that_of_its_messages() -> None:
    message = wrapper(encode_set(RECORDS, magic=1), 3, log_append_time=True)

    assert message.is_log_append_time
    assert [m.timestamp for m in inner_messages(message, NO_LIMIT)] == [99] * 4


def test_a_wrapper_of_the_library_is_read() -> None:
    builder = library.LegacyRecordBatchBuilder(1, 1, 1 << 20)
    for index, (key, value, timestamp) in enumerate(RECORDS):
        builder.append(index, timestamp, key, value)
    data = bytes(builder.build())

    (message,) = iterate_shallow(data)

    verify_crc(data, message)
    assert [(m.key, m.value, m.timestamp) for m in inner_messages(message, NO_LIMIT)] == RECORDS


@pytest.mark.parametrize(
    "inner",
    [
        b"",  # nothing inside
        encode_set(RECORDS, magic=1)[:-1],  # a part of a message
        encode_set(RECORDS, magic=1) + b"\0",
        encode_set(RECORDS, magic=0),  # another format
        encode_message(None, compress(Codec.GZIP, b""), magic=1, codec=Codec.GZIP),  # a wrapper
        b"\0" * 40,
    ],
)
def test_wrappers_with_wrong_things_inside_are_refused(inner: bytes) -> None:
    with pytest.raises(WireError):
        inner_messages(wrapper(inner, 3), NO_LIMIT)


def test_a_wrapper_without_a_value_is_malformed() -> None:
    (message,) = iterate_shallow(encode_message(b"k", None, magic=1, codec=Codec.GZIP))

    with pytest.raises(Malformed, match="no value"):
        inner_messages(message, NO_LIMIT)


def test_what_is_inside_a_wrapper_has_a_limit() -> None:
    message = wrapper(encode_set([(None, bytes(100_000), 1)], magic=1), 0)

    with pytest.raises(LimitExceeded):
        inner_messages(message, 100_000)


@pytest.mark.parametrize("codec", [4, 5, 7])
def test_a_codec_that_message_format_v1_does_not_have_is_refused(codec: int) -> None:
    data = bytearray(encode_message(None, b"value", magic=1, codec=Codec.GZIP))
    data[17] = codec
    (message,) = iterate_shallow(data)

    with pytest.raises(Malformed):
        inner_messages(message, NO_LIMIT)
