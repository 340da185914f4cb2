"""The way of one client's batches: its own connection to the broker, on which the broker knows it, as the one produce
connection of a pool of its own (rule R3). Sans-IO.

While a produce request of this produce connection is out on it, nothing else is: it leaves only when everything before
it has been answered, so nothing lies in front of it in the broker, and the client's other requests wait until it is
answered (``connection.py``). The lease is checked before and after every write of it (rule R4). When the client goes,
the connection stays until the answer is there. What is left in doubt is looked for in the log by the proxy itself; it
is appended only over the connection of a client with the same principal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...codecs.batch_marker import Identity
from ...codecs.error_codes import ErrorCode
from ...codecs.produce import BATCH_VERSIONS
from ...reactor import Buffer, Reactor
from .. import limits
from ..broker.produce_connection import ProduceConnection
from ..broker.produce_connection_pool import ProduceConnectionPool, ProduceConnectionStatistics, at_once
from ..broker.queued_append import QueuedAppend
from ..events import Report
from ..flow.outcome import Acknowledger, NotSent, Outcome, Refused
from .connection import ClientConnection

if TYPE_CHECKING:
    from .write_acl import WriteAcl


class _Loan:
    """The wire of a produce connection: the connection, lent for one request."""

    def __init__(
        self,
        produce_connections: ClientProduceConnections,
        connection: ClientConnection,
        produce_connection: ProduceConnection,
    ) -> None:
        self._produce_connection = produce_connection
        self._produce_connections = produce_connections
        self._connection = connection
        self.fence = connection.fence
        self.close = connection.give_back

    def send(self, *chunks: Buffer) -> None:
        self._connection.send_alone(chunks, self._answered)

    def reset(self) -> None:
        self._produce_connections.connection_dropped()

    def _answered(self, frame: memoryview) -> None:
        self._produce_connection.answered(frame)
        self._produce_connections.close_idle()


class _Heard:
    """An append that goes over the client's own connection: what the broker answers says also what the client may
    write."""

    __slots__ = ("_append", "_tell", "form", "message_set", "partition", "sender", "size_bytes", "timeout_ms", "topic")

    def __init__(self, append: QueuedAppend, tell: Callable[[str, int], None]) -> None:
        self.topic = append.topic
        self.partition = append.partition
        self.timeout_ms = append.timeout_ms
        self.sender = append.sender
        self.form = append.form
        self.message_set = append.message_set
        self.size_bytes = append.size_bytes
        self._append = append
        self._tell = tell

    @property
    def identities(self) -> tuple[Identity, ...]:
        return self._append.identities

    def may_send(self) -> str | None:
        return self._append.may_send()

    def has_left(self, report: Report, broker_id: int) -> None:
        self._append.has_left(report, broker_id)

    def answered(
        self,
        error_code: int,
        base_offset: int,
        log_append_time_ms: int,
        produce_connection: Acknowledger,
        broker_id: int,
    ) -> None:
        if base_offset >= 0:
            self._tell(self.topic, 0)
        elif error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._tell(self.topic, error_code)
        self._append.answered(error_code, base_offset, log_append_time_ms, produce_connection, broker_id)

    def done(self, outcome: Outcome) -> None:
        self._append.done(outcome)


class ClientProduceConnections:
    """The produce connections of one client: one at most. ``is_there``: can the broker of this connection be asked now?
    None: its id stands for another broker now, or for none, so it never can again. ``is_over``: called when the
    connection has ended. ``write_acl``: learns which appends the broker accepts and which it denies.
    ``batch_version``: of Produce, for batches of format v2. ``confirm``: as of the pool; asked once."""

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        connection: ClientConnection,
        write_acl: WriteAcl,
        *,
        may_send: Callable[[], bool],
        is_there: Callable[[], bool | None],
        is_over: Callable[[ClientProduceConnections], None],
        report: Report,
        batch_version: Callable[[], int] = lambda: BATCH_VERSIONS[0],
        confirm: Callable[[Callable[[bool], None]], None] = at_once,
    ) -> None:
        self.broker_id = broker_id
        self._batch_version = batch_version
        self._confirm = confirm
        self._is_confirmed = False
        self._pool = ProduceConnectionPool(
            reactor,
            broker_id,
            self._open,
            may_send=may_send,
            report=report,
            produce_connections_max=lambda: 1,
            look_seconds=limits.PASS_THROUGH_PRODUCE_CONNECTION_LOOK_SECONDS,
            is_away=lambda: not is_there(),
        )
        self._pool.is_usable = True
        self._reactor = reactor
        self._connection = connection
        self._write_acl = write_acl
        self._is_there = is_there
        self._tell_over = is_over
        self._opening: ProduceConnection | None = None
        """It waits for the connection."""
        self._produce_connection: ProduceConnection | None = None
        """It had the connection last."""
        self._is_over = False
        self._lent_at = 0.0
        self.close_idle = self._pool.close_idle
        self.give_up_busy = self._pool.give_up_busy
        connection.borrower = self

    def queue_append(self, append: QueuedAppend, broker_id: int) -> None:
        """Queue one append; it gets its outcome once, never from inside this call. One that is for another broker ends
        as ``Refused`` with NOT_LEADER_OR_FOLLOWER, as this broker would answer it: only the client itself can
        authenticate at the other broker."""
        outcome: Outcome | None = None
        if self._is_over:
            outcome = NotSent("the client's connection has ended")
        elif broker_id != self.broker_id:
            outcome = Refused(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif not (is_there := self._is_there()):
            outcome = NotSent("the broker is away")
            if is_there is None:
                self._reactor.later(0, lambda: self.drop("the broker has moved"))
        if outcome is not None:
            self._reactor.later(0, partial(append.done, outcome))
        else:
            self._pool.queue_append(_Heard(append, self._tell_right))

    def drop(self, reason: str) -> None:
        """Reset the connection, and disconnect the client: it connects again, and finds its broker. What was out is in
        unknown outcome."""
        self._connection.reset(reason)
        self.ended(reason)

    def statistics(self) -> ProduceConnectionStatistics:
        """Return what there is now. A connection that has carried a batch counts."""
        busy, waiting = self._pool.busy_produce_connections, self._pool.waiting_appends
        return ProduceConnectionStatistics(
            busy, int(not busy and self._produce_connection is not None), waiting, *self._pool.overdue()
        )

    # ------------------------------------------------------------------ from the connection
    @property
    def has_work(self) -> bool:
        """Is there something to send though the client has gone?"""
        return self._pool.waiting_appends > 0

    def lent(self) -> None:
        """The produce connection has the connection: it asks now what may be sent (rules R4, R17)."""
        if not self._is_there():
            self._pool.refuse_waiting("the broker is away")
        produce_connection, self._opening = self._opening, None
        assert produce_connection is not None
        self._pool.batch_version = self._batch_version()
        self._produce_connection = produce_connection
        self._lent_at = self._reactor.now()
        produce_connection.connected(_Loan(self, self._connection, produce_connection))
        self._reactor.at_flush(self.close_idle)  # if nothing is sent after all

    def connection_dropped(self) -> None:
        """The produce connection has given the connection up, and ends what was out itself."""
        self._produce_connection = None
        self.drop("the connection to the broker was closed")

    def client_left(self) -> None:
        """What nobody waits for any more is given back at once (rule R17)."""
        self._pool.refuse_unwanted()

    def ended(self, reason: str) -> None:
        """The connection is over."""
        if self._is_over:
            return
        self._is_over = True
        if self._produce_connection is not None and self._produce_connection.is_busy:
            self._produce_connection.lost(reason)
        self._produce_connection = None
        self._tell_over(self)
        self._pool.end(reason)

    # ------------------------------------------------------------------ inside
    def _open(self, produce_connection: ProduceConnection) -> None:
        self._opening = produce_connection
        if self._is_confirmed:
            self._connection.borrow()
        else:
            self._confirm(self._confirmed)

    def _confirmed(self, is_same: bool) -> None:
        if self._is_over:
            return
        self._is_confirmed = is_same
        if not is_same:
            self._pool.refuse_waiting("the broker is away")
        self._connection.borrow()

    def _tell_right(self, topic: str, error_code: int) -> None:
        self._write_acl.reported(topic, error_code, self._lent_at)
