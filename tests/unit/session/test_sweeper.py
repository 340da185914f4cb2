"""When the time of many requests is up at once, or of none (rule R18)."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.codecs.steps import Steps, at_once
from idemproxy.proxy.admission.memory_budget import MemoryBudget
from idemproxy.proxy.limits import ANSWER_SHARE, ANSWER_SWEEP_SECONDS, ANSWERED_PER_STEP, SWEPT_LINES_EMPTY_MAX
from idemproxy.proxy.producer.batch import Answer
from idemproxy.proxy.session.conditional_topics import ConditionalTopics
from idemproxy.proxy.session.routing import BatchKind, Way
from idemproxy.proxy.session.sweeper import UNORDERED, Sweeper
from idemproxy.proxy.settings.config import Caps
from testkit.stage.door import DoorClient, call_of, way_by_proxy

TIMEOUT_MS = 30_000
PARTITIONS = 700


class Loop:
    """A reactor: each callback is a step, and takes no time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self.seconds

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self.seconds + seconds, next(self._order), callback))

    def run(self, until: float, after_step: Callable[[], object] = lambda: None) -> None:
        while self._timers and self._timers[0][0] <= until:
            self.seconds, _, callback = heapq.heappop(self._timers)
            callback()
            after_step()
        self.seconds = until


class Call:
    """A request. ``looked_at``: so often its deadline was asked for."""

    def __init__(self, sweeper: Sweeper, answer_by: float, line: int = TIMEOUT_MS, parts: Sequence[int] = ()) -> None:
        self.client = SimpleNamespace(is_closed=False)
        self.sweep_line = line
        self.looked_at = 0
        self.answered: list[int] = []
        self.is_answered = False
        self._answer_by = answer_by
        self._sweeper = sweeper
        self._left = len(parts)
        sweeper.add(self, parts)

    @property
    def answer_by(self) -> float:
        self.looked_at += 1
        return self._answer_by

    def time_is_up(self, parts: Sequence[int]) -> None:
        self.answered += parts
        if len(self.answered) == self._left:
            self.is_answered = True
            self._sweeper.remove(self)


def scene() -> tuple[Loop, Sweeper]:
    loop = Loop()
    return loop, Sweeper(cast(Any, loop))


@pytest.mark.parametrize("timeouts", [1, 2_000])
def test_many_that_are_due_at_once_are_answered_in_steps(timeouts: int) -> None:
    loop, sweeper = scene()
    calls = [Call(sweeper, 1.0, line=TIMEOUT_MS + number % timeouts) for number in range(2_000)]
    done: list[int] = []
    loop.run(1.0 + ANSWER_SWEEP_SECONDS, lambda: done.append(sum(call.is_answered for call in calls)))
    assert done[-1] == len(calls)
    assert max(after - before for before, after in itertools.pairwise(done)) == ANSWERED_PER_STEP
    assert not any(sweeper.lines.values())


def test_a_request_of_many_partitions_is_answered_in_steps() -> None:
    loop, sweeper = scene()
    call = Call(sweeper, 1.0, parts=range(2_000))
    done: list[int] = []
    loop.run(1.0 + ANSWER_SWEEP_SECONDS, lambda: done.append(len(call.answered)))
    assert call.answered == list(range(2_000))
    assert max(after - before for before, after in itertools.pairwise(done)) == ANSWERED_PER_STEP


def test_a_sweep_looks_only_at_what_can_be_due() -> None:
    loop, sweeper = scene()
    calls = [Call(sweeper, 10.0 + number / 1_000) for number in range(1_000)]
    loop.run(5.0)
    assert sum(call.looked_at for call in calls) == calls[0].looked_at > 10
    loop.run(10.5)
    assert calls[300].is_answered
    assert calls[-1].looked_at == 0


def test_what_is_answered_while_others_are_is_not_answered_again() -> None:
    loop, sweeper = scene()
    calls = [Call(sweeper, 1.0) for _ in range(ANSWERED_PER_STEP + 1)]
    loop.run(1.0 + ANSWER_SWEEP_SECONDS, lambda: sweeper.remove(calls[-1]) if calls[0].is_answered else None)
    assert [call.is_answered for call in calls] == [True] * ANSWERED_PER_STEP + [False]


def test_a_gone_clients_request_is_released_at_once_without_an_answer() -> None:
    loop, sweeper = scene()
    first, second = Call(sweeper, 60.0), Call(sweeper, 60.0)
    loop.run(1.0)
    second.client.is_closed = sweeper.has_left = True
    loop.run(1.0 + 2 * ANSWER_SWEEP_SECONDS)
    (line,) = sweeper.lines.values()
    assert list(line) == [first]
    third = Call(sweeper, loop.seconds, line=1_000)
    third.client.is_closed = True  # the sweeper does not know that yet
    loop.run(2.0)
    assert ([list(line) for line in sweeper.lines.values()], third.is_answered) == ([[first], []], False)


