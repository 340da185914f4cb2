"""Produce connections are no limit: with one append of each producer out at a time (rule R3) a broker that answers
slowly is used as it would be without the proxy, also when the proxy needs its time for each batch."""

from __future__ import annotations

from functools import partial

import pytest

from idemproxy.proxy.broker.produce_connection_demand import ProduceConnectionDemand
from idemproxy.proxy.broker.produce_connection_pool import ProduceConnectionPool
from testkit.virtual.slow_broker import ADDRESS, BROKER, Producers, SlowBroker


def pool(broker: SlowBroker) -> ProduceConnectionPool:
    """Produce connections as they are by default."""
    made = ProduceConnectionPool(
        broker, BROKER, partial(broker.connect, ADDRESS), may_send=lambda: True, report=lambda _event: None
    )
    made.set_usable(True)
    return made


@pytest.mark.parametrize("size", [100, 16_000, 100_000])
@pytest.mark.parametrize("count", [1, 10, 40, 200])
@pytest.mark.parametrize("answer_seconds", [0.005, 0.02, 0.05, 0.1])
def test_what_a_slow_broker_takes_is_not_limited_by_produce_connections(
    answer_seconds: float, count: int, size: int
) -> None:
    broker = SlowBroker(answer_seconds)
    producers = Producers(broker, pool(broker), count, size)
    assert producers.per_answer() >= 0.9 * count
    assert broker.connections <= 16


@pytest.mark.parametrize("size", [100, 100_000])
@pytest.mark.parametrize("count", [12, 24, 40, 100, 200])
@pytest.mark.parametrize("answer_seconds", [0.02, 0.05, 0.1, 0.5])
@pytest.mark.parametrize("work_seconds", [0.00005, 0.0003, 0.001])
def test_the_first_ones_that_are_ready_do_not_take_all_produce_connections(
    work_seconds: float, answer_seconds: float, count: int, size: int
) -> None:
    broker = SlowBroker(answer_seconds)
    producers = Producers(broker, pool(broker), count, size, work_seconds)
    possible = min(count * answer_seconds / (answer_seconds + work_seconds), answer_seconds / work_seconds)
    assert producers.per_answer() >= 0.9 * possible


def test_nothing_is_held_back_while_there_are_produce_connections_enough() -> None:
    broker = SlowBroker(0.1)
    produce_connections = pool(broker)
    Producers(broker, produce_connections, 16, 100, 0.0001)
    broker.run(1.0)
    for _ in range(1000):
        broker.run(0.0005)
        assert not produce_connections.waiting_appends


def test_a_crowd_that_has_gone_holds_nobody_back() -> None:
    demand = ProduceConnectionDemand()
    for waiting in range(200):
        demand.came(waiting)
    assert demand.hold_seconds(0.0, 1, 16, 0.1) == 0.0  # nothing was sent before
    demand.sent(0.0, 200)
    assert demand.hold_seconds(0.0, 1, 16, 0.16) == pytest.approx(0.01)
    assert demand.hold_seconds(0.004, 1, 16, 0.16) == pytest.approx(0.006)
    assert demand.hold_seconds(0.0, 13, 16, 0.16) == 0.0  # its share
    assert demand.hold_seconds(0.0, 1, 16, 0.01) == 0.0  # answers are fast
    assert demand.hold_seconds(0.0, 1, 1, 0.16) == 0.0  # no other produce connection to be kept
    demand.done(200)
    for _ in range(200):
        demand.came(1)
        demand.sent(0.0, 1)
        demand.done(1)
    assert demand.hold_seconds(0.0, 1, 16, 0.16) == 0.0
