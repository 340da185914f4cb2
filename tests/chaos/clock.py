"""The clock of a run: milliseconds of the wall clock, as in the proxies' journals and the producers' files. One
machine, one clock: times of different processes may be compared."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Return the time of day in milliseconds."""
    return time.time_ns() // 1_000_000
