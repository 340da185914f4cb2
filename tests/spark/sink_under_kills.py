"""The driver of a query killed at every step of ``commit``, stopped while another one runs, started with other
parallelism, with tasks that fail: each row is in the log once. Minutes; ``make test-spark``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.spark.sink_driver import Driver, Plan, check_rows, write_rows
from testkit.real.spark.sink_steps import STEPS

PARTITIONS = 3
ROWS = 2000
FILES = 12
START_SECONDS_MAX = 1200
pytestmark = pytest.mark.timeout(7200)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path_factory.mktemp("cluster"), auto_create_topics=False) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(cluster: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with ProxyProcess(tmp_path_factory.mktemp("proxy"), cluster.address(0)) as running:
        yield running


@pytest.fixture
def plan(cluster: LegacyCluster, proxy: ProxyProcess, tmp_path: Path) -> Plan:
    write_rows(tmp_path / "source", FILES, ROWS)
    return Plan(
        "{}:{}".format(*proxy.address),
        fresh_topic(cluster, PARTITIONS),
        str(tmp_path / "source"),
        str(tmp_path / "query"),
        options=(("kafka.batch.size", "8192"),),
    )


def test_a_driver_killed_at_every_step_of_commit(cluster: LegacyCluster, plan: Plan) -> None:
    for number, step in enumerate(STEPS):
        life = replace(
            plan, mishap=("kill", step), failures=1 + number % 2, tasks=(0, 5, 3)[number % 3], cores=2 + number % 2
        )
        with Driver(life) as driver:
            assert driver.wait() == "killed", driver.output[-4000:]
        assert Path(plan.folder, f"kill {step}").exists()
    with Driver(plan) as driver:
        assert driver.wait().startswith("done"), driver.output[-4000:]
    check_rows(cluster, plan.topic, PARTITIONS, FILES, ROWS)


@pytest.mark.parametrize("step", ["before the manifest", "before batch 7"])
def test_a_zombie_driver_that_resumes_later_adds_nothing(cluster: LegacyCluster, plan: Plan, step: str) -> None:
    with Driver(replace(plan, mishap=("stop", step))) as zombie:
        wait_until(Path(plan.folder, f"stop {step}").exists, "it stands still", START_SECONDS_MAX)
        with Driver(replace(plan, tasks=4)) as driver:
            assert driver.wait().startswith("done"), driver.output[-4000:]
        check_rows(cluster, plan.topic, PARTITIONS, FILES, ROWS)
        zombie.resume()
        outcome = zombie.wait()
        assert outcome.startswith(("failed", "done")), zombie.output[-4000:]
    check_rows(cluster, plan.topic, PARTITIONS, FILES, ROWS)
