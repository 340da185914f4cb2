"""What the old producers of one process share: producer ids, what departed clients have left, limits of topics. No
logic."""

from __future__ import annotations

from collections.abc import Callable

from ..bridge.upward.departed_clients import DepartedClients
from ..bridge.upward.producer_ids import ProducerIdPool
from ..bridge.upward.topic_limits import TopicLimits


class OldProducers:
    """``wall_clock_ms``: the time of arrival that their records get."""

    def __init__(self, wall_clock_ms: Callable[[], int]) -> None:
        self.pool = ProducerIdPool()
        self.departed = DepartedClients()
        self.limits = TopicLimits()
        self.wall_clock_ms = wall_clock_ms
