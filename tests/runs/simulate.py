"""Many random worlds on all cores: progress, how to see a failure again, and a line of figures per run that add up.

Owns the work of several processes and the counting; a world is run by ``simulation.chaos``. Started by
``make simulate SEEDS=2000``. What was run counts for this core (``simulated_core``), and a run begins after the last
seed that was run on it, unless FIRST says otherwise. Ctrl-C and SIGTERM end a run early: it saves what it has.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from types import FrameType

from simulation.chaos import run_seed
from simulation.shape import FORMS

from runs.results import append_result, next_first, rows_of
from runs.simulated_core import core_digest

NAME = "simulation"
SEEDS_PER_TASK = 20
BATCHES_PER_SEED = 200
PROGRESS_SECONDS = 15.0
SHOWN_MAX = 20
"""Failing seeds that are shown in full."""
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
"""Exit status of a run that was ended early and found nothing."""
_ends_early = multiprocessing.get_context("fork").RawValue("b", 0)
"""Seen by all processes: no more seeds."""


@dataclass(slots=True)
class Tally:
    """What some seeds came to. ``cpu_seconds``: of the processes that ran them."""

    seeds: int = 0
    last_seed: int = 0
    batches: int = 0
    cpu_seconds: float = 0.0
    calm_seconds_max: float = 0.0
    answer_seconds_max: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)
    forms: Counter[str] = field(default_factory=Counter)
    """How the brokers of the worlds store batches -> how many worlds."""
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Take the figures of other seeds in."""
        self.seeds += other.seeds
        self.last_seed = max(self.last_seed, other.last_seed)
        self.batches += other.batches
        self.cpu_seconds += other.cpu_seconds
        self.calm_seconds_max = max(self.calm_seconds_max, other.calm_seconds_max)
        self.answer_seconds_max = max(self.answer_seconds_max, other.answer_seconds_max)
        self.faults += other.faults
        self.allowed += other.allowed
        self.forms += other.forms
        self.failures |= other.failures

    @property
    def seeds_per_hour_and_core(self) -> int:
        """How fast it runs on one core that does nothing else."""
        return round(3600 * self.seeds / self.cpu_seconds) if self.cpu_seconds else 0


def run_some(first: int, count: int, batches: int, form: str | None = None) -> Tally:
    """Run so many seeds in this process, fewer if the run is to end. An error of the kit itself counts as a failure of
    its seed. ``form``: of all brokers, None: as each seed draws it."""
    tally = Tally()
    started = time.process_time()
    for seed in range(first, first + count):
        if _ends_early.value:
            break
        tally.seeds += 1
        tally.last_seed = seed
        try:
            outcome = run_seed(seed, batches=batches, form=form)
        except Exception as error:
            again = f"PYTHONPATH=tests python -m simulation.chaos {seed} --batches {batches}"
            again += f" --form {form}" if form else ""
            tally.failures[seed] = f"seed {seed}; see it again with: {again}\n{type(error).__name__}: {error}"
            continue
        tally.batches += outcome.batches
        tally.faults.update(outcome.faults)
        tally.allowed.update(outcome.allowed)
        tally.forms[outcome.form] += 1
        tally.calm_seconds_max = max(tally.calm_seconds_max, outcome.calm_seconds)
        tally.answer_seconds_max = max(tally.answer_seconds_max, outcome.answer_seconds_max)
        if outcome.problems:
            tally.failures[seed] = outcome.explain()
    gc.collect()  # a world's objects hold each other: a process that keeps them grows to 700 MB, and is a fifth slower
    tally.cpu_seconds = time.process_time() - started
    return tally


