"""One question at a time to each broker, for all who wait until it has passed the quiescence check (rule R6)."""

from collections.abc import Callable
from typing import Any

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import OffsetAnswer
from idemproxy.proxy.broker.quiescence_watch import QuiescenceWatch
from idemproxy.proxy.flow.effects import Unanswered
from testkit.stage.clock import Clock

ANSWER_SECONDS = 0.001


class Brokers:
    """They answer after ``answer_seconds``; None: they cannot be asked."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.answer_seconds: float | None = ANSWER_SECONDS
        self.asked: list[int] = []
        self.is_broken = False
        self.watch = QuiescenceWatch(self.clock, self._ask)

    def _ask(self, broker_id: int, _question: Any, done: Callable[[Any], None]) -> None:
        if self.is_broken:
            raise ZeroDivisionError
        self.asked.append(broker_id)
        if self.answer_seconds is None:
            self.clock.later(0, lambda: done(Unanswered("away")))
        else:
            self.clock.later(self.answer_seconds, lambda: done(OffsetAnswer(0, 5)))

    def wait_for(self, broker_id: int = 1) -> list[Any]:
        """Return where the result will be."""
        results: list[Any] = []
        self.watch.when_quiescent(broker_id, "topic", 0, results.append)
        return results


def test_twenty_thousand_share_ten_questions() -> None:
    brokers = Brokers()
    waiting = [brokers.wait_for() for _ in range(20_000)]
    brokers.clock.run(limits.QUIESCENCE_SECONDS)
    assert waiting == [[]] * 20_000
    brokers.clock.run(3 * limits.PROBE_SECONDS)
    assert waiting == [[True]] * 20_000
    assert len(brokers.asked) <= limits.QUIESCENCE_SECONDS / limits.PROBE_SECONDS + 2


def test_nobody_is_asked_when_nobody_waits() -> None:
    brokers = Brokers()
    brokers.wait_for()
    brokers.clock.run(10)
    asked = len(brokers.asked)
    brokers.clock.run(10)
    assert len(brokers.asked) == asked
    later = brokers.wait_for()
    brokers.clock.run(2)
    assert later == [True]


@pytest.mark.parametrize("before_seconds", [0.03, 0.1, 0.55, 1.0])
def test_the_second_of_each_begins_when_it_comes(before_seconds: float) -> None:
    brokers = Brokers()
    first = brokers.wait_for()
    brokers.clock.run(before_seconds)
    second = brokers.wait_for()
    brokers.clock.run(limits.QUIESCENCE_SECONDS)
    assert second == []
    brokers.clock.run(3 * limits.PROBE_SECONDS)
    assert (first, second) == ([True], [True])


def test_brokers_are_watched_apart() -> None:
    brokers = Brokers()
    waiting = [brokers.wait_for(broker_id) for broker_id in (1, 2, 3)]
    brokers.clock.run(limits.QUIESCENCE_SECONDS + 3 * limits.PROBE_SECONDS)
    assert waiting == [[True]] * 3
    assert {broker_id: brokers.asked.count(broker_id) for broker_id in (1, 2, 3)} == dict.fromkeys((1, 2, 3), 11)


def test_waiting_searches_learn_once_after_some_seconds_that_a_broker_is_away() -> None:
    brokers = Brokers()
    brokers.answer_seconds = None
    waiting = [brokers.wait_for() for _ in range(100)]
    brokers.clock.run(limits.QUIESCENCE_WAIT_SECONDS - 0.1)
    assert waiting == [[]] * 100
    brokers.clock.run(0.3)
    assert waiting == [[Unanswered("away")]] * 100


def test_a_search_that_waits_for_a_returning_broker_continues_a_second_later() -> None:
    brokers = Brokers()
    brokers.answer_seconds = None
    waiting = brokers.wait_for()
    brokers.clock.run(limits.QUIESCENCE_WAIT_SECONDS - limits.QUIESCENCE_SECONDS / 2)
    brokers.answer_seconds = ANSWER_SECONDS
    brokers.clock.run(limits.QUIESCENCE_SECONDS)
    assert waiting == [], "it is awake, and that is waited for"
    brokers.clock.run(3 * limits.PROBE_SECONDS)
    assert waiting == [True]


def test_a_broker_that_answers_too_late_is_distinguished_from_one_away() -> None:
    brokers = Brokers()
    brokers.answer_seconds = 2.0
    waiting = brokers.wait_for()
    brokers.clock.run(limits.QUIESCENCE_WAIT_SECONDS + 3)
    assert waiting == [False]


def test_after_an_internal_error_waiting_searches_are_still_answered() -> None:
    brokers = Brokers()
    brokers.is_broken = True
    waiting = brokers.wait_for()
    with pytest.raises(ZeroDivisionError):
        brokers.clock.run(0.5)
    brokers.is_broken = False
    brokers.clock.run(limits.QUIESCENCE_SECONDS * 2 + 0.5)
    assert waiting == [True]
