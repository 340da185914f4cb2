"""Compressed records in every shape in which the streams of Java's libraries read them, or do not: what stands between
and after the frames. As brokers of 0.10.2.2 and 3.9.1 were seen to take them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from struct import Struct

import cramjam

from idemproxy.codecs.compression import Codec, compress

Make = Callable[[bytes], bytes]
Shapes = Mapping[str, tuple[Codec, Make]]

_GZIP_START = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"  # a frame of zstd or lz4 without data
_UINT16, _INT32 = Struct("<H"), Struct(">i")
_XERIAL_START_BYTES, _LZ4_END_BYTES = 16, 4

_lz4, _snappy, _zstd = (partial(compress, codec, magic=2) for codec in (Codec.LZ4, Codec.SNAPPY, Codec.ZSTD))


def _raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _cut(make: Make, parts: int) -> Make:
    """Each part of the data compressed by itself, one after the other."""

    def made(data: bytes) -> bytes:
        borders = [len(data) * index // parts for index in range(parts + 1)]
        return b"".join(make(data[begin:end]) for begin, end in pairwise(borders))

    return made


def _with_start(start: bytes, behind: bytes = b"") -> Make:
    """Gzip with another header."""
    return lambda data: start + behind + gzip.compress(data)[len(_GZIP_START) :]


def _flags(number: int) -> bytes:
    return _GZIP_START[:3] + bytes((number,)) + _GZIP_START[4:]


def _one_xerial_block(data: bytes) -> bytes:
    block = _raw(data)
    return _snappy(b"") + _INT32.pack(len(block)) + block


def _other_xerial_version(data: bytes) -> bytes:
    return _snappy(data)[:8] + _INT32.pack(9) * 2 + _snappy(data)[_XERIAL_START_BYTES:]


TAKEN_BY_BROKERS: Shapes = {
    "gzip, 2 members": (Codec.GZIP, _cut(gzip.compress, 2)),
    "gzip, 65 members": (Codec.GZIP, _cut(gzip.compress, 65)),
    "gzip, 1000 members": (Codec.GZIP, _cut(gzip.compress, 1000)),
    "gzip, an empty member first": (Codec.GZIP, lambda data: gzip.compress(b"") + gzip.compress(data)),
    "gzip, an empty member last": (Codec.GZIP, lambda data: gzip.compress(data) + gzip.compress(b"")),
    "gzip, a small member last": (Codec.GZIP, lambda data: gzip.compress(data[:-3]) + gzip.compress(data[-3:])),
    "gzip, a zero behind": (Codec.GZIP, lambda data: gzip.compress(data) + b"\0"),
    "gzip, zeros behind": (Codec.GZIP, lambda data: gzip.compress(data) + bytes(50)),
    "gzip, garbage behind": (Codec.GZIP, lambda data: gzip.compress(data) + b"garbage" * 9),
    "gzip, a member behind zeros": (
        Codec.GZIP,
        lambda data: gzip.compress(data) + bytes(40) + gzip.compress(b"more"),
    ),
    "gzip, half a header behind": (Codec.GZIP, lambda data: gzip.compress(data) + _GZIP_START[:6]),
    "gzip, a name and a comment": (Codec.GZIP, _with_start(_flags(0x18), b"name\0comment\0")),
    "gzip, an extra field": (Codec.GZIP, _with_start(_flags(0x04), b"\4\0abcd")),
    "gzip, a checksum of the header": (
        Codec.GZIP,
        _with_start(_flags(0x02), _UINT16.pack(zlib.crc32(_flags(0x02)) & 0xFFFF)),
    ),
    "gzip, flags that nobody knows": (Codec.GZIP, _with_start(_flags(0xE1))),
    "snappy, one block": (Codec.SNAPPY, _raw),
    "snappy, one xerial block": (Codec.SNAPPY, _one_xerial_block),
    "snappy, 2 xerial streams": (Codec.SNAPPY, _cut(_snappy, 2)),
    "snappy, 3 xerial streams": (Codec.SNAPPY, _cut(_snappy, 3)),
    "snappy, an empty xerial stream first": (Codec.SNAPPY, lambda data: _snappy(b"") + _snappy(data)),
    "snappy, an empty xerial stream last": (Codec.SNAPPY, lambda data: _snappy(data) + _snappy(b"")),
    "snappy, an empty xerial block": (Codec.SNAPPY, lambda data: _snappy(data) + _INT32.pack(1) + b"\0"),
    "snappy, another xerial version": (Codec.SNAPPY, _other_xerial_version),
    "snappy, a byte behind": (Codec.SNAPPY, lambda data: _snappy(data) + b"x"),
    "snappy, 3 zeros behind": (Codec.SNAPPY, lambda data: _snappy(data) + bytes(3)),
    "lz4, a zero behind": (Codec.LZ4, lambda data: _lz4(data) + b"\0"),
    "lz4, zeros behind": (Codec.LZ4, lambda data: _lz4(data) + bytes(40)),
    "lz4, garbage behind": (Codec.LZ4, lambda data: _lz4(data) + b"garbage" * 9),
    "lz4, another frame behind": (Codec.LZ4, lambda data: _lz4(data) + _lz4(b"more")),
    "lz4, an end that says it is stored": (Codec.LZ4, lambda data: _lz4(data)[:-_LZ4_END_BYTES] + b"\0\0\0\x80"),
    "lz4, an empty block": (Codec.LZ4, lambda data: _lz4(data)[:-_LZ4_END_BYTES] + b"\1\0\0\0\0" + bytes(4)),
    "zstd, 2 frames": (Codec.ZSTD, _cut(_zstd, 2)),
    "zstd, 100 frames": (Codec.ZSTD, _cut(_zstd, 100)),
    "zstd, an empty frame behind": (Codec.ZSTD, lambda data: _zstd(data) + _zstd(b"")),
    "zstd, a frame without data first": (Codec.ZSTD, lambda data: _SKIPPABLE + _zstd(data)),
    "zstd, a frame without data behind": (Codec.ZSTD, lambda data: _zstd(data) + _SKIPPABLE),
}
REFUSED_BY_BROKERS: Shapes = {
    "gzip, a member behind that is cut off": (Codec.GZIP, lambda data: gzip.compress(data) + gzip.compress(b"m")[:-1]),
    "gzip, a damaged member behind": (Codec.GZIP, lambda data: gzip.compress(data) + _GZIP_START + b"\xff" * 40),
    "gzip, no trailer": (Codec.GZIP, lambda data: gzip.compress(data)[:-8]),
    "gzip, half a trailer": (Codec.GZIP, lambda data: gzip.compress(data)[:-4]),
    "gzip, a wrong size": (Codec.GZIP, lambda data: gzip.compress(data)[:-4] + b"\1\2\3\4"),
    "gzip, a wrong checksum of the header": (Codec.GZIP, _with_start(_flags(0x02), _UINT16.pack(7))),
    "gzip, zlib's own format": (Codec.GZIP, zlib.compress),
    "snappy, 4 zeros behind": (Codec.SNAPPY, lambda data: _snappy(data) + bytes(4)),
    "snappy, garbage behind": (Codec.SNAPPY, lambda data: _snappy(data) + b"garbage" * 9),
    "snappy, a byte behind one block": (Codec.SNAPPY, lambda data: _raw(data) + b"x"),
    "snappy, half a header behind": (Codec.SNAPPY, lambda data: _snappy(data) + _snappy(b"")[:10]),
    "snappy, one block behind xerial's": (Codec.SNAPPY, lambda data: _snappy(data) + _raw(data)),
    "snappy, its framing format": (Codec.SNAPPY, lambda data: bytes(cramjam.snappy.compress(data))),
    "lz4, no end": (Codec.LZ4, lambda data: _lz4(data)[:-_LZ4_END_BYTES]),
    "lz4, half an end": (Codec.LZ4, lambda data: _lz4(data)[:-2]),
    "lz4, a frame without data first": (Codec.LZ4, lambda data: _SKIPPABLE + _lz4(data)),
    "zstd, a zero behind": (Codec.ZSTD, lambda data: _zstd(data) + b"\0"),
    "zstd, zeros behind": (Codec.ZSTD, lambda data: _zstd(data) + bytes(40)),
    "zstd, garbage behind": (Codec.ZSTD, lambda data: _zstd(data) + b"garbage" * 9),
    "zstd, its end is missing": (Codec.ZSTD, lambda data: _zstd(data)[:-1]),
}
OTHER_RECORDS: Mapping[str, tuple[Codec, Make, Make]] = {
    "gzip, more in a member behind": (
        Codec.GZIP,
        lambda data: gzip.compress(data) + gzip.compress(b"more"),
        lambda data: data + b"more",
    ),
    "lz4, 2 frames": (Codec.LZ4, _cut(_lz4, 2), lambda data: data[: len(data) // 2]),
    "zstd, more in a frame behind": (
        Codec.ZSTD,
        lambda data: _zstd(data) + _zstd(b"more"),
        lambda data: data + b"more",
    ),
}
"""What is read differs from what was to be sent; brokers that compare it with the number of records refuse it."""
