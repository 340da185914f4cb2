"""The shell of one client connection: owns its wire, back-pressure, turns, drain, idle times and its end. What the
client says is up to its handler (``handler.py``). Sans-IO; knows no Kafka.

**Back-pressure**: a client that asks for much, or takes little, is not read from; where it does not take large answers,
the broker's answers to it are not read either. **Patience**: a client that then moves nothing for too long is
disconnected, so that a few bad peers never stop the others; so is one that asks for nothing. **The end**: what came in
front of a FIN, or of bytes that cannot be read, is served and answered before the connection is closed."""

from __future__ import annotations

from typing import Protocol

from ...codecs.errors import WireError
from ...codecs.framing import SIZE_BYTES
from ...reactor import Reactor, Timer, Wire
from ...state.entry import principal_of
from .. import limits
from ..admission.connection_quotas import AdmittedConnection
from ..admission.ip_fair_share import IpFairShare
from ..admission.memory_budget import MemoryBudget, Reservation
from ..events import ClientRefused, SlowClient
from ..flow.recent_time import RecentTime
from ..settings.addresses import PlaceOf
from ..settings.config import Caps
from .handler import NAMELESS, Handler


class _Gone(Handler):
    """The handler of a connection that has ended."""

    def received(self, data: bytes) -> bool:
        """Nothing is taken."""
        return False


_GONE = _Gone()


class ConnectionHost(Protocol):
    """What all connections of a process have in common."""

    @property
    def reactor(self) -> Reactor: ...

    @property
    def caps(self) -> Caps: ...

    @property
    def memory(self) -> MemoryBudget: ...

    @property
    def recent_time(self) -> RecentTime: ...

    @property
    def is_draining(self) -> bool: ...

    def report(self, event: object) -> None: ...

    def session_ended(self, session: ConnectionShell) -> None: ...


