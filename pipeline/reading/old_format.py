"""Messages of the formats v0 and v1: plain ones, and wrappers with or without a batch marker, many at once. Pure.

The bytes are hostile until they are checked: every length is looked at before it is used, and what is unpacked has a
limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
from isal import isal_zlib

from ...codecs import message_set
from ...codecs.batch_marker import parse_batch_marker
from ...codecs.compression import Codec
from ...codecs.errors import ChecksumMismatch, Malformed, WireError
from ...codecs.message_set import ShallowMessage
from ...codecs.primitives import Buffer
from ...codecs.steps import at_once
from .container import (
    LOG_APPEND_TIME,
    MAGIC_AT,
    UNPACKED_BYTES_MAX,
    Broken,
    Container,
    check_order,
    entries,
    pieces_of,
    unreadable,
)
from .contents import Array, Contents, StoredContents, integers

TOGETHER_BYTES_MAX: Final = 8 << 20
"""Bytes of unpacked wrappers that are decoded together: enough for arrays to pay off, and little memory."""
KEY_AT: Final = {0: 18, 1: 26}
"""Where the key's length stands in a message, by magic. From there to its end goes what is compared and hashed."""
TIMESTAMP_AT: Final = 18
CRC_AT: Final = 12
_INT64: Final = Struct(">q")
_GZIP_START: Final = b"\x1f\x8b\x08\0"
"""Deflate, no optional fields."""
_STORED_BLOCK: Final = Struct("<BHH")
"""The header of a stored block: whether it is the last one, its size, and the size inverted (RFC 1951, 3.2.4)."""
_STORED_AT: Final = 10 + _STORED_BLOCK.size
_GZIP_TRAILER: Final = Struct("<II")
"""CRC-32 and size of the content."""


def plain_containers(view: memoryview, octets: Array, starts: Array, ends: Array, magic: int) -> Iterator[Container]:
    """Yield plain messages; those that are damaged come as containers of their own."""
    is_whole = checksums_fit(view, starts, ends)
    borders = np.concatenate(([0], np.flatnonzero(is_whole[1:] != is_whole[:-1]) + 1, [len(starts)]))
    offsets = integers(view, starts, ">i8")
    for begin, behind in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        part = slice(begin, behind)
        try:
            if not is_whole[begin]:
                raise ChecksumMismatch("the checksum does not fit")
            found = _messages(view, octets, starts[part], ends[part], offsets[part], magic)
        except WireError as error:
            found = unreadable(int(offsets[begin]), int(offsets[behind - 1]), str(error))
        yield replace(found, is_plain=True)


def _messages(view: memoryview, octets: Array, starts: Array, ends: Array, offsets: Array, magic: int) -> Container:
    key_at = starts + KEY_AT[magic]
    _check_fields(view, key_at, ends, offsets)
    check_order(offsets)
    stamped = magic == 1
    timestamps = integers(view, starts + TIMESTAMP_AT, ">i8") if stamped else np.full(len(starts), -1)
    attributes = int(octets[starts[0] + MAGIC_AT + 1])
    flags = LOG_APPEND_TIME if stamped and attributes & message_set.LOG_APPEND_TIME_FLAG else 0
    contents = StoredContents(view, key_at, ends)
    return Container(int(offsets[0]), int(offsets[-1]), offsets, timestamps, contents, flags=flags)


def _check_fields(data: Buffer, key_at: Array, ends: Array, offsets: Array) -> None:
    """Raise Malformed unless key and value end where their message ends."""
    fits = fields_fit(data, key_at, ends)
    if not fits.all():
        raise Malformed(f"message at offset {int(offsets[np.argmin(fits)])}: its fields do not fit into it")


def fields_fit(data: Buffer, key_at: Array, ends: Array) -> Array:
    """Return of each message whether its key and value end where it ends."""
    value_at, fits = _behind_field(data, key_at, ends, np.ones(len(ends), bool))
    behind, fits = _behind_field(data, value_at, ends, fits)
    fits &= behind == ends
    return fits


