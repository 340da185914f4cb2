"""The audit as a Spark job: ranges are read once, and everything is concluded from their fingerprints.

Values never go through a shuffle; only records that were flagged are read a second time, to compare their bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ..reading.container import LOG_APPEND_TIME
from ..reading.places import Place
from . import findings, rows
from .acknowledged import read_journals
from .contents import ORDER, RepeatFinder
from .findings import TYPES as FINDING_TYPES
from .kinds import Finding
from .plan import RANGE_OFFSETS, Plan
from .progress import Progress
from .read import compared, read_ranges
from .rows import SPARK_SCHEMA, TYPES, Columns, Kind, columns_of, concatenated, taken
from .sequences import Partition

FINDINGS_MAX: Final = 1_000_000
"""Findings that are listed and compared, from each of the two searches (by sequence, by content): about 200 MB in the
driver. All are counted."""
TASKS_MAX: Final = 2_000
"""Tasks of a shuffle: each has the fingerprints of about one range, some 20 MB, unless there are more ranges."""
BROADCAST_HASHES_MAX: Final = 500_000
"""Hashes that several records have: up to so many are broadcast to each task, some 50 MB. With more, Spark joins them
by a shuffle of all records."""
TIME_SLOTS: Final = 60
"""Columns of the heat map."""
PLOTTED_RUNS_MAX: Final = 3_000
PLOTTED_PLACES_MAX: Final = 6
_BY_NUMBER: Final = (
    Finding.DUPLICATE,
    Finding.SEQUENCE_REUSED,
    Finding.GAP,
    Finding.INVERSION,
    Finding.EPOCH_REGRESSION,
)
_UNREAD_KINDS: Final = [int(Kind.UNREADABLE), int(Kind.DELETED), int(Kind.CUT)]
_READ_KINDS: Final = [
    int(kind)
    for kind in (Kind.RUN, Kind.HOLE, Kind.RANGE, Kind.UNREADABLE, Kind.DELETED, Kind.ACKNOWLEDGED)  # RANGE: of each
]


Counts = dict[tuple[Finding, int], int]


@dataclass(frozen=True, slots=True)
class Volume:
    """What was read of one partition. Times in ms, -1 where the format has none."""

    records: int
    bytes: int
    first_timestamp: int
    last_timestamp: int
    first_offset: int
    last_offset: int
    identified_records: int


@dataclass(frozen=True, slots=True)
class Audited:
    """Everything that the report is made of. ``counts``: by kind and partition, of all, also of those above
    ``FINDINGS_MAX`` that ``listed`` does not have. ``slots``: (partition, slot of time, records)."""

    plan: Plan
    volumes: Mapping[int, Volume]
    counts: Counts
    listed: pa.Table
    notes: Sequence[tuple[int, int, int, int, str]]
    slots: Sequence[tuple[int, int, int]]
    slot_start_ms: int
    slot_ms: int
    runs: Mapping[int, pa.Table]
    journal_batches: int
    compared_pairs: int
    seconds: float
    stage_seconds: Mapping[str, float]


def audit(
    spark: SparkSession, plan: Plan, progress: Progress, *, distance: int, journals: Sequence[Path] = ()
) -> Audited:
    """Read and judge what is in the plan. ``distance``: in offsets, see ``RepeatFinder``. Raises Spark's exceptions for
    what tasks raise, and JournalProblem."""
    begun = time.monotonic()
    tasks = max(spark.sparkContext.defaultParallelism, min(len(plan.ranges), TASKS_MAX))
    with _setting(spark, "spark.sql.shuffle.partitions", str(tasks)):
        return _audited(spark, plan, progress, distance, journals, begun)


def _audited(
    spark: SparkSession, plan: Plan, progress: Progress, distance: int, journals: Sequence[Path], begun: float
) -> Audited:
    spread = spark.sparkContext.parallelize([(number,) for number in range(len(plan.ranges))], max(1, len(plan.ranges)))
    ranges = spark.createDataFrame(spread, "number int")
    log = ranges.mapInArrow(partial(read_ranges, plan), SPARK_SCHEMA).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with progress.stage(spark.sparkContext, "reading the log"):
            volumes, unread = _volumes(log)
        told, told_count = _acknowledged(spark, plan, progress, journals)
        with progress.stage(spark.sparkContext, "judging sequence numbers"):
            by_number, number_counts = _by_number(log if told is None else log.union(told), plan)
        with progress.stage(spark.sparkContext, "looking for equal records"):
            by_hash, hash_counts = _by_hash(log, distance)
        flagged = without_proven(by_hash, by_number)
        with progress.stage(spark.sparkContext, "comparing bytes"):
            verified = _verified(spark, plan, flagged)
        with progress.stage(spark.sparkContext, "counting for the report"):
            first, width = _time_slots(volumes)
            slots = _slots(log, first, width)
            notes = _notes(log) if unread else []
            listed = pa.concat_tables([verified, _unflagged(by_number), _unreadable(notes)])
            runs = _plotted_runs(log, listed)
        proven = flagged.filter(pc.equal(flagged["kind"], str(Finding.DUPLICATE)))
        candidates = _summed(proven) | _summed(_unflagged(by_number)) | _summed(by_hash)
        counts = _counts(listed, number_counts | hash_counts, candidates)
        seconds = time.monotonic() - begun
        return Audited(
            plan,
            volumes,
            counts,
            listed,
            notes,
            slots,
            first,
            width,
            runs,
            told_count,
            flagged.num_rows,
            seconds,
            progress.seconds,
        )
    finally:
        log.unpersist()


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Another setting within the block."""
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is not None:
            spark.conf.set(name, before)


