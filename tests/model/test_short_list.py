"""A part of the short list of the model's table, in a process of its own: a rule that is taken out breaks what it
protects, and with all rules on nothing breaks. `make model` runs the whole short list, as CI does before a change lands,
and run.py without --short the rest: none of it depends on the proxy's code."""

import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).with_name("run.py")
PART = ("A", "E", "V", "h")
HOLDING_MIN, BREAKING_MIN = 5, 8
"""In the part."""
SHORT_HOLDING_MIN, SHORT_BREAKING_MIN = 25, 60
COUNT = "import run; rows = [row[2] for row in run.ROWS + run.MORE if row[3]]; print(rows.count('holds'), len(rows))"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=RUN.parent
    )


def test_every_line_of_a_part_of_the_short_list_has_the_verdict_that_is_expected() -> None:
    done = run(str(RUN), "--short", *PART)
    wrong = [line for line in done.stdout.splitlines() if "**unexpected**" in line]
    assert done.returncode == 0, "\n".join(wrong) or done.stderr
    verdicts = [line.split("|")[4].strip() for line in done.stdout.splitlines()[2:]]
    holding = verdicts.count("HOLDS")
    assert holding >= HOLDING_MIN, done.stdout
    assert len(verdicts) - holding >= BREAKING_MIN, done.stdout


def test_the_short_list_is_not_emptied() -> None:
    holding, lines = map(int, run("-c", COUNT).stdout.split())
    assert holding >= SHORT_HOLDING_MIN
    assert lines - holding >= SHORT_BREAKING_MIN
