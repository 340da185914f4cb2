"""The rows that a reading task makes of a piece of a log, as columns: one schema for all kinds, since a Spark task has
one output.

Every row has a kind; what a column means for each kind:

===============  ==============  ================  =========================  =====================================
kind             offset          last_offset       size                       and
===============  ==============  ================  =========================  =====================================
``RECORD``       its offset      the same, or (1)  bytes of key and value     hash1, hash2, timestamp, its identity
``RUN``          first record    last record       records that are there     base sequence; without identity: id -1;
                                                                              hash1: its batch's marker, or 0
``HOLE``         first missing   last missing      -                          only those within a run
``RANGE``        first record    after the last    bytes read                 one for each range, also an empty one
``UNREADABLE``   first           last              -                          note: why
``DELETED``      first           last              -                          gone while the log was read
``CUT``          after the last  -                 -                          note: bytes that are no whole entry
``ACKNOWLEDGED`` reported or -1  reported last     records                    identity, from the proxy's journal
===============  ==============  ================  =========================  =====================================

(1) With ``IS_MARKED`` the last offset of its batch: two records with the same one are of one producer.

Pure: numpy and Arrow only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..reading.contents import Array

Columns = dict[str, Array]


class Kind(IntEnum):
    """What a row describes."""

    RECORD = 0
    RUN = 1
    HOLE = 2
    RANGE = 3
    UNREADABLE = 4
    DELETED = 5
    ACKNOWLEDGED = 6
    CUT = 7


NO_PRODUCER: Final = -1
NO_MARKER: Final = 0
"""In ``hash1`` of a run: none that is in the header of a batch of format v2. A run with one is one batch."""
NO_KEY: Final = 1
"""In ``flags`` of a run: a record in it has no key."""
IS_MARKED: Final = 2
"""In ``flags`` of a record, next to ``LOG_APPEND_TIME``: its batch has a marker in its header."""

TYPES: Final[Mapping[str, str]] = {
    "kind": "int8",
    "place": "int32",
    "offset": "int64",
    "last_offset": "int64",
    "timestamp": "int64",
    "flags": "int8",
    "producer_id": "int64",
    "epoch": "int32",
    "sequence": "int32",
    "hash1": "int64",
    "hash2": "int64",
    "size": "int64",
}
"""``place``: the number of a partition in the plan. ``timestamp``: ms, -1 where the format has none."""
_SPARK: Final = {"int8": "tinyint", "int32": "int", "int64": "bigint"}
SPARK_SCHEMA: Final = ", ".join(f"`{name}` {_SPARK[kind]}" for name, kind in TYPES.items()) + ", note string"
SCHEMA: Final = pa.schema(
    [pa.field(name, pa.from_numpy_dtype(np.dtype(kind))) for name, kind in TYPES.items()]
    + [pa.field("note", pa.string())]
)
_ABSENT: Final = {"timestamp": -1, "producer_id": NO_PRODUCER, "epoch": -1, "sequence": -1}


def columns(kind: Kind, place: int, count: int, /, **given: Any) -> Columns:
    """Return so many rows of one kind: arrays or single values for the columns that it has, nothing for the others."""
    made: Columns = {}
    for name, dtype in TYPES.items():
        value = {"kind": int(kind), "place": place, **given}.get(name, _ABSENT.get(name, 0))
        made[name] = np.broadcast_to(np.asarray(value, dtype), (count,))
    return made


def concatenated(blocks: Iterable[Columns]) -> Columns:
    """Return the rows of all blocks, in their order."""
    taken = list(blocks)
    return {
        name: np.concatenate([block[name] for block in taken]) if taken else np.empty(0, dtype)
        for name, dtype in TYPES.items()
    }


def record_batch(found: Columns, notes: Iterable[str | None] | None = None) -> pa.RecordBatch:
    """Return the rows as Arrow. ``notes``: one for each row, or none at all."""
    size = len(found["kind"])
    note = pa.nulls(size, pa.string()) if notes is None else pa.array(list(notes), pa.string())
    return pa.RecordBatch.from_arrays([*(pa.array(found[name]) for name in TYPES), note], schema=SCHEMA)


def columns_of(batch: pa.RecordBatch) -> Columns:
    """Return the columns of an Arrow batch that has this schema."""
    return {name: batch.column(name).to_numpy(zero_copy_only=False) for name in TYPES}


def taken(found: Columns, index: Array) -> Columns:
    """Return some rows: by a mask, or by their numbers in a new order."""
    return {name: column[index] for name, column in found.items()}
