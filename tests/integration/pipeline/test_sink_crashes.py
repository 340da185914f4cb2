"""A committer of batches is killed at every step, or stands still while another one works: each row is in the log
once, and in order.

A small program plays the part of Spark here; with Spark: tests/spark/sink_under_kills.py (``make test-spark``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic, stored_values
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.spark.sink_committer import Committer, CommitterPlan, number_of, value_of
from testkit.real.spark.sink_steps import STEPS

PARTITIONS = 3
ROWS = 1500
BATCHES = 14
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture
def plan(legacy_broker: LegacyCluster, shared_proxy: ProxyProcess, tmp_path: Path) -> CommitterPlan:
    topic = fresh_topic(legacy_broker, PARTITIONS)
    return CommitterPlan("{}:{}".format(*shared_proxy.address), topic, str(tmp_path / "query"), BATCHES, ROWS)


def check_log(cluster: LegacyCluster, plan: CommitterPlan) -> None:
    """Each row is there once, unharmed, and none is before one of an earlier batch."""
    found: list[int] = []
    for partition in range(PARTITIONS):
        values = [value for _, value in stored_values(cluster, (plan.topic, partition))]
        numbers = [number_of(value) for value in values]
        assert [value_of(number) for number in numbers] == values
        batches = [number // ROWS for number in numbers]
        assert batches == sorted(batches)
        found += numbers
    assert sorted(found) == list(range(BATCHES * ROWS))


@pytest.mark.promise("sink-starts-again")
def test_killed_at_every_step_of_commit(legacy_broker: LegacyCluster, plan: CommitterPlan) -> None:
    for number, step in enumerate(STEPS):
        with Committer(replace(plan, mishap=("kill", step), tasks=(2, 5, 3, 1)[number % 4])) as life:
            assert life.wait() == "killed", step
        assert Path(plan.folder, f"kill {step}").exists()
    with Committer(replace(plan, tasks=4)) as life:
        assert life.wait() == "done"
    check_log(legacy_broker, plan)


@pytest.mark.promise("sink-starts-again")
def test_killed_in_every_step_with_redis_emptied_meanwhile(
    legacy_broker: LegacyCluster, shared_proxy: ProxyProcess, plan: CommitterPlan
) -> None:
    for step in ("before batch 7", "before published"):
        with Committer(replace(plan, mishap=("kill", step))) as life:
            assert life.wait() == "killed", step
        shared_proxy.entries()  # nothing is under way
        assert shared_proxy.redis("FLUSHALL") == b"OK"
    with Committer(plan) as life:
        assert life.wait() == "done"
    check_log(legacy_broker, plan)


@pytest.mark.parametrize(
    ("step", "ends"),
    [
        ("before the manifest", "done"),
        ("behind the manifest", "done"),
        ("before batch 7", "stage files are kept until two batches later"),
        ("before published", "done"),
    ],
)
def test_a_zombie_that_resumes_when_its_successor_is_done_does_no_harm(
    legacy_broker: LegacyCluster, plan: CommitterPlan, step: str, ends: str
) -> None:
    with Committer(replace(plan, mishap=("stop", step))) as zombie:
        wait_until(Path(plan.folder, f"stop {step}").exists, "it stands still", 120)
        with Committer(replace(plan, tasks=3)) as life:
            assert life.wait() == "done"
        zombie.resume()
        assert ends in zombie.wait()
    check_log(legacy_broker, plan)


def test_two_drivers_at_the_same_time(legacy_broker: LegacyCluster, plan: CommitterPlan) -> None:
    with Committer(plan) as one, Committer(replace(plan, tasks=3)) as other:
        outcomes = [one.wait(), other.wait()]
    assert "done" in outcomes, outcomes
    check_log(legacy_broker, plan)
