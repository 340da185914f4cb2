"""The sink on a cluster: a standalone master and two workers, each an executor with one core. Tasks that run twice at
once, since Spark takes the first attempt for a slow one, and an executor that stands still and resumes when all is over
(a zombie): each row is in the log once, and rows of a later batch are after those of an earlier one, though each batch
was shuffled between the executors. Minutes; ``make test-spark``."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.spark.cluster import SparkCluster
from testkit.real.spark.sink_driver import Driver, Plan, check_rows, write_rows

PARTITIONS = 3
ROWS = 3000
FILES = 4
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "2s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.network.timeout": "600s",  # an executor that stands still is not declared lost meanwhile
}
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster") / "spark") as running:
        yield running


@pytest.fixture
def plan(cluster: LegacyCluster, proxy: ProxyProcess, workers: SparkCluster, tmp_path: Path) -> Plan:
    write_rows(tmp_path / "source", FILES, ROWS)
    return Plan(
        "{}:{}".format(*proxy.address),
        fresh_topic(cluster, PARTITIONS),
        str(tmp_path / "source"),
        str(tmp_path / "query"),
        tasks=2,
        options=(("kafka.batch.size", "8192"),),
        master=workers.master,
        settings=tuple({**workers.settings, **SPECULATION}.items()),
    )


def test_a_task_that_runs_twice_at_once_is_in_the_topic_once(cluster: LegacyCluster, plan: Plan) -> None:
    with Driver(replace(plan, hindrance="sleep")) as driver:
        assert driver.wait().startswith("done"), driver.output[-4000:]
    assert Path(plan.folder, "at once").exists(), "there was no second attempt"
    check_rows(cluster, plan.topic, PARTITIONS, FILES, ROWS)


def test_an_executor_that_resumes_when_all_is_over_adds_nothing(cluster: LegacyCluster, plan: Plan) -> None:
    # Without a shuffle: what others would fetch from an executor that stands still, they would wait for.
    settings = (*plan.settings, ("spark.speculation.task.duration.threshold", "4s"))
    with Driver(replace(plan, hindrance="stop", tasks=0, settings=settings)) as driver:
        wait_until(
            lambda: len(list(Path(plan.folder, "checkpoint", "commits").glob("[0-9]*"))) == FILES, "all batches", 600
        )
        assert Path(plan.folder, "at once").exists(), "there was no second attempt"
        check_rows(cluster, plan.topic, PARTITIONS, FILES, ROWS)
        os.kill(int(Path(plan.folder, "hindered").read_text()), signal.SIGCONT)
        assert driver.wait().startswith("done"), driver.output[-4000:]
    check_rows(cluster, plan.topic, PARTITIONS, FILES, ROWS)
