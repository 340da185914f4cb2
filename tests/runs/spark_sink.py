"""A million records through the exactly-once sink, while everything around it fails; the log compared row by row.

``python -m runs.spark_sink`` is ``make spark-sink``: two proxies on one Redis before a real 0.10.2.2, tasks that fail
in every batch, five drivers killed at different steps of ``commit``, another number of tasks and cores in each run, a
driver that stands still and resumes when its successor is done, FLUSHALL, a proxy killed. Then the same rows through
the same proxies by Spark's own connector, which meets the same; and a line of JSON.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import stored_values
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.spark.sink_driver import ARROW_RECORDS, FAILS_BEHIND, Driver, Plan, number_of, value_of, write_rows

from .results import append_result

PARTITIONS = 6
FILES = 20
KILLS = ("behind the manifest", "before batch 2", "before batch 7", "before published", "behind the commit")
ZOMBIE = "before batch 2"
FAILURES = 3
"""Of the first task of each batch: Spark gives up at the fourth."""
OURS, THEIRS = "sink", "connector"
TASKS_MAX = 5
RECORDS_OF_FILE_MIN = TASKS_MAX * (FAILS_BEHIND + 1) * ARROW_RECORDS
_LIFE_SECONDS_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class Found:
    """The log against the rows."""

    stored: int
    duplicates: int
    missing: int
    damaged: int
    inversions: int
    """Rows of one file after those of a later one, in a partition."""


def judge(cluster: LegacyCluster, topic: str, rows: int, rows_of_file: int) -> Found:
    """Read the segment files."""
    counts: Counter[int] = Counter()
    damaged = inversions = 0
    for partition in range(PARTITIONS):
        latest = 0
        for _, value in stored_values(cluster, (topic, partition)):
            number = number_of(value)
            damaged += value != value_of(number)
            counts[number] += 1
            file = number // rows_of_file
            inversions += file < latest
            latest = max(latest, file)
    stored = counts.total()
    return Found(stored, stored - len(counts), rows - len(counts), damaged, inversions)


def finished(plan: Plan) -> int:
    """Return how many batches of the query are known to be in the log."""
    if plan.into == "idemproxy":
        return len(list(plan.checkpoint.glob("sink/*.published")))
    return len(numbered(plan, "commits"))


def numbered(plan: Plan, kind: str) -> set[int]:
    """Return the batches that Spark has noted in a folder of its checkpoint."""
    return {int(path.name) for path in plan.checkpoint.glob(f"{kind}/*") if path.name.isdecimal()}


def trouble(pair: TwoProxies, plan: Plan, done: threading.Event, seen: list[str]) -> None:
    """Empty Redis once, and kill a proxy once, each in the middle of what is being published."""
    begun = finished(plan)
    for name, after in (("flushall", 2), ("proxy killed", 5)):
        while finished(plan) < begun + after:
            if done.wait(0.05):
                return
        if name == "flushall":
            pair.redis.call("FLUSHALL")
        else:
            pair.proxies[0].kill()
            time.sleep(2)
            pair.proxies[0].start()
        seen.append(name)


def told(plan: Plan, outcome: str) -> None:
    """Print how a run of the query has ended."""
    print(f"{plan.into}: {outcome}; {finished(plan)} batches finished", flush=True)


def life(plan: Plan, expected: str) -> None:
    """Run the query once, to its end."""
    with Driver(plan) as driver:
        outcome = driver.wait(_LIFE_SECONDS_MAX)
        assert outcome.startswith(expected), f"{outcome}\n{driver.output[-4000:]}"
    told(plan, f"{expected}, {plan.mishap}")


def until_within_a_batch(cluster: LegacyCluster, plan: Plan) -> None:
    """Wait until Spark's own sink, which has no steps, has sent a part of a batch."""
    before = stored_bytes(cluster, plan.topic)

    def is_within() -> bool:
        is_begun = bool(numbered(plan, "offsets") - numbered(plan, "commits"))
        return is_begun and stored_bytes(cluster, plan.topic) > before

    wait_until(is_within, "a part of a batch is in the log", _LIFE_SECONDS_MAX)


