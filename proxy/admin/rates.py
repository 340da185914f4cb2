"""What happens per second: totals taken in even steps, and their differences. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

STEP_SECONDS: Final = 1.0
STEPS_KEPT: Final = 120
"""Two minutes, for the curves on the status page."""
WINDOW_STEPS: Final = 10
"""A rate is the mean of so many steps."""


class Rates:
    """Totals of the last two minutes."""

    def __init__(self) -> None:
        self._taken: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=STEPS_KEPT + 1)

    def take(self, now: float, totals: Mapping[str, float]) -> None:
        """Take the totals as they stand; about once a step."""
        self._taken.append((now, dict(totals)))

    def per_second(self) -> dict[str, float]:
        """Return the rate of each total over the last steps; empty before there are two."""
        if len(self._taken) < 2:
            return {}
        begun, first = self._taken[max(0, len(self._taken) - 1 - WINDOW_STEPS)]
        ended, last = self._taken[-1]
        return {name: _rate(total - first.get(name, 0.0), ended - begun) for name, total in last.items()}

    def history(self, name: str) -> list[float]:
        """Return the rate of one total step by step, oldest first."""
        taken = list(self._taken)
        return [
            _rate(after.get(name, 0.0) - before.get(name, 0.0), ended - begun)
            for (begun, before), (ended, after) in pairwise(taken)
        ]


def _rate(count: float, seconds: float) -> float:
    return round(count / seconds, 2) if seconds > 0 else 0.0
