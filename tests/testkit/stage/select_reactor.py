"""A small reactor on real sockets for tests of one endpoint: same contract as the shipped one, no trio, run by hand.

It owns sockets, timers and the order of a pass. ``run_until`` turns it; nothing happens between two calls.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import selectors
import socket
import struct
import time
from collections.abc import Callable

from idemproxy.reactor import Address, Buffer, Endpoint

RECEIVE_BYTES = 64 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class SelectTimer:
    """See ``idemproxy.reactor.Timer``."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget it."""
        self.callback = None


class SelectReactor:
    """Implements ``idemproxy.reactor.Reactor``. A context manager: all sockets are closed at its end."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, SelectTimer]] = []
        self._order = itertools.count()
        self._flushes: list[Callable[[], None]] = []
        self.wires: set[SelectWire] = set()

    def __enter__(self) -> SelectReactor:
        return self

    def __exit__(self, *error: object) -> None:
        for wire in list(self.wires):
            wire.discard()
        self._selector.close()

    def now(self) -> float:
        """Seconds, which continue while the machine sleeps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def later(self, seconds: float, callback: Callable[[], None]) -> SelectTimer:
        """Call back once after so many seconds."""
        timer = SelectTimer(callback)
        heapq.heappush(self._timers, (self.now() + seconds, next(self._order), timer))
        return timer

    def at_flush(self, callback: Callable[[], None]) -> None:
        """Call back at the end of this pass."""
        self._flushes.append(callback)

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        """Open a connection; hosts are addresses of this machine."""
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)
        code = connection.connect_ex(address)
        SelectWire(self, connection, endpoint, code)

    def run_until(self, done: Callable[[], bool], seconds: float = 30.0) -> None:
        """Turn until ``done``; fails loudly when that takes longer than ``seconds``."""
        end = self.now() + seconds
        self._end_pass()
        while not done():
            assert self.now() < end, f"nothing came of it within {seconds} s"
            wait = min(0.05, max(0.0, self._timers[0][0] - self.now())) if self._timers else 0.05
            for key, events in self._selector.select(wait):
                wire: SelectWire = key.data
                wire.handle(events)
            while self._timers and self._timers[0][0] <= self.now():
                callback = heapq.heappop(self._timers)[2].callback
                if callback is not None:
                    callback()
            self._end_pass()

    def run_for(self, seconds: float) -> None:
        """Turn for so many seconds."""
        end = self.now() + seconds
        self.run_until(lambda: self.now() >= end, seconds + 10)

    def watch(self, wire: SelectWire, events: int) -> None:
        """Wait for these events of the wire's socket."""
        if wire in self.wires:
            self._selector.modify(wire.socket, events, wire)
        else:
            self.wires.add(wire)
            self._selector.register(wire.socket, events, wire)

    def forget(self, wire: SelectWire) -> None:
        """The wire's socket is about to be closed."""
        self.wires.discard(wire)
        self._selector.unregister(wire.socket)

    def _end_pass(self) -> None:
        while self._flushes:
            flushes, self._flushes = self._flushes, []
            for flush in flushes:
                flush()
        for wire in list(self.wires):
            wire.write()


class SelectWire:
    """See ``idemproxy.reactor.Wire``; fences and pauses are for other tests."""

    def __init__(self, reactor: SelectReactor, connection: socket.socket, endpoint: Endpoint, code: int) -> None:
        self.socket = connection
        self.writes = 0
        self._reactor = reactor
        self._endpoint = endpoint
        self._queued = bytearray()
        self._is_open = True
        self._is_connected = False
        self._is_closing = False
        if code in (0, errno.EINPROGRESS):
            reactor.watch(self, selectors.EVENT_WRITE)
        else:
            self._is_open = False
            connection.close()
            reactor.later(0, lambda: endpoint.lost(f"cannot connect: {code}"))

    @property
    def local_host(self) -> str:
        """The address of our side."""
        return str(self.socket.getsockname()[0])

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken."""
        return len(self._queued)

    def send(self, *chunks: Buffer) -> None:
        """Queue bytes for the end of this pass."""
        for chunk in chunks:
            self._queued += chunk

    def hand_over(self, endpoint: Endpoint) -> None:
        """From now on this endpoint gets the calls."""
        self._endpoint = endpoint

    def fence(self, may_send: Callable[[], bool]) -> None:
        """Not needed by the endpoints that are tested with this reactor."""
        raise AssertionError("this reactor has no fences")

    def before_reading(self, look: Callable[[], None]) -> None:
        """Not needed by the endpoints that are tested with this reactor."""
        raise AssertionError("this reactor asks nobody")

    def after_writing(self, look: Callable[[], None]) -> None:
        """Not needed by the endpoints that are tested with this reactor."""
        raise AssertionError("this reactor tells nobody")

    def before_end(self, look: Callable[[], bool]) -> None:
        """Not used."""

    def expect(self, missing_bytes: int) -> None:
        """It reads as much at once as always."""

    def pause(self) -> None:
        """Not needed by the endpoints that are tested with this reactor."""
        raise AssertionError("this reactor has no pauses")

    def resume(self) -> None:
        """Not needed by the endpoints that are tested with this reactor."""
        raise AssertionError("this reactor has no pauses")

    def reset(self) -> None:
        """Drop the connection."""
        if self._is_open:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.discard()

    def close(self) -> None:
        """Close once all is sent."""
        self._is_closing = True

    def handle(self, events: int) -> None:
        """Do what is possible now."""
        if not self._is_open:
            return
        if not self._is_connected:
            code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._fail(f"cannot connect: {code}")
                return
            self._is_connected = True
            self._reactor.watch(self, selectors.EVENT_READ)
            self._endpoint.connected(self)
        elif events & selectors.EVENT_READ:
            self._read()

    def write(self) -> None:
        """Give the kernel what is queued."""
        if not self._is_connected or not self._is_open:
            return
        if self._queued:
            try:
                self.writes += 1
                del self._queued[: self.socket.send(self._queued)]
            except BlockingIOError:
                pass
            except OSError as error:
                self._fail(f"cannot send: {error.strerror}")
                return
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            self._reactor.watch(self, both if self._queued else selectors.EVENT_READ)
        if self._is_closing and not self._queued:
            self.discard()

    def discard(self) -> None:
        """Close the socket; the endpoint is not called."""
        if self._is_open:
            self._is_open = False
            self._reactor.forget(self)
            self.socket.close()

    def _read(self) -> None:
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except OSError as error:
            self._fail(f"cannot receive: {error.strerror}")
            return
        if data:
            self._endpoint.received(data)
        else:
            self._fail("the peer closed the connection")

    def _fail(self, reason: str) -> None:
        self.discard()
        if not self._is_closing:
            self._endpoint.lost(reason)
