"""A million records through the exactly-once sink, while everything around it fails; the log compared row by row.

``python -m runs.spark_sink`` is ``make spark-sink``: two proxies on one Redis before a real 0.10.2.2, tasks that fail
in every batch, five drivers killed at different steps of ``commit``, another number of tasks and cores in each life, a
driver that stands still and goes on when its successor is done, FLUSHALL, a proxy killed; and a line of JSON.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.kafka_cluster import stored_values
from testkit.real.proxy_process import wait_until
from testkit.real.sink_driver import Driver, Plan, number_of, value_of, write_rows
from testkit.real.two_proxies import TwoProxies

from .results import append_result

PARTITIONS = 6
FILES = 20
KILLS = ("behind the manifest", "before batch 2", "before batch 7", "before published", "behind the commit")
ZOMBIE = "before batch 2"
FAILURES = 3
"""Of the first task of each batch: Spark gives up at the fourth."""
_LIFE_SECONDS_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class Found:
    """The log against the rows."""

    stored: int
    duplicates: int
    missing: int
    damaged: int
    inversions: int
    """Rows of one file behind those of a later one, in a partition."""


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


def published(plan: Plan) -> int:
    """Return how many batches of the query are known to be in the log."""
    return len(list(plan.checkpoint.glob("sink/*.published")))


def trouble(pair: TwoProxies, plan: Plan, done: threading.Event, seen: list[str]) -> None:
    """Empty Redis once, and kill a proxy once, each in the middle of what is being published."""
    begun = published(plan)
    for name, after in (("flushall", 2), ("proxy killed", 5)):
        while published(plan) < begun + after:
            if done.wait(0.05):
                return
        if name == "flushall":
            pair.redis.call("FLUSHALL")
        else:
            pair.proxies[0].kill()
            time.sleep(2)
            pair.proxies[0].start()
        seen.append(name)


def life(plan: Plan, expected: str) -> None:
    """Run one life of the query to its end."""
    with Driver(plan) as driver:
        outcome = driver.wait(_LIFE_SECONDS_MAX)
        assert outcome.startswith(expected), f"{outcome}\n{driver.output[-4000:]}"
    print(f"{expected}: {plan.mishap}; {published(plan)} batches published", flush=True)


def run(pair: TwoProxies, plan: Plan) -> tuple[list[str], str]:
    """Run all lives; return what happened besides, and how the zombie ended."""
    for number, step in enumerate(KILLS):
        life(replace(plan, mishap=("kill", step), cores=2 + number % 3, tasks=(2, 5, 3)[number % 3]), "killed")
    seen: list[str] = []
    with Driver(replace(plan, mishap=("stop", ZOMBIE))) as zombie:
        mark = Path(plan.folder, f"stop {ZOMBIE}")
        wait_until(mark.exists, "the zombie stands still", _LIFE_SECONDS_MAX)
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
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-sink-")))
        cluster = stack.enter_context(LegacyCluster(folder / "cluster", auto_create_topics=False))
        cluster.create_topic("out", PARTITIONS)
        pair = stack.enter_context(TwoProxies(folder / "proxies", cluster))
        write_rows(folder / "source", FILES, rows_of_file)
        bootstrap = ",".join(f"{host}:{port}" for host, port in pair.addresses)
        batch_size = (("kafka.batch.size", "65536"),)
        plan = Plan(
            bootstrap, "out", str(folder / "source"), str(folder / "query"), failures=FAILURES, options=batch_size
        )
        seen, zombie = run(pair, plan)
        failures = len(list(Path(plan.folder, "failures").iterdir()))
        found = judge(cluster, "out", FILES * rows_of_file, rows_of_file)
        ours = pair.errors_of_ours()
    wanted = Found(FILES * rows_of_file, 0, 0, 0, 0)
    is_right = found == wanted and seen == ["flushall", "proxy killed"] and not ours
    figures = {
        "records": found.stored,
        "duplicates": found.duplicates,
        "missing": found.missing,
        "damaged": found.damaged,
        "inversions": found.inversions,
        "task_failures": failures,
        "driver_kills": len(KILLS),
        "zombie": zombie[:200],
        "besides": seen,
        "seconds": round(time.monotonic() - started, 1),
    }
    path = append_result("spark_sink", {"right": is_right, **figures})
    print(f"{'right' if is_right else 'WRONG'}: {figures} {ours}; a line in {path.name}")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
