"""Message sets (magic 0 and 1): what old brokers store and what they are sent.

Reads shallow messages and, on request, the messages inside a wrapper; writes both. Merges and converts nothing.
Source: Kafka's LegacyRecord and ByteBufferMessageSet; KIP-31 (relative offsets), KIP-32 (timestamps).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct, error
from typing import Final, NamedTuple

from isal import isal_zlib

from .compression import Codec, codec_of, decompressing
from .errors import ChecksumMismatch, Malformed, Truncated
from .primitives import Buffer
from .steps import STEP_BYTES, STEP_RECORDS, Steps, at_once

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
OFFSET_AND_SIZE_BYTES: Final = 12
CRC_BYTES: Final = 4
OVERHEAD_BYTES: Final = {0: 26, 1: 34}
"""Bytes of a message without its key and value, by magic, with offset and size."""

_START: Final = Struct(">qiIBB")
_TIMESTAMP_AND_KEY_LENGTH: Final = Struct(">qi")
_INT32: Final = Struct(">i")
_OFFSET_SIZE_CRC: Final = Struct(">qiI")
_FIELDS: Final = {0: Struct(">BBi"), 1: Struct(">BBqi")}

_start_at: Final = _START.unpack_from
_int32_at: Final = _INT32.unpack_from


class ShallowMessage(NamedTuple):
    """One message as it stands in the log. ``start`` is its position in the data; ``size_bytes`` counts all of it."""

    offset: int
    magic: int
    attributes: int
    crc: int
    timestamp: int
    """In ms; -1 in format v0."""
    key: memoryview | None
    value: memoryview | None
    size_bytes: int
    start: int

    @property
    def codec(self) -> int:
        """The number of the codec; 0 for a plain message."""
        return self.attributes & CODEC_MASK

    @property
    def is_wrapper(self) -> bool:
        """Whether the value is a compressed message set."""
        return bool(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)


def iterate_shallow(data: Buffer) -> Iterator[ShallowMessage]:
    """Yield the whole messages of a set, without looking into wrappers; stops before one that was cut off at the end.

    Brokers cut a fetched set at the size limit, so a part of a message at the end is not an error. Raises Malformed
    (also for magic 2, which is another format) and Truncated when a message's own fields don't fit into it.
    """
    view = memoryview(data)
    position = 0
    while (end := end_of_message(view, position)) is not None:
        yield read_message(view, position, end)
        position = end


def tail_is_partial(data: Buffer) -> bool:
    """Whether the set ends within a message. If it has no whole message before that, the fetch size is too small."""
    view = memoryview(data)
    position = 0
    while (end := end_of_message(view, position)) is not None:
        position = end
    return position != len(view)


def end_of_message(view: memoryview, position: int) -> int | None:
    """Where the message at ``position`` ends; None when it is not there completely."""
    if len(view) - position < OFFSET_AND_SIZE_BYTES:
        return None
    (size,) = _int32_at(view, position + 8)
    if size < OVERHEAD_BYTES[0] - OFFSET_AND_SIZE_BYTES:
        raise Malformed(f"message at {position}: size {size}")
    end = position + OFFSET_AND_SIZE_BYTES + size
    return end if end <= len(view) else None


def read_message(view: memoryview, start: int, end: int) -> ShallowMessage:
    offset, _, crc, magic, attributes = _start_at(view, start)
    position = start + _START.size
    try:
        if magic == 1:
            timestamp, length = _TIMESTAMP_AND_KEY_LENGTH.unpack_from(view, position)
            position += _TIMESTAMP_AND_KEY_LENGTH.size
        elif magic == 0:
            timestamp = -1
            (length,) = _int32_at(view, position)
            position += _INT32.size
        else:
            raise Malformed(f"message at {start}: magic {magic}")
        key, position = _field(view, position, length, end)
        (length,) = _int32_at(view, position)
        value, position = _field(view, position + _INT32.size, length, end)
    except error:
        raise Truncated(f"message at {start}: its {end - start} bytes end within a field") from None
    if position != end:
        raise Malformed(f"message at {start}: {end - start} bytes, its fields end after {position - start}")
    return ShallowMessage(offset, magic, attributes, crc, timestamp, key, value, end - start, start)


def _field(view: memoryview, position: int, length: int, end: int) -> tuple[memoryview | None, int]:
    if length < 0:
        if length != -1:
            raise Malformed(f"field at {position}: length {length}")
        return None, position
    if length > end - position:
        raise Truncated(f"field at {position}: length {length}, {end - position} bytes there")
    return view[position : position + length], position + length


def verify_crc(data: Buffer, message: ShallowMessage) -> None:
    """Raise ChecksumMismatch unless the message's CRC-32 is right. ``data`` is what it was read from."""
    body = memoryview(data)[message.start + OFFSET_AND_SIZE_BYTES + CRC_BYTES : message.start + message.size_bytes]
    if isal_zlib.crc32(body) != message.crc:
        raise ChecksumMismatch(
            f"message at {message.start}, offset {message.offset}: CRC-32 is not {message.crc:#010x}"
        )


def unpacking(message: ShallowMessage, output_bytes_max: int) -> Steps[Buffer]:
    """Return the message set inside a wrapper, decompressed to ``output_bytes_max`` at most. Raises WireError."""
    assert message.is_wrapper
    if message.value is None:
        raise Malformed(f"wrapper at offset {message.offset}: no value")
    codec = codec_of(message.codec)
    return (yield from decompressing(codec, message.value, output_bytes_max, magic=message.magic))


