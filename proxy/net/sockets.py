"""Sockets in one epoll: a connection that reads once and writes once per pass, and a listener. No trio, no Kafka. Linux
only: a peer that disconnects while it is not read from is noticed by EPOLLRDHUP (rule R17).
"""

from __future__ import annotations

import errno
import select
import socket
import struct
from collections.abc import Callable
from typing import Protocol

from ...reactor import Accept, Buffer, Endpoint, Peer, Timer, Wire
from ..admission.connection_quotas import AdmittedConnection, ConnectionQuotas
from ..limits import RECEIVE_BYTES, RECEIVE_OF_ONE_BYTES_MAX
from .socket_errors import why_broken, why_not_connected

_READ = select.EPOLLIN | select.EPOLLRDHUP
_GONE = select.EPOLLHUP | select.EPOLLERR
_ACCEPTS_PER_PASS_MAX = 64
_ACCEPT_PAUSE_SECONDS = 0.1
_CHUNKS_PER_WRITE_MAX = 512
"""Below the kernel's IOV_MAX of 1024."""
_LAST_READS_MAX = 32
"""2 MiB of a connection that was not read from: the kernel seldom holds more, and all others wait meanwhile."""
_JOIN_BYTES_MAX = 16 * 1024
"""Small writes are joined, large ones are passed as they are: joining costs 60 us per MB."""
WRITE_BYTES_MAX = 1024 * 1024
"""Written to one connection in one pass, plus what the last call took beyond it. With a peer that reads as fast as we
write, an answer of 60 MB would otherwise leave in one step of 60 ms."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Source(Protocol):
    """Something that epoll watches."""

    def handle(self, events: int) -> None: ...

    def discard(self) -> None: ...


class Traffic:
    """Bytes on connections, as the kernel took and gave them."""

    __slots__ = ("received_bytes", "sent_bytes")

    def __init__(self) -> None:
        self.received_bytes = self.sent_bytes = 0


class Hub(Protocol):
    """What sockets need of the event loop."""

    client_traffic: Traffic

    def watch(self, descriptor: int, source: Source, events: int) -> None: ...

    def change(self, descriptor: int, events: int) -> None: ...

    def unwatch(self, descriptor: int) -> None: ...

    def mark_dirty(self, wire: SocketWire) -> None: ...

    def guarded(self, what: str, callback: Callable[[], None]) -> bool: ...

    def failed(self, what: str, error: Exception) -> None: ...

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...

    def at_flush(self, callback: Callable[[], None]) -> None: ...


class _Nobody:
    """The endpoint of a connection that has ended; without it the connection and its endpoint would refer to each
    other."""

    def connected(self, wire: Wire) -> None:
        """Nothing to do: the connection has ended."""

    def received(self, data: bytes) -> None:
        """Nothing to do: the connection has ended."""

    def lost(self, reason: str) -> None:
        """Nothing to do: that is known."""


_NOBODY = _Nobody()


class SocketWire:
    """One connection. See ``idemproxy.reactor.Wire``."""

    __slots__ = (
        "_closing",
        "_connecting",
        "_descriptor",
        "_end_look",
        "_endpoint",
        "_fence",
        "_has_heard_all",
        "_interest",
        "_is_dirty",
        "_look",
        "_open",
        "_paused",
        "_queued",
        "_reactor",
        "_receive_bytes",
        "_socket",
        "_written",
        "admitted",
        "traffic",
        "unsent",
    )

    def __init__(
        self, reactor: Hub, connection: socket.socket, endpoint: Endpoint, *, connecting: bool = False
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
        self._look: Callable[[], None] | None = None
        self._end_look: Callable[[], bool] | None = None
        self._has_heard_all = False
        """The peer sends nothing more, and may still read."""
        self._written: Callable[[], None] | None = None
        self._receive_bytes = RECEIVE_BYTES
        self._interest = select.EPOLLOUT if connecting else _READ
        self.unsent = 0
        self.admitted: AdmittedConnection | None = None
        """The admission of a client's connection, to be given back at its end."""
        self.traffic: Traffic | None = None
        """Where the bytes of a client's connection are counted."""
        reactor.watch(self._descriptor, self, self._interest)

    @property
    def local_host(self) -> str:
        """The address of this side."""
        return str(self._socket.getsockname()[0]) if self._open else ""

    @property
    def is_connecting(self) -> bool:
        """Is the connection still being opened?"""
        return self._connecting

    def hand_over(self, endpoint: Endpoint) -> None:
        """Call this endpoint from now on."""
        self._endpoint = endpoint

    # ------------------------------------------------------------------ from the endpoint
    def send(self, *chunks: Buffer) -> None:
        if not self._open or self._closing:
            return
        self._queued += chunks
        self.unsent += sum(map(len, chunks))
        if not self._is_dirty:
            self._is_dirty = True
            self._reactor.mark_dirty(self)

    def fence(self, may_send: Callable[[], bool]) -> None:
        self._fence = may_send
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)  # also when the process is killed

    def before_reading(self, look: Callable[[], None]) -> None:
        self._look = look

    def after_writing(self, look: Callable[[], None]) -> None:
        self._written = look

    def before_end(self, look: Callable[[], bool]) -> None:
        self._end_look = look

    def expect(self, missing_bytes: int) -> None:
        self._receive_bytes = max(RECEIVE_BYTES, min(missing_bytes, RECEIVE_OF_ONE_BYTES_MAX))

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
        """Do what epoll reports as possible."""
        if self._connecting:
            self._finish_connecting()
            return
        if events & select.EPOLLIN and not self._paused:
            if self._look is not None:
                self._look()
            if self._open and not self._paused:
                self._read()
        elif events & (select.EPOLLRDHUP | _GONE):
            if self._paused and not self._has_heard_all:
                self._hear_out()
            if events & _GONE or not self._has_heard_all:
                self.fail("the peer hung up")
        if events & select.EPOLLOUT and self._open:
            self.write()

    def write(self) -> None:
        """Pass the queued bytes to the kernel; what it does not take waits for the next pass."""
        self._is_dirty = False
        fence = self._fence
        taken_bytes = 0
        while self._open and self._queued and taken_bytes < WRITE_BYTES_MAX:
            if fence is not None and not fence():
                self._fenced()
                return
            try:
                taken = self._write_some()
            except BlockingIOError:
                break
            except OSError as error:
                self.fail(f"cannot send: {error.strerror}")
                return
            taken_bytes += taken
            if taken == self.unsent:
                self._queued.clear()
                self.unsent = 0
            else:
                self._forget(taken)
            if fence is not None and not fence():
                self._fenced()
                return
        if self.traffic is not None:
            self.traffic.sent_bytes += taken_bytes
        if self._open:
            if self._closing and not self._queued:
                self.discard()
                return
            self._update_interest()
            if self._written is not None and not self.unsent:
                self._written()

    def fail(self, reason: str) -> None:
        """End the connection and call the endpoint."""
        if self._open:
            endpoint = self._endpoint
            self.discard()
            if not self._closing:
                self._reactor.guarded("lost", lambda: endpoint.lost(reason))

    def discard(self) -> None:
        """Close the socket without calling the endpoint."""
        if self._open:
            self._open = False
            self._queued = []
            self.unsent = 0
            self._endpoint = _NOBODY
            self._fence = self._look = self._written = self._end_look = None
            self._reactor.unwatch(self._descriptor)
            self._socket.close()
            if self.admitted is not None:
                self.admitted.end()
                self.admitted = None

    # ------------------------------------------------------------------ inside
    def _hear_out(self) -> None:
        """Read what the peer sent before it disconnected and was not read yet; the end comes after that."""
        for _ in range(_LAST_READS_MAX):
            if not self._open or self._has_heard_all:
                return
            self._receive_bytes = RECEIVE_BYTES
            self._read()

    def _read(self) -> None:
        receive_bytes, self._receive_bytes = self._receive_bytes, RECEIVE_BYTES
        try:
            data = self._socket.recv(receive_bytes)
        except BlockingIOError:
            return
        except OSError as error:
            self.fail(f"cannot receive: {why_broken(error)}")
            return
        if self.traffic is not None:
            self.traffic.received_bytes += len(data)
        if not data:
            if self._end_look is not None and not self._closing and self._end_look():
                self._has_heard_all = True
                self._update_interest()
                return
            self.fail("the peer closed the connection")
        elif not self._closing:
            try:
                self._endpoint.received(data)
            except Exception as error:
                self._reactor.failed("received", error)
                self.fail("internal error")

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
            self.fail(f"cannot connect: {why_not_connected(failure)}")
            return
        self._connecting = False
        self._update_interest()
        self._opened()

    def _opened(self) -> None:
        self._reactor.guarded("connected", lambda: self._endpoint.connected(self))

    def _update_interest(self) -> None:
        if not self._open or self._connecting:
            return
        interest = 0 if self._has_heard_all else select.EPOLLRDHUP if self._paused else _READ
        if self._queued and not self._is_dirty:
            interest |= select.EPOLLOUT
        if interest != self._interest:
            self._interest = interest
            self._reactor.change(self._descriptor, interest)


