"""Message sets (magic 0 and 1) to record batches (magic 2), in steps: what clients of Kafka 0.8 to 0.10 send, for
brokers that take nothing else. Owns which records share a batch. Gives no batch a producer id, and sends nothing.

Accepted is what Kafka 0.10 accepts, and what 3.9 does (``LogValidator``): formats mixed in one set, offsets that mean
nothing, lz4 with the header checksum of format v0. Also several wrappers in one set, or plain messages next to one,
which 0.10 takes and 3.9 refuses.

A batch is measured against the topic's limit as it is sent. In formats v0 and v1 the limit is for each message, so a
set may need several batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c
from isal import isal_zlib

from ..compression import Codec, codec_of, compressing
from ..error_codes import ErrorCode
from ..errors import ChecksumMismatch, LimitExceeded, Malformed, Truncated, WireError
from ..message_set import (
    CRC_BYTES,
    OFFSET_AND_SIZE_BYTES,
    ShallowMessage,
    iterate_shallow,
    unpacking,
    verify_crc,
)
from ..primitives import Buffer, encode_varlong, read_varlong, wrap_int64
from ..record_batch import (
    BATCH_OVERHEAD_BYTES,
    CONTROL_FLAG,
    MAGIC,
    MAGIC_AT,
    RECORD_BYTES_MAX,
    SIZE_FIELDS_BYTES,
    TRANSACTIONAL_FLAG,
    batch_of,
    parse_single_batch,
    reading_payload,
)
from ..record_batch import verify_crc as verify_crc_of_batch
from ..steps import STEP_BYTES, Steps
from . import RAISE_SET

MISSING_TIMESTAMP: Final = -1
"""What Kafka 0.10 to 3.9 stores for a message of format v0, which has no timestamp."""
MESSAGES_PER_STEP: Final = 500
"""Read and encoded in Python in one step: 3 to 5 ms."""
_MESSAGES_PER_WRAPPER: Final = 3
"""A wrapper takes as long as so many messages, beside those inside."""

_PACKED_SHARE: Final = 0.9
"""Pieces of a batch that was too large are made smaller than the limit by so much: they compress less well."""
_NO_LIMIT: Final = 1 << 62
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_BASE_OFFSET_BYTES: Final = 8
_LENGTH_AT: Final = 8
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_NULL: Final = encode_varlong(-1)
_NO_HEADERS: Final = b"\0"
_NO_ATTRIBUTES: Final = b"\0"


class RefusedSet(NamedTuple):
    """A message set of which nothing is sent. ``code``: for its client; one that Kafka 0.8 has."""

    code: ErrorCode
    reason: str


class _NotAcceptedError(Exception):
    """The set can be read, and may not be written."""


def raising(
    message_set: Buffer, *, arrival_ms: int, batch_bytes_max: int, unpacked_bytes_max: int
) -> Steps[list[Buffer] | RefusedSet]:
    """Return the records of a set as batches without a producer id, in order; empty: the set has none.

    ``arrival_ms``: the timestamp of messages of format v0, or ``MISSING_TIMESTAMP``. ``batch_bytes_max``: of a batch,
    unless a record alone is larger; a batch of format v2 that stands in the set keeps its size. ``unpacked_bytes_max``:
    of the wrappers in the set, decompressed, together.

    Nothing is returned before all of the set was read: a broker appends all of a set or nothing. Raises nothing for
    what the set contains: CORRUPT_MESSAGE (also where the end is cut off: the client believes that it sent it),
    MESSAGE_TOO_LARGE above a limit, INVALID_REQUEST for a batch of another producer id or with zstd.
    """
    reading = _Reading(arrival_ms, _BatchWriter(batch_bytes_max), unpacked_bytes_max)
    try:
        return (yield from reading.batches(memoryview(message_set)))
    except LimitExceeded as error:
        return RefusedSet(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    except WireError as error:
        return RefusedSet(ErrorCode.CORRUPT_MESSAGE, str(error))
    except _NotAcceptedError as error:
        return RefusedSet(ErrorCode.INVALID_REQUEST, str(error))


def splitting(batch: Buffer, batch_bytes_max: int, unpacked_bytes_max: int) -> Steps[list[Buffer]]:
    """Return the records of a batch without a producer id as several that are smaller; one record stays one batch.

    For a batch that a broker finds too large. At least two pieces, so repeating this comes to an end. Raises WireError.
    """
    view = memoryview(batch)
    header = parse_single_batch(view)
    if header.record_count == 1:
        return [batch]
    payload = yield from reading_payload(view, header, unpacked_bytes_max)
    share = min(_PACKED_SHARE * batch_bytes_max / header.size_bytes, 0.5)
    writer = _BatchWriter(batch_bytes_max)
    yield from writer.splitting(payload, header.base_timestamp, codec_of(header.codec), share)
    return writer.batches


class _Reading:
    """The way through one set."""

    def __init__(self, arrival_ms: int, writer: _BatchWriter, unpacked_bytes_max: int) -> None:
        self._arrival_ms = arrival_ms
        self._writer = writer
        self._room = unpacked_bytes_max
        self._messages_left = MESSAGES_PER_STEP
        self._bytes_left = STEP_BYTES

    def batches(self, view: memoryview) -> Steps[list[Buffer]]:
        position = 0
        while position < len(view):
            if _is_batch_at(view, position):
                position = yield from self._whole_batch(view, position)
            else:
                position = yield from self._messages(view, position, None)
        yield from self._writer.cutting()
        return self._writer.batches

    def _messages(self, view: memoryview, position: int, wrapper: ShallowMessage | None) -> Steps[int]:
        """Take the messages from ``position`` on, up to the end or a batch of format v2; return where they end.
        ``wrapper``: they are inside of it."""
        magic, is_packed = (-1, False) if wrapper is None else (wrapper.magic, True)
        while position < len(view):
            if wrapper is None and _is_batch_at(view, position):
                break
            end = self._writer.append_compiled(view, position, magic, self._arrival_ms, is_packed=is_packed)
            if end is not None:
                is_over = self._is_step_over(end - position)
                position = end
                if is_over:
                    yield
            else:
                position = yield from self._messages_in_python(view, position, wrapper)
        return position

    def _messages_in_python(self, view: memoryview, position: int, wrapper: ShallowMessage | None) -> Steps[int]:
        """Take some messages, at least one; return where they end. The checksums of those in a wrapper count as well:
        Kafka verifies them (``ensureValid``)."""
        data = view[position:]
        end = 0
        for message in iterate_shallow(data):
            if message.size_bytes > STEP_BYTES:
                yield from _verifying_large(data, message)
            else:
                verify_crc(data, message)
            if wrapper is not None and (message.magic != wrapper.magic or message.is_wrapper):
                raise Malformed(f"wrapper: magic {message.magic}, codec {message.codec} inside of {wrapper.magic}")
            if message.is_wrapper:
                yield from self._wrapper(message)
            else:
                timestamp = message.timestamp if message.magic else self._arrival_ms
                fields = (*_field(message.key), *_field(message.value), _NO_HEADERS)
                yield from self._writer.appending(timestamp, fields, is_packed=wrapper is not None)
            end = message.start + message.size_bytes
            if self._is_step_over(message.size_bytes):
                yield
            if RAISE_SET is not None or (wrapper is None and _is_batch_at(data, end)):
                break
        if not end:
            raise Truncated(f"message at {position}: {len(data)} bytes there, it is cut off")
        return position + end

    def _wrapper(self, message: ShallowMessage) -> Steps[None]:
        """Take the messages inside."""
        inside = yield from unpacking(message, self._room)
        if not inside:
            raise Malformed(f"wrapper at {message.start}: nothing is inside")
        self._room -= len(inside)
        self._messages_left -= _MESSAGES_PER_WRAPPER
        yield from self._writer.beginning_wrapper(codec_of(message.codec), message.size_bytes)
        yield from self._messages(memoryview(inside), 0, message)

    def _is_step_over(self, size_bytes: int) -> bool:
        """Count a message."""
        self._messages_left -= 1
        self._bytes_left -= size_bytes
        if self._messages_left > 0 and self._bytes_left > 0:
            return False
        self._messages_left, self._bytes_left = MESSAGES_PER_STEP, STEP_BYTES
        return True

    def _whole_batch(self, view: memoryview, position: int) -> Steps[int]:
        """Take a batch of format v2 as it is: Kafka 0.11 to 3.9 does so in any version of Produce."""
        left = len(view) - position
        size: int = SIZE_FIELDS_BYTES + _INT32.unpack_from(view, position + _LENGTH_AT)[0]
        if not BATCH_OVERHEAD_BYTES <= size <= left:
            raise Truncated(f"record batch at {position}: {size} bytes, {left} there")
        batch = bytearray(view[position : position + size])
        batch[:_BASE_OFFSET_BYTES] = bytes(_BASE_OFFSET_BYTES)  # outside of the checksum
        header = parse_single_batch(memoryview(batch))
        verify_crc_of_batch(memoryview(batch), header)
        if codec_of(header.codec) is Codec.ZSTD:  # Kafka refuses it below Produce 7 (KIP-110)
            raise _NotAcceptedError(f"record batch at {position}: it has zstd, which comes with Produce 7")
        if header.producer_id >= 0 or header.attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG):
            raise _NotAcceptedError(f"record batch at {position}: it is of a producer id or a transaction of its own")
        yield from self._writer.cutting()
        self._writer.batches.append(batch)
        if self._is_step_over(size):
            yield
        return position + size


def _is_batch_at(view: memoryview, position: int) -> bool:
    """Does a batch of format v2 begin here?"""
    return len(view) - position > MAGIC_AT and view[position + MAGIC_AT] == MAGIC


def _verifying_large(data: memoryview, message: ShallowMessage) -> Steps[None]:
    """Raise ChecksumMismatch unless the message's CRC-32 is right."""
    crc = 0
    end = message.start + message.size_bytes
    for start in range(message.start + OFFSET_AND_SIZE_BYTES + CRC_BYTES, end, STEP_BYTES):
        crc = isal_zlib.crc32(data[start : min(start + STEP_BYTES, end)], crc)
        yield
    if crc != message.crc:
        raise ChecksumMismatch(f"message at {message.start}: CRC-32 is not {message.crc:#010x}")


