"""What all flows of one proxy process share: who we are, which generation, bounds of partitions, what topics were
seen to take.

Plain data, and the flows that keep it true of the log. The engine keeps the rest up to date; flows read it and note
what they learn.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..codecs import message_set
from ..codecs.compression import Codec
from ..codecs.convert import HeaderPolicy
from ..codecs.marker import Identity, parse_marker
from ..codecs.message_set import ShallowMessage
from ..reactor import Buffer
from ..state.entry import NO_GENERATION, Entry
from . import limits
from .effects import Effect, Leader, Wait
from .events import DoubtOpened, MarkerLost, Report, Said, SecondCopy
from .marks import Marks
from .resolver import Later, LogSearch, Position, Unreadable, message_at, newest_position

Name = tuple[int, int, int]
"""Producer id, epoch, base sequence of a batch."""


class CopySearch(LogSearch):
    """Counts the copies of some batches, whoever's, from the lowest of their bounds on."""

    wants_messages = True

    def __init__(self, topic: str, partition: int, bound: Position) -> None:
        super().__init__(topic, partition, -1, bound, (), set(), lambda _pieces: False)
        self.budget_bytes = limits.LOOK_BYTES_MAX
        self.offsets: dict[Name, set[int]] = {}
        """Where each of the batches that are looked for was found."""

    def add(self, bound: Position, names: Iterable[Name]) -> None:
        """Look for these too. Only before the first ``run``."""
        if bound.offset < self.bound.offset:
            self.bound = bound
        self.offsets.update({name: set() for name in names})

    def found(self, message: ShallowMessage, identities: Sequence[Identity]) -> None:
        """Note where a marked message has one of them."""
        offset = message.offset + 1 - sum(identity.record_count for identity in identities)
        for identity in identities:
            name = (identity.producer_id, identity.producer_epoch, identity.base_sequence)
            if name in self.offsets:
                self.offsets[name].add(offset)
            offset += identity.record_count


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
    measure: Callable[[float, Any], None] | None = None
    """Told of each batch that was appended at once: when it arrived, and the lane that has just brought the answer."""
    is_draining: bool = False
    """The process is about to end: what it cannot finish is left to others (rule R15)."""
    expiry_ms: int = limits.PRODUCER_EXPIRY_SECONDS * 1000
    """The state of a producer that is idle for so long is forgotten, by the store's clock."""
    merges_producers: bool = False
    """Appends of several producers for one partition may leave in one wrapper (DESIGN section 7)."""
    wants_outcomes: bool = False
    """A journal is kept: the outcome of every append is reported."""
    wall_clock_ms: Callable[[], int] = lambda: 0
    leader_of: Callable[[str, int], int | None] = lambda _topic, _partition: None
    is_reachable: Callable[[int], bool] = lambda _broker_id: True
    """Could something be sent to this broker now?"""
    policy: HeaderPolicy = field(default_factory=HeaderPolicy)
    bounds: dict[tuple[str, int], tuple[float, Position]] = field(default_factory=dict)
    """By partition: the newest position that is safe as a lower bound, and when it was learned (rule R8)."""
    marks: Marks = field(default_factory=Marks)
    """Of those positions the ones of some time ago (rule R10)."""
    set_bytes_max: dict[str, int] = field(default_factory=dict)
    """By topic: a message set of this size was refused as too large; learned from code 10."""

    read_back: set[tuple[str, int]] = field(default_factory=set)
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

    sent_again: dict[tuple[str, int], CopySearch] = field(default_factory=dict)
    """By partition: what was sent twice lately, until it is looked for (rule R14)."""
    is_looking: bool = False
    """Somebody looks for copies: one at a time, doubts come first."""

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
        self.set_bytes_max[topic] = min(self.set_bytes_max.get(topic, size_bytes), size_bytes)

    def forget_bound(self, topic: str, partition: int) -> None:
        """The log may have been truncated: earlier positions are no bounds any more, and no marks."""
        self.bounds.pop((topic, partition), None)
        self.marks.forget((topic, partition))


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


