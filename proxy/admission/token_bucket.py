"""A bucket of tokens: so many come in each second, so many fit into it. Pure: the caller passes the time."""

from __future__ import annotations


class TokenBucket:
    """Full at first. ``rate``: tokens a second; ``burst``: how many there are after a quiet time."""

    __slots__ = ("_looked_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        assert rate > 0
        assert burst >= 1
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._looked_at = now

    def wait_seconds(self, now: float, count: float = 1.0) -> float:
        """Return how long it takes until there are so many tokens; 0: there are."""
        self._fill(now)
        return max(0.0, (count - self._tokens) / self.rate)

    def take_tokens(self, now: float, count: float = 1.0) -> bool:
        """Take so many, if there are as many."""
        self._fill(now)
        if self._tokens < count:
            return False
        self._tokens -= count
        return True

    def owe(self, now: float, seconds_max: float) -> float | None:
        """Take one, also before it is there, if it will be within so many seconds. Return how long that takes; None:
        none is taken."""
        wait = self.wait_seconds(now)
        if wait > seconds_max:
            return None
        self._tokens -= 1
        return wait

    def give_back(self, count: float) -> None:
        """Put back so much of what was taken, as it was not needed."""
        self._tokens = min(self.burst, self._tokens + count)

    def _fill(self, now: float) -> None:
        if now > self._looked_at:
            self._tokens = min(self.burst, self._tokens + (now - self._looked_at) * self.rate)
            self._looked_at = now
