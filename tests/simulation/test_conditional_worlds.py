"""Random worlds of conditional publish: each seed is a test."""

from __future__ import annotations

import pytest
from simulation.conditional import ConditionalPartition

SEEDS = (*range(1, 41), 100280, 102067, 202677)
"""The last three: the fence of a batch that lies elsewhere is lost; a pipeline lies elsewhere; a pipeline ends with a
failure before its writer hears of a batch that is in the log."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_batch_is_where_it_was_to_be_in_a_random_world(seed: int) -> None:
    outcome = ConditionalPartition(seed).run()
    assert outcome.problems == [], outcome.explain()