class ConnectionShell:
    """The endpoint of one client connection. ``broker_id``: the broker whose listener it came to, None for the
    bootstrap port. ``place_of``: where clients of this listener reach each broker. ``principal``: who is at the other
    end, as far as that is known (``state/entry.py``); ``principal_name``: the same for people, "" if it is not known.
    ``handler``: speaks what the client speaks; to be set before anything is called, and let go of at the end. ``wire``:
    None before and after.

    ``is_closed``: it has ended. ``takes_no_more``: nothing that comes now is a request; what came before is answered,
    and then the connection is closed. ``has_hung_up``: the client sends nothing more, and perhaps reads its answers.
    ``waits_for_turn``: its handler resumes in a later pass. ``rests_until``: nothing is taken of it before that, in
    reactor seconds; 0: it has not rested lately. ``is_new``: it has not taken a large answer yet. ``unfinished_bytes``:
    those of a request that has not arrived completely. ``is_paused``: it is not read from. ``is_watched``: it, or its
    broker, is not read from; as long as that is so, ``control`` is to be called when anything happens."""

    __slots__ = (
        "_active_at",
        "_admitted",
        "_began_at",
        "_ending_bytes",
        "_has_had_large",
        "_host",
        "_large",
        "_login_timer",
        "_look_due",
        "_look_timer",
        "_missing_bytes",
        "_taken_at",
        "_unfinished_timer",
        "_unsent",
        "_unsent_at_look",
        "_unsent_at_poll",
        "_was_active",
        "address",
        "broker_id",
        "fair_share",
        "handler",
        "has_hung_up",
        "is_closed",
        "is_new",
        "is_paused",
        "is_watched",
        "local_host",
        "memory",
        "place_of",
        "principal",
        "principal_name",
        "rests_until",
        "takes_no_more",
        "unfinished_bytes",
        "waits_for_turn",
        "wire",
    )
    handler: Handler

    def __init__(
        self,
        host: ConnectionHost,
        broker_id: int | None,
        place_of: PlaceOf,
        principal: str | None = None,
        admitted: AdmittedConnection | None = None,
    ) -> None:
        self._host = host
        self._admitted = admitted
        self.memory = host.memory
        self.address = "a client" if admitted is None else admitted.address
        self.fair_share = IpFairShare(host.reactor) if admitted is None else admitted.fair_share
        self.broker_id = broker_id
        self.place_of = place_of
        self.authenticated(principal)
        self.local_host = ""
        self.wire: Wire | None = None
        self.is_closed = self.takes_no_more = self.has_hung_up = False
        self.rests_until = 0.0
        self.unfinished_bytes = 0
        self.is_paused = self.is_watched = False
        self.is_new = True
        self.waits_for_turn = False
        self._missing_bytes = 0
        self._ending_bytes = 0
        """Bytes that were missing of a request when it was allowed to arrive completely though the memory is full; 0:
        none was."""
        self._was_active = False
        self._active_at = self._began_at = self._taken_at = 0.0
        self._unsent = self._unsent_at_look = self._unsent_at_poll = 0
        self._large: list[Reservation] = []
        self._has_had_large = False
        self._login_timer: Timer | None = None
        self._look_timer: Timer | None = None
        self._look_due = 0.0
        self._unfinished_timer: Timer | None = None

    def authenticated(self, principal: str | None) -> None:
        """The client is this principal; None: it does not authenticate."""
        self.principal, self.principal_name = principal_of(principal), principal or ""

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """The client is there."""
        self.wire = wire
        self.local_host = wire.local_host
        self._active_at = self._host.reactor.now()
        wire.before_reading(self._look_for_memory)
        wire.before_end(self._hung_up)
        self.handler.begin()

    def received(self, data: bytes) -> None:
        """Bytes of the client."""
        if self.takes_no_more:
            return
        self._was_active, self._active_at = True, self._host.recent_time.now
        try:
            if self.handler.received(data):
                self.control()
        except WireError as error:
            self.refuse(str(error))

    def lost(self, reason: str) -> None:
        """The client has gone."""
        self._end(is_lost=True)

    def become(self, handler: Handler) -> None:
        """Another handler serves the same connection from now on, and is known by the same name."""
        handler.name, handler.software = self.handler.name, self.handler.software
        self.handler = handler

    # ------------------------------------------------------------------ logins
    def wait_for_login(self) -> None:
        """The client has to authenticate, and in time."""
        self._login_timer = self._host.reactor.later(limits.SASL_SECONDS, self._look_whether_known)

    def is_known(self) -> None:
        """The client has authenticated."""
        if self._login_timer is not None:
            self._login_timer.cancel()
        if self._admitted is not None:
            self._admitted.is_known()

    def _look_whether_known(self) -> None:
        reason = f"no authentication within {limits.SASL_SECONDS:.0f} s"
        self.report_refusal(self.handler.name, reason)
        self.abort(reason)

    # ------------------------------------------------------------------ turns
    def plan_turn(self) -> None:
        """Have its handler resume in a later pass: connections that sent less have their turn in between."""
        if not self.waits_for_turn:
            self.waits_for_turn = True
            if self.fair_share.is_counted:
                self.fair_share.wait(self._take_turn)
            else:
                self._host.reactor.later(0, self._take_turn)

    def _take_turn(self) -> None:
        self.waits_for_turn = False
        if not self.is_closed:
            self.handler.go_on()

    def rest(self, seconds: float) -> None:
        """Take nothing more of it for so long, from now on; and then, until it has been good for some time, one request
        after the other, so that others like it come one by one."""
        self.rests_until = self._host.reactor.now() + seconds
        self.control()

    @property
    def rests(self) -> bool:
        """Is nothing taken of it for a while?"""
        # A proxy that ends waits for all that was read, and would wait for the rest as well.
        return self._host.reactor.now() < self.rests_until and not self._host.is_draining

    @property
    def has_rested(self) -> bool:
        """Is it resting, or was it a moment ago?"""
        if self._host.reactor.now() >= self.rests_until + limits.UNISSUED_REST_SECONDS or self._host.is_draining:
            self.rests_until = 0.0
        return self.rests_until > 0

    # ------------------------------------------------------------------ drain
    def drain_begins(self) -> None:
        """The proxy is ending (rule R15)."""
        self.control()

    @property
    def has_produce_in_flight(self) -> bool:
        """Is something under way that a drain waits for?"""
        return self.handler.has_produce_in_flight

    # ------------------------------------------------------------------ who may leave
    @property
    def is_idempotent(self) -> bool:
        """Has the client asked the proxy for a producer id, or used one of its?"""
        return self.handler.is_idempotent

    @property
    def has_produced(self) -> bool:
        """Was a produce of it answered?"""
        return self.handler.has_produced

    @property
    def quiet_since(self) -> float | None:
        """When bytes came last, in reactor seconds. None: something of it is at work, on its way, may wait unread, or
        is not taken."""
        wire = self.wire
        is_at_work = wire is None or self.handler.in_flight or wire.unsent or self.unfinished_bytes or self.is_paused
        return None if is_at_work else self._active_at

    def look_whether_idle(self) -> None:
        """Close it if it has asked for nothing, and taken nothing, for ``caps.idle_seconds``. To be called every
        ``IDLE_LOOK_SECONDS``."""
        wire = self.wire
        if wire is None:
            return
        now = self._host.reactor.now()
        # What a client waits for that asks for nothing more does not count: it may have gone long ago.
        if wire.unsent != self._unsent_at_look or (self.handler.in_flight and not self.takes_no_more):
            self._active_at, self._unsent_at_look = now, wire.unsent
        if now - self._active_at >= self._host.caps.idle_seconds:
            self.part()

    # ------------------------------------------------------------------ reading, or not
    def request_has(self, unfinished_bytes: int, missing_bytes: int, *, begins: bool) -> None:
        """So many bytes of a request have arrived, and so many are missing, as far as that is known. ``begins``: it is
        another request than at the last call."""
        self.memory.hold_unfinished(unfinished_bytes - self.unfinished_bytes)
        if unfinished_bytes and (begins or not self.unfinished_bytes):
            self._began_at = self._host.reactor.now()
        if begins:
            self._has_ended()
        self.unfinished_bytes, self._missing_bytes = unfinished_bytes, missing_bytes
        if unfinished_bytes:
            self._watch_unfinished()
        if missing_bytes > limits.RECEIVE_BYTES and self.wire is not None:
            self.wire.expect(missing_bytes)

    def _has_ended(self) -> None:
        if self._ending_bytes:
            self.memory.has_ended(self._ending_bytes)
            self._ending_bytes = 0

    def _look_for_memory(self) -> None:
        """Called before each read: memory that was free a moment ago may be taken."""
        if self.memory.is_full:
            self.control()
            is_only_one = self.unfinished_bytes == self.memory.unfinished_bytes
            if self.wire is not None and not self.is_paused and not self._ending_bytes and not is_only_one:
                self._give_up("requests of all clients, most of them unfinished, take too much memory")

    @property
    def is_pressed(self) -> bool:
        """May it be that nothing more is to be read of it, for a reason that its handler does not know?"""
        host = self._host
        return self.is_watched or host.is_draining or self.memory.bytes_held > host.caps.request_bytes_total_max

    @property
    def has_backlog(self) -> bool:
        """Has it left so many bytes untaken that no more of its requests are taken, and no more of the broker's answers
        are read?"""
        many = self.memory.has_many_answers
        bound = limits.BACKLOG_BYTES if many else self._host.caps.client_response_bytes_max
        return self.wire is not None and self.wire.unsent > bound

    def control(self, *, is_large: bool = False) -> None:
        """Read from the client, or not: not if it has many unanswered requests, or does not take its answers.
        ``is_large``: a large answer has come, and its broker is not read from until now."""
        wire = self.wire
        if wire is None:
            return
        has_backlog = wire.unsent > limits.BACKLOG_BYTES and self.has_backlog
        is_full = (
            has_backlog
            or self.takes_no_more
            or bool(self.rests_until and self.rests)
            or self.handler.has_enough
            or self.handler.in_flight >= self._host.caps.requests_in_flight_max
            or (self.memory.is_full and not self._may_go_on())
        )
        if is_full or self.is_watched or is_large:
            if is_full != self.is_paused:
                self._change(is_full, wire)
            self._hold_upstream(has_backlog or self._has_large_backlog, wire)

    def _may_go_on(self) -> bool:
        """May it send the rest of a request though the memory is full? Only if most of the memory is taken by
        unfinished requests: otherwise it waits until complete ones are answered."""
        if not self.unfinished_bytes or not self.memory.is_full_of_unfinished:
            return False
        if self._ending_bytes or self._missing_bytes > self.memory.ending_bytes_max:
            return True  # the second: it is disconnected once it sends more
        missing_bytes = max(self._missing_bytes, SIZE_BYTES)
        if self.memory.may_end(missing_bytes):
            self._ending_bytes = missing_bytes
        return self._ending_bytes > 0

    def _change(self, is_paused: bool, wire: Wire) -> None:
        self.is_paused = is_paused
        if is_paused:
            wire.pause()
        else:
            self._began_at = self._host.reactor.now()  # it was the proxy that did not read on
            wire.resume()

    # ------------------------------------------------------------------ answers that are not taken
    def answers_wait(self) -> None:
        """It does not take its answers as fast as it gets them."""
        if self._look_timer is None:
            self._plan_look(limits.BACKLOG_LOOK_SECONDS)

    def looks_new(self) -> bool:
        """Has it not taken a large answer yet? It has if bytes came from it since that answer was passed on, and
        nothing is unsent now; that the kernel took the bytes does not show that the client did."""
        wire = self.wire
        if self._has_had_large and self._was_active and not self._unsent and wire is not None and not wire.unsent:
            self.is_new = False
        return self.is_new

    def large_answer(self, reservation: Reservation) -> None:
        """A large answer of a broker is there. Its reservation is needed until it has been passed on to the client;
        what the kernel does not take of it then counts as an answer that is not taken."""
        self._large.append(reservation)
        if self.wire is None:
            self._release_large()
        else:
            self._plan_look(0)

    @property
    def _has_large_backlog(self) -> bool:
        return bool(self._large) and sum(one.size for one in self._large) > self._host.caps.client_response_bytes_max

    def _hold_upstream(self, is_held: bool, wire: Wire) -> None:
        self.handler.hold_upstream(is_held)
        was_watched, self.is_watched = self.is_watched, is_held or self.is_paused
        if self.is_watched and not was_watched:
            self._taken_at, self._unsent_at_poll = self._host.reactor.now(), wire.unsent
        if self.is_watched:
            self._plan_look(self._paused_look_seconds)

    @property
    def _paused_look_seconds(self) -> float:
        return limits.REST_LOOK_SECONDS if self.rests_until and self.rests else limits.PAUSED_LOOK_SECONDS

    def _release_large(self) -> None:
        large, self._large = self._large, []
        for reservation in large:
            reservation.release()

    def _count_unsent(self, wire: Wire) -> None:
        unsent = wire.unsent if wire.unsent > limits.BACKLOG_BYTES else 0
        if unsent != self._unsent:
            before, self._unsent = self._unsent, unsent
            self.memory.hold_answers(unsent - before, self.is_new)

    # ------------------------------------------------------------------ looks
    def _plan_look(self, seconds: float) -> None:
        """Look after so many seconds, or before."""
        due = self._host.reactor.now() + seconds
        if self._look_timer is not None:
            if self._look_due <= due:
                return
            self._look_timer.cancel()
        self._look_due, self._look_timer = due, self._host.reactor.later(seconds, self._look)

    def _look(self) -> None:
        """Nothing is called when an answer has left, so it is looked from time to time: does the client take what it is
        sent, was a large answer passed on, may the client or its broker be read from again?"""
        self._look_timer = None
        wire = self.wire
        if wire is None:
            return
        if self.is_watched and (why := self._why_untaken(wire.unsent)):
            self._give_up(why)
            return
        is_large = bool(self._large)
        self._count_unsent(wire)
        if is_large and not self.handler.has_ready_answers:
            self._has_had_large, self._was_active = True, False
            self._release_large()
        if self.is_watched:
            self.handler.go_on()
        self.control(is_large=is_large)
        if self._large:
            self._plan_look(self._paused_look_seconds)
        elif self._unsent or (is_large and wire.unsent):
            self._plan_look(limits.BACKLOG_LOOK_SECONDS)

    def _why_untaken(self, unsent: int) -> str | None:
        """Say why the client, which has left so many bytes of answers untaken, is not waited for any longer. None: it
        is. Where others wait for the memory, less than ``UNTAKEN_BYTES_PER_SECOND`` is no progress."""
        now, is_needed = self._host.reactor.now(), self.memory.has_many_answers
        taken, seconds = self._unsent_at_poll - unsent, now - self._taken_at
        if not unsent or taken >= (limits.UNTAKEN_BYTES_PER_SECOND * seconds if is_needed else 1):
            self._taken_at, self._unsent_at_poll = now, unsent
            return None
        self._unsent_at_poll = max(self._unsent_at_poll, unsent)
        is_scarce = is_needed and unsent > limits.BACKLOG_BYTES
        if seconds <= (limits.UNTAKEN_SECONDS_SCARCE if is_scarce else limits.UNTAKEN_SECONDS):
            return None
        return f"it read none of {unsent} pending response bytes for {seconds:.0f} s"

    def _watch_unfinished(self) -> None:
        if self._unfinished_timer is None:
            self._unfinished_timer = self._host.reactor.later(limits.UNFINISHED_SECONDS, self._look_at_unfinished)

    def _look_at_unfinished(self) -> None:
        """Does the rest of a request come? What a client did not do while it was not read from does not count."""
        self._unfinished_timer = None
        if self.wire is None or not self.unfinished_bytes:
            return
        seconds = self._host.reactor.now() - self._began_at
        due_bytes = (seconds - limits.UNFINISHED_SECONDS) * limits.UNFINISHED_BYTES_PER_SECOND
        if not self.is_paused and self.unfinished_bytes < due_bytes:
            self._give_up(f"only {self.unfinished_bytes} bytes of a request came in {seconds:.0f} s")
            return
        self._watch_unfinished()

    # ------------------------------------------------------------------ the end
    def report_refusal(self, name: str, what: str) -> None:
        """Report what is wrong with what the client sends. One that has sent no client id is named by its address."""
        self._host.report(ClientRefused(name, f"{what} ({self.address})" if name == NAMELESS else what))

    def refuse(self, reason: str) -> None:
        """What comes now cannot be read: answer what came before it, and close."""
        self.report_refusal(self.handler.name, reason)
        if not self._finish():
            self.abort(reason)

    def _hung_up(self) -> bool:
        """The client sends nothing more; nobody can tell whether it still reads. What it had sent is served and
        answered, as at a broker, if its handler does that. Return whether the connection stays open for that."""
        if self.is_closed or not self.handler.answers_after_fin:
            return False
        self.has_hung_up = True
        return self._finish()

    def _finish(self) -> bool:
        """Take nothing more, and close when all that was asked is answered. False: it is, and taken."""
        if self.is_closed or self.wire is None:
            return False
        if not self.takes_no_more:
            self.handler.stop()
        if self.handler.is_owed_nothing and not self.wire.unsent:
            return False
        self.takes_no_more = True
        self.request_has(0, 0, begins=True)
        self.control()
        self.end_if_answered()
        return True

    def end_if_answered(self) -> None:
        """Close it if it takes no more, and every request was answered."""
        if self.takes_no_more and not self.is_closed and self.handler.is_owed_nothing:
            self.part()

    def _give_up(self, reason: str) -> None:
        """Disconnect a slow client."""
        self._host.report(SlowClient(self.handler.name, reason))
        self.abort(reason)

    def forsake(self) -> None:
        """Take nothing more of it, and answer nothing: from here on it counts as closed. ``abort`` is to follow in a
        later step, as it costs system calls."""
        self.takes_no_more = True
        self.handler.forsake()

    def cut_off(self) -> None:
        """Drop the connection, and nothing else yet: nothing leaves from here on. ``abort`` is to follow."""
        if self.wire is not None:
            self.wire.reset()

    def abort(self, reason: str) -> None:
        """Drop the connection."""
        self.cut_off()
        self._end()

    def close(self) -> None:
        """Close after what is ready was sent."""
        if not self.is_closed:
            self.handler.flush()
            self.part()

    def part(self, *, is_lost: bool = False) -> None:
        """Close after what was answered has been sent; a client that has not taken it within ``UNTAKEN_SECONDS_SCARCE``
        is reset. ``is_lost``: as if the client had closed the connection."""
        if self.wire is not None:
            self.wire.close()
            self._host.reactor.later(limits.UNTAKEN_SECONDS_SCARCE, self.wire.reset)
        self._end(is_lost=is_lost)

    def _end(self, *, is_lost: bool = False) -> None:
        """It has ended: nothing is held for it any more."""
        if self.is_closed:
            return
        self.is_closed = self.takes_no_more = True
        self.wire = None
        for timer in (self._login_timer, self._look_timer, self._unfinished_timer):
            if timer is not None:
                timer.cancel()
        self._release_large()
        self.memory.hold_unfinished(-self.unfinished_bytes)
        self.memory.hold_answers(-self._unsent, self.is_new)
        self._has_ended()
        self.unfinished_bytes = self._unsent = 0
        # Else the two would refer to each other, and keep the bytes of an unfinished request.
        handler, self.handler = self.handler, _GONE
        self._host.session_ended(self)
        handler.end(is_lost=is_lost)
