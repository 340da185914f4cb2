"""What a client's authentication and its own connection need of the engine: typing only."""

from __future__ import annotations

from typing import Protocol

from ..broker.topology import Topology
from ..session.host import SessionHost as SessionHost
from ..session.new_topics import NewTopics
from .produce_connections import ClientProduceConnections


class PassThroughHost(SessionHost, Protocol):
    """The engine."""

    pass_through_produce_connections: dict[ClientProduceConnections, None]
    """Those of all clients. With a produce out they outlive the session."""

    @property
    def topology(self) -> Topology: ...

    @property
    def new_topics(self) -> NewTopics: ...

    @property
    def fallback_cluster_id(self) -> str: ...

    def may_send(self) -> bool:
        """Does the lease still allow to send (rule R4)?"""
        ...
