"""Columns of keys, values and headers as finished batches of format v2, without a Python object for each row.

Lengths are made with numpy, and the bytes are put together by Arrow. Knows nothing of partitions and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...codecs import record_batch
from ...codecs.compression import Codec

_VARINT_BITS: Final = 7
_NO_HEADERS: Final = b"\0"
_ATTRIBUTES_AND_TIMESTAMP_DELTA: Final = b"\0\0"
"""All records of a batch have its timestamp."""
NULL: Final = -1
"""The length that a record has in place of a key or value that is null."""
RECORD_BYTES_FIXED: Final = 12
"""A record without key, value and headers has no more: lengths of up to three bytes, attributes, deltas."""

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


def finished_batch(rows: Columns, timestamp_ms: int, codec: Codec) -> bytes:
    """Return one batch of all these rows without a producer's numbers. Raises ValueError: there are none."""
    count = len(rows)
    if not count:
        raise ValueError("a batch has at least one record")
    key_heads, value_heads = varints(_lengths(rows.keys, NULL)), varints(_lengths(rows.values, NULL))
    deltas = varints(np.arange(count))
    headers = pa.scalar(_NO_HEADERS, _BINARY) if rows.headers is None else rows.headers
    header_bytes = np.full(count, len(_NO_HEADERS)) if rows.headers is None else _lengths(rows.headers)
    sizes = header_bytes + len(_ATTRIBUTES_AND_TIMESTAMP_DELTA)
    for part in (deltas, key_heads, rows.keys, value_heads, rows.values):
        sizes = sizes + _lengths(part)
    fixed = pa.scalar(_ATTRIBUTES_AND_TIMESTAMP_DELTA, _BINARY)
    records = _concatenated(varints(sizes), fixed, deltas, key_heads, rows.keys, value_heads, rows.values, headers)
    data, offsets = buffers_of(records)
    payload = data[offsets[0] : offsets[-1]].data
    return record_batch.batch_of(payload, count, timestamp_ms, codec=codec)


def varints(numbers: npt.NDArray[np.int64]) -> Any:
    """Return zig-zag varints, as records have them, as a column of bytes. Numbers of up to 31 bits."""
    left = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    if not len(left) or left.max() < 1 << _VARINT_BITS:
        ends = pa.py_buffer(np.arange(len(left) + 1))
        return pa.LargeBinaryArray.from_buffers(_BINARY, len(left), [None, ends, pa.py_buffer(left.astype(np.uint8))])
    limits = np.array([1 << bits for bits in range(_VARINT_BITS, 5 * _VARINT_BITS, _VARINT_BITS)], np.uint64)
    sizes = 1 + np.searchsorted(limits, left, side="right")
    offsets = np.zeros(len(left) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    positions = offsets[:-1].copy()
    more = np.arange(len(left))
    while len(more):
        goes_on = left[more] >= 1 << _VARINT_BITS
        data[positions[more]] = (left[more] & np.uint64(0x7F)) | (goes_on.astype(np.uint64) << np.uint64(_VARINT_BITS))
        more = more[goes_on]
        left[more] >>= np.uint64(_VARINT_BITS)
        positions[more] += 1
    return pa.LargeBinaryArray.from_buffers(_BINARY, len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


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
