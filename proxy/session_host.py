"""What a session needs of the engine: typing only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from ..reactor import Reactor
from .bridge.base import Addresses
from .bridge.init_producer_id import InitProducerIdRequest
from .bridge.metadata import ClientQuestion
from .long_work import LongWork
from .passes import Pass
from .patience import Accounts
from .produce import Outside
from .settings.addresses import PlaceOf
from .shared import Shared
from .upstream import Broker

if TYPE_CHECKING:
    from .session import Session


class Host(Outside, Accounts, Protocol):
    """The engine, as sessions see it."""

    @property
    def shared(self) -> Shared: ...

    @property
    def for_clients(self) -> Reactor:
        """Opens connections to brokers that belong to one client."""
        ...

    @property
    def current_pass(self) -> Pass: ...

    @property
    def long_work(self) -> LongWork: ...

    def advertised(self) -> Mapping[int, tuple[int, int]]: ...

    def addresses(self, place_of: PlaceOf, local_host: str) -> Addresses: ...

    def target(self, broker_id: int | None) -> Broker | None: ...

    def topics_changed(self, gone: Collection[str] = ()) -> None: ...

    def init_producer_id(
        self, request: InitProducerIdRequest, principal: bytes, done: Callable[[int, int], None]
    ) -> None: ...

    def metadata(
        self, version: int, question: ClientQuestion, addresses: Callable[[], Addresses], done: Callable[[bytes], None]
    ) -> None: ...

    def session_ended(self, session: Session) -> None: ...

    def count_request(self, api_key: int) -> None: ...
