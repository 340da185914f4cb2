"""Connections that speak TLS: between the socket of ``sockets.py`` and an endpoint stands a TLS connection without a
socket of its own (``ssl.SSLObject`` over two memory buffers). Endpoints see no difference.

Handshakes have a time limit, few are open at once, and there is one step per pass: its arithmetic takes a millisecond
in which others wait. What counts as unsent, and what a fence guards, are the encrypted bytes (rule R4)."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from contextlib import suppress
from typing import cast

from ...reactor import Accept, Buffer, Endpoint, Peer, Timer, Wire
from .. import limits
from ..admission.connection_quotas import AdmittedConnection, ConnectionQuotas
from ..events import Report, TlsRefused
from .socket_errors import why_broken
from .sockets import WRITE_BYTES_MAX, Hub, ListeningSocket, SocketWire
from .tls import TlsObject, TlsSide, explain, principal_of

_RECORD_BYTES = 16 * 1024
"""The largest record of TLS. Larger pieces are of no use, and the memory buffers never shrink again."""
_RECEIVE_BYTES = 17 * 1024
"""Taken from the kernel at once: a whole record with what TLS adds."""
_SEALED_BYTES = 64 * 1024
"""Bytes that are encrypted ahead of what the kernel takes."""
_HANDSHAKE = 0x16


class Handshakes:
    """The unfinished handshakes of one reactor, oldest first."""

    def __init__(self) -> None:
        self._accepted: dict[TlsWire, None] = {}
        self._has_stepped = False

    def take_turn(self, reactor: Hub) -> bool:
        """May a handshake do a step now? One in each pass; the bytes of the others wait in the kernel and wake the next
        pass."""
        if self._has_stepped:
            return False
        self._has_stepped = True
        reactor.at_flush(self._pass_ends)
        return True

    def _pass_ends(self) -> None:
        self._has_stepped = False

    def begun(self, wire: TlsWire) -> None:
        """A client begins a handshake. If too many are open, the one that has been open for longest is closed: an
        honest client needs only a moment, so clients that hold their handshakes open lock no other out."""
        self._accepted[wire] = None
        if len(self._accepted) > limits.TLS_HANDSHAKES_MAX:
            next(iter(self._accepted)).fail("too many handshakes are not finished, and this is the oldest")

    def ended(self, wire: TlsWire) -> None:
        """A handshake is finished, or has failed."""
        self._accepted.pop(wire, None)


class TlsWire(SocketWire):
    """One connection over TLS. ``connected`` is called after the handshake. See ``idemproxy.reactor.Wire``."""

    __slots__ = (
        "_finishing",
        "_handshakes",
        "_heard",
        "_incoming",
        "_of_tls",
        "_outgoing",
        "_plain",
        "_timer",
        "_tls",
        "_unheard",
        "_waiting_plain",
    )

    def __init__(
        self,
        reactor: Hub,
        connection: socket.socket,
        endpoint: Endpoint,
        handshakes: Handshakes,
        side: TlsSide,
        host: str | None = None,
    ) -> None:
        """``host``: the server to connect to; None: the peer is a client. Raises ValueError for a host that can be no
        server's name."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if host is None else side.server_name(host)
        made = side.context.wrap_bio(self._incoming, self._outgoing, server_side=host is None, server_hostname=name)
        self._tls = cast(TlsObject, made)
        self._handshakes: Handshakes | None = handshakes
        self._heard = False
        self._unheard = self._of_tls = 0
        """Bytes that have arrived since the endpoint last got any; and unsent bytes that TLS itself has written, such
        as answers to key updates."""
        self._plain: deque[Buffer] = deque()
        self._waiting_plain = 0
        self._finishing = False
        self._timer: Timer | None = None
        super().__init__(reactor, connection, endpoint, connecting=host is not None)
        if host is None:
            handshakes.begun(self)
            self._begin()

    @property
    def tls(self) -> TlsObject:
        """The TLS connection: it knows who the peer is."""
        return self._tls

    @property
    def has_been_heard(self) -> bool:
        """Has the peer sent anything at all?"""
        return self._heard

    # ------------------------------------------------------------------ from the endpoint
    def send(self, *chunks: Buffer) -> None:
        if not self._open or self._finishing:
            return
        self._plain += chunks
        size = sum(map(len, chunks))
        self._waiting_plain += size
        self.unsent += size
        self._want_write()

    def close(self) -> None:
        self._finishing = True
        if self._open:
            self._want_write()

    # ------------------------------------------------------------------ from the reactor
    def write(self) -> None:
        """Encrypt what is queued, piece by piece as the kernel takes it."""
        self._is_dirty = False
        sealed_bytes = 0
        while self._open:
            try:
                has_more = bool(self._queued) or self._seal()
            except ssl.SSLError as error:  # it has begun a message of TLS itself, and has to finish that first
                self.fail(f"TLS: nothing can be sent: {explain(error)}")
                return
            if not has_more:
                if self._finishing and not self._closing:
                    self._say_goodbye()
                    continue
                self._update_interest()
                return
            if sealed_bytes >= WRITE_BYTES_MAX:  # the rest of the queue leaves in the next pass
                self._update_interest()
                return
            super().write()
            if self._queued:
                return
            sealed_bytes += _SEALED_BYTES

    def fail(self, reason: str) -> None:
        """End the connection and call the endpoint."""
        if self._finishing:
            self.discard()
        else:
            super().fail(reason)

    def discard(self) -> None:
        """Close the socket without calling the endpoint."""
        self._end_handshake()
        self._plain.clear()
        self._waiting_plain = 0
        super().discard()

    # ------------------------------------------------------------------ reading
    def _read(self) -> None:
        if self._handshakes is not None and not self._handshakes.take_turn(self._reactor):
            return
        pieces: list[bytes] = []
        receive_bytes, self._receive_bytes = self._receive_bytes, limits.RECEIVE_BYTES
        # All but the last byte of a record may wait here already, and its last byte then yields the whole record: so
        # room for one is left in what the endpoint gets at once.
        taken_bytes_max = receive_bytes - _RECORD_BYTES
        have, taken, reason, pending = 0, 0, "", self._outgoing.pending
        while not reason and taken < taken_bytes_max:
            size = min(_RECEIVE_BYTES, taken_bytes_max - taken)
            try:
                data = self._socket.recv(size)
            except BlockingIOError:
                break
            except OSError as error:
                reason = f"cannot receive: {why_broken(error)}"
                break
            if not data:
                reason = self._end_of_stream()
                break
            self._incoming.write(data)
            taken += len(data)
            if self.traffic is not None:
                self.traffic.received_bytes += len(data)
            if self._handshakes is not None and not self._shake(data):
                return  # else the bytes after the handshake are for the endpoint
            had, (have, reason) = have, self._decrypt(pieces, have)
            if len(data) < size or have == had:
                break
        reason = reason or self._judge(taken, have, pending)
        if pieces and not self._finishing:
            try:
                self._endpoint.received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            except Exception as error:
                self._reactor.failed("received", error)
                reason = "internal error"
        if reason:
            self.fail(reason)
        elif self._open and self._outgoing.pending:
            self._want_write()

    def _judge(self, taken: int, have: int, pending: int) -> str:
        """Return what is wrong with the peer's use of TLS, "" if nothing. TLS has messages of its own (new keys, and
        answers to them); an endless stream of these would cost as much memory and time as the peer likes. ``pending``:
        bytes that waited before this."""
        self._unheard = 0 if have else self._unheard + taken
        self._of_tls = (self._of_tls if self.unsent or pending else 0) + self._outgoing.pending - pending
        is_too_much = self._unheard > limits.BACKLOG_BYTES or self._of_tls > limits.BACKLOG_BYTES
        return "the peer sends messages of TLS itself without end" if is_too_much else ""

    def _decrypt(self, pieces: list[bytes], have: int) -> tuple[int, str]:
        """Decrypt all that can be read now; return its size and, at the end of the connection, the reason."""
        try:
            while self._incoming.pending:
                piece = self._tls.read(_RECORD_BYTES)
                if not piece:
                    return have, "the peer closed the connection"
                pieces.append(piece)
                have += len(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            return have, "the peer closed the connection"
        except ssl.SSLError as error:
            return have, f"TLS: {explain(error)}"
        return have, ""

    def _end_of_stream(self) -> str:
        if self._handshakes is None or not self._is_client:
            return "the peer closed the connection"
        return "the peer closed the connection during the TLS handshake; does it speak TLS on this port?"

    @property
    def _is_client(self) -> bool:
        return not self._tls.server_side

    # ------------------------------------------------------------------ writing
    def _want_write(self) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self._reactor.mark_dirty(self)

    def _seal(self) -> bool:
        """Queue the next encrypted bytes; return False if there are none."""
        sealed: list[bytes] = []
        taken = 0
        while self._waiting_plain and taken < _SEALED_BYTES:
            piece = self._next_plain()
            taken += len(piece)
            self._waiting_plain -= len(piece)
            written = self._tls.write(piece)
            assert written == len(piece)
            sealed.append(self._outgoing.read())
        if self._outgoing.pending:
            sealed.append(self._outgoing.read())
        if not sealed:
            return False
        joined = sealed[0] if len(sealed) == 1 else b"".join(sealed)
        self._queued.append(joined)
        self.unsent += len(joined) - taken
        return True

    def _next_plain(self) -> Buffer:
        """Take what one record holds."""
        plain = self._plain
        if self._waiting_plain <= _RECORD_BYTES:
            joined = b"".join(plain) if len(plain) > 1 else plain[0]
            plain.clear()
            return joined
        gathered: list[Buffer] = []
        room = _RECORD_BYTES
        while room:
            chunk = plain.popleft()
            if len(chunk) > room:
                view = memoryview(chunk)
                plain.appendleft(view[room:])
                chunk = view[:room]
            gathered.append(chunk)
            room -= len(chunk)
        return gathered[0] if len(gathered) == 1 else b"".join(gathered)

    def _forget(self, taken: int) -> None:
        self.unsent -= taken
        left = memoryview(self._queued[0])[taken:]
        self._queued = [left] if left else []

    def _say_goodbye(self) -> None:
        """All was sent: tell the peer that this is the end, and close without waiting for its answer."""
        with suppress(ssl.SSLError):  # it wants to read the peer's goodbye
            self._tls.unwrap()
        self._seal()
        super().close()

    # ------------------------------------------------------------------ the handshake
    def _opened(self) -> None:
        self._begin()
        self._shake(b"")

    def _begin(self) -> None:
        self._timer = self._reactor.later(limits.TLS_HANDSHAKE_SECONDS, self._too_slow)

    def _too_slow(self) -> None:
        self.fail(f"the TLS handshake was not finished within {limits.TLS_HANDSHAKE_SECONDS:.0f} s")

    def _shake(self, data: bytes) -> bool:
        """Do one step of the handshake. Returns True when it is finished and the connection is open."""
        if data and not self._heard:
            self._heard = True
            if data[0] != _HANDSHAKE and not self._is_client:
                # No alert: a Kafka client would read it as an answer of 352 MB.
                self.fail("the client does not speak TLS, and this listener speaks nothing else")
                return False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.write()
            return False
        except ssl.SSLError as error:
            self.write()  # the alert that tells the peer why
            self.fail(f"TLS handshake: {explain(error)}")
            return False
        self._end_handshake()
        self.write()
        if self._open and not self._reactor.guarded("connected", lambda: self._endpoint.connected(self)):
            self.discard()
        return self._open

    def _end_handshake(self) -> None:
        if self._handshakes is not None:
            self._handshakes.ended(self)
            self._handshakes = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Newcomer:
    """The endpoint of a client's connection until its identity is known."""

    def __init__(self, listener: TlsListener, host: str, admitted: AdmittedConnection | None) -> None:
        self._listener = listener
        self._host = host
        self._admitted = admitted
        self.wire: TlsWire | None = None

    def connected(self, wire: Wire) -> None:
        """The handshake is done."""
        assert isinstance(wire, TlsWire)
        endpoint = self._listener.accept(Peer(self._host, wire.tls.asked_name, principal_of(wire.tls), self._admitted))
        if endpoint is None:
            wire.close()
        else:
            wire.hand_over(endpoint)
            endpoint.connected(wire)

    def received(self, data: bytes) -> None:
        """Drop the bytes: the connection was refused."""

    def lost(self, reason: str) -> None:
        """The handshake failed. A peer that sent nothing only checked whether something listens here; that is not
        reported."""
        if self.wire is not None and self.wire.has_been_heard:
            self._listener.report(TlsRefused(self._host, reason))


class TlsListener(ListeningSocket):
    """Accepts connections over TLS. ``accept`` is asked after the handshake."""

    def __init__(
        self,
        reactor: Hub,
        listening: socket.socket,
        accept: Accept,
        side: TlsSide,
        shakes: Handshakes,
        report: Report,
        quotas: ConnectionQuotas | None = None,
        requires_authentication: bool = False,
    ) -> None:
        self.report = report
        self._side = side
        self._handshakes = shakes
        super().__init__(reactor, listening, accept, quotas, requires_authentication)

    def _welcome(self, connection: socket.socket, host: str, admitted: AdmittedConnection | None) -> None:
        newcomer = _Newcomer(self, host, admitted)

        def begin() -> None:
            newcomer.wire = wire = TlsWire(self._reactor, connection, newcomer, self._handshakes, self._side)
            wire.traffic = self._reactor.client_traffic
            if admitted is not None:
                wire.admitted, admitted.hang_up = admitted, wire.fail

        if not self._reactor.guarded("accept", begin):
            connection.close()
            if admitted is not None:
                admitted.end()
