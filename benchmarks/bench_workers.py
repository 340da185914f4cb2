"""How much more two workers take than one: both before a broker that costs nothing, alternately, under the same load.

Part of ``make bench``. Load, sink, Redis and workers share the machine's cores, so that two workers on two cores cannot
show what they could take. So next to the measured rate is the rate at which the busier worker, whose share is shown,
would fill a core of its own: requests ÷ its CPU seconds. Adds a line of JSON to ``results/workers.jsonl``."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from bench_proxy import CASES, PARTITIONS, versions
from common import ROOT, save, spread
from loads import measure
from sides import Side, proxy, sink

MEASURED = ("c50", "c50x5", "c200", "16k", "64kx5")
WORKERS = 2
Figures = dict[str, float]


def workers_of(supervisor: int) -> dict[str, int]:
    """Return the process ids of a supervisor's workers, which are those of its children that run Python."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        name, _, fields = status.read_text().partition("(")[2].rpartition(") ")
        if int(fields.split()[1]) == supervisor and name.startswith("python"):
            found.append(int(status.parent.name))
    assert len(found) == WORKERS, found
    return {f"worker_{number}": child for number, child in enumerate(sorted(found), 1)}


def run(case: str, side: Side, workers: Mapping[str, int], seconds: float) -> Figures:
    """Run one load. ``full_rate``: of requests, where the busier worker has used up one core."""
    figures = measure(CASES[case], side, seconds, partitions=PARTITIONS, others=workers)
    used = [figures[f"{name}_cpu_us_per_request"] for name in workers] or [figures["cpu_us_per_request"]]
    return {
        "requests_per_second": figures["requests_per_second"],
        "cpu_us_per_request": sum(used),
        "busier_share": max(used) / sum(used),
        "full_rate": 1e6 / max(used),
    }


def main() -> None:
    """Start a sink and two proxies, run every case in turn on both, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--dry", action="store_true", help="save nothing")
    options = parser.parse_args()
    stamp = versions()
    found: dict[str, list[tuple[Figures, Figures]]] = {case: [] for case in MEASURED}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(sink(PARTITIONS))
        one = stack.enter_context(proxy("one", ROOT, broker.address, directory))
        two = stack.enter_context(proxy("two", ROOT, broker.address, directory, ("--workers", str(WORKERS))))
        while (directory / "two.log").read_text().count("Redis is ready") < WORKERS:
            time.sleep(0.1)
        workers = workers_of(two.process_id)
        for number in range(options.rounds):
            for case in MEASURED:
                sides = [(one, {}), (two, workers)]
                told = {
                    side.name: run(case, side, of_side, options.seconds)
                    for side, of_side in (sides if number % 2 else reversed(sides))
                }
                found[case].append((told["one"], told["two"]))
                for name, figures in told.items():
                    print(case, name, {key: round(value, 2) for key, value in figures.items()}, flush=True)
    rows = [{"case": CASES[case].name, **_row(rounds)} for case, rounds in found.items()]
    for row in rows:
        print(row)
    if not options.dry:
        save("workers", {**stamp, "workers": WORKERS, "rounds": options.rounds, "rows": rows})


def _row(rounds: list[tuple[Figures, Figures]]) -> dict[str, list[float]]:
    """Lowest, median and highest of each figure, and the ratios two / one of the rounds."""
    row = {"two_busier_share": spread([two["busier_share"] for _, two in rounds])}
    for key in ("requests_per_second", "cpu_us_per_request", "full_rate"):
        row[f"one_{key}"] = spread([one[key] for one, _ in rounds])
        row[f"two_{key}"] = spread([two[key] for _, two in rounds])
        row[f"{key}_ratio"] = spread([two[key] / one[key] for one, two in rounds])
    return row


if __name__ == "__main__":
    main()
