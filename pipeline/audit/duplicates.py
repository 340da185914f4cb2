"""What ``duplicates.json`` says: offsets that are certainly a duplicate, for ``idemproxy hide add``.

Only duplicates that sequence numbers prove, and whose bytes were compared, are in it; suspected ones are not. A range
is a duplicate of as many records in a row, of one producer and epoch. Read by
``proxy/commands/inspection/found_duplicates.py``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from ... import __version__
from .job import Audited
from .kinds import Finding
from .outputs import named

FORMAT: Final = 1
_STEPS: Final = {"offset": 1, "other_offset": 1, "partition": 0, "producer_id": 0, "epoch": 0}
"""By how much these columns increase from one record of a range to the next."""


def duplicates_of(audited: Audited, source: str) -> dict[str, Any]:
    """Return the file as plain data. ``is_whole``: no duplicate was found that is not in it. ``source``: what was
    read."""
    found = named(audited)
    is_certain = pc.and_(pc.equal(found["kind"], str(Finding.DUPLICATE)), pc.equal(found["compared"], 1))
    found = found.filter(is_certain)  # where one could not be read again, the other may be the only one that is left
    found = found.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
    counted = sum(count for (kind, _), count in audited.counts.items() if kind is Finding.DUPLICATE)
    topics = np.asarray(found["topic"].to_pylist(), object)
    columns = {name: found[name].to_numpy() for name in (*_STEPS, "sequence")}
    goes_on = topics[1:] == topics[:-1]
    for name, step in _STEPS.items():
        goes_on = goes_on & (np.diff(columns[name]) == step)
    starts = [number for number in range(len(topics)) if number == 0 or not goes_on[number - 1]]
    ends = [*starts[1:], len(topics)] if starts else []
    ranges = [
        {
            "topic": topics[start],
            "partition": int(columns["partition"][start]),
            "first": int(columns["offset"][start]),
            "last": int(columns["offset"][end - 1]),
            "first_copy": int(columns["other_offset"][start]),
            "producer_id": int(columns["producer_id"][start]),
            "epoch": int(columns["epoch"][start]),
            "sequence": int(columns["sequence"][start]),
        }
        for start, end in zip(starts, ends, strict=True)
    ]
    return {
        "format": FORMAT,
        "version": __version__,
        "source": source,
        "is_whole": counted == len(topics),
        "duplicates": ranges,
    }
