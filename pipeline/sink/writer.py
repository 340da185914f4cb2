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
    """What one attempt has written. ``query_id``: of the streaming query; None: a batch write."""

    file: StageFile
    query_id: str | None


class StreamSink(DataSourceStreamArrowWriter):
    """The writer of a streaming query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """In a task: write the rows to a stage file."""
        task = _task()
        batch_id, query_id = (
            task.getLocalProperty("streaming.sql.batchId"),
            task.getLocalProperty("sql.streaming.queryId"),
        )
        if batch_id is None:
            raise SinkProblem("Spark tells no batch id: this sink runs in micro-batches only")
        return _staged(iterator, int(batch_id), query_id, task, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: decide what the batch is, and publish it."""
        _commit(messages, batchId, self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: a manifest names the files, or a later one may. They are removed two batches later."""


class BatchSink(DataSourceArrowWriter):
    """The writer of ``df.write``: a run with a name, which is published once, however often it is repeated."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        """In a task: write the rows to a stage file."""
        return _staged(iterator, _RUN, None, _task(), self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: publish the run. Its stage files are needed no more then."""
        from .commit import stage_folder
        from .storage import storage_at

        _commit(messages, _RUN, self._options)
        storage_at(self._options.location).remove(stage_folder(_RUN))

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


def _staged(
    rows: Iterator[Any], batch_id: int, query_id: str | None, task: TaskContext, options: SinkOptions
) -> Staged:
    from .commit import stage_folder
    from .stage import stage
    from .storage import storage_at

    storage = storage_at(options.location)
    return Staged(stage(rows, stage_folder(batch_id), task.partitionId(), storage, options), query_id)


def _commit(messages: Sequence[WriterCommitMessage | None], batch_id: int, options: SinkOptions) -> None:
    from .commit import Batches
    from .storage import storage_at

    staged = [message if isinstance(message, Staged) else None for message in messages]
    files = [None if one is None else one.file for one in staged]
    query_id = next((one.query_id for one in staged if one is not None), None)
    Batches(storage_at(options.location), options, options.producer_name or query_id).commit(batch_id, files)
