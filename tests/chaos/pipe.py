"""One connection to the relay and the one from it to the server, as a network that misbehaves: resets, silence, bytes
that come late or in part. Lives in the relay's thread only. Knows no protocol: it breaks between chunks of bytes.

A side that was reset while bytes for its peer are held takes these bytes with it, as a kernel that stops sending again.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

READ_BYTES = 128 << 10
UNSENT_BYTES_MAX = 1 << 20
"""Above this the other side is not read any more."""
HALF_SECONDS = 0.005
"""Half a request must have left before the reset, which discards what is queued."""
LATE_SECONDS = 0.3
LATE_ANSWER_SECONDS = 1.0
_RESET = struct.pack("ii", 1, 0)


class Strike(StrEnum):
    """What can be done to the next bytes of a connection."""

    LOST_ANSWER = "lost_answer"
    """The next bytes from the server are swallowed, and both connections are reset."""
    HALF_REQUEST = "half_request"
    """Half of the next bytes from the client arrive, then both connections are reset."""
    LATE_DELIVERY = "late_delivery"
    """The client's connection is reset at its next bytes; these arrive 300 ms later."""


class Loop(Protocol):
    """What a pipe needs of the relay."""

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back once."""

    def register(self, connection: socket.socket, events: int, handler: Callable[[int], None]) -> None:
        """Call ``handler`` at these epoll events from now on."""

    def unregister(self, connection: socket.socket) -> None:
        """Call no handler of this connection any more."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""


class _Side:
    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self.unsent = bytearray()
        self.is_open = True
        self.is_connected = True
        self.is_silent = False
        self.events = 0


class Pipe:
    """Two sockets. ``moved_at``: when bytes last passed."""

    def __init__(
        self,
        loop: Loop,
        client: socket.socket,
        server: tuple[str, int],
        on_end: Callable[[Pipe], None],
        on_strike: Callable[[Strike], None],
    ) -> None:
        self._loop = loop
        self._on_end = on_end
        self._on_strike = on_strike
        self._client = _Side(client)
        self._server = _Side(socket.socket())
        self._server.is_connected = False
        self._strike: Strike | None = None
        self._held = False
        self._ended = False
        self.moved_at = loop.now()
        if self._server.socket.connect_ex(server) not in (0, 115):
            loop.later(0, self.reset)
            return
        self._watch()

    # ------------------------------------------------------------------ faults
    def reset(self) -> None:
        """Drop both connections with resets."""
        self._close(self._client, with_reset=True)
        self._close(self._server, with_reset=True)

    def half_open(self, client_is_cut: bool, seconds: float) -> None:
        """Reset one side; the other hears nothing for so long, then it is reset too."""
        cut, left = (self._client, self._server) if client_is_cut else (self._server, self._client)
        left.is_silent = True
        cut.unsent.clear()
        left.unsent.clear()
        self._close(cut, with_reset=True)
        self._watch()
        self._loop.later(seconds, self.reset)

    def hold(self, seconds: float) -> None:
        """Let nothing pass for so long; what was sent meanwhile arrives afterwards."""
        if not self._held:
            self._held = True
            self._watch()
            self._loop.later(seconds, self._let_go)

    def arm(self, strike: Strike, seconds: float) -> None:
        """Do this to the next bytes, if they come within so long."""
        if self._strike is None and not self._held:
            self._strike = strike
            self._loop.later(seconds, self._disarm)

    # ------------------------------------------------------------------ events
    def _happened(self, side: _Side, events: int) -> None:
        if not side.is_open:
            return
        other = self._other(side)
        if not side.is_connected:
            if side.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.reset()
                return
            side.is_connected = True
        if events & (select.EPOLLERR | select.EPOLLHUP) and (self._held or side.is_silent):
            self._gone(side)
            return
        try:
            if events & select.EPOLLIN:
                self._read(side, other)
            if events & select.EPOLLOUT and side.is_open:
                self._write(side)
        except (ConnectionError, TimeoutError):
            self._gone(side)
            return
        if events & (select.EPOLLERR | select.EPOLLHUP) and side.is_open:
            self._gone(side)
            return
        self._watch()

    def _read(self, side: _Side, other: _Side) -> None:
        try:
            data = side.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._finish(side, other)
            return
        self.moved_at = self._loop.now()
        if self._strike is not None and (side is self._server) == (self._strike is Strike.LOST_ANSWER):
            self._struck(data)
            return
        if other.is_open:
            other.unsent += data
            if other.is_connected:
                self._write(other)

    def _write(self, side: _Side) -> None:
        if side.unsent:
            try:
                sent = side.socket.send(side.unsent)
            except BlockingIOError:
                return
            del side.unsent[:sent]

    def _finish(self, side: _Side, other: _Side) -> None:
        """One side ended in order: so does the other, once it has what was sent before."""
        self._close(side, with_reset=False)
        if other.is_open and other.unsent and other.is_connected:
            with contextlib.suppress(OSError):
                self._write(other)
        self._close(other, with_reset=False)

    def _gone(self, side: _Side) -> None:
        """One side was reset: what it had sent and is still held here is lost. A held peer learns of it later."""
        other = self._other(side)
        self._close(side, with_reset=True)
        if self._held or other.is_silent:
            other.unsent.clear()
            self._watch()
        else:
            self._close(other, with_reset=True)

    def _struck(self, data: bytes) -> None:
        strike, self._strike = self._strike, None
        assert strike is not None
        self._on_strike(strike)
        if strike is Strike.LOST_ANSWER:
            self.reset()
        elif strike is Strike.HALF_REQUEST:
            self._server.unsent += data[: len(data) // 2]
            self._write(self._server)
            self._loop.later(HALF_SECONDS, self.reset)
        else:
            self._close(self._client, with_reset=True)
            self._loop.later(LATE_SECONDS, lambda: self._deliver(data))

    def _deliver(self, data: bytes) -> None:
        if self._server.is_open:
            self._server.unsent += data
            with contextlib.suppress(OSError):
                self._write(self._server)
            self._loop.later(LATE_ANSWER_SECONDS, self.reset)

    def _let_go(self) -> None:
        self._held = False
        if self._client.is_open != self._server.is_open:
            self.reset()
        elif not self._ended:
            self._watch()

    def _disarm(self) -> None:
        self._strike = None

    # ------------------------------------------------------------------ sockets
    def _other(self, side: _Side) -> _Side:
        return self._server if side is self._client else self._client

    def _watch(self) -> None:
        for side in (self._client, self._server):
            if side.is_open:
                self._watch_side(side, self._other(side))

    def _watch_side(self, side: _Side, other: _Side) -> None:
        wanted = 0
        if not self._held and not side.is_silent:
            if not side.is_connected or side.unsent:
                wanted |= select.EPOLLOUT
            if side.is_connected and len(other.unsent) < UNSENT_BYTES_MAX:
                wanted |= select.EPOLLIN
        wanted |= select.EPOLLERR  # never 0: a reset has to be noticed also where nothing is read
        if wanted != side.events:
            side.events = wanted
            self._loop.register(side.socket, wanted, lambda events: self._happened(side, events))

    def _close(self, side: _Side, *, with_reset: bool) -> None:
        if side.is_open:
            side.is_open = False
            self._loop.unregister(side.socket)
            if with_reset:
                with contextlib.suppress(OSError):
                    side.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            side.socket.close()
        if not self._client.is_open and not self._server.is_open and not self._ended:
            self._ended = True
            self._on_end(self)
