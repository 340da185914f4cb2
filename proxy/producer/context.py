"""What the flows of one process share. The engine makes and owns it; a flow takes what it needs."""

from __future__ import annotations

from collections.abc import Callable

from ..admission.memory_budget import MemoryBudget
from ..events import Report
from ..flow.observers import Observers
from ..flow.recent_time import RecentTime
from ..partition_log.batch_marker_probe import BatchMarkerProbe
from ..partition_log.duplicate_audit import DuplicateAudit
from ..partition_log.lower_bounds import LowerBounds
from ..partition_log.topic_facts import TopicFacts
from .grouping import WrapperOptions
from .left_out_ids import LeftOutIds
from .outside import AppendOutside
from .proxy_instance import ProxyInstance
from .unissued import UnissuedOutcomes


class Context:
    """One per engine, which sets ``outside``, what appends ask for, before the first producer comes. ``leader_of``: the
    leader of a partition as last learned. ``is_reachable``: could something be sent to this broker now?
    ``is_pass_long``: has this pass of the event loop done enough, so that what takes time should wait for the next one
    (``loop_budget.py``)? ``drop_unknown``: called when the work on this producer and partition has ended, and nothing
    of it is known. ``counts_addresses``: does an address stand for one client?"""

    outside: AppendOutside

    def __init__(
        self,
        instance: ProxyInstance,
        report: Report,
        memory: MemoryBudget,
        *,
        leader_of: Callable[[str, int], int | None],
        is_reachable: Callable[[int], bool] = lambda _broker_id: True,
        is_pass_long: Callable[[], bool] = lambda: False,
        drop_unknown: Callable[[tuple[int, str, int]], None] = lambda _key: None,
        counts_addresses: Callable[[], bool] = lambda: True,
    ) -> None:
        self.instance = instance
        self.memory = memory
        self.leader_of = leader_of
        self.is_reachable = is_reachable
        self.is_pass_long = is_pass_long
        self.time = RecentTime()
        self.observers = Observers(report, self.time)
        self.options = WrapperOptions()
        self.topics = TopicFacts(self.time)
        self.bounds = LowerBounds(self.time)
        self.batch_marker_probe = BatchMarkerProbe(self.topics, self.bounds, report)
        self.duplicate_audit = DuplicateAudit(report)
        self.unissued = UnissuedOutcomes(counts_addresses)
        self.left_out_ids = LeftOutIds()
        self.drop_unknown = drop_unknown
        self.takes_append_reservations = False
        """May it take append reservations (``append_reservation.py``)? The setting
        ``producers.append_reservations``."""
