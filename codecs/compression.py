"""The codecs of Kafka's formats, with a hard limit on every output, in steps.

Every failure of a decompressor is a WireError. An output never grows beyond its limit by more than one block.
Frames of lz4 and xerial's blocks of snappy are read and written here, block by block, so that the limit holds. What can
only be done in one piece (zstd, snappy without blocks) has a limit of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Any, Final

import cramjam
from isal import isal_zlib

from .errors import LimitExceeded, Malformed, Truncated
from .primitives import Buffer, read_unsigned_varint
from .steps import STEP_BYTES, Steps, at_once


class Codec(IntEnum):
    """The numbers of the codecs in the attributes of batches and messages."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_BY_NUMBER: Final = tuple(Codec)

_INT32: Final = Struct(">i")
_UINT32_LITTLE: Final = Struct("<I")

BLOCK_BYTES_MAX: Final = 16 << 20
"""Decompressed bytes of a batch with zstd, or of one block of snappy: they are made in one step, of about 20 ms.
Sixteen times the largest request that clients send by default (max.request.size, 1 MiB)."""

# isal's level 1: a tenth of the time of zlib's level 6, for a few percent of size.
GZIP_LEVEL: Final = 1
_GZIP_WINDOW_BITS: Final = 31
_GZIP_ERRORS: Final[Any] = (isal_zlib.error, zlib.error)
_GZIP_START: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # deflate, no flags, no time, no level, system unknown
_GZIP_TRAILER: Final = Struct("<II")
_GZIP_MEMBERS_MAX: Final = 64  # each costs a copy of what follows; producers write one
_STORED_BLOCK: Final = Struct("<BHH")
_STORED_BLOCK_BYTES_MAX: Final = 0xFFFF

_STEP_CHUNKS: Final = 32  # about STEP_BYTES of what is compressed, whatever it is compressed to

_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_START: Final = _XERIAL_MAGIC + b"\0\0\0\x01\0\0\0\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024  # what xerial's library writes
_SNAPPY_RATIO_MAX: Final = 22  # the densest element of snappy is 3 bytes for 64

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
# Version 1, independent blocks of at most 64 KiB, no checksums. The last byte is the header's checksum: over the two
# bytes before it, or (magic 0, KAFKA-3160) over the frame's magic as well.
_LZ4_START: Final = _LZ4_MAGIC + b"\x60\x40\x82"
_LZ4_START_MAGIC_0: Final = _LZ4_MAGIC + b"\x60\x40\x1a"
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED: Final = 1 << 31
_LZ4_RATIO_MAX: Final = 256  # one byte more of a match's length stands for 255 bytes

ZSTD_LEVEL: Final = 3  # Kafka's default
_ZSTD_INPUT_BYTES_MAX: Final = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX // 64
"""Bytes of compressed input. Any number of frames and blocks may be empty, so a limit on the output alone would not
bound it. What cannot be compressed grows by less than a 64th."""
_ZSTD_FIRST_GUESS: Final = 8  # times the input: what records usually inflate to; doubled until it fits


def codec_of(number: int) -> Codec:
    """Return the codec with this number. Raises Malformed for 5 and above, which no version of Kafka knows."""
    if not 0 <= number <= Codec.ZSTD:
        raise Malformed(f"codec {number}")
    return _BY_NUMBER[number]


def decompress(codec: Codec, data: Buffer, output_bytes_max: int, *, magic: int = 2) -> Buffer:
    """Return what ``decompressing`` makes, at once."""
    return at_once(decompressing(codec, data, output_bytes_max, magic=magic))


def decompressing(codec: Codec, data: Buffer, output_bytes_max: int, *, magic: int = 2) -> Steps[Buffer]:
    """Return what ``data`` holds: at most ``output_bytes_max`` bytes, else LimitExceeded.

    Reads gzip (several members too), snappy raw and in xerial's blocks, lz4 frames of independent blocks (the
    checksum of their header is not looked at), zstd. ``magic`` is the message format: 0 and 1 have no zstd.
    """
    if codec is Codec.NONE:
        if len(data) > output_bytes_max:
            raise _too_large(codec, output_bytes_max)
        return data
    if codec is Codec.GZIP:
        return (yield from _gunzipping(data, output_bytes_max))
    if codec is Codec.SNAPPY:
        return (yield from _unsnappying(memoryview(data), output_bytes_max))
    if codec is Codec.LZ4:
        return (yield from _joining(_unlz4_blocks(memoryview(data), output_bytes_max)))
    if magic < 2:
        raise Malformed(f"zstd in a message of magic {magic}")
    return _unzstd(data, min(output_bytes_max, BLOCK_BYTES_MAX))


