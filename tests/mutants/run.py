"""``make mutants``: every mutant against its test and against random worlds, as a table. A run of all of them
with random worlds adds a line to the results.

Ends with 1 if a mutant survives, with 2 if something about the tests or the patches is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mutants.mutant import Mutant
from mutants.table import MUTANTS

from runs.results import append_result

SURVIVES, UNUSABLE = 1, 2
WIDTHS = (40, 4, 12, 64)


def start_judge(mode: str, names: Sequence[str]) -> subprocess.Popen[str]:
    """A process that prints lines of JSON."""
    tests = Path(__file__).resolve().parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tests), str(tests.parent / "src")))}
    command = [sys.executable, "-m", "mutants.judge", mode, *names]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def verdicts(names: Sequence[str], seeds: int, jobs: int) -> Iterator[dict[str, Any]]:
    """What the judges say, as they say it."""
    said: queue.Queue[dict[str, Any] | None] = queue.Queue()
    shares = [names[first::jobs] for first in range(jobs) if names[first::jobs]]
    processes = [start_judge(str(seeds), share) for share in shares]

    def listen(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said.put(json.loads(line))
        said.put(None)

    for process in processes:
        threading.Thread(target=listen, args=(process,), daemon=True).start()
    ended = 0
    try:
        while ended < len(processes):
            one = said.get()
            if one is None:
                ended += 1
            else:
                yield one
    finally:
        for process in processes:
            process.terminate()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def row(mutant: Mutant, verdict: dict[str, Any]) -> str:
    """One line of the table. The violation is what the test expected and what it found, or the oracle's complaint."""
    killer = "ERROR" if verdict["error"] else verdict["killed_by"] or "SURVIVES"
    seeds = str(verdict["seed"]) if verdict["seed"] else f"none of {verdict['seeds']}" if verdict["seeds"] else "-"
    violation = verdict["error"] or verdict["violation"] or mutant.rule
    columns = (mutant.name, f"R{mutant.number}", seeds, violation[: WIDTHS[-1] - 2])
    return "".join(text.ljust(width) for text, width in zip(columns, WIDTHS, strict=True)) + killer


def document() -> Iterator[str]:
    """The table of the documentation."""
    yield "| mutant | what is missing | the scene that kills it |"
    yield "| --- | --- | --- |"
    for mutant in MUTANTS:
        path, _, test = mutant.test.partition("::")
        rule, _, what = mutant.rule.partition(": ")
        scene = test.removeprefix("test_").replace("_", " ")
        yield f"| `{mutant.name}` | **{rule}** {what} | `{path}` {scene} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--seeds", type=int, default=40, help="random worlds for each mutant that they can tell")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--document", action="store_true", help="print the table of docs/MUTANTS.md and end")
    parser.add_argument("names", nargs="*", help="only these mutants")
    return parser.parse_args()


def main() -> int:
    """Run what was asked for."""
    options = arguments()
    if options.document:
        print("\n".join(document()))
        return 0
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    unknown = set(options.names) - set(by_name)
    if unknown:
        print(f"there is no mutant {', '.join(sorted(unknown))}", file=sys.stderr)
        return UNUSABLE
    names = options.names or list(by_name)
    started = time.monotonic()
    said, _ = start_judge("unmutated", names).communicate()
    failed = json.loads(said).get("failed", [said])
    if failed:
        print("these tests fail without any mutant, so they prove nothing:", *failed, sep="\n  ", file=sys.stderr)
        return UNUSABLE
    titles = ("mutant", "", "first seed", "violation")
    print("".join(title.ljust(width) for title, width in zip(titles, WIDTHS, strict=True)) + "killed by")
    found = []
    for verdict in verdicts(names, options.seeds, options.jobs):
        found.append(verdict)
        print(row(by_name[verdict["name"]], verdict), flush=True)
    return conclude(by_name, found, names, options.seeds, time.monotonic() - started)


def conclude(
    by_name: dict[str, Mutant], found: Sequence[dict[str, Any]], names: Sequence[str], seeds: int, seconds: float
) -> int:
    """Sum up, write the line of the results, and return how to end."""
    missing = sorted(set(names) - {verdict["name"] for verdict in found})
    errors = [verdict["name"] for verdict in found if verdict["error"]] + missing
    alive = [verdict["name"] for verdict in found if not verdict["error"] and not verdict["killed_by"]]
    by_seeds = [verdict["seed"] for verdict in found if verdict["seed"]]
    tried = [verdict for verdict in found if verdict["seeds"]]
    rules = {by_name[verdict["name"]].number for verdict in found if verdict["killed_by"]}
    print(
        f"{len(found) - len(alive) - len(errors)} of {len(names)} mutants killed, of {len(rules)} rules; "
        f"{len(by_seeds)} of the {len(tried)} that random worlds can tell died within {seeds} seeds; {seconds:.0f} s"
    )
    for what, which in (("survive", alive), ("could not be tried", errors)):
        if which:
            print(f"{what}: {', '.join(which)}")
    figures = {
        "mutants": len(names),
        "killed": len(found) - len(alive) - len(errors),
        "survive": alive,
        "errors": errors,
        "rules": len(rules),
        "seeds": seeds,
        "killed_by_seeds": len(by_seeds),
        "seeds_could_tell": len(tried),
        "seconds": round(seconds),
        "by_mutant": {
            verdict["name"]: {"killed_by": verdict["killed_by"], "seed": verdict["seed"], "seeds": verdict["seeds"]}
            for verdict in found
        },
    }
    if len(names) == len(by_name) and seeds:
        append_result("mutants", figures)
    return UNUSABLE if errors else SURVIVES if alive else 0


if __name__ == "__main__":
    sys.exit(main())
