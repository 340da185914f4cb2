"""A conditional partition whose fence was lifted once is fenced again like any other (rule R23)."""

from __future__ import annotations

import pytest
from mutants.scenes import foreign

from idemproxy.state.conditional import is_lifted_since
from idemproxy.state.inspection import forgotten
from testkit.stage.sequencer import DATA_GENERATION, NEXT_DATA_GENERATION, Client
from testkit.stage.two_proxies import at_the_time_of, beside, lost

from .test_fences_of_two_lives import PARTITION_FENCED, a_conditional_partition, publish


@pytest.mark.parametrize("was_lifted", [False, True])
@pytest.mark.parametrize("data_generation", [DATA_GENERATION, NEXT_DATA_GENERATION])
def test_a_second_fence_lost_in_a_failover_holds_if_a_proxy_knows(data_generation: bytes, was_lifted: bool) -> None:
    first = a_conditional_partition()
    for offset in range(10):
        assert publish(first, offset).code == 0
    at = 10
    if was_lifted:  # long ago: a fence, which a person has lifted
        foreign(first, b"foreign")
        assert publish(first, 11).code == PARTITION_FENCED
        first.put(forgotten(first.values[first.key], now_us=10**15, is_conditional_partition=True))
        assert publish(first, 11).code == 0
        at = 12
    replica = dict(first.values)
    for offset in range(at, at + 3):
        assert publish(first, offset).code == 0
    at += 3
    foreign(first, b"foreign")
    assert publish(first, at + 1).code == PARTITION_FENCED
    second = beside(first)
    lost(replica, data_generation, first, second)
    leaves = Client()
    first.send(leaves, at + 1, b"at %d" % (at + 1))  # it sees that the fence was lost; its client leaves in the grace
    first.run(2)
    leaves.is_closed = True
    first.run(20)
    assert first.sequencer.is_idle
    at_the_time_of(first, second)
    for offset in range(at + 1, at + 21):  # it does not know of the fence, and continues
        publish(second, offset)
    at_the_time_of(second, first)
    answer = publish(first, at + 21)
    assert answer.code == PARTITION_FENCED


def test_a_second_fence_that_a_person_has_lifted_is_lifted() -> None:
    first = a_conditional_partition()
    for offset in range(10):
        assert publish(first, offset).code == 0
    at = 10
    for now_us in (10**15, 10**15 + 3600 * 10**6):
        foreign(first, b"foreign")
        at += 1
        assert publish(first, at).code == PARTITION_FENCED
        fenced = first.entry()
        first.put(forgotten(first.values[first.key], now_us=now_us, is_conditional_partition=True))
        assert is_lifted_since(first.entry(), fenced)
        assert publish(first, at).code == 0
        at += 1
