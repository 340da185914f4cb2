"""The short list of the model's table, in a process of its own: a rule that is taken out breaks what it protects, and
with all rules on nothing breaks. Never runs the whole table: `make model` prints the short list, run.py without --short
the rest."""

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")
HOLDING_MIN = 25
BREAKING_MIN = 60


@pytest.mark.timeout(600)
def test_every_line_of_the_short_list_has_the_verdict_that_is_expected() -> None:
    done = subprocess.run([sys.executable, str(RUN), "--short"], capture_output=True, text=True, check=False)
    wrong = [line for line in done.stdout.splitlines() if "**unexpected**" in line]
    assert done.returncode == 0, "\n".join(wrong) or done.stderr
    verdicts = [line.split("|")[4].strip() for line in done.stdout.splitlines()[2:]]
    holding = verdicts.count("HOLDS")
    assert holding >= HOLDING_MIN, done.stdout
    assert len(verdicts) - holding >= BREAKING_MIN, done.stdout
