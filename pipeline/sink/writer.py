"""The sink as Spark sees it: ``write`` in the tasks, ``commit`` and ``abort`` on the driver.

Spark plans each micro-batch in a fresh process that calls none of these; so each imports what it uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from .options import SinkOptions
from .problems import SinkProblem

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from .commit import Batches
    from .manifest import StageFile

_RUN: Final = 0
"""The one batch of a batch write."""
_BYTES: Final = (BinaryType, StringType)
_COLUMNS: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "topic": ((StringType,), "string"),
    "key": (_BYTES, "binary or string"),
    "value": (_BYTES, "binary or string"),
    "partition": ((IntegerType,), "int"),
    "headers": ((ArrayType,), "array<struct<key:string,value:binary>>"),
}


@dataclass
class Staged(WriterCommitMessage):
    """What one attempt has written. ``query_id``: of the streaming query; None: a batch write. ``micro_batch``: in
    whose ``foreachBatch`` a batch write was made; None: in none."""

    file: StageFile
    query_id: str | None
    micro_batch: str | None = None


class StreamSink(DataSourceStreamArrowWriter):
    """The writer of a streaming query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """In a task: write the rows to a stage file."""
        task = _task()
        query_id, batch_id = _micro_batch(task)
        if batch_id is None:
            raise SinkProblem("Spark tells no batch id: this sink runs in micro-batches only")
        return Staged(_staged(iterator, int(batch_id), task, self._options), query_id)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: decide what the batch is, and publish it."""
        staged = _told(messages)
        query_id = next((one.query_id for one in staged if one is not None), None)
        _batches(self._options, self._options.producer_name or query_id).commit(batchId, _files(staged))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: a manifest names the files, or a later one may. They are removed two batches later."""


class BatchSink(DataSourceArrowWriter):
    """The writer of ``df.write``: a run with a name, which is published once, however often it is repeated."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """In a task: write the rows to a stage file."""
        task = _task()
        query_id, batch_id = _micro_batch(task)  # Spark's properties reach the writes inside foreachBatch, too
        micro_batch = None if batch_id is None else f"{query_id}/{batch_id}"
        return Staged(_staged(iterator, _RUN, task, self._options), None, micro_batch)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: publish the run. Its stage files are needed no more then."""
        staged = _told(messages)
        batches = _batches(self._options, self._options.producer_name)
        micro_batch = next((one.micro_batch for one in staged if one is not None), None)
        try:
            batches.commit(_RUN, _files(staged), micro_batch)
        finally:
            batches.forget_staged(_RUN)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: the manifest of an earlier try may need its files. They are removed once the run was
        published."""


def check_schema(schema: StructType, topic: str | None) -> None:
    """Raise SinkProblem for columns that are missing or of another type. Columns that a record does not have are left
    out, as by Spark's own sink."""
    found = {one.name.lower(): one.dataType for one in schema.fields}
    if "value" not in found:
        raise SinkProblem("a column value is needed: binary or string")
    if topic is None and "topic" not in found:
        raise SinkProblem("no topic: give the option topic, or a column topic")
    for name, (types, shown) in _COLUMNS.items():
        kind = found.get(name)
        if kind is not None and not (isinstance(kind, types) and (name != "headers" or _are_headers(kind))):
            raise SinkProblem(f"the column {name} is {kind.simpleString()}, and has to be {shown}")


def _are_headers(kind: DataType) -> bool:
    item = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(item, StructType) or item.names != ["key", "value"]:
        return False
    return isinstance(item.fields[0].dataType, StringType) and isinstance(item.fields[1].dataType, BinaryType)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark calls write in a task"
    return task


def _micro_batch(task: TaskContext) -> tuple[str | None, str | None]:
    """Return the query's id and the number of its micro-batch; None, None: the task belongs to no streaming query."""
    return task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("streaming.sql.batchId")


def _staged(rows: Iterator[Any], batch_id: int, task: TaskContext, options: SinkOptions) -> StageFile:
    from .commit import stage_folder
    from .stage import stage
    from .storage import storage_at

    return stage(rows, stage_folder(batch_id), task.partitionId(), storage_at(options.location), options)


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[Staged | None]:
    return [message if isinstance(message, Staged) else None for message in messages]


def _files(staged: Sequence[Staged | None]) -> list[StageFile | None]:
    return [None if one is None else one.file for one in staged]


def _batches(options: SinkOptions, name: str | None) -> Batches:
    from .commit import Batches
    from .storage import storage_at

    return Batches(storage_at(options.location), options, name)
