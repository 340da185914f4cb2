"""What stands behind a session: who answers what is not the session's own, and where the rest goes on.

Here the one where the proxy acts for its clients; ``pass_through/backend.py`` has that of a client which shows the
broker itself who it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...codecs.produce import ProduceRequest
from ...codecs.steps import Steps
from ..admission.memory_budget import Held
from ..bridge import api_versions
from ..bridge.base import Addresses
from ..bridge.metadata import ClientQuestion
from ..broker.broker import Broker
from ..flow.effects import Way
from ..versions import ApiKey
from . import produce
from .host import Host
from .pipe import Pipe, Upstream


class Client(produce.Client, Protocol):
    """A session, as its backend sees it."""

    @property
    def is_at_work(self) -> bool: ...

    def take_in_turns(self, steps: Steps[None]) -> None: ...


class Backend(Protocol):
    """Of one session."""

    @property
    def way(self) -> Way | None:
        """Over which alone its batches reach the broker; None: the proxy sends them for everybody."""
        ...

    def answer(self, api_key: int, api_version: int) -> bytes | None:
        """Return the body of an answer that depends on nothing else; None: it is to be asked for."""
        ...

    def metadata(
        self, version: int, question: ClientQuestion, addresses: Callable[[], Addresses], done: Callable[[bytes], None]
    ) -> None:
        """Answer Metadata."""
        ...

    def produce(
        self,
        client: Client,
        request: ProduceRequest,
        version: int,
        held: Held | None,
        done: Callable[[bytes | None], None],
    ) -> None:
        """Begin a produce request, now or once it may be. ``held``: counts its bytes."""
        ...

    def upstream(self, broker: Broker, broken: Callable[[str], None]) -> Upstream:
        """Return where its other requests go on. Raises WireError if that has ended."""
        ...

    def go_on(self) -> None:
        """A request that was taken in steps has gone on: what came after it may be taken."""
        ...

    def end(self) -> None:
        """The client has gone."""
        ...


class SharedBackend:
    """The brokers as the proxy itself reaches them, for all clients alike."""

    __slots__ = ("_host",)
    way = None

    def __init__(self, host: Host) -> None:
        self._host = host

    def answer(self, api_key: int, api_version: int) -> bytes | None:
        """Answer ApiVersions."""
        if api_key == ApiKey.API_VERSIONS:
            return api_versions.answer(api_version, self._host.advertised())
        return None

    def metadata(
        self, version: int, question: ClientQuestion, addresses: Callable[[], Addresses], done: Callable[[bytes], None]
    ) -> None:
        """Answer Metadata from memory."""
        self._host.metadata(version, question, addresses, done)

    def produce(
        self,
        client: Client,
        request: ProduceRequest,
        version: int,
        held: Held | None,
        done: Callable[[bytes | None], None],
    ) -> None:
        """Begin a produce request."""
        call = produce.ProduceCall(self._host, client, request, version, done)
        call.held = held
        client.take_in_turns(call.starting())

    def upstream(self, broker: Broker, broken: Callable[[str], None]) -> Upstream:
        """Open a connection for this client."""
        pipe = Pipe(self._host.for_clients, broken, may_end=True)
        self._host.for_clients.connect(broker.address, pipe)
        return pipe

    def go_on(self) -> None:
        """Nothing waits here."""

    def end(self) -> None:
        """It held nothing of the client's."""
