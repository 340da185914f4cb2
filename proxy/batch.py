"""One batch on its way through the proxy, and everybody who waits for its answer. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ..codecs.record_batch import BatchHeader
from ..state.decide import BatchIdentity
from ..state.entry import NO_OFFSET, NO_TIME
from ..state.sequence import is_ahead
from ..values import value


@value(frozen=True, slots=True)
class Answer:
    """What a batch is answered with: see ``answers.py``."""

    error_code: int
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIME
    message: str | None = None


class Connection(Protocol):
    """The client connection a request came on. ``behind``: what failed retriably on it, see ``Behind``."""

    @property
    def behind(self) -> Behind: ...


class Waiter(Protocol):
    """One request's interest in one batch."""

    @property
    def gone(self) -> bool:
        """Answered already, or its connection is known to be closed (rule R17)."""
        ...

    @property
    def connection(self) -> Connection: ...

    def answer(self, answer: Answer) -> None:
        """Take the answer; ignored when there was one."""
        ...


class Behind:
    """Per connection: base sequences that failed retriably, so that what follows them is no gap (rule R11), and epochs
    of which a batch failed for good."""

    __slots__ = ("_ended", "_failed")

    def __init__(self) -> None:
        self._ended: dict[tuple[int, str, int], int] = {}
        self._failed: dict[tuple[int, str, int], set[tuple[int, int]]] = {}

    def note(self, key: tuple[int, str, int], identity: BatchIdentity, error_code: int, retriable: bool) -> None:
        """Remember a retriable failure; forget it when the batch failed for good, or when it or a later one got
        through, perhaps over another connection."""
        epoch, sequence = identity.producer_epoch, identity.base_sequence
        failed = self._failed.get(key)
        if error_code and not retriable:
            self._ended[key] = epoch
        if error_code and retriable:
            self._failed.setdefault(key, set()).add((epoch, sequence))
        elif failed is not None:
            failed.discard((epoch, sequence))
            if not error_code:
                failed = {one for one in failed if one[0] > epoch or (one[0] == epoch and is_ahead(sequence, one[1]))}
            self._failed[key] = failed
            if not failed:
                del self._failed[key]

    def has_failed_before(self, key: tuple[int, str, int], identity: BatchIdentity) -> bool:
        """Did a lower batch of this producer, partition and epoch fail retriably, and was not sent again?"""
        epoch, sequence = identity.producer_epoch, identity.base_sequence
        return any(one[0] == epoch and is_ahead(one[1], sequence) for one in self._failed.get(key, ()))

    def has_ended_older(self, key: tuple[int, str, int], producer_epoch: int) -> bool:
        """Was a batch of an older epoch sent over this connection, and failed for good? Then the newer epoch began
        after this connection did: no batch of it was ever sent before."""
        return self._ended.get(key, producer_epoch) < producer_epoch


@dataclass(slots=True, eq=False)
class Batch:
    """``records``: the record batch as the client sent it, its CRC verified. ``arrived_at``: reactor seconds."""

    identity: BatchIdentity
    records: memoryview
    header: BatchHeader
    timeout_ms: int
    arrived_at: float
    waiters: list[Waiter] = field(default_factory=list)
    alone: bool = False
    """Once refused in company: not put together with others again (rule R19)."""
    apart: bool = False
    """Once refused, or in doubt, in one wrapper with other producers' batches: not merged again."""

    @property
    def wanted(self) -> bool:
        """Does anybody still wait for it?"""
        for waiter in self.waiters:  # noqa: SIM110 - a generator costs three times as much on the hot path
            if not waiter.gone:
                return True
        return False

    def attach(self, other: Batch) -> None:
        """Take over the waiters of a retry: all who wait are kept (rule R13)."""
        self.waiters = [waiter for waiter in self.waiters if not waiter.gone] + other.waiters
        self.arrived_at = other.arrived_at
