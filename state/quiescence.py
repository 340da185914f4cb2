"""When a broker has certainly executed what it had read before (rule R6): it has passed the quiescence check for a
whole second. Pure: every time is given from outside."""

from __future__ import annotations

from collections import deque

QUIESCENCE_SECONDS = 1.0
"""A broker that has passed the quiescence check for so long has executed whatever it had read before."""
PROBE_SECONDS = 0.1
"""How often it is asked meanwhile."""
PROBE_LATE_SECONDS = 0.3
"""If an answer comes so much later than this broker's answers usually do, or if the next question is late by as much,
the broker may have been paused meanwhile, and its second begins again."""
USUAL_SECONDS_MAX = 1.0
"""The longest time that counts as usual. An answer that takes ``PROBE_LATE_SECONDS`` more than this is late at any
broker: whether a broker that is so slow works or sleeps is not certain."""
_ANSWERS = 10
"""How long a broker's answers usually take: as long as the quickest of its last so many."""


class QuiescenceAnswers:
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
        """Note a question that was sent at ``asked`` and ended at ``now``; return whether the broker has been awake for
        long enough. ``is_answered``: False if it ended without an answer."""
        if not is_answered:
            self._since = None
            return False
        took = now - asked
        self._took.append(took)
        usual = min(min(self._took), USUAL_SECONDS_MAX)
        was_looked_at = asked - self._seen <= PROBE_SECONDS + PROBE_LATE_SECONDS  # else we may have slept
        self._seen = now
        if took > usual + PROBE_LATE_SECONDS:
            self._since = None
            return False
        if self._since is None or not was_looked_at:
            self._since = now
        # Where every answer takes longer, requests queue at the broker, and what it has read waits for longer, too.
        return now - self._since >= QUIESCENCE_SECONDS * max(1.0, usual / PROBE_LATE_SECONDS)
