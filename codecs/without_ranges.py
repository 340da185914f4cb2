"""A message set without some of its records, as a compacted log would have it: the others keep their offsets.

Owns which bytes stay. A record is left out only if its message has the offset and the checksum that a proxy has noted
for the range: a topic that was deleted and recreated loses nothing. Reads formats v0 and v1; from a message of another
format on everything stays. Source: Kafka's LogCleaner (offsets stay when messages go); KIP-31 (offsets inside a
wrapper).
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from .compression import Codec, codec_of, compress, store_gzip
from .errors import WireError
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
from .primitives import Buffer
from .steps import at_once

_OFFSET_SIZE_CRC_MAGIC: Final = Struct(">qiIB")
_MAGIC_MAX: Final = 1
_MESSAGE_BYTES_MIN: Final = OVERHEAD_BYTES[0]


class Ranges(NamedTuple):
    """``spans``: offsets from the first up to, and without, the second. ``messages``: offset -> (CRC-32, offset of its
    first record) of every message that has records in them, as it stands in the log; a wrapper's offset is that of its
    last record. ``last_offset``: of these messages."""

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
    while len(records) - position >= _MESSAGE_BYTES_MIN:
        offset, size, crc, magic = _OFFSET_SIZE_CRC_MAGIC.unpack_from(records, position)
        end = position + OFFSET_AND_SIZE_BYTES + size
        is_no_message = size < _MESSAGE_BYTES_MIN - OFFSET_AND_SIZE_BYTES
        if offset > last_offset or magic > _MAGIC_MAX or is_no_message:
            is_any_left |= is_no_message or end <= len(records)
            break
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
    """Return a wrapper of those records that are not in the ranges; empty if there are none. None: the message stays as
    it is, because it is no wrapper or cannot be read."""
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
