"""The real reactor: sockets, clock and timers under one trio task. Moves bytes; knows no Kafka rule.

Shape: all hot sockets hang in one epoll of our own, and one trio task waits for it. One wake-up is one pass: take
what every ready socket has with one plain recv, call the endpoints' synchronous handlers, let them put their batches
together (``at_flush``), then write once per connection. A task per socket in the same shape costs a third more CPU
per request (measured), and trio cannot tell of a peer that hangs up while we do not read from it (EPOLLRDHUP, rule
R17). Linux only."""

from __future__ import annotations

import errno
import heapq
import ipaddress
import itertools
import select
import socket
import struct
import time
from collections.abc import Callable

import trio

from ..reactor import Address, Buffer, Endpoint
from .limits import RECEIVE_BYTES

_READ = select.EPOLLIN | select.EPOLLRDHUP
_GONE = select.EPOLLHUP | select.EPOLLERR
_EVENTS_PER_PASS_MAX = 256
_ACCEPTS_PER_PASS_MAX = 64
_ACCEPT_PAUSE_SECONDS = 0.1
_CHUNKS_PER_WRITE_MAX = 512
"""Below the kernel's IOV_MAX of 1024."""
_JOIN_BYTES_MAX = 16 * 1024
"""Small writes are joined, large ones are handed over as they lie: the join costs 60 us per MB."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_USER_TIMEOUT_MS = 5000
Failure = Callable[[str, Exception], None]


class _Timer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class TrioReactor:
    """Implements ``idemproxy.reactor.Reactor`` on real sockets."""

    def __init__(self, failed: Failure) -> None:
        """``failed`` is told of errors of ours: which connection, and the exception. That connection is reset, others
        go on."""
        self._epoll = select.epoll()
        self._sources: dict[int, _Wire | _Listener] = {}
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = itertools.count()
        self._flushes: list[Callable[[], None]] = []
        self._dirty: list[_Wire] = []
        self._failed = failed
        self._timer_scope: trio.CancelScope | None = None
        self._armed = float("inf")
        self._nursery: trio.Nursery | None = None

    # ------------------------------------------------------------------ what endpoints see
    def now(self) -> float:
        """Seconds; goes on while the machine sleeps, unlike the monotonic clock (rule R4)."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

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

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        """Open a TCP connection or, for a path, one to a unix socket. Names are looked up in a thread."""
        if isinstance(address, str):
            self._open(socket.AF_UNIX, address, endpoint)
            return
        host, port = address
        try:
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        except ValueError:
            assert self._nursery is not None, "connect before run"
            self._nursery.start_soon(self._look_up, host, port, endpoint)
        else:
            self._open(family, (host, port), endpoint)

    # ------------------------------------------------------------------ running
    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Resources: closes every socket at the end, upstream ones by reset."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._run_timers)
                task_status.started()
                while True:
                    await trio.lowlevel.wait_readable(self._epoll.fileno())
                    for descriptor, events in self._epoll.poll(0, _EVENTS_PER_PASS_MAX):
                        source = self._sources.get(descriptor)
                        if source is not None:
                            source.handle(events)
                    self.end_pass()
        finally:
            for source in list(self._sources.values()):
                source.discard()
            self._epoll.close()

    def end_pass(self) -> None:
        """Let batches be put together, then write once per connection."""
        while self._flushes or self._dirty:
            while self._flushes:
                flushes, self._flushes = self._flushes, []
                for flush in flushes:
                    self.guarded("flush", flush)
            dirty, self._dirty = self._dirty, []
            for wire in dirty:
                wire.write()

    def guarded(self, what: str, callback: Callable[[], None]) -> bool:
        """Call; an error of ours is reported and does not stop the others. False then."""
        try:
            callback()
        except Exception as error:
            self._failed(what, error)
            return False
        return True

    def listen(self, host: str, port: int, accept: Callable[[], Endpoint | None]) -> _Listener:
        """Accept connections; ``accept`` gives the endpoint of each, or None to refuse it. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(1024)
        except OSError:
            listening.close()
            raise
        return _Listener(self, listening, accept)

    # ------------------------------------------------------------------ timers
    async def _run_timers(self) -> None:
        while True:
            with trio.CancelScope() as self._timer_scope:
                self._arm(self._timers[0][0] if self._timers else float("inf"))
                await trio.sleep_forever()
            self._armed = float("inf")
            now = self.now()
            while self._timers and self._timers[0][0] <= now:
                timer = heapq.heappop(self._timers)[2]
                if timer.callback is not None:
                    self.guarded("timer", timer.callback)
            self.end_pass()

    def _arm(self, due: float) -> None:
        self._armed = due
        if self._timer_scope is not None:
            self._timer_scope.deadline = trio.current_time() + max(0.0, due - self.now())

    # ------------------------------------------------------------------ connecting
    async def _look_up(self, host: str, port: int, endpoint: Endpoint) -> None:
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            reason = f"{host} has no address: {error}"
            self.guarded("look-up", lambda: endpoint.lost(reason))
        else:
            family, _, _, _, address = found[0]
            self._open(family, address, endpoint)
        self.end_pass()

    def _open(self, family: int, address: object, endpoint: Endpoint) -> None:
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        if family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        try:
            failure = connection.connect_ex(address)  # type: ignore[arg-type]
        except OSError as error:
            failure = error.errno or errno.EIO
        wire = _Wire(self, connection, endpoint, connecting=True)
        if failure not in (0, errno.EINPROGRESS):
            self.later(0, lambda: wire.fail(f"cannot connect: {errno.errorcode.get(failure, failure)}"))


class _Wire:
    """One connection. See ``idemproxy.reactor.Wire``."""

    __slots__ = (
        "_closing",
        "_connecting",
        "_descriptor",
        "_endpoint",
        "_fence",
        "_interest",
        "_is_dirty",
        "_open",
        "_paused",
        "_queued",
        "_reactor",
        "_socket",
        "unsent",
    )

    def __init__(
        self, reactor: TrioReactor, connection: socket.socket, endpoint: Endpoint, *, connecting: bool = False
    ) -> None:
        self._reactor = reactor
        self._socket = connection
        self._endpoint = endpoint
        self._descriptor = connection.fileno()
        self._connecting = connecting
        self._open = True
        self._closing = False
        self._paused = False
        self._is_dirty = False
        self._queued: list[Buffer] = []
        self._fence: Callable[[], bool] | None = None
        self._interest = select.EPOLLOUT if connecting else _READ
        self.unsent = 0
        reactor._sources[self._descriptor] = self
        reactor._epoll.register(self._descriptor, self._interest)

    @property
    def local_host(self) -> str:
        """The address of our side."""
        return str(self._socket.getsockname()[0]) if self._open else ""

    # ------------------------------------------------------------------ from the endpoint
    def send(self, *chunks: Buffer) -> None:
        if not self._open or self._closing:
            return
        self._queued.extend(chunks)
        for chunk in chunks:
            self.unsent += len(chunk)
        if not self._is_dirty:
            self._is_dirty = True
            self._reactor._dirty.append(self)

    def fence(self, may_send: Callable[[], bool]) -> None:
        self._fence = may_send
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)  # also when the process is killed

    def pause(self) -> None:
        self._paused = True
        self._update_interest()

    def resume(self) -> None:
        self._paused = False
        self._update_interest()

    def reset(self) -> None:
        if self._open:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.discard()

    def close(self) -> None:
        self._closing = True
        if not self._queued:
            self.discard()

    # ------------------------------------------------------------------ from the reactor
    def handle(self, events: int) -> None:
        """Do what epoll says is possible."""
        if self._connecting:
            self._finish_connecting()
            return
        if events & select.EPOLLIN and not self._paused:
            self._read()
        elif events & (select.EPOLLRDHUP | _GONE):
            self.fail("the peer hung up")
        if events & select.EPOLLOUT and self._open:
            self.write()

    def write(self) -> None:
        """Give the kernel what is queued; what it does not take waits for the next pass."""
        self._is_dirty = False
        while self._open and self._queued:
            if self._fence is not None and not self._fence():
                self._fenced()
                return
            try:
                taken = self._write_some()
            except BlockingIOError:
                break
            except OSError as error:
                self.fail(f"cannot send: {error.strerror}")
                return
            self._forget(taken)
            if self._fence is not None and not self._fence():
                self._fenced()
                return
        if self._open:
            if self._closing and not self._queued:
                self.discard()
            else:
                self._update_interest()

    def fail(self, reason: str) -> None:
        """End the connection and tell the endpoint."""
        if self._open:
            self.discard()
            if not self._closing:
                self._reactor.guarded("lost", lambda: self._endpoint.lost(reason))

    def discard(self) -> None:
        """Close the socket; nobody is told."""
        if self._open:
            self._open = False
            self._queued = []
            self.unsent = 0
            self._reactor._sources.pop(self._descriptor, None)
            self._reactor._epoll.unregister(self._descriptor)
            self._socket.close()

    # ------------------------------------------------------------------ inside
    def _read(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(f"cannot receive: {error.strerror}")
            return
        if not data:
            self.fail("the peer closed the connection")
        elif not self._closing:
            try:
                self._endpoint.received(data)
            except Exception as error:
                self._reactor._failed("received", error)
                self.fail("error of ours")

    def _write_some(self) -> int:
        queued = self._queued
        if len(queued) == 1:
            return self._socket.send(queued[0])
        if self.unsent <= _JOIN_BYTES_MAX:
            joined = b"".join(queued)
            self._queued = [joined]
            return self._socket.send(joined)
        return self._socket.sendmsg(queued[:_CHUNKS_PER_WRITE_MAX])

    def _forget(self, taken: int) -> None:
        self.unsent -= taken
        queued = self._queued
        if self.unsent == 0:
            queued.clear()
            return
        index = 0
        while taken >= len(queued[index]):
            taken -= len(queued[index])
            index += 1
        del queued[:index]
        if taken:
            queued[0] = memoryview(queued[0])[taken:]

    def _fenced(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.fail("the lease ended before the last byte was sent")

    def _finish_connecting(self) -> None:
        failure = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            self.fail(f"cannot connect: {errno.errorcode.get(failure, failure)}")
            return
        self._connecting = False
        self._update_interest()
        self._reactor.guarded("connected", lambda: self._endpoint.connected(self))

    def _update_interest(self) -> None:
        if not self._open or self._connecting:
            return
        interest = select.EPOLLRDHUP if self._paused else _READ
        if self._queued and not self._is_dirty:
            interest |= select.EPOLLOUT
        if interest != self._interest:
            self._interest = interest
            self._reactor._epoll.modify(self._descriptor, interest)


class _Listener:
    """Accepts connections. ``port`` is the one in use, also where 0 was asked for."""

    def __init__(self, reactor: TrioReactor, listening: socket.socket, accept: Callable[[], Endpoint | None]) -> None:
        self._reactor = reactor
        self._socket = listening
        self._accept = accept
        self._open = True
        self.port: int = listening.getsockname()[1]
        reactor._sources[listening.fileno()] = self
        reactor._epoll.register(listening.fileno(), select.EPOLLIN)

    def handle(self, events: int) -> None:
        """Take what waits. Out of descriptors: rest for a moment, clients wait in the kernel's queue meanwhile."""
        for _ in range(_ACCEPTS_PER_PASS_MAX):
            try:
                connection, _address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._rest()
                    return
                continue  # the connection broke before it was taken
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            endpoint = self._accept()
            if endpoint is None:
                connection.close()
                continue
            wire = _Wire(self._reactor, connection, endpoint)
            if not self._reactor.guarded("connected", lambda e=endpoint, w=wire: e.connected(w)):  # type: ignore[misc]
                wire.discard()

    def discard(self) -> None:
        """Stop listening."""
        if self._open:
            self._open = False
            self._reactor._sources.pop(self._socket.fileno(), None)
            self._reactor._epoll.unregister(self._socket.fileno())
            self._socket.close()

    def _rest(self) -> None:
        self._reactor._epoll.modify(self._socket.fileno(), 0)
        self._reactor.later(_ACCEPT_PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if self._open:
            self._reactor._epoll.modify(self._socket.fileno(), select.EPOLLIN)
