"""``make scenes`` and ``make mutants``: each mutant against the scene that is named for it, then against random worlds.

A mutant is dead when an assertion of its scene fails, with the patched package in the shipped one's place. Anything
else that goes wrong (a stale patch, a test that is not there, an error that is no assertion) is an error, not a death.
Ends with 1 if a mutant survives its scene, with 2 after an error. Knows no rule.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
from mutants.mutant import Mutant
from mutants.old_clients import OLD_CLIENTS
from mutants.table import MUTANTS as OF_RULES

from runs.results import append_result
from testkit.virtual.mutant import ORIGINAL, patch_in_place, patched_package

TESTS = Path(__file__).resolve().parents[1]
SURVIVES, UNUSABLE = 1, 2
MUTANTS = (*OF_RULES, *OLD_CLIENTS)
VIOLATION_CHARACTERS = 100
TEST_SECONDS_MAX = 120
_UNUSED = ("cacheprovider", "unraisableexception", "threadexception", "faulthandler")
OPTIONS = (
    "-c",
    os.devnull,
    "--rootdir",
    str(TESTS.parent),
    "--import-mode=importlib",
    "-q",
    *map("-pno:{}".format, _UNUSED),
)
"""The scenes need nothing of the configuration, and each process begins again with it."""
NONSENSE = (NameError, AttributeError, TypeError, ImportError)
FORK = multiprocessing.get_context("fork")
Found = dict[str, Any]
"""``killed``: what the test or the oracle says; "": nothing. ``seed``: the first world that tells. ``error``: why
nothing is known."""
Work = Callable[[], Found]


class _Watcher:
    """A plugin that keeps what the tests say when they fail."""

    def __init__(self) -> None:
        self.is_any_run = False
        self.assertions: list[str] = []
        self.troubles: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.is_any_run = True
        if not report.passed:
            said = _said_by(report)
            is_assertion = report.when == "call" and said.startswith(("AssertionError", "assert", "Failed"))
            (self.assertions if is_assertion else self.troubles).append(said)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.troubles.append(_said_by(report))


def _said_by(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)


def run_tests(tests: Sequence[str]) -> Found:
    """Run some tests here: what they say."""
    watcher = _Watcher()
    code = pytest.main([*(str(TESTS / test) for test in tests), *OPTIONS], plugins=[watcher])
    if not watcher.is_any_run:
        watcher.troubles.append(f"not run, pytest ends with {code!r}")
    if watcher.troubles:
        return {"error": _short(watcher.troubles[0])}
    return {"killed": _short(watcher.assertions[0]) if watcher.assertions else ""}


# ---------------------------------------------------------------------- in a process of its own
def by_scene(mutant: Mutant) -> Found:
    """Try a mutant in its scene."""
    signal.alarm(TEST_SECONDS_MAX)
    patch_in_place(mutant.patches)
    blunders = _watch_flows()
    found = run_tests([mutant.test])
    return {"error": f"the mutant is no proxy: {blunders[0]!r}"} if blunders else found


def _watch_flows() -> list[Exception]:
    """Keep the errors that flows end with, where a patch has made nonsense of the source."""
    found: list[Exception] = []
    event = importlib.import_module(f"{ORIGINAL}.proxy.events").InternalError
    begin = event.__init__

    def begin_and_look(self: object, where: str, error: Exception) -> None:
        begin(self, where, error)
        if isinstance(error, NONSENSE):
            found.append(error)

    event.__init__ = begin_and_look
    return found


def by_seeds(mutant: Mutant, seeds: int) -> Found:
    """Try a mutant in random worlds, until the oracle complains for the right reason."""
    # The shipped package comes with it: the oracle has no patched line.
    run_seed = importlib.import_module(mutant.worlds).run_seed
    with patched_package(f"mutant_{mutant.name}", mutant.patches) as package:
        for seed in range(1, seeds + 1):
            for problem in run_seed(seed, package=package).problems:
                complaint = re.sub(r"^[\w.]+-\d+: ", "", problem)  # without the partition that it speaks of
                if complaint.startswith(mutant.deaths):
                    return {"seed": seed, "killed": _short(problem)}
    return {"seed": 0, "killed": ""}


def _short(text: str) -> str:
    """What was expected, without the pages that follow."""
    shown = []
    for line in text.splitlines():
        line = line.strip().removeprefix("AssertionError: ")
        if line.startswith(("+", "Use -v", "Full diff")):
            break
        if line:
            shown.append(line)
    return " ".join(shown)[:VIOLATION_CHARACTERS]


def _in_child(work: Work, pipe: Connection) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    try:
        found = work()
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    pipe.send(found)


def apart(works: Sequence[tuple[Mutant, Work]], jobs: int) -> Iterator[tuple[Mutant, Found]]:
    """Do each in a forked process, so many at a time."""
    waiting = list(reversed(works))
    running: dict[Connection, tuple[Mutant, Any]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant, work = waiting.pop()
            reading, writing = FORK.Pipe(duplex=False)
            process = FORK.Process(target=_in_child, args=(work, writing))
            process.start()
            writing.close()
            running[reading] = mutant, process
        ready = wait(list(running))
        for reading in [one for one in running if one in ready]:
            mutant, process = running.pop(reading)
            try:
                found = reading.recv()
            except EOFError:
                found = {"error": f"the process died, or its test took more than {TEST_SECONDS_MAX} s"}
            process.join()
            yield mutant, found


def warm_up() -> None:
    """Import what all of them need of others' packages, and forget the shipped one again."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take half of the time, and no scene needs one
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--version", *OPTIONS])
    for name in ("hypothesis", "xdist.scheduler", "testkit.stage.sequencer", "testkit.virtual.world"):
        importlib.import_module(name)
    kept = ("testkit", "testkit.virtual", "testkit.virtual.mutant")
    for module in list(sys.modules):
        if module.partition(".")[0] in (ORIGINAL, "testkit", "simulation") and module not in kept:
            del sys.modules[module]
    gc.collect()
    gc.freeze()


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=40, help="random worlds for each mutant that they can tell")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("names", nargs="*", choices=[[], *(mutant.name for mutant in MUTANTS)], help="only these")
    return parser.parse_args()


