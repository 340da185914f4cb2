"""Message sets of old clients in random worlds: answers that fail, come late or never, brokers that move. Each set is
stored once and in order, and its answer is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testkit.virtual.raised_trials import KINDS, MUTANTS, Kind

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_each_set_is_stored_once_and_in_order_and_its_answer_is_true(kind: Kind, seed: int) -> None:
    kind.try_out(seed)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str) -> None:
    command = [sys.executable, "-m", "testkit.virtual.raised_trials", name]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (1, ""), done.stdout
