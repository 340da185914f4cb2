"""The real reactor: sockets, clock and timers under one trio task. Moves bytes; knows no Kafka rule.

Shape: all hot sockets hang in one epoll of our own, and one trio task waits for it. One wake-up is one pass: read what
every ready socket has with one plain recv, call the endpoints' synchronous handlers, let them assemble their batches
(``at_flush``), then write once per connection. A task per socket in the same shape costs a third more CPU per request
(measured), and trio cannot report a peer that disconnects while it is not read from (EPOLLRDHUP, rule R17). Linux
only."""

from __future__ import annotations

import errno
import heapq
import ipaddress
import itertools
import select
import socket
import time
from collections.abc import Callable
from functools import partial

import trio

from ...reactor import Accept, Address, Endpoint, Reactor
from ..admission.connection_quotas import ConnectionQuotas
from ..events import Report
from .connect import ConnectAttempts, Place
from .socket_errors import why_not_connected
from .sockets import ListeningSocket, SocketWire, Source, Traffic
from .tls import TlsSide
from .tls_wire import Handshakes, TlsListener, TlsWire

_EVENTS_PER_PASS_MAX = 256
_USER_TIMEOUT_MS = 5000
_KEEPALIVE_IDLE_SECONDS, _KEEPALIVE_INTERVAL_SECONDS = 10, 5
"""Detect a peer whose machine is gone while the proxy waits for its answer and sends nothing: keepalive probes begin
after so long, and for these the timeout above counts, too."""
_ADDRESSES_MAX = 4
"""Addresses of one name that are tried for one connection."""
Failure = Callable[[str, Exception], None]
_Tls = tuple[TlsSide, str]
"""How TLS is spoken, and with which host."""


def _nothing() -> None:
    """Called at the end of a pass where nothing is measured."""


now: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Seconds; continues while the machine sleeps, unlike the monotonic clock (rule R4)."""


class _Timer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class _OverTls:
    """A reactor's clock and timers, and connections over TLS."""

    def __init__(self, reactor: TrioReactor, side: TlsSide) -> None:
        self.now = reactor.now
        self.later = reactor.later
        self.at_flush = reactor.at_flush
        self._connect = reactor.connect
        self._side = side

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        """Open a connection; ``connected`` is called after the handshake."""
        self._connect(address, endpoint, self._side)


