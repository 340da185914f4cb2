"""The batches that proxies acknowledged to clients, by their journals, as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...codecs.error_codes import ErrorCode
from ..journal.files import JournalProblem, Reader, journals, merged
from .rows import Kind, columns, record_batch

_BLOCK_ROWS: Final = 50_000
_SENT_MAX: Final = 1_000_000
"""Batches whose record count is kept until their answer is read: what a proxy has under way, many times over."""
_COUNTED: Final = ("sent", "outcome")
_ANSWERED: Final = "answered"
_MISSING: Final = "missing"
_TOLD: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
"""Codes after which a client takes its records for stored."""

_Batch = tuple[str, int, int, int, int]


def read_journals(
    paths: Sequence[Path], places: Mapping[tuple[str, int], int], note: Callable[[str], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the acknowledged batches of these partitions. ``paths``: of journals, as the setting names them; with each
    come the files that were renamed, and those of workers. ``places``: the partitions' numbers. ``note``: called with
    what is left out. Raises OSError, JournalProblem."""
    readers = [Reader(path, note, is_strict=True) for path in journals(paths)]
    try:
        yield from acknowledged((line.said for line in merged(readers)), places, note)
    finally:
        for reader in readers:
            reader.end()


def acknowledged(
    lines: Iterable[Mapping[str, Any]], places: Mapping[tuple[str, int], int], note: Callable[[str], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the acknowledged batches in the lines of a journal. ``note``: called with what the journal itself lacks. In
    format 1 an answer has no record count: it is taken from the line of the append. Of a batch that another proxy has
    sent, only the first record is then looked for. Raises JournalProblem."""
    counts: dict[_Batch, int] = {}
    found: list[tuple[int, int, int, int, int, int, int]] = []
    missing = 0
    for said in lines:
        try:
            if said["event"] == _ANSWERED:
                row = _told(said, counts, places)
                if row is not None:
                    found.append(row)
            elif said["event"] == _MISSING:
                missing += said["events"]
            elif said["event"] in _COUNTED:
                _count(said, counts)
        except (ValueError, KeyError, TypeError) as error:
            raise JournalProblem(f"a line of the journal cannot be: {type(error).__name__}: {error}: {said}") from None
        if len(found) == _BLOCK_ROWS:
            yield _rows(found)
            found = []
    if found:
        yield _rows(found)
    if missing:
        note(
            f"the journal lacks {missing:,} events that could not be written: what they acknowledged is not looked for"
        )


def _count(said: Mapping[str, Any], counts: dict[_Batch, int]) -> None:
    for producer_id, epoch, sequence, count in said["identities"]:
        counts[said["topic"], said["partition"], producer_id, epoch, sequence] = count
    while len(counts) > _SENT_MAX:
        del counts[next(iter(counts))]


def _told(
    said: Mapping[str, Any], counts: dict[_Batch, int], places: Mapping[tuple[str, int], int]
) -> tuple[int, int, int, int, int, int, int] | None:
    batch = (said["topic"], said["partition"], said["producer_id"], said["producer_epoch"], said["base_sequence"])
    place = places.get(batch[:2])
    if said["error_code"] not in _TOLD or batch[2] < 0 or place is None:
        return None
    count = said.get("record_count", counts.get(batch, 1))
    counts.pop(batch, None)
    return place, *batch[2:], said["base_offset"], count, said["time_ms"]


def _rows(found: list[tuple[int, int, int, int, int, int, int]]) -> pa.RecordBatch:
    place, producer_id, epoch, sequence, told, count, time_ms = np.array(found, np.int64).T
    rows = columns(
        Kind.ACKNOWLEDGED,
        0,
        len(found),
        offset=told,
        last_offset=np.where(told < 0, -1, told + count - 1),
        timestamp=time_ms,
        producer_id=producer_id,
        epoch=epoch,
        sequence=sequence,
        size=count,
    )
    return record_batch({**rows, "place": place.astype(np.int32)})
