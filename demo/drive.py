"""Drives one run: sends at a pace while faults happen, kills the proxy on the way, then waits until all is answered.

Owns the clock of a run and nothing else; load, relays and proxy are made and ended by ``scenario.py``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from .fault_relay import FaultRelay
from .load import Load
from .progress import Progress
from .proxy_log import ProxyLog
from .proxy_process import ProxyProcess

FULL_RECORDS = 100_000
FULL_FAULTS = 60
"""Of a run with FULL_RECORDS; smaller runs get fewer in proportion, but not less than FAULTS_MIN."""
FAULTS_MIN = 10
KILLS_AT = (0.35, 0.7)
"""The proxy is killed when these shares of the records are sent."""

_RECORDS_PER_SECOND_MAX = 5_000
_SEND_SECONDS_MIN = 6.0
_EXTRA_SECONDS_MAX = 120.0
"""A run in which something has not happened yet continues for so long beyond its time,"""
_EXTRA_PACE = 0.2
"""at this share of its pace: what is wanted then is requests, not records."""
_FINISH_SECONDS_MAX = 60.0
_TICK_SECONDS = 0.02
_SHOW_SECONDS = 0.25
_PROOFS = ("found", "not_found", "duplicate")


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a demo is. ``faults``: of each run, at least."""

    records: int
    faults: int
    records_per_second: float
    seed: int


def shape_of(records: int, seed: int) -> Shape:
    """Return the shape of a demo with so many records per run."""
    faults = max(FAULTS_MIN, min(FULL_FAULTS, FULL_FAULTS * records // FULL_RECORDS))
    return Shape(records, faults, min(_RECORDS_PER_SECOND_MAX, records / _SEND_SECONDS_MIN), seed)


@dataclass(slots=True)
class Drive:
    """One run. ``relays`` by the side they are on; ``proxy`` and ``log`` only where there is a proxy."""

    title: str
    shape: Shape
    load: Load
    relays: dict[str, FaultRelay]
    progress: Progress
    proxy: ProxyProcess | None = None
    log: ProxyLog | None = None
    _kills_due: list[int] = field(default_factory=list)
    _shown_at: float = 0.0

    def run(self) -> None:
        """Send all records, and more until enough has happened; then, without faults, wait for the rest.

        Raises ProxyFailed when the proxy ends by itself.
        """
        shape, load = self.shape, self.load
        if self.proxy is not None:
            self._kills_due = [int(share * shape.records) for share in KILLS_AT]
        before = time.monotonic()
        deadline = before + shape.records / shape.records_per_second + _EXTRA_SECONDS_MAX
        due = 0.0
        while load.sent < shape.records or (not self._is_enough() and time.monotonic() < deadline):
            load.poll(_TICK_SECONDS)
            now = time.monotonic()
            pace = shape.records_per_second * (1.0 if load.sent < shape.records else _EXTRA_PACE)
            # What could not be sent while a fault held everything up is made up for, but not for more than a second.
            due = min(due + (now - before) * pace, pace)
            before = now
            due -= load.send(int(due))
            self._look_after()
        for relay in self.relays.values():
            relay.set_faults(False)
        deadline = time.monotonic() + _FINISH_SECONDS_MAX
        while load.unacknowledged and time.monotonic() < deadline:
            load.poll(_TICK_SECONDS)
            self._look_after()
        self._show()
        load.close()

    @property
    def faults(self) -> int:
        """Faults so far, on all sides."""
        return sum(relay.faults for relay in self.relays.values())

    def _is_enough(self) -> bool:
        """Has everything happened that this run is to show?"""
        if self.faults < self.shape.faults:
            return False
        return self.log is None or all(self.log.counts[kind] for kind in _PROOFS)

    def _look_after(self) -> None:
        if self.proxy is not None and self._kills_due and self.load.sent >= self._kills_due[0]:
            self._kills_due.pop(0)
            self.progress.say("SIGKILL: the proxy dies and is started again")
            self.proxy.kill_and_start()
        if time.monotonic() - self._shown_at >= _SHOW_SECONDS:
            self._show()
            if self.proxy is not None:
                self.proxy.check()

    def _show(self) -> None:
        self._shown_at = time.monotonic()
        facts = {"faults": self.faults}
        if self.log is not None:
            counts = self.log.read()
            facts |= {
                "found": counts["found"],
                "not found": counts["not_found"],
                "duplicates": counts["duplicate"],
            }
        self.progress.show(self.title, len(self.load.acknowledged), max(self.shape.records, self.load.sent), facts)
