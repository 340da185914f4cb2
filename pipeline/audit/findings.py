"""The columns of findings, and how rows of them are made. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..reading.contents import Array
from .kinds import Finding

TYPES: Final[Mapping[str, str]] = {
    "place": "int32",
    "offset": "int64",
    "last_offset": "int64",
    "other_offset": "int64",
    "timestamp": "int64",
    "producer_id": "int64",
    "epoch": "int32",
    "sequence": "int32",
    "count": "int64",
    "size": "int64",
    "compared": "int8",
}
"""The columns of a finding, next to its kind. ``other_offset``: of the first copy; of the record before a gap; of the
record with the highest sequence or epoch before an inversion or a regression. ``count``: records, sequences or offsets.
``compared``: 1 if the bytes of both records were compared, 0 if one of them could not be read again. -1: not known, or
not applicable to the kind."""
_SPARK: Final = {"int8": "tinyint", "int32": "int", "int64": "bigint"}
SPARK_SCHEMA: Final = "kind string, " + ", ".join(f"`{name}` {_SPARK[kind]}" for name, kind in TYPES.items())
SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        *(pa.field(name, pa.from_numpy_dtype(np.dtype(kind))) for name, kind in TYPES.items()),
    ]
)


def finding_rows(kind: Finding | Array, count: int, /, **given: Any) -> pa.RecordBatch:
    """Return so many findings, of one kind or of several; what is not given is -1, but for ``count``, which is 1."""
    kinds = pa.array([str(kind)] * count if isinstance(kind, str) else kind.tolist(), pa.string())
    made = []
    for name, dtype in TYPES.items():
        value = np.asarray(given.get(name, 1 if name == "count" else -1), dtype)
        made.append(pa.array(np.broadcast_to(value, (count,))))
    return pa.RecordBatch.from_arrays([kinds, *made], schema=SCHEMA)


def joined(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return all findings as one table."""
    return pa.Table.from_batches(list(batches), schema=SCHEMA)
