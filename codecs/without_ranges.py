"""A message set without some of its records, as a compacted log would have it: the others keep their offsets.

Owns which bytes stay. A record is left out only if its message, or batch of format v2, has the offset and the checksum
that a proxy has noted for the range: a topic that was deleted and recreated loses nothing. From a message of an unknown
format on everything stays. Source: Kafka's LogCleaner (offsets stay when messages go; a batch keeps its base offset and
last offset delta); KIP-31 (offsets inside a wrapper).
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from .compression import Codec, codec_of, compress, store_gzip
from .errors import Malformed, WireError
from .message_set import (
    OFFSET_AND_SIZE_BYTES,
    OVERHEAD_BYTES,
    ShallowMessage,
    encode_message,
    iterate_inside,
    iterate_shallow,
    shift_of,
    unpacking,
)
from .primitives import Buffer, read_varlong
from .record_batch import (
    BATCH_OVERHEAD_BYTES,
    CRC_AT,
    HEADER,
    MAGIC,
    MAGIC_AT,
    SIZE_FIELDS_BYTES,
    BatchHeader,
    payload_of,
    sign,
)
from .steps import at_once

_OFFSET_SIZE_CRC_MAGIC: Final = Struct(">qiIB")
_CRC_ATTRIBUTES_DELTA: Final = Struct(">Ihi")
CUT_BYTES_MAX: Final = OVERHEAD_BYTES[0]
"""The size of the smallest message: fewer bytes are one that was cut off."""


class Entry(NamedTuple):
    """A message, or a batch of format v2, in what was fetched. ``offset``: of its last record. ``end``: the position
    after it, which may be after the end of the data. ``crc``: -1 if that was cut off."""

    offset: int
    end: int
    crc: int


def entry_at(records: Buffer, position: int) -> Entry | None:
    """Return what lies there, by its first bytes; None: too few are there, or it is none of these."""
    left = len(records) - position
    if left < CUT_BYTES_MAX:
        return None
    offset, size, crc, magic = _OFFSET_SIZE_CRC_MAGIC.unpack_from(records, position)
    end = position + OFFSET_AND_SIZE_BYTES + size
    if magic < MAGIC:
        return Entry(offset, end, crc) if size >= CUT_BYTES_MAX - OFFSET_AND_SIZE_BYTES else None
    if magic > MAGIC or size < BATCH_OVERHEAD_BYTES - OFFSET_AND_SIZE_BYTES:
        return None
    if left < BATCH_OVERHEAD_BYTES:
        return Entry(offset, end, -1)
    crc, _, last_offset_delta = _CRC_ATTRIBUTES_DELTA.unpack_from(records, position + CRC_AT)
    return Entry(offset + last_offset_delta, end, crc)


class Ranges(NamedTuple):
    """``spans``: offsets from the first up to, and without, the second. ``messages``: offset -> (CRC-32, offset of its
    first record) of every message that has records in them, as it stands in the log; the offset of a wrapper or a
    batch is that of its last record, and a batch has a CRC-32C. ``last_offset``: of these messages."""

    spans: tuple[tuple[int, int], ...]
    messages: Mapping[int, tuple[int, int]]
    last_offset: int

    def have(self, first: int, last: int) -> bool:
        """Are the offsets from ``first`` to ``last`` (inclusive) all in one of the spans?"""
        return any(start <= first and last < end for start, end in self.spans)


class Left(NamedTuple):
    """``records``: what is left, in pieces. ``skipped_to``: if no message is left, the offset to be read next; else
    -1."""

    records: tuple[Buffer, ...]
    skipped_to: int = -1


def without_ranges(records: memoryview, ranges: Ranges, output_bytes_max: int) -> Left:
    """Return the set without the records in these ranges. ``output_bytes_max``: of one wrapper, decompressed. What
    cannot be read stays as it is; a message that was cut off at the end stays if another one does."""
    noted, last_offset = ranges.messages, ranges.last_offset
    kept: list[Buffer] = []
    position = start = 0
    skipped_to = -1
    is_any_left = False
    while len(records) - position >= CUT_BYTES_MAX:
        entry = entry_at(records, position)
        if entry is None or entry.offset > last_offset:
            is_any_left |= entry is None or entry.end <= len(records)
            break
        offset, end, crc = entry
        if end > len(records):
            break
        instead: Buffer | None = None
        checksum, first = noted.get(offset, (-1, offset))
        if checksum == crc:
            is_whole = ranges.have(first, offset)
            instead = b"" if is_whole else _outside(records[position:end], ranges, output_bytes_max)
        if instead is not None:
            kept += (records[start:position], instead)
            start, skipped_to = end, offset + 1
        is_any_left |= instead is None or bool(instead)
        position = end
    if skipped_to < 0:
        return Left((records,))
    if not is_any_left:
        return Left((), skipped_to)
    return Left(tuple(chunk for chunk in (*kept, records[start:]) if len(chunk)))


def _outside(message: memoryview, ranges: Ranges, output_bytes_max: int) -> Buffer | None:
    """Return a wrapper, or batch, of those records that are not in the ranges; empty if there are none. None: the
    message stays as it is, because it is no wrapper or cannot be read."""
    if message[MAGIC_AT] == MAGIC:
        try:
            return _batch_outside(message, ranges, output_bytes_max)
        except WireError:
            return None
    try:
        shallow = next(iterate_shallow(message))
        if not shallow.is_wrapper:
            return None
        inside = memoryview(at_once(unpacking(shallow, output_bytes_max)))
        inner = list(iterate_inside(shallow, inside))
    except WireError:
        return None
    shift = shift_of(shallow, inner[-1].offset)
    stays = [one for one in inner if not ranges.have(one.offset + shift, one.offset + shift)]
    if not stays:
        return b""
    data = b"".join(inside[one.start : one.start + one.size_bytes] for one in stays)
    return _wrapped_again(shallow, data, stays[-1].offset + shift)


def _batch_outside(batch: memoryview, ranges: Ranges, output_bytes_max: int) -> Buffer:
    """Return a batch of those records that are not in the ranges, as a compacted log has it. Raises WireError."""
    fields = HEADER.unpack_from(batch)
    header = BatchHeader(len(batch), *fields[4:])
    payload = memoryview(payload_of(batch, header, output_bytes_max))
    stays: list[memoryview] = []
    position = 0
    for _ in range(header.record_count):
        length, at = read_varlong(payload, position)
        end = at + length
        if not at < end <= len(payload):
            raise Malformed(f"record at {position}: length {length}")
        _, at = read_varlong(payload, at + 1)  # after the attributes: the time
        delta, _ = read_varlong(payload, at)
        offset = fields[0] + delta
        if not ranges.have(offset, offset):
            stays.append(payload[position:end])
        position = end
    if not stays:
        return b""
    data = compress(codec_of(header.codec), b"".join(stays), magic=MAGIC)
    made = bytearray(batch[:BATCH_OVERHEAD_BYTES]) + data
    HEADER.pack_into(made, 0, fields[0], len(made) - SIZE_FIELDS_BYTES, *fields[2:-1], len(stays))
    sign(made)
    return made


def _wrapped_again(wrapper: ShallowMessage, inside: bytes, offset: int) -> bytes:
    """Return a wrapper around ``inside``, messages that were in ``wrapper``, with its key, time and codec. ``offset``:
    of the last one."""
    codec = codec_of(wrapper.codec)
    return encode_message(
        wrapper.key,
        store_gzip(inside) if codec is Codec.GZIP else compress(codec, inside, magic=wrapper.magic),
        magic=wrapper.magic,
        offset=offset,
        timestamp=wrapper.timestamp,
        codec=codec,
        log_append_time=wrapper.is_log_append_time,
    )