def _volumes(log: DataFrame) -> tuple[dict[int, Volume], int]:
    """Return what was read of each partition, and how many parts of all could not be read."""
    is_record = F.col("kind") == int(Kind.RECORD)
    is_identified = (F.col("producer_id") >= 0) | (F.col("flags").bitwiseAND(rows.IS_MARKED) != 0)
    stamped = is_record & (F.col("timestamp") >= 0)
    found = log.groupBy("place").agg(
        F.count_if(is_record).alias("records"),
        F.sum(F.when(F.col("kind") == int(Kind.RANGE), F.col("size"))).alias("bytes"),
        F.min(F.when(stamped, F.col("timestamp"))).alias("first_timestamp"),
        F.max(F.when(stamped, F.col("timestamp"))).alias("last_timestamp"),
        F.min(F.when(is_record, F.col("offset"))).alias("first_offset"),
        F.max(F.when(is_record, F.col("offset"))).alias("last_offset"),
        F.count_if(is_record & is_identified).alias("identified_records"),
        F.count_if(F.col("kind").isin(_UNREAD_KINDS)).alias("unread"),
    )
    volumes = {}
    unread = 0
    for row in found.collect():
        fields = {name: -1 if value is None else value for name, value in row.asDict().items()}
        place = fields.pop("place")
        unread += fields.pop("unread")
        volumes[place] = Volume(**fields)
    return volumes, unread


def _acknowledged(
    spark: SparkSession, plan: Plan, progress: Progress, journals: Sequence[Path]
) -> tuple[DataFrame | None, int]:
    if not journals:
        return None, 0
    places = {(place.topic, place.partition): number for number, place in enumerate(plan.places)}
    table = pa.Table.from_batches(list(read_journals(journals, places, progress.say)), schema=rows.SCHEMA)
    return spark.createDataFrame(table, SPARK_SCHEMA), table.num_rows


# ------------------------------------------------------------------ by sequence numbers
def _by_number(log: DataFrame, plan: Plan) -> tuple[pa.Table, Counts]:
    of_place = log.where(F.col("kind").isin(_READ_KINDS)).repartition("place").sortWithinPartitions("place", "offset")
    found = of_place.mapInArrow(partial(judge_places, plan.places), findings.SPARK_SCHEMA)
    return _collected(found)


