"""Where a record came from: topic, partition and offset of its source, carried by the copy. Pure.

The names are here and nowhere else. Coordinates are record headers; brokers before 0.11 store none, so there they are a
line of JSON before the value, then a newline, and the value as it was."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from .records import Headers, StoredRecord

SOURCE_TOPIC: Final = "source-topic"
SOURCE_PARTITION: Final = "source-partition"
SOURCE_OFFSET: Final = "source-offset"
"""Names of record headers, whose values are the topic in UTF-8 and the numbers in decimal digits, and of the fields of
the line."""
IS_NULL: Final = "is-null"
"""A field of the line only: the record had no value."""
_NAMES: Final = (SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET)
_LINE_BYTES_MAX: Final = 2048
"""A topic's name has 249 characters at most, so a line of ours is never longer."""


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
        fields = {**dict(zip(_NAMES, self, strict=True)), IS_NULL: value is None}
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n" + (value or b"")


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
    data = value or b""
    end = data.find(b"\n", 0, _LINE_BYTES_MAX)
    try:
        fields = json.loads(data[: max(end, 0)])
        topic, partition, offset = (fields[name] for name in _NAMES)
        found = Coordinates(str(topic), int(partition), int(offset))
        is_null = bool(fields.get(IS_NULL, False))
    except (ValueError, KeyError, TypeError):
        raise ValueError("the record has no source coordinates before its value") from None
    return found, None if is_null else data[end + 1 :]


def taken_off(record: StoredRecord) -> tuple[Coordinates, bytes | None, Headers]:
    """Return the coordinates of a record, wherever it has them, and its value and headers without them. Raises
    ValueError when it has none."""
    if any(name == SOURCE_OFFSET for name, _ in record.headers):
        rest = tuple(one for one in record.headers if one[0] not in _NAMES)
        return from_headers(record.headers), record.value, rest
    found, value = from_value(record.value)
    return found, value, record.headers
