"""Limits log lines that clients can cause at will: so many a minute of each kind, then one line with the number of the
rest. Pure: it is given the time. Counters are not affected, they always count."""

from __future__ import annotations

from collections.abc import Iterator

_MINUTE = 60.0


class _Window:
    __slots__ = ("ends_at", "left_out", "written")

    def __init__(self, now: float) -> None:
        self.ends_at = now + _MINUTE
        self.written = 0
        self.left_out = 0


class LogRateLimit:
    """The limits of one process. A kind's minute begins with its first line."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def admits(self, kind: str, most: int, now: float) -> bool:
        """May a line of this kind be written? At most ``most`` a minute."""
        window = self._windows.get(kind)
        if window is None:
            window = self._windows[kind] = _Window(now)
        if window.written < most:
            window.written += 1
            return True
        window.left_out += 1
        return False

    def ended(self, now: float, is_the_end: bool = False) -> Iterator[tuple[str, int]]:
        """Forget the minutes that are over, or all of them; yield how many lines of which kind were left out."""
        for kind, window in list(self._windows.items()):
            if is_the_end or now >= window.ends_at:
                del self._windows[kind]
                if window.left_out:
                    yield kind, window.left_out

    @property
    def next_end(self) -> float | None:
        """Return when the next minute ends in which something was left out; None if nothing was."""
        return min((window.ends_at for window in self._windows.values() if window.left_out), default=None)
