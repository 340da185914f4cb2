"""The codecs of Kafka's formats, with a hard limit on every output, in steps.

Every failure of a decompressor is a WireError. What is decompressed comes in chunks of at most ``CHUNK_BYTES_MAX``, so
a reader needs no memory for all of it. Frames of lz4 and xerial's blocks of snappy are read and written here, block by
block, as their libraries have no streams. What can only be done in one piece (snappy without blocks) has a limit of its
own.

A frame is read as the streams of Kafka's Java libraries read it, the same in 0.10.2.2 and 3.9.1: they differ in what
they skip after its end.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Any, Final

import cramjam
from isal import isal_zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from .errors import LimitExceeded, Malformed, Truncated
from .kernel import KERNEL
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
"""Decompressed bytes of one block of snappy, which is in memory as a whole, as it refers to all that it has. Without
the kernel it is made in one step, of 10 to 100 ms. librdkafka sends a whole batch as one block: sixteen times the most
that it puts into one by default (message.max.bytes)."""
CHUNK_BYTES_MAX: Final = BLOCK_BYTES_MAX
"""Bytes of a chunk of what is decompressed; with all but lz4, and snappy without the kernel, it is ``STEP_BYTES``."""
MEMBERS_MAX: Final = 10_000
"""Members of gzip, frames of zstd, or headers of xerial in one batch or message: 0.1 ms each, so a second in all,
however little is in them. Producers write one. So many blocks of snappy or lz4 may be small, too: a block costs 2 us,
and 100 MiB of blocks with one byte in each would take a minute. Producers write one that is, the last."""
SMALL_BLOCK_BYTES: Final = 1024
"""A block of snappy or lz4 with less in it is a small one: producers fill them with 32 KiB or more."""

# isal's level 1: a tenth of the time of zlib's level 6, for a few percent of size.
GZIP_LEVEL: Final = 1
_GZIP_WINDOW_BITS: Final = 31
_GZIP_ERRORS: Final[Any] = (isal_zlib.error, zlib.error)
_GZIP_START: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # deflate, no flags, no time, no level, system unknown
_GZIP_MAGIC: Final = _GZIP_START[:3]
_GZIP_MEMBER_BYTES_MIN: Final = 20  # with nothing in it
_RAW_WINDOW_BITS: Final = -15
_GZIP_HEADER_CRC, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 0x02, 0x04, 0x08, 0x10
_GZIP_TRAILER: Final = Struct("<II")
_GZIPPED_AT_ONCE_BYTES: Final = 32 * 1024
_GZIP_FED_BYTES: Final = 64 * 1024
_GZIP_FED_BYTES_LATER: Final = 1024  # to a further member at first: what follows its end is copied
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
_ZSTD_FED_BYTES: Final = 16 * 1024  # may be 5,000 empty blocks: 0.5 ms
_ZSTD_OPTIONS: Final[dict[int, int]] = {zstd.DecompressionParameter.window_log_max: 27}
"""Frames refer back to at most 128 MiB, which the decompressor keeps: the library's own limit, and that of brokers."""


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

    ``magic`` is the message format: 0 and 1 have no zstd.
    """
    if codec is Codec.NONE:
        if len(data) > output_bytes_max:
            raise _too_large(codec, output_bytes_max)
        return data
    return (yield from _joining(decompressed(codec, data, output_bytes_max, magic=magic)))


def decompressed(codec: Codec, data: Buffer, output_bytes_max: int, *, magic: int = 2) -> Iterator[Buffer]:
    """Yield the same in chunks of at most ``CHUNK_BYTES_MAX``, some of which may be empty: none takes more than a few
    milliseconds, but for one block of snappy. Nothing of what was yielded is kept."""
    view = memoryview(data)
    chunks: Iterator[Buffer]
    if codec is Codec.GZIP:
        chunks = _gunzipped(view)
    elif codec is Codec.SNAPPY:
        chunks = _unsnappied(view, output_bytes_max)
    elif codec is Codec.LZ4:
        chunks = _unlz4ed(view)
    elif codec is Codec.NONE:
        chunks = iter((view,))
    elif magic < 2:
        raise Malformed(f"zstd in a message of magic {magic}")
    else:
        chunks = _unzstded(view)
    room = output_bytes_max
    for chunk in chunks:
        room -= len(chunk)
        if room < 0:
            raise _too_large(codec, output_bytes_max)
        yield chunk


def compress(codec: Codec, data: Buffer, *, magic: int = 1) -> bytes:
    """Return what ``compressing`` makes, at once."""
    return bytes(at_once(compressing(codec, data, magic=magic)))


def compressing(codec: Codec, data: Buffer, *, magic: int = 1) -> Steps[bytes | bytearray]:
    """Return ``data`` compressed for a batch or a wrapper of format ``magic``, which matters to lz4 alone."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return (yield from _joining(_gzip_chunks(memoryview(data))))
    if codec is Codec.SNAPPY:
        return (yield from _joining(_snappy_chunks(memoryview(data))))
    if codec is Codec.LZ4:
        start = _LZ4_START if magic else _LZ4_START_MAGIC_0
        return (yield from _joining(_lz4_chunks(memoryview(data), start)))
    assert magic >= 2, "message formats v0 and v1 have no zstd"
    return zstd.compress(data, ZSTD_LEVEL)


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


