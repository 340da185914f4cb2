"""When a broker has certainly executed what it had read before (rule R6): it was seen awake for a whole second. Pure:
every time is given from outside."""

from __future__ import annotations

SETTLE_SECONDS = 1.0
"""A broker that was seen awake for so long has executed whatever it had read before."""
PROBE_SECONDS = 0.1
"""How often it is asked meanwhile."""
PROBE_LATE_SECONDS = 0.3
"""If an answer takes longer than this, the broker may have been paused, and its second begins anew."""


class Awake:
    """One broker that is asked again and again. Times are seconds of one clock."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: float | None = None

    def saw(self, asked: float, now: float, *, is_answered: bool) -> bool:
        """A question that was ``asked`` then has ended ``now``. Has the broker been awake for long enough?"""
        if not is_answered or now - asked > PROBE_LATE_SECONDS:
            self._since = None
        elif self._since is None:
            self._since = now
        return self._since is not None and now - self._since >= SETTLE_SECONDS
