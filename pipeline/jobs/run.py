"""A job between ``format("idemproxy")`` and itself: what the commands do. Nothing about rows is decided here
(``patterns.py``)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ..datasource import register
from ..reading.broker import Cluster
from ..source.offsets import as_json
from ..source.options import parse_options
from ..source.positions import offsets_of, partitions_of
from . import patterns

_FORMAT: Final = "idemproxy"


@dataclass(frozen=True, slots=True)
class Job:
    """``name``: copy, merge, repartition or clean. ``source``, ``target``: bootstrap addresses. ``carrier``: where
    source coordinates are. ``run_name``: of a clean-up. ``follows``: run until stopped. ``read_options``,
    ``write_options``: further options of the source and the sink."""

    name: str
    source: str
    target: str
    topics: Sequence[str]
    out: str
    checkpoint: str
    carrier: str
    run_name: str
    follows: bool
    read_options: Mapping[str, str]
    write_options: Mapping[str, str]


def run(spark: SparkSession, job: Job) -> None:
    """Return when everything that was there at the start is written; a job that follows runs until it is stopped.
    Raises what Spark raises."""
    register(spark)
    if job.name == "clean":
        _clean(spark, job)
    else:
        start(spark, job).awaitTermination()


def start(spark: SparkSession, job: Job) -> StreamingQuery:
    """Begin a job that is a stream."""
    rows = spark.readStream.format(_FORMAT).options(**read_options(job)).load()
    writer = (
        _patterned(job, rows)
        .writeStream.format(_FORMAT)
        .options(**write_options(job))
        .option("checkpointLocation", job.checkpoint)
    )
    return (writer if job.follows else writer.trigger(availableNow=True)).start()


def _patterned(job: Job, rows: DataFrame) -> DataFrame:
    if job.name == "copy":
        return patterns.copied(rows)
    if job.name == "merge":
        return patterns.merged(rows)
    assert job.name == "repartition", job.name
    return patterns.repartitioned(rows, job.carrier)


def _clean(spark: SparkSession, job: Job) -> None:
    by_batches = job.carrier == patterns.BATCHES
    fixed = fixed_options(job)

    def read(**more: str) -> DataFrame:
        return spark.read.format(_FORMAT).options(**{**fixed, **more}).load()

    batches = read(rows="batches", includeHeaders="false") if by_batches else None
    (
        patterns.cleaned(read(), job.carrier, batches)
        .write.format(_FORMAT)
        .mode("append")
        .options(**write_options(job))
        .option("producerName", job.run_name)
        .option("stagingLocation", job.checkpoint)
        .save()
    )


def fixed_options(job: Job) -> dict[str, str]:
    """Return what a clean-up says to the source, from which offset to which: it may read the topic twice, as records
    and as batches, and a copy that only one of the two has seen would stay. Raises WrongOption, BrokerProblem."""
    said = read_options(job)
    options = parse_options(said, is_stream=False)
    with Cluster(options.bootstrap, options.access) as cluster:
        places = partitions_of(cluster, options.topics)
        starts = offsets_of(cluster, places, options.start, falls_back_to_end=options.may_begin_at_end)
        ends = offsets_of(cluster, places, options.end, falls_back_to_end=True)
    kept = {name: value for name, value in said.items() if not name.lower().startswith(("starting", "ending"))}
    return {**kept, "startingOffsets": json.dumps(as_json(starts)), "endingOffsets": json.dumps(as_json(ends))}


def read_options(job: Job) -> dict[str, str]:
    """Return what the job says to the source. Brokers know it by its name, unless it is given another client id."""
    return {
        "startingOffsets": "earliest",
        "kafka.client.id": f"idemproxy-{job.name}",
        **job.read_options,
        "kafka.bootstrap.servers": job.source,
        "subscribe": ",".join(job.topics),
        "includeHeaders": "true",
    }


def write_options(job: Job) -> dict[str, str]:
    """Return what the job says to the sink, but for where its files are."""
    return {
        "kafka.client.id": f"idemproxy-{job.name}",
        **job.write_options,
        "kafka.bootstrap.servers": job.target,
        "topic": job.out,
    }
