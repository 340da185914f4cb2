"""Whom flows tell what they do: the log and the metrics, spans, the histogram of appends, the journal. Owns the list of
what is in doubt now."""

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
    """The time when a step begins, for spans; 0 as long as nobody wants spans."""
    measure: Callable[[float, Acknowledger], None] | None = None
    """Told of each batch that was appended at once: when it arrived, and the lane that has just brought the answer."""
    wants_outcomes: bool = False
    """A journal is kept: the outcome of every append is reported."""
    doubts: dict[object, tuple[float, DoubtOpened]] = field(default_factory=dict)
    """What is in doubt now, and since when."""

    @contextmanager
    def in_doubt(self, opened: DoubtOpened) -> Iterator[None]:
        """Report a doubt, and keep it among those there are until it ends, however it ends."""
        name = object()
        self.doubts[name] = (self.time.now, opened)
        self.report(opened)
        try:
            yield
        finally:
            del self.doubts[name]
