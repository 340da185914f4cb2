"""What a proxy's journal says that clients were told: the batches that were acknowledged, as rows. Reads one file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...codecs.error_codes import ErrorCode
from .rows import Kind, columns, record_batch

_BLOCK_ROWS: Final = 50_000
_SENT_MAX: Final = 1_000_000
"""Batches whose record count is kept until their answer is read: what a proxy has under way, many times over."""
_COUNTED: Final = (b'"event":"sent"', b'"event":"outcome"')
_ANSWERED: Final = b'"event":"answered"'
_TOLD: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
"""Codes after which a client takes its records for stored."""

_Batch = tuple[str, int, int, int, int]


class JournalProblem(Exception):
    """The file is no journal; the message is a sentence for a person."""


def read_journal(path: Path, places: Mapping[tuple[str, int], int]) -> Iterator[pa.RecordBatch]:
    """Yield the acknowledged batches of these partitions. ``places``: their numbers. Raises OSError, JournalProblem."""
    with path.open("rb") as file:
        yield from acknowledged(file, places)


def acknowledged(lines: Iterable[bytes], places: Mapping[tuple[str, int], int]) -> Iterator[pa.RecordBatch]:
    """Yield what the lines of a journal say. How many records a batch has is told when it is sent; of one that was sent
    by another proxy only the first record is looked for."""
    counts: dict[_Batch, int] = {}
    found: list[tuple[int, int, int, int, int, int, int]] = []
    for number, line in enumerate(lines, 1):
        is_answer = _ANSWERED in line
        if not is_answer and not any(mark in line for mark in _COUNTED):
            continue
        try:
            said = json.loads(line)
            if is_answer:
                row = _told(said, counts, places)
                if row is not None:
                    found.append(row)
            else:
                _count(said, counts)
        except (ValueError, KeyError, TypeError) as error:
            if not line.endswith(b"\n"):
                break  # the proxy is writing it
            raise JournalProblem(f"line {number} is not one of a journal: {type(error).__name__}: {error}") from None
        if len(found) == _BLOCK_ROWS:
            yield _rows(found)
            found = []
    if found:
        yield _rows(found)


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
    return place, *batch[2:], said["base_offset"], counts.pop(batch, 1), said["time_ms"]


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