def main() -> int:
    """Try them, and say what became of each."""
    options = arguments()
    chosen = [mutant for mutant in MUTANTS if mutant.name in options.names or not options.names]
    seeds, started = options.seeds, time.monotonic()
    warm_up()
    tests = sorted({mutant.test for mutant in chosen})
    for _, found in apart([(chosen[0], partial(run_tests, tests))], 1):
        if found.get("killed", "?"):
            print(f"a scene fails without any mutant, so it proves nothing: {found}", file=sys.stderr)
            return UNUSABLE
    works: list[tuple[Mutant, Work]] = [(mutant, partial(by_scene, mutant)) for mutant in chosen]
    works += [(mutant, partial(by_seeds, mutant, seeds)) for mutant in chosen if seeds and mutant.deaths]
    errors, alive, first_seeds = set[str](), set[str](), dict[str, int]()
    for mutant, found in apart(works, options.jobs):
        if "error" in found:
            errors.add(mutant.name)
            how = "ERROR"
        elif "seed" in found:
            first_seeds[mutant.name] = seed = found["seed"]
            how = f"dies of world {seed}" if seed else "lives in worlds"
        else:
            how = "dies of its scene" if found["killed"] else "SURVIVES"
            alive |= set() if found["killed"] else {mutant.name}
        print(f"{mutant.name:40} {mutant.whose:4} {how:18} {found.get('error') or found['killed']}", flush=True)
    dead, seconds = len(chosen) - len(errors | alive), round(time.monotonic() - started)
    by_worlds = sum(map(bool, first_seeds.values()))
    print(
        f"{dead} of {len(chosen)} die of their scenes, {by_worlds} of {len(first_seeds)} of {seeds} worlds; {seconds} s"
    )
    for what, which in (("survive", alive), ("could not be tried", errors)):
        if which:
            print(f"{what}: {', '.join(sorted(which))}")
    if seeds and not options.names:
        figures = {"mutants": len(chosen), "killed": dead, "survive": sorted(alive), "errors": sorted(errors)}
        worlds = {"seeds": seeds, "killed_by_seeds": by_worlds, "seeds_could_tell": len(first_seeds)}
        append_result("mutants", figures | worlds | {"seconds": seconds, "first_seeds": first_seeds})
    return UNUSABLE if errors else SURVIVES if alive else 0


if __name__ == "__main__":
    sys.exit(main())
