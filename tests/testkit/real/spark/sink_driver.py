"""A Spark driver with one streaming query into ``format("idemproxy")``, or into Spark's own sink, as a program of its
own: it can be killed.

``python -m testkit.real.spark.sink_driver PLAN.json`` reads numbered rows from Parquet files, lets tasks fail as the
plan says, and ends itself, or stands still, at a step of ``commit``. Its last line is what became of the query."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.pipeline.datasource import register
from idemproxy.pipeline.jobs.patterns import counted
from idemproxy.pipeline.spark import cause_of
from testkit.real.brokers.kafka_cluster import stored_values

from .connector import connector_jars
from .session import spark_session
from .sink_mishaps import MishapSource
from .sink_steps import MISHAP

VALUE_BYTES = 100
ARROW_RECORDS = 500
"""In one Arrow batch: with more, a function that fails does so before a row of its batch has left Python."""
FAILS_BEHIND = 2
"""So many Arrow batches of a task."""
HINDERED_SECONDS = 40.0
_TESTS = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Plan:
    """One run of the query. ``failures``: attempts of each batch's first task that fail after some rows.
    ``mishap``: ``kill`` or ``stop``, and the step of ``commit`` at which it comes, once in a folder."""

    bootstrap: str
    topic: str
    source: str
    folder: str
    cores: int = 2
    tasks: int = 0
    failures: int = 0
    mishap: tuple[str, str] | None = None
    options: tuple[tuple[str, str], ...] = ()
    counts_by: int = 0
    """Not 0: the query is a stateful one, which counts the rows of so many keys."""
    each_batch: bool = False
    """Each batch is written by ``foreachBatch``, as a run with a name of its own."""
    master: str = ""
    """Of a cluster; empty: it runs in the driver."""
    settings: tuple[tuple[str, str], ...] = ()
    """More of Spark's."""
    hindrance: str = ""
    """``sleep`` or ``stop``: what befalls the first attempt of a task, once in a folder: it is slow, or its executor
    stands still."""
    into: str = "idemproxy"
    """``kafka``: the sink of Spark's own connector. It has no steps for a mishap."""

    @property
    def checkpoint(self) -> Path:
        """Of the query."""
        return Path(self.folder, "checkpoint")

    @property
    def sink_options(self) -> dict[str, str]:
        """Where its rows go, and how."""
        return {"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic, **dict(self.options)}


def write_rows(folder: Path, files: int, rows: int, first: int = 0) -> None:
    """Write Parquet files of numbered rows, after ``first`` earlier files; their times are in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + files):
        numbers = range(number * rows, (number + 1) * rows)
        table = pa.table(
            {
                "key": pa.array([b"%d" % one for one in numbers], pa.binary()),
                "value": pa.array([value_of(one) for one in numbers], pa.binary()),
            }
        )
        path = folder / f"{number:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def value_of(number: int) -> bytes:
    """Return the value of a row."""
    return b"%d " % number + b"." * (VALUE_BYTES - 1 - len(str(number)))


def number_of(value: bytes) -> int:
    """Return the number of the row with this value."""
    return int(value.split(b" ", 1)[0])


def check_rows(cluster: LegacyCluster, topic: str, partitions: int, files: int, rows: int) -> None:
    """Each row of so many files is in the topic once, unharmed, and none of a later file is before one of an earlier
    one."""
    values = [[value for _, value in stored_values(cluster, (topic, one))] for one in range(partitions)]
    assert sorted(number_of(value) for each in values for value in each) == list(range(files * rows))
    for each in values:
        numbers = [number_of(value) for value in each]
        assert [value_of(number) for number in numbers] == each
        in_order = [number // rows for number in numbers]
        assert in_order == sorted(in_order)


def failing(folder: str, times: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function of rows that fails in the first task after some rows; each failure leaves a file."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        for number, batch in enumerate(batches):
            if number >= FAILS_BEHIND and task.partitionId() == 0 and task.attemptNumber() < times:
                Path(folder, uuid.uuid4().hex).touch()
                raise RuntimeError("an injected failure of a task")
            yield batch

    return run


def hindered(
    folder: str, hindrance: str, seconds: float
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function of rows that stands still in one attempt of the first task, after some rows. What happens
    leaves files: ``hindered``, with the process id of the executor, and ``at once``, if another attempt begins."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        place, is_hindered = Path(folder, "hindered"), False
        if task.partitionId() == 0 and task.attemptNumber() > 0 and place.exists():
            Path(folder, "at once").touch()
        for number, batch in enumerate(batches):
            if number == FAILS_BEHIND and task.partitionId() == 0 and task.attemptNumber() == 0 and not place.exists():
                is_hindered = True
                executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
                place.write_text(str(executor))
                if hindrance == "stop":
                    os.kill(executor, signal.SIGSTOP)
                else:
                    time.sleep(seconds)
            yield batch
        if is_hindered:
            Path(folder, "went on").touch()

    return run


def run_query(spark: SparkSession, plan: Plan) -> None:
    """Run until all rows are through, or raise what has ended the query."""
    rows = spark.readStream.schema("key binary, value binary").option("maxFilesPerTrigger", 1).parquet(plan.source)
    if plan.tasks:
        rows = rows.repartition(plan.tasks)
    failures = Path(plan.folder, "failures")
    failures.mkdir(parents=True, exist_ok=True)
    if plan.failures:
        rows = rows.mapInArrow(failing(str(failures), plan.failures), "key binary, value binary")
    if plan.hindrance:
        rows = rows.mapInArrow(hindered(plan.folder, plan.hindrance, HINDERED_SECONDS), "key binary, value binary")
    if plan.counts_by:
        key = F.expr(f"CAST(CAST(CAST(key AS STRING) AS BIGINT) % {plan.counts_by} AS STRING)")
        rows = counted(rows.withColumn("key", key.cast("binary")))
    writer = rows.writeStream.option("checkpointLocation", str(plan.checkpoint))
    if plan.each_batch:
        writer = writer.foreachBatch(partial(write_run, plan))
    else:
        writer = writer.format(plan.into).options(**plan.sink_options)
    writer.trigger(availableNow=True).start().awaitTermination()


def write_run(plan: Plan, rows: DataFrame, batch_id: int) -> None:
    """Write one batch of a query as a run: repeated, it has the same name."""
    run = {"producerName": f"batch-{batch_id}", "stagingLocation": str(Path(plan.folder, "runs"))}
    rows.write.format("idemproxy").mode("append").options(**plan.sink_options, **run).save()


class Driver:
    """A run of the query as a child process. A context manager: leaving it ends what is left."""

    def __init__(self, plan: Plan) -> None:
        folder = Path(plan.folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._name = uuid.uuid4().hex[:8]
        self._plan = folder / f"plan-{self._name}.json"
        self._plan.write_text(json.dumps(asdict(plan)))
        self._output = folder / f"driver-{self._name}.out"
        self._pids = folder / f"pids-{self._name}"

    def __enter__(self) -> Driver:
        command = [sys.executable, "-m", "testkit.real.spark.sink_driver", str(self._plan), str(self._pids)]
        environment = {**os.environ, "PYTHONPATH": str(_TESTS)}
        self._handle = self._output.open("wb")
        self._popen = subprocess.Popen(command, env=environment, stdout=self._handle, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *error: object) -> None:
        for pid in self.pids:
            _kill(pid)
        self._popen.kill()
        self._popen.wait()
        self._handle.close()

    @property
    def pids(self) -> list[int]:
        """Of the program and of its JVM, once they run."""
        return [int(pid) for pid in self._pids.read_text().split()] if self._pids.exists() else []

    def kill(self) -> None:
        """End all of it by SIGKILL, wherever it is."""
        for pid in self.pids:
            _kill(pid)
        self._popen.kill()

    def stop(self) -> None:
        """Have its own process and the JVM stand still, wherever they are."""
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it where it stands still: its own process, the JVM, and the one in which Spark commits."""
        for pid in self.pids:
            os.kill(pid, signal.SIGCONT)

    @property
    def has_ended(self) -> bool:
        """Is it over, by itself or by a signal?"""
        return self._popen.poll() is not None

    @property
    def output(self) -> str:
        """All that it has printed."""
        return self._output.read_text(errors="replace")

    def wait(self, seconds_max: float = 1200) -> str:
        """Return how it ended: ``done``, ``failed: ...`` or ``killed``."""
        code = self._popen.wait(seconds_max)
        for pid in self.pids:
            _kill(pid)
        last = self.output.rstrip().rpartition("\n")[2]
        return last if code >= 0 and last.startswith(("done", "failed")) else "killed"


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return


def main(plan_file: str, pids_file: str) -> None:
    """Run it once."""
    content: dict[str, Any] = json.loads(Path(plan_file).read_text())
    for name in ("options", "settings"):
        content[name] = tuple((key, value) for key, value in content[name])
    plan = Plan(**content)
    folder = Path(plan.folder)
    os.environ[MISHAP] = json.dumps({"mishap": plan.mishap, "pids": pids_file, "folder": plan.folder})
    settings = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_RECORDS), **dict(plan.settings)}
    if plan.into == "kafka":
        settings["spark.jars"] = ",".join(map(str, connector_jars()))
    life = folder / f"life-{os.getpid()}"
    life.mkdir()
    with spark_session(life, settings, plan.master or f"local[{plan.cores},4]") as spark:
        jvm = spark._jvm
        assert jvm is not None
        Path(pids_file).write_text(f"{os.getpid()} {jvm.java.lang.ProcessHandle.current().pid()}")
        register(spark)
        if plan.mishap:
            spark.dataSource.register(MishapSource)
        try:
            run_query(spark, plan)
        except Exception as error:
            print(f"\n{error}\nfailed: {' '.join(cause_of(str(error)).split())}", flush=True)
        else:
            print(f"\ndone {time.time():.0f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
