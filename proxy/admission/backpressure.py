"""Back-pressure: how much is kept for one client, in unfinished requests and in answers that it does not take. A client
that asks for much, or takes little, is not read from; where it does not take large answers, the broker's answers to it
are not read either. If it then moves nothing for too long (``slow_client.py``) it is disconnected, so that a few bad
peers never stop the others. Pure: told by the session, woken by timers; knows no Kafka."""

from __future__ import annotations

from typing import Protocol

from ...codecs.framing import SIZE_BYTES
from ...reactor import Reactor, Timer, Wire
from .. import limits
from ..settings.config import Caps
from .memory_budget import MemoryBudget, Reservation
from .slow_client import SlowClient


class Accounts(Protocol):
    """What all clients of a process have in common: its clock, its limits, its memory."""

    @property
    def reactor(self) -> Reactor: ...

    @property
    def caps(self) -> Caps: ...

    @property
    def memory(self) -> MemoryBudget: ...


class Client(Protocol):
    """One connection, as far as it matters here."""

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet, also those that wait to be looked at."""
        ...

    @property
    def has_upstream_backlog(self) -> bool:
        """Is there much that a broker does not take of what it sends?"""
        ...

    @property
    def has_ready_answers(self) -> bool:
        """Are there answers that wait for an earlier one?"""
        ...

    @property
    def rests(self) -> bool:
        """Is nothing taken of it for a while, whatever it does?"""
        ...

    def hold_upstream(self, is_held: bool) -> None:
        """Read nothing more of what a broker answers to it, or go on."""
        ...

    def go_on(self) -> None:
        """Look at requests that wait."""
        ...

    def give_up(self, reason: str) -> None:
        """Disconnect it."""
        ...


class _Nobody:
    """Stands for a client that has gone. Otherwise its session and its ``Backpressure`` would refer to each other, and
    keep the bytes of an unfinished request until the garbage collector runs."""

    in_flight = 0
    has_upstream_backlog = False
    has_ready_answers = False
    rests = False

    def hold_upstream(self, is_held: bool) -> None:
        """It has gone: there is no broker to hold."""

    def go_on(self) -> None:
        """Nothing waits."""

    def give_up(self, reason: str) -> None:
        """It has gone."""


_NOBODY = _Nobody()


class Backpressure:
    """The back-pressure of one client. ``is_new``: it has not taken a large answer yet. ``unfinished_bytes``: those of
    a request that has not arrived completely. ``was_active``, ``active_at``: set by the session whenever bytes come,
    the second to the time in reactor seconds. ``is_watched``: the client, or its broker, is not read from at the
    moment; as long as that is so, ``control`` is to be called when anything happens."""

    __slots__ = (
        "_accounts",
        "_client",
        "_ending_bytes",
        "_has_had_large",
        "_large",
        "_large_timer",
        "_look_timer",
        "_missing_bytes",
        "_poll_timer",
        "_slow",
        "_unsent",
        "_weigh_timer",
        "_wire",
        "active_at",
        "is_new",
        "is_paused",
        "is_watched",
        "unfinished_bytes",
        "was_active",
    )

    def __init__(self, accounts: Accounts, client: Client) -> None:
        self.unfinished_bytes = 0
        self._missing_bytes = 0
        self._ending_bytes = 0
        """Bytes that were missing of a request when it was allowed to arrive completely though the memory is full; 0:
        none was."""
        self.is_paused = False
        self.is_watched = False
        self.is_new = True
        self.was_active = False
        self.active_at = 0.0
        self._accounts = accounts
        self._client = client
        self._slow = SlowClient()
        self._wire: Wire | None = None
        self._unsent = 0
        self._large: list[Reservation] = []
        self._has_had_large = False
        self._large_timer: Timer | None = None
        self._look_timer: Timer | None = None
        self._poll_timer: Timer | None = None
        self._weigh_timer: Timer | None = None

    def begin(self, wire: Wire) -> None:
        """The client is there."""
        self._wire = wire
        self.active_at = self._accounts.reactor.now()
        wire.before_reading(self._look_for_memory)

    @property
    def quiet_since(self) -> float | None:
        """When bytes came last, in reactor seconds. None: a request has not arrived completely, or may wait unread, or
        an answer is not taken."""
        wire = self._wire
        is_at_work = wire is None or wire.unsent or self.unfinished_bytes or self.is_paused
        return None if is_at_work else self.active_at

    def end(self) -> None:
        """It has gone: nothing is held for it any more."""
        for timer in (self._look_timer, self._poll_timer, self._weigh_timer, self._large_timer):
            if timer is not None:
                timer.cancel()
        self._wire = None
        self._client = _NOBODY
        self._release_large()
        self._accounts.memory.hold_unfinished(-self.unfinished_bytes)
        self._accounts.memory.hold_answers(-self._unsent, self.is_new)
        self._has_ended()
        self.unfinished_bytes = self._unsent = 0

    def part(self) -> None:
        """Close the connection after what was answered has been sent; a client that has not taken it within
        ``UNTAKEN_SECONDS_SCARCE`` is reset."""
        if self._wire is not None:
            self._wire.close()
            self._accounts.reactor.later(limits.UNTAKEN_SECONDS_SCARCE, self._wire.reset)

    # ------------------------------------------------------------------ told by the session
    def request_has(self, unfinished_bytes: int, missing_bytes: int, begins: bool) -> None:
        """So many bytes of a request have arrived, and so many are missing, as far as that is known. ``begins``: it is
        another request than at the last call."""
        accounts = self._accounts
        accounts.memory.hold_unfinished(unfinished_bytes - self.unfinished_bytes)
        if unfinished_bytes and (begins or not self.unfinished_bytes):
            self._slow.request_begins(accounts.reactor.now())
        if begins:
            self._has_ended()
        self.unfinished_bytes, self._missing_bytes = unfinished_bytes, missing_bytes
        if unfinished_bytes:
            self._watch_unfinished()

    def _has_ended(self) -> None:
        if self._ending_bytes:
            self._accounts.memory.has_ended(self._ending_bytes)
            self._ending_bytes = 0

    def _look_for_memory(self) -> None:
        """Called before each read: memory that was free a moment ago may be taken."""
        accounts = self._accounts
        if accounts.memory.is_full:
            self.control()
            is_only_one = self.unfinished_bytes == accounts.memory.unfinished_bytes
            if self._wire is not None and not self.is_paused and not self._ending_bytes and not is_only_one:
                self._client.give_up("requests of all clients, most of them unfinished, take too much memory")

    def answers_wait(self) -> None:
        """It does not take its answers as fast as it gets them, or a large one has just begun to leave."""
        if self._weigh_timer is None:
            self._weigh_timer = self._accounts.reactor.later(limits.BACKLOG_LOOK_SECONDS, self._weigh)

    def looks_new(self) -> bool:
        """Has it not taken a large answer yet? It has if bytes came from it since that answer was passed on, and
        nothing is unsent now; that the kernel took the bytes does not show that the client did."""
        wire = self._wire
        if self._has_had_large and self.was_active and not self._unsent and wire is not None and not wire.unsent:
            self.is_new = False
        return self.is_new

    def large_answer(self, reservation: Reservation) -> None:
        """A large answer of a broker is there. Its reservation is needed until it has been passed on to the client;
        what the kernel does not take of it then counts as an answer that is not taken."""
        self._large.append(reservation)
        if self._wire is None:
            self._release_large()
        elif self._large_timer is None:
            self._large_timer = self._accounts.reactor.later(0, self._look_at_large)

    @property
    def has_backlog(self) -> bool:
        """Has it left so many bytes untaken that no more of its requests are taken, and no more of the broker's answers
        are read?"""
        accounts = self._accounts
        bound = limits.BACKLOG_BYTES if accounts.memory.has_many_answers else accounts.caps.client_response_bytes_max
        return self._wire is not None and self._wire.unsent > bound

    def control(self) -> None:
        """Read from the client, or not: not if it has many unanswered requests, or does not take its answers."""
        wire, accounts = self._wire, self._accounts
        if wire is None:
            return
        has_backlog = wire.unsent > limits.BACKLOG_BYTES and self.has_backlog
        full = (
            has_backlog
            or self._client.has_upstream_backlog
            or self._client.in_flight >= accounts.caps.requests_in_flight_max
            or (accounts.memory.is_full and not self._may_go_on())
        )
        if full or self.is_watched:
            if full != self.is_paused:
                self._change(full, wire)
            self._hold_upstream(has_backlog or self._has_large_backlog, wire)

    def _may_go_on(self) -> bool:
        """May it send the rest of a request though the memory is full? Only if most of the memory is taken by
        unfinished requests: otherwise it waits until complete ones are answered."""
        accounts = self._accounts
        if not self.unfinished_bytes or not accounts.memory.is_full_of_unfinished:
            return False
        if self._ending_bytes or self._missing_bytes > accounts.memory.ending_bytes_max:
            return True  # the second: it is disconnected when it goes on
        missing_bytes = max(self._missing_bytes, SIZE_BYTES)
        if accounts.memory.may_end(missing_bytes):
            self._ending_bytes = missing_bytes
        return self._ending_bytes > 0

    @property
    def _has_large_backlog(self) -> bool:
        return (
            bool(self._large) and sum(one.size for one in self._large) > self._accounts.caps.client_response_bytes_max
        )

    def _hold_upstream(self, is_held: bool, wire: Wire) -> None:
        self._client.hold_upstream(is_held)
        was_watched, self.is_watched = self.is_watched, is_held or self.is_paused
        if self.is_watched and not was_watched:
            self._slow.answers_wait(self._accounts.reactor.now(), wire.unsent)
        if self.is_watched:
            self._plan_poll()

    def _plan_poll(self) -> None:
        if self._poll_timer is None:
            seconds = limits.REST_LOOK_SECONDS if self._client.rests else limits.ANSWER_SWEEP_SECONDS
            self._poll_timer = self._accounts.reactor.later(seconds, self._poll)

    def _change(self, full: bool, wire: Wire) -> None:
        self.is_paused = full
        if full:
            wire.pause()
        else:
            self._slow.request_begins(self._accounts.reactor.now())  # it was the proxy that did not read on
            wire.resume()

    def is_idle(self, *, has_ended: bool) -> bool:
        """Has it asked for nothing, and taken nothing, for ``caps.idle_seconds``? To be called every
        ``IDLE_LOOK_SECONDS``. ``has_ended``: it asks for nothing more, so what it waits for does not count."""
        wire = self._wire
        if wire is None:
            return False
        is_active, self.was_active = self.was_active or (self._client.in_flight > 0 and not has_ended), False
        return self._slow.is_idle(wire.unsent, self._accounts.caps.idle_seconds, is_active=is_active)

    # ------------------------------------------------------------------ timers
    def _poll(self) -> None:
        """Nothing is called when an answer has left, so it is checked from time to time whether the client, or its
        broker, may be read from again."""
        self._poll_timer = None
        wire = self._wire
        if wire is None or not self.is_watched:
            return
        now, is_needed = self._accounts.reactor.now(), self._accounts.memory.has_many_answers
        if why := self._slow.why_untaken(now, wire.unsent, is_needed=is_needed):
            self._client.give_up(why)
            return
        self._count_unsent(wire)
        self._client.go_on()
        self.control()
        if self.is_watched and self._wire is not None:
            self._plan_poll()

    def _look_at_large(self) -> None:
        """Has what came from a broker been passed on, now that this pass is over? Does the client take it?"""
        self._large_timer = None
        wire = self._wire
        if wire is None:
            return
        if self._client.has_ready_answers:
            self._large_timer = self._accounts.reactor.later(limits.ANSWER_SWEEP_SECONDS, self._look_at_large)
        else:
            self._has_had_large, self.was_active = True, False
            self._count_unsent(wire)
            self._release_large()
            if wire.unsent:
                self.answers_wait()
        self._hold_upstream(self.has_backlog or self._has_large_backlog, wire)

    def _release_large(self) -> None:
        large, self._large = self._large, []
        for reservation in large:
            reservation.release()

    def _count_unsent(self, wire: Wire) -> None:
        unsent = wire.unsent if wire.unsent > limits.BACKLOG_BYTES else 0
        if unsent != self._unsent:
            before, self._unsent = self._unsent, unsent
            self._accounts.memory.hold_answers(unsent - before, self.is_new)

    def _weigh(self) -> None:
        """Does a backlog stay, now that the kernel has taken what it takes?"""
        self._weigh_timer = None
        if self._wire is None:
            return
        self._count_unsent(self._wire)
        self.control()
        if self._unsent:
            self.answers_wait()

    def _watch_unfinished(self) -> None:
        if self._look_timer is None:
            self._look_timer = self._accounts.reactor.later(limits.UNFINISHED_SECONDS, self._look_at_unfinished)

    def _look_at_unfinished(self) -> None:
        """Does the rest of a request come?"""
        self._look_timer = None
        if self._wire is None or not self.unfinished_bytes:
            return
        if not self.is_paused:
            why = self._slow.why_unfinished(self._accounts.reactor.now(), self.unfinished_bytes)
            if why is not None:
                self._client.give_up(why)
                return
        self._watch_unfinished()
