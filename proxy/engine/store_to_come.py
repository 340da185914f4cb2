"""Takes the place of the store until there is one: clients that reconnect at once may find ports open while Redis is
being started. To flows it looks like a store that is away. Stores nothing."""

from __future__ import annotations

from collections.abc import Callable

from ...reactor import Reactor
from ...state.store import Conflict, NameCheck, StoreAway, Swapped, SwapResult

_NOT_THERE = StoreAway("Redis is being started")


class StoreToCome:
    """Implements ``state.store.Store``: every call is answered with StoreAway, later."""

    data_generation = None

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor

    def read(self, key: bytes, done: Callable[[bytes | StoreAway | None], None]) -> None:
        """Nobody can tell."""
        self._answer(done)

    def swap(
        self,
        key: bytes,
        expected_version: int,
        value: bytes,
        ttl_ms: int,
        done: Callable[[Swapped | Conflict | StoreAway], None],
    ) -> None:
        """Not executed."""
        self._answer(done)

    def swap_named(
        self,
        key: bytes,
        expected_version: int,
        value: bytes,
        ttl_ms: int,
        name: NameCheck,
        done: Callable[[SwapResult], None],
    ) -> None:
        """Not executed."""
        self._answer(done)

    def expire_all(
        self, index: bytes, ttl_ms: int, now_ms: int, renews: bool, done: Callable[[bool | StoreAway], None]
    ) -> None:
        """Not executed."""
        self._answer(done)

    def list_name(
        self,
        names: bytes,
        member: bytes,
        ttl_ms: int,
        now_ms: int,
        count_max: int | None,
        done: Callable[[bool | StoreAway], None],
    ) -> None:
        """Not executed."""
        self._answer(done)

    def named_entries(self, index: bytes, count_max: int, done: Callable[[list[bytes] | StoreAway], None]) -> None:
        """Nobody can tell."""
        self._answer(done)

    def claim(self, key: bytes, value: bytes, ttl_ms: int, done: Callable[[bool | StoreAway], None]) -> None:
        """Not executed."""
        self._answer(done)

    def member_alive(self, instance_id: bytes, done: Callable[[bool | StoreAway], None]) -> None:
        """Nobody can tell."""
        self._answer(done)

    def end_member(self, instance_id: bytes, done: Callable[[bool | StoreAway], None]) -> None:
        """Not executed."""
        self._answer(done)

    def _answer(self, done: Callable[[StoreAway], None]) -> None:
        self._reactor.later(0, lambda: done(_NOT_THERE))
