"""What the benchmark on Spark runs in: one session with Spark's own Kafka connector, a proxy before a real 0.10.2.2,
and the CPU that each of them takes. Measures nothing by itself."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import common
import pyspark
from pyspark.sql import DataFrame, SparkSession
from sides import Side, cpu_seconds, proxy

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.pipeline.datasource import register
from idemproxy.pipeline.reading.broker import Access, Cluster
from idemproxy.pipeline.spark import session
from testkit.real.spark import connector

PARTITIONS: Final = 2
MASTER: Final = "local[2]"
ARROW_ROWS: Final = "10000"
"""Spark's own default for ``spark.sql.execution.arrow.maxRecordsPerBatch``; a session of the audit has more."""
PARTS: Final = ("spark", "proxy", "redis", "broker")
_COMPILED: Final = ("-XX:TieredStopAtLevel=4",)
_LOOK_SECONDS: Final = 0.03
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SCHEMA: Final = "key binary, value binary"
_DIGITS: Final = 10
"""Each value begins with its row's number, of so many digits."""

Seconds = dict[str, float]


class SparkProcesses:
    """The CPU of the JVM and of all below it. A context manager: within it a thread looks every 30 ms, since Spark's
    Python workers leave no account of themselves when they end."""

    def __init__(self, jvm: int) -> None:
        self._jvm = jvm
        self._ticks: dict[int, int] = {}
        """Of each process that was ever seen, the last that was."""
        self._direct: set[int] = set()
        """Processes that the JVM itself has started and not waited for yet."""
        self._of_children = 0
        """Ticks of those that it has waited for."""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._watcher.join()

    def seconds(self) -> float:
        """Return user and system time so far."""
        self._look()
        return (sum(self._ticks.values()) + self._of_children) / _TICKS

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        with self._lock:
            children: dict[int, list[int]] = {}
            ticks: dict[int, list[int]] = {}
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    fields = (process / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue  # it has ended
                children.setdefault(int(fields[1]), []).append(int(process.name))
                ticks[int(process.name)] = [*map(int, fields[11:15])]
            waiting = [self._jvm]
            while waiting:
                number = waiting.pop()
                if number in ticks:
                    self._ticks[number] = sum(ticks[number][:2])
                waiting += children.get(number, [])
            present = set(children.get(self._jvm, ()))
            for number in self._direct - present:
                self._ticks.pop(number, None)
            self._direct = present
            self._of_children = sum(ticks.get(self._jvm, [0, 0, 0, 0])[2:])


@dataclass(frozen=True)
class World:
    """Everything that runs. ``folder``: for files of rows and of the sink."""

    spark: SparkSession
    cluster: LegacyCluster
    side: Side
    folder: Path
    processes: SparkProcesses

    def cpu(self) -> Seconds:
        """Return the CPU seconds so far of each part. ``spark``: the JVM, its Python workers, the driver's thread."""
        return {
            "spark": self.processes.seconds() + time.thread_time(),
            "proxy": cpu_seconds(self.side.process_id),
            "redis": cpu_seconds(self.side.redis_process_id),
            "broker": cpu_seconds(self.cluster.process_id(0)),
        }

    def rows(self, count: int, value_bytes: int, files: int = PARTITIONS) -> Path:
        """Return a folder with numbered rows, in so many Parquet files; made once. Values are up to a quarter shorter
        or longer than ``value_bytes``: records of one size are a special case."""
        folder = self.folder / f"rows-{count}-{value_bytes}-{files}"
        if not folder.exists():
            number = f"lpad(CAST(id AS STRING), {_DIGITS}, '0')"
            shortest = value_bytes - value_bytes // 4
            value = f"concat({number}, repeat('.', CAST({shortest - _DIGITS} + id * 7919 % {value_bytes // 2} AS INT)))"
            columns = (f"CAST({number} AS BINARY) AS key", f"CAST({value} AS BINARY) AS value")
            frame = self.spark.range(0, count, 1, files).selectExpr(*columns)
            frame.write.parquet(str(folder))
        return folder

    def batch(self, rows: Path) -> DataFrame:
        """Return these rows as a batch."""
        return self.spark.read.schema(_SCHEMA).parquet(str(rows))

    def stream(self, rows: Path, files_at_once: int) -> DataFrame:
        """Return these rows as a stream, so many files in each of its batches."""
        reader = self.spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", files_at_once)
        return reader.parquet(str(rows))

    def stored(self, topic: str) -> int:
        """Return how many records a topic has."""
        with Cluster([self.cluster.address(0)], Access("bench")) as reading:
            ends = [reading.offsets(topic, partition) for partition in range(PARTITIONS)]
        return sum(last - first for first, last in ends)

    def versions(self) -> dict[str, str]:
        """Return what a figure depends on."""
        jvm: Any = self.spark.sparkContext._jvm
        return {
            "spark": pyspark.__version__,
            "connector": connector.VERSION,
            "java": str(jvm.java.lang.System.getProperty("java.version")),
        }


@contextmanager
def world(directory: Path) -> Iterator[World]:
    """Start everything; all of it ends with the block."""
    settings = {
        "spark.jars": ",".join(map(str, connector.connector_jars())),
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.execution.arrow.maxRecordsPerBatch": ARROW_ROWS,
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.files.openCostInBytes": "1g",  # a file is a task, however small
    }
    os.environ["PYTHONPATH"] = os.pathsep.join([str(common.ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    with (
        LegacyCluster(directory / "kafka", heap_mb=1024, java_options=_COMPILED, auto_create_topics=False) as cluster,
        proxy("proxy", common.ROOT, cluster.bootstrap, directory) as side,
        session(MASTER, settings) as spark,
    ):
        register(spark)
        gateway: Any = spark.sparkContext._gateway
        with SparkProcesses(gateway.proc.pid) as processes:
            yield World(spark, cluster, side, directory, processes)
