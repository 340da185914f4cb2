"""The content of one partition in a produce request: one append, or the appends of several producers merged into one
wrapper (``merge_producers``; rules R5, R19).

Says what goes together, and derives the outcome of each append from that of the wrapper. Sends and asks nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ...codecs.marker import Identity
from ...reactor import Buffer
from .. import limits
from ..events import AppendMerged, AppendSent, Report
from ..flow.effects import Append
from ..flow.outcome import Acknowledger, Appended, Outcome, Refused, classify
from ..flow.wrapper import PendingWrapper, joined


class Wanted(Protocol):
    """What is asked of an append while it waits: see ``Append``."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def timeout_ms(self) -> int: ...

    @property
    def sender(self) -> str: ...

    @property
    def may_send(self) -> Callable[[], str | None]: ...

    @property
    def wrapper(self) -> PendingWrapper | None: ...

    @property
    def identities(self) -> tuple[Identity, ...]: ...


class Job(Protocol):
    """An append that waits for a lane. ``done`` gets the outcome, once; unless its load got the broker's answer.
    ``goes_alone``: it is what one request holds of its partition, and nothing is put together with it."""

    @property
    def goes_alone(self) -> bool: ...

    @property
    def append(self) -> Wanted: ...

    @property
    def size_bytes(self) -> int: ...

    def done(self, outcome: Outcome, /) -> None: ...

    def load(self) -> Load:
        """Return it as what one request holds of its partition."""
        ...


class Load(Protocol):
    """What one request holds of one partition. ``appends``: so many are in it. ``timeout_ms``: the smallest of theirs.
    ``may_grow``: may others be put into it?"""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def appends(self) -> int: ...

    @property
    def timeout_ms(self) -> int: ...

    @property
    def may_grow(self) -> bool: ...

    def room_for(self, job: Job, /) -> bool: ...

    def add(self, job: Job, /) -> None: ...

    @property
    def message_set(self) -> Buffer: ...

    def has_left(self, report: Report, broker_id: int) -> None:
        """Its request was sent."""
        ...

    def answered(
        self, error_code: int, base_offset: int, log_append_time_ms: int, lane: Acknowledger, broker_id: int
    ) -> None:
        """The broker has answered."""
        ...

    def done(self, outcome: Outcome, /) -> None:
        """It ended without an answer."""
        ...


@dataclass(slots=True)
class QueuedAppend:
    """One queued append: the effect, and the callback that gets the outcome."""

    append: Append
    done: Callable[[Outcome], None]
    size_bytes: int

    goes_alone: ClassVar[bool] = False

    def load(self) -> PartitionAppend:
        """Return it as what one request holds of its partition."""
        return PartitionAppend(self)


class PartitionAppend:
    """Appends for one partition whose last checks were made in this step (rules R4, R17)."""

    __slots__ = (
        "_batches",
        "_bytes_max",
        "_merged",
        "_wrapper",
        "appends",
        "jobs",
        "partition",
        "size_bytes",
        "timeout_ms",
        "topic",
    )

    def __init__(self, job: QueuedAppend) -> None:
        append = job.append
        self.topic = append.topic
        self.partition = append.partition
        self.timeout_ms = append.timeout_ms
        self.appends = 1
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

    def room_for(self, job: Job) -> bool:
        """May another producer's append go into the same wrapper?"""
        mine, other = self._wrapper, job.append.wrapper
        if mine is None or other is None or mine.codec != other.codec:
            return False
        return (
            self.size_bytes + job.size_bytes <= min(self._bytes_max, other.joined_bytes_max)
            and self._batches + len(other.identities) <= limits.MERGED_BATCHES_MAX
        )

    def add(self, job: Job) -> None:
        """Add an append behind the others."""
        assert isinstance(job, QueuedAppend)
        wrapper = job.append.wrapper
        assert wrapper is not None
        assert self._merged is None
        self.jobs.append(job)
        self.appends += 1
        self.timeout_ms = min(self.timeout_ms, job.append.timeout_ms)
        self.size_bytes += job.size_bytes
        self._bytes_max = min(self._bytes_max, wrapper.joined_bytes_max)
        self._batches += len(wrapper.identities)

    @property
    def message_set(self) -> Buffer:
        """What is sent: all appends in it as one wrapper."""
        if len(self.jobs) == 1:
            return self.jobs[0].append.message_set
        if self._merged is None:
            self._merged = joined([job.append.wrapper for job in self.jobs if job.append.wrapper is not None])
        return self._merged.wrapped()

    def has_left(self, report: Report, broker_id: int) -> None:
        """Its request was sent."""
        for job in self.jobs:
            names = job.append.identities
            report(AppendSent(broker_id, self.topic, self.partition, names))
            if self.appends > 1:
                report(AppendMerged(broker_id, self.topic, self.partition, names))

    def answered(
        self, error_code: int, base_offset: int, log_append_time_ms: int, lane: Acknowledger, broker_id: int
    ) -> None:
        """The broker has answered."""
        self.done(classify(error_code, base_offset, log_append_time_ms, lane, broker_id))

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
