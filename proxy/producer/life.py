"""As which incarnation this process works, and in which life of the Redis data. Plain data: ``engine/life.py`` changes
it, flows read it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ...state.entry import NO_GENERATION, NO_INCARNATION
from .. import limits


@dataclass(slots=True)
class Life:
    """One per process. ``cluster``: the name in its Redis keys. ``wall_clock_ms``: ms since 1970."""

    cluster: str
    wall_clock_ms: Callable[[], int] = lambda: 0
    incarnation: bytes = NO_INCARNATION
    generation: bytes = NO_GENERATION
    """Of the Redis data, as last seen."""
    era: int = 0
    """Counts incarnations and generations of this process: what was learned in an earlier era is void."""
    grace_until: float = 0.0
    """Reactor seconds. Before this no suspect entry is touched, nor, from the second era on, another proxy's intent:
    leases of the lost state run out first (rules R1, R10)."""
    earlier_incarnations: deque[bytes] = field(default_factory=lambda: deque(maxlen=limits.EARLIER_INCARNATIONS_MAX))
    """Those of this process before ``incarnation``, newest last. They send nothing any more."""
    is_draining: bool = False
    """The process is about to end: what it cannot finish is left to other proxies (rule R15)."""
    _expiry_ms: int = limits.PRODUCER_EXPIRY_SECONDS * 1000
    shortest_expiry_ms: float = float("inf")
    """The shortest expiry that was set since the process began: an entry keeps the time to live that it was written
    with."""

    @property
    def expiry_ms(self) -> int:
        """The state of a producer that is idle for so long expires, by the clock of Redis."""
        return self._expiry_ms

    @expiry_ms.setter
    def expiry_ms(self, expiry_ms: int) -> None:
        self._expiry_ms = expiry_ms
        self.shortest_expiry_ms = min(self.shortest_expiry_ms, expiry_ms)

    def begin_era(self, incarnation: bytes) -> None:
        """A new era begins, under another incarnation."""
        self.era += 1
        self.earlier_incarnations.append(self.incarnation)
        self.incarnation = incarnation
