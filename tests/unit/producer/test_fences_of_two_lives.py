"""A fenced conditional partition stays fenced though Redis has lost writes, and two proxies know different things of it
(rules R10, R23)."""

from __future__ import annotations

import pytest
from mutants.scenes import foreign

from idemproxy.state.conditional import is_fenced
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.stage.sequencer import DATA_GENERATION, NEXT_DATA_GENERATION, Client, Request, Stage
from testkit.stage.two_proxies import at_the_time_of, beside, lost

CONFLICT, DISPLACED, PARTITION_FENCED = 45, 87, 17


def a_conditional_partition() -> Stage:
    return Stage(producer_id=CONDITIONAL_ID)


def publish(stage: Stage, expected: int) -> Request:
    request = stage.send(Client(), expected, b"at %d" % expected)
    stage.run(30, until=lambda: request.code is not None)
    stage.run(1)
    return request


@pytest.mark.parametrize("data_generation", [DATA_GENERATION, NEXT_DATA_GENERATION])
def test_a_fence_that_another_proxy_has_written_since_a_loss_is_not_lifted(data_generation: bytes) -> None:
    first = a_conditional_partition()
    for offset in range(10):
        assert publish(first, offset).code == 0
    replica = {} if data_generation == DATA_GENERATION else dict(first.values)
    for offset in range(10, 20):
        assert publish(first, offset).code == 0
    second = beside(first)
    lost(replica, data_generation, first, second)
    assert publish(second, 0).code == 0, "the conditional partition begins again, nothing is appended"
    foreign(second, b"foreign")
    assert publish(second, 21).code == PARTITION_FENCED
    assert is_fenced(second.entry())
    at_the_time_of(second, first)
    stored = len(first.stored_values())
    answer = publish(first, 21)
    assert (answer.code, len(first.stored_values())) == (PARTITION_FENCED, stored)
    assert is_fenced(first.entry())


def test_a_fence_that_a_failover_has_lost_and_a_proxy_knows_is_not_lifted() -> None:
    first = a_conditional_partition()
    for offset in range(10):
        assert publish(first, offset).code == 0
    replica = dict(first.values)
    for offset in range(10, 15):
        assert publish(first, offset).code == 0
    foreign(first, b"foreign")
    assert publish(first, 16).code == PARTITION_FENCED
    second = beside(first)
    lost(replica, NEXT_DATA_GENERATION, first, second)
    assert publish(second, 16).code in (0, PARTITION_FENCED)
    at_the_time_of(second, first)
    assert publish(first, 17).code == PARTITION_FENCED
