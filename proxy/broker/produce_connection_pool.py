"""The produce connections to one broker, and the appends that wait for them. Sans-IO.

Any idle produce connection takes all appends that are ready and go together (``append_queue.py``), at most one wrapper
per partition: of a partition that is twice in one request the broker silently loses the first. Produce connections are
opened as appends have to wait, and closed when they are idle. When they are scarce, requests leave one after the other,
with all that has arrived meanwhile (``produce_connection_demand.py``).

All slow partitions together (``slow_partitions.py``) have two produce connections at most. A request of others that
turns out to hold a slow partition keeps its produce connection for as long as it is out; another produce connection is
opened in its place, so that no other partition waits for it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from math import ceil

from ...codecs.produce import BATCH_VERSIONS
from ...reactor import Reactor
from .. import limits
from ..events import ProduceConnectionLost, ProduceOverdue, Report
from ..flow.effects import Append
from ..flow.outcome import NotSent, Outcome
from .append_queue import AppendQueue
from .produce_connection import ProduceConnection
from .produce_connection_demand import ProduceConnectionDemand
from .queued_append import AppendOfFlow, QueuedAppend
from .slow_partitions import SLOW, SUSPECT, USUAL, PartitionPaces, Place

_SERVED = (USUAL, SLOW, SUSPECT)
"""In the order of their numbers. Partitions on trial wait."""


@dataclass(frozen=True, slots=True)
class ProduceConnectionStatistics:
    """Connections to one broker that may carry a batch, and appends that wait for one, at one moment. ``overdue``: what
    is in requests that have no answer for ``OVERDUE_SECONDS``; ``overdue_seconds``: of the oldest of these."""

    busy: int = 0
    idle: int = 0
    waiting_appends: int = 0
    overdue_seconds: float = 0.0
    overdue: tuple[Place, ...] = ()

    def __add__(self, other: ProduceConnectionStatistics) -> ProduceConnectionStatistics:
        waiting = self.waiting_appends + other.waiting_appends
        seconds = max(self.overdue_seconds, other.overdue_seconds)
        overdue = (*self.overdue, *other.overdue)[: limits.OVERDUE_SHOWN_MAX]
        return ProduceConnectionStatistics(self.busy + other.busy, self.idle + other.idle, waiting, seconds, overdue)


NO_PRODUCE_CONNECTIONS = ProduceConnectionStatistics()


def _nobody_to_open(_produce_connection: ProduceConnection) -> None:
    """There are no more connections."""


def at_once(done: Callable[[bool], None]) -> None:
    """The broker is known to be what it was."""
    done(True)


def _is_there() -> bool:
    """Nothing to do: ``set_usable`` is called when the broker is away."""
    return False


class ProduceConnectionPool:
    """The produce connections to one broker. ``open_produce_connection``: opens a connection; it calls the produce
    connection's ``connected`` when that is open. ``may_send``: does the lease still allow to send (rule R4)?
    ``produce_connections_max``: how many produce connections there may be at this moment for partitions that are not
    slow. ``look_seconds``: how often the requests that are out are checked. ``is_away``: asked then; is the broker away
    though ``set_usable`` was not called? ``confirm``: asks whether the broker that is connected now is the one that was
    judged; calls back with the answer. A broker may have died unnoticed, and store another format since it is back."""

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        open_produce_connection: Callable[[ProduceConnection], None],
        *,
        may_send: Callable[[], bool],
        report: Report,
        produce_connections_max: Callable[[], int] = lambda: limits.PRODUCE_CONNECTIONS_PER_BROKER,
        look_seconds: float = limits.PRODUCE_CONNECTION_LOOK_SECONDS,
        is_away: Callable[[], bool] = _is_there,
        confirm: Callable[[Callable[[bool], None]], None] = at_once,
    ) -> None:
        self.broker_id = broker_id
        self.batch_version = BATCH_VERSIONS[0]
        self.may_send = may_send
        self._open_produce_connection = open_produce_connection
        self._look_seconds = look_seconds
        self._overdue_looks = ceil(limits.OVERDUE_SECONDS / look_seconds)
        self._is_away = is_away
        self._confirm = confirm
        self._reactor = reactor
        self._report = report
        self._produce_connections_max = produce_connections_max
        self._produce_connections: list[ProduceConnection] = []
        self._idle: list[ProduceConnection] = []
        """The produce connection that was busy last comes last, and is used next."""
        self._usual_out = 0
        self._slow_out = 0
        self._late_out = 0
        """Number of produce connections whose request was found to hold a slow partition while it was out."""
        self._paces = PartitionPaces(reactor.now, self._moved)
        self._waiting = AppendQueue(self._paces.of)
        self._demand = ProduceConnectionDemand()
        self._is_holding = False
        self._turn = 0
        self._stands_still_since = 0.0
        self._is_flush_planned = False
        self._is_watching = False
        self._is_closing_idle = False
        self._throttled_until = 0.0
        self.is_usable = False
        """May batches be sent to the broker? Not before its version is certain."""

    def append(self, effect: Append, done: Callable[[Outcome], None]) -> None:
        """Queue one append; ``done`` is called with the outcome, once."""
        self.queue_append(AppendOfFlow(effect, done))

    def queue_append(self, append: QueuedAppend) -> None:
        """Queue one append; it gets its outcome, once."""
        if not self._waiting.count:
            self._stands_still_since = self._reactor.now()
        self._waiting.queue_append(append)
        if not self._is_flush_planned:
            self._plan_dispatch()
        if not self._is_watching:
            self._watch()

    def set_usable(self, usable: bool) -> None:
        """Batches may be sent to the broker from now on, or not: its control connection was lost."""
        self.is_usable = usable
        if usable:
            self._plan_dispatch()
        else:
            self.refuse_waiting("the broker is away")
            self._forsake_busy()

    def refuse_waiting(self, reason: str) -> None:
        """End all waiting appends as not sent."""
        for append in self._waiting.take_all():
            append.done(NotSent(reason))

    def refuse_unwanted(self) -> None:
        """Give back what may not be sent any more (rule R17)."""
        for append in self._waiting.take_all():
            refusal = append.may_send()
            if refusal is None:
                self._waiting.queue_append(append)
            else:
                append.done(NotSent(refusal))

    def give_up_busy(self, reason: str) -> None:
        """Reset the produce connections with a request out: a part of a request that was covered by the lease of
        another proxy instance must not leave under a new one (rule R4)."""
        for produce_connection in list(self._produce_connections):
            if produce_connection.is_busy:
                produce_connection.give_up(reason)

    def close_idle(self) -> None:
        """Close the produce connections over which nothing is out."""
        for produce_connection in list(self._idle):
            self._forget(produce_connection)
            produce_connection.close()

    def end(self, reason: str) -> None:
        """There are no more connections. Drops the callbacks, as otherwise the pool and their owner would refer to each
        other."""
        self.is_usable = False
        self.refuse_waiting(reason)
        self._paces.end()
        self._open_produce_connection, self._is_away, self._confirm = _nobody_to_open, _is_there, at_once

    def close(self) -> None:
        """Reset all produce connections; the appends that are out are in doubt."""
        self.is_usable = False
        self.refuse_waiting("the proxy stops using this broker")
        for produce_connection in list(self._produce_connections):
            produce_connection.give_up("the proxy stops using this broker")

    def statistics(self) -> ProduceConnectionStatistics:
        """Return the figures of this moment."""
        return ProduceConnectionStatistics(
            self.busy_produce_connections, self.idle_produce_connections, self.waiting_appends, *self.overdue()
        )

    def overdue(self) -> tuple[float, tuple[Place, ...]]:
        """Return the age in seconds of the oldest overdue request, and what is in all of them."""
        found = [
            produce_connection
            for produce_connection in list(self._produce_connections)
            if produce_connection.is_busy and produce_connection.is_overdue
        ]
        return self._overdue_of(found) if found else (0.0, ())

    @property
    def busy_produce_connections(self) -> int:
        """Produce connections with a request out."""
        return self._usual_out + self._slow_out + self._late_out

    @property
    def idle_produce_connections(self) -> int:
        """Produce connections that could send now."""
        return len(self._idle)

    @property
    def waiting_appends(self) -> int:
        """Appends that wait for a produce connection."""
        return self._waiting.count

    @property
    def slow_partitions(self) -> int:
        """Partitions that have produce connections of their own for now."""
        return len(self._paces.slow)

    def _overdue_of(self, produce_connections: Collection[ProduceConnection]) -> tuple[float, tuple[Place, ...]]:
        oldest = min(produce_connection.sent_at for produce_connection in produce_connections)
        places = tuple(
            islice(
                chain.from_iterable(produce_connection.places for produce_connection in produce_connections),
                limits.OVERDUE_SHOWN_MAX,
            )
        )
        return self._reactor.now() - oldest, places

    # ------------------------------------------------------------------ from the produce connections
    def produce_connection_opened(self, produce_connection: ProduceConnection) -> None:
        """A produce connection's connection is open."""
        self._confirm(partial(self._confirmed, produce_connection))

    def _confirmed(self, produce_connection: ProduceConnection, is_same: bool) -> None:
        if not produce_connection.is_open:
            return
        if is_same:
            produce_connection.answered_at = self._reactor.now()
            self.produce_connection_idle(produce_connection)
        else:
            self._forget(produce_connection)
            produce_connection.close()
            self._plan_dispatch()

    def produce_connection_idle(self, produce_connection: ProduceConnection) -> None:
        """A produce connection can take a request."""
        self._idle.append(produce_connection)
        self._plan_dispatch()

    def produce_connection_ended(self, produce_connection: ProduceConnection, reason: str) -> None:
        """A produce connection's connection has ended."""
        was_busy = self._forget(produce_connection)
        self._report(ProduceConnectionLost(self.broker_id, reason, was_busy))
        if self._waiting and not self._produce_connections:
            self.refuse_waiting(reason)

    def answered(self, produce_connection: ProduceConnection, timed_out: Collection[Place], throttle_ms: int) -> None:
        """An answer came: note which partitions are slow, and whether the broker throttles. ``timed_out``: the
        partitions whose replicas lag, as the broker says."""
        now = produce_connection.answered_at = self._reactor.now()
        self._count_out(produce_connection)
        if throttle_ms > 0:
            self._throttled_until = now + limits.PRODUCE_CONNECTION_THROTTLED_ANSWER_SECONDS_MAX
        elif produce_connection.pace != SLOW and not timed_out:
            self._paces.measure(now - produce_connection.sent_at)
        if timed_out or produce_connection.is_late or self._paces.known:
            self._paces.answered(produce_connection.places, timed_out, produce_connection.is_late and throttle_ms == 0)

    # ------------------------------------------------------------------ inside
    def _moved(self, place: Place, pace: int) -> None:
        self._waiting.move(place, pace)
        self._plan_dispatch()

    def _plan_dispatch(self) -> None:
        """Make requests at the end of this pass."""
        if not self._is_flush_planned and self._waiting.count and self.is_usable:
            self._is_flush_planned = True
            self._reactor.at_flush(self._dispatch)

    def _dispatch(self) -> None:
        self._is_flush_planned = False
        self._demand.came(self._waiting.count)
        while self._waiting.count and self.is_usable:
            most = self._produce_connections_max()
            pace, produce_connections = self._next(most)
            if not produce_connections:
                return
            if not self._idle:
                self._open_one()
                return
            if pace == USUAL and self._holds_back(most):
                return
            appends = self._take(pace, produce_connections)
            if appends:
                now = self._stands_still_since = self._reactor.now()
                produce_connection = self._idle.pop()
                produce_connection.send(appends, pace, now)
                if pace == SLOW:
                    self._slow_out += 1
                else:
                    self._usual_out += 1
                    self._demand.sent(now, produce_connection.count)
                for append in appends:
                    append.has_left(self._report, self.broker_id)

    def _next(self, most: int) -> tuple[int, int]:
        """Return the pace whose turn it is and how many more of its requests may be out; zeros if none may leave.
        ``most``: so many produce connections there may be."""
        usual = max(0, most - self._usual_out - max(0, self._late_out - most))
        if not self._paces.known:
            return USUAL, usual
        slow = limits.SLOW_PRODUCE_CONNECTIONS_PER_BROKER - self._slow_out
        for step in range(1, len(_SERVED) + 1):
            pace = _SERVED[(self._turn + step) % len(_SERVED)]
            produce_connections = slow if pace == SLOW else usual
            if produce_connections and self._waiting.has(pace):
                self._turn = pace
                return pace, produce_connections
        return USUAL, 0

    def _holds_back(self, most: int) -> bool:
        """Is the next request to wait for more appends? Then a timer checks again."""
        paces, now = self._paces, self._reactor.now()
        seconds = self._demand.hold_seconds(now, self._waiting.count, most, paces.answer_seconds)
        if seconds > 0 and not self._is_holding:
            self._is_holding = True
            self._reactor.later(seconds, self._held_long_enough)
        return seconds > 0

    def _held_long_enough(self) -> None:
        self._is_holding = False
        self._plan_dispatch()

    def _take(self, pace: int, produce_connections: int) -> list[QueuedAppend]:
        """Take the appends of the next request: what waits, divided by ``produce_connections``, the requests that may
        still be out; within the limits for the bytes of a request."""
        bytes_max = self._waiting.size_bytes // produce_connections
        if bytes_max < limits.PRODUCE_CONNECTION_REQUEST_BYTES:
            bytes_max = limits.PRODUCE_CONNECTION_REQUEST_BYTES
        elif bytes_max > limits.PRODUCE_CONNECTION_REQUEST_BYTES_MAX:
            bytes_max = limits.PRODUCE_CONNECTION_REQUEST_BYTES_MAX
        lease_refusal = None if self.may_send() else "the lease has ended"
        appends = self._waiting.take_appends(pace, bytes_max, lease_refusal, one=pace == SUSPECT)
        if pace == SUSPECT and appends:
            self._paces.tried((appends[0].topic, appends[0].partition))
        return appends

    def _open_one(self) -> None:
        """Open another produce connection if all are busy; only one is being opened at a time. It is asked for only
        where one more request may be out, so there are never more produce connections than may be busy at a time."""
        if len(self._produce_connections) == self.busy_produce_connections:
            produce_connection = ProduceConnection(self)
            self._produce_connections.append(produce_connection)
            self._open_produce_connection(produce_connection)
            self._close_idle_later()

    def _forget(self, produce_connection: ProduceConnection) -> bool:
        """Remove a produce connection; return whether a request was out."""
        self._produce_connections.remove(produce_connection)
        if produce_connection.is_busy:
            self._count_out(produce_connection)
            if self._paces.known:
                self._paces.unanswered(produce_connection.places)
            return True
        if produce_connection in self._idle:
            self._idle.remove(produce_connection)
        return False

    def _count_out(self, produce_connection: ProduceConnection) -> None:
        """The produce connection's request is out no longer."""
        if produce_connection.pace == SLOW:
            self._slow_out -= 1
        elif produce_connection.is_late:
            self._late_out -= 1
        else:
            self._usual_out -= 1
            self._demand.done(produce_connection.count)

    def _forsake_busy(self) -> None:
        for produce_connection in self._produce_connections:
            produce_connection.is_forsaken = produce_connection.is_busy

    # ------------------------------------------------------------------ from time to time
    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._reactor.later(self._look_seconds, self._look_after)

    def _look_after(self) -> None:
        """Check for requests that are late or out too long, and for appends that no produce connection could take."""
        self._is_watching = False
        now = self._reactor.now()
        late_after = 1 + ceil(self._paces.late_seconds / self._look_seconds)
        if self._is_away():
            self._forsake_busy()
        overdue: list[ProduceConnection] = []
        for produce_connection in list(self._produce_connections):
            if not produce_connection.is_busy:
                continue
            is_throttled = now < self._throttled_until and not produce_connection.is_forsaken
            answer_seconds_max = limits.PRODUCE_CONNECTION_ANSWER_SECONDS_MAX
            if is_throttled:
                answer_seconds_max = limits.PRODUCE_CONNECTION_THROTTLED_ANSWER_SECONDS_MAX
            if now - produce_connection.sent_at > produce_connection.timeout_seconds + answer_seconds_max:
                produce_connection.give_up("no answer in time")
                continue
            produce_connection.looks += 1
            if is_throttled:
                continue
            if produce_connection.looks >= late_after and not produce_connection.is_late:
                self._is_late(produce_connection)
            if produce_connection.looks >= self._overdue_looks and not produce_connection.is_overdue:
                produce_connection.is_overdue = True
                overdue.append(produce_connection)
        if overdue:
            self._report(ProduceOverdue(self.broker_id, *self._overdue_of(overdue)))
        if (
            self._waiting
            and not self.busy_produce_connections
            and now - self._stands_still_since > limits.SLOW_APPEND_SECONDS
        ):
            self.refuse_waiting("the broker takes no connection")
        self._plan_dispatch()  # a connection that could not be opened is tried again, also while others are busy
        if self._waiting or self.busy_produce_connections:
            self._watch()

    def _is_late(self, produce_connection: ProduceConnection) -> None:
        """The produce connection's request is late: other appends get a produce connection in its place, and its
        partitions go alone."""
        self._count_out(produce_connection)
        produce_connection.is_late = True
        if produce_connection.pace == SLOW:
            self._slow_out += 1
        else:
            self._late_out += 1
        self._paces.late(produce_connection.places)

    def _close_idle_later(self) -> None:
        if not self._is_closing_idle and len(self._produce_connections) > 1:
            self._is_closing_idle = True
            self._reactor.later(limits.PRODUCE_CONNECTION_IDLE_SECONDS, self._close_unneeded)

    def _close_unneeded(self) -> None:
        """Close produce connections that were idle for ``PRODUCE_CONNECTION_IDLE_SECONDS``, all but one."""
        self._is_closing_idle = False
        before = self._reactor.now() - limits.PRODUCE_CONNECTION_IDLE_SECONDS
        while len(self._produce_connections) > 1 and self._idle and self._idle[0].answered_at <= before:
            produce_connection = self._idle[0]
            self._forget(produce_connection)
            produce_connection.close()
        self._close_idle_later()
