"""What a task does: a range of one partition becomes rows. Runs in Spark's workers, with connections of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from ...codecs.errors import WireError
from ..reading.broker import BrokerProblem, Cluster, OutOfRange
from ..reading.container import Broken
from ..reading.decode import containers, in_order
from ..reading.fetching import PartitionFetch
from ..reading.patience import Patience
from .batch_runs import Run, batch_runs, run_table
from .batches import BatchRow, table
from .options import Rows
from .planning import ReadTask
from .problems import DamagedLog, DataLost
from .records import Part, part_of, record_rows

_LOG: Final = logging.getLogger(__name__)


class _Reading:
    """One task at work."""

    def __init__(self, task: ReadTask, cluster: Cluster) -> None:
        self._task = task
        self._name = f"{task.range.topic}-{task.range.partition}"
        self._cluster = cluster
        self._fetch = PartitionFetch(cluster, *task.range.place, task.fetch_bytes)
        self._position = task.range.start
        self._patience = Patience()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows. Raises DataLost, DamagedLog, BrokerProblem, TooLarge."""
        while self._position < self._task.range.end:
            try:
                fetched = self._fetch.at(self._position)
            except OutOfRange:
                self._out_of_range()
                continue
            except BrokerProblem:
                topic, partition = self._task.range.place
                if partition in self._cluster.partitions({topic}).get(topic, ()):
                    raise
                self._lost(self._task.range.end, "the topic is not there any more")
                continue
            if fetched.records:
                self._patience.ends()
                whole = in_order(fetched.records)
                yield from self._taken(fetched.records[:whole])
                if whole < len(fetched.records) and self._position < self._task.range.end:
                    self._damaged(self._position, self._task.range.end - 1, "offsets go back")
                    self._position = self._task.range.end
            elif fetched.high_watermark >= self._task.range.end:
                return  # the last ones were compacted away, or hidden ranges leave them out
            else:
                self._wait(fetched.high_watermark)

    def _taken(self, data: memoryview) -> Iterator[pa.RecordBatch]:
        topic, partition = self._task.range.place
        if self._task.rows is Rows.BATCHES:
            rows: list[BatchRow] = []
            for one in self._batches_in(data):
                if isinstance(one, BatchRow):
                    rows.append(one)
                    continue
                if rows:
                    yield table(topic, partition, rows)
                    rows = []
                yield run_table(topic, partition, one)
            if rows:
                yield table(topic, partition, rows)
            return
        try:
            yield from record_rows(topic, partition, self._parts_in(data), self._task.with_headers)
        except WireError as error:
            raise DamagedLog(f"{self._name}: headers of a record below {self._position}: {error}") from None

    def _batches_in(self, data: memoryview) -> Iterator[BatchRow | Run]:
        end = self._task.range.end
        try:
            for row in batch_runs(data):
                if isinstance(row, Run):
                    yield row.between(self._position, end)
                    self._position = max(self._position, min(int(row.offsets[-1]) + 1, end))
                else:
                    if self._position <= row.entry_end < end:
                        yield row
                    if row.last_offset == row.entry_end:  # the last one of a wrapper
                        self._position = max(self._position, row.entry_end + 1)
                if self._position >= end:
                    return
        except Broken as broken:
            self._broken(broken)

    def _parts_in(self, data: memoryview) -> Iterator[Part]:
        end = self._task.range.end
        try:
            for container in containers(data, joins_wrappers=True):
                start = self._position
                if container.last < start:
                    continue
                if container.unreadable and container.first < end:
                    self._damaged(max(container.first, start), min(container.last, end - 1), container.unreadable)
                self._position = container.last + 1
                part = part_of(container, start, end)
                if part is not None:
                    yield part
                if self._position >= end:
                    return
        except Broken as broken:
            self._broken(broken)

    # ------------------------------------------------------------------ what is not there
    def _out_of_range(self) -> None:
        first, last = self._cluster.offsets(*self._task.range.place)
        if first > self._position:
            behind = min(first, self._task.range.end)
            self._lost(behind, f"the log begins at {first}: deleted by retention, or the topic was recreated")
        else:
            self._wait(last)

    def _wait(self, high_watermark: int) -> None:
        """Wait, as the log ends before the range does; after ``LAG_SECONDS_MAX`` the rest of the range is lost."""
        if self._patience.waits():
            return
        why = f"the log ends at {high_watermark}: the topic was recreated, or its leader has lost records"
        self._lost(self._task.range.end, why)

    def _lost(self, behind: int, why: str) -> None:
        sentence = f"{self._name}: the offsets {self._position} to {behind - 1} are gone: {why}"
        if self._task.fails_on_data_loss:
            raise DataLost(f"{sentence}; with failOnDataLoss=false the query continues without them")
        _LOG.warning("%s; the query continues without them", sentence)
        self._position = behind

    def _broken(self, broken: Broken) -> None:
        self._damaged(self._position, self._task.range.end - 1, f"nothing can be found any more: {broken}")
        self._position = self._task.range.end

    def _damaged(self, first: int, last: int, why: str) -> None:
        sentence = f"{self._name}: the offsets {first} to {last} cannot be read: {why}"
        if self._task.fails_on_data_loss:
            raise DamagedLog(f"{sentence}; with failOnDataLoss=false the query continues without them")
        _LOG.warning("%s; the query continues without them", sentence)


def read(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range. Raises DataLost, DamagedLog, BrokerProblem, TooLarge."""
    with Cluster(task.bootstrap, task.access) as cluster:
        yield from _Reading(task, cluster).batches()
