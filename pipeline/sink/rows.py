"""Rows of a task as finished batches: which topic and partition each row goes to, and when a batch is full.

Pure but for the clock and the number of a topic's partitions, which are handed in. Rows of one destination keep the
order in which they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from . import content, encode, murmur2
from .encode import Columns
from .manifest import Place
from .options import SinkOptions
from .problems import SinkProblem

Int64s = npt.NDArray[np.int64]

PENDING_BYTES_MAX: Final = 64 << 20
"""Rows of one task that wait for their batch to be full; above it all of them go into batches that are not full."""
RECORDS_MAX: Final = 32_768
"""In one batch: tiny records become several times as large in message format v1."""


@dataclass(frozen=True, slots=True)
class MadeBatch:
    """A finished batch and where it goes."""

    place: Place
    record_count: int
    data: bytes


class _Pending:
    """Rows of one destination that are in no batch yet."""

    def __init__(self) -> None:
        self.parts: list[Columns] = []
        self.sizes: list[Int64s] = []
        self.size_bytes = 0


class BatchMaker:
    """The rows of one attempt of one task."""

    def __init__(
        self,
        options: SinkOptions,
        partition_count: Callable[[str], int],
        first_turn: int,
        now_ms: Callable[[], int],
    ) -> None:
        """``first_turn``: the partition for the first rows without a key; each task has another one."""
        self.digest = content.NOTHING
        """Of the rows that were taken. Only a batch write needs it, and it costs a hash for each row."""
        self._options = options
        self._partition_count = partition_count
        self._turn = first_turn
        self._now_ms = now_ms
        self._pending: dict[Place, _Pending] = {}
        self._pending_bytes = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[MadeBatch]:
        """Take rows; yield the batches that are full. Raises SinkProblem for a row that cannot be sent."""
        if not rows.num_rows:
            return
        columns = _columns_of(rows)
        given = _column(rows, "partition")
        for topic, chosen in self._by_topic(rows):
            of_topic = columns if chosen is None else columns.taken(chosen)
            sizes = of_topic.sizes()
            self._check_sizes(topic, sizes)
            said = given if given is None or chosen is None else given.take(pa.array(chosen))
            partitions = self._partitions(topic, of_topic, said)
            if self._options.is_run:
                self.digest = content.together([self.digest, content.digest_of(topic, of_topic, said)])
            order = np.argsort(partitions, kind="stable")
            borders = np.flatnonzero(np.diff(partitions[order])) + 1
            for indices in np.split(order, borders):
                place = (topic, int(partitions[indices[0]]))
                yield from self._add(place, of_topic.taken(indices), sizes[indices])
        self._turn += 1
        if self._pending_bytes > PENDING_BYTES_MAX:
            yield from self.rest()

    def rest(self) -> Iterator[MadeBatch]:
        """Yield the batches of what is left."""
        for place in list(self._pending):
            yield from self._full(place, is_all=True)

    # ------------------------------------------------------------------ destinations
    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, Int64s | None]]:
        """Yield each topic and which rows are its; None: all."""
        if self._options.topic is not None:
            yield self._options.topic, None
            return
        topics = _column(rows, "topic")
        if topics is None or topics.null_count:
            raise SinkProblem("a row has no topic: give the option topic, or a column topic without null")
        encoded = topics.cast(pa.string()).dictionary_encode()
        numbers = np.asarray(encoded.indices)
        for number, topic in enumerate(encoded.dictionary.to_pylist()):
            yield topic, np.flatnonzero(numbers == number)

    def _partitions(self, topic: str, rows: Columns, given: Any) -> Int64s:
        """Return the partition of each row: the given one, else by the key, else by turns."""
        count = self._partition_count(topic)
        has_key = np.asarray(pc.is_valid(rows.keys))
        partitions = np.where(has_key, murmur2.partitions_of(*encode.buffers_of(rows.keys), count), self._turn % count)
        if given is None:
            return partitions
        said = np.asarray(pc.fill_null(given, -1), np.int64)
        is_said = np.asarray(pc.is_valid(given))
        wrong = said[is_said & ((said < 0) | (said >= count))]
        if len(wrong):
            raise SinkProblem(f"a row is for partition {wrong[0]} of {topic}, which has {count}")
        return np.where(is_said, said, partitions)

    def _check_sizes(self, topic: str, sizes: Int64s) -> None:
        largest = int(sizes.max())
        if largest > self._options.record_bytes_max:
            raise SinkProblem(
                f"a record for {topic} has {largest} bytes, and kafka.max.request.size is "
                f"{self._options.record_bytes_max}: raise it if the broker takes such records (max.message.bytes)"
            )

    # ------------------------------------------------------------------ batches
    def _add(self, place: Place, rows: Columns, sizes: Int64s) -> Iterator[MadeBatch]:
        pending = self._pending.setdefault(place, _Pending())
        size_bytes = int(sizes.sum())
        pending.parts.append(rows)
        pending.sizes.append(sizes)
        pending.size_bytes += size_bytes
        self._pending_bytes += size_bytes
        yield from self._full(place, is_all=False)

    def _full(self, place: Place, *, is_all: bool) -> Iterator[MadeBatch]:
        """Yield full batches of a destination, or all of its rows."""
        pending = self._pending[place]
        if not is_all and pending.size_bytes < self._options.batch_bytes:
            return
        rows = encode.joined(pending.parts)
        sizes = np.concatenate(pending.sizes)
        ends = list(ends_of_batches(sizes, self._options.batch_bytes, RECORDS_MAX))
        if not is_all:
            ends.pop()  # it may get more
        encoded = encode.finished_batches(rows, ends, self._now_ms(), self._options.codec)
        start = 0
        for end, data in zip(ends, encoded, strict=True):
            yield MadeBatch(place, end - start, data)
            start = end
        left = int(sizes[start:].sum())
        self._pending_bytes += left - pending.size_bytes
        if start == len(rows):
            del self._pending[place]
        else:
            pending.parts, pending.sizes, pending.size_bytes = [rows.slice(start, len(rows))], [sizes[start:]], left


def ends_of_batches(sizes: Int64s, batch_bytes: int, records_max: int) -> Iterator[int]:
    """Yield where each batch ends: as many rows as fit, and at least one."""
    total = np.concatenate(([0], np.cumsum(sizes)))
    start = 0
    while start < len(sizes):
        fits = int(np.searchsorted(total, total[start] + batch_bytes, side="right")) - 1
        start = min(max(fits, start + 1), start + records_max)
        yield start


def _columns_of(rows: pa.RecordBatch) -> Columns:
    values = _column(rows, "value")
    keys, headers = _column(rows, "key"), _column(rows, "headers")
    return Columns(
        pa.nulls(rows.num_rows, pa.large_binary()) if keys is None else encode.as_binary(keys),
        encode.as_binary(values),
        None if headers is None else encode.encoded_headers(headers),
    )


def _column(rows: pa.RecordBatch, name: str) -> Any:
    """Return a column by its name, in any case, as Spark finds it; None: there is none."""
    position = next((at for at, one in enumerate(rows.schema.names) if one.lower() == name), None)
    return None if position is None else rows.column(position)
