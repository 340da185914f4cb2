"""Blocking connections: sockets and TLS, opened until they are ready for requests, and the runner of flows."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..codecs import messages
from ..producing.cluster import Address
from ..producing.errors import ClientError
from . import limits
from .asking import Ask, AskAtOnce, Disconnect, Effect, Offered, Sleep
from .errors import ConnectionFailed
from .link import Link, decode_answer
from .security import login_maker
from .settings import ClientSettings

Result = TypeVar("Result")


class Connection:
    """A ready link over a socket."""

    def __init__(self, connected: socket.socket, link: Link) -> None:
        self.socket = connected
        self.link = link

    @property
    def has_bytes(self) -> bool:
        """Whether bytes wait inside of TLS, where no poll sees them."""
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0

    def send(self, data: bytes, deadline: float) -> None:
        """Send all of it. Raises ConnectionFailed."""
        with _as_connection_failed():
            self.socket.settimeout(_seconds_until(deadline))
            self.socket.sendall(data)

    def receive(self, deadline: float) -> bytes:
        """Return received bytes; empty: the server has closed the connection. Raises ConnectionFailed."""
        with _as_connection_failed():
            self.socket.settimeout(_seconds_until(deadline))
            return self.socket.recv(limits.RECEIVE_BYTES)

    def receive_some(self) -> bytes | None:
        """Return what is there, after a poll has reported the socket readable; None: that was only a part of a TLS
        record. Empty: the server has closed the connection. Raises ConnectionFailed."""
        with _as_connection_failed():
            self.socket.setblocking(False)
            try:
                return self.socket.recv(limits.RECEIVE_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return None

    def abort(self) -> None:
        """End the connection while another thread uses it."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)  # TCP's: SSLSocket.shutdown would drop its TLS state

    def close(self) -> None:
        """Close it."""
        self.socket.close()


class Connector:
    """Opens connections that are ready for requests."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._begin_login = login_maker(settings.sasl, settings.client_id)

    def _link(self) -> Link:
        settings = self.settings
        return Link(settings.client_id, self._begin_login, reads_old_brokers=settings.reads_old_brokers)

    def connect(self, address: Address, deadline: float) -> Connection:
        """Return a connection after login and ApiVersions. Raises ConnectionFailed (AuthenticationFailed is one),
        UnsupportedServer."""
        with _as_connection_failed():
            connected = socket.create_connection(address, _seconds_until(deadline))
        try:
            with _as_connection_failed():
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self.settings.tls is not None:
                    connected.settimeout(_seconds_until(deadline))
                    connected = self.settings.tls.wrap_socket(connected, server_hostname=address[0])
            connection = Connection(connected, self._link())
            connection.send(connection.link.start(), deadline)
            while not connection.link.is_ready:
                try:
                    data = connection.receive(deadline)
                except ConnectionFailed as error:
                    raise connection.link.explain_loss(str(error)) from None
                if not data:
                    raise connection.link.explain_loss("the server closed the connection")
                if reply := connection.link.greeted(data):
                    connection.send(reply, deadline)
        except BaseException:
            connected.close()
            raise
        return connection


class Connections:
    """Connections for questions, one for each server, and the runner of flows. For one thread at a time."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._open: dict[Address, Connection] = {}

    def close(self) -> None:
        """Close them."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def run(
        self, flow: Coroutine[Effect, Any, Result], until: float | None = None, seconds_each: float = float("inf")
    ) -> Result:
        """Return what the flow returns. No request is waited for beyond the moment ``until``, nor for longer than
        ``seconds_each``, so that a silent server leaves time for the next one. Raises what the flow raises."""
        try:
            effect = flow.send(None)
            while True:
                try:
                    answer = self._perform(effect, until, seconds_each)
                except ClientError as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            flow.close()

    def _perform(self, effect: Effect, until: float | None, seconds_each: float) -> Any:
        if isinstance(effect, Ask):
            return self._ask(effect, (effect.fields,), earlier(time.monotonic() + seconds_each, until))[0]
        if isinstance(effect, AskAtOnce):
            return self._ask(effect, effect.requests, earlier(time.monotonic() + seconds_each, until))
        if isinstance(effect, Offered):
            connection = self._open[effect.address] = self._taken(effect.address, until)
            return connection.link.versions
        if isinstance(effect, Disconnect):
            if (kept := self._open.pop(effect.address, None)) is not None:
                kept.close()
            return None
        if isinstance(effect, Sleep):
            time.sleep(effect.seconds)
            return None
        return time.monotonic()

    def _ask(self, ask: Ask | AskAtOnce, requests: Sequence[Mapping[str, Any]], until: float | None) -> list[Any]:
        connection = self._taken(ask.address, until)
        try:
            link = connection.link
            version = link.version_of(ask.api_key, *ask.versions, ask.what)
            bodies = [messages.encode_request(ask.api_key, version, **fields) for fields in requests]
            frames = [link.request(ask.api_key, version, body)[1] for body in bodies]
            connection.send(b"".join(frames), self._deadline(until))
            answers: list[Any] = []
            while len(answers) < len(frames):
                data = connection.receive(self._deadline(until))
                if not data:
                    raise ConnectionFailed("the server closed the connection")
                answers += map(decode_answer, link.received(data))
            self._open[ask.address] = connection
            return answers
        finally:
            if self._open.get(ask.address) is not connection:
                connection.close()

    def _deadline(self, until: float | None) -> float:
        """Return the end of a step. Each part of an answer that arrives begins a new one: a large one may take long."""
        return earlier(time.monotonic() + self._connector.settings.request_seconds_max, until)

    def _taken(self, address: Address, until: float | None) -> Connection:
        """Return the connection to a server, which is no longer kept for the next question. Raises as ``connect``."""
        connection = self._open.pop(address, None)
        if connection is not None:
            return connection
        return self._connector.connect(address, earlier(time.monotonic() + limits.CONNECT_SECONDS_MAX, until))


def earlier(one: float, other: float | None) -> float:
    """Return the earlier moment; None is never."""
    return one if other is None else min(one, other)


def _seconds_until(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


@contextlib.contextmanager
def _as_connection_failed() -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise ConnectionFailed("the server does not answer in time") from None
    except OSError as error:  # TLS is among these
        raise ConnectionFailed(f"{error}") from error
