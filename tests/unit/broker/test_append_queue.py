"""Appends that wait for one broker: whose turn it is, and that taking some costs by what is taken."""

import gc
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from types import FrameType
from typing import Any

import pytest

from idemproxy.proxy.broker.append_queue import AppendQueue
from idemproxy.proxy.broker.produce_connection_pool import ProduceConnectionPool
from idemproxy.proxy.broker.queued_append import AppendOfFlow, QueuedAppend
from idemproxy.proxy.broker.slow_partitions import ON_TRIAL, SLOW, SUSPECT, USUAL, Place
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import NotSent, Outcome
from testkit.virtual.slow_broker import ADDRESS, SlowBroker

BROKER, TOPIC = 1, "topic"
KIB = 1024
REQUEST_BYTES = 128 * KIB


@cache
def content(name: str, size: int) -> bytes:
    return name.encode().ljust(size)


def queued(
    partition: int = 0,
    *,
    sender: str = "",
    name: str = "",
    size: int = 100,
    timeout_ms: int = 30_000,
    refusal: str | None = None,
    done: Callable[[Outcome], None] = lambda _outcome: None,
) -> QueuedAppend:
    data = content(name or sender, size)
    return AppendOfFlow(Append(BROKER, TOPIC, partition, data, timeout_ms, lambda: refusal, sender=sender), done)


def all_usual(_place: Place) -> int:
    return USUAL


def names(appends: list[QueuedAppend]) -> list[str]:
    """What is in each message set."""
    return [bytes(append.message_set).decode().rstrip() for append in appends]


def take(
    waiting: AppendQueue, pace: int = USUAL, bytes_max: int = REQUEST_BYTES, *, one: bool = False
) -> list[QueuedAppend]:
    return waiting.take_appends(pace, bytes_max, None, one=one)


# ---------------------------------------------------------------------- turns
@pytest.mark.promise("flooded-partition")
def test_who_floods_a_partition_keeps_others_waiting_for_one_turn_only() -> None:
    waiting = AppendQueue(all_usual)
    for number in range(1000):
        waiting.queue_append(queued(sender="10.0.0.1", name=f"flood {number}"))
    waiting.queue_append(queued(sender="10.0.0.2", name="a"))
    waiting.queue_append(queued(sender="10.0.0.3", name="b"))
    waiting.queue_append(queued(sender="10.0.0.2", name="c"))
    taken = [names(take(waiting)) for _ in range(7)]
    assert taken == [["flood 0"], ["flood 1"], ["a"], ["b"], ["flood 2"], ["c"], ["flood 3"]]
    assert waiting.count == 1003 - 7


def test_a_producer_that_comes_again_queues_after_others_of_its_address() -> None:
    waiting = AppendQueue(all_usual)
    for name in ("a", "b", "c"):
        waiting.queue_append(queued(sender="10.0.0.1", name=name))
    taken = []
    for again in ("a again", "b again"):
        taken += names(take(waiting))
        waiting.queue_append(queued(sender="10.0.0.1", name=again))
    assert taken + [name for _ in range(3) for name in names(take(waiting))] == ["a", "b", "c", "a again", "b again"]


def test_partitions_have_their_turn_though_one_is_flooded() -> None:
    waiting = AppendQueue(all_usual)
    for _ in range(1000):
        waiting.queue_append(queued(0, size=REQUEST_BYTES))
    waiting.queue_append(queued(1, name="a", size=REQUEST_BYTES))
    waiting.queue_append(queued(2, name="b", size=REQUEST_BYTES))
    assert [names(take(waiting)) for _ in range(3)] == [[""], ["a"], ["b"]]


def test_what_does_not_fit_any_more_is_the_first_of_the_next_request() -> None:
    waiting = AppendQueue(all_usual)
    for partition, (name, kib) in enumerate((("a", 100), ("b", 40), ("c", 20))):
        waiting.queue_append(queued(partition, name=name, size=kib * KIB))
    assert [names(take(waiting)) for _ in range(2)] == [["a"], ["b", "c"]]
    assert (waiting.count, waiting.size_bytes) == (0, 0)


