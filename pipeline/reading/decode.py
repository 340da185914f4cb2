"""Bytes of a log, as fetched or as in a segment file, taken apart into containers: what stands in the log as one entry.

Formats v0, v1 (wrappers with or without a marker) and v2. The bytes are hostile until they are checked: every length is
looked at before it is used, and what is unpacked has a limit. Pure; owns no socket and no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from ...codecs import message_set, record_batch
from ...codecs.errors import ChecksumMismatch, Malformed, Truncated, WireError
from ...codecs.marker import Identity, parse_marker
from ...codecs.message_set import ShallowMessage
from ...codecs.primitives import Buffer, read_varlong, wrap_int64
from ...codecs.record_batch import BatchHeader
from ...codecs.steps import at_once

Array = NDArray[Any]

LOG_APPEND_TIME: Final = 1
"""In ``flags``: the timestamp is the broker's, not the one at which the record was made."""
UNPACKED_BYTES_MAX: Final = 256 << 20
"""Of one wrapper or batch: four times what the proxy takes. gzip reaches 1000:1, so what is stored bounds nothing."""
ENTRY_BYTES_MIN: Final = 14
"""Of a message's size field: checksum, magic, attributes, two lengths."""

_SIZE_AT: Final = 8
_SIZE_FIELDS: Final = message_set.OFFSET_AND_SIZE_BYTES
_MAGIC_AT: Final = 16
_KEY_AT: Final = {0: 18, 1: 26}
"""Where the key's length stands in a message, by magic. From there to its end goes what is compared and hashed."""
_TIMESTAMP_AT: Final = 18
_CRC_AT: Final = 12
_INT32: Final = Struct(">i")
_int32_at: Final = _INT32.unpack_from
_INT64: Final = Struct(">q")
_EMPTY: Final = np.empty(0, np.int64)


class Piece(NamedTuple):
    """Records of one producer that follow each other. ``first``: the offset of the first one."""

    identity: Identity
    first: int


@dataclass(frozen=True, slots=True)
class Container:
    """A wrapper, a batch, or plain messages that follow each other. It covers the offsets ``first`` to ``last``, and
    has records at ``offsets``, which increase. ``contents``: of each record the lengths and bytes of its key and value,
    in every format the same, and its headers if it has any. ``unreadable``: why there are none. ``is_control``: no
    records, but marks of transactions. ``is_plain``: plain messages, each of which can be taken without the others."""

    first: int
    last: int
    offsets: Array
    timestamps: Array
    contents: Sequence[Buffer]
    pieces: tuple[Piece, ...] = ()
    flags: int = 0
    unreadable: str = ""
    is_control: bool = False
    is_plain: bool = False

    def between(self, start: int, end: int) -> Container | None:
        """Return plain messages without those below ``start`` and those from ``end`` on; None if no one is left."""
        assert self.is_plain
        if start <= self.first and self.last < end:
            return self
        if self.unreadable:
            return replace(self, first=max(self.first, start), last=min(self.last, end - 1))
        begin, behind = np.searchsorted(self.offsets, (start, end)).tolist()
        offsets = self.offsets[begin:behind]
        if not len(offsets):
            return None
        return replace(
            self,
            first=int(offsets[0]),
            last=int(offsets[-1]),
            offsets=offsets,
            timestamps=self.timestamps[begin:behind],
            contents=self.contents[begin:behind],
        )


