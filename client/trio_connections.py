"""Connections on trio: streams and TLS, opened until they are ready for requests, and the runner of flows."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import trio

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
    """A ready link over a stream."""

    def __init__(self, stream: trio.abc.Stream, link: Link) -> None:
        self._stream = stream
        self.link = link

    async def send(self, data: bytes, deadline: float) -> None:
        """Send all of it. Raises ConnectionFailed."""
        with _as_connection_failed(), trio.fail_at(deadline):
            await self._stream.send_all(data)

    async def receive(self, deadline: float | None) -> bytes:
        """Return received bytes; empty: the server has closed the connection. Raises ConnectionFailed."""
        with _as_connection_failed(), trio.fail_at(float("inf") if deadline is None else deadline):
            return bytes(await self._stream.receive_some(limits.RECEIVE_BYTES))

    async def aclose(self) -> None:
        """Close it, without waiting for the other side."""
        await trio.aclose_forcefully(self._stream)


class Connector:
    """Opens connections that are ready for requests."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._begin_login = login_maker(settings.sasl, settings.client_id)

    def _link(self) -> Link:
        settings = self.settings
        return Link(settings.client_id, self._begin_login, reads_old_brokers=settings.reads_old_brokers)

    async def connect(self, address: Address, deadline: float) -> Connection:
        """Return a connection after login and ApiVersions. Raises ConnectionFailed (AuthenticationFailed is one),
        UnsupportedServer."""
        with _as_connection_failed(), trio.fail_at(deadline):
            try:
                stream: trio.abc.Stream = await trio.open_tcp_stream(*address)
            except RuntimeError as error:  # no thread to look it up
                raise ConnectionFailed(str(error)) from error
        if self.settings.tls is not None:
            # Kafka's brokers close a connection without TLS's close_notify.
            stream = trio.SSLStream(stream, self.settings.tls, server_hostname=address[0], https_compatible=True)
        connection = Connection(stream, self._link())
        try:
            await connection.send(connection.link.start(), deadline)
            while not connection.link.is_ready:
                try:
                    data = await connection.receive(deadline)
                except ConnectionFailed as error:
                    raise connection.link.explain_loss(str(error)) from None
                if not data:
                    raise connection.link.explain_loss("the server closed the connection")
                if reply := connection.link.greeted(data):
                    await connection.send(reply, deadline)
        except BaseException:
            await connection.aclose()
            raise
        return connection


class Connections:
    """Connections for questions, one for each server, and the runner of flows. For one task at a time."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._open: dict[Address, Connection] = {}

    async def aclose(self) -> None:
        """Close them."""
        while self._open:
            _, connection = self._open.popitem()
            await connection.aclose()

    async def run(
        self, flow: Coroutine[Effect, Any, Result], until: float | None = None, seconds_each: float = float("inf")
    ) -> Result:
        """Return what the flow returns. No request is waited for beyond the moment ``until``, nor for longer than
        ``seconds_each``, so that a silent server leaves time for the next one. Raises what the flow raises."""
        try:
            effect = flow.send(None)
            while True:
                try:
                    answer = await self._perform(effect, until, seconds_each)
                except ClientError as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            flow.close()

    async def _perform(self, effect: Effect, until: float | None, seconds_each: float) -> Any:
        if isinstance(effect, Ask | AskAtOnce):
            end = trio.current_time() + seconds_each
            requests = (effect.fields,) if isinstance(effect, Ask) else effect.requests
            answers = await self._ask(effect, requests, end if until is None else min(end, until))
            return answers[0] if isinstance(effect, Ask) else answers
        if isinstance(effect, Offered):
            connection = self._open[effect.address] = await self._taken(effect.address, until)
            return connection.link.versions
        if isinstance(effect, Disconnect):
            if (kept := self._open.pop(effect.address, None)) is not None:
                await kept.aclose()
            return None
        if isinstance(effect, Sleep):
            await trio.sleep(effect.seconds)
            return None
        return trio.current_time()

    async def _ask(self, ask: Ask | AskAtOnce, requests: Sequence[Mapping[str, Any]], until: float) -> list[Any]:
        connection = await self._taken(ask.address, until)
        try:
            link = connection.link
            version = link.version_of(ask.api_key, *ask.versions, ask.what)
            bodies = [messages.encode_request(ask.api_key, version, **fields) for fields in requests]
            frames = [link.request(ask.api_key, version, body)[1] for body in bodies]
            await connection.send(b"".join(frames), self._deadline(until))
            answers: list[Any] = []
            while len(answers) < len(frames):
                data = await connection.receive(self._deadline(until))
                if not data:
                    raise ConnectionFailed("the server closed the connection")
                answers += map(decode_answer, link.received(data))
            self._open[ask.address] = connection
            return answers
        finally:
            if self._open.get(ask.address) is not connection:
                await connection.aclose()

    def _deadline(self, until: float) -> float:
        """Return the end of a step. Each part of an answer that arrives begins a new one: a large one may take long."""
        return min(trio.current_time() + self._connector.settings.request_seconds_max, until)

    async def _taken(self, address: Address, until: float | None) -> Connection:
        """Return the connection to a server, which is no longer kept for the next question. Raises as ``connect``."""
        connection = self._open.pop(address, None)
        if connection is not None:
            return connection
        deadline = trio.current_time() + limits.CONNECT_SECONDS_MAX
        return await self._connector.connect(address, deadline if until is None else min(deadline, until))


@contextmanager
def _as_connection_failed() -> Iterator[None]:
    try:
        yield
    except trio.TooSlowError:
        raise ConnectionFailed("the server does not answer in time") from None
    except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
        cause = error.__cause__
        if isinstance(cause, BaseExceptionGroup):  # of all addresses that the name has
            cause = cause.exceptions[0]
        raise ConnectionFailed(f"{cause or error}") from error
