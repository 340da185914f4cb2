"""Keeps the summed counters of workers from falling: Prometheus takes a counter that falls for one that was reset, and
would count its value a second time.

A worker that does not answer counts with its last answer. So does a process that has ended, in addition to the one that
was started in its place. Gauges are only of workers that answer. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from prometheus_client.metrics_core import Metric as Family

from .. import limits
from . import summed

_STARTED: Final = re.compile(r"^process_start_time_seconds (\S+)$", re.MULTILINE)


class _Told(NamedTuple):
    """The last metrics of a worker. ``started``: tells its process from those before. ``at``: when they were here."""

    started: str
    at: float
    text: str


class WorkerCounters:
    """The counters that one supervisor keeps. Holds two texts for each worker: its last answer, and the counters of its
    earlier processes and of names that have made room for others."""

    def __init__(self) -> None:
        self._last: dict[int, _Told] = {}
        self._past: dict[int, str] = {}

    def metrics(
        self, texts: Mapping[int, str], asked_at: float, told_at: float, more: str, own: Iterable[Family]
    ) -> bytes:
        """Return the metrics of all as one. ``texts``: those of the workers that have answered, by their numbers; they
        were asked and answered at these times. ``more``, ``own``: what the supervisor itself reports."""
        has_more = [self._take(number, text, asked_at, told_at) for number, text in texts.items()]
        if any(has_more):
            self._forget_names()
        # By worker, and all in one step: a sum that is rounded in another order could fall by its last bit.
        each = [self._of(number, is_there=number in texts) for number in sorted(self._last)]
        return summed.metrics([*each, more], own)

    def _take(self, number: int, text: str, asked_at: float, told_at: float) -> bool:
        """Keep a worker's answer; return whether counters of it were added to those of the past."""
        last = self._last.get(number)
        if last is None:
            last = _Told("", 0.0, "")
        elif asked_at < last.at:
            return False  # of two overlapping scrapes nobody knows which answer is the older one
        found = _STARTED.search(text)
        started = found[1] if found else last.started  # the worker may have no descriptor to read /proc with
        is_new = last.started not in ("", started)
        gone = last.text if is_new else summed.vanished(last.text, text)
        if gone:
            self._past[number] = summed.counters([self._past.get(number, ""), gone])
        self._last[number] = _Told(started, told_at, text)
        return bool(gone)

    def _of(self, number: int, *, is_there: bool) -> str:
        """The metrics of one worker, with what it has counted in the past."""
        text, before = self._last[number].text, self._past.get(number, "")
        if not is_there:
            return summed.counters([before, text])
        return summed.metrics([before, text]).decode() if before else text

    def _forget_names(self) -> None:
        """Clients choose client ids and topics freely. Above the cap the series of the past that no worker has now are
        dropped; they begin at 0 if they come back."""
        if summed.most_names(self._past.values()) > limits.CLIENT_TOPIC_SERIES_MAX:
            living = [last.text for last in self._last.values()]
            self._past = {number: summed.without_names(text, living) for number, text in self._past.items()}
