"""Messages of formats v0 and v1 as a 0.10 broker sees them: parsed, checked, and packed anew when it has to.

Owns layouts only. Written from the protocol's tables and independent of the proxy's codecs where it can be, so that an
error there cannot hide here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from idemproxy.codecs.compression import Codec, compress, decompress
from testkit.virtual_kafka_bytes import Reader

CORRUPT = 2
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024


class Refusal(Exception):
    """The broker's code for a message set that it does not append."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Message:
    """One shallow message, with its inner ones when it is a wrapper. ``data`` begins with offset and size."""

    offset: int
    magic: int
    codec: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    data: bytes
    inner: tuple[Message, ...] = ()

    @property
    def record_count(self) -> int:
        """Records that it holds: its inner ones, or itself."""
        return len(self.inner) or 1

    @property
    def records(self) -> tuple[Message, ...]:
        """The inner messages of a wrapper, else itself."""
        return self.inner or (self,)


def parse_messages(data: bytes, *, depth: int = 0) -> list[Message]:
    """Return the messages of a set, CRCs checked at both depths. Raises Refusal (2) for anything that is not one."""
    reader = Reader(data)
    found = []
    try:
        while reader.position < len(data):
            start = reader.position
            offset, size = reader.int64(), reader.int32()
            body = Reader(reader.take(size))
            crc = struct.unpack(">I", body.take(4))[0]
            if zlib.crc32(body.data[4:]) != crc:
                raise Refusal(CORRUPT, "a CRC is wrong")
            magic, attributes = body.int8(), body.int8()
            if magic not in (0, 1):
                raise Refusal(CORRUPT, f"magic {magic}")
            timestamp = body.int64() if magic else -1
            key, value = body.blob(), body.blob()
            body.end()
            inner: tuple[Message, ...] = ()
            if attributes & 7:
                if depth or value is None:
                    raise Refusal(CORRUPT, "a wrapper inside a wrapper, or an empty one")
                inner = tuple(parse_messages(_decompress(attributes & 7, value), depth=1))
                if not inner or any(message.magic != magic for message in inner):
                    raise Refusal(CORRUPT, "a wrapper without messages, or with others' magic")
            raw = data[start : reader.position]
            found.append(Message(offset, magic, attributes & 7, timestamp, key, value, raw, inner))
    except Refusal:
        raise
    except Exception as error:
        raise Refusal(CORRUPT, f"not a message set: {error}") from error
    return found


def _decompress(codec: int, value: bytes) -> bytes:
    if codec == 1:
        return zlib.decompress(value, 31)
    return decompress(Codec(codec), value, DECOMPRESSED_BYTES_MAX, magic=1)


def _compress(codec: int, data: bytes) -> bytes:
    if codec == 1:
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    return compress(Codec(codec), data, magic=1)


def at_offset(message: Message, offset: int) -> Message:
    """The message with this offset in front; its checksum does not cover that."""
    return replace(message, data=struct.pack(">q", offset) + message.data[8:])


def repacked(wrapper: Message, inner: Sequence[Message], codec: int) -> Message:
    """The wrapper as a broker packs it anew, around these inner messages: its key is lost."""
    value = _compress(codec, b"".join(message.data for message in inner))
    body = struct.pack(">bb", wrapper.magic, codec)
    if wrapper.magic:
        body += struct.pack(">q", max(message.timestamp for message in inner))
    body += struct.pack(">ii", -1, len(value)) + value
    data = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    return replace(wrapper, codec=codec, key=None, value=value, data=data, inner=tuple(inner))
