"""Messages of formats v0 and v1 as a 0.10 broker sees them: parsed, checked, and packed again when it has to.

Owns layouts only. Written from the protocol's tables and independent of the proxy's codecs where it can be, so that an
error there cannot hide here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec, compress, decompress
from testkit.virtual.kafka_bytes import Reader

CORRUPT = 2
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
_SIZE = struct.Struct(">i")
_SIZE_AT, _FRONT_BYTES, _CHECKED_FROM = 8, 12, 16
_HEADER = struct.Struct(">qiIbb")
"""Offset, size, CRC of all that follows it, magic, attributes."""


class Refusal(Exception):
    """The broker's code for a message set that it does not append."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Message(NamedTuple):
    """One shallow message, with its inner ones when it is a wrapper. ``data`` begins with offset and size.

    Of a batch of format v2 (``batches.py``) the records are the inner ones, also where it is not compressed; it alone
    names its producer (-1: it has none)."""

    offset: int
    magic: int
    codec: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    data: bytes
    inner: tuple[Message, ...] = ()
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    marked_as: Identity | None = None
    """Of a batch without a producer id: what the batch marker in its header stands for; None: nobody has sent that."""

    @property
    def record_count(self) -> int:
        """Records that it holds: its inner ones, or itself."""
        return len(self.inner) if self.inner else 1

    @property
    def records(self) -> tuple[Message, ...]:
        """The inner messages of a wrapper, else itself."""
        return self.inner or (self,)


def parse_messages(data: bytes, *, depth: int = 0) -> list[Message]:
    """Return the messages of a set, CRCs checked at both depths. Raises Refusal (2) for anything that is not one."""
    found = []
    start = 0
    try:
        while start < len(data):
            (size,) = _SIZE.unpack_from(data, start + _SIZE_AT)
            end = start + _FRONT_BYTES + size
            if size < 0 or end > len(data):
                raise Refusal(CORRUPT, f"a message of {size} bytes at {start} of {len(data)}")
            found.append(_parse_message(data[start:end], depth))
            start = end
    except Refusal:
        raise
    except Exception as error:
        raise Refusal(CORRUPT, f"not a message set: {error}") from error
    return found


def _parse_message(data: bytes, depth: int) -> Message:
    reader = Reader(data)
    offset, _, crc, magic, attributes = reader.numbers(_HEADER)
    if zlib.crc32(data[_CHECKED_FROM:]) != crc:
        raise Refusal(CORRUPT, "a CRC is wrong")
    if magic not in (0, 1):
        raise Refusal(CORRUPT, f"magic {magic}")
    timestamp = reader.int64() if magic else -1
    key, value = reader.blob(), reader.blob()
    reader.end()
    codec = attributes & 7
    if not codec:
        return Message(offset, magic, codec, timestamp, key, value, data)
    if depth or value is None:
        raise Refusal(CORRUPT, "a wrapper inside a wrapper, or an empty one")
    inner = tuple(parse_messages(_decompress(codec, value), depth=1))
    if not inner or any(message.magic != magic for message in inner):
        raise Refusal(CORRUPT, "a wrapper without messages, or with others' magic")
    return Message(offset, magic, codec, timestamp, key, value, data, inner)


def _decompress(codec: int, value: bytes) -> bytes:
    if codec == 1:
        return zlib.decompress(value, 31)
    return bytes(decompress(Codec(codec), value, DECOMPRESSED_BYTES_MAX, magic=1))


def _compress(codec: int, data: bytes, magic: int) -> bytes:
    if codec == 1:
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    return compress(Codec(codec), data, magic=magic)


def at_offset(message: Message, offset: int) -> Message:
    """The message with this offset in front; its checksum does not cover that."""
    return message._replace(data=struct.pack(">q", offset) + message.data[8:])


def repacked(wrapper: Message, inner: Sequence[Message], codec: int) -> Message:
    """The wrapper as a broker packs it again, around these inner messages: its key is lost."""
    value = _compress(codec, b"".join(message.data for message in inner), wrapper.magic)
    body = struct.pack(">bb", wrapper.magic, codec)
    if wrapper.magic:
        body += struct.pack(">q", max(message.timestamp for message in inner))
    body += struct.pack(">ii", -1, len(value)) + value
    data = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    return wrapper._replace(codec=codec, key=None, value=value, data=data, inner=tuple(inner))


def as_format_0(message: Message, first_offset: int) -> Message:
    """The message as a broker stores it in format v0: without times, absolute offsets inside, the key lost."""
    if not message.inner:
        return _record_of_format_0(message)
    inner = [at_offset(_record_of_format_0(one), first_offset + at) for at, one in enumerate(message.inner)]
    return repacked(message._replace(magic=0, timestamp=-1), inner, message.codec)


def _record_of_format_0(record: Message) -> Message:
    body = b"\0\0" + _blob(record.key) + _blob(record.value)
    data = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    return record._replace(magic=0, timestamp=-1, data=data)


def _blob(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
