"""Batches of format v2. Pure; every length is looked at before it is used."""

from __future__ import annotations

from struct import Struct
from typing import Final

import numpy as np

from ...codecs import record_batch
from ...codecs.errors import Malformed, Truncated, WireError
from ...codecs.marker import Identity
from ...codecs.primitives import Buffer, read_varlong, wrap_int64
from ...codecs.record_batch import BatchHeader
from .container import LOG_APPEND_TIME, NO_OFFSETS, UNPACKED_BYTES_MAX, Container, Piece, check_order, unreadable
from .contents import NO_CONTENTS, Contents

_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


def batch_container(entry: memoryview) -> Container:
    if len(entry) < record_batch.BATCH_OVERHEAD_BYTES:
        offset = _INT64.unpack_from(entry)[0]
        return unreadable(offset, offset, f"a batch of {len(entry)} bytes")
    base, *fields = record_batch.HEADER.unpack_from(entry)
    header = BatchHeader(len(entry), *fields[3:])
    last = base + header.last_offset_delta
    try:
        if base < 0 or header.last_offset_delta < 0 or header.record_count < 0:
            raise Malformed("offsets or a count below zero")
        record_batch.verify_crc(entry, header)
        if header.attributes & record_batch.CONTROL_FLAG or not header.record_count:
            return Container(
                base, last, NO_OFFSETS, NO_OFFSETS, NO_CONTENTS, _batch_piece(header, base), is_control=True
            )
        return _batch_records(entry, header, base)
    except WireError as error:
        return unreadable(base, max(base, last), str(error))


def _batch_records(entry: memoryview, header: BatchHeader, base: int) -> Container:
    payload = bytes(record_batch.payload_of(entry, header, UNPACKED_BYTES_MAX))
    deltas, timestamps, contents = [], [], []
    position = 0
    for _ in range(header.record_count):
        try:
            position, delta, timestamp, content = _record(payload, position)
        except IndexError:
            raise Truncated(f"record at {position}: the batch ends within it") from None
        deltas.append(delta)
        timestamps.append(timestamp)
        contents.append(content)
    if position != len(payload):
        raise Malformed(f"{len(payload) - position} bytes behind the last record")
    offsets = np.array(deltas, np.int64) + base
    check_order(offsets)
    last = base + header.last_offset_delta
    if offsets[0] < base or offsets[-1] > last:
        raise Malformed("records lie outside of their batch")
    if header.is_log_append_time:
        times, flags = np.full(len(deltas), header.max_timestamp), LOG_APPEND_TIME
    else:
        times = np.array([wrap_int64(header.base_timestamp + delta) for delta in timestamps], np.int64)
        flags = 0
    return Container(base, last, offsets, times, Contents.of(contents), _batch_piece(header, base), flags)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (value, position behind it); most have one byte. Raises IndexError, WireError."""
    byte = data[position]
    return ((byte >> 1) ^ -(byte & 1), position + 1) if byte < 0x80 else read_varlong(data, position)


def _record(payload: bytes, position: int) -> tuple[int, int, int, bytes]:
    """Return (where the record ends, offset delta, timestamp delta, content). Raises IndexError, WireError."""
    length, position = _varint(payload, position)
    end = position + length
    if not position < end <= len(payload):
        raise Malformed(f"record at {position}: length {length}")
    timestamp, position = _varint(payload, position + 1)
    delta, position = _varint(payload, position)
    chunks: list[Buffer] = []
    for _ in range(2):
        size, position = _varint(payload, position)
        if not -1 <= size <= end - position:
            raise Malformed(f"record at {position}: a field of {size} bytes")
        chunks.append(_INT32.pack(size))
        if size > 0:
            chunks.append(payload[position : position + size])
            position += size
    count, behind_count = _varint(payload, position)
    if position > end or behind_count > end or count < 0 or (count == 0) != (behind_count == end):
        raise Malformed(f"record at {position}: {count} headers")
    if count:  # as they stand; two records with equal headers have equal bytes
        chunks.append(payload[position:end])
    return end, delta, timestamp, b"".join(chunks)


def _batch_piece(header: BatchHeader, base: int) -> tuple[Piece, ...]:
    if header.producer_id < 0 or header.base_sequence < 0 or header.producer_epoch < 0:
        return ()
    count = header.last_offset_delta + 1
    return (Piece(Identity(header.producer_id, header.producer_epoch, header.base_sequence, count), base),)
