"""Where a record came from: topic, partition and offset of its source, carried by the copy. Pure.

The names of the record headers are here and nowhere else. Brokers before 0.11 store no headers: there the coordinates
stand before the value, in one line of their own."""

from __future__ import annotations

from typing import Final, NamedTuple

from .records import Headers, StoredRecord

SOURCE_TOPIC: Final = "source-topic"
SOURCE_PARTITION: Final = "source-partition"
SOURCE_OFFSET: Final = "source-offset"
"""Names of record headers. Values: the topic in UTF-8, the numbers in decimal digits."""
_NAMES: Final = (SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET)
_FIRST_LINE: Final = f"{SOURCE_TOPIC}=%s;{SOURCE_PARTITION}=%d;{SOURCE_OFFSET}=%d"
_NULL: Final = ";null"
"""At the end of the line of a record that has no value."""


class Coordinates(NamedTuple):
    """One record of a source."""

    topic: str
    partition: int
    offset: int

    def headers(self) -> Headers:
        """Return them as record headers."""
        return (
            (SOURCE_TOPIC, self.topic.encode()),
            (SOURCE_PARTITION, b"%d" % self.partition),
            (SOURCE_OFFSET, b"%d" % self.offset),
        )

    def before(self, value: bytes | None) -> bytes:
        """Return a value with a first line that has them."""
        line = (_FIRST_LINE % self).encode()
        return line + (f"{_NULL}\n".encode() if value is None else b"\n" + value)


def from_headers(headers: Headers) -> Coordinates:
    """Return the coordinates in a record's headers. Raises ValueError when they are not there."""
    found = dict(headers)
    try:
        topic, partition, offset = (found[name] or b"" for name in _NAMES)
        return Coordinates(topic.decode(), int(partition), int(offset))
    except (KeyError, ValueError):
        raise ValueError("the record has no source coordinates in its headers") from None


def from_value(value: bytes | None) -> tuple[Coordinates, bytes | None]:
    """Return the coordinates in a value's first line, and the value without it. Raises ValueError when they are not
    there."""
    line, _, rest = (value or b"").partition(b"\n")
    try:
        text = line.decode()
        is_null = text.endswith(_NULL)
        names, values = zip(*(part.split("=") for part in text.removesuffix(_NULL).split(";")), strict=True)
        if names != _NAMES:
            raise ValueError
        found = Coordinates(values[0], int(values[1]), int(values[2]))
    except ValueError:
        raise ValueError("the record has no source coordinates before its value") from None
    return found, None if is_null else rest


def taken_off(record: StoredRecord) -> tuple[Coordinates, bytes | None, Headers]:
    """Return the coordinates of a record, wherever it has them, and its value and headers without them. Raises
    ValueError when it has none."""
    if any(name == SOURCE_OFFSET for name, _ in record.headers):
        rest = tuple(one for one in record.headers if one[0] not in _NAMES)
        return from_headers(record.headers), record.value, rest
    found, value = from_value(record.value)
    return found, value, record.headers
