"""When the producers of a cluster were handed over to its brokers (rule R21): stored beside the state, so that a proxy
that starts later knows of it, whatever the brokers store by then.

Owns the two questions and their repetition while Redis is away. Decides nothing: ``process/server.py`` does."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from ...reactor import Reactor
from ...state.store import Store, StoreAway, cluster_key, handed_over_key
from .. import limits

_TIME = Struct(">q")


class HandOverMark:
    """``since_ms``: when the first proxy handed over, in ms since 1970; None: none has, as far as is known.
    ``is_known``: Redis has answered. ``has_state``: proxies have given idempotence under this cluster name before."""

    def __init__(self, reactor: Reactor, store: Store, cluster: str, wall_clock_ms: Callable[[], int]) -> None:
        self.since_ms: int | None = None
        self.is_known = False
        self.has_state = False
        self._reactor = reactor
        self._store = store
        self._cluster = cluster
        self._wall_clock_ms = wall_clock_ms

    def look(self, known: Callable[[], None]) -> None:
        """Ask Redis; ``known`` is called when it has answered."""

        def found_mark(value: bytes | StoreAway | None) -> None:
            if isinstance(value, StoreAway):
                self._reactor.later(limits.SETTLE_SECONDS, lambda: self.look(known))
                return
            self._take(value)
            self.is_known = True
            known()

        def found_cluster(value: bytes | StoreAway | None) -> None:
            self.has_state = isinstance(value, bytes)

        self._store.read(cluster_key(self._cluster), found_cluster)
        self._store.read(handed_over_key(self._cluster), found_mark)

    def set(self, done: Callable[[], None]) -> None:
        """Store that it is now, unless another proxy has stored it before; ``done`` is called when that is certain."""

        def claimed(result: Any) -> None:
            if isinstance(result, StoreAway):
                self._reactor.later(limits.SETTLE_SECONDS, lambda: self.set(done))
            else:
                self.look(done)

        self._store.claim(handed_over_key(self._cluster), _TIME.pack(self._wall_clock_ms()), 0, claimed)

    def _take(self, value: bytes | None) -> None:
        if value is None:
            self.since_ms = None
        elif len(value) == _TIME.size:
            (self.since_ms,) = _TIME.unpack(value)
        else:
            self.since_ms = self._wall_clock_ms()  # by another version: it was handed over, at the latest now


def bytes_pass_in_seconds(since_ms: int, now_ms: int, expiry_seconds: float, retry_seconds: float) -> float:
    """Return in how many seconds bytes may pass unread (rule R21), 0 or less: they may now. By then no batch from
    before the hand-over can be retried any more, and the state of a producer that has been idle since then has
    expired."""
    return max(expiry_seconds, retry_seconds) - (now_ms - since_ms) / 1000
