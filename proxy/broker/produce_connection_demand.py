"""How many appends are at work for one broker, and when the next request should leave. Pure.

Appends arrive one after the other, also those that were answered together. If each took a produce connection on
arrival, the first few would take all produce connections, and the rest would wait for a whole answer. So, while there
are more appends than produce connections, a request leaves when its share of the appends waits, or when as much time
has passed as there is between two answers."""

from __future__ import annotations

from .. import limits


class ProduceConnectionDemand:
    """The appends to the usual (not slow) partitions of one broker."""

    def __init__(self) -> None:
        self._out = 0
        self._most = 0.0
        """The largest recent number of appends that were waiting or out."""
        self._sent_at = float("-inf")

    def came(self, waiting: int) -> None:
        """This many appends wait now; those that have come since the last request left are among them."""
        if self._out + waiting > self._most:
            self._most = self._out + waiting

    def sent(self, now: float, appends: int) -> None:
        """A request with this many appends has left."""
        self._sent_at = now
        self._out += appends

    def done(self, appends: int) -> None:
        """A request with this many appends was answered, or lost. Most probably as many come again, so the largest
        number falls slowly."""
        self._out -= appends
        self._most += (self._out - self._most) / limits.DEMAND_AVERAGED

    def hold_seconds(self, now: float, waiting: int, produce_connections: int, answer_seconds: float) -> float:
        """Return for how long the next request is to wait for more appends. ``produce_connections``: how many there may
        be; ``answer_seconds``: how long an answer takes."""
        if self._most <= produce_connections or waiting * produce_connections >= self._most:
            return 0.0
        spacing = answer_seconds / produce_connections
        if produce_connections == 1 or spacing < limits.HOLD_SECONDS_MIN:
            return 0.0
        return max(0.0, self._sent_at + spacing - now)
