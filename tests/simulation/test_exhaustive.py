"""One client, one to three batches, and every fault at every moment; for a single batch every pair of faults.

Faults: the proxy dies before or after each effect of its flows, or its machine loses power; the client hangs up at
each; each produce request meets each broker fault; each command to Redis meets each Redis fault, or a restart of Redis
that loses up to two writes. Nothing is chosen by chance here: a fault-free run counts the moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import pytest
from simulation.cases import BROKER_FAULTS, EFFECT_FAULTS, REDIS_FAULTS, Counts, Fault, all_faults, run_case

FIRST_KINDS = (*EFFECT_FAULTS, *BROKER_FAULTS, *REDIS_FAULTS)


def failures_of(cases: Iterable[Sequence[Fault]], *, batches: int, proxies: int) -> list[str]:
    """Run all cases; what did not hold, with the story of the first."""
    failures: list[str] = []
    for faults in cases:
        result = run_case(*faults, batches=batches, proxies=proxies)
        if result.problems:
            title = f"{batches} batches, {proxies} proxies, " + ", ".join(map(str, faults))
            failures.append(result.explain(title) if not failures else f"{title}: {result.problems[0]}")
    return failures


@pytest.mark.parametrize("proxies", [1, 2])
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_without_a_fault_everything_is_acknowledged_at_once(batches: int, proxies: int) -> None:
    result = run_case(batches=batches, proxies=proxies)
    assert result.problems == []
    assert result.counts.produces >= 1
    assert result.counts.effects >= 5, "moments are no longer counted where the flows ask the outside"
    assert result.counts.commands >= 3


@pytest.mark.promise("stored-once")
@pytest.mark.parametrize("proxies", [1, 2])
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_no_single_fault_at_any_moment_breaks_a_promise(batches: int, proxies: int) -> None:
    counts = run_case(batches=batches, proxies=proxies).counts
    cases = [(fault,) for fault in all_faults(counts)]
    assert len(cases) > 70
    assert not (failures := failures_of(cases, batches=batches, proxies=proxies)), "\n".join(failures)


@pytest.mark.promise("stored-once")
@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", FIRST_KINDS)
def test_no_pair_of_faults_breaks_a_promise_to_a_single_batch(kind: str) -> None:
    counts = run_case(batches=1).counts
    # The first fault makes the flow longer: moments just after the end of the fault-free run are looked at as well.
    moments = all_faults(Counts(counts.effects, counts.produces + 1, counts.commands + 1))
    pairs = [pair for pair in combinations(moments, 2) if pair[0].kind == kind]
    assert not (failures := failures_of(pairs, batches=1, proxies=1)), "\n".join(failures)