def judge_places(places: Sequence[Place], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task does with the runs of some partitions, each of them whole and in order."""
    for whole in whole_places(batches):
        number = int(whole["place"][0])
        place = places[number]
        yield from Partition(number, place.start, place.end, whole, place.has_holes).findings()


def whole_places(batches: Iterable[pa.RecordBatch]) -> Iterator[Columns]:
    """Yield the rows of each partition at once; they come sorted, and cut anywhere."""
    waiting: list[Columns] = []
    for batch in batches:
        block = columns_of(batch)
        borders = [0, *(np.flatnonzero(np.diff(block["place"])) + 1).tolist(), batch.num_rows]
        for begin, end in pairwise(borders):
            part = taken(block, np.arange(begin, end))
            if waiting and end > begin and waiting[0]["place"][0] != part["place"][0]:
                yield concatenated(waiting)
                waiting = []
            if end > begin:
                waiting.append(part)
    if waiting:
        yield concatenated(waiting)


# ------------------------------------------------------------------ by content
def _by_hash(log: DataFrame, distance: int) -> tuple[pa.Table, Counts]:
    is_stamped = F.col("flags").bitwiseAND(LOG_APPEND_TIME) == 0
    created = F.when(is_stamped, F.col("timestamp")).otherwise(F.lit(-1))
    records = log.where(F.col("kind") == int(Kind.RECORD)).withColumn("created", created)
    # Nearly all records are alone; those never leave Spark's own code, nor the task that has them.
    several = records.groupBy("place", "hash1").count().where(F.col("count") > 1).drop("count").persist()
    try:
        count = several.count()
        if not count:
            return findings.SCHEMA.empty_table(), {}
        found = F.broadcast(several) if count <= BROADCAST_HASHES_MAX else several
        in_order = records.join(found, ["place", "hash1"]).repartition("hash1").sortWithinPartitions(*ORDER)
        in_order = in_order.select(*TYPES)
        return _collected(in_order.mapInArrow(partial(find_repeats, distance), findings.SPARK_SCHEMA))
    finally:
        several.unpersist()


def find_repeats(distance: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task does with fingerprints in the order of ``contents.ORDER``."""
    finder = RepeatFinder(distance)
    for batch in batches:
        yield finder.findings(columns_of(batch))


def without_proven(by_hash: pa.Table, by_number: pa.Table) -> pa.Table:
    """Return one row for each pair of records to compare: those that sequence numbers prove, and those with equal
    hashes that are not among them."""
    proven = _one_by_one(by_number.filter(pc.equal(by_number["kind"], str(Finding.DUPLICATE))))
    known = _keys(proven)
    new = by_hash.filter(pa.array(~np.isin(_keys(by_hash), known)))
    return pa.concat_tables([proven, new])


def _keys(table: pa.Table) -> Any:
    """Return (partition, offset) of each finding as one column."""
    return np.rec.fromarrays([table["place"].to_numpy(), table["offset"].to_numpy()])


def _one_by_one(table: pa.Table) -> pa.Table:
    """Return the same findings with a row for each record, at most ``FINDINGS_MAX``."""
    found = {name: table[name].to_numpy() for name in FINDING_TYPES}
    counts = found["count"]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    within = within[:FINDINGS_MAX]
    wide = {name: np.repeat(column, counts)[:FINDINGS_MAX] for name, column in found.items()}
    offset = wide["offset"] + within
    sequence = np.where(wide["sequence"] < 0, -1, (wide["sequence"] + within) % (1 << 31))
    wide |= {"offset": offset, "last_offset": offset, "other_offset": wide["other_offset"] + within}
    wide |= {"sequence": sequence, "count": np.ones(len(offset), np.int64)}
    return findings.joined([findings.finding_rows(Finding.DUPLICATE, len(offset), **wide)])


def _verified(spark: SparkSession, plan: Plan, flagged: pa.Table) -> pa.Table:
    """Compare the flagged pairs byte by byte, and return what is concluded from that."""
    if not flagged.num_rows:
        return flagged
    near = F.floor(F.col("offset") / RANGE_OFFSETS)
    pairs = spark.createDataFrame(flagged, findings.SPARK_SCHEMA)
    in_order = pairs.repartition("place", near).sortWithinPartitions("place", "offset")
    schema = f"{findings.SPARK_SCHEMA}, verdict tinyint"
    return concluded(in_order.mapInArrow(partial(compared, plan), schema).toArrow())


def concluded(compared_pairs: pa.Table) -> pa.Table:
    """Return of compared pairs those that are equal, those of which one cannot be read again (retention has deleted it
    since: what was found stays found), and as SEQUENCE_REUSED those that are duplicates by their sequences
    and that differ. Where batch markers are the same and records differ, nothing is concluded: they may be so by
    chance. ``compared_pairs``: findings with a verdict, as of ``read.compare``."""
    verdicts = compared_pairs["verdict"]
    stays = pc.not_equal(verdicts, 0)
    was_compared = pc.equal(verdicts, 1).cast(pa.int8())
    equal = _with(compared_pairs, "compared", was_compared).filter(stays).select(findings.SCHEMA.names)
    is_proven = pc.equal(compared_pairs["kind"], str(Finding.DUPLICATE))
    is_proven = pc.and_(is_proven, pc.greater_equal(compared_pairs["producer_id"], 0))
    reused = compared_pairs.filter(pc.and_(is_proven, pc.equal(verdicts, 0))).select(findings.SCHEMA.names)
    reused = _with(reused, "kind", pa.array([str(Finding.SEQUENCE_REUSED)] * reused.num_rows, pa.string()))
    reused = _with(reused, "compared", pa.array([1] * reused.num_rows, pa.int8()))
    return pa.concat_tables([equal, reused]).cast(findings.SCHEMA)


def _with(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def _collected(found: DataFrame) -> tuple[pa.Table, Counts]:
    """Return the findings, at most ``FINDINGS_MAX``, and how many there are of each kind in each partition."""
    table = found.limit(FINDINGS_MAX + 1).toArrow().cast(findings.SCHEMA)
    if table.num_rows <= FINDINGS_MAX:  # as nearly always: one job of Spark less
        return table, _summed(table)
    summed = found.groupBy("kind", "place").agg(F.sum("count").alias("count")).collect()
    return table.slice(0, FINDINGS_MAX), {(Finding(row["kind"]), row["place"]): row["count"] for row in summed}


def _unflagged(by_number: pa.Table) -> pa.Table:
    return by_number.filter(pc.not_equal(by_number["kind"], str(Finding.DUPLICATE)))


# ------------------------------------------------------------------ for the report
def _notes(log: DataFrame) -> list[tuple[int, int, int, int, str]]:
    """Return (kind, place, first offset, last offset, why) of everything that could not be read."""
    columns = ("kind", "place", "offset", "last_offset", "note")
    unread = log.where(F.col("kind").isin(_UNREAD_KINDS)).select(*columns)
    return [tuple(row) for row in unread.limit(FINDINGS_MAX).collect()]


def _unreadable(notes: Sequence[tuple[int, int, int, int, str]]) -> pa.Table:
    found = [(place, first, last) for kind, place, first, last, _ in notes if kind == Kind.UNREADABLE]
    place, first, last = np.array(found, np.int64).reshape(-1, 3).T
    return findings.joined(
        [findings.finding_rows(Finding.UNREADABLE, len(found), place=place, offset=first, last_offset=last)]
    )


def _counts(listed: pa.Table, counted: Counts, candidates: Counts) -> Counts:
    """Return how many findings there are of each kind in each partition. ``counted``: all that were found;
    ``candidates``: those of them that were collected and compared. The others, above ``FINDINGS_MAX``, are counted
    without being compared."""
    counts = dict(_summed(listed))
    for key, count in counted.items():
        if count > candidates.get(key, 0):
            counts[key] = counts.get(key, 0) + count - candidates.get(key, 0)
    return counts


def _summed(table: pa.Table) -> Counts:
    summed = table.group_by(["kind", "place"]).aggregate([("count", "sum")]).to_pylist()
    return {(Finding(row["kind"]), row["place"]): row["count_sum"] for row in summed}


def _time_slots(volumes: Mapping[int, Volume]) -> tuple[int, int]:
    """Return when the first slot of time begins and how long each is, in ms; -1 and 1 if no record has a time."""
    times = [(one.first_timestamp, one.last_timestamp) for one in volumes.values() if one.first_timestamp >= 0]
    if not times:
        return -1, 1
    first = min(begin for begin, _ in times)
    return first, max(1, -(-(max(end for _, end in times) + 1 - first) // TIME_SLOTS))


def _slots(log: DataFrame, first: int, width: int) -> list[tuple[int, int, int]]:
    stamped = log.where((F.col("kind") == int(Kind.RECORD)) & (F.col("timestamp") >= first) & (F.lit(first) >= 0))
    slot = F.floor((F.col("timestamp") - first) / width).alias("slot")
    return [tuple(row) for row in stamped.groupBy("place", slot).count().collect()]


def _plotted_runs(log: DataFrame, listed: pa.Table) -> dict[int, pa.Table]:
    """Return runs of the partitions where sequence numbers are wrong, for the plots: those around the first finding."""
    wrong = listed.filter(pc.is_in(listed["kind"], pa.array([str(kind) for kind in _BY_NUMBER])))
    firsts = {
        row["place"]: (row["count_sum"], row["offset_min"])
        for row in wrong.group_by("place").aggregate([("count", "sum"), ("offset", "min")]).to_pylist()
    }
    worst = sorted(firsts, key=lambda place: -firsts[place][0])[:PLOTTED_PLACES_MAX]
    if not worst:
        return {}
    first = F.coalesce(*(F.when(F.col("place") == place, F.lit(firsts[place][1])) for place in worst))
    nearest = Window.partitionBy("place").orderBy(F.abs(F.col("offset") - first))
    runs = log.where((F.col("kind") == int(Kind.RUN)) & (F.col("producer_id") >= 0) & F.col("place").isin(worst))
    near = runs.withColumn("rank", F.row_number().over(nearest)).where(F.col("rank") <= PLOTTED_RUNS_MAX)
    found = near.select("place", "offset", "last_offset", "producer_id", "epoch", "sequence").toArrow()
    of_place = {place: found.filter(pc.equal(found["place"], place)) for place in worst}
    return {place: of for place, of in of_place.items() if of.num_rows}  # batches with a marker show no sequences
