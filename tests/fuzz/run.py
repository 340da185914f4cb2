"""``make fuzz MINUTES=10``: every target for its share of the time, some at once, and what became of them.

What breaks a target is kept in .cache/fuzz/found and shown with the command that repeats it; what was learned of the
code stays in .cache/fuzz, so that the next run begins where this one ended. 1 when something was found."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fuzz.seeds import seeds_of
from fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "fuzz"
INPUT_BYTES_MAX = 4096
INPUT_SECONDS_MAX = 10
MEMORY_MB_MAX = 2048
_DONE = re.compile(r"DONE\s+cov: (\d+) ft: \d+ corp: (\d+)/")
_RUNS = re.compile(r"Done (\d+) runs")
_EXTRA_SECONDS = 120
_TAIL_LINES = 25


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one target. ``tail``: the last of what was printed when it broke."""

    name: str
    runs: int
    coverage: int
    inputs: int
    seconds: float
    is_broken: bool
    tail: str


def fuzz(name: str, seconds: int) -> Outcome:
    """Fuzz one target for so long, in a process of its own."""
    learned, seeds, found = CACHE / name, CACHE / "seeds" / name, CACHE / "found"
    for directory in (learned, seeds, found):
        directory.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds_of(TARGETS[name].seeds)):
        (seeds / f"{number:03}").write_bytes(seed)
    limits = (f"-max_total_time={seconds}", f"-timeout={INPUT_SECONDS_MAX}", f"-rss_limit_mb={MEMORY_MB_MAX}")
    command = [sys.executable, "-m", "fuzz.one", name, os.fspath(learned), os.fspath(seeds), *limits]
    command += [f"-max_len={INPUT_BYTES_MAX}", f"-artifact_prefix={found}/{name}-", "-print_final_stats=1"]
    environment = {**os.environ, "PYTHONPATH": os.fspath(ROOT / "tests")}
    began = time.monotonic()
    done = subprocess.run(
        command,
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + _EXTRA_SECONDS,
    )
    said = done.stdout + done.stderr
    covered, runs = _DONE.search(said), _RUNS.search(said)
    return Outcome(
        name,
        int(runs[1]) if runs else 0,
        int(covered[1]) if covered else 0,
        int(covered[2]) if covered else 0,
        time.monotonic() - began,
        done.returncode != 0,
        "\n".join(said.splitlines()[-_TAIL_LINES:]) if done.returncode else "",
    )


def main() -> int:
    """Fuzz, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of the whole run (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time (default: %(default)s)")
    parser.add_argument("names", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (default: all)")
    options = parser.parse_args()
    if unknown := set(options.names) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    names = options.names or list(TARGETS)
    seconds = max(1, round(options.minutes * 60 * min(options.jobs, len(names)) / len(names)))
    print(f"{len(names)} targets, {seconds} s each")
    broken: list[Outcome] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(lambda name: fuzz(name, seconds), names):
            verdict = "BROKEN" if outcome.is_broken else "ok"
            print(
                f"{outcome.name:<16} {verdict:<7} {outcome.runs:>10} runs in {outcome.seconds:.0f} s, "
                f"{outcome.coverage} places of the code, {outcome.inputs} inputs kept",
                flush=True,
            )
            if outcome.is_broken:
                broken.append(outcome)
    for outcome in broken:
        print(f"\n{outcome.name}:\n{outcome.tail}")
        print(f"again: PYTHONPATH=tests python -m fuzz.one {outcome.name} {CACHE / 'found'}/{outcome.name}-...")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
