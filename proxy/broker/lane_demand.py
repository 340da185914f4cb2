"""How many appends a broker has to do with at a time, and when the next request leaves. Pure.

Appends come one after the other, also those that were answered together. If each took a lane as it came, the first few
would have them all, and the rest would wait for a whole answer. So, while more appends are about than there are lanes,
a request leaves when its share of them waits, or when as much time has passed as there is between two answers."""

from __future__ import annotations

from .. import limits


class LaneDemand:
    """The appends to the partitions of one broker that are not slow."""

    def __init__(self) -> None:
        self._out = 0
        self._most = 0.0
        """Waiting and out, when there were most."""
        self._sent_at = float("-inf")

    def came(self, waiting: int) -> None:
        """One more waits; with it so many."""
        self._most = max(self._most, self._out + waiting)

    def sent(self, now: float, appends: int) -> None:
        """A request with so many has left."""
        self._sent_at = now
        self._out += appends

    def done(self, appends: int) -> None:
        """A request with so many is out no longer. Its appends come again, most probably: they are forgotten slowly."""
        self._out -= appends
        self._most += (self._out - self._most) / limits.DEMAND_AVERAGED

    def hold_seconds(self, now: float, waiting: int, lanes: int, answer_seconds: float) -> float:
        """For how long the next request is to wait for more. ``lanes``: how many there may be, ``answer_seconds``: how
        long an answer takes."""
        if self._most <= lanes or waiting * lanes >= self._most:
            return 0.0
        spacing = answer_seconds / lanes
        if lanes == 1 or spacing < limits.HOLD_SECONDS_MIN:
            return 0.0
        return max(0.0, self._sent_at + spacing - now)
