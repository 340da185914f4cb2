"""Columns of keys, values and headers as finished batches of format v2, without a Python object for each row.

Lengths are made with numpy, and the bytes are put together by Arrow. Knows nothing of partitions and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...codecs import record_batch
from ...codecs.compression import Codec

_VARINT_BITS: Final = 7
_DIGIT: Final = (1 << _VARINT_BITS) - 1
_NO_HEADERS: Final = b"\0"
_ATTRIBUTES_AND_TIMESTAMP_DELTA: Final = b"\0\0"
"""All records of a batch have its timestamp."""
NULL: Final = -1
"""The length that a record has in place of a key or value that is null."""
BATCHES_AT_ONCE: Final = 32
"""Batches that are encoded together: 8 MiB, if they have the default size."""
RECORD_BYTES_FIXED: Final = 12
"""The most bytes of a record without key, value and headers: lengths of up to three bytes, attributes, deltas."""

_BINARY: Final = pa.large_binary()


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows to be sent, in order: arrays of the type large_binary, null where there is no key or value. ``headers``:
    each row's headers as a record holds them, their number first; None: no row has any."""

    keys: Any
    values: Any
    headers: Any = None

    def __len__(self) -> int:
        return len(self.values)

    def taken(self, rows: npt.NDArray[np.int64]) -> Columns:
        """Return these rows, in this order."""
        indices = pa.array(rows)
        headers = None if self.headers is None else self.headers.take(indices)
        return Columns(self.keys.take(indices), self.values.take(indices), headers)

    def slice(self, start: int, end: int) -> Columns:
        """Return the rows from ``start`` up to ``end``; nothing is copied."""
        count = end - start
        headers = None if self.headers is None else self.headers.slice(start, count)
        return Columns(self.keys.slice(start, count), self.values.slice(start, count), headers)

    def sizes(self) -> npt.NDArray[np.int64]:
        """Return about how many bytes each row's record has, never too few."""
        sizes = _lengths(self.keys) + _lengths(self.values) + RECORD_BYTES_FIXED
        return sizes if self.headers is None else sizes + _lengths(self.headers)


def joined(parts: list[Columns]) -> Columns:
    """Return the rows of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    headers = None if parts[0].headers is None else pa.concat_arrays([part.headers for part in parts])
    return Columns(
        pa.concat_arrays([part.keys for part in parts]), pa.concat_arrays([part.values for part in parts]), headers
    )


def as_binary(column: Any) -> Any:
    """Return a column of bytes or of text as large_binary."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.binary() if pa.types.is_string(column.type) else _BINARY)
    return column.cast(_BINARY)


def encoded_headers(column: Any) -> Any:
    """Return a column of lists of (key: text, value: bytes), as Spark's ``headers`` are, in the bytes of records."""
    names, contents = (as_binary(field) for field in column.flatten().flatten())
    each = _concatenated(varints(_lengths(names)), names, varints(_lengths(contents, NULL)), contents)
    counts = np.asarray(pc.fill_null(pc.list_value_length(column), 0), np.int64)
    ends = np.concatenate(([0], np.cumsum(counts)))
    data, offsets = buffers_of(each)
    positions = pa.py_buffer(np.ascontiguousarray(offsets[ends]))
    lists = pa.LargeBinaryArray.from_buffers(_BINARY, len(column), [None, positions, pa.py_buffer(data)])
    return _concatenated(varints(counts), lists)


def finished_batches(rows: Columns, ends: Sequence[int], timestamp_ms: int, codec: Codec) -> Iterator[bytes]:
    """Yield batches without producer id, epoch and sequence: the first has the rows up to ``ends[0]``, the second those
    from there up to ``ends[1]``, and so on. Many are encoded at once: a batch of a few hundred rows is too short for
    arrays."""
    start = 0
    for at in range(0, len(ends), BATCHES_AT_ONCE):
        group = ends[at : at + BATCHES_AT_ONCE]
        borders = np.array([start, *group]) - start
        data, offsets = buffers_of(_records(rows.slice(start, group[-1]), borders))
        for begin, end in pairwise(borders.tolist()):
            payload = data[offsets[begin] : offsets[end]].data
            yield record_batch.batch_of(payload, end - begin, timestamp_ms, codec=codec)
        start = group[-1]


