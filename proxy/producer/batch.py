"""One batch on its way through the proxy, and the requests that wait for its answer. Decides nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ...codecs.record_batch import BatchHeader
from ...state.conditional import Ahead, is_conditional
from ...state.decide import BatchIdentity, rest_of
from ...state.entry import NO_DIGEST, NO_OFFSET, NO_PRINCIPAL, NO_TIME
from ...values import value
from ..broker.queued_append import Route
from ..flow.observers import Trace
from ..flow.wrapper import Wrapper
from .retry_notes import Key, Link, RetryNotes, comes_before


@value(frozen=True, slots=True)
class Answer:
    """What a batch is answered with: see ``answers.py``."""

    error_code: int
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIME
    message: str | None = None
    next_offset: int = NO_OFFSET
    """Where the log ends, if a batch was refused because it expects another offset (rule R23)."""


class Connection(Protocol):
    """The client connection on which a request came. ``retry_notes``: what failed retriably on it. ``name``: the client
    id. ``route``: the only way to the log for its batches, if the client authenticates at the broker itself
    (pass-through); None: over the proxy's own produce connections."""

    @property
    def retry_notes(self) -> RetryNotes: ...

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...

    @property
    def principal_name(self) -> str:
        """Its principal, for people; "" for a client that does not authenticate."""
        ...

    @property
    def route(self) -> Route | None: ...

    @property
    def is_closed(self) -> bool: ...

    def rest(self, seconds: float) -> None:
        """Take nothing more of this client for so long: what it asks for costs others too much."""
        ...


class Waiter(Protocol):
    """One request that waits for a batch. ``is_done``: the request was answered."""

    @property
    def is_done(self) -> bool: ...

    @property
    def is_gone(self) -> bool:
        """Answered already, or its connection is known to be closed (rule R17)."""
        ...

    @property
    def connection(self) -> Connection: ...

    @property
    def number(self) -> int:
        """Of the request, among those of its connection."""
        ...

    @property
    def link(self) -> Link | None:
        """The place of its batch in the pipeline of its connection (rule R23); None: not a conditional batch."""
        ...

    def answer(self, answer: Answer) -> None:
        """Take the answer; ignored when there was one."""
        ...

    def appended(self, base_offset: int, log_append_time_ms: int) -> None:
        """Take the answer ``answers.appended``."""
        ...

    def leave(self) -> None:
        """Nothing of this request is needed any more: its client has gone."""
        ...


_NO_RECORDS = memoryview(b"")


