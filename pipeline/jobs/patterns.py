"""The patterns: what becomes of the rows. Functions from DataFrame to DataFrame, whose result is what the sink takes.

In and out are the columns of ``format("idemproxy")``: topic, partition, offset, key, value, and headers where asked
for. The functions know no brokers, and nothing here makes a row twice or loses one: what a failed task or a killed
driver repeats is the sink's to sort out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from ...state.sequence import SEQUENCE_MODULUS
from .coordinates import COORDINATES, HEADERS, VALUE, coordinates_of, with_coordinates

BATCHES: Final = "batches"
"""A carrier for ``cleaned``: copies are recognised by producer id, epoch and sequence of their batches."""
_HALF: Final = SEQUENCE_MODULUS // 2


def copied(rows: DataFrame) -> DataFrame:
    """**Exclusive producer**: each partition goes to the partition of the same number, in the same order. Where reading
    has come to and what was written are in one checkpoint, and advance together."""
    return _of_sink(rows, "partition")


def merged(rows: DataFrame) -> DataFrame:
    """**Merge log**: several topics become one. In which order their records meet is decided once, by what Spark reads
    in a batch and by the sink's manifest, and never again; the order within each partition of the source is kept.
    Records with a key go where Kafka's own producers would send them."""
    return _of_sink(rows)


def repartitioned(rows: DataFrame, carrier: str = HEADERS) -> DataFrame:
    """**Repartition with source coordinates**: records go by their key to a topic with another number of partitions,
    and say where they were. Records without a key go anywhere."""
    return _of_sink(with_coordinates(rows, carrier))


def cleaned(rows: DataFrame, carrier: str = HEADERS, batches: DataFrame | None = None) -> DataFrame:
    """**Clean up**: the records of a topic without duplicates, each in the partition where it is first, in an order
    that no partition of the source is out of. For a batch write.

    ``carrier``: where the source coordinates are, by which copies are recognised; a record without any is kept. Records
    that are out of order are put back: each comes after all records that come before it in its partition of the
    source. ``batches``, for ``BATCHES``: the same topic as batches (``rows=batches``); the duplicate of a batch is
    recognised by its producer id, epoch and sequence."""
    if carrier == BATCHES:
        assert batches is not None, "the topic as batches"
        kept = _without(rows, duplicates(batches))
        order = ["offset"]
    else:
        kept, order = _first_of_each(coordinates_of(rows, carrier)), ["_position", *COORDINATES, "offset"]
    columns = [name for name in ("key", "value", "partition", "headers") if name in kept.columns]
    return kept.repartition("partition").sortWithinPartitions("partition", *order).select(*columns)


def duplicates(batches: DataFrame) -> DataFrame:
    """Return the ranges of offsets (topic, partition, baseOffset, lastOffset) that are the duplicate of a batch, or a
    later one. ``batches``: with the columns of ``rows=batches``."""
    of_epoch = Window.partitionBy("topic", "partition", "producerId", "producerEpoch").orderBy("baseOffset")
    # After 2^31 records sequences begin at 0 again. They are unwrapped, so that no batch is taken for a copy of one of
    # the round before. From one batch to the next it is less than half a round, forwards or back.
    step = F.col("baseSequence").cast("bigint") - F.lag("baseSequence").over(of_epoch)
    told = batches.where("producerId IS NOT NULL AND baseSequence IS NOT NULL AND crcIsValid")
    told = told.withColumn("_step", F.coalesce(F.pmod(step + _HALF, F.lit(SEQUENCE_MODULUS)) - _HALF, F.lit(0)))
    so_far = of_epoch.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    told = told.withColumn("_counted", F.sum("_step").over(so_far))
    same = Window.partitionBy("topic", "partition", "producerId", "producerEpoch", "_counted", "recordCount").orderBy(
        "baseOffset"
    )
    ranges = told.withColumn("_copy", F.row_number().over(same)).where("_copy > 1")
    return ranges.select("topic", "partition", "baseOffset", "lastOffset")


def counted(rows: DataFrame) -> DataFrame:
    """**Checkpoint and changelog**: how many records each key has, as a stateful stream. The state is in Spark's
    checkpoint, its changes are rows: the key, and the count so far in decimal digits. For the output mode ``append``,
    the only one in which Spark lets a sink in Python follow a state."""
    keyed = rows.where("key IS NOT NULL").select(F.col("key").cast("binary").alias("key"))
    return keyed.groupBy("key").applyInPandasWithState(
        _count, "key binary, value binary", "n bigint", "append", GroupStateTimeout.NoTimeout
    )


def _count(key: tuple[Any, ...], rows: Iterable[Any], state: GroupState) -> Iterator[Any]:
    import pandas as pd

    (before,) = state.getOption or (0,)
    count = before + sum(len(some) for some in rows)
    state.update((count,))
    yield pd.DataFrame({"key": [bytes(key[0])], "value": [b"%d" % count]})


def _of_sink(rows: DataFrame, *more: str) -> DataFrame:
    return rows.select(*(name for name in ("key", "value", "headers") if name in rows.columns), *more)


def _without(rows: DataFrame, ranges: DataFrame) -> DataFrame:
    one, other = rows.alias("one"), F.broadcast(ranges.alias("other"))
    is_in = (
        (F.col("one.topic") == F.col("other.topic"))
        & (F.col("one.partition") == F.col("other.partition"))
        & F.col("one.offset").between(F.col("other.baseOffset"), F.col("other.lastOffset"))
    )
    return one.join(other, is_in, "left_anti")


def _first_of_each(rows: DataFrame) -> DataFrame:
    """Return the first copy of each record, with its place in the order. A record that has no coordinates is its own
    first copy."""
    has_none = F.col("source_offset").isNull()
    itself = F.when(has_none, F.concat_ws("/", "partition", "offset"))
    copies = Window.partitionBy("topic", *COORDINATES, itself).orderBy("partition", "offset")
    kept = rows.withColumn("_copy", F.row_number().over(copies)).where("_copy = 1").drop("_copy")
    before = Window.partitionBy("topic", "partition", *COORDINATES[:2], itself).orderBy("source_offset")
    so_far = before.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return kept.withColumn("_position", F.max("offset").over(so_far))


__all__ = (
    "BATCHES",
    "HEADERS",
    "VALUE",
    "cleaned",
    "copied",
    "counted",
    "duplicates",
    "merged",
    "repartitioned",
)
