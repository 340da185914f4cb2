"""Many random cases of one producer, each played with the fast path and without it: what is left in the store, in the
log and with the clients is the same, or the run fails. A line of figures per run in ``benchmarks/results/``.

Owns the work of several processes and the counting; a case is played by ``testkit.stage.both_ways``. Started by
``make both-ways CASES=100000``. A run begins behind the last case that was played on this core, unless FIRST says
otherwise. Ctrl-C and SIGTERM end a run early: it saves what it has.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random
from types import FrameType

from idemproxy.codecs.kernel import KERNEL
from runs.results import append_result, next_first, rows_of
from runs.simulated_core import core_digest
from testkit.stage.both_ways import compare, compare_owned, random_bursts, random_busy_bursts
from testkit.stage.kernel_cases import with_kernel

NAME = "both_ways"
CASES_PER_TASK = 100
OWNED_EACH = 3
"""One of so many cases is played with a swap for each group and under ownerships."""
PROGRESS_SECONDS = 15.0
SHOWN_MAX = 10
"""Failed cases that are shown in full."""
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
_ends_early = multiprocessing.get_context("fork").RawValue("b", 0)
"""Seen by all processes: no more cases."""


@dataclass(slots=True)
class Tally:
    """What some cases came to. ``groups``: so many went the fast path."""

    cases: int = 0
    last_seed: int = 0
    groups: int = 0
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Take the figures of other cases in."""
        self.cases += other.cases
        self.last_seed = max(self.last_seed, other.last_seed)
        self.groups += other.groups
        self.failures |= other.failures


def play(seed: int) -> int:
    """Play one case both ways, with the compiled kernel or, one of four, without it. Raises AssertionError if they
    differ. Return how many groups went the fast path, or left without a swap."""
    random = Random(f"{seed}/both ways")
    with with_kernel(None if random.random() < 0.25 else KERNEL):
        if seed % OWNED_EACH == 0:
            return compare_owned(random_busy_bursts(random))
        return compare(random_bursts(random))


def play_some(first: int, count: int) -> Tally:
    """Play so many cases in this process, fewer if the run is to end."""
    tally = Tally()
    for seed in takewhile(lambda _seed: not _ends_early.value, range(first, first + count)):
        tally.cases += 1
        tally.last_seed = seed
        try:
            tally.groups += play(seed)
        except Exception:
            tally.failures[seed] = f"case {seed}; again: make both-ways CASES=1 FIRST={seed}\n{traceback.format_exc()}"
    return tally


def play_many(first: int, cases: int, jobs: int) -> Iterator[Tally]:
    """Play them in so many processes; gives each part's figures, in order."""
    starts = range(first, first + cases, CASES_PER_TASK)
    counts = [min(CASES_PER_TASK, first + cases - start) for start in starts]
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context, initializer=_begin_process) as pool:
        yield from pool.map(play_some, starts, counts)


def _begin_process() -> None:
    for number in ENDING_SIGNALS:  # who ends the run speaks to its first process
        signal.signal(number, signal.SIG_IGN)


def _end_early(number: int, frame: FrameType | None) -> None:
    if _ends_early.value:
        raise KeyboardInterrupt
    _ends_early.value = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, tell, save; exit status 1 when the two ways differ."""
    parser = argparse.ArgumentParser(description="Play random cases of one producer with the fast path and without.")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--first", type=int, default=0, help="0: behind the last one that was played on this core")
    parser.add_argument("--unsaved", action="store_true", help="write no line of figures")
    options = parser.parse_args(arguments)
    core = core_digest()
    first = options.first or next_first(rows_of(NAME), core)
    print(f"core {core}: cases {first} to {first + options.cases - 1}, {options.jobs} processes", flush=True)
    for number in ENDING_SIGNALS:
        signal.signal(number, _end_early)
    total, started, told_at = Tally(), time.monotonic(), 0.0
    for tally in play_many(first, options.cases, options.jobs):
        total.add(tally)
        for text in list(tally.failures.values())[: max(0, SHOWN_MAX - len(total.failures) + len(tally.failures))]:
            print(text, flush=True)
        if time.monotonic() - told_at > PROGRESS_SECONDS:
            told_at = time.monotonic()
            print(f"{total.cases:7d} of {options.cases} cases, {len(total.failures)} failed", flush=True)
    seconds = time.monotonic() - started
    print(f"{total.cases} cases, {total.groups} groups on the fast path, {len(total.failures)} failed, {seconds:.0f} s")
    if total.cases and not options.unsaved:
        figures = {
            "core": core,
            "first_seed": first,
            "last_seed": total.last_seed,
            "cases": total.cases,
            "fast_groups": total.groups,
            "failed_seeds": sorted(total.failures)[:SHOWN_MAX],
            "violations": len(total.failures),
            "has_kernel": KERNEL is not None,
            "seconds": round(seconds, 1),
            "jobs": options.jobs,
        }
        append_result(NAME, figures)
    return 1 if total.failures else INTERRUPTED if _ends_early.value else 0


if __name__ == "__main__":
    sys.exit(main())
