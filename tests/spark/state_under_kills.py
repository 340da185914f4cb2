"""A stream with state, its checkpoint and its changelog: the driver killed by SIGKILL at random moments, started again
each time, and each change of each key is in the topic once and in order. Minutes; ``make test-spark``."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic, stored
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.spark.sink_driver import Driver, Plan, write_rows

PARTITIONS = 12
KEYS = 60
ROWS_OF_KEY = 2
"""Of each key, in each file."""
KILLS = 6
START_SECONDS_MAX = 600
BATCH_SECONDS = 4.0
"""The longest pause before a kill; shorter ones, down to a hundredth, are as likely in each order of magnitude."""
pytestmark = pytest.mark.timeout(7200)


@pytest.fixture(params=["sink of the query", "foreachBatch"])
def plan(request: pytest.FixtureRequest, cluster: LegacyCluster, proxy: ProxyProcess, tmp_path: Path) -> Plan:
    """A publication is a batch for each of many partitions."""
    return Plan(
        "{}:{}".format(*proxy.address),
        fresh_topic(cluster, PARTITIONS),
        str(tmp_path / "source"),
        str(tmp_path / "query"),
        counts_by=KEYS,
        each_batch=request.param == "foreachBatch",
    )


def newest(folder: Path) -> int:
    """The last batch that a folder of the checkpoint has, -1 for none."""
    return max((number_of(path) for path in folder.glob("*") if path.name.isdecimal()), default=-1)


def last_change(plan: Plan) -> float:
    """When something below the checkpoint was written, 0 for never."""
    return max((path.stat().st_mtime for path in plan.checkpoint.rglob("*")), default=0)


def manifests(plan: Plan) -> float:
    """How many batches are decided."""
    return len([*plan.checkpoint.glob("sink/*.json"), *Path(plan.folder, "runs").glob("*/sink/*.json")])


def moment(plan: Plan) -> str:
    """What had been done of the last batch when the driver died."""
    number = newest(plan.checkpoint / "offsets")
    if newest(plan.checkpoint / "commits") == number:
        return "between two batches"
    if plan.each_batch:
        decided = Path(plan.folder, "runs", f"batch-{number}", "sink", "0.json")
    else:
        decided = plan.checkpoint / "sink" / f"{number}.json"
    if not decided.exists():
        return "before its manifest"
    return "behind its publication" if decided.with_suffix(".published").exists() else "in its publication"


def killed(plan: Plan, rest: random.Random) -> str:
    """Run a driver that is killed at random: in a batch, or when one is decided and published;
    return what it was at."""
    measure = rest.choice([last_change, manifests])
    before = measure(plan)

    def has_begun() -> bool:
        if (
            newest(plan.checkpoint / "offsets") < 0
        ):  # Spark refuses a checkpoint of which it was writing the first offsets
            assert not driver.has_ended, driver.output[-4000:]
            return False
        try:
            return measure(plan) != before
        except FileNotFoundError:  # a file has got its name this very moment
            return True

    with Driver(plan) as driver:
        wait_until(has_begun, "a batch has begun, or is decided", START_SECONDS_MAX)
        time.sleep(BATCH_SECONDS * 10 ** -rest.uniform(0, 2))
        driver.kill()
        driver.wait()
    return moment(plan)


def files_before(plan: Plan) -> list[int]:
    """How many files were read when each batch was, as Spark's own log of the offsets has it. One file is a batch, or
    two, where the driver died when the source had noted the first one and Spark had not yet planned its batch."""
    found = sorted((path for path in (plan.checkpoint / "offsets").glob("*") if path.name.isdecimal()), key=number_of)
    return [json.loads(path.read_text().splitlines()[-1])["logOffset"] + 1 for path in found]


def number_of(path: Path) -> int:
    """Of the batch that a file of the checkpoint is about."""
    return int(path.name)


def check_changelog(cluster: LegacyCluster, plan: Plan, files: int) -> None:
    """Each change of each key is there once, and none before an earlier one."""
    found: dict[bytes, list[int]] = {}
    for records in stored(cluster, plan.topic, PARTITIONS).values():
        for record in records:
            assert record.key is not None
            assert record.value is not None
            found.setdefault(record.key, []).append(int(record.value))
    read = files_before(plan)
    print(f"files that were read at the end of each batch: {read}")
    assert read[-1] == files
    wanted = [ROWS_OF_KEY * count for count in read]
    assert found == {b"%d" % key: wanted for key in range(KEYS)}


def test_a_changelog_has_each_change_once_whenever_the_driver_is_killed(
    spark: SparkSession, cluster: LegacyCluster, plan: Plan
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    rest = random.Random(seed)
    moments: Counter[str] = Counter()
    for life in range(KILLS + 1):
        write_rows(Path(plan.source), 1, KEYS * ROWS_OF_KEY, first=life)  # each driver has work to be killed in
        of_life = replace(plan, cores=2 + life % 2)
        if life < KILLS:
            moments[killed(of_life, rest)] += 1
            continue
        with Driver(of_life) as driver:
            assert driver.wait().startswith("done"), driver.output[-4000:]
    print(f"seed {seed}: killed {dict(moments)}")
    assert set(moments) - {"between two batches"}, "no kill was in a batch"
    check_changelog(cluster, plan, KILLS + 1)
    assert not spark.streams.active  # asked for, they bring what the reader of the state needs
    state = spark.read.format("statestore").load(str(plan.checkpoint))
    assert state.count() == KEYS
    assert state.where(f"value.groupState.n <> {ROWS_OF_KEY * (KILLS + 1)}").count() == 0
