"""What old clients and clients without idempotence share in one process: producer ids, what departed clients have left,
limits of topics, and what their positions may take. No logic."""

from __future__ import annotations

from collections.abc import Callable

from ..bridge.upward.departed_clients import DepartedClients
from ..bridge.upward.positions import PositionsBudget
from ..bridge.upward.producer_ids import ProducerIdPool, ProducerIdPools
from ..bridge.upward.topic_limits import TopicLimits


class OldProducers:
    """``wall_clock_ms``: the time of arrival that their records get. ``counts_addresses``: do addresses tell clients
    apart?"""

    def __init__(self, wall_clock_ms: Callable[[], int], counts_addresses: Callable[[], bool]) -> None:
        by_name, by_topic_id = (ProducerIdPool(counts_addresses=counts_addresses) for _ in range(2))
        self.pools = ProducerIdPools(by_name, by_topic_id)
        self.departed = DepartedClients()
        self.limits = TopicLimits()
        self.positions = PositionsBudget()
        self.wall_clock_ms = wall_clock_ms