def compress(codec: Codec, data: Buffer, *, magic: int = 1) -> bytes:
    """Return what ``compressing`` makes, at once."""
    return bytes(at_once(compressing(codec, data, magic=magic)))


def compressing(codec: Codec, data: Buffer, *, magic: int = 1) -> Steps[bytes | bytearray]:
    """Return ``data`` compressed for a batch or a wrapper of format ``magic``, which matters to lz4 alone."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return (yield from _gzipping(data))
    if codec is Codec.SNAPPY:
        return (yield from _joining(_snappy_chunks(memoryview(data))))
    if codec is Codec.LZ4:
        start = _LZ4_START if magic else _LZ4_START_MAGIC_0
        return (yield from _joining(_lz4_chunks(memoryview(data), start)))
    assert magic >= 2, "old formats have no zstd"
    return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))


def store_gzip(data: Buffer) -> bytes:
    """Return what ``storing_gzip`` makes, at once."""
    return bytes(at_once(storing_gzip(data)))


def storing_gzip(data: Buffer) -> Steps[bytes | bytearray]:
    """Return ``data`` as gzip without compression: stored blocks of at most 65,535 bytes. Costs a copy and a CRC-32."""
    view = memoryview(data)
    size = len(view)
    trailer = _GZIP_TRAILER.pack(isal_zlib.crc32(data), size & 0xFFFFFFFF)
    if size <= _STORED_BLOCK_BYTES_MAX:
        return b"".join((_GZIP_START, _STORED_BLOCK.pack(1, size, size ^ 0xFFFF), view, trailer))
    chunks = _stored_blocks(view, trailer)
    return b"".join(chunks) if size <= STEP_BYTES else (yield from _joining(chunks))


def _stored_blocks(view: memoryview, trailer: bytes) -> Iterator[Buffer]:
    yield _GZIP_START
    last = (len(view) - 1) // _STORED_BLOCK_BYTES_MAX
    for index in range(last + 1):
        block = view[index * _STORED_BLOCK_BYTES_MAX : (index + 1) * _STORED_BLOCK_BYTES_MAX]
        yield _STORED_BLOCK.pack(index == last, len(block), len(block) ^ 0xFFFF)
        yield block
    yield trailer


def _too_large(codec: Codec, output_bytes_max: int) -> LimitExceeded:
    return LimitExceeded(f"{codec.name.lower()}: more than {output_bytes_max} bytes when decompressed")


def _joining(chunks: Iterator[Buffer]) -> Steps[bytes | bytearray]:
    """Return the chunks joined; one step ends after ``STEP_BYTES`` of them, or after ``_STEP_CHUNKS`` small ones."""
    first = next(chunks, b"")
    if len(first) >= STEP_BYTES:
        yield  # it was a step of its own, with a codec that knows no smaller ones
    second = next(chunks, None)
    if second is None:
        return first if isinstance(first, bytes) else bytes(first)
    output = bytearray(first)
    output += second
    is_large = len(second) >= STEP_BYTES
    del first, second
    bytes_at, left = 0, _STEP_CHUNKS
    if is_large:
        bytes_at = len(output)
        yield
    for chunk in chunks:
        output += chunk
        left -= 1
        if not left or len(output) - bytes_at >= STEP_BYTES:
            bytes_at, left = len(output), _STEP_CHUNKS
            yield
    return output


def _gzipping(data: Buffer) -> Steps[bytes | bytearray]:
    if len(data) <= STEP_BYTES:
        return bytes(isal_zlib.compress(data, GZIP_LEVEL, _GZIP_WINDOW_BITS))
    view = memoryview(data)
    stream: Any = isal_zlib.compressobj(GZIP_LEVEL, isal_zlib.DEFLATED, _GZIP_WINDOW_BITS)
    output = bytearray()
    for start in range(0, len(view), STEP_BYTES):
        output += stream.compress(view[start : start + STEP_BYTES])
        yield
    output += stream.flush()
    return output


def _gunzipping(data: Buffer, output_bytes_max: int) -> Steps[Buffer]:
    reader = _GzipReader(data)
    # One byte more than allowed: so the output shows whether there is more of it.
    first = reader.read(min(STEP_BYTES, output_bytes_max) + 1)
    if reader.is_over and len(first) <= output_bytes_max:
        return first
    output = bytearray(first)
    while len(output) <= output_bytes_max:
        if reader.is_over:
            return output
        yield
        output += reader.read(min(STEP_BYTES, output_bytes_max - len(output) + 1))
    raise _too_large(Codec.GZIP, output_bytes_max)


class _GzipReader:
    """Members of gzip, one after the other, read piece by piece."""

    __slots__ = ("_input", "_member", "_members", "_position", "_view", "is_over")

    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data)
        self._position = 0
        self._input: Buffer = b""
        self._members = 1
        self._member: Any = isal_zlib.decompressobj(_GZIP_WINDOW_BITS)
        self.is_over = False
        """The last member has ended, and the data with it."""

    def read(self, bytes_max: int) -> bytes:
        """Return at most so many bytes; none only at the end of a member. Raises WireError."""
        self._take_input()
        try:
            chunk: bytes = self._member.decompress(self._input, bytes_max)
        except _GZIP_ERRORS as exc:
            raise Malformed(f"gzip: {exc}") from None
        if self._member.eof:
            self._input = self._member.unused_data
            self._take_input()
            if not self._input:
                self.is_over = True
            elif self._members == _GZIP_MEMBERS_MAX:
                raise LimitExceeded(f"gzip: more than {_GZIP_MEMBERS_MAX} members")
            else:
                self._members += 1
                self._member = isal_zlib.decompressobj(_GZIP_WINDOW_BITS)
            return chunk
        self._input = self._member.unconsumed_tail
        if not chunk and not self._input and self._position == len(self._view):
            raise Truncated("gzip: the data ends within it")
        return chunk

    def _take_input(self) -> None:
        """Feed the input in pieces: at every read the decompressor copies what is left of its input."""
        if not self._input and self._position < len(self._view):
            self._input = self._view[self._position : self._position + STEP_BYTES]
            self._position += len(self._input)


def _snappy_chunks(view: memoryview) -> Iterator[Buffer]:
    yield _XERIAL_START
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        yield _INT32.pack(len(block))
        yield bytes(block)


def _unsnappying(view: memoryview, output_bytes_max: int) -> Steps[Buffer]:
    if bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
        return (yield from _joining(_unsnappy_blocks(view, output_bytes_max)))
    return _unsnappy_block(view, output_bytes_max, output_bytes_max)


def _unsnappy_blocks(view: memoryview, output_bytes_max: int) -> Iterator[bytes]:
    room = output_bytes_max
    position = len(_XERIAL_START)
    if len(view) < position:
        raise Truncated("snappy: the data ends within its header")
    while position < len(view):
        if len(view) - position < _INT32.size:
            raise Truncated(f"snappy block at {position}: the data ends within its size")
        (size,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < size <= len(view) - position:
            raise Truncated(f"snappy block at {position}: size {size}, {len(view) - position} bytes there")
        chunk = _unsnappy_block(view[position : position + size], room, output_bytes_max)
        room -= len(chunk)
        yield chunk
        position += size


def _unsnappy_block(block: memoryview, room: int, output_bytes_max: int) -> bytes:
    size, _ = read_unsigned_varint(block, 0)  # in front of every block: its size when decompressed
    if size > room:
        raise _too_large(Codec.SNAPPY, output_bytes_max)
    if size > BLOCK_BYTES_MAX:
        raise LimitExceeded(f"snappy: a block of {size} bytes when decompressed, the limit is {BLOCK_BYTES_MAX}")
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise Malformed(f"snappy: {len(block)} bytes can not hold {size}")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as exc:
        raise Malformed(f"snappy: {exc}") from None


def _lz4_chunks(view: memoryview, start: bytes) -> Iterator[Buffer]:
    yield start
    for position in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[position : position + _LZ4_BLOCK_BYTES]
        block = cramjam.lz4.compress_block(plain, store_size=False)
        if len(block) < len(plain):
            yield _UINT32_LITTLE.pack(len(block))
            yield bytes(block)
        else:
            yield _UINT32_LITTLE.pack(len(plain) | _LZ4_STORED)
            yield plain
    yield b"\0\0\0\0"


def _lz4_blocks_at(view: memoryview) -> tuple[int, int, bool, bool]:
    """Return (where the blocks start, largest block in bytes, checksum behind each block, checksum behind the last)."""
    if bytes(view[:4]) != _LZ4_MAGIC:
        raise Malformed("lz4: this is not a frame")
    if len(view) < len(_LZ4_START):
        raise Truncated("lz4: the data ends within its header")
    flags, block_descriptor = view[4], view[5]
    if flags >> 6 != 1:
        raise Malformed(f"lz4: version {flags >> 6}")
    if not flags & 0x20:
        raise Malformed("lz4: blocks depend on each other, which Kafka does not allow")
    if flags & 0x01:
        raise Malformed("lz4: needs a dictionary")
    size_code = block_descriptor >> 4 & 0x07
    if size_code < 4:
        raise Malformed(f"lz4: block size code {size_code}")
    content_size_bytes = 8 if flags & 0x08 else 0
    return 7 + content_size_bytes, 1 << (8 + 2 * size_code), bool(flags & 0x10), bool(flags & 0x04)


def _unlz4_blocks(view: memoryview, output_bytes_max: int) -> Iterator[bytes]:
    position, block_bytes_max, block_checksums, content_checksum = _lz4_blocks_at(view)
    room = output_bytes_max
    while True:
        if len(view) - position < _UINT32_LITTLE.size:
            raise Truncated(f"lz4 block at {position}: the data ends within its size")
        (size,) = _UINT32_LITTLE.unpack_from(view, position)
        position += _UINT32_LITTLE.size
        if size == 0:
            break
        stored = bool(size & _LZ4_STORED)
        size &= ~_LZ4_STORED
        end = position + size + (4 if block_checksums else 0)
        if size > block_bytes_max or end > len(view):
            raise Truncated(f"lz4 block at {position}: size {size}, {len(view) - position} bytes there")
        block = view[position : position + size]
        chunk = bytes(block) if stored else _unlz4_block(block, block_bytes_max)
        if not chunk:
            raise Malformed(f"lz4 block at {position}: nothing in it")
        room -= len(chunk)
        if room < 0:
            raise _too_large(Codec.LZ4, output_bytes_max)
        yield chunk
        position = end
    # Checksums of blocks and content are passed over: the batch or message around them has its own, which was verified.
    position += 4 if content_checksum else 0
    if position != len(view):
        raise Malformed(f"lz4: the frame ends at {position}, the data at {len(view)}")


def _unlz4_block(block: memoryview, block_bytes_max: int) -> bytes:
    output = bytearray(min(block_bytes_max, _LZ4_RATIO_MAX * len(block)))
    try:
        size = cramjam.lz4.decompress_block_into(block, output, output_len=len(output))
    except cramjam.DecompressionError as exc:
        raise Malformed(f"lz4: {exc}") from None
    return bytes(memoryview(output)[:size])


def _unzstd(data: Buffer, output_bytes_max: int) -> bytes:
    if len(data) > _ZSTD_INPUT_BYTES_MAX:
        raise LimitExceeded(f"zstd: {len(data)} bytes, the limit is {_ZSTD_INPUT_BYTES_MAX}")
    size = min(output_bytes_max, max(_ZSTD_FIRST_GUESS * len(data), 1024))
    while True:
        output = bytearray(size + 1)  # one byte more than allowed: so it shows whether there is more
        try:
            written = cramjam.zstd.decompress_into(data, output)
        except cramjam.DecompressionError as exc:
            if "write" not in str(exc):
                raise Malformed(f"zstd: {exc}") from None
            written = len(output)
        if written <= size:
            return bytes(memoryview(output)[:written])
        if size >= output_bytes_max:
            raise _too_large(Codec.ZSTD, output_bytes_max)
        size = min(output_bytes_max, 2 * size)
