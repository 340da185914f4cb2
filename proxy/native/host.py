"""What a native client's session needs of the engine: typing only."""

from __future__ import annotations

from collections.abc import Mapping
from re import Pattern
from typing import Protocol

from ..broker.topic_names import TopicNames
from ..broker.topology import Topology
from ..session.host import SessionHost as SessionHost
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
    def topic_names(self) -> TopicNames: ...

    @property
    def old_client_settings(self) -> OldClientSettings: ...

    @property
    def upstream_idempotence(self) -> Pattern[str] | None:
        """The client ids of those whose batches without a producer id get one; None: nobody's do."""
        ...

    @property
    def old_producers(self) -> OldProducers: ...