def _records(rows: Columns, borders: npt.NDArray[np.int64]) -> Any:
    """Return the rows as records of batches that begin and end at these rows."""
    counts = np.diff(borders)
    key_heads, value_heads = varints(_lengths(rows.keys, NULL)), varints(_lengths(rows.values, NULL))
    deltas = varints(np.arange(len(rows)) - np.repeat(borders[:-1], counts))
    headers = pa.scalar(_NO_HEADERS, _BINARY) if rows.headers is None else rows.headers
    sizes = np.full(len(rows), len(_NO_HEADERS)) if rows.headers is None else _lengths(rows.headers)
    sizes = sizes + len(_ATTRIBUTES_AND_TIMESTAMP_DELTA)
    for part in (deltas, key_heads, rows.keys, value_heads, rows.values):
        sizes = sizes + _lengths(part)
    fixed = pa.scalar(_ATTRIBUTES_AND_TIMESTAMP_DELTA, _BINARY)
    return _concatenated(varints(sizes), fixed, deltas, key_heads, rows.keys, value_heads, rows.values, headers)


def identities(rows: Columns, partitions: npt.NDArray[np.int64]) -> Any:
    """Return for each row what makes it this one: its partition (a number for each), key, value and headers. Two rows
    have the same bytes only if all four are the same."""
    headers = pa.scalar(_NO_HEADERS, _BINARY) if rows.headers is None else rows.headers
    key_heads, value_heads = varints(_lengths(rows.keys, NULL)), varints(_lengths(rows.values, NULL))
    return _concatenated(varints(partitions), key_heads, rows.keys, value_heads, rows.values, headers)


def varints(numbers: npt.NDArray[np.int64]) -> Any:
    """Return zig-zag varints, as records have them, as a column of bytes. Numbers of up to 31 bits."""
    left = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint32)
    longest = int(left.max()) if len(left) else 0
    bytes_max = max(1, -(-longest.bit_length() // _VARINT_BITS))
    digits = np.empty((len(left), bytes_max), np.uint8)
    is_there = np.ones((len(left), bytes_max), bool)
    for place in range(bytes_max):
        digits[:, place] = left & np.uint32(_DIGIT)
        if place:
            is_there[:, place] = left
            digits[:, place - 1] |= is_there[:, place].view(np.uint8) << np.uint8(_VARINT_BITS)
        left >>= np.uint32(_VARINT_BITS)
    offsets = np.zeros(len(left) + 1, np.int64)
    np.cumsum(np.count_nonzero(is_there, axis=1), out=offsets[1:])
    data = digits if bytes_max == 1 else digits[is_there]
    return pa.LargeBinaryArray.from_buffers(_BINARY, len(left), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def buffers_of(column: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of a large_binary column, and where in them its values begin and end; nothing is copied."""
    _, offsets, data = column.buffers()
    begin, count = column.offset, len(column)
    positions = np.frombuffer(offsets, np.int64)[begin : begin + count + 1] if offsets else np.zeros(1, np.int64)
    return np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8), positions


def _concatenated(*columns: Any) -> Any:
    """Return each row's values one after the other; null counts as empty."""
    nothing = pa.scalar(b"", _BINARY)
    return pc.binary_join_element_wise(*columns, nothing, null_handling="replace", null_replacement=b"")


def _lengths(column: Any, of_null: int = 0) -> npt.NDArray[np.int64]:
    lengths = np.diff(buffers_of(column)[1])
    return np.where(np.asarray(column.is_valid()), lengths, of_null) if column.null_count else lengths
