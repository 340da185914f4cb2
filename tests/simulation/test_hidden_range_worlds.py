"""Random worlds of hidden ranges: each seed is a test."""

from __future__ import annotations

import pytest
from simulation.hidden_ranges import run_seed

SEEDS = range(1, 41)


@pytest.mark.promise("hidden-ranges")
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_named_is_left_out_and_nothing_else_in_a_random_world(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.problems == [], outcome.explain()
