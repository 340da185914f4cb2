"""What happened lately: totals and durations taken in even steps, and their differences. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

STEP_SECONDS: Final = 1.0
STEPS_KEPT: Final = 120
"""Two minutes: "now" on the status page."""
WINDOW_STEPS: Final = 10
"""A rate is the mean of so many steps."""
LONG_STEP_SECONDS: Final = 30.0
LONG_STEPS_KEPT: Final = 120
"""An hour, for the curves on the status page."""


Counts = Sequence[int]
"""A histogram: one for each of ``metric_names.DURATION_BOUNDS_SECONDS`` (not cumulative), and one for those above the
last bound."""


def since(present: Counts, earlier: Counts | None) -> Counts:
    """Return what was added since ``earlier``; None: since the start."""
    if earlier is None:
        return present
    return [now - before for now, before in zip(present, earlier, strict=True)]


class Taken(NamedTuple):
    """Totals and durations, by name, as they stood ``at`` (seconds of one clock)."""

    at: float
    totals: Mapping[str, float]
    times: Mapping[str, Counts]


class Rates:
    """What was taken in the last two minutes step by step, and in the last hour in longer steps."""

    def __init__(self) -> None:
        self._taken: deque[Taken] = deque(maxlen=STEPS_KEPT + 1)
        self._long: deque[Taken] = deque(maxlen=LONG_STEPS_KEPT + 1)

    def take_sample(self, now: float, totals: Mapping[str, float], times: Mapping[str, Counts] | None = None) -> None:
        """Take them as they stand; about once a step."""
        taken = Taken(now, dict(totals), dict(times or {}))
        self._taken.append(taken)
        if not self._long or now - self._long[-1].at >= LONG_STEP_SECONDS:
            self._long.append(taken)

    def per_second(self, name: str) -> float | None:
        """Return the rate of one total over the last steps; None before there are two."""
        if len(self._taken) < 2:
            return None
        return per_second(self._taken[max(0, len(self._taken) - 1 - WINDOW_STEPS)], self._taken[-1], name)

    def lately(self, times: Mapping[str, Counts]) -> dict[str, Counts]:
        """Return what the last two minutes have added. ``times``: the present totals."""
        if len(self._taken) <= STEPS_KEPT:  # the process is younger than that
            return dict(times)
        return {name: since(found, self._taken[0].times.get(name)) for name, found in times.items()}

    def hour(self) -> list[tuple[Taken, Taken]]:
        """Return begin and end of each of the longer steps, oldest first; the last one may be shorter."""
        taken = list(self._long)
        if self._taken and taken and self._taken[-1].at > taken[-1].at:
            taken.append(self._taken[-1])
        return list(pairwise(taken))


def per_second(before: Taken, after: Taken, name: str) -> float:
    """Return the rate of one total between two moments."""
    seconds = after.at - before.at
    return round((after.totals.get(name, 0.0) - before.totals.get(name, 0.0)) / seconds, 2) if seconds > 0 else 0.0