def test_a_request_that_begins_when_its_client_has_gone_is_let_go_as_well() -> None:
    loop, sweeper = scene()
    call = Call(sweeper, 60.0)
    call.client.is_closed = True
    sweeper.add(call, ())
    loop.run(1.0)
    assert not any(sweeper.lines.values())


def test_an_error_leaves_the_others_their_answers() -> None:
    loop, sweeper = scene()
    broken, other = Call(sweeper, 1.0), Call(sweeper, 2.0)

    def fails_once(_parts: object) -> None:
        sweeper.remove(broken)
        raise ZeroDivisionError

    broken.time_is_up = fails_once  # type: ignore[method-assign,assignment]
    for _ in range(2):
        try:
            loop.run(3.0)
        except ZeroDivisionError:
            continue
    assert other.is_answered


def test_timeouts_that_nobody_uses_any_more_are_forgotten() -> None:
    loop, sweeper = scene()
    for timeout_ms in range(1_000, 6_000):
        Call(sweeper, 0.5, line=timeout_ms)
    loop.run(2.0)
    assert len(sweeper.lines) <= SWEPT_LINES_EMPTY_MAX


def test_they_are_forgotten_though_no_time_is_ever_up_and_nobody_leaves() -> None:
    loop, sweeper = scene()
    Call(sweeper, 1e6)
    for timeout_ms in range(1_000, 6_000):
        sweeper.remove(Call(sweeper, 1e6, line=timeout_ms))
    loop.run(2.0)
    assert len(sweeper.lines) <= SWEPT_LINES_EMPTY_MAX


# ---------------------------------------------------------------------- requests that are taken in steps
class Door:
    """What is around a request; no batch of it is ever answered."""

    is_draining = False
    conditional_topics = ConditionalTopics([])

    def way_of(self, topic: str, kind: BatchKind) -> Way | Answer:
        return way_by_proxy(self.conditional_topics, topic, kind)

    def __init__(self) -> None:
        self.reactor = cast(Any, Loop())
        self.memory = MemoryBudget(Caps())
        self.sweeper = Sweeper(self.reactor)
        self.sweep, self.swept = self.sweeper.add, self.sweeper.remove
        self.now = self.reactor.now

    def known_sequencer(self, _key: object) -> None:
        """Each producer is a new one."""

    def sequencer(self, _producer_id: int, _topic: str, _partition: int) -> Any:
        return SimpleNamespace(enqueue=lambda batch: None)

    def has_partition(self, _topic: str, _partition: int) -> bool:
        return True

    def look_for_topic(self, _topic: str, _done: Callable[[], None]) -> None:
        raise AssertionError

    def report(self, _event: object) -> None:
        raise AssertionError


class Telling(DoorClient):
    """Its request is begun in steps, the others of which the test takes. It notes when it was answered."""

    def __init__(self, door: Door) -> None:
        super().__init__()
        self.door = door
        self.told: list[float] = []
        self.steps: Steps[None] = no_steps()

    def take_in_turns(self, steps: Steps[None]) -> None:
        next(steps)
        self.steps = steps

    def answer_is_ready(self) -> None:
        self.told.append(self.door.now())


def no_steps() -> Steps[None]:
    yield from ()


def produces(door: Door, partitions: int) -> Telling:
    """A client that has sent a request with so many."""
    one = Record(0, 0, None, b"value", ())
    records = encode_batch([one], producer_id=7, producer_epoch=0, base_sequence=0)
    client = Telling(door)
    items = [("topic", number, records) for number in range(partitions)]
    call_of(door, client, items, timeout_ms=TIMEOUT_MS).begin()
    return client


def test_a_request_taken_in_steps_is_answered_in_time_despite_later_ones() -> None:
    door = Door()
    first = produces(door, PARTITIONS)
    door.reactor.seconds = 5.0
    later = produces(door, 1)
    at_once(first.steps)
    door.reactor.run(60.0)
    told, told_later = first.told, later.told
    due = TIMEOUT_MS / 1000 * ANSWER_SHARE
    assert [len(told), len(told_later)] == [1, 1]
    assert due <= told[0] <= due + 2 * ANSWER_SWEEP_SECONDS
    assert due + 5 <= told_later[0] <= due + 5 + 2 * ANSWER_SWEEP_SECONDS
    assert UNORDERED in door.sweeper.lines
