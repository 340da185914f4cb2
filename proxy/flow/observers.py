"""The observers of flows: log and metrics, spans, the histogram of appends, the journal. Owns the list of the present
doubts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..events import DoubtOpened, Report
from .outcome import Acknowledger
from .recent_time import RecentTime


@dataclass(slots=True)
class Observers:
    """Of one process."""

    report: Report
    time: RecentTime
    step_begins: Callable[[], float] = lambda: 0.0
    """The time when a step begins, for spans; 0 while no spans are wanted."""
    measure: Callable[[float, Acknowledger], None] | None = None
    """Called for each batch that was appended at once: when it arrived, and the lane that has just brought the
    answer."""
    wants_outcomes: bool = False
    """A journal is kept: the outcome of every append is reported."""
    doubts: dict[object, tuple[float, DoubtOpened]] = field(default_factory=dict)
    """The present doubts, and since when."""

    @contextmanager
    def in_doubt(self, opened: DoubtOpened) -> Iterator[None]:
        """Report a doubt, and keep it in the list until it ends, however it ends."""
        name = object()
        self.doubts[name] = (self.time.now, opened)
        self.report(opened)
        try:
            yield
        finally:
            del self.doubts[name]
