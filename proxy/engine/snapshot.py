"""What a proxy is doing at one moment, for those that watch it: the admin port, metrics, tests. Plain data, made on
demand; each part is told by the object that owns it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..admission.memory_budget import MemoryStatistics
from ..broker.lane_pool import NO_LANES, LaneStatistics
from ..broker.served import Idempotence
from ..broker.topology import TopologyStatistics
from ..events import DoubtOpened


@dataclass(frozen=True, slots=True)
class OpenDoubt:
    """``since``: the engine's clock in seconds, to a second or so."""

    since: float
    opened: DoubtOpened


@dataclass(frozen=True, slots=True)
class Statistics:
    """One proxy. ``at``: the engine's clock in seconds. ``idempotence``: who gives it; None: that is not known yet.
    ``generation``: of the data in Redis, as last seen. ``why_ending``: what was found that ends the process; empty when
    nothing was. ``requests_by_key``: counted by API key since the start. ``entries``: producers on partitions that are
    in memory. ``client_lanes``: by broker, the lanes of clients that authenticate at it themselves (pass-through);
    ``client_pools``: how many pools of such lanes there are."""

    at: float
    cluster: str
    idempotence: Idempotence | None
    incarnation: bytes
    generation: bytes
    is_draining: bool
    why_ending: str
    connections: int
    connections_max: int
    connections_accepted: int
    requests_by_key: Mapping[int, int]
    memory: MemoryStatistics
    entries: int
    entries_max: int
    doubts: tuple[OpenDoubt, ...]
    topology: TopologyStatistics
    client_lanes: Mapping[int, LaneStatistics]
    client_pools: int

    @property
    def is_native(self) -> bool:
        """Do the brokers give idempotence? Then there is no state, and no Redis."""
        return self.idempotence is Idempotence.NATIVE

    @property
    def oldest_doubt_seconds(self) -> float:
        """The age of the oldest doubt, to a second; 0 without one."""
        return max((self.at - doubt.since for doubt in self.doubts), default=0.0)

    def lanes_of_clients(self, broker_id: int) -> LaneStatistics:
        """Return ``client_lanes`` of one broker."""
        return self.client_lanes.get(broker_id, NO_LANES)
