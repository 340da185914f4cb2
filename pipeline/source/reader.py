"""``spark.read.format("idemproxy")``: plans on the driver which task reads what. Spark plans in a
process of its own, so what only tasks need is imported by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..reading.broker import Cluster
from .offsets import Offsets, named
from .options import ReadOptions
from .planning import Range, ReadTask, ranges_between, split
from .positions import offsets_of, partitions_of
from .problems import DataLost

if TYPE_CHECKING:
    import pyarrow as pa


class TaskPartition(InputPartition):
    """One task, as Spark carries it."""

    def __init__(self, task: ReadTask) -> None:
        super().__init__(task)


def task_partitions(options: ReadOptions, ranges: list[Range]) -> list[InputPartition]:
    """Return the tasks for these ranges, cut as the options say."""
    pieces = split(ranges, options.partitions_min, options.records_per_task_max)
    return [
        TaskPartition(
            ReadTask(
                options.bootstrap,
                options.access,
                piece,
                options.rows,
                options.includes_headers,
                options.fails_on_data_loss,
                options.fetch_bytes,
            )
        )
        for piece in pieces
    ]


class BatchReader(DataSourceReader):
    """Reads from where to where the options say, as the brokers are when Spark plans the query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Raises WrongOption, DataLost, BrokerProblem."""
        options = self._options
        with Cluster(options.bootstrap, options.access) as cluster:
            places = partitions_of(cluster, options.topics)
            starts = offsets_of(cluster, places, options.start, falls_back_to_end=options.may_begin_at_end)
            ends = offsets_of(cluster, places, options.end, falls_back_to_end=True)
        self._check(starts, ends)
        # For a query without tasks Spark plans one of its own, whose partition has the value None.
        return task_partitions(options, ranges_between(starts, ends))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """What a task does."""
        from . import tasks

        return iter(()) if partition.value is None else tasks.read(partition.value)

    def _check(self, starts: Offsets, ends: Offsets) -> None:
        backwards = [place for place, end in ends.items() if starts[place] > end]
        if backwards and self._options.fails_on_data_loss:
            raise DataLost(f"{named(backwards)} ends before the offset to start at; was the topic recreated?")
