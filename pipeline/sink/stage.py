"""What a task does: it writes its rows as finished batches to a file of its own, which is read only if Spark chooses
this attempt.

Attempts that fail, are repeated or continue as zombies write other files; none of them touches the topic."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from .manifest import StagedBatch, StageFile
from .options import SinkOptions
from .publish import crc_of
from .rows import BatchMaker, MadeBatch
from .storage import Storage
from .topics import partition_count


def stage(rows: Iterable[Any], folder: str, first_turn: int, storage: Storage, options: SinkOptions) -> StageFile:
    """Write Arrow batches of rows to a fresh file in this folder; return what is in it, durably. Raises SinkProblem."""
    name = f"{folder}/{uuid.uuid4().hex}"
    maker = BatchMaker(options, partial(partition_count, options.connection), first_turn, _now_ms)
    made = _all(maker, rows)
    first = next(made, None)
    if first is None:
        return StageFile(name, 0, ())
    staged: list[StagedBatch] = []
    position = 0
    with storage.writing(name) as file:
        for batch in chain([first], made):
            size = file.write(batch.data)
            staged.append(StagedBatch(*batch.place, position, size, batch.record_count, crc_of(batch.data)))
            position += size
    return StageFile(name, position, tuple(staged), maker.digest)


def _all(maker: BatchMaker, rows: Iterable[Any]) -> Iterator[MadeBatch]:
    for columns in rows:
        yield from maker.add(columns)
    yield from maker.rest()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
