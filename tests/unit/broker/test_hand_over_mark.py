"""Since when producers are handed over, as Redis has it, and when bytes pass unread (rule R21)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from idemproxy.proxy.broker.hand_over_mark import HandOverMark, bytes_pass_in_seconds
from idemproxy.reactor import Reactor
from idemproxy.state.store import Store, StoreAway, cluster_key, handed_over_key

NOW_MS = 1_700_000_000_000


class Redis:
    """Answers in a later step, as a store does; a clock beside it."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.is_away = False
        self._steps: list[Callable[[], None]] = []

    def read(self, key: bytes, done: Callable[[Any], None]) -> None:
        self._steps.append(lambda: done(StoreAway("away") if self.is_away else self.values.get(key)))

    def claim(self, key: bytes, value: bytes, _ttl_ms: int, done: Callable[[Any], None]) -> None:
        def step() -> None:
            is_new = key not in self.values
            if not self.is_away:
                self.values.setdefault(key, value)
            done(StoreAway("away") if self.is_away else is_new)

        self._steps.append(step)

    def later(self, _seconds: float, callback: Callable[[], None]) -> None:
        self._steps.append(callback)

    def run(self, steps: int = 20) -> None:
        for _ in range(steps):
            if self._steps:
                self._steps.pop(0)()

    def mark(self, now_ms: int = NOW_MS) -> HandOverMark:
        return HandOverMark(cast(Reactor, self), cast(Store, self), "orders", lambda: now_ms)


def test_a_cluster_of_which_nothing_is_known_was_not_handed_over() -> None:
    redis, told = Redis(), []
    mark = redis.mark()
    mark.look(lambda: told.append(mark.is_known))
    assert not mark.is_known
    redis.run()
    assert told == [True]
    assert (mark.since_ms, mark.has_state) == (None, False)


def test_the_first_proxy_says_when_and_all_others_find_it() -> None:
    redis = Redis()
    redis.values[cluster_key("orders")] = b"the id"
    first, second, third = redis.mark(), redis.mark(NOW_MS + 5), redis.mark()
    first.set(lambda: None)
    redis.run()
    second.set(lambda: None)
    redis.run()
    third.look(lambda: None)
    redis.run()
    assert [mark.since_ms for mark in (first, second, third)] == [NOW_MS] * 3
    assert third.has_state


def test_while_redis_is_away_it_is_asked_again() -> None:
    redis, told = Redis(), []
    redis.is_away = True
    mark = redis.mark()
    mark.set(lambda: told.append(mark.since_ms))
    redis.run()
    assert told == []
    redis.is_away = False
    redis.run()
    assert told == [NOW_MS]


def test_a_mark_of_another_version_means_that_it_was_handed_over() -> None:
    redis = Redis()
    redis.values[handed_over_key("orders")] = b"?"
    mark = redis.mark()
    mark.look(lambda: None)
    redis.run()
    assert mark.since_ms == NOW_MS


def test_bytes_pass_when_neither_a_retry_nor_an_idle_producer_of_before_can_come() -> None:
    assert bytes_pass_in_seconds(NOW_MS, NOW_MS, 86_400, 600) == 86_400
    assert bytes_pass_in_seconds(NOW_MS, NOW_MS + 5_000, 60, 600) == 595
    assert bytes_pass_in_seconds(NOW_MS, NOW_MS + 86_401_000, 86_400, 600) < 0
