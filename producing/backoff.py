"""How long to wait before the next try. Pure; chance is the caller's."""

from __future__ import annotations

from .limits import BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN

_DOUBLINGS_MAX = 10
"""More would change nothing: the longest pause is reached by then."""


def backoff_seconds(failures: int) -> float:
    """Return the pause in seconds after so many failures in a row; with 0 it is the shortest."""
    doubled: float = BACKOFF_SECONDS_MIN * 2 ** min(failures, _DOUBLINGS_MAX)
    return min(doubled, BACKOFF_SECONDS_MAX)
