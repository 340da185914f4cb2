"""The observers of flows: log and metrics, spans, the histogram of appends, the journal. Owns the list of the present
unknown outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from ...values import value
from ..events import Report, UnknownOutcomeOpened
from .outcome import Acknowledger
from .recent_time import RecentTime


def no_step() -> float:
    """No spans are wanted."""
    return 0.0


class CountedBatch(Protocol):
    """What is counted of a batch."""

    @property
    def arrived_at(self) -> float: ...

    @property
    def client(self) -> str: ...

    @property
    def record_count(self) -> int: ...

    @property
    def record_bytes(self) -> int: ...


class AppendCounts(Protocol):
    """The counters that usual appends raise themselves, instead of reporting two events for each batch:
    ``appends_sent`` for ``AppendSent``, ``appended_at_once`` for ``BatchAnswered`` with the verdict "appended"."""

    appends_sent: int

    def appended_at_once(self, batch: CountedBatch, topic: str) -> None:
        """A batch is answered as appended."""
        ...


@value(frozen=True, slots=True)
class Trace:
    """The trace of a batch that names none itself. ``is_sampled``: is a span of it wanted?"""

    trace_id: int
    is_sampled: bool


@dataclass(slots=True)
class Observers:
    """Of one process."""

    report: Report
    time: RecentTime
    step_begins: Callable[[], float] = no_step
    """The time when a step begins, for spans; 0 while no spans are wanted."""
    begin_trace: Callable[[str], Trace] | None = None
    """Begins the trace of a batch for this topic; None while no spans are wanted."""
    measure: Callable[[float, Acknowledger], None] | None = None
    """Called for each batch whose first append was answered with success: when the batch arrived (reactor seconds), and
    the produce connection that has just brought the answer."""
    counts: AppendCounts | None = None
    """Counts what is appended in the usual case; None: each event is reported."""
    wants_outcomes: bool = False
    """A journal is kept: the outcome of every append is reported."""
    unknown_outcomes: dict[object, tuple[float, UnknownOutcomeOpened]] = field(default_factory=dict)
    """The present unknown outcomes, and since when."""

    @contextmanager
    def in_doubt(self, opened: UnknownOutcomeOpened) -> Iterator[None]:
        """Report an unknown outcome, and keep it in the list until it ends, however it ends."""
        name = object()
        self.unknown_outcomes[name] = (self.time.now, opened)
        self.report(opened)
        try:
            yield
        finally:
            del self.unknown_outcomes[name]
