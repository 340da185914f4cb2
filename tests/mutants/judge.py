"""Tries mutants, each in a process of its own: by its named test, with the patched lines in the shipped package's
place, then by random worlds. Knows no rule. ``python -m mutants.judge SEEDS NAME...`` prints a line of JSON for each,
``python -m mutants.judge unmutated NAME...`` which of the named tests fail without any mutant.

A mutant is dead when an assertion of its test fails, or when the oracle complains for the right reason. Anything else
that goes wrong (a stale patch, a test that is not there, an error that is no assertion) is an error, not a death.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from mutants.mutant import Mutant
from mutants.table import MUTANTS

from testkit.virtual.mutant import ORIGINAL, patch_in_place, patched_package

TESTS = Path(__file__).resolve().parents[1]
PATH_ENTRIES = (str(TESTS), str(TESTS.parent / "src"))
VIOLATION_CHARACTERS = 200
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
"""The scenes need nothing of the configuration, and each process begins anew with it."""
NONSENSE = (NameError, AttributeError, TypeError, ImportError)


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
        self.failed: list[str] = []
        self.assertion: str | None = None
        self.trouble: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed:
            self.passed += report.when == "call"
            return
        said = _said_by(report)
        self.failed.append(f"{report.nodeid}: {_short(said)}")
        if report.when == "call" and said.startswith(("AssertionError", "assert", "Failed")):
            self.assertion = said
        else:
            self.trouble = said

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.trouble = _said_by(report)
            self.failed.append(f"{report.nodeid}: {_short(self.trouble)}")


def _said_by(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)


def run_tests(tests: Sequence[str]) -> _Watcher:
    """Run some tests here."""
    watcher = _Watcher()
    paths = [str(TESTS / test) for test in tests]
    code = pytest.main([*paths, *OPTIONS], plugins=[watcher])
    if not watcher.passed and not watcher.failed:
        watcher.trouble = f"{', '.join(tests)}: not run, pytest ends with {code!r}"
        watcher.failed.append(watcher.trouble)
    return watcher


# ---------------------------------------------------------------------- in a process of its own
def by_test(mutant: Mutant) -> dict[str, object]:
    signal.alarm(TEST_SECONDS_MAX)
    patch_in_place(mutant.patches)
    blunders = _watch_flows()
    watcher = run_tests([mutant.test])
    if blunders or watcher.trouble is not None:
        return {"error": _short(watcher.trouble or f"the mutant is no proxy: {blunders[0]!r}")}
    if watcher.assertion is None:
        return {}
    return {"killed_by": mutant.test, "violation": _short(watcher.assertion)}


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


def by_seeds(mutant: Mutant, seeds: int) -> dict[str, object]:
    # The shipped package comes with it: the oracle has no patched line.
    run_seed = importlib.import_module(mutant.worlds).run_seed
    with patched_package(f"mutant_{mutant.name}", mutant.patches) as package:
        for seed in range(1, seeds + 1):
            for problem in run_seed(seed, package=package).problems:
                if _complaint(problem).startswith(mutant.deaths):
                    return {"seed": seed, "seeds": seed, "seed_violation": _short(problem)}
    return {"seeds": seeds}


def _complaint(problem: str) -> str:
    """Without the partition that it speaks of."""
    return problem.partition(": ")[2] if re.match(r"[\w.]+-\d+: ", problem) else problem


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
    return (
        dict(json.loads(said))
        if said
        else {"error": f"the process died, or its test took more than {TEST_SECONDS_MAX} s"}
    )


def judge(mutant: Mutant, seeds: int) -> Verdict:
    """Try one mutant: its test, then so many random worlds, if one of them could tell."""
    started = time.monotonic()
    found = apart(lambda: by_test(mutant))
    if seeds and mutant.deaths and "error" not in found:
        found |= apart(lambda: by_seeds(mutant, seeds))
        if found.get("seed") and "killed_by" not in found:
            found |= {"killed_by": f"seed {found['seed']}", "violation": found["seed_violation"]}
    return Verdict(name=mutant.name, **found, seconds=round(time.monotonic() - started, 2))  # type: ignore[arg-type]


def warm_up() -> None:
    """Import what all of them need of others' packages, and forget the shipped one again."""
    for path in PATH_ENTRIES:
        if path not in sys.path:
            sys.path.insert(0, path)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take half of the time, and no scene needs one
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--version", *OPTIONS])
    for name in ("hypothesis", "xdist.scheduler", "testkit.stage.sequencer", "testkit.virtual.world"):
        importlib.import_module(name)
    ours = (ORIGINAL, "testkit", "simulation")
    kept = ("testkit.virtual", "testkit.virtual.mutant")
    for module in list(sys.modules):
        if module.partition(".")[0] in ours and module not in (*kept, "testkit"):
            del sys.modules[module]
    gc.collect()
    gc.freeze()


def judged(names: Sequence[str], seeds: int) -> Iterator[Verdict]:
    """The verdicts, one by one."""
    warm_up()
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    for name in names:
        yield judge(by_name[name], seeds)


def main(arguments: list[str]) -> int:
    """Print the verdicts as they come, or what fails without a mutant."""
    if arguments[0] == "unmutated":
        warm_up()
        tests = sorted({mutant.test for mutant in MUTANTS if mutant.name in arguments[1:]})
        found = apart(lambda: {"failed": run_tests(tests).failed})
        print(json.dumps(found))
        return 0
    for verdict in judged(arguments[1:], int(arguments[0])):
        print(json.dumps(asdict(verdict)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
