"""Lanes are no limit: with one append of each producer out at a time (rule R3) a broker that answers slowly is used as
it would be without the proxy, also when the proxy needs its time for each batch. Time is virtual, so nothing but lanes,
requests and that time counts."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import pytest

from idemproxy.proxy.demand import Demand
from idemproxy.proxy.effects import Append
from idemproxy.proxy.lane_pool import LanePool
from idemproxy.proxy.outcome import Appended, Outcome
from idemproxy.reactor import Address, Buffer, Endpoint
from testkit import virtual_kafka_bytes as kafka

BROKER, TOPIC = 1, "topic"
PARTITIONS = 32
CONNECT_SECONDS = 0.001
ROUNDS = 30
WARM_UP_ROUNDS = 10


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class SlowBroker:
    """A reactor, and a broker behind it whose answers take so long."""

    def __init__(self, answer_seconds: float) -> None:
        self.time = 0.0
        self.answer_seconds = answer_seconds
        self.connections = 0
        self._timers: list[tuple[float, int, Timer]] = []
        self._flushes: list[Callable[[], None]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self.time

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (self.time + seconds, next(self._order), timer))
        return timer

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        self.connections += 1
        self.later(CONNECT_SECONDS, lambda: endpoint.connected(Wire(self, endpoint)))

    def at_flush(self, callback: Callable[[], None]) -> None:
        self._flushes.append(callback)

    def run(self, seconds: float) -> None:
        end = self.time + seconds
        self._flush()
        while self._timers and self._timers[0][0] <= end:
            self.time, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                timer.callback()
            self._flush()
        self.time = end

    def _flush(self) -> None:
        while self._flushes:
            flushes, self._flushes = self._flushes, []
            for flush in flushes:
                flush()


class Wire:
    """A connection to the broker. It answers each request once its time is over."""

    local_host = ""
    unsent = 0

    def __init__(self, broker: SlowBroker, endpoint: Endpoint) -> None:
        self._broker = broker
        self._endpoint = endpoint

    def send(self, *chunks: Buffer) -> None:
        request = kafka.parse_request(b"".join(chunks)[4:])
        rows = [(topic, partition, 0, 7) for topic, partition, _ in kafka.parse_produce(request.body).partitions]
        answer = kafka.frame(request.correlation_id, kafka.produce_answer(2, rows))
        self._broker.later(self._broker.answer_seconds, lambda: self._endpoint.received(answer))

    def fence(self, may_send: Callable[[], bool]) -> None:
        assert may_send()

    def before_reading(self, look: Callable[[], None]) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...


class Producers:
    """Each sends the next batch when it is told of the one before. The proxy gets these ready one at a time."""

    def __init__(self, broker: SlowBroker, count: int, size: int, work_seconds: float = 0.0) -> None:
        self.appended = 0
        self.pool = LanePool(broker, BROKER, ("kafka", 9092), may_send=lambda: True, report=lambda _event: None)
        self.pool.set_usable(True)
        self._broker = broker
        self._records = bytes(size)
        self._work_seconds = work_seconds
        self._is_free_at = 0.0
        for number in range(count):
            self._prepare(number)

    def per_answer(self) -> float:
        """How many appends are done in the time of one answer, when all goes on as it does after a while."""
        seconds = self._broker.answer_seconds
        self._broker.run(WARM_UP_ROUNDS * seconds)
        before = self.appended
        self._broker.run(ROUNDS * seconds)
        return (self.appended - before) / ROUNDS

    def _prepare(self, number: int) -> None:
        if not self._work_seconds:
            self._send(number)
            return
        now = self._broker.now()
        self._is_free_at = max(self._is_free_at, now) + self._work_seconds
        self._broker.later(self._is_free_at - now, lambda: self._send(number))

    def _send(self, number: int) -> None:
        def told(outcome: Outcome) -> None:
            assert isinstance(outcome, Appended)
            self.appended += 1
            self._prepare(number)

        self.pool.append(Append(BROKER, TOPIC, number % PARTITIONS, self._records, 30_000, lambda: None), told)


@pytest.mark.parametrize("size", [100, 16_000, 100_000])
@pytest.mark.parametrize("count", [1, 10, 40, 200])
@pytest.mark.parametrize("answer_seconds", [0.005, 0.02, 0.05, 0.1])
def test_what_a_slow_broker_takes_is_not_limited_by_lanes(answer_seconds: float, count: int, size: int) -> None:
    broker = SlowBroker(answer_seconds)
    producers = Producers(broker, count, size)
    assert producers.per_answer() >= 0.9 * count
    assert broker.connections <= 16


@pytest.mark.parametrize("size", [100, 100_000])
@pytest.mark.parametrize("count", [12, 24, 40, 100, 200])
@pytest.mark.parametrize("answer_seconds", [0.02, 0.05, 0.1, 0.5])
@pytest.mark.parametrize("work_seconds", [0.00005, 0.0003, 0.001])
def test_the_first_ones_that_are_ready_do_not_take_all_lanes(
    work_seconds: float, answer_seconds: float, count: int, size: int
) -> None:
    producers = Producers(SlowBroker(answer_seconds), count, size, work_seconds)
    possible = min(count * answer_seconds / (answer_seconds + work_seconds), answer_seconds / work_seconds)
    assert producers.per_answer() >= 0.9 * possible


def test_nothing_is_held_back_while_there_are_lanes_enough() -> None:
    broker = SlowBroker(0.1)
    producers = Producers(broker, 16, 100, 0.0001)
    producers.per_answer()
    while producers.pool.busy_lanes:
        broker.run(0.0001)
        assert producers.pool.waiting_appends == 0 or producers.pool.idle_lanes == 0
        if broker.time > 5.1:
            break


def test_a_crowd_that_has_gone_holds_nobody_back() -> None:
    demand = Demand()
    for waiting in range(200):
        demand.came(waiting)
    assert demand.hold_seconds(0.0, 1, 16, 0.1) == 0.0  # nothing was sent before
    demand.sent(0.0, 200)
    assert demand.hold_seconds(0.0, 1, 16, 0.16) == pytest.approx(0.01)
    assert demand.hold_seconds(0.004, 1, 16, 0.16) == pytest.approx(0.006)
    assert demand.hold_seconds(0.0, 13, 16, 0.16) == 0.0  # its share
    assert demand.hold_seconds(0.0, 1, 16, 0.01) == 0.0  # answers are fast
    assert demand.hold_seconds(0.0, 1, 1, 0.16) == 0.0  # no other lane to be kept
    demand.done(200)
    for _ in range(200):
        demand.came(1)
        demand.sent(0.0, 1)
        demand.done(1)
    assert demand.hold_seconds(0.0, 1, 16, 0.16) == 0.0