class Broken(Exception):
    """No entry can be found any more from this place on. ``position``: in the bytes."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


def entries(data: Buffer) -> tuple[Array, int]:
    """Return where the whole entries begin, and where the last one ends. Raises Broken at a size that cannot be."""
    positions: list[int] = []
    append = positions.append
    position, end = 0, len(data)
    while position + _SIZE_FIELDS <= end:
        (size,) = _int32_at(data, position + _SIZE_AT)
        if size < ENTRY_BYTES_MIN:
            raise Broken(position, f"an entry of size {size}")
        following = position + _SIZE_FIELDS + size
        if following > end:
            break
        append(position)
        position = following
    return np.array(positions, np.int64), position


def containers(data: Buffer) -> Iterator[Container]:
    """Yield what is whole in the data, in order; what is cut off at the end is left.

    A container that cannot be read is yielded as such. Raises Broken behind the last one that can be found.
    """
    broken = None
    try:
        starts, end = entries(data)
    except Broken as error:
        broken = error
        starts, end = entries(memoryview(data)[: error.position])
    if len(starts):
        view, octets = memoryview(data), np.frombuffer(data, np.uint8)
        ends = np.append(starts[1:], end)
        magics, attributes = octets[starts + _MAGIC_AT], octets[starts + _MAGIC_AT + 1]
        is_alone = (magics >= record_batch.MAGIC) | (attributes & message_set.CODEC_MASK != 0)
        # Plain messages of one kind are taken at once; everything else is a block of its own.
        is_border = is_alone[1:] | is_alone[:-1] | (magics[1:] != magics[:-1]) | (attributes[1:] != attributes[:-1])
        borders = np.concatenate(([0], np.flatnonzero(is_border) + 1, [len(starts)]))
        for begin, behind in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            if magics[begin] > record_batch.MAGIC:
                raise Broken(int(starts[begin]), f"an entry of magic {int(magics[begin])}")
            if is_alone[begin]:
                yield _one(view[int(starts[begin]) : int(ends[begin])], int(magics[begin]))
            else:
                yield from _plain(view, octets, starts[begin:behind], ends[begin:behind], int(magics[begin]))
    if broken is not None:
        raise broken


def first_size(data: Buffer) -> int:
    """Return the bytes of the first entry, whole or not; 0 if not even its size is there."""
    return _SIZE_FIELDS + _int32_at(data, _SIZE_AT)[0] if len(data) >= _SIZE_FIELDS else 0


# ------------------------------------------------------------------ formats v0 and v1
def _plain(view: memoryview, octets: Array, starts: Array, ends: Array, magic: int) -> Iterator[Container]:
    """Yield plain messages; those that are damaged come as containers of their own."""
    is_whole = _checksums_fit(view, starts, ends, octets)
    borders = np.concatenate(([0], np.flatnonzero(is_whole[1:] != is_whole[:-1]) + 1, [len(starts)]))
    offsets = integers(octets, starts, ">i8")
    for begin, behind in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        part = slice(begin, behind)
        try:
            if not is_whole[begin]:
                raise ChecksumMismatch("the checksum does not fit")
            found = _messages(view, octets, starts[part], ends[part], offsets[part], magic)
        except WireError as error:
            found = _unreadable(int(offsets[begin]), int(offsets[behind - 1]), str(error))
        yield replace(found, is_plain=True)


def _messages(view: memoryview, octets: Array, starts: Array, ends: Array, offsets: Array, magic: int) -> Container:
    key_at = starts + _KEY_AT[magic]
    _check_fields(octets, key_at, ends, offsets)
    _check_order(offsets)
    stamped = magic == 1
    timestamps = integers(octets, starts + _TIMESTAMP_AT, ">i8") if stamped else np.full(len(starts), -1)
    attributes = int(octets[starts[0] + _MAGIC_AT + 1])
    contents = [view[begin:end] for begin, end in zip(key_at.tolist(), ends.tolist(), strict=True)]
    flags = LOG_APPEND_TIME if stamped and attributes & message_set.LOG_APPEND_TIME_FLAG else 0
    return Container(int(offsets[0]), int(offsets[-1]), offsets, timestamps, contents, flags=flags)


def _check_fields(octets: Array, key_at: Array, ends: Array, offsets: Array) -> None:
    """Raise Malformed unless key and value end where their message ends."""
    fits = np.ones(len(ends), bool)
    value_at, fits = _behind_field(octets, key_at, ends, fits)
    behind, fits = _behind_field(octets, value_at, ends, fits)
    fits &= behind == ends
    if not fits.all():
        raise Malformed(f"message at offset {int(offsets[np.argmin(fits)])}: its fields do not fit into it")


def _behind_field(octets: Array, at: Array, ends: Array, fits: Array) -> tuple[Array, Array]:
    """Return where the fields that begin there end, and of which messages that is true so far."""
    fits = fits & (at + 4 <= ends)
    lengths = np.full(len(at), -2)
    lengths[fits] = integers(octets, at[fits], ">i4")
    return at + 4 + np.maximum(lengths, 0), fits & (lengths >= -1)


def _check_order(offsets: Array) -> None:
    if (offsets < 0).any() or (np.diff(offsets) <= 0).any():
        raise Malformed("offsets do not increase")


def _checksums_fit(view: memoryview, starts: Array, ends: Array, octets: Array) -> Array:
    crc32 = isal_zlib.crc32
    behind = _CRC_AT + message_set.CRC_BYTES
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    found = np.fromiter((crc32(view[begin + behind : end]) for begin, end in spans), np.int64, len(starts))
    fits: Array = found == integers(octets, starts + _CRC_AT, ">u4")
    return fits


def integers(octets: Array, at: Array, dtype: str) -> Array:
    """Return the integers that stand at these places."""
    width = np.dtype(dtype).itemsize
    gathered = octets[at[:, None] + np.arange(width)]
    return gathered.view(dtype)[:, 0].astype(np.int64)


def _one(entry: memoryview, magic: int) -> Container:
    """Return a wrapper or a batch."""
    if magic == record_batch.MAGIC:
        return _batch(entry)
    offset = _INT64.unpack_from(entry)[0]
    try:
        (message,) = message_set.iterate_shallow(entry)
        message_set.verify_crc(entry, message)
        return _wrapper(message)
    except WireError as error:
        return _unreadable(offset, offset, str(error))


def _wrapper(message: ShallowMessage) -> Container:
    inner = at_once(message_set.unpacking(message, UNPACKED_BYTES_MAX))
    try:
        starts, end = entries(inner)
    except Broken as error:
        raise Malformed(f"wrapper at offset {message.offset}: inside it {error}") from None
    if not len(starts) or end != len(inner):
        raise Malformed(f"wrapper at offset {message.offset}: no whole messages inside")
    view, octets = memoryview(inner), np.frombuffer(inner, np.uint8)
    magics, attributes = octets[starts + _MAGIC_AT], octets[starts + _MAGIC_AT + 1]
    if (magics != message.magic).any() or (attributes & message_set.CODEC_MASK).any():
        raise Malformed(f"wrapper at offset {message.offset}: other formats inside")
    offsets = integers(octets, starts, ">i8")
    if message.magic:  # relative, and the wrapper's own is the last one's
        offsets = offsets + (message.offset - int(offsets[-1]))
    if int(offsets[-1]) != message.offset:
        raise Malformed(f"wrapper at offset {message.offset}: the last offset inside is {int(offsets[-1])}")
    ends = np.append(starts[1:], end)
    found = _messages(view, octets, starts, ends, offsets, message.magic)
    timestamps, flags = found.timestamps, found.flags
    if message.magic and message.is_log_append_time:
        timestamps, flags = np.full(len(starts), message.timestamp), LOG_APPEND_TIME
    pieces = pieces_of(parse_marker(message.key), message.offset)
    first = min(pieces[0].first, found.first) if pieces else found.first
    return Container(first, message.offset, offsets, timestamps, found.contents, pieces, flags)


def pieces_of(identities: Sequence[Identity] | None, last: int) -> tuple[Piece, ...]:
    """Return where each batch of a marker begins: the last one ends at the wrapper's own offset."""
    if not identities:
        return ()
    first = last + 1 - sum(identity.record_count for identity in identities)
    if first < 0:
        return ()  # no wrapper of ours
    pieces = []
    for identity in identities:
        pieces.append(Piece(identity, first))
        first += identity.record_count
    return tuple(pieces)


