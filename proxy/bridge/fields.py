"""The field types of Kafka's protocol, by hand: a reader that checks every length, and small writers.

For the few bodies that the bridges take apart themselves. Never knows an API, a header or a frame; everything that
bytes from outside can do wrong is a WireError that names the field and its position. Source: the protocol guide,
"Protocol Primitive Types".
"""

from __future__ import annotations

from struct import Struct, unpack_from
from typing import Any

from ...codecs.errors import Malformed, Truncated
from ...reactor import Buffer

INT8 = Struct(">b")
INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")
UVARINT_BYTES_MAX = 5
"""An unsigned varint of 32 bits has at most five bytes."""
STRING_BYTES_MAX = 32767
"""A string's length is a signed 16 bit number."""

NULL_STRING = b"\xff\xff"
NO_TAGS = b"\x00"


class Reader:
    """Reads one body from front to back. ``position``: bytes read so far, free to be noted by the caller."""

    __slots__ = ("data", "end", "position")

    def __init__(self, body: Buffer, position: int = 0) -> None:
        self.data = memoryview(body)
        self.end = len(self.data)
        self.position = position

    def unpack(self, layout: Struct, field: str) -> tuple[Any, ...]:
        """The values of several fixed fields at once."""
        start = self.position
        if start + layout.size > self.end:
            raise Truncated(f"{field}: {layout.size} bytes wanted at {start}, {self.end - start} left")
        self.position = start + layout.size
        return layout.unpack_from(self.data, start)

    def int8(self, field: str) -> int:
        """Signed, one byte."""
        return int(self.unpack(INT8, field)[0])

    def int16(self, field: str) -> int:
        """Signed, two bytes."""
        return int(self.unpack(INT16, field)[0])

    def int32(self, field: str) -> int:
        """Signed, four bytes."""
        return int(self.unpack(INT32, field)[0])

    def int64(self, field: str) -> int:
        """Signed, eight bytes."""
        return int(self.unpack(INT64, field)[0])

    def boolean(self, field: str) -> bool:
        """One byte; every value but 0 is true, as in Kafka."""
        return self.int8(field) != 0

    def take(self, size_bytes: int, field: str) -> memoryview:
        """The next bytes, not copied."""
        start = self.position
        if size_bytes < 0:
            raise Malformed(f"{field}: length {size_bytes} at {start}")
        if start + size_bytes > self.end:
            raise Truncated(f"{field}: {size_bytes} bytes wanted at {start}, {self.end - start} left")
        self.position = start + size_bytes
        return self.data[start : self.position]

    def begins_with(self, start: bytes) -> bool:
        """Are these the next bytes?"""
        return bytes(self.data[self.position : self.position + len(start)]) == start

    def string(self, field: str) -> str:
        """A string that may not be null."""
        return self._text(self.int16(field), field)

    def nullable_string(self, field: str) -> str | None:
        """A string, or None."""
        size_bytes = self.int16(field)
        return None if size_bytes == -1 else self._text(size_bytes, field)

    def compact_nullable_string(self, field: str) -> str | None:
        """A string of a flexible version, or None."""
        size_bytes = self.uvarint(field) - 1
        return None if size_bytes == -1 else self._text(size_bytes, field)

    def nullable_bytes(self, field: str) -> memoryview | None:
        """Bytes with a 32 bit length, not copied, or None."""
        size_bytes = self.int32(field)
        return None if size_bytes == -1 else self.take(size_bytes, field)

    def count(self, field: str, entry_bytes_min: int, *, null_is: int | None = None) -> int:
        """The length of an array that fits what is left; a null array gives ``null_is``, or is an error."""
        start = self.position
        count = self.int32(field)
        if count == -1 and null_is is not None:
            return null_is
        if count < 0:
            raise Malformed(f"{field}: array length {count} at {start}")
        if count * entry_bytes_min > self.end - self.position:
            raise Truncated(f"{field}: {count} entries announced at {start}, {self.end - self.position} bytes left")
        return count

    def count_partitions(self, topics: int, partition_bytes: int, limit: int) -> int:
        """Pass over so many topics, each a name and an array of partitions of one size, and return how many topics and
        partitions these are. Ends as soon as there are more than ``limit``."""
        count, left = topics, topics
        while left > 0 and count <= limit:
            left -= 1
            self.take(self.int16("topic name"), "topic name")
            partitions = self.count("partitions", partition_bytes)
            self.take(partition_bytes * partitions, "partitions")
            count += partitions
        return count

    def int32_array(self, field: str) -> tuple[int, ...]:
        """An array of 32 bit numbers; null is taken for an empty one."""
        count = self.count(field, INT32.size, null_is=0)
        start, self.position = self.position, self.position + INT32.size * count
        return unpack_from(f">{count}i", self.data, start)

    def uvarint(self, field: str) -> int:
        """An unsigned varint of at most 32 bits."""
        value = 0
        for index in range(UVARINT_BYTES_MAX):
            byte = self.take(1, field)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise Malformed(f"{field}: varint without an end before {self.position}")

    def skip_tags(self, field: str = "tagged fields") -> None:
        """Pass over the tagged fields of a flexible version."""
        for _ in range(self.uvarint(field)):
            self.uvarint(field)
            self.take(self.uvarint(field), field)

    def finish(self) -> None:
        """Nothing may be left."""
        if self.position != self.end:
            raise Malformed(f"{self.end - self.position} bytes after the last field at {self.position}")

    def _text(self, size_bytes: int, field: str) -> str:
        raw = self.take(size_bytes, field)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise Malformed(f"{field}: not UTF-8 at {self.position - size_bytes}") from error


def string(text: str) -> bytes:
    """Encode a string."""
    raw = text.encode()
    assert len(raw) <= STRING_BYTES_MAX
    return INT16.pack(len(raw)) + raw


def nullable_string(text: str | None) -> bytes:
    """Encode a string or null."""
    return NULL_STRING if text is None else string(text)


def compact_nullable_string(text: str | None) -> bytes:
    """Encode a string or null, as flexible versions have it."""
    if text is None:
        return b"\x00"
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    assert 0 <= value < 2**32
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
