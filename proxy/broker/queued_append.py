"""One append to one partition: it waits for a produce connection, and is then the part of its partition in a produce
request.

Owns what a produce connection needs of it, and the way of the broker's answer to the flow that waits for it (rule R5).
Sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...codecs.batch_marker import Identity
from ...reactor import Buffer
from ..events import AppendSent, Report
from ..flow.effects import Append
from ..flow.form import Form
from ..flow.outcome import Acknowledger, Outcome, classify


class QueuedAppend(Protocol):
    """For the fields see ``Append``; ``size_bytes``: of the message set. Either ``answered`` or ``done`` is called,
    once."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def timeout_ms(self) -> int: ...

    @property
    def sender(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def message_set(self) -> Buffer: ...

    @property
    def form(self) -> Form: ...

    @property
    def identities(self) -> tuple[Identity, ...]: ...

    def may_send(self) -> str | None:
        """Return why it may not be sent, None if it may. Asked in the step of the send (rules R4, R17)."""
        ...

    def has_left(self, report: Report, broker_id: int) -> None:
        """Its request was sent."""
        ...

    def answered(
        self,
        error_code: int,
        base_offset: int,
        log_append_time_ms: int,
        produce_connection: Acknowledger,
        broker_id: int,
    ) -> None:
        """The broker has answered."""
        ...

    def done(self, outcome: Outcome, /) -> None:
        """It ended without an answer."""
        ...


class Route(Protocol):
    """The only way to the log for the batches of one client that authenticates at the broker: its own connection
    there."""

    def queue_append(self, append: QueuedAppend, broker_id: int) -> None:
        """Send it to this broker, or refuse it; it gets its outcome once, never from inside this call."""
        ...


class AppendOfFlow:
    """The append of a flow: what its effect says, and the callback that gets the outcome."""

    __slots__ = (
        "_done",
        "form",
        "identities",
        "may_send",
        "message_set",
        "partition",
        "sender",
        "size_bytes",
        "timeout_ms",
        "topic",
    )

    def __init__(self, append: Append, done: Callable[[Outcome], None]) -> None:
        self.topic = append.topic
        self.partition = append.partition
        self.timeout_ms = append.timeout_ms
        self.sender = append.sender
        self.message_set = append.message_set
        self.size_bytes = len(append.message_set)
        self.form = append.form
        self.identities = append.identities
        self.may_send = append.may_send
        self._done = done

    def has_left(self, report: Report, broker_id: int) -> None:
        """Its request was sent."""
        report(AppendSent(broker_id, self.topic, self.partition, self.identities))

    def answered(
        self,
        error_code: int,
        base_offset: int,
        log_append_time_ms: int,
        produce_connection: Acknowledger,
        broker_id: int,
    ) -> None:
        """The broker has answered."""
        self._done(classify(error_code, base_offset, log_append_time_ms, produce_connection, broker_id))

    def done(self, outcome: Outcome) -> None:
        """It ended without an answer."""
        self._done(outcome)
