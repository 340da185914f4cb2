"""Random worlds: several proxies, brokers, clients and partitions, and everything breaks. Each seed is one test run."""

from __future__ import annotations

import pytest
from simulation.chaos import run_seed

FIRST_SEED = 1
SEEDS_PER_TEST = 30
TESTS = 6


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + TESTS * SEEDS_PER_TEST, SEEDS_PER_TEST))
def test_no_promise_is_broken_in_a_random_world(first: int) -> None:
    outcomes = (run_seed(seed) for seed in range(first, first + SEEDS_PER_TEST))
    failed = [outcome.explain() for outcome in outcomes if outcome.problems]
    assert not failed, "\n".join(failed)


def test_the_same_seed_is_the_same_world_to_the_last_byte() -> None:
    first, second, other = run_seed(5), run_seed(5), run_seed(6)
    assert first.world.network.digest == second.world.network.digest
    assert first.world.network.events_run == second.world.network.events_run
    assert first.faults == second.faults
    assert first.world.network.digest != other.world.network.digest


def test_a_few_worlds_meet_every_kind_of_trouble() -> None:
    met: set[str] = set()
    for seed in range(1, 81):
        met |= set(run_seed(seed).faults)
    troubles = {"proxy crash", "drain", "proxy pause", "redis restart", "redis pause", "broker crash", "broker pause"}
    troubles |= {"leader move", "cut", "half open", "client disconnect", "straggler", "truncated", "LATE", "LOST_REPLY"}
    assert troubles <= met