def _behind_field(data: Buffer, at: Array, ends: Array, fits: Array) -> tuple[Array, Array]:
    """Return where the fields that begin there end, and of which messages that is true so far."""
    fits = fits & (at + 4 <= ends)
    lengths = np.full(len(at), -2)
    lengths[fits] = integers(data, at[fits], ">i4")
    return at + 4 + np.maximum(lengths, 0), fits & (lengths >= -1)


def checksums_fit(view: memoryview, starts: Array, ends: Array) -> Array:
    """Return of each message whether its checksum is right."""
    crc32 = isal_zlib.crc32
    behind = CRC_AT + message_set.CRC_BYTES
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    found = np.fromiter((crc32(view[begin + behind : end]) for begin, end in spans), np.int64, len(starts))
    fits: Array = found == integers(view, starts + CRC_AT, ">u4")
    return fits


# ------------------------------------------------------------------ wrappers
class _Opened(NamedTuple):
    """A wrapper and the messages in it, unpacked."""

    message: ShallowMessage
    inner: Buffer


def wrapper_containers(entries_of_them: Iterable[memoryview], joins: bool) -> Iterator[Container]:
    """Yield wrappers of one format that follow each other."""
    opened: list[_Opened] = []
    size = 0
    for entry in entries_of_them:
        try:
            (message,) = message_set.iterate_shallow(entry)
            message_set.verify_crc(entry, message)
            inner = _unpacked(message)
        except WireError as error:
            yield from _of_opened(opened, joins)
            opened, size = [], 0
            offset = _INT64.unpack_from(entry)[0]
            yield unreadable(offset, offset, str(error))
            continue
        opened.append(_Opened(message, inner))
        size += len(inner)
        if size >= TOGETHER_BYTES_MAX:
            yield from _of_opened(opened, joins)
            opened, size = [], 0
    yield from _of_opened(opened, joins)


def _of_opened(opened: Sequence[_Opened], joins: bool) -> Iterator[Container]:
    """Yield the containers of wrappers: all at once where nothing is unusual, else one by one."""
    together = _together(opened) if len(opened) > 1 else None
    if together is not None:
        yield from [together.joined()] if joins and together.can_be_joined else together.containers()
        return
    for message, inner in opened:
        try:
            yield _wrapper(message, inner)
        except WireError as error:
            yield unreadable(message.offset, message.offset, str(error))


@dataclass(frozen=True, slots=True)
class _Together:
    """Records of several wrappers. ``borders``: where each one's begin, and after the last one."""

    messages: Sequence[ShallowMessage]
    borders: Array
    offsets: Array
    timestamps: Array
    flags: Array
    contents: Contents

    @property
    def can_be_joined(self) -> bool:
        """Whether they are in order and of one kind."""
        return bool((np.diff(self.offsets) > 0).all() and (self.flags == self.flags[0]).all())

    def joined(self) -> Container:
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        return Container(first, last, self.offsets, self.timestamps, self.contents, flags=int(self.flags[0]))

    def containers(self) -> Iterator[Container]:
        borders = self.borders.tolist()
        for message, begin, end, flags in zip(self.messages, borders, borders[1:], self.flags.tolist(), strict=False):
            pieces = pieces_of(parse_batch_marker(message.key), message.offset)
            offsets = self.offsets[begin:end]
            first = int(offsets[0])
            if pieces:
                first = min(pieces[0].first, first)
            timestamps, contents = self.timestamps[begin:end], self.contents[begin:end]
            yield Container(first, message.offset, offsets, timestamps, contents, pieces, flags)