def test_one_that_may_not_be_sent_makes_room_for_the_next_of_its_partition() -> None:
    waiting = AppendQueue(all_usual)
    outcomes: list[Outcome] = []
    for _ in range(3):
        waiting.queue_append(queued(refusal="a client has gone", done=outcomes.append))
    waiting.queue_append(queued(name="wanted"))
    assert names(take(waiting)) == ["wanted"]
    assert outcomes == [NotSent("a client has gone")] * 3


def test_what_is_queued_because_of_a_refusal_waits_for_the_next_request() -> None:
    waiting = AppendQueue(all_usual)
    waiting.queue_append(
        queued(refusal="a client has gone", done=lambda _outcome: waiting.queue_append(queued(name="again")))
    )
    waiting.queue_append(queued(name="other"))
    assert [names(take(waiting)) for _ in range(2)] == [["other"], ["again"]]


@pytest.mark.parametrize("pace", [SLOW, SUSPECT, ON_TRIAL])
def test_a_partition_whose_pace_changes_is_taken_with_others_of_that_pace(pace: int) -> None:
    waiting = AppendQueue(all_usual)
    for partition, timeout_ms in ((0, 30_000), (0, 1000), (1, 30_000)):
        waiting.queue_append(queued(partition, name=f"{partition} in {timeout_ms}", timeout_ms=timeout_ms))
    waiting.move((TOPIC, 0), pace)
    assert names(take(waiting)) == ["1 in 30000"]
    assert not waiting.has(USUAL)
    assert sorted(names(take(waiting, pace)) + names(take(waiting, pace))) == ["0 in 1000", "0 in 30000"]
    waiting.move((TOPIC, 0), USUAL)
    waiting.queue_append(queued(0, name="later"))
    assert names(take(waiting)) == ["later"]


def test_queues_of_partitions_that_are_not_used_any_more_are_dropped() -> None:
    waiting = AppendQueue(all_usual)
    for partition in range(10_000):
        waiting.queue_append(queued(partition))
        take(waiting)
    assert len(waiting._queues) <= 1024


# ---------------------------------------------------------------------- work
class Work:
    """Counts the calls of functions, Python's own included, while it is entered."""

    def __init__(self) -> None:
        self.calls = 0

    def _count(self, _frame: FrameType, event: str, _what: Any) -> None:
        self.calls += event in ("call", "c_call")

    def __enter__(self) -> "Work":
        gc.collect()  # finalizers of what other tests left would be counted, too
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def crowds() -> Iterator[tuple[str, Callable[[int], QueuedAppend]]]:
    yield "one partition", lambda _number: queued()
    yield "one partition, many senders", lambda number: queued(sender=f"10.0.{number % 250}.1")
    yield "many partitions", lambda number: queued(number % 200, size=10 * KIB)
    yield "patient and impatient", lambda number: queued(number % 3, timeout_ms=1000 if number % 2 else 30_000)


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in crowds()])
def test_a_request_costs_by_what_it_takes_and_not_by_what_waits(make: Callable[[int], QueuedAppend]) -> None:
    calls = []
    for count in (600, 10_000):
        waiting = AppendQueue(all_usual)
        for number in range(count):
            waiting.queue_append(make(number))
        requests = []
        for _ in range(20):
            with Work() as work:
                appends = take(waiting)
            assert appends
            requests.append(work.calls / len(appends))
        calls.append(max(requests))
    assert calls[1] <= calls[0] * 1.1
    assert calls[1] <= 30, "calls for each append that is taken"


def test_nor_does_a_produce_connection_that_is_answered_and_sends_the_next_request() -> None:
    calls = []
    for count in (100, 10_000):
        broker = SlowBroker(0.01)
        pool = ProduceConnectionPool(
            broker,
            BROKER,
            partial(broker.connect, ADDRESS),
            may_send=lambda: True,
            report=lambda _: None,
            produce_connections_max=lambda: 1,
        )
        pool.set_usable(True)
        for number in range(count):
            effect = Append(BROKER, TOPIC, 0, b"", 30_000, lambda: None, sender=f"10.0.{number % 10}.1")
            pool.append(effect, lambda _outcome: None)
        broker.run(0.015)
        with Work() as work:
            broker.run(0.4)
        assert pool.waiting_appends == count - 42
        calls.append(work.calls)
    assert calls[1] <= calls[0] * 1.1
