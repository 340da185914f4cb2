"""One Spark with its own Kafka connector, whose failed tasks are tried again; a real 0.10.2.2 behind a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.spark.connector import connector_jars
from testkit.real.spark.session import spark_session

ARROW_RECORDS = 500
"""In one Arrow batch: with more, a function that fails does so before a row of its batch has left Python."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_RECORDS),
    }
    with spark_session(tmp_path_factory.mktemp("spark"), settings, master="local[2,4]") as running:
        yield running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path_factory.mktemp("kafka"), auto_create_topics=False) as running:
        yield running


@pytest.fixture(scope="session")
def proxy(cluster: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with ProxyProcess(tmp_path_factory.mktemp("proxy"), cluster.address(0)) as running:
        yield running


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