class TrioReactor:
    """Implements ``idemproxy.reactor.Reactor`` on real sockets."""

    def __init__(self, failed: Failure) -> None:
        """``failed`` is called for internal errors, with the connection and the exception. That connection is reset,
        the others are unaffected."""
        self.shares_ports = False
        """May other processes of this user listen on the same ports (SO_REUSEPORT)? Set before ``listen``."""
        self.now = now
        self.client_traffic = Traffic()
        """Bytes on the connections of all clients that were accepted here."""
        self._epoll = select.epoll()
        self._sources: dict[int, Source] = {}
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = itertools.count()
        self._flushes: list[Callable[[], None]] = []
        self._dirty: list[SocketWire] = []
        self.failed = failed
        self.pass_ended: Callable[[], None] = _nothing
        """Called when all of a pass was written."""
        self.step_took: Callable[[float], None] | None = None
        """Called after each step of the loop (a pass, or the timers that were due) with its seconds; the step was all
        that was done meanwhile. None: the clock is not read."""
        self._timer_scope: trio.CancelScope | None = None
        self._armed = float("inf")
        self._nursery: trio.Nursery | None = None
        self._handshakes = Handshakes()
        self._good_places: dict[str, Place] = {}

    # ------------------------------------------------------------------ what endpoints see
    def later(self, seconds: float, callback: Callable[[], None]) -> _Timer:
        """Call back once after so many seconds."""
        timer = _Timer(callback)
        due = self.now() + seconds
        heapq.heappush(self._timers, (due, next(self._order), timer))
        if due < self._armed:
            self._arm(due)
        return timer

    def at_flush(self, callback: Callable[[], None]) -> None:
        """Call back at the end of this pass."""
        self._flushes.append(callback)

    def connect(self, address: Address, endpoint: Endpoint, side: TlsSide | None = None) -> None:
        """Open a TCP connection or, for a path, one to a unix socket. Names are looked up in a thread. ``side``: speak
        TLS over it, but for a unix socket."""
        if isinstance(address, str):
            ConnectAttempts([(socket.AF_UNIX, address)], endpoint, self._open, self.later)
            return
        host, port = address
        tls = None if side is None else (side, host)
        try:
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        except ValueError:
            assert self._nursery is not None, "connect before run"
            self._nursery.start_soon(self._look_up, host, port, endpoint, tls)
        else:
            ConnectAttempts([(family, (host, port))], endpoint, partial(self._open, tls=tls), self.later)

    def over_tls(self, side: TlsSide) -> Reactor:
        """Return a reactor like this one, whose connections speak TLS."""
        return _OverTls(self, side)

    # ------------------------------------------------------------------ running
    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Closes every socket at the end; those with a fence, which carry appends, end by a
        reset (rule R4)."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._run_timers)
                task_status.started()
                while True:
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                    began = self.now() if self.step_took is not None else 0.0
                    for descriptor, events in self._epoll.poll(0, _EVENTS_PER_PASS_MAX):
                        source = self._sources.get(descriptor)
                        if source is not None:
                            try:
                                source.handle(events)
                            except Exception as error:
                                self._give_up(source, error)
                    self.end_pass()
                    if self.step_took is not None:
                        self.step_took(self.now() - began)
        finally:
            for source in list(self._sources.values()):
                source.discard()
            self._epoll.close()

    def end_pass(self) -> None:
        """Let endpoints assemble their batches, then write once per connection."""
        while self._flushes or self._dirty:
            while self._flushes:
                flushes, self._flushes = self._flushes, []
                for flush in flushes:
                    self.guarded("flush", flush)
            dirty, self._dirty = self._dirty, []
            for wire in dirty:
                try:
                    wire.write()
                except Exception as error:
                    self._give_up(wire, error)
        self.pass_ended()

    def _give_up(self, source: Source, error: Exception) -> None:
        """Reset the connection in whose handler an internal error occurred: the others are unaffected, and so are the
        listeners."""
        self.failed("socket", error)
        if isinstance(source, SocketWire):
            self.guarded("socket", lambda: source.fail("internal error"))

    def guarded(self, what: str, callback: Callable[[], None]) -> bool:
        """Call; an internal error is reported and does not stop the others. Returns False then."""
        try:
            callback()
        except Exception as error:
            self.failed(what, error)
            return False
        return True

    def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        side: TlsSide | None = None,
        report: Report = lambda _: None,
        quotas: ConnectionQuotas | None = None,
        requires_authentication: bool = False,
    ) -> ListeningSocket:
        """Accept connections, with ``side`` over TLS; ``report`` gets handshakes that fail. ``quotas`` decide which
        clients are admitted. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self.shares_ports:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.bind((host, port))
            listening.listen(1024)
        except OSError:
            listening.close()
            raise
        if side is not None:
            hands = self._handshakes
            return TlsListener(self, listening, accept, side, hands, report, quotas, requires_authentication)
        return ListeningSocket(self, listening, accept, quotas, requires_authentication)

    # ------------------------------------------------------------------ what sockets need
    def watch(self, descriptor: int, source: Source, events: int) -> None:
        """Call ``source`` for these events of a socket."""
        self._sources[descriptor] = source
        self._epoll.register(descriptor, events)

    def change(self, descriptor: int, events: int) -> None:
        """Change the events that are watched."""
        self._epoll.modify(descriptor, events)

    def unwatch(self, descriptor: int) -> None:
        """Forget a socket that is about to be closed."""
        self._sources.pop(descriptor, None)
        self._epoll.unregister(descriptor)

    def mark_dirty(self, wire: SocketWire) -> None:
        """The connection has something to write at the end of this pass."""
        self._dirty.append(wire)

    # ------------------------------------------------------------------ timers
    async def _run_timers(self) -> None:
        while True:
            with trio.CancelScope() as self._timer_scope:
                self._arm(self._timers[0][0] if self._timers else float("inf"))
                await trio.sleep_forever()
            self._armed = float("inf")
            now = self.now()
            # Nearly all timers are cancelled: those are dropped early, or each would wake this task.
            while self._timers and (self._timers[0][0] <= now or self._timers[0][2].callback is None):
                timer = heapq.heappop(self._timers)[2]
                if timer.callback is not None:
                    self.guarded("timer", timer.callback)
            self.end_pass()
            if self.step_took is not None:
                self.step_took(self.now() - now)

    def _arm(self, due: float) -> None:
        self._armed = due
        if self._timer_scope is not None:
            self._timer_scope.deadline = trio.current_time() + max(0.0, due - self.now())

    # ------------------------------------------------------------------ connecting
    async def _look_up(self, host: str, port: int, endpoint: Endpoint, tls: _Tls | None) -> None:
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # UnicodeError: not a valid name at all, such as a..b; RuntimeError: no thread to look it up
        except (OSError, UnicodeError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            reason = f"{host} has no address: {why}"
            self.guarded("look-up", lambda: endpoint.lost(reason))
        else:
            places: list[Place] = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
            # The address that was good the last time comes first.
            places.sort(key=lambda place: place != self._good_places.get(host))
            opened = partial(self._good_places.__setitem__, host)
            ConnectAttempts(places[:_ADDRESSES_MAX], endpoint, partial(self._open, tls=tls), self.later, opened)
        self.end_pass()

    def _open(self, place: Place, endpoint: Endpoint, tls: _Tls | None = None) -> SocketWire | None:
        family, address = place
        try:
            connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:  # out of descriptors
            self._not_connected(endpoint, error.errno or errno.EIO)
            return None
        if family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_SECONDS)
        failure: int | str
        try:
            failure = connection.connect_ex(address)  # type: ignore[arg-type]
            if failure in (0, errno.EINPROGRESS):
                if tls is None:
                    return SocketWire(self, connection, endpoint, connecting=True)
                return TlsWire(self, connection, endpoint, self._handshakes, *tls)
        except OSError as error:
            failure = error.errno or errno.EIO
        except (OverflowError, ValueError) as error:  # no port, or a host that can be no server's name
            failure = str(error)
        # Never watched: epoll shows a socket that failed at once as writable.
        connection.close()
        self._not_connected(endpoint, failure)
        return None

    def _not_connected(self, endpoint: Endpoint, failure: int | str) -> None:
        reason = why_not_connected(failure) if isinstance(failure, int) else failure
        self.later(0, lambda: endpoint.lost(f"cannot connect: {reason}"))
