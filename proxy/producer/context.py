"""What all flows of one proxy process share: who we are, which generation, bounds of partitions, what topics were
seen to take.

Plain data, and the one flow that reads a bound anew. The engine keeps the rest up to date; flows read it and note what
they learn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...codecs.compression import Codec
from ...codecs.convert import HeaderPolicy
from ...state.entry import NO_GENERATION, NO_INCARNATION, Entry
from .. import limits
from ..events import DoubtOpened, Report
from ..flow.outcome import Acknowledger
from ..partition_log.log_offsets import Later, Position, newest_position
from ..partition_log.offset_checkpoints import OffsetCheckpoints
from .duplicate_audit import DuplicateAudit


@dataclass(slots=True)
class Shared:
    """One per engine."""

    cluster: str
    report: Report
    incarnation: bytes = NO_INCARNATION
    generation: bytes = NO_GENERATION
    """Of the Redis data, as last seen."""
    era: int = 0
    """Counts incarnations and generations of this process: what was learned in an earlier era is void."""
    grace_until: float = 0.0
    """No suspect entry is touched before, nor is, from the second era on, another proxy's intent: leases of the lost
    state run out first (rules R1, R10)."""
    earlier_incarnations: deque[bytes] = field(default_factory=lambda: deque(maxlen=limits.EARLIER_INCARNATIONS_MAX))
    """Those of before ``incarnation``, of which nothing leaves any more: newest last."""
    recent_time: float = 0.0
    """The reactor's clock, to a second or so: for ages, without an effect."""
    step_begins: Callable[[], float] = lambda: 0.0
    """The time when a step begins, for spans; 0 as long as nobody wants spans."""
    measure: Callable[[float, Acknowledger], None] | None = None
    """Told of each batch that was appended at once: when it arrived, and the lane that has just brought the answer."""
    is_draining: bool = False
    """The process is about to end: what it cannot finish is left to others (rule R15)."""
    expiry_ms: int = limits.PRODUCER_EXPIRY_SECONDS * 1000
    """The state of a producer that is idle for so long is forgotten, by the store's clock."""
    merges_producers: bool = False
    """Appends of several producers for one partition may leave in one wrapper (``merge_producers``)."""
    wants_outcomes: bool = False
    """A journal is kept: the outcome of every append is reported."""
    hold_bytes: Callable[[int], None] = lambda _count: None
    """So many bytes are kept for requests, or (negative) are no more: see ``memory_budget.py``."""
    has_no_room: Callable[[], bool] = lambda: False
    """Is nothing to be kept that can be smaller?"""
    is_pass_long: Callable[[], bool] = lambda: False
    """Should what takes time wait for the next pass? See ``loop_budget.py``."""
    wall_clock_ms: Callable[[], int] = lambda: 0
    leader_of: Callable[[str, int], int | None] = lambda _topic, _partition: None
    is_reachable: Callable[[int], bool] = lambda _broker_id: True
    """Could something be sent to this broker now?"""
    policy: HeaderPolicy = field(default_factory=HeaderPolicy)
    bounds: dict[tuple[str, int], tuple[float, Position]] = field(default_factory=dict)
    """By partition: the newest position that is safe as a lower bound, and when it was learned (rule R8)."""
    checkpoints: OffsetCheckpoints = field(default_factory=OffsetCheckpoints)
    """Of those positions the ones of some time ago (rule R10)."""
    too_large: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By topic: a message set of this size was refused as too large, and when."""

    probed: set[tuple[str, int]] = field(default_factory=set)
    """Partitions of which an append of this process was read back lately, to see whether the marker is kept (section
    4)."""
    wrapper_codecs: dict[str, Codec] = field(default_factory=dict)
    """By topic: what the broker compresses with, whatever it is sent; learned from an append that was read back."""
    unmarked: set[str] = field(default_factory=set)
    """Topics that are stored without our markers: a doubt there may end in "nobody can tell"."""
    seen_unmarked: dict[tuple[str, int], float] = field(default_factory=dict)
    """In which of their partitions that was seen, and when: brokers may store one topic in different ways."""

    doubts: dict[object, tuple[float, DoubtOpened]] = field(default_factory=dict)
    """What is in doubt now, and since when."""

    duplicate_audit: DuplicateAudit = field(init=False)
    """Looks again for what was sent twice (rule R14)."""

    def __post_init__(self) -> None:
        self.duplicate_audit = DuplicateAudit(self.report)

    @contextmanager
    def in_doubt(self, opened: DoubtOpened) -> Iterator[None]:
        """Report a doubt, and keep it among those there are until it ends, however it ends."""
        name = object()
        self.doubts[name] = (self.recent_time, opened)
        self.report(opened)
        try:
            yield
        finally:
            del self.doubts[name]

    def note_bound(self, topic: str, partition: int, position: Position) -> None:
        """Remember a position, unless a later one was learned a short time ago: a log may become shorter."""
        known = self.bounds.get((topic, partition))
        is_old = known is not None and self.recent_time - known[0] > limits.BOUND_AGE_SECONDS
        if known is None or is_old or known[1].offset <= position.offset:
            self.bounds[(topic, partition)] = (self.recent_time, position)

    def note_too_large(self, topic: str, size_bytes: int) -> None:
        """A message set of this size was refused as too large."""
        known = self.refused_size(topic)
        if known is None or size_bytes < known:
            self.too_large[topic] = (size_bytes, self.recent_time)

    def note_taken(self, topic: str, size_bytes: int) -> None:
        """A message set of this size was appended: if that was refused before, the topic takes more now."""
        known = self.too_large.get(topic)
        if known is not None and size_bytes >= known[0]:
            del self.too_large[topic]

    def refused_size(self, topic: str) -> int | None:
        """The smallest size that was seen to be refused as too large lately; None: none was. The limit may be raised at
        any time, so what was seen is forgotten after a while, and the next larger batch shows it anew."""
        known = self.too_large.get(topic)
        if known is None:
            return None
        if self.recent_time - known[1] > limits.TOO_LARGE_SECONDS:
            del self.too_large[topic]
            return None
        return known[0]

    def drop_bound(self, topic: str, partition: int) -> None:
        """An append may vanish yet: the bound of the next one is read anew (rule R8). Marks stay: each has an anchor,
        which is compared when the mark is used."""
        self.bounds.pop((topic, partition), None)

    def forget_bound(self, topic: str, partition: int) -> None:
        """Earlier positions were seen not to fit this log: they are no bounds any more, and no marks."""
        self.drop_bound(topic, partition)
        self.checkpoints.forget((topic, partition))


# R8 lives here: where a search begins.
async def lower_bound(shared: Shared, topic: str, partition: int, entry: Entry | None) -> Position | Later:
    """Rule R8: the later of the producer's last commit and the newest position known of the partition, read anew when
    it is old. One that is recognised when the log has become another one is better than one that is not; of two that
    are not, the lower one is."""
    known = shared.bounds.get((topic, partition))
    if known is None or shared.recent_time - known[0] > limits.BOUND_AGE_SECONDS:
        position = await newest_position(topic, partition)
        if isinstance(position, Position):
            shared.note_bound(topic, partition, position)
        known = shared.bounds.get((topic, partition))
    own = Position(entry.end_offset, entry.anchor) if entry is not None and entry.end_offset >= 0 else None
    if known is None:
        if own is not None and own.is_recognised:
            return own
        return Later("the partition's leader cannot be asked")
    newest = known[1]
    if own is None:
        return newest
    if own.is_recognised and newest.is_recognised:
        return newest if newest.offset > own.offset else own
    if own.is_recognised or newest.is_recognised:
        return own if own.is_recognised else newest
    return newest if newest.offset < own.offset else own
