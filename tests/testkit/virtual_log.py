"""The log of one partition as a 0.10 leader keeps it: shallow messages, offsets, a high watermark, truncation.

Owns validation of produced message sets and the assignment of offsets (in place, so wrapper keys stay). It knows no
connection and no time. What no proxy may ever send (two wrappers in one set, wrappers that a broker would rebuild) is a
violation, not a refusal: it is written down and the test fails.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

from testkit.virtual_kafka_bytes import Reader

CORRUPT, TOO_LARGE = 2, 10
MESSAGE_BYTES_MAX = 1_000_012
"""message.max.bytes of a broker that nobody has configured."""


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
    from idemproxy.codecs.compression import Codec, decompress  # the rare ones

    return decompress(Codec(codec), value, 64 * 1024 * 1024, magic=1)


@dataclass(frozen=True, slots=True)
class Stored:
    """One shallow message where it lies. ``first_offset`` of a wrapper is its first record's."""

    first_offset: int
    message: Message
    appended_at: float

    @property
    def last_offset(self) -> int:
        """Of its last record, inclusive."""
        return self.first_offset + self.message.record_count - 1


@dataclass(slots=True)
class PartitionLog:
    """What the present leader has. All that lies below the high watermark is on every in-sync replica."""

    keeps_wrapper_keys: bool = True
    """False: a topic whose compression.type is not the codec sent; wrappers are rebuilt and their keys are lost."""
    message_bytes_max: int = MESSAGE_BYTES_MAX
    end_offset: int = 0
    high_watermark: int = 0
    """What the present leader knows to be replicated; a new leader may know of less than the old one did."""
    committed: int = 0
    """What is replicated: the highest high watermark that there ever was. A clean election loses nothing below it."""
    messages: list[Stored] = field(default_factory=list)
    truncated: list[Stored] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def append(self, message_set: bytes, now: float) -> int:
        """Append and return the base offset. Raises Refusal when nothing was appended."""
        messages = parse_messages(message_set)
        assert messages, "empty sets are answered by the broker, not by the log"
        for message in messages:
            if len(message.data) > self.message_bytes_max:
                raise Refusal(TOO_LARGE, f"a message of {len(message.data)} bytes")
        self._look_for_violations(messages)
        base_offset = self.end_offset
        for message in messages:
            first = self.end_offset
            self.end_offset += message.record_count
            stored = message if self.keeps_wrapper_keys or not message.inner else _without_key(message)
            offset = struct.pack(">q", self.end_offset - 1)
            self.messages.append(Stored(first, _with_data(stored, offset + stored.data[8:]), now))
        return base_offset

    def advance(self, offset: int) -> None:
        """The followers have everything below the offset."""
        self.high_watermark = max(self.high_watermark, min(offset, self.end_offset))
        self.committed = max(self.committed, self.high_watermark)

    def truncate(self, offset: int) -> None:
        """Forget what begins at or after the offset: a follower that has no more became the leader."""
        assert offset >= self.committed, "an unclean election is no part of this world"
        while self.messages and self.messages[-1].first_offset >= offset:
            self.truncated.append(self.messages.pop())
        self.end_offset = self.messages[-1].last_offset + 1 if self.messages else 0
        self.high_watermark = min(self.high_watermark, self.end_offset)

    def borders(self) -> list[int]:
        """Offsets at which a clean truncation may happen, lowest first; the last one is the end: nothing is lost."""
        ends = [stored.last_offset + 1 for stored in self.messages[self._index_of(self.committed) :]]
        return [self.committed, *ends]

    def border_before(self, offset: int) -> int:
        """Where the message just below the offset begins: high watermarks lie between messages, never inside one."""
        index = self._index_of(offset - 1) if offset else 0
        return self.messages[index].first_offset if index < len(self.messages) else 0

    def read(self, offset: int, bytes_max: int, *, whole_first: bool, up_to: int) -> bytes:
        """Messages from the one that holds ``offset``, at most so many bytes; the last one may be partial.

        ``whole_first``: the first message is given whole even if it is larger (version 3). ``up_to``: the offset
        before which reading ends, the high watermark for everybody but brokers.
        """
        chunks: list[bytes] = []
        size = 0
        for stored in self.messages[self._index_of(offset) :]:
            if stored.last_offset >= up_to:
                break
            data = stored.message.data
            room = bytes_max - size
            if len(data) > room and not (whole_first and not chunks):
                chunks.append(data[: max(0, room)])
                break
            chunks.append(data)
            size += len(data)
        return b"".join(chunks)

    def at(self, offset: int) -> tuple[Stored, Message] | None:
        """The shallow message and the record at an offset."""
        index = self._index_of(offset)
        if index >= len(self.messages) or self.messages[index].first_offset > offset:
            return None
        stored = self.messages[index]
        return stored, stored.message.records[offset - stored.first_offset]

    def _index_of(self, offset: int) -> int:
        low, high = 0, len(self.messages)
        while low < high:
            middle = (low + high) // 2
            if self.messages[middle].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _look_for_violations(self, messages: list[Message]) -> None:
        wrappers = [message for message in messages if message.inner]
        if wrappers and len(messages) > 1:
            self.violations.append(f"{len(wrappers)} wrappers among {len(messages)} messages of one set")
        for wrapper in wrappers:
            offsets = [message.offset for message in wrapper.inner]
            if offsets != list(range(len(offsets))) or wrapper.offset != len(offsets) - 1:
                self.violations.append(f"a wrapper with offset {wrapper.offset} and inner offsets {offsets[:5]}...")
            if wrapper.magic and wrapper.timestamp != max(message.timestamp for message in wrapper.inner):
                self.violations.append(f"a wrapper with timestamp {wrapper.timestamp}, not the highest inner one")


def _with_data(message: Message, data: bytes) -> Message:
    return Message(
        message.offset, message.magic, message.codec, message.timestamp, message.key, message.value, data, message.inner
    )


def _without_key(message: Message) -> Message:
    assert message.value is not None
    body = struct.pack(">bb", message.magic, message.codec)
    if message.magic:
        body += struct.pack(">q", message.timestamp)
    body += struct.pack(">ii", -1, len(message.value)) + message.value
    data = struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    return Message(
        message.offset, message.magic, message.codec, message.timestamp, None, message.value, data, message.inner
    )
