"""Keeps the known hidden ranges and the stored ones the same, and looks into the log for those that were asked for.
Flows only.

What this process knows to be left out, or shown again, and Redis has lost is written back. A range becomes active when
its messages were seen in the log of the leader, each noted with its checksum, and when that is stored; nothing is left
out before. Appends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...codecs.errors import WireError
from ...codecs.logged import Logged, LoggedBatch
from ...codecs.message_set import unpacking
from ...codecs.record_batch import CONTROL_FLAG, payload_of
from ...codecs.steps import at_once
from ...state.hidden_ranges import (
    RANGE_MESSAGES_MAX,
    STORED_BYTES_MAX,
    HiddenRanges,
    HiddenRangesFormatError,
    OffsetRange,
    State,
    asked_for,
    merged,
    pack_hidden_ranges,
    replaced,
    unpack_hidden_ranges,
)
from ...state.store import NO_VERSION, StoreAway, Swapped, hidden_ranges_key
from .. import limits
from ..bridge.asks import EarliestOffset, LatestOffset
from ..events import OperatorMessage, Report
from ..flow.effects import Ask, Leader, Now, Read, Replicas, Swap, Unanswered, Wait
from ..partition_log.log_chunk import ReadLog
from .known import KnownHiddenRanges


class HiddenRangesUpkeep:
    """Of one process; ``run`` never ends."""

    def __init__(
        self,
        known: KnownHiddenRanges,
        cluster: str,
        report: Report,
        wall_clock_ms: Callable[[], int],
        first_read: Callable[[], None] = lambda: None,
        knows_cluster: Callable[[], bool] = lambda: True,
        *,
        stored: Callable[[Collection[OffsetRange]], None] = lambda _own: None,
    ) -> None:
        """``first_read``: called when the stored list was read for the first time, or cannot be read by this version.
        ``knows_cluster``: has this process learned which topics there are? ``stored``: called whenever what is known
        was compared with Redis, with the ranges that were written there
        because this process knew more of them."""
        self._known = known
        self._stored = stored
        self._first_read = first_read
        self._knows_cluster = knows_cluster
        self._key = hidden_ranges_key(cluster)
        self._report = report
        self._wall_clock_ms = wall_clock_ms
        self._reported = ""
        """The last reason why the stored value is not used."""
        self._unseen: set[OffsetRange] = set()
        """Ranges whose leader did not answer the last time: they are looked for after the others."""
        self._absent: set[OffsetRange] = set()
        """Ranges of a partition that the cluster did not have the last time."""
        self._settled: tuple[bytes | None, HiddenRanges] | None = None
        """The stored value and what was known, when nothing was left to do; as long as both are the same, nothing
        is."""
        self._is_full = False
        self._full: bytes | None = None
        """The stored value at which there was no room for what was found: as long as it is the same, logs are not read
        for it again."""

    async def run(self) -> None:
        """Look, and wait, for ever."""
        while True:
            stored = await Read(self._key)
            if not isinstance(stored, StoreAway):
                await self._follow(stored)
            seconds = (
                limits.HIDDEN_RANGES_LOOK_SECONDS if self._known.is_read else limits.HIDDEN_RANGES_FIRST_LOOK_SECONDS
            )
            await Wait(seconds)

    async def _follow(self, stored: bytes | None) -> None:
        if self._settled is not None and self._settled[1] is self._known.listed and self._settled[0] == stored:
            self._stored(())
            return
        try:
            version, theirs = (NO_VERSION, {}) if stored is None else unpack_hidden_ranges(stored)
        except HiddenRangesFormatError as error:
            self._warn(f"{error}; fetches hide the same offsets as before; producers are not affected")
            self._is_read()
            return
        await Wait(0)  # others have a turn
        now: HiddenRanges = merged(_kept(self._known.listed, theirs), theirs)
        await self._take(now)  # what others have found counts while logs are looked into
        self._is_read()
        has_room = stored is None or stored != self._full
        asked = sorted(asked_for(now) if has_room else (), key=lambda place: place in self._unseen)
        now = await self._looked_for(asked, now)
        own = [place for place, hidden_range in now.items() if theirs.get(place) != hidden_range]
        if not own or await self._store(version, now):
            await self._take(now)
            self._stored(own)
        elif self._is_full:
            self._full = stored
        self._settled = None if own or asked else (stored, self._known.listed)

    async def _looked_for(self, asked: Sequence[OffsetRange], now: HiddenRanges) -> HiddenRanges:
        """Look for these in the logs, one after the other, until ``HIDDEN_RANGES_LOOK_SECONDS`` have passed: then Redis
        is read again, for what was added or removed meanwhile. Return what is known then."""
        until = await Now() + limits.HIDDEN_RANGES_LOOK_SECONDS
        away: set[int] = set()
        for place in asked:
            leader = await Leader(place.topic, place.partition)
            if leader in away:
                continue
            if leader is not None:
                self._absent.discard(place)
                looked = await self._look_into(place, leader)
            elif await self._is_nowhere(place):
                looked = _refused("the cluster has no such topic, or no such partition of it")
            else:
                continue
            if looked is None:
                assert leader is not None
                away.add(leader)
                self._unseen.add(place)
            else:
                self._unseen.discard(place)
                now = replaced(now, place, self._wall_clock_ms(), **looked)
            if await Now() >= until:
                break
        self._unseen.intersection_update(asked)
        self._absent.intersection_update(asked)
        return now

    async def _is_nowhere(self, place: OffsetRange) -> bool:
        """Does the cluster not have the partition, as last learned? Only in a second look, as a broker that has just
        started may tell of fewer topics than there are, and this process may know nothing of the cluster yet."""
        if not self._knows_cluster() or await Replicas(place.topic, place.partition):
            self._absent.discard(place)
            return False
        was_absent = place in self._absent
        self._absent.add(place)
        return was_absent

    async def _take(self, hidden_ranges: HiddenRanges) -> None:
        if hidden_ranges != self._known.listed:
            self._tell(_changes(self._known.listed, hidden_ranges))
            for _ in self._known.taking(hidden_ranges):
                await Wait(0)

    def _is_read(self) -> None:
        if not self._known.is_read:
            self._known.is_read = True
            self._first_read()

    async def _store(self, version: int, hidden_ranges: HiddenRanges) -> bool:
        """Return whether it is stored now. If somebody else has changed the list in between, the next look takes that
        over; what was found in a log is then looked for again, as the range may have been removed."""
        value = pack_hidden_ranges(version + 1, hidden_ranges)
        self._is_full = len(value) > STORED_BYTES_MAX
        if self._is_full:
            self._warn(f"the hidden ranges take {len(value)} bytes, the limit is {STORED_BYTES_MAX}: remove some")
        elif isinstance(await Swap(self._key, version, value, 0), Swapped):
            self._reported = ""
            return True
        return False

    def _warn(self, what: str) -> None:
        if what != self._reported:
            self._reported = what
            self._report(OperatorMessage("warning", what))

    def _tell(self, changes: Sequence[OperatorMessage]) -> None:
        """Report the first ``HIDDEN_RANGES_CHANGES_TOLD_MAX``, and the number of the others: an audit may have found
        thousands."""
        for message in changes[: limits.HIDDEN_RANGES_CHANGES_TOLD_MAX]:
            self._report(message)
        if (more := len(changes) - limits.HIDDEN_RANGES_CHANGES_TOLD_MAX) > 0:
            self._report(OperatorMessage("info", f"{more} more hidden ranges have changed: see `idemproxy hide list`"))

    # ------------------------------------------------------------------ the log
    async def _look_into(self, place: OffsetRange, leader: int) -> dict[str, object] | None:
        """Return what becomes of a range that was asked for; None: it cannot be said yet."""
        topic, partition = place.topic, place.partition
        earliest = await Ask(leader, EarliestOffset(topic, partition))
        latest = await Ask(leader, LatestOffset(topic, partition))
        if isinstance(earliest, Unanswered) or isinstance(latest, Unanswered):
            return None
        if earliest.error_code or latest.error_code:
            return None
        if not earliest.offset <= place.first < place.end <= latest.offset:
            return _refused(f"the log has offsets {earliest.offset} to {latest.offset - 1}")
        found: list[tuple[int, int, int]] = []
        at = place.first
        while at < place.end:
            chunk = await Ask(leader, ReadLog(topic, partition, at))
            if isinstance(chunk, Unanswered) or chunk.error_code:
                return None
            for first, message in chunk.messages:
                if at <= message.offset and first < place.end:
                    if (why := _why_not(place, first, message)) is not None:
                        return _refused(why)
                    crc = message.header.crc if isinstance(message, LoggedBatch) else message.crc
                    found.append((message.offset, crc, first))
            if len(found) > RANGE_MESSAGES_MAX:
                return _refused(f"the range has more than {RANGE_MESSAGES_MAX} messages: divide it")
            if chunk.end <= at:
                if chunk.unreadable is not None:
                    return _refused(f"the log cannot be read at offset {at}: {chunk.unreadable}")
                return None
            at = chunk.end
        if not found:
            return _refused("no records are there (any more)")
        return {"state": State.ACTIVE, "messages": tuple(found)}


def _kept(known: HiddenRanges, theirs: HiddenRanges) -> HiddenRanges:
    """Return what is known, without what Redis lacks and loses nothing by: a range that was asked for in vain was taken
    out of the list by who has asked for it."""
    lost = (State.ACTIVE, State.REMOVED)
    return {place: one for place, one in known.items() if place in theirs or one.state in lost}


def _changes(before: HiddenRanges, after: HiddenRanges) -> list[OperatorMessage]:
    """Return the messages for operators, warnings first."""
    reported: list[OperatorMessage] = []
    warnings: list[OperatorMessage] = []
    for place, hidden_range in after.items():
        known = before.get(place)
        if known is not None and known.state is hidden_range.state:
            continue
        where = f"offsets {place.first} to {place.end - 1} of {place.topic}/{place.partition}"
        if hidden_range.state is State.ACTIVE:
            why = f" ({hidden_range.reason})" if hidden_range.reason else ""
            reported.append(OperatorMessage("info", f"{where} are hidden from fetches{why}"))
        elif hidden_range.state is State.REFUSED:
            what = f"{where} are not hidden from fetches: {hidden_range.refusal}"
            warnings.append(OperatorMessage("warning", what))
        elif hidden_range.state is State.REMOVED and known is not None:
            reported.append(OperatorMessage("info", f"{where} are no longer hidden from fetches"))
    return warnings + reported


def _refused(why: str) -> dict[str, object]:
    return {"state": State.REFUSED, "refusal": why}


def _why_not(place: OffsetRange, first: int, message: Logged) -> str | None:
    """Why a message with records of the range cannot be left out; None: it can. A wrapper or batch that is left out in
    part is taken apart for each fetch."""
    if isinstance(message, LoggedBatch) and message.header.attributes & CONTROL_FLAG:
        return f"offset {first} is the end of a transaction"
    if place.first <= first and message.offset < place.end:
        return None
    records = message.offset - first + 1
    what = f"a part of the message or batch at offsets {first} to {message.offset} cannot be hidden"
    if records > limits.HIDDEN_RANGES_PART_RECORDS_MAX:
        return f"{what}: it has {records} records, the limit is {limits.HIDDEN_RANGES_PART_RECORDS_MAX}"
    try:
        if isinstance(message, LoggedBatch):
            payload_of(message.records, message.header, limits.HIDDEN_RANGES_UNPACKED_BYTES_MAX)
        else:
            at_once(unpacking(message, limits.HIDDEN_RANGES_UNPACKED_BYTES_MAX))
    except WireError as error:
        return f"{what}: {error}"
    return None
