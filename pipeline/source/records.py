"""Records as rows: exactly the columns of Spark's Kafka source, made without a Python object for each record. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ...codecs.errors import Truncated
from ...codecs.primitives import Buffer, read_varlong
from ..reading.container import LOG_APPEND_TIME, Container
from ..reading.contents import Array, joined
from .columns import RECORDS, RECORDS_WITH_HEADERS, Columns

_TIME: Final = pa.timestamp("us", tz="UTC")
_HEADERS: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_ARROW: Final = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": _TIME,
    "array<struct<key:string,value:binary>>": _HEADERS,
}
"""By the type of Spark."""


def arrow_schema(columns: Columns) -> pa.Schema:
    """Return the schema of rows with these columns."""
    return pa.schema([(name, _ARROW[kind]) for name, kind in columns])


_SCHEMA: Final = arrow_schema(RECORDS)
_SCHEMA_WITH_HEADERS: Final = arrow_schema(RECORDS_WITH_HEADERS)
CONTENT_BYTES_AT_ONCE: Final = 16 << 20
"""Bytes of contents in one Arrow batch, if records are small: larger ones take the JVM's memory, smaller ones its
time."""
NO_TIME, CREATE_TIME, APPEND_TIME = -1, 0, 1
"""Timestamp types, as Kafka numbers them."""
NONE_MS: Final = -1
"""What stands where a record has no time."""
_MS_MAX: Final = ((1 << 63) - 1) // 1000

Header = tuple[str, bytes | None]


class Part(NamedTuple):
    """The part of a container that belongs to a range. ``records``: their indices in the container."""

    container: Container
    records: slice

    @property
    def size(self) -> int:
        return len(self.container.offsets[self.records])


def part_of(container: Container, start: int, end: int) -> Part | None:
    """Return the records at these offsets, the last one not included; None if there are none."""
    first, behind = np.searchsorted(container.offsets, (start, end)).tolist()
    return Part(container, slice(first, behind)) if first < behind else None


def record_rows(topic: str, partition: int, parts: Iterable[Part], with_headers: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all parts, in Arrow batches of about ``CONTENT_BYTES_AT_ONCE``. Raises WireError where headers
    are damaged."""
    gathered: list[Part] = []
    size = 0
    for part in parts:
        gathered.append(part)
        size += int(part.container.contents[part.records].sizes.sum())
        if size >= CONTENT_BYTES_AT_ONCE:
            yield _rows(topic, partition, gathered, with_headers)
            gathered, size = [], 0
    if gathered:
        yield _rows(topic, partition, gathered, with_headers)


def _rows(topic: str, partition: int, parts: Sequence[Part], with_headers: bool) -> pa.RecordBatch:
    fields = joined([part.container.contents[part.records] for part in parts])
    count = len(fields.key_at)
    timestamps = np.concatenate([part.container.timestamps[part.records] for part in parts])
    types = np.repeat(
        [APPEND_TIME if part.container.flags & LOG_APPEND_TIME else CREATE_TIME for part in parts],
        [part.size for part in parts],
    )
    columns = [
        _field(fields.data, fields.key_at, fields.key_sizes),
        _field(fields.data, fields.value_at, fields.value_sizes),
        pa.repeat(topic, count),
        pa.array(np.full(count, partition, np.int32)),
        pa.array(np.concatenate([part.container.offsets[part.records] for part in parts])),
        times(timestamps),
        pa.array(np.where(timestamps == NONE_MS, NO_TIME, types).astype(np.int32)),
    ]
    if with_headers:
        columns.append(_headers(fields.data, fields.headers_at, fields.headers_end))
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA_WITH_HEADERS if with_headers else _SCHEMA)


def times(milliseconds: Array) -> pa.Array:
    """Return times in ms as Spark has them, the nearest where Spark has no such time; null where the record has none.
    Times before 1970 are times: brokers store them."""
    micros = np.clip(milliseconds, -_MS_MAX, _MS_MAX).astype(np.int64) * 1000
    return pa.array(micros, mask=milliseconds == NONE_MS).view(_TIME)


def _field(data: Buffer, begins: Array, sizes: Array) -> pa.Array:
    """Return the fields that stand there as a column; a size of -1 is null."""
    ends = begins + np.maximum(sizes, 0)
    # An Arrow array over the data as it lies: every second value is one of the fields, those between them are the gaps.
    borders = np.empty(2 * len(begins), np.int32)
    borders[::2], borders[1::2] = begins, ends
    is_there = np.ones(max(0, len(borders) - 1), bool)
    is_there[::2] = sizes >= 0
    validity = None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    every = pa.Array.from_buffers(pa.binary(), len(is_there), [validity, pa.py_buffer(borders), pa.py_buffer(data)])
    return every.take(pa.array(np.arange(0, len(is_there), 2, dtype=np.int32)))


def _headers(data: Buffer, begins: Array, ends: Array) -> pa.Array:
    data = bytes(data) if (ends > begins).any() else b""
    found: list[list[dict[str, object]] | None] = [None] * len(ends)
    for index in np.flatnonzero(ends > begins).tolist():
        headers = parse_headers(data, int(begins[index]), int(ends[index]))
        found[index] = [{"key": key, "value": value} for key, value in headers]
    return pa.array(found, _HEADERS)


def parse_headers(data: bytes, position: int, end: int) -> list[Header]:
    """Return the headers of a record of format v2, whose count stands there. Raises Truncated, Malformed."""
    count, position = read_varlong(data, position)
    headers = []
    for _ in range(count):
        name, position = _header_field(data, position, end)
        value, position = _header_field(data, position, end)
        headers.append(((name or b"").decode("utf-8", "replace"), value))
    return headers


def _header_field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varlong(data, position)
    behind = position + max(length, 0)
    if behind > end:
        raise Truncated(f"a header of {length} bytes, {end - position} are there")
    return (None if length < 0 else data[position:behind]), behind
