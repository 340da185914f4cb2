"""The content of one partition in a produce request: one append, or the appends of several producers merged into one
wrapper (``merge_producers``; rules R5, R19).

Says what goes together, and derives the outcome of each append from that of the wrapper. Sends and asks nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...reactor import Buffer
from .. import limits
from ..flow.effects import Append
from ..flow.outcome import Appended, Outcome, Refused
from ..flow.wrapper import PendingWrapper, joined


@dataclass(slots=True)
class QueuedAppend:
    """One queued append: the effect, and the callback that gets the outcome."""

    append: Append
    done: Callable[[Outcome], None]
    size_bytes: int


class PartitionAppend:
    """Appends for one partition whose last checks were made in this step (rules R4, R17)."""

    __slots__ = ("_batches", "_bytes_max", "_merged", "_wrapper", "jobs", "partition", "size_bytes", "topic")

    def __init__(self, job: QueuedAppend) -> None:
        append = job.append
        self.topic = append.topic
        self.partition = append.partition
        self.jobs = [job]
        self.size_bytes = job.size_bytes
        self._wrapper = append.wrapper
        self._bytes_max = self._wrapper.joined_bytes_max if self._wrapper is not None else 0
        self._batches = len(append.identities)
        self._merged: PendingWrapper | None = None

    @property
    def may_grow(self) -> bool:
        """May other appends be merged into it at all?"""
        return self._bytes_max > 0

    def room_for(self, job: QueuedAppend) -> bool:
        """May another producer's append go into the same wrapper?"""
        mine, other = self._wrapper, job.append.wrapper
        if mine is None or other is None or mine.codec != other.codec:
            return False
        return (
            self.size_bytes + job.size_bytes <= min(self._bytes_max, other.joined_bytes_max)
            and self._batches + len(other.identities) <= limits.MERGED_BATCHES_MAX
        )

    def add(self, job: QueuedAppend) -> None:
        """Add an append behind the others."""
        wrapper = job.append.wrapper
        assert wrapper is not None
        assert self._merged is None
        self.jobs.append(job)
        self.size_bytes += job.size_bytes
        self._bytes_max = min(self._bytes_max, wrapper.joined_bytes_max)
        self._batches += len(wrapper.identities)

    def message_set(self) -> Buffer:
        """Return what is sent: all appends in it as one wrapper."""
        if len(self.jobs) == 1:
            return self.jobs[0].append.message_set
        if self._merged is None:
            self._merged = joined([job.append.wrapper for job in self.jobs if job.append.wrapper is not None])
        return self._merged.wrapped()

    def done(self, outcome: Outcome) -> None:
        """Give each append its outcome."""
        merged = self._merged
        if merged is None:
            self.jobs[0].done(outcome)
            return
        before = 0
        for job in self.jobs:
            job.done(_own(outcome, merged, before))
            before += sum(identity.record_count for identity in job.append.identities)


def _own(outcome: Outcome, merged: PendingWrapper, records_before: int) -> Outcome:
    """Return what the outcome of a merged wrapper means for the part that has so many records before it."""
    if isinstance(outcome, Appended):
        return Appended(
            outcome.base_offset + records_before,
            outcome.error_code,
            outcome.log_append_time_ms,
            outcome.lane,
            merged.anchor,
        )
    if isinstance(outcome, Refused):
        return Refused(outcome.error_code, len(merged.wrapped()))
    return outcome
