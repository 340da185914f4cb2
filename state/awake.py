"""When a broker has certainly executed what it had read before (rule R6): it was seen awake for a whole second. Pure:
every time is given from outside."""

from __future__ import annotations

from collections import deque

SETTLE_SECONDS = 1.0
"""A broker that was seen awake for so long has executed whatever it had read before."""
PROBE_SECONDS = 0.1
"""How often it is asked meanwhile."""
PROBE_LATE_SECONDS = 0.3
"""If an answer comes so much later than this broker's answers usually do, or if the broker is not asked for so long, it
may have been paused meanwhile, and its second begins anew."""
USUAL_SECONDS_MAX = 1.0
"""How long they may usually take. An answer that is later than this by ``PROBE_LATE_SECONDS`` is late at any broker: it
cannot be told whether one that is so slow works or sleeps."""
_ANSWERS = 10
"""The quickest one of so many is how long its answers usually take."""


class Awake:
    """One broker that is asked again and again. Times are seconds of one clock, which does not stand still while the
    machine sleeps."""

    __slots__ = ("_seen", "_since", "_took")

    def __init__(self) -> None:
        self._since: float | None = None
        self._seen = float("-inf")
        """When the last answer came."""
        self._took: deque[float] = deque(maxlen=_ANSWERS)

    @property
    def is_seen(self) -> bool:
        """Has it been awake since some moment until the last question?"""
        return self._since is not None

    def saw(self, asked: float, now: float, *, is_answered: bool) -> bool:
        """A question that was ``asked`` then has ended ``now``. Has the broker been awake for long enough?"""
        if not is_answered:
            self._since = None
            return False
        took = now - asked
        self._took.append(took)
        usual = min(min(self._took), USUAL_SECONDS_MAX)
        was_looked_at = asked - self._seen <= PROBE_SECONDS + PROBE_LATE_SECONDS  # or we have slept ourselves
        self._seen = now
        if took > usual + PROBE_LATE_SECONDS:
            self._since = None
            return False
        if self._since is None or not was_looked_at:
            self._since = now
        # Where each answer takes longer, because much waits there, what was read before waits for longer, too.
        return now - self._since >= SETTLE_SECONDS * max(1.0, usual / PROBE_LATE_SECONDS)