@dataclass(slots=True, eq=False)
class Batch:
    """``records``: the record batch as the client sent it, its CRC verified; empty once they were released.
    ``arrived_at``: reactor seconds."""

    identity: BatchIdentity
    records: memoryview
    header: BatchHeader
    timeout_ms: int
    arrived_at: float
    waiters: list[Waiter] = field(default_factory=list)
    principal: bytes = NO_PRINCIPAL
    """The principal that sends it: a producer id belongs to one principal."""
    is_alone: bool = False
    """It was refused in a group once, so it goes alone from now on (rule R19)."""
    held: object = None
    """Counts the bytes of its request in the memory budget for as long as ``records`` are kept."""
    ahead: object = None
    """Counts the bytes that it will be converted to, until it is converted."""
    stored_records: int = 0
    """How many of its first records were seen to be in the log; above 0 it is stored in parts."""
    base_offset: int = NO_OFFSET
    """Where the first of these records lies."""
    rest: deque[Wrapper] | None = None
    """The records that are left then, if they are converted already; the first wrapper leaves next."""
    expected_offset: int | None = None
    """The offset at which a conditional batch has to be, if the client has given it in full (rule R23)."""
    digest: bytes = NO_DIGEST
    """Of its content, once that was read: what it is recognised by if its client makes it again (rules R9, R13)."""
    trace: Trace | None = None
    """The trace that begins with it, where spans are wanted and the sampler was asked before the answer."""

    @property
    def is_wanted(self) -> bool:
        """Does a request still wait for it?"""
        for waiter in self.waiters:  # noqa: SIM110 - a generator costs three times as much on the hot path
            if not waiter.is_gone:
                return True
        return False

    @property
    def left(self) -> BatchIdentity:
        """The range of its records that are not in the log yet, as far as is known."""
        return rest_of(self.identity, self.stored_records)

    def note_stored(self, record_count: int, base_offset: int, rest: deque[Wrapper] | None = None) -> None:
        """Note that its first ``record_count`` records are in the log, from ``base_offset`` on. The rest goes alone."""
        self.stored_records, self.base_offset, self.rest = record_count, base_offset, rest
        self.is_alone = True

    @property
    def link(self) -> Link | None:
        """Its place in its writer's pipeline, as the newest request that waits has it: a writer that has left a
        connection sends what is unfinished again, in order, over its next one (rule R23)."""
        return next((waiter.link for waiter in reversed(self.waiters) if not waiter.is_gone), None)

    def comes_behind(self, other: Batch) -> bool:
        """May this conditional batch leave in one wrapper with ``other``, right after it?"""
        link = self.link
        if link is None or link.ahead is Ahead.NOTHING:
            return True
        return any(waiter.link is link.before for waiter in other.waiters)

    @property
    def route(self) -> Route | None:
        """How it has to leave: by the way of its newest waiting request. All requests that ever wait for it are of one
        principal and one kind (``is_same``), so a pass-through batch never leaves over the proxy's own produce
        connections."""
        for waiter in reversed(self.waiters):
            if not waiter.is_gone:
                return waiter.connection.route
        return self.waiters[-1].connection.route if self.waiters else None

    @property
    def client(self) -> str:
        """The client id of its oldest request; "" if it has none."""
        return self.waiters[0].connection.name if self.waiters else ""

    @property
    def record_count(self) -> int:
        """How many records it has."""
        return self.identity.record_count

    @property
    def record_bytes(self) -> int:
        """The size of its records as they were sent; 0 once they were released."""
        return len(self.records)

    @property
    def sender(self) -> str:
        """The client address of its newest request; "" if it has none."""
        return self.waiters[-1].connection.address if self.waiters else ""

    def is_behind(self, key: Key, others: Iterable[Batch]) -> bool:
        """Does another batch have to come before it on a connection where a request waits for it: one that failed there
        and will be sent again, one that was sent again and whose outcome is reported there after the answer to this
        one, or one of ``others``, which are not answered yet (rule R11)? Never for a conditional batch: its clients
        begin no other epoch."""
        if is_conditional(key[0]):
            return False
        waiters = [waiter for waiter in self.waiters if not waiter.is_gone]
        if any(one.connection.retry_notes.has_failed_before(key, self.identity, one.number) for one in waiters):
            return True
        connections = [waiter.connection for waiter in waiters]
        lower = [
            other
            for other in others
            if comes_before(other.identity.producer_epoch, other.identity.base_sequence, self.identity)
        ]
        return any(
            waiter.connection is connection and not waiter.is_gone
            for other in lower
            for waiter in other.waiters
            for connection in connections
        )

    def may_begin(self, key: Key) -> bool:
        """May a producer whose state has expired resume with this batch in the middle of its epoch? Not after a batch
        of that epoch failed for good: then the client sends this one again under a newer epoch."""
        return self.identity.base_sequence != 0 and not self.has_ended(key)

    def has_ended(self, key: Key) -> bool:
        """Did a batch of its epoch fail for good on a connection where a request waits for it? Its client knows of that
        then, or hears of it before the answer to this one."""
        epoch = self.identity.producer_epoch
        return any(waiter.connection.retry_notes.has_ended(key, epoch) for waiter in self.waiters)

    def is_retry(self, key: Key) -> bool:
        """Has it failed before on a connection where a request waits for it? A client resends in order, so what it had
        sent before this batch has come again, too."""
        return any(waiter.connection.retry_notes.has_failed(key, self.identity) for waiter in self.waiters)

    # R13 lives here: a retry joins the batch that it repeats.
    def is_same(self, other: Batch) -> bool:
        """Is ``other`` a retry of this one: the same batch, of the same principal and the same kind of connection
        (pass-through or not)?"""
        return (
            self.identity == other.identity
            and self.header.crc == other.header.crc
            and self.principal == other.principal
            and (self.route is None) == (other.route is None)
        )

    def attach(self, other: Batch) -> None:
        """Take over the waiters of a retry: all who wait are kept (rule R13)."""
        self.waiters = [waiter for waiter in self.waiters if not waiter.is_gone] + other.waiters
        self.arrived_at = other.arrived_at
        if not len(self.records):
            self.records, self.held = other.records, other.held

    def let_go_of_records(self) -> None:
        """Release the records: no request waits for it, and a retry brings the same records. Its outcome is determined
        without them."""
        self.records, self.held, self.ahead, self.rest = _NO_RECORDS, None, None, None
        for waiter in self.waiters:
            waiter.leave()