# ------------------------------------------------------------------ format v2
def _batch(entry: memoryview) -> Container:
    if len(entry) < record_batch.BATCH_OVERHEAD_BYTES:
        offset = _INT64.unpack_from(entry)[0]
        return _unreadable(offset, offset, f"a batch of {len(entry)} bytes")
    base, *fields = record_batch.HEADER.unpack_from(entry)
    header = BatchHeader(len(entry), *fields[3:])
    last = base + header.last_offset_delta
    try:
        if base < 0 or header.last_offset_delta < 0 or header.record_count < 0:
            raise Malformed("offsets or a count below zero")
        record_batch.verify_crc(entry, header)
        if header.attributes & record_batch.CONTROL_FLAG or not header.record_count:
            return Container(base, last, _EMPTY, _EMPTY, (), _batch_piece(header, base), is_control=True)
        return _batch_records(entry, header, base)
    except WireError as error:
        return _unreadable(base, max(base, last), str(error))


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
    _check_order(offsets)
    last = base + header.last_offset_delta
    if offsets[0] < base or offsets[-1] > last:
        raise Malformed("records lie outside of their batch")
    if header.is_log_append_time:
        times, flags = np.full(len(deltas), header.max_timestamp), LOG_APPEND_TIME
    else:
        times = np.array([wrap_int64(header.base_timestamp + delta) for delta in timestamps], np.int64)
        flags = 0
    return Container(base, last, offsets, times, contents, _batch_piece(header, base), flags)


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


def _unreadable(first: int, last: int, reason: str) -> Container:
    return Container(first, max(first, last), _EMPTY, _EMPTY, (), unreadable=reason)