class _BatchWriter:
    """Batches that are finished, and the records of the next one."""

    def __init__(self, batch_bytes_max: int) -> None:
        self.batches: list[Buffer] = []
        self._batch_bytes_max = batch_bytes_max
        self._begin()

    def _begin(self) -> None:
        self._records = bytearray()
        self._count = 0
        self._base_timestamp = self._max_timestamp = MISSING_TIMESTAMP
        self._codec = Codec.NONE
        self._size_bytes = BATCH_OVERHEAD_BYTES
        """Of the batch, if its records compress as they did in their wrappers."""

    def beginning_wrapper(self, codec: Codec, size_bytes: int) -> Steps[None]:
        """The records of a wrapper of so many bytes come next. They stay together: they did fit into one message."""
        if self._count and self._size_bytes + size_bytes > self._batch_bytes_max:
            yield from self.cutting()
        self._codec = codec  # of several the last one, as Kafka's LogValidator has it
        self._size_bytes += size_bytes

    def append_compiled(
        self, view: memoryview, position: int, magic: int, arrival_ms: int, *, is_packed: bool
    ) -> int | None:
        """Append the records of usual messages from ``position`` on, as many as this batch has room for, a megabyte at
        most; return where they end. None: the next one is unusual or has no room, or nothing is compiled."""
        if RAISE_SET is None:
            return None
        batch = (self._count, self._base_timestamp, self._max_timestamp)
        room = _NO_LIMIT if is_packed else self._batch_bytes_max - self._size_bytes
        made = RAISE_SET.raise_part(view, position, magic, arrival_ms, *batch, room)
        if made is None:
            return None
        records, end, self._count, self._base_timestamp, self._max_timestamp = made
        self._size_bytes += 0 if is_packed else len(records)
        self._records += records
        return end

    def appending(self, timestamp: int, fields: Sequence[Buffer], *, is_packed: bool) -> Steps[None]:
        """Append a record. ``fields``: all that stands after its two deltas. ``is_packed``: it is from the wrapper that
        was begun; any other one begins a new batch where this one has no room."""
        size = sum(map(len, fields))
        if size > RECORD_BYTES_MAX:
            raise LimitExceeded(f"message: {size} bytes, the limit is {RECORD_BYTES_MAX} bytes")
        start = self._record_start(timestamp, size)
        if not is_packed:
            if self._count and self._size_bytes + len(start) + size > self._batch_bytes_max:
                yield from self.cutting()
                start = self._record_start(timestamp, size)
            self._size_bytes += len(start) + size
        if not self._count:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._count += 1
        self._records += start
        if size <= STEP_BYTES:
            self._records += b"".join(fields)
            return
        for field in fields:
            view = memoryview(field)
            for begin in range(0, len(view), STEP_BYTES):
                self._records += view[begin : begin + STEP_BYTES]
                yield

    def _record_start(self, timestamp: int, size: int) -> bytes:
        base = self._base_timestamp if self._count else timestamp
        deltas = encode_varlong(wrap_int64(timestamp - base)) + encode_varlong(self._count)
        return encode_varlong(len(_NO_ATTRIBUTES) + len(deltas) + size) + _NO_ATTRIBUTES + deltas

    def cutting(self) -> Steps[None]:
        """Finish the batch, if it has records: it becomes several if it is too large once it is compressed."""
        if not self._count:
            return
        records, count, codec = self._records, self._count, self._codec
        base_timestamp, max_timestamp = self._base_timestamp, self._max_timestamp
        self._begin()
        packed: Buffer = records
        if codec is not Codec.NONE:
            packed = yield from compressing(codec, records, magic=MAGIC)
        size = BATCH_OVERHEAD_BYTES + len(packed)
        if codec is not Codec.NONE and size > self._batch_bytes_max and count > 1:
            share = min(_PACKED_SHARE * self._batch_bytes_max / size, 0.5)
            yield from self.splitting(records, base_timestamp, codec, share)
            return
        self.batches.append((yield from _assembling(packed, count, base_timestamp, max_timestamp, codec)))

    def splitting(self, records: Buffer, base_timestamp: int, codec: Codec, share: float) -> Steps[None]:
        """Append the records of a batch, uncompressed, as several batches: each with this share of their bytes at most,
        unless one record has more. ``share``: a half at most, so that no batch gets all of them."""
        view = memoryview(records)
        piece_bytes = share * len(view)
        position, left = 0, MESSAGES_PER_STEP
        while position < len(view):
            length, start = read_varlong(view, position)
            end = start + length
            if not start < end <= len(view):
                raise Truncated(f"record at {position}: length {length}, {len(view) - start} bytes there")
            delta, start = read_varlong(view, start + len(_NO_ATTRIBUTES))
            _, start = read_varlong(view, start)
            if self._count and len(self._records) + end - position > piece_bytes:
                yield from self.cutting()
            self._codec = codec
            yield from self.appending(wrap_int64(base_timestamp + delta), (view[start:end],), is_packed=True)
            position = end
            left -= 1
            if not left:
                left = MESSAGES_PER_STEP
                yield
        yield from self.cutting()


def _field(data: Buffer | None) -> tuple[bytes, Buffer]:
    """The length of a key or value, and its bytes. In format v2 a length is a varint."""
    return (_NULL, b"") if data is None else (encode_varlong(len(data)), data)


def _assembling(
    packed: Buffer, count: int, base_timestamp: int, max_timestamp: int, codec: Codec
) -> Steps[bytes | bytearray]:
    """Return a batch, as ``batch_of`` makes it, of records that are compressed already."""
    if len(packed) <= STEP_BYTES:
        return batch_of(packed, count, base_timestamp, max_timestamp=max_timestamp, attributes=codec)
    batch = bytearray(batch_of(b"", count, base_timestamp, max_timestamp=max_timestamp, attributes=codec))
    crc = crc32c(batch[_ATTRIBUTES_AT:])
    view = memoryview(packed)
    for start in range(0, len(view), STEP_BYTES):
        part = view[start : start + STEP_BYTES]
        crc = crc32c(part, crc)
        batch += part
        yield
    _INT32.pack_into(batch, _LENGTH_AT, len(batch) - SIZE_FIELDS_BYTES)
    _UINT32.pack_into(batch, _CRC_AT, crc)
    return batch