def run_many(first: int, seeds: int, jobs: int, batches: int, form: str | None = None) -> Iterator[Tally]:
    """Run the seeds in so many processes; gives each part's figures as it ends."""
    parts = [
        (start, min(SEEDS_PER_TASK, first + seeds - start)) for start in range(first, first + seeds, SEEDS_PER_TASK)
    ]
    run_seed(first, batches=1)  # imports everything: what is changed on the disk from now on is not run
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context, initializer=_begin_process) as pool:
        try:
            running: set[Future[Tally]] = set()
            todo = iter(parts)
            while True:
                for part in todo if not _ends_early.value else ():
                    running.add(pool.submit(run_some, *part, batches, form))
                    if len(running) >= 2 * jobs:
                        break
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for one in done:
                    yield one.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _begin_process() -> None:
    """Signals that end the run are for its first process, which ends the others. A world's objects die with it, so
    that looking for cycles among them is mostly in vain."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _end_early(number: int, frame: FrameType | None) -> None:
    if _ends_early.value:
        raise KeyboardInterrupt
    _ends_early.value = 1


def seeds_on(rows: Sequence[dict[str, object]], core: str) -> int:
    """How many different worlds were run on this core. A seed is another world when it has other batches, or another
    form."""
    seen: dict[object, set[int]] = {}
    count = 0
    for row in rows:
        if row.get("core") == core:
            known = seen.setdefault((row["batches_per_seed"], row.get("form")), set())
            fresh = set(range(int(str(row["first_seed"])), int(str(row["last_seed"])) + 1)) - known
            count += min(len(fresh), int(str(row["seeds"])))  # one that ended early has left some out
            known |= fresh
    return count


def _progress(total: Tally, seeds: int, started: float) -> str:
    seconds = time.monotonic() - started
    left = (seeds - total.seeds) * seconds / max(1, total.seeds)
    return (
        f"{total.seeds:7d} of {seeds} seeds, {total.batches} batches, {sum(total.faults.values())} faults, "
        f"{len(total.failures)} seeds failed, {seconds:.0f} s, about {left:.0f} s left, "
        f"{total.seeds_per_hour_and_core} seeds per hour and core"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, tell, save; exit status 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description="Run random worlds and count what happened in them.")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--first", type=int, default=0, help="0: behind the last one that was run on this core")
    parser.add_argument("--batches", type=int, default=BATCHES_PER_SEED, help="of one world, about")
    parser.add_argument("--form", choices=FORMS, help="of all brokers; else each seed draws it")
    parser.add_argument("--unsaved", action="store_true", help="write no line of figures")
    options = parser.parse_args(arguments)
    core, rows = core_digest(), rows_of(NAME)
    first = options.first or next_first(rows, core)
    print(f"core {core}: seeds {first} to {first + options.seeds - 1}, {options.jobs} processes", flush=True)
    for number in ENDING_SIGNALS:
        signal.signal(number, _end_early)
    total, started, told_at = Tally(), time.monotonic(), 0.0
    for tally in run_many(first, options.seeds, options.jobs, options.batches, options.form):
        total.add(tally)
        for text in list(tally.failures.values())[: max(0, SHOWN_MAX - len(total.failures) + len(tally.failures))]:
            print(text, flush=True)
        if time.monotonic() - told_at > PROGRESS_SECONDS:
            told_at = time.monotonic()
            print(_progress(total, options.seeds, started), flush=True)
    print(_progress(total, options.seeds, started))
    print("faults: " + ", ".join(f"{kind} {count}" for kind, count in total.faults.most_common()))
    print("allowed: " + ", ".join(f"{name} {count}" for name, count in total.allowed.most_common()))
    print("forms: " + ", ".join(f"{form} {count}" for form, count in total.forms.most_common()))
    print(f"longest: {total.calm_seconds_max:.1f} s until all was done, {total.answer_seconds_max:.1f} s for an answer")
    if total.failures:
        print(f"failed: {sorted(total.failures)}")
    figures: dict[str, object] = {
        "core": core,
        "first_seed": first,
        "last_seed": total.last_seed,
        "seeds": total.seeds,
        "batches": total.batches,
        "batches_per_seed": options.batches,
        "form": options.form,
        "violations": len(total.failures),
        "failed_seeds": sorted(total.failures)[:SHOWN_MAX],
        "allowed": dict(sorted(total.allowed.items())),
        "forms": dict(sorted(total.forms.items())),
        "calm_seconds_max": round(total.calm_seconds_max, 1),
        "answer_seconds_max": round(total.answer_seconds_max, 1),
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(total.cpu_seconds, 1),
        "seeds_per_hour_and_core": total.seeds_per_hour_and_core,
        "jobs": options.jobs,
        "faults": dict(sorted(total.faults.items())),
    }
    if total.seeds and not options.unsaved:
        append_result(NAME, figures)
    print(f"all runs: {seeds_on([*rows, figures], core)} seeds on this core, {core}")
    return 1 if total.failures else INTERRUPTED if _ends_early.value else 0


if __name__ == "__main__":
    sys.exit(main())
