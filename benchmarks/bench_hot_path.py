"""The proxy's own code per produce request, without sockets: three sizes of batches, lowest and median of many rounds.

What is left out is the kernel (about one recv and one send per request, and what Redis and the broker share).
``--against COMMIT`` runs that commit's code, by its own copy of this program, alternately with this one, so that a
busy machine hits both alike; ``--profile`` shows where the time of the first size goes."""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from common import ROOT, compile_kernel, extract

PASSES_PER_ROUND = 12


@dataclass(frozen=True)
class Case:
    """One load: producers with one request in flight each, and what is in a batch."""

    name: str
    connections: int
    records: int
    record_bytes: int

    @property
    def bytes_per_request(self) -> int:
        """Values only."""
        return self.records * self.record_bytes


CASES = (
    Case("one record of 100 B, 50 connections", 50, 1, 100),
    Case("16 records of 1 KB, 20 connections", 20, 16, 1024),
    Case("64 records of 1 KB, 6 connections", 6, 64, 1024),
)


def serve(
    case: Case, begin: Callable[[Any], None] | None = None, reporting: Callable[[Any], Any] | None = None
) -> None:
    """Run one round for each line that comes in, and write the CPU seconds per request."""
    from hot_world import World

    from idemproxy.proxy.process.free_memory import tune

    tune()
    world = World(case.connections, case.records, case.record_bytes, begin, reporting)
    gc.collect()
    gc.freeze()
    print("READY", flush=True)
    for _line in sys.stdin:
        world.prepare(PASSES_PER_ROUND)
        gc.collect(1)
        began = time.process_time()
        answered = world.run(PASSES_PER_ROUND)
        print((time.process_time() - began) / answered, flush=True)


class Side:
    """One version of the code, in a process of its own."""

    def __init__(self, name: str, tree: Path, case: int, program: str = __file__, *more: str) -> None:
        self.name = name
        self.seconds: list[float] = []
        path = os.pathsep.join((str(tree / "src"), str(tree / "benchmarks")))
        self._process = subprocess.Popen(
            [sys.executable, program, "--serve", str(case), *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._lines.readline() == "READY\n"

    @property
    def _lines(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def run_round(self) -> None:
        """Take one figure."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.seconds.append(float(self._lines.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def report(self, case: Case) -> dict[str, object]:
        """Return the figures: CPU microseconds per request, and seconds per GB of values."""
        lowest = min(self.seconds)
        return {
            "side": self.name,
            "cpu_us_lowest": round(lowest * 1e6, 1),
            "cpu_us_median": round(statistics.median(self.seconds) * 1e6, 1),
            "cpu_seconds_per_gb_lowest": round(lowest / case.bytes_per_request * 1e9, 2),
        }


def compare(index: int, trees: dict[str, Path], rounds: int) -> None:
    """Run one case alternately on every side, and print what was found."""
    case = CASES[index]
    with ExitStack() as stack:
        sides = [Side(name, tree, index, str(tree / "benchmarks/bench_hot_path.py")) for name, tree in trees.items()]
        for side in sides:
            stack.callback(side.close)
        for number in range(rounds):
            for side in sides if number % 2 else reversed(sides):
                side.run_round()
        print(case.name)
        for side in sides:
            print("   ", json.dumps(side.report(case)))
        if len(sides) > 1:
            ratios = [new / old for old, new in zip(sides[0].seconds, sides[1].seconds, strict=True)]
            print(f"    {sides[1].name} / {sides[0].name}: median of the pairs {statistics.median(ratios):.3f}")


def profile(case: Case, rounds: int) -> None:
    """Print where the time goes."""
    from hot_world import World

    world = World(case.connections, case.records, case.record_bytes)
    profiler = cProfile.Profile()
    answered = 0
    for _ in range(rounds):
        world.prepare(PASSES_PER_ROUND)
        profiler.enable()
        answered += world.run(PASSES_PER_ROUND)
        profiler.disable()
    print(f"{answered} requests")
    pstats.Stats(profiler).sort_stats("tottime").print_stats(60)


def main() -> None:
    """Run the cases, or serve one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--case", type=int, choices=range(len(CASES)), help="only this one")
    parser.add_argument("--against", metavar="COMMIT", help="compare with the code of this commit")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(CASES[options.serve])
    elif options.profile:
        profile(CASES[options.case or 0], options.rounds)
    else:
        with tempfile.TemporaryDirectory() as directory:
            trees = {"now": ROOT}
            if options.against:
                compile_kernel(ROOT)
                trees = {options.against: extract(options.against, Path(directory)), **trees}
            for index in range(len(CASES)) if options.case is None else (options.case,):
                compare(index, trees, options.rounds)


if __name__ == "__main__":
    main()
