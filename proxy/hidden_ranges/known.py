"""The hidden ranges that this process knows, as fetches ask for them. Pure but for the reactor's clock.

Owns the index by partition and, for each client connection, where its next fetch of a partition begins if everything
that its last one brought was left out. Never reads a log or the store.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from cachetools import TTLCache

from ...codecs.steps import STEP_RECORDS, Steps, at_once
from ...codecs.without_ranges import Ranges
from ...state.hidden_ranges import OFFSET_MAX, HiddenRange, HiddenRanges, OffsetRange, State, active_by_partition
from .. import limits

Place = tuple[str, int]
Row = TypeVar("Row")


class LogRanges(Ranges):
    """What is left out of one log that a partition has had (a topic that is deleted and created again gets another
    log); the spans are in order, and none touches another one."""

    __slots__ = ()

    def have(self, first: int, last: int) -> bool:
        """As in ``Ranges``, by binary search: audits find thousands of ranges."""
        span = bisect_right(self.spans, (first, OFFSET_MAX)) - 1
        return span >= 0 and last < self.spans[span][1]

    def part_records(self, offset: int, crc: int) -> int:
        """Return how many offsets the wrapper at ``offset`` has, if a part of it is left out and a part stays; else
        0."""
        noted, first = self.messages.get(offset, (-1, offset))
        return offset - first + 1 if noted == crc and not self.have(first, offset) else 0


class KnownHiddenRanges:
    """Of one process. ``is_any``: is there an active one?"""

    is_any: bool = False
    is_read: bool = False
    """Was the stored list read since this process began? Before that no fetch may pass: nothing would be left out."""
    records_left_out: int = 0
    """How many offsets the active ranges have."""
    applied: int = 0
    """Partitions in answers of which something was left out."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.listed: HiddenRanges = {}
        self._ranges: dict[Place, tuple[LogRanges, ...]] = {}
        self._active: dict[Place, list[tuple[OffsetRange, HiddenRange]]] = {}
        """What the ranges of each partition were made of."""

    def take_list(self, hidden_ranges: HiddenRanges) -> None:
        """These are all from now on."""
        at_once(self.taking(hidden_ranges))

    def taking(self, hidden_ranges: HiddenRanges) -> Steps[None]:
        """The same in steps; they count when the last one is done."""
        ranges: dict[Place, tuple[LogRanges, ...]] = {}
        active = active_by_partition(hidden_ranges)
        records_left_out = 0
        for place, found in active.items():
            if self._active.get(place) == found:
                ranges[place] = self._ranges[place]
            else:
                ranges[place] = yield from _by_log(found)
            records_left_out += sum(one.end - one.first for one, _ in found)
        self.listed, self._active, self._ranges = hidden_ranges, active, ranges
        self.records_left_out = records_left_out
        self.is_any = bool(ranges)

    def by_state(self) -> dict[State, int]:
        """Return how many ranges there are in each state that people look for. May be called from another thread."""
        states = [one.state for one in self.listed.values()]
        return {state: states.count(state) for state in State if state is not State.REMOVED}

    def newest_first(self) -> list[tuple[OffsetRange, HiddenRange]]:
        """Return those that were not taken back. May be called from another thread."""
        listed = [one for one in self.listed.items() if one[1].state is not State.REMOVED]
        return sorted(listed, key=lambda one: -one[1].at_ms)

    def ranges_of(self, topic: str, partition: int) -> tuple[LogRanges, ...]:
        """What is left out of a partition, for each log that it has had. The same object as long as it is the same."""
        return self._ranges.get((topic, partition), ())


class _Log:
    """Messages that can have been in one log, in the order of their offsets, and what is left out of each."""

    def __init__(self) -> None:
        self.end = 0
        """The offset after the last message."""
        self._spans: list[tuple[int, int]] = []
        self._messages: dict[int, tuple[int, int]] = {}
        self._places: dict[OffsetRange, int] = {}
        """Ranges that the last message was seen to be in, and which spans are theirs."""

    def take_ranges(self, message: tuple[int, int, int], places: Sequence[OffsetRange]) -> None:
        """``places``: all ranges in which this message was seen to be."""
        offset, crc, first = message
        spans, before, self._places = self._spans, self._places, {}
        for place in places:
            start, end = max(place.first, first), min(place.end, offset + 1)
            if place in before:  # one span for a range, as each message is looked for in all of them
                at = before[place]
                spans[at] = spans[at][0], end
            else:
                at = len(spans)
                spans.append((start, end))
            self._places[place] = at
        self._messages[offset] = crc, first
        self.end = offset + 1

    def ranges(self) -> LogRanges:
        """What a message set is compared with."""
        spans: list[tuple[int, int]] = []
        for start, end in sorted(self._spans):
            if spans and start <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(spans[-1][1], end)
            else:
                spans.append((start, end))
        return LogRanges(tuple(spans), self._messages, self.end - 1)


def _by_log(found: Sequence[tuple[OffsetRange, HiddenRange]]) -> Steps[tuple[LogRanges, ...]]:
    """Keep messages apart that cannot have been in one log, as they have the same offsets: it may have been cut off, or
    recreated, in between. So a range counts only in the messages that it was seen to be in."""
    noted: dict[tuple[int, int, int], list[OffsetRange]] = {}
    for place, hidden_range in found:
        for message in hidden_range.messages:
            noted.setdefault(message, []).append(place)
    logs: list[_Log] = []
    for count, message in enumerate(sorted(noted, key=lambda one: (one[2], one[0])), 1):
        if not count % STEP_RECORDS:
            yield
        log = next((log for log in logs if log.end <= message[2]), None)
        if log is None:
            if len(logs) == limits.HIDDEN_RANGES_LOGS_MAX:
                continue
            log = _Log()
            logs.append(log)
        log.take_ranges(message, noted[message])
    return tuple(log.ranges() for log in logs)


class Skips:
    """For one client connection: where its next fetch of a partition begins, if everything that the last one brought
    was left out, as if the client had read these records. Holds until the client fetches at another offset, gets an
    error, or other ranges count, and for ``HIDDEN_RANGES_SKIP_SECONDS`` at most. What one client was answered is never
    used for another one, which may see another log. Also says whose turn it is among the client's partitions."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._noted: TTLCache[Place, tuple[int, int, Sequence[LogRanges]]] = TTLCache(
            limits.HIDDEN_RANGES_SKIPS_MAX, limits.HIDDEN_RANGES_SKIP_SECONDS, timer=now
        )
        """The client's fetch offset, the offset at which the log continues, and what was left out then."""
        self._answers = 0

    def in_turn(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return them with another one first for each answer, as there may not be time for all in one."""
        self._answers += 1
        first = self._answers % max(len(rows), 1)
        return (*rows[first:], *rows[:first])

    def note(self, place: Place, offset: int, skipped_to: int, ranges: Sequence[LogRanges]) -> None:
        """All that a fetch at ``offset`` brought was left out: the next one continues at ``skipped_to``."""
        self._noted[place] = offset, skipped_to, ranges

    def forget(self, place: Place) -> None:
        """The client fetches elsewhere, or the log may be another one than that of the last answer."""
        self._noted.pop(place, None)

    def begin(self, place: Place, offset: int, ranges: Sequence[LogRanges]) -> int:
        """Where a fetch at this offset is to begin."""
        at, skipped_to, noted = self._noted.get(place, (-1, -1, ()))
        if at == offset and noted is ranges:
            return skipped_to
        self.forget(place)
        return offset