def iterate_inside(message: ShallowMessage, data: Buffer) -> Iterator[ShallowMessage]:
    """Yield the messages inside a wrapper, with offsets as they stand there: see ``shift_of``. ``data``: the unpacked
    set.

    Their ``start`` counts in the set, and their CRCs are not verified. Raises Malformed or Truncated, at the end at the
    latest: nothing inside, another magic, a wrapper inside a wrapper, a part of a message.
    """
    magic = message.magic
    inside = 0
    for inner in iterate_shallow(data):
        if inner[1] != magic or inner[2] & CODEC_MASK:
            raise Malformed(
                f"wrapper at offset {message.offset}, magic {magic}: inside it magic {inner.magic}, codec {inner.codec}"
            )
        yield inner
        inside += inner[7]
    if not inside or inside != len(data):
        raise Malformed(f"wrapper at offset {message.offset}: {len(data)} bytes inside, messages in {inside} of them")


def shift_of(message: ShallowMessage, last_offset: int) -> int:
    """Return what has to be added to the offsets inside a wrapper to make them absolute. ``last_offset``: the last
    offset inside.

    In format v1 they are relative, and the wrapper has the absolute offset of the last one (KIP-31); in v0 they are
    absolute.
    """
    return message.offset - last_offset if message.magic else 0


def inner_messages(message: ShallowMessage, output_bytes_max: int) -> list[ShallowMessage]:
    """Return the messages inside a wrapper with absolute offsets, in one step. For wrappers of other writers, which may
    be large, there are ``spanning`` and ``convert.digesting_inner``.

    Where the wrapper has log append time, that is every message's time. Raises as ``unpacking`` and ``iterate_inside``.
    """
    messages = list(iterate_inside(message, at_once(unpacking(message, output_bytes_max))))
    shift = shift_of(message, messages[-1].offset)
    make = ShallowMessage._make
    if message.is_log_append_time:
        return [make((inner[0] + shift, *inner[1:4], message.timestamp, *inner[5:])) for inner in messages]
    if shift:
        return [make((inner[0] + shift, *inner[1:])) for inner in messages]
    return messages


def span(message: ShallowMessage, output_bytes_max: int) -> tuple[int, int]:
    """Return what ``spanning`` does, at once."""
    return at_once(spanning(message, output_bytes_max))


def spanning(message: ShallowMessage, output_bytes_max: int) -> Steps[tuple[int, int]]:
    """Return (first offset, last offset) of what the message holds. A wrapper has to be decompressed for the first."""
    if not message.is_wrapper:
        return message.offset, message.offset
    data = yield from unpacking(message, output_bytes_max)
    first = last = None
    for count, inner in enumerate(iterate_inside(message, data), 1):
        last = inner.offset
        if first is None:
            first = last
        if not count % STEP_RECORDS:
            yield
    assert first is not None
    assert last is not None
    shift = shift_of(message, last)
    return first + shift, last + shift


def encode_message(
    key: Buffer | None,
    value: Buffer | None,
    *,
    magic: int,
    offset: int = 0,
    timestamp: int = -1,
    codec: Codec = Codec.NONE,
    log_append_time: bool = False,
) -> bytes:
    """Return one message of format v0 or v1. With a ``codec`` it is a wrapper and ``value`` is already compressed."""
    front = _front(key, value, magic, timestamp, codec | (LOG_APPEND_TIME_FLAG if log_append_time else 0), offset)
    return front if value is None else b"".join((front, value))


def encoding_message(
    key: Buffer | None, value: Buffer, *, magic: int, offset: int, timestamp: int, codec: Codec = Codec.NONE
) -> Steps[bytes | bytearray]:
    """The same; a large value is copied in steps."""
    if len(value) > STEP_BYTES:
        yield
    front = _front(key, value, magic, timestamp, codec, offset)
    if len(value) <= STEP_BYTES:
        return b"".join((front, value))
    message = bytearray(front)
    view = memoryview(value)
    for start in range(0, len(view), STEP_BYTES):
        message += view[start : start + STEP_BYTES]
        yield
    return message


def _front(key: Buffer | None, value: Buffer | None, magic: int, timestamp: int, attributes: int, offset: int) -> bytes:
    """All of a message but its value."""
    key_length = -1 if key is None else len(key)
    if magic:
        start = _FIELDS[1].pack(1, attributes, timestamp, key_length)
    else:
        start = _FIELDS[0].pack(0, attributes, key_length)
    value_bytes = 0 if value is None else len(value)
    checked = b"".join((start, key or b"", _INT32.pack(-1 if value is None else value_bytes)))
    crc = isal_zlib.crc32(checked)
    if value is not None:
        crc = isal_zlib.crc32(value, crc)
    return _OFFSET_SIZE_CRC.pack(offset, CRC_BYTES + len(checked) + value_bytes, crc) + checked


def encode_set(
    records: Sequence[tuple[Buffer | None, Buffer | None, int]], *, magic: int, first_offset: int = 0
) -> bytes:
    """Return plain messages with ascending offsets. ``records`` are (key, value, time in ms); v0 drops the time."""
    return b"".join(
        encode_message(key, value, magic=magic, offset=first_offset + index, timestamp=timestamp)
        for index, (key, value, timestamp) in enumerate(records)
    )
