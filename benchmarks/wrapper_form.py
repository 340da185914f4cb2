"""The proxy with another form of the wrapper that stores a batch which its producer did not compress: for measuring.

Run as a program: ``wrapper_form.py FORM run ...``, the rest as ``idemproxy`` takes it."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator

from idemproxy.codecs import compression, convert
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.kernel import KERNEL
from idemproxy.codecs.message_set import encoding_message
from idemproxy.codecs.primitives import Buffer
from idemproxy.codecs.steps import Steps

_LZ4_START, _LZ4_BLOCK_BYTES = b"\x04\x22\x4d\x18\x60\x40\x82", 1 << 16
_LZ4_STORED = 1 << 31
_XERIAL_START, _SNAPPY_BLOCK_BYTES = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1", 1 << 15
_SNAPPY_LITERAL_OF_16_BITS = 61 << 2


def stored_lz4(data: memoryview) -> Iterator[Buffer]:
    """One frame of blocks that are not compressed, without checksums."""
    yield _LZ4_START
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        yield struct.pack("<I", len(block) | _LZ4_STORED)
        yield block
    yield b"\0\0\0\0"


def literal_snappy(data: memoryview) -> Iterator[Buffer]:
    """Xerial's blocks, each of one literal."""
    yield _XERIAL_START
    for start in range(0, len(data), _SNAPPY_BLOCK_BYTES):
        block = data[start : start + _SNAPPY_BLOCK_BYTES]
        size, varint = len(block), bytearray()
        while size > 0x7F:
            varint.append(size & 0x7F | 0x80)
            size >>= 7
        varint.append(size)
        head = bytes(varint) + struct.pack("<BH", _SNAPPY_LITERAL_OF_16_BITS, len(block) - 1)
        yield struct.pack(">i", len(head) + len(block)) + head
        yield block


FORMS = {"lz4": (Codec.LZ4, stored_lz4), "snappy": (Codec.SNAPPY, literal_snappy)}
"""By name; gzip is the one that is shipped."""


def take(form: str) -> None:
    """Let the converter write this form. What imports the converter does so after it."""
    stored_as, chunks = FORMS[form]
    shipped = convert.wrapping

    def wrapping(
        inner: convert.Inner, *, key: bytes | None, codec: Codec, compress_harder: bool = False, magic: int = 1
    ) -> Steps[bytes | bytearray]:
        if codec is not Codec.NONE or compress_harder:
            return (yield from shipped(inner, key=key, codec=codec, compress_harder=compress_harder, magic=magic))
        value: bytes | bytearray = yield from compression._joining(chunks(memoryview(inner.message_set)))
        offset, timestamp = inner.record_count - 1, inner.max_timestamp
        if KERNEL and (made := KERNEL.wrap(magic, stored_as, False, offset, timestamp, key, value)) is not None:
            return made
        steps = encoding_message(key, value, magic=magic, offset=offset, timestamp=timestamp, codec=stored_as)
        return (yield from steps)

    convert.wrapping = wrapping


if __name__ == "__main__":
    name = sys.argv.pop(1)
    if name in FORMS:
        take(name)
    from idemproxy.proxy.main import main

    main()
