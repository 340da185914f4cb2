"""Random worlds: several proxies, brokers, clients and partitions, and everything breaks. Some hundred of them in
``make test``, a thousand in ``make exhaustive``; ``make simulate`` continues from there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.allowed import Allowed
from simulation.chaos import run_seed
from simulation.moments import BREAK_OFF, MOMENT_TROUBLES, OWNED_TROUBLES, TURNS
from simulation.shape import (
    BACK_IN_TIME,
    BATCHES,
    BROKER_KINDS,
    DOUBLE,
    EVICTION,
    INVENTION,
    LOG_TROUBLES,
    OLDER,
    ROLLED_BACK,
    STATE_TROUBLES,
    THEFT,
    TROUBLES,
    V1,
    V2,
)

from runs.simulate import Tally, run_many
from testkit.virtual.redis_connection import RedisFault

FIRST_SEED = 1
SEEDS = 1000
SOME_SEEDS = 100
JOBS = 2
RARELY_NEEDED = {
    Allowed.ASKS_IN_VAIN,
    Allowed.BEGINS_LATE,
    Allowed.BY_NUMBERS,
    Allowed.COPY_FOR_AN_ALLOWED_45,
    Allowed.FENCED_BY_ITSELF,
    Allowed.FORGOTTEN,
    Allowed.LEFT_BY_AN_OLDER_INSTANCE,
    Allowed.OLD_EPOCH,
    Allowed.OLDER_THAN_THE_LOG,
    Allowed.OVERTAKEN,
    Allowed.OWN_COPY,
    Allowed.REST_IS_LEFT,
}
"""A thousand worlds may do without."""
SEEDS_OF_FAULTS = (
    *(2504, 3897, 4542, 12115, 15599, 18728, 20071, 20241),
    *(31199, 34887, 37506, 38410, 60042, 67869, 78030, 83332, 85339, 93157, 200641, 770096, 770133),
)
"""Of worlds that once failed, as they were drawn then."""


def tallied(seeds: int) -> Tally:
    """What became of so many of them."""
    total = Tally()
    for tally in run_many(FIRST_SEED, seeds, JOBS, BATCHES):
        total.add(tally)
    return total


@pytest.fixture(scope="module")
def worlds() -> Tally:
    """What became of all of them."""
    return tallied(SEEDS)


@pytest.mark.timeout(900)
def test_some_random_worlds_break_no_promise() -> None:
    some = tallied(SOME_SEEDS)
    assert some.seeds == SOME_SEEDS
    assert not some.failures, "\n".join(some.failures.values())
    assert sum(some.faults.values()) > 10 * SOME_SEEDS


@pytest.mark.promise("stored-once", "redis-loses-writes", "stored-never-out-of-order", "name-one-instance")
@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_no_promise_is_broken_in_a_random_world(worlds: Tally) -> None:
    assert worlds.seeds == SEEDS
    assert not worlds.failures, "\n".join(worlds.failures.values())


@pytest.mark.exhaustive
def test_the_worlds_meet_every_kind_of_trouble(worlds: Tally) -> None:
    troubles = {
        *TROUBLES,
        *STATE_TROUBLES,
        *LOG_TROUBLES,
        *MOMENT_TROUBLES,
        *OWNED_TROUBLES,
        *TURNS,
        BREAK_OFF,
        EVICTION,
        THEFT,
        OLDER,
        DOUBLE,
        INVENTION,
        BACK_IN_TIME,
        *("broker stores v1", "broker stores v2"),
        *(kind.value for kind in BROKER_KINDS),
    }
    troubles |= {fault.name for fault in RedisFault if fault is not RedisFault.NONE}
    assert troubles == set(worlds.faults)
    assert sum(worlds.faults.values()) > 10 * SEEDS


@pytest.mark.exhaustive
def test_every_exception_is_needed_and_few_batches_need_one(worlds: Tally) -> None:
    """An exception that nothing needs hides something; many would mean that the worlds promise nothing."""
    assert {one.name for one in set(Allowed) - RARELY_NEEDED} <= set(worlds.allowed)
    unsaid = worlds.allowed[Allowed.CANNOT_BE_TOLD.name] + worlds.allowed[Allowed.OWN_COPY.name]
    assert unsaid < 0.02 * worlds.batches


@pytest.mark.parametrize("seed", SEEDS_OF_FAULTS)
def test_worlds_that_once_showed_a_fault_of_the_proxy_or_of_the_oracle(seed: int) -> None:
    assert run_seed(seed, batches=200, as_drawn=True, form=V1).problems == []


@pytest.mark.parametrize(("seed", "batches", "form"), [(431, 200, V2), (440, 200, V2), (57, 60, ROLLED_BACK)])
def test_worlds_of_format_v2_that_once_showed_a_fault(seed: int, batches: int, form: str) -> None:
    assert run_seed(seed, batches=batches, form=form).problems == []


def test_the_same_seed_is_the_same_world_to_the_last_byte() -> None:
    first, second, other = run_seed(5), run_seed(5), run_seed(6)
    assert first.world.network.digest == second.world.network.digest
    assert first.world.network.events_run == second.world.network.events_run
    assert first.faults == second.faults
    assert first.world.network.digest != other.world.network.digest


def test_another_process_sees_the_same_world() -> None:
    """Sets, and whatever else has an order of each process's own, must not matter."""
    program = (
        "from simulation.chaos import run_seed\nprint([run_seed(seed).world.network.digest for seed in range(3, 15)])"
    )
    tests = Path(__file__).resolve().parents[1]
    told = set()
    for hash_seed in ("1", "2"):
        path = os.pathsep.join(filter(None, (str(tests), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed}
        told.add(
            subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True).stdout
        )
    assert len(told) == 1