class ListeningSocket:
    """Accepts connections. ``port`` is the one in use, also where 0 was asked for."""

    def __init__(
        self,
        reactor: Hub,
        listening: socket.socket,
        accept: Accept,
        quotas: ConnectionQuotas | None = None,
        requires_authentication: bool = False,
    ) -> None:
        """``quotas`` decide which clients are admitted, and when; ``requires_authentication``: clients have to
        authenticate first."""
        self._reactor = reactor
        self._socket = listening
        self._quotas = quotas
        self._requires_authentication = requires_authentication
        self.accept = accept
        self._open = True
        self.port: int = listening.getsockname()[1]
        reactor.watch(listening.fileno(), self, select.EPOLLIN)

    def handle(self, events: int) -> None:
        """Accept the waiting connections. With too many, or no descriptors left, pause for a moment; clients wait in
        the kernel's queue meanwhile."""
        quotas = self._quotas
        for _ in range(_ACCEPTS_PER_PASS_MAX):
            if quotas is not None and quotas.wait_seconds():
                self._rest()
                return
            try:
                connection, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    if quotas is not None:
                        quotas.make_room()
                    self._rest()
                    return
                continue  # the connection broke before it was accepted
            host = str(address[0])
            admitted = None if quotas is None else quotas.enter(host, self._requires_authentication)
            if quotas is not None and admitted is None:
                connection.close()
                continue
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._welcome(connection, host, admitted)

    def _welcome(self, connection: socket.socket, host: str, admitted: AdmittedConnection | None) -> None:
        endpoint = self.accept(Peer(host, admitted=admitted))
        if endpoint is None:
            connection.close()
            if admitted is not None:
                admitted.end()
            return
        wire = SocketWire(self._reactor, connection, endpoint)
        wire.traffic = self._reactor.client_traffic
        if admitted is not None:
            wire.admitted, admitted.hang_up = admitted, wire.fail
        if not self._reactor.guarded("connected", lambda: endpoint.connected(wire)):
            wire.discard()

    def discard(self) -> None:
        """Stop listening."""
        if self._open:
            self._open = False
            self._reactor.unwatch(self._socket.fileno())
            self._socket.close()

    def _rest(self) -> None:
        self._reactor.change(self._socket.fileno(), 0)
        self._reactor.later(_ACCEPT_PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        if self._open:
            self._reactor.change(self._socket.fileno(), select.EPOLLIN)
