"""The reactor's clock, to a second or so: for the ages of things, so that asking for the time takes no effect and no
call."""

from __future__ import annotations


class RecentTime:
    """``now``: seconds; the engine sets it every second or so."""

    __slots__ = ("now",)

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