async def read_back(shared: Shared, topic: str, partition: int, sent_set: Buffer, last_offset: int) -> None:
    """See whether the broker has kept the marker of an append, and let an append be looked at again after a while: the
    topic's settings and the brokers' message format change under a proxy that runs."""
    sent_codec = next(message_set.iterate_shallow(sent_set)).codec
    del sent_set  # nor anything that was fetched is kept while this waits
    if await _has_seen(shared, (topic, partition), sent_codec, last_offset):
        await Wait(limits.READ_BACK_SECONDS)
    shared.read_back.discard((topic, partition))


async def _has_seen(shared: Shared, place: tuple[str, int], sent_codec: int, last_offset: int) -> bool:
    """If the broker compresses with another codec, that is used for the topic from now on, and its next append is
    looked at; if the marker is lost all the same, that is said. False: look at the next append."""
    leader = await Leader(*place)
    stored = Later("no leader is known") if leader is None else await message_at(leader, *place, last_offset)
    if isinstance(stored, Unreadable):  # as all that brokers store in message format 0.11 or later
        _note_lost(shared, place, f"something that cannot be read as message format 0.10 ({stored.reason})")
        return True
    if stored is None or isinstance(stored, Later):
        return False
    if stored.is_wrapper and parse_marker(stored.key) is not None:
        _note_kept(shared, place)
        return True
    if stored.is_wrapper and stored.codec != sent_codec:
        shared.forget_bound(*place)
        codec = shared.wrapper_codecs[place[0]] = Codec(stored.codec)
        shared.report(
            Said("info", f"topic {place[0]} is compressed with {codec.name.lower()} from now on: its broker does")
        )
        return False
    what = "wrappers without a key" if stored.is_wrapper else "plain messages"
    _note_lost(shared, place, f"{what} of format v{stored.magic}")
    return True


def _note_kept(shared: Shared, place: tuple[str, int]) -> None:
    """That is so for the whole topic, unless another partition of it was seen to lose markers lately."""
    topic = place[0]
    shared.seen_unmarked.pop(place, None)
    recently = shared.recent_time - 2 * limits.READ_BACK_SECONDS
    others = (seen for other, seen in shared.seen_unmarked.items() if other[0] == topic)
    if topic in shared.unmarked and not any(seen > recently for seen in others):
        shared.unmarked.discard(topic)
        shared.report(Said("info", f"topic {topic} keeps markers again"))


def _note_lost(shared: Shared, place: tuple[str, int], stored_as: str) -> None:
    """Bounds that were taken from what was sent do not fit what is stored; those that are taken from now on do."""
    topic = place[0]
    if place not in shared.seen_unmarked or topic not in shared.unmarked:
        shared.forget_bound(*place)
    shared.seen_unmarked[place] = shared.recent_time
    if topic not in shared.unmarked:
        shared.unmarked.add(topic)
        shared.report(MarkerLost(*place, stored_as))


def look_for_copies(
    shared: Shared, place: tuple[str, int], bound: Position, names: Iterable[Name]
) -> Coroutine[Effect[Any], Any, None] | None:
    """Return the flow of the second look (rule R14), None if one that waits for this partition takes them along."""
    waiting = shared.sent_again.get(place)
    if waiting is not None:
        waiting.add(bound, names)
        return None
    search = shared.sent_again[place] = CopySearch(*place, bound)
    search.add(bound, names)
    return _look(shared, place, search)


async def _look(shared: Shared, place: tuple[str, int], search: CopySearch) -> None:
    """A broker that stood still for longer than the settle time may have appended the first try after all."""
    told: set[Name] = set()
    for seconds in limits.SECOND_LOOKS_SECONDS:
        await Wait(seconds)
        shared.sent_again = {where: other for where, other in shared.sent_again.items() if other is not search}
        while shared.is_looking:
            await Wait(limits.SETTLE_SECONDS)
        shared.is_looking = True
        try:
            await search.run()
        finally:
            shared.is_looking = False
        for name, offsets in search.offsets.items():
            if len(offsets) > 1 and name not in told:
                told.add(name)
                shared.report(SecondCopy(*name, *place, tuple(sorted(offsets))))
