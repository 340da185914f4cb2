"""Tries mutants, each in a process of its own: by its named test, with the patched lines in the shipped package's
place, then by random worlds. Knows no rule; prints one line of JSON for each: ``python -m mutants.judge SEEDS NAME...``

A mutant is dead when an assertion of its test fails, or when the oracle complains for the right reason. Anything else
that goes wrong (a stale patch, a test that is not there, an error that is no assertion) is an error, not a death.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from mutants.mutant import Mutant
from mutants.table import MUTANTS

from testkit.virtual_mutant import ORIGINAL, patch_in_place, patched_package

TESTS = Path(__file__).resolve().parents[1]
PATH_ENTRIES = (str(TESTS), str(TESTS.parent / "src"))
VIOLATION_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """``killed_by``: a test, or a seed; None while it lives. ``seed``: the first random world that tells, 0: none of
    the ``seeds`` that were tried. ``error``: why nothing is known."""

    name: str
    killed_by: str | None = None
    violation: str = ""
    seed: int = 0
    seeds: int = 0
    seed_violation: str = ""
    seconds: float = 0.0
    error: str | None = None


class _Watcher:
    """A plugin that keeps what the test says when it fails."""

    def __init__(self) -> None:
        self.passed = 0
        self.assertion: str | None = None
        self.trouble: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed:
            self.passed += report.when == "call"
            return
        said = _said_by(report)
        if report.when == "call" and said.startswith(("AssertionError", "assert", "Failed")):
            self.assertion = said
        else:
            self.trouble = said

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.trouble = _said_by(report)


def _said_by(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)


def run_test(test: str) -> tuple[str | None, str | None]:
    """Run one test here. Returns what its assertion says, if one fails, and what else is wrong, if something is."""
    watcher = _Watcher()
    arguments = [str(TESTS / test), "-q", "-x", "-p", "no:cacheprovider"]
    code = pytest.main(arguments, plugins=[watcher])
    if watcher.trouble is None and watcher.assertion is None and not watcher.passed:
        watcher.trouble = f"{test} was not run: pytest ends with {code!r}"
    return watcher.assertion, watcher.trouble


# ---------------------------------------------------------------------- in a process of its own
def _by_test(mutant: Mutant) -> dict[str, object]:
    patch_in_place(mutant.patches)
    assertion, trouble = run_test(mutant.test)
    if trouble is not None:
        return {"error": trouble}
    if assertion is None:
        return {}
    return {"killed_by": mutant.test, "violation": _short(assertion)}


def _by_seeds(mutant: Mutant, seeds: int) -> dict[str, object]:
    from simulation.chaos import run_seed  # the shipped package comes with it: the oracle has no patched line

    with patched_package(f"mutant_{mutant.name}", mutant.patches) as package:
        for seed in range(1, seeds + 1):
            for problem in run_seed(seed, package=package).problems:
                if any(death in problem for death in mutant.deaths):
                    return {"seed": seed, "seeds": seed, "seed_violation": _short(problem)}
    return {"seeds": seeds}


def _short(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)[:VIOLATION_CHARACTERS]


def apart(work: Callable[[], dict[str, object]]) -> dict[str, object]:
    """Do it in a forked process and return what it found; {"error": ...} where it raised or died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            found = work()
        except BaseException as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        with open(writing, "w") as pipe:
            json.dump(found, pipe)
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return dict(json.loads(said)) if said else {"error": "the process died"}


def judge(mutant: Mutant, seeds: int) -> Verdict:
    """Try one mutant: its test, then so many random worlds, if one of them could tell."""
    started = time.monotonic()
    found = apart(lambda: _by_test(mutant))
    if seeds and mutant.deaths and "error" not in found:
        found |= apart(lambda: _by_seeds(mutant, seeds))
        if found.get("seed") and "killed_by" not in found:
            found |= {"killed_by": f"seed {found['seed']}", "violation": found["seed_violation"]}
    return Verdict(name=mutant.name, **found, seconds=round(time.monotonic() - started, 2))  # type: ignore[arg-type]


def warm_up() -> None:
    """Import what all of them need of others' packages, and forget the shipped one again."""
    for path in PATH_ENTRIES:
        if path not in sys.path:
            sys.path.insert(0, path)
    importlib.import_module("testkit.staged_sequencer")
    importlib.import_module("testkit.virtual_world")
    ours = (ORIGINAL, "testkit", "simulation")
    kept = ("testkit.virtual_mutant",)
    for module in list(sys.modules):
        if module.partition(".")[0] in ours and module not in (*kept, "testkit"):
            del sys.modules[module]


def judged(names: Sequence[str], seeds: int) -> Iterator[Verdict]:
    """The verdicts, one by one."""
    warm_up()
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    for name in names:
        yield judge(by_name[name], seeds)


def main(arguments: list[str]) -> int:
    """Print the verdicts as they come."""
    for verdict in judged(arguments[1:], int(arguments[0])):
        print(json.dumps(asdict(verdict)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
