"""What all flows of one proxy process share: who we are, which generation, bounds of partitions, what topics were
seen to take.

Plain data, and the one flow that keeps a bound fresh. The engine keeps the rest up to date; flows read it and note what
they learn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cachetools import LRUCache

from ..codecs.compression import Codec
from ..codecs.convert import HeaderPolicy
from ..state.entry import NO_ANCHOR, NO_GENERATION, Entry
from . import limits
from .events import Report
from .resolver import Later, Position, newest_position

_BLOCKS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Block:
    """Facts of a block of producer ids: the generation it was claimed in, and when (milliseconds since 1970)."""

    generation: bytes
    claimed_at_ms: int


@dataclass(slots=True)
class Shared:
    """One per engine."""

    cluster: str
    report: Report
    incarnation: bytes = bytes(8)
    generation: bytes = NO_GENERATION
    """Of the Redis data, as last seen."""
    era: int = 0
    """Counts incarnations and generations of this process: what was learned in an earlier era is void."""
    grace_until: float = 0.0
    """No suspect entry is touched before: leases of the lost state run out first (rule R10)."""
    recent_time: float = 0.0
    """The reactor's clock, to a second or so: for ages, without an effect."""
    step_begins: Callable[[], float] = lambda: 0.0
    """The time when a step begins, for spans; 0 as long as nobody wants spans."""
    wall_clock_ms: Callable[[], int] = lambda: 0
    leader_of: Callable[[str, int], int | None] = lambda _topic, _partition: None
    is_reachable: Callable[[int], bool] = lambda _broker_id: True
    """Could something be sent to this broker now?"""
    policy: HeaderPolicy = field(default_factory=HeaderPolicy)
    bounds: dict[tuple[str, int], tuple[float, Position]] = field(default_factory=dict)
    """By partition: the newest position that is safe as a lower bound, and when it was learned (rule R8)."""
    blocks: LRUCache[int, Block | None] = field(default_factory=lambda: LRUCache(_BLOCKS_MAX))
    set_bytes_max: dict[str, int] = field(default_factory=dict)
    """By topic: a message set of this size was refused as too large; learned from code 10."""

    read_back: set[tuple[str, int]] = field(default_factory=set)
    """Partitions of which an append of this process was read back, to see whether the marker is kept (section 4)."""
    wrapper_codecs: dict[str, Codec] = field(default_factory=dict)
    """By topic: what the broker compresses with, whatever it is sent; learned from an append that was read back."""
    unmarked: set[str] = field(default_factory=set)
    """Topics that are stored without our markers: a doubt there may end in "nobody can tell"."""

    def note_bound(self, topic: str, partition: int, position: Position) -> None:
        """Remember a position, unless a later one was learned a short time ago: a log may become shorter."""
        known = self.bounds.get((topic, partition))
        is_old = known is not None and self.recent_time - known[0] > limits.BOUND_AGE_SECONDS
        if known is None or is_old or known[1].offset <= position.offset:
            self.bounds[(topic, partition)] = (self.recent_time, position)

    def forget_bound(self, topic: str, partition: int) -> None:
        """The log may have been truncated: earlier positions are no bounds any more."""
        self.bounds.pop((topic, partition), None)


async def lower_bound(shared: Shared, topic: str, partition: int, entry: Entry | None) -> Position | Later:
    """Rule R8: the later of the producer's last commit and the newest position known of the partition, read anew when
    it is old. One with an anchor is better than one without."""
    known = shared.bounds.get((topic, partition))
    if known is None or shared.recent_time - known[0] > limits.BOUND_AGE_SECONDS:
        position = await newest_position(topic, partition)
        if isinstance(position, Position):
            shared.note_bound(topic, partition, position)
        known = shared.bounds.get((topic, partition))
    own = Position(entry.end_offset, entry.anchor) if entry is not None and entry.end_offset >= 0 else None
    if known is None:
        return own or Later("the partition's leader cannot be asked")
    if own is None or own.offset < known[1].offset or (own.anchor == NO_ANCHOR and known[1].anchor != NO_ANCHOR):
        return known[1]
    return own
