"""Batches as rows (``rows=batches``), many at once with arrays: runs of messages or of wrappers with a batch marker, of
format v1 and with nothing unusual. All other entries are left to ``batches.py``, one by one. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise, repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...codecs import message_set
from ...codecs.batch_marker import Identity, parse_batch_marker
from ...codecs.compression import Codec
from ...codecs.record_batch import MAGIC as NEW_FORMAT
from ..reading.container import MAGIC_AT, Broken, entries
from ..reading.contents import Array, integers
from ..reading.old_format import CRC_AT, KEY_AT, TIMESTAMP_AT, checksums_fit, fields_fit
from .batches import SCHEMA, BatchRow, rows_of_entry
from .records import APPEND_TIME, CREATE_TIME, NO_TIME, NONE_MS, times

RUN_ENTRIES_MIN: Final = 16
"""A shorter run costs more than its entries one by one."""
_FIELD_BYTES_MIN: Final = KEY_AT[1] + 8 + 1
"""A message of format v1 without key and value, and one byte more: from this size on its fields can be read."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive entries of one kind, each with a row for each of its batches. ``offsets``: the last one of each
    entry; they increase. ``identities``: the batches that the batch marker of each names; None: these are plain
    messages."""

    offsets: Array
    timestamps: Array
    attributes: Array
    crcs: Array
    sizes: Array
    identities: list[tuple[Identity, ...]] | None
    batch_markers: list[bytes]

    def between(self, start: int, end: int) -> Run:
        """Return the entries whose last offset is from ``start`` on and below ``end``."""
        begin, behind = np.searchsorted(self.offsets, (start, end)).tolist()
        part = slice(begin, behind)
        return Run(
            self.offsets[part],
            self.timestamps[part],
            self.attributes[part],
            self.crcs[part],
            self.sizes[part],
            None if self.identities is None else self.identities[part],
            self.batch_markers[part],
        )


def batch_runs(data: memoryview) -> Iterator[BatchRow | Run]:
    """Yield the rows of what is whole in the data, in order. Raises Broken after the last entry that can be found."""
    broken = None
    try:
        starts, end = entries(data)
    except Broken as error:
        broken = error
        starts, end = entries(data[: error.position])
    ends = np.append(starts[1:], end)
    for begin, behind, run in _blocks(data, starts, ends):
        if run is not None:
            yield run
            continue
        for first, last in zip(starts[begin:behind].tolist(), ends[begin:behind].tolist(), strict=True):
            if data[first + MAGIC_AT] > NEW_FORMAT:
                raise Broken(first, f"an entry of magic {data[first + MAGIC_AT]}")
            yield from rows_of_entry(data[first:last])
    if broken is not None:
        raise broken


def _blocks(data: memoryview, starts: Array, ends: Array) -> Iterator[tuple[int, int, Run | None]]:
    """Yield (first entry, after the last one, the run that they are or None), in order, until all are there."""
    count = len(starts)
    if count < RUN_ENTRIES_MIN:
        yield 0, count, None
        return
    octets = np.frombuffer(data, np.uint8)
    attributes = octets[starts + MAGIC_AT + 1]
    codecs = attributes & message_set.CODEC_MASK
    usual = (octets[starts + MAGIC_AT] == 1) & (ends - starts >= _FIELD_BYTES_MIN) & (codecs <= Codec.ZSTD)
    at = np.flatnonzero(usual)
    usual[at] = fields_fit(data, starts[at] + KEY_AT[1], ends[at])
    at = np.flatnonzero(usual)
    usual[at] = checksums_fit(data, starts[at], ends[at])
    offsets = integers(data, starts, ">i8")
    is_wrapper = codecs != 0
    batch_markers, identities = _batch_markers(data, starts, usual & is_wrapper, offsets)
    usual &= ~is_wrapper | np.array([one is not None for one in identities])
    is_border = (usual[1:] != usual[:-1]) | (is_wrapper[1:] != is_wrapper[:-1]) | (offsets[1:] <= offsets[:-1])
    borders = [0, *(np.flatnonzero(is_border) + 1).tolist(), count]
    for begin, behind in pairwise(borders):
        if not usual[begin] or behind - begin < RUN_ENTRIES_MIN:
            yield begin, behind, None
            continue
        part = slice(begin, behind)
        found: list[Any] | None = identities[part] if is_wrapper[begin] else None
        stamps, crcs = integers(data, starts[part] + TIMESTAMP_AT, ">i8"), integers(data, starts[part] + CRC_AT, ">u4")
        sizes = ends[part] - starts[part]
        yield begin, behind, Run(offsets[part], stamps, attributes[part], crcs, sizes, found, batch_markers[part])


def _batch_markers(
    data: memoryview, starts: Array, wanted: Array, offsets: Array
) -> tuple[list[bytes], list[tuple[Identity, ...] | None]]:
    """Return the key of each wanted entry and the batches that it names; None if it is no batch marker that fits the
    wrapper."""
    batch_markers = [b""] * len(starts)
    identities: list[tuple[Identity, ...] | None] = [None] * len(starts)
    at = np.flatnonzero(wanted)
    key_at = starts[at] + KEY_AT[1]
    lengths = integers(data, key_at, ">i4")
    for index, begin, length in zip(at.tolist(), (key_at + 4).tolist(), lengths.tolist(), strict=True):
        key = bytes(data[begin : begin + max(length, 0)])
        named = parse_batch_marker(key)
        if named is not None and sum(one.record_count for one in named) <= offsets[index] + 1:
            batch_markers[index], identities[index] = key, named
    return batch_markers, identities


def run_table(topic: str, partition: int, run: Run) -> pa.RecordBatch:
    """Return the rows as Arrow."""
    fields: dict[str, Any] = dict.fromkeys(("producerId", "producerEpoch", "baseSequence", "batchMarker"))
    batches, counts, lasts = np.ones(len(run.offsets), np.int64), np.ones(len(run.offsets), np.int64), run.offsets
    if run.identities is not None:
        batches = np.fromiter(map(len, run.identities), np.int64, len(run.identities))
        named = np.array(list(chain.from_iterable(run.identities)), np.int64).reshape(-1, 4)
        ids, epochs, sequences, counts = named.T
        total = np.cumsum(counts)
        lasts = np.repeat(run.offsets - total[np.cumsum(batches) - 1], batches) + total
        batch_markers = chain.from_iterable(map(repeat, run.batch_markers, batches.tolist()))
        fields = {
            "producerId": ids,
            "producerEpoch": epochs,
            "baseSequence": sequences,
            "batchMarker": list(batch_markers),
        }
    count = len(lasts)
    attributes, timestamps = np.repeat(run.attributes, batches), np.repeat(run.timestamps, batches)
    append = attributes & message_set.LOG_APPEND_TIME_FLAG != 0
    types = np.where(timestamps == NONE_MS, NO_TIME, np.where(append, APPEND_TIME, CREATE_TIME))
    fields |= {
        "topic": pa.repeat(topic, count),
        "partition": np.full(count, partition),
        "baseOffset": lasts + 1 - counts,
        "lastOffset": lasts,
        "recordCount": counts,
        "timestamp": times(timestamps),
        "timestampType": types,
        "magic": np.ones(count),
        "codec": _codec_names(attributes & message_set.CODEC_MASK),
        "crc": np.repeat(run.crcs, batches),
        "crcIsValid": np.ones(count, bool),
        "sizeBytes": np.repeat(run.sizes, batches),
        "entryOffset": np.repeat(run.offsets, batches),
        "isTransactional": np.zeros(count, bool),
        "isControl": np.zeros(count, bool),
    }
    return pa.RecordBatch.from_arrays([_column(fields[one.name], one.type, count) for one in SCHEMA], schema=SCHEMA)


def _column(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    if isinstance(values, np.ndarray):
        return pa.array(values.astype(kind.to_pandas_dtype()), kind)
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def _codec_names(codecs: Array) -> pa.Array:
    if (codecs == codecs[:1]).all():
        return pa.repeat(Codec(int(codecs[0])).name.lower(), len(codecs)) if len(codecs) else pa.array([], pa.string())
    return pa.array([Codec(one).name.lower() for one in codecs.tolist()], pa.string())