def _gzip_chunks(view: memoryview) -> Iterator[bytes]:
    """Never in one call for all of it: that one doubles its buffer, and cuts it to the size in the end. A wrapper is a
    few bytes larger than what was freed then, so each batch could leave a hole of its size in the heap."""
    stream: Any = isal_zlib.compressobj(GZIP_LEVEL, isal_zlib.DEFLATED, _GZIP_WINDOW_BITS)
    for start in range(0, len(view), _GZIPPED_AT_ONCE_BYTES):
        yield stream.compress(view[start : start + _GZIPPED_AT_ONCE_BYTES])
    yield stream.flush()


def _gunzipped(view: memoryview) -> Iterator[bytes]:
    """Members of gzip, one after the other. As in Java's ``GZIPInputStream``, bytes after a member that do not begin
    with the whole header of another one end the data, whatever they are."""
    position = _end_of_gzip_header(view, 0)
    if position is None:
        raise Malformed("gzip: it does not begin with a whole header")
    members, fed_bytes = 1, _GZIP_FED_BYTES
    while True:
        member: Any = isal_zlib.decompressobj(_RAW_WINDOW_BITS)
        fed: Buffer = b""
        chunk = b""
        crc = size = 0
        while not member.eof:
            if not fed and len(chunk) < STEP_BYTES:  # else some of its output may be left inside
                fed = view[position : position + fed_bytes]
                position += len(fed)
                fed_bytes = min(2 * fed_bytes, _GZIP_FED_BYTES)
                if not fed:
                    raise Truncated("gzip: the data ends within it")
            try:
                chunk = member.decompress(fed, STEP_BYTES)
            except _GZIP_ERRORS as exc:
                raise Malformed(f"gzip: {exc}") from None
            fed = member.unconsumed_tail
            crc, size = isal_zlib.crc32(chunk, crc), size + len(chunk)
            yield chunk
        position -= len(member.unused_data)
        trailer = bytes(view[position : position + _GZIP_TRAILER.size])
        if len(trailer) < _GZIP_TRAILER.size:
            raise Truncated("gzip: the data ends within its trailer")
        if trailer != _GZIP_TRAILER.pack(crc, size & 0xFFFFFFFF):
            raise Malformed("gzip: its checksum or its size is wrong")
        begins = _end_of_gzip_header(view, position + len(trailer))
        if begins is None:
            return
        position = begins
        members, fed_bytes = _one_more(Codec.GZIP, members), _GZIP_FED_BYTES_LATER


def _end_of_gzip_header(view: memoryview, position: int) -> int | None:
    """Return where the header of a member ends; None if none stands there, it is cut off, or its checksum is wrong."""
    if len(view) - position < _GZIP_MEMBER_BYTES_MIN or bytes(view[position : position + 3]) != _GZIP_MAGIC:
        return None
    flags, end = view[position + 3], position + len(_GZIP_START)
    if flags & _GZIP_EXTRA:
        end += 2 + int.from_bytes(view[end : end + 2], "little")
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            text = bytes(view[end : end + STEP_BYTES])
            if b"\0" not in text:
                return None
            end += text.index(b"\0") + 1
    if flags & _GZIP_HEADER_CRC:
        crc = int.from_bytes(view[end : end + 2], "little")
        if crc != isal_zlib.crc32(view[position:end]) & 0xFFFF:
            return None
        end += 2
    return end if end <= len(view) else None


def _one_more(codec: Codec, members: int) -> int:
    if members == MEMBERS_MAX:
        raise LimitExceeded(f"{codec.name.lower()}: more than {MEMBERS_MAX} members or small blocks")
    return members + 1


def _snappy_chunks(view: memoryview) -> Iterator[Buffer]:
    yield _XERIAL_START
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        yield _INT32.pack(len(block))
        yield bytes(block)


