"""When a process believes that a name is not in Redis any more, and tells a living instance that it is fenced (R22)."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.proxy.flow.effects import Now, Read
from idemproxy.proxy.limits import LEASE_SECONDS, NAME_MISSED_SECONDS
from idemproxy.proxy.producer.name_guard import NameGuard
from idemproxy.proxy.producer.proxy_instance import ProxyInstance
from idemproxy.state.entry import NO_PRINCIPAL
from idemproxy.state.store import StoreAway

PRODUCER_ID = 2**62


def admits(guard: NameGuard, now: float) -> bool | StoreAway:
    """One batch, at this time, at a server that has nothing of the name."""
    flow = guard.admits(0, NO_PRINCIPAL)
    answer: Any = None
    try:
        while True:
            effect = flow.send(answer)
            assert isinstance(effect, Read | Now)
            answer = now if isinstance(effect, Now) else None
    except StopIteration as end:
        result: bool | StoreAway = end.value
        return result


@pytest.mark.parametrize("pause_seconds", [1.0, NAME_MISSED_SECONDS])
def test_a_name_that_is_looked_for_again_and_again_and_never_there_is_gone(pause_seconds: float) -> None:
    guard, now = (
        NameGuard(ProxyInstance("c", instance_id=bytes(8), data_generation=bytes(16), lease_epoch=1), PRODUCER_ID),
        5.0,
    )
    while now < 5.0 + LEASE_SECONDS:
        assert isinstance(admits(guard, now), StoreAway)
        now += pause_seconds
    assert admits(guard, now) is False


def test_that_it_was_not_there_long_ago_says_nothing_of_now() -> None:
    """Its client gave up then. Now one look at a server that is no master any more is not enough."""
    guard = NameGuard(ProxyInstance("c", instance_id=bytes(8), data_generation=bytes(16), lease_epoch=1), PRODUCER_ID)
    assert isinstance(admits(guard, 5.0), StoreAway)
    assert isinstance(admits(guard, 4_000.0), StoreAway)
    assert admits(guard, 4_000.0 + LEASE_SECONDS) is False