def stored_bytes(cluster: LegacyCluster, topic: str) -> int:
    """Return how large the segment files are."""
    return sum(path.stat().st_size for path in cluster.log_directories[0].glob(f"{topic}-*/*.log"))


def run(pair: TwoProxies, plan: Plan) -> tuple[list[str], str]:
    """Play all runs of the query; return what else happened, and how the zombie ended."""
    is_ours = plan.into == "idemproxy"
    for number, step in enumerate(KILLS):
        of_life = replace(plan, cores=2 + number % 3, tasks=(2, 5, 3)[number % 3])
        if is_ours:
            life(replace(of_life, mishap=("kill", step)), "killed")
            continue
        with Driver(of_life) as driver:
            until_within_a_batch(pair.cluster, plan)
            driver.kill()
            driver.wait()
        told(plan, "killed within a batch")
    seen: list[str] = []
    with Driver(replace(plan, mishap=("stop", ZOMBIE) if is_ours else None)) as zombie:
        if is_ours:
            wait_until(Path(plan.folder, f"stop {ZOMBIE}").exists, "the zombie stands still", _LIFE_SECONDS_MAX)
        else:
            until_within_a_batch(pair.cluster, plan)
            zombie.stop()
        done = threading.Event()
        troubles = threading.Thread(target=trouble, args=(pair, plan, done, seen))
        troubles.start()
        try:
            life(replace(plan, tasks=4, cores=3), "done")
        finally:
            done.set()
            troubles.join()
        zombie.resume()
        ended = zombie.wait(_LIFE_SECONDS_MAX)
    return seen, ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and save; exit status 1 unless each row is in the log once, and all that was planned has happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    rows_of_file = options.records // FILES
    if rows_of_file <= RECORDS_OF_FILE_MIN:
        parser.error(f"more than {RECORDS_OF_FILE_MIN * FILES} records are needed: with fewer, no task would fail")
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-sink-")))
        cluster = stack.enter_context(LegacyCluster(folder / "cluster", auto_create_topics=False))
        for topic in (OURS, THEIRS):
            cluster.create_topic(topic, PARTITIONS)
        pair = stack.enter_context(TwoProxies(folder / "proxies", cluster))
        write_rows(folder / "source", FILES, rows_of_file)
        bootstrap = ",".join(f"{host}:{port}" for host, port in pair.addresses)
        batch_size = (("kafka.batch.size", "65536"),)
        plan = Plan(bootstrap, OURS, str(folder / "source"), str(folder / OURS), failures=FAILURES, options=batch_size)
        theirs = replace(plan, topic=THEIRS, folder=str(folder / THEIRS), into="kafka", options=())
        figures: dict[str, Any] = {}
        is_right = True
        for one in (plan, theirs):
            began = time.monotonic()
            seen, zombie = run(pair, one)
            found = judge(cluster, one.topic, FILES * rows_of_file, rows_of_file)
            failures = len(list(Path(one.folder, "failures").iterdir()))
            is_right = is_right and seen == ["flushall", "proxy killed"] and failures >= FAILURES * FILES
            figures[one.topic] = {
                **asdict(found),
                "task_failures": failures,
                "driver_kills": len(KILLS),
                "zombie": zombie[:300],
                "besides": seen,
                "seconds": round(time.monotonic() - began, 1),
            }
            print(f"{one.topic}: {figures[one.topic]}", flush=True)
            if one is plan:
                is_right = is_right and found == Found(FILES * rows_of_file, 0, 0, 0, 0)
            else:
                is_right = is_right and found.duplicates > 0
        ours = pair.errors_of_ours(("internal error",))  # duplicates are what the sink finds its border by
    is_right = is_right and not ours
    figures["load"] = [round(one, 1) for one in os.getloadavg()]
    figures["seconds"] = round(time.monotonic() - started, 1)
    path = append_result("spark_sink", {"right": is_right, "records": FILES * rows_of_file, **figures})
    print(f"{'right' if is_right else 'WRONG'}: {ours}; a line in {path.name}")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
