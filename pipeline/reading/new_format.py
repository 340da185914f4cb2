"""Batches of format v2. Pure; every length is looked at before it is used."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from ...codecs import record_batch
from ...codecs.batch_marker import Identity
from ...codecs.errors import Malformed, Truncated, WireError
from ...codecs.header_marker import read_header_marker
from ...codecs.primitives import VARLONG_BYTES_MAX, Buffer, read_varlong
from ...codecs.record_batch import BatchHeader
from .container import LOG_APPEND_TIME, NO_OFFSETS, UNPACKED_BYTES_MAX, Container, Piece, check_order, unreadable
from .contents import NO_CONTENTS, Array, Contents, Fields, SplitContents, StoredContents

TOGETHER_RECORDS_MIN: Final = 32
"""Records from which on a batch is decoded with arrays, which take some 80 us; one by one a record takes 2.5 us."""
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
            where = base, last, NO_OFFSETS, NO_OFFSETS, NO_CONTENTS, _batch_piece(header, base)
            return Container(*where, is_control=True, marker=read_header_marker(header))
        return _batch_records(entry, header, base)
    except WireError as error:
        return unreadable(base, max(base, last), str(error))


def _batch_records(entry: memoryview, header: BatchHeader, base: int) -> Container:
    payload = bytes(record_batch.payload_of(entry, header, UNPACKED_BYTES_MAX))
    found = together(payload, header.record_count) if header.record_count >= TOGETHER_RECORDS_MIN else None
    found = found or one_by_one(payload, header.record_count)
    offsets = found.deltas + base
    check_order(offsets)
    last = base + header.last_offset_delta
    if offsets[0] < base or offsets[-1] > last:
        raise Malformed("records lie outside of their batch")
    if header.is_log_append_time:
        times, flags = np.full(len(offsets), header.max_timestamp), LOG_APPEND_TIME
    else:
        times, flags = found.timestamp_deltas + header.base_timestamp, 0  # as Kafka's, they wrap at 64 bits
    pieces, marker = _batch_piece(header, base), read_header_marker(header)
    return Container(base, last, offsets, times, found.contents, pieces, flags, marker=marker)


class Found(NamedTuple):
    """The records of a batch."""

    deltas: Array
    timestamp_deltas: Array
    contents: Contents


class _Unusual(Exception):
    """Something that arrays cannot decode: the records are decoded one by one, which also tells what is wrong."""


def together(payload: bytes, count: int) -> Found | None:
    """Return so many records, decoded with arrays; None if anything is unusual about one of them."""
    octets = np.frombuffer(payload + bytes(VARLONG_BYTES_MAX), np.uint8)  # so that no number goes beyond the end
    try:
        begins, ends = _borders(payload, count)
        timestamps, at = _numbers(octets, begins + 1)
        deltas, at = _numbers(octets, np.minimum(at, ends))
        key_sizes, key_at = _numbers(octets, np.minimum(at, ends))
        value_sizes, value_at = _numbers(octets, _behind(key_at, key_sizes, ends))
        headers_at = _behind(value_at, value_sizes, ends)
        counts, behind = _numbers(octets, headers_at)
    except (_Unusual, IndexError, WireError):
        return None
    if ((behind > ends) | (counts < 0) | ((counts == 0) != (behind == ends))).any():
        return None
    fields = Fields(payload, key_at, key_sizes, value_at, value_sizes, np.where(counts, headers_at, ends), ends)
    return Found(deltas, timestamps, SplitContents(fields))


def _borders(payload: bytes, count: int) -> tuple[Array, Array]:
    """Return where the records begin, after their lengths, and where they end."""
    begins, ends = [], []
    position = 0
    for _ in range(count):
        byte = payload[position]
        if byte < 0x80:
            begin = position + 1
        else:
            second = payload[position + 1]
            if second < 0x80:
                byte, begin = byte & 0x7F | second << 7, position + 2
            else:
                value, begin = read_varlong(payload, position)
                byte = 2 * value if value > 0 else 1
        if byte & 1 or not byte:  # below zero, or zero
            raise _Unusual
        position = begin + (byte >> 1)
        begins.append(begin)
        ends.append(position)
    if position != len(payload):
        raise _Unusual
    return np.array(begins, np.int64), np.array(ends, np.int64)


def _behind(at: Array, sizes: Array, ends: Array) -> Array:
    behind: Array = at + np.maximum(sizes, 0)
    if ((sizes < -1) | (sizes > ends) | (behind > ends)).any():
        raise _Unusual
    return behind


def _numbers(octets: Array, at: Array) -> tuple[Array, Array]:
    """Return the varints that begin there, and the positions after them."""
    byte = octets[at]
    value = (byte & 0x7F).astype(np.uint64)
    behind = at + 1
    more = np.flatnonzero(byte >= 0x80)
    for shift in range(7, 63, 7):
        if not len(more):
            break
        byte = octets[behind[more]]
        value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[more] += 1
        more = more[byte >= 0x80]
    if len(more):
        raise _Unusual  # more than nine bytes
    signed: Array = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
    return signed, behind


def one_by_one(payload: bytes, count: int) -> Found:
    """Return so many records. Raises WireError."""
    deltas, timestamps, contents = [], [], []
    position = 0
    for _ in range(count):
        try:
            position, delta, timestamp, content = _record(payload, position)
        except IndexError:
            raise Truncated(f"record at {position}: the batch ends within it") from None
        deltas.append(delta)
        timestamps.append(timestamp)
        contents.append(content)
    if position != len(payload):
        raise Malformed(f"{len(payload) - position} bytes after the last record")
    return Found(np.array(deltas, np.int64), np.array(timestamps, np.int64), StoredContents.of(contents))


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return (value, position after it); most have one byte. Raises IndexError, WireError."""
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
