"""The run: ranges are read, what was lost is waited for, partitions are concluded. In this process, or on Spark, where
each of the two steps is a job of tasks; what a task does is the same (``work.py``)."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ...state.lease import LEASE_SECONDS, MARGIN_SECONDS
from ...state.redis_bulk import BulkStore
from ..reading.broker import Cluster
from ..reading.places import Place, Range
from .wanted import Wanted
from .work import Concluded, RangeRead, conclude, read_range, wait_until_settled

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

GRACE_SECONDS: Final = LEASE_SECONDS + MARGIN_SECONDS
"""From the registration on: after it every lease that was granted before Redis lost its data has run out (rule R10)."""
_TASKS_PER_CORE: Final = 4

Say = Callable[[str], None]
Concluding = Iterator[Concluded]


def rebuild_here(wanted: Wanted, places: Sequence[Place], ranges: Sequence[Range], say: Say) -> Concluding:
    """Yield the outcome of each partition. Raises BrokerProblem, InspectionError."""
    registered_at = time.monotonic()
    with Cluster(wanted.bootstrap, wanted.access) as cluster:
        read: dict[int, list[RangeRead]] = {}
        for index, one in enumerate(ranges):
            read.setdefault(one.place, []).append(read_range(cluster, one.place, places[one.place], one.start, one.end))
            _progress(say, "read", index + 1, len(ranges), "ranges")
        _wait(wanted, cluster, places, registered_at, say)
        with BulkStore(wanted.redis) as store:
            known = _known_on(store, places)
            for index, (number, found) in enumerate(read.items()):
                yield conclude(cluster, store, wanted, number, places[number], found, known[number])
                _progress(say, "concluded", index + 1, len(read), "partitions")


def rebuild_on_spark(
    spark: SparkSession, wanted: Wanted, places: Sequence[Place], ranges: Sequence[Range], say: Say
) -> Concluding:
    """The same with a task for every few ranges, and then for every few partitions. Raises Spark's exception where a
    task fails, which contains the task's sentence."""
    registered_at = time.monotonic()
    cores = spark.sparkContext.defaultParallelism
    numbered = dict(enumerate(places))
    tasks = [pickle.dumps((one, numbered[one.place])) for one in ranges]
    rows = spark.createDataFrame([(bytearray(task),) for task in tasks], "task binary")
    found = rows.repartition(max(1, min(len(tasks), cores * _TASKS_PER_CORE))).mapInArrow(
        lambda batches: _read_tasks(wanted, batches), "place int, start long, found binary"
    )
    found = found.persist()
    with BulkStore(wanted.redis) as store:
        known = _known_on(store, places)
    try:
        say(f"Spark reads {len(ranges)} ranges of {len(places)} partitions")
        found.count()
        with Cluster(wanted.bootstrap, wanted.access) as cluster:
            _wait(wanted, cluster, places, registered_at, say)
        sorted_rows = found.repartition(max(1, min(len(places), cores * _TASKS_PER_CORE)), "place")
        concluded = sorted_rows.sortWithinPartitions("place", "start").mapInArrow(
            lambda batches: _conclude_tasks(wanted, numbered, known, batches), "concluded binary"
        )
        for row in concluded.toLocalIterator():
            yield pickle.loads(row.concluded)
    finally:
        found.unpersist()


# ---------------------------------------------------------------------- tasks
def _read_tasks(wanted: Wanted, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    with Cluster(wanted.bootstrap, wanted.access) as cluster:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                one, place = pickle.loads(task)
                read = read_range(cluster, one.place, place, one.start, one.end)
                columns = [pa.array([one.place], pa.int32()), pa.array([one.start], pa.int64())]
                columns.append(pa.array([pickle.dumps(read)], pa.binary()))
                yield pa.RecordBatch.from_arrays(columns, names=["place", "start", "found"])


def _conclude_tasks(
    wanted: Wanted, places: Mapping[int, Place], known: Sequence[Set[int]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    rows = (
        pickle.loads(found)
        for batch in batches
        for found in batch.column(batch.schema.names.index("found")).to_pylist()
    )
    with Cluster(wanted.bootstrap, wanted.access) as cluster, BulkStore(wanted.redis) as store:
        for number, read in groupby(rows, lambda one: one.place):
            concluded = conclude(cluster, store, wanted, number, places[number], list(read), known[number])
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(concluded)], pa.binary())], names=["concluded"])


def _known_on(store: BulkStore, places: Sequence[Place]) -> list[set[int]]:
    """Return the producers that have an entry on each partition. A batch in format v2 does not tell of its producer,
    so these are looked for in the log. Raises InspectionError."""
    numbers = {(place.topic, place.partition): number for number, place in enumerate(places)}
    known: list[set[int]] = [set() for _ in places]
    for one in store.entry_places():
        number = numbers.get((one.topic, one.partition))
        if number is not None:
            known[number].add(one.producer_id)
    return known


# ---------------------------------------------------------------------- waiting
def _wait(wanted: Wanted, cluster: Cluster, places: Sequence[Place], registered_at: float, say: Say) -> None:
    """Wait until leases of the lost state have run out and all brokers has passed the quiescence check. A dry run
    writes nothing, so it waits for nothing."""
    if wanted.registration is None:
        return
    left = registered_at + GRACE_SECONDS - time.monotonic()
    if left > 0:
        say(f"waiting {left:.0f} s, until what was granted before has run out")
        time.sleep(left)
    wait_until_settled(cluster, places)


def _progress(say: Say, what: str, done: int, total: int, of: str) -> None:
    if done == total or done % max(1, total // 10) == 0:
        say(f"{what} {done} of {total} {of}")