def _together(opened: Sequence[_Opened]) -> _Together | None:
    """Return the records of wrappers of one format; None if anything is unusual, and each has to be looked at."""
    messages = [one.message for one in opened]
    magic = messages[0].magic
    data = b"".join([one.inner for one in opened])
    bases = np.cumsum([0, *(len(one.inner) for one in opened)])
    try:
        starts, end = entries(data)
        borders = np.searchsorted(starts, bases)
        if end != len(data) or (np.diff(borders) < 1).any() or (starts[borders[:-1]] != bases[:-1]).any():
            return None  # one does not end where its messages do
        octets, ends = np.frombuffer(data, np.uint8), np.append(starts[1:], end)
        attributes = octets[starts + MAGIC_AT + 1]
        if (octets[starts + MAGIC_AT] != magic).any() or (attributes & message_set.CODEC_MASK).any():
            return None
        key_at = starts + KEY_AT[magic]
        offsets = integers(data, starts, ">i8")
        _check_fields(data, key_at, ends, offsets)
    except (Broken, WireError):
        return None
    lasts = np.array([message.offset for message in messages])
    counts = np.diff(borders)
    shifts = lasts - offsets[borders[1:] - 1]
    offsets += np.repeat(shifts, counts)
    steps = np.diff(offsets)
    steps[borders[1:-1] - 1] = 1  # between two wrappers
    if (offsets < 0).any() or (steps <= 0).any() or (not magic and shifts.any()):
        return None
    flags = np.zeros(len(opened), np.int64)
    timestamps = np.full(len(starts), -1)
    if magic:
        timestamps = integers(data, starts + TIMESTAMP_AT, ">i8")
        is_appended = np.array([message.is_log_append_time for message in messages])
        stamps = np.repeat([message.timestamp for message in messages], counts)
        timestamps = np.where(np.repeat(is_appended, counts), stamps, timestamps)
        inside = attributes[borders[:-1]] & message_set.LOG_APPEND_TIME_FLAG != 0
        flags = np.where(is_appended | inside, LOG_APPEND_TIME, 0)
    return _Together(messages, borders, offsets, timestamps, flags, StoredContents(data, key_at, ends))


def _unpacked(message: ShallowMessage) -> Buffer:
    """Return the message set in a wrapper. Raises WireError."""
    if message.codec == Codec.GZIP and message.value is not None:
        stored = _stored(message.value)
        if stored is not None:
            return stored
    return at_once(message_set.unpacking(message, UNPACKED_BYTES_MAX))


def _stored(value: memoryview) -> memoryview | None:
    """Return what is in gzip that is one stored block, as the proxy makes it; None: it is anything else."""
    end = len(value) - _GZIP_TRAILER.size
    if end < _STORED_AT or bytes(value[: len(_GZIP_START)]) != _GZIP_START:
        return None
    last, size, complement = _STORED_BLOCK.unpack_from(value, _STORED_AT - _STORED_BLOCK.size)
    content = value[_STORED_AT:end]
    crc, length = _GZIP_TRAILER.unpack_from(value, end)
    is_whole = last == 1 and len(content) == size == length and size ^ complement == 0xFFFF
    return content if is_whole and isal_zlib.crc32(content) == crc else None


def _wrapper(message: ShallowMessage, inner: Buffer) -> Container:
    try:
        starts, end = entries(inner)
    except Broken as error:
        raise Malformed(f"wrapper at offset {message.offset}: inside it {error}") from None
    if not len(starts) or end != len(inner):
        raise Malformed(f"wrapper at offset {message.offset}: no whole messages inside")
    view, octets = memoryview(inner), np.frombuffer(inner, np.uint8)
    magics, attributes = octets[starts + MAGIC_AT], octets[starts + MAGIC_AT + 1]
    if (magics != message.magic).any() or (attributes & message_set.CODEC_MASK).any():
        raise Malformed(f"wrapper at offset {message.offset}: other formats inside")
    offsets = integers(view, starts, ">i8")
    if message.magic:  # relative, and the wrapper's own is the last one's
        offsets = offsets + (message.offset - int(offsets[-1]))
    if int(offsets[-1]) != message.offset:
        raise Malformed(f"wrapper at offset {message.offset}: the last offset inside is {int(offsets[-1])}")
    ends = np.append(starts[1:], end)
    found = _messages(view, octets, starts, ends, offsets, message.magic)
    timestamps, flags = found.timestamps, found.flags
    if message.magic and message.is_log_append_time:
        timestamps, flags = np.full(len(starts), message.timestamp), LOG_APPEND_TIME
    pieces = pieces_of(parse_batch_marker(message.key), message.offset)
    first = min(pieces[0].first, found.first) if pieces else found.first
    return Container(first, message.offset, offsets, timestamps, found.contents, pieces, flags)
