"""Records with the same content in one partition: which are suspected duplicates, and which only repeat each other.

Takes the fingerprints of records in the order of ``ORDER``, block by block. Where sequence numbers prove a duplicate it
is found by them (``sequences.py``) and left out here. Pure.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from ..reading.container import LOG_APPEND_TIME
from ..reading.contents import Array
from .findings import finding_rows
from .kinds import Finding
from .rows import IS_MARKED, Columns, taken

ORDER: Final = ("place", "hash1", "hash2", "created", "offset")
"""How the rows are sorted; ``created``: see ``created_of``."""
_SAME: Final = ("place", "hash1", "hash2")


def created_of(rows: Columns) -> Array:
    """Return when each record was made, in ms; -1 where the log does not say it."""
    made: Array = np.where(rows["flags"] & LOG_APPEND_TIME, -1, rows["timestamp"])
    return made


class RepeatFinder:
    """Compares each record with the one before it in ``ORDER``, also over the borders of blocks."""

    def __init__(self, distance: int) -> None:
        """``distance``: offsets within which equal records are reported although they were made at different times."""
        self._distance = distance
        self._last: Columns | None = None

    def findings(self, rows: Columns) -> pa.RecordBatch:
        """Return what the next block has."""
        if self._last is not None:
            rows = {name: np.concatenate((self._last[name], column)) for name, column in rows.items()}
        count = len(rows["offset"])
        if not count:
            return finding_rows(Finding.REPEATED_RECORD, 0)
        self._last = taken(rows, np.array([count - 1]))
        before, behind = taken(rows, np.arange(count - 1)), taken(rows, np.arange(1, count))
        same = np.logical_and.reduce([before[name] == behind[name] for name in _SAME])
        created = created_of(behind)
        is_same_time = created_of(before) == created
        is_near = np.abs(behind["offset"] - before["offset"]) <= self._distance
        is_one_epoch = (
            (behind["producer_id"] >= 0)
            & (behind["producer_id"] == before["producer_id"])
            & (behind["epoch"] == before["epoch"])
        )
        # A batch with a marker does not tell its producer: all its own records are of one.
        is_marked = before["flags"] & behind["flags"] & IS_MARKED != 0
        is_one_epoch |= is_marked & (before["last_offset"] == behind["last_offset"])
        is_same_number = is_one_epoch & (behind["sequence"] >= 0) & (behind["sequence"] == before["sequence"])
        suspected = same & is_same_time & ~is_one_epoch & ((created != -1) | is_near)
        repeated = same & ~suspected & ~is_same_number & is_near
        at = np.flatnonzero(suspected | repeated)
        kinds = np.where(suspected[at], str(Finding.SUSPECTED_DUPLICATE), str(Finding.REPEATED_RECORD))
        one, other = before["offset"][at], behind["offset"][at]
        found = taken(behind, at)
        return finding_rows(
            kinds,
            len(at),
            place=found["place"],
            offset=np.maximum(one, other),
            last_offset=np.maximum(one, other),
            other_offset=np.minimum(one, other),
            timestamp=found["timestamp"],
            producer_id=found["producer_id"],
            epoch=found["epoch"],
            sequence=found["sequence"],
            size=found["size"],
        )
