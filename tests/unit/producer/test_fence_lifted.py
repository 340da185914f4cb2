"""A fence that a person has lifted stays lifted, though a proxy still remembers it from a loss in Redis that nobody has
fixed there (rules R10, R23)."""

from __future__ import annotations

import pytest
from mutants.scenes import foreign

from idemproxy.state.conditional import is_fenced
from idemproxy.state.inspection import forgotten
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.stage.sequencer import DATA_GENERATION, NEXT_DATA_GENERATION, Client, Request, Stage
from testkit.stage.two_proxies import at_the_time_of, beside, lost

PARTITION_FENCED = 17


def publish(stage: Stage, expected: int, client: Client | None = None, seconds: float = 30) -> Request:
    request = stage.send(client or Client(), expected, b"at %d" % expected)
    stage.run(seconds, until=lambda: request.code is not None)
    stage.run(1)
    return request


def lifted(data_generation: bytes) -> tuple[Stage, Stage]:
    """Both know of the fence; Redis loses it; a client comes to the second and leaves in the grace (or its request is
    due); the first writes the fence again; a person lifts it."""
    first = Stage(producer_id=CONDITIONAL_ID)
    for offset in range(10):
        assert publish(first, offset).code == 0
    foreign(first, b"foreign")
    assert publish(first, 11).code == PARTITION_FENCED
    second = beside(first)
    assert publish(second, 11).code == PARTITION_FENCED
    at_the_time_of(second, first)
    lost({}, data_generation, first, second)
    leaves = Client()
    second.send(leaves, 11, b"at 11")
    second.run(2)
    leaves.is_closed = True
    second.run(20)
    assert second.sequencer.is_idle
    at_the_time_of(second, first)
    assert publish(first, 11).code == PARTITION_FENCED
    first.put(forgotten(first.values[first.key], now_us=10**15, is_conditional_partition=True))
    return first, second


@pytest.mark.parametrize("data_generation", [DATA_GENERATION, NEXT_DATA_GENERATION])
def test_a_fence_that_was_lifted_does_not_come_back(data_generation: bytes) -> None:
    first, second = lifted(data_generation)
    for offset in range(11, 31):
        assert publish(first, offset).code == 0
    at_the_time_of(first, second)
    answer = publish(second, 31)
    assert (answer.code, is_fenced(second.entry())) == (0, False), answer.message


@pytest.mark.parametrize("data_generation", [DATA_GENERATION, NEXT_DATA_GENERATION])
def test_what_was_appended_since_is_not_refused(data_generation: bytes) -> None:
    first, second = lifted(data_generation)
    for offset in range(11, 31):
        assert publish(first, offset).code == 0
    at_the_time_of(first, second)
    answer = publish(second, 30)  # its client did not receive the answer
    assert (answer.code, answer.offset) == (0, 30), answer.message


def test_lifted_and_looked_at_by_who_remembers_it_first() -> None:
    _, second = lifted(NEXT_DATA_GENERATION)
    assert publish(second, 11).code == 0