def _is_xerial(view: memoryview) -> bool:
    return bytes(view[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _unsnappied(view: memoryview, output_bytes_max: int) -> Iterator[Buffer]:
    """Blocks of xerial's format, or one block. As in its ``SnappyInputStream``, another header may stand in the place
    of a block, and up to three bytes after the last block are skipped."""
    if not _is_xerial(view):
        yield from _unsnappied_block(view, output_bytes_max, output_bytes_max)
        return
    room = output_bytes_max
    position = small = 0
    while len(view) - position >= _INT32.size:
        if _is_xerial(view[position : position + len(_XERIAL_MAGIC)]) or not position:
            small = _one_more(Codec.SNAPPY, small)
            position += len(_XERIAL_START)
            if len(view) < position:
                raise Truncated("snappy: the data ends within its header")
            yield b""
            continue
        (size,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 < size <= len(view) - position:
            raise Truncated(f"snappy block at {position}: size {size}, {len(view) - position} bytes there")
        room_before = room
        for chunk in _unsnappied_block(view[position : position + size], room, output_bytes_max):
            room -= len(chunk)
            yield chunk
        if room_before - room < SMALL_BLOCK_BYTES:
            small = _one_more(Codec.SNAPPY, small)
        position += size


def _unsnappied_block(block: memoryview, room: int, output_bytes_max: int) -> Iterator[bytes]:
    size, position = read_unsigned_varint(block, 0)  # in front of every block: its size when decompressed
    if size > room:
        raise _too_large(Codec.SNAPPY, output_bytes_max)
    if size > BLOCK_BYTES_MAX:
        raise LimitExceeded(f"snappy: a block of {size} bytes when decompressed, the limit is {BLOCK_BYTES_MAX}")
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise Malformed(f"snappy: {len(block)} bytes can not hold {size}")
    if KERNEL is None or size <= STEP_BYTES:
        yield _unsnappy_block(block)
        return
    output, filled = bytearray(size), 0
    while position < len(block):
        made = KERNEL.unsnappy_part(block, position, output, filled)
        if made is None or made == (position, filled):
            raise Malformed(f"snappy: the block is damaged at {position}")
        position, end = made
        for start in range(filled, end, STEP_BYTES):
            yield bytes(memoryview(output)[start : min(start + STEP_BYTES, end)])
        filled = end
    if filled != size:
        raise Malformed(f"snappy: a block of {filled} bytes, which says that it has {size}")


def _unsnappy_block(block: memoryview) -> bytes:
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
    """Return (where the blocks start, largest block in bytes, checksum after each block, checksum after the last)."""
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


def _unlz4ed(view: memoryview) -> Iterator[bytes]:
    """One frame of lz4. As in Kafka's ``KafkaLZ4BlockInputStream``, everything after its end is skipped, also
    another frame."""
    position, block_bytes_max, block_checksums, content_checksum = _lz4_blocks_at(view)
    small = 0
    while True:
        if len(view) - position < _UINT32_LITTLE.size:
            raise Truncated(f"lz4 block at {position}: the data ends within its size")
        (size,) = _UINT32_LITTLE.unpack_from(view, position)
        position += _UINT32_LITTLE.size
        stored = bool(size & _LZ4_STORED)
        size &= ~_LZ4_STORED
        if size == 0:
            break
        end = position + size + (4 if block_checksums else 0)
        if size > block_bytes_max or end > len(view):
            raise Truncated(f"lz4 block at {position}: size {size}, {len(view) - position} bytes there")
        block = view[position : position + size]
        chunk = bytes(block) if stored else _unlz4_block(block, block_bytes_max)
        if len(chunk) < SMALL_BLOCK_BYTES:
            small = _one_more(Codec.LZ4, small)
        yield chunk
        position = end
    # Checksums of blocks and content are passed over: the batch or message around them has its own, which was verified.
    if content_checksum and len(view) - position < _UINT32_LITTLE.size:
        raise Truncated("lz4: the data ends within its checksum")


def _unlz4_block(block: memoryview, block_bytes_max: int) -> bytes:
    output = bytearray(min(block_bytes_max, _LZ4_RATIO_MAX * len(block)))
    try:
        size = cramjam.lz4.decompress_block_into(block, output, output_len=len(output))
    except cramjam.DecompressionError as exc:
        raise Malformed(f"lz4: {exc}") from None
    return bytes(memoryview(output)[:size])


def _unzstded(view: memoryview) -> Iterator[bytes]:
    """Frames of zstd, one after the other. Nothing else may stand between or after them."""
    position, members = 0, 1
    while True:
        frame = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
        while not frame.eof:
            fed: Buffer = b""
            if frame.needs_input:
                fed = view[position : position + _ZSTD_FED_BYTES]
                position += len(fed)
                if not fed:
                    raise Truncated("zstd: the data ends within it")
            try:
                chunk = frame.decompress(fed, STEP_BYTES)
            except zstd.ZstdError as exc:
                raise Malformed(f"zstd: {exc}") from None
            yield chunk
        position -= len(frame.unused_data)
        if position == len(view):
            return
        members = _one_more(Codec.ZSTD, members)
