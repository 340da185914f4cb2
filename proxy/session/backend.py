"""The backend of a session: it answers what depends on how the client is authenticated, and says over which connection
the other requests are forwarded.

``SharedBackend`` is that of clients for which the proxy acts; ``pass_through/backend.py`` has that of a client which
authenticates at the broker itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..bridge import api_versions
from ..bridge.base import Addresses
from ..bridge.metadata import ClientQuestion
from ..broker.broker import Broker
from ..broker.queued_append import Route
from ..versions import ApiKey
from .host import SessionHost
from .pipe import Pipe, RequestUpstream
from .produce import ProduceCall


class Backend(Protocol):
    """Of one session."""

    @property
    def route(self) -> Route | None:
        """The only way by which batches of this client reach the broker; None: the produce connections that all clients
        share."""
        ...

    def answer(self, api_key: int, api_version: int) -> bytes | None:
        """Return the answer's body if it is known at once (ApiVersions; with pass-through the SASL APIs, too); None: it
        is answered in another way. Raises WireError for a version of these that is not served."""
        ...

    def metadata(
        self, version: int, question: ClientQuestion, addresses: Callable[[], Addresses], done: Callable[[bytes], None]
    ) -> None:
        """Answer Metadata."""
        ...

    @property
    def calls(self) -> type[ProduceCall]:
        """The class of its produce requests."""
        ...

    @property
    def begin(self) -> Callable[[ProduceCall], None]:
        """Begins a produce request, now or once it may begin."""
        ...

    def upstream(self, broker: Broker, broken: Callable[[str], None]) -> RequestUpstream:
        """Return where its other requests are forwarded. Raises WireError if that has ended."""
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
    route = None
    calls = ProduceCall
    begin = staticmethod(ProduceCall.begin)

    def __init__(self, host: SessionHost) -> None:
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

    def upstream(self, broker: Broker, broken: Callable[[str], None]) -> RequestUpstream:
        """Open a connection for this client."""
        pipe = Pipe(self._host.for_clients, broken, may_end=True)
        self._host.for_clients.connect(broker.address, pipe)
        return pipe

    def go_on(self) -> None:
        """Nothing waits here."""

    def end(self) -> None:
        """It held nothing of the client's."""
