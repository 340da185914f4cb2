"""What a proxy is doing at one moment, for those that watch it: the admin port, metrics, tests. Plain data, made on
demand; each part comes from the object that owns it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..admission.memory_budget import MemoryStatistics
from ..broker.produce_connection_pool import NO_PRODUCE_CONNECTIONS, ProduceConnectionStatistics
from ..broker.served import Idempotence
from ..broker.topology import TopologyStatistics
from ..events import UnknownOutcomeOpened


@dataclass(frozen=True, slots=True)
class OpenUnknownOutcome:
    """``since``: the engine's clock in seconds, to a second or so."""

    since: float
    opened: UnknownOutcomeOpened


@dataclass(frozen=True, slots=True)
class Statistics:
    """One proxy. ``at``: the engine's clock in seconds. ``idempotence``: who gives it; None: that is not known yet.
    ``engine_topics``: patterns of the topics on which the proxy gives it where the brokers do on all others.
    ``data_generation``: of the data in Redis, as last seen. ``why_ending``: what was found that ends the process; empty
    when nothing was. ``requests_by_key``: counted by API key since the start. ``entries``: producers on partitions that
    are in memory. ``client_produce_connections``: by broker, the produce connections of clients that authenticate at it
    themselves (pass-through); ``client_pools``: how many pools of such produce connections there are."""

    at: float
    cluster: str
    idempotence: Idempotence | None
    engine_topics: tuple[str, ...]
    instance_id: bytes
    data_generation: bytes
    is_draining: bool
    why_ending: str
    connections: int
    connections_max: int
    connections_accepted: int
    requests_by_key: Mapping[int, int]
    memory: MemoryStatistics
    entries: int
    entries_max: int
    unknown_outcomes: tuple[OpenUnknownOutcome, ...]
    topology: TopologyStatistics
    client_produce_connections: Mapping[int, ProduceConnectionStatistics]
    client_pools: int

    @property
    def passes_all(self) -> bool:
        """Do the brokers give idempotence on all topics? Then there is no state, and no Redis."""
        return self.idempotence is Idempotence.NATIVE and not self.engine_topics

    @property
    def oldest_unknown_outcome_seconds(self) -> float:
        """The age of the oldest unknown outcome, to a second; 0 without one."""
        return max((self.at - unknown_outcome.since for unknown_outcome in self.unknown_outcomes), default=0.0)

    def produce_connections_of_clients(self, broker_id: int) -> ProduceConnectionStatistics:
        """Return ``client_produce_connections`` of one broker."""
        return self.client_produce_connections.get(broker_id, NO_PRODUCE_CONNECTIONS)
