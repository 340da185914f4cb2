"""What a native client's session needs of the engine: typing only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from re import Pattern
from typing import Protocol

from ..broker.topic_names import TopicNames
from ..broker.topology import Topology
from ..session.host import SessionHost as SessionHost
from ..session.names import Names, NamesClient
from ..settings.config import OldClientSettings
from .old_producers import OldProducers


class NativeHost(SessionHost, Protocol):
    """The engine."""

    @property
    def topology(self) -> Topology: ...

    def native_ranges(self) -> Mapping[int, tuple[int, int]]:
        """API versions as the proxy reports them to clients, by key."""
        ...

    def engine_ranges(self) -> Mapping[int, tuple[int, int]]:
        """The same where the proxy gives idempotence, and the client's broker stores format v2."""
        ...

    def stores_batches(self, broker_id: int | None) -> bool:
        """Does the broker of this listener store format v2? None: do all?"""
        ...

    @property
    def brokers_issue_ids(self) -> bool:
        """Do producers without a name have their ids from the brokers? So where these give idempotence on most topics
        (native)."""
        ...

    @property
    def names(self) -> Names: ...

    def note_issued(self, producer_id: int, client: NamesClient, done: Callable[[], None]) -> None:
        """Note in Redis that a broker has just issued this producer id, to a client that has not learned of it."""
        ...

    @property
    def topic_names(self) -> TopicNames: ...

    @property
    def old_client_settings(self) -> OldClientSettings: ...

    @property
    def upstream_idempotence(self) -> Pattern[str] | None:
        """The client ids of those whose batches without a producer id get one; None: nobody's do."""
        ...

    @property
    def old_producers(self) -> OldProducers: ...
