"""The tombstones that this process knows, as fetches ask for them. Pure but for the reactor's clock.

Owns the index by partition, and for each client where it has to go on whose next records are all left out. Never reads
a log or the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from cachetools import TTLCache

from ...codecs.without_ranges import Ranges
from ...state.tombstones import OffsetRange, State, Tombstone, Tombstones, active_by_partition
from .. import limits

Place = tuple[str, int]


class KnownTombstones:
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
        self.tombstones: Tombstones = {}
        self._ranges: dict[Place, tuple[Ranges, ...]] = {}

    def take(self, tombstones: Tombstones) -> None:
        """These are all from now on."""
        self.tombstones = tombstones
        before, self._ranges = self._ranges, {}
        self.records_left_out = 0
        for place, found in active_by_partition(tombstones).items():
            ranges = _by_log(found)
            self._ranges[place] = before[place] if before.get(place) == ranges else ranges
            self.records_left_out += sum(one.end - one.first for one, _ in found)
        self.is_any = bool(self._ranges)

    def by_state(self) -> dict[State, int]:
        """Return how many ranges there are in each state that people look for. May be called from another thread."""
        states = [one.state for one in self.tombstones.values()]
        return {state: states.count(state) for state in State if state is not State.REMOVED}

    def newest_first(self) -> list[tuple[OffsetRange, Tombstone]]:
        """Return those that were not taken back. May be called from another thread."""
        listed = [one for one in self.tombstones.items() if one[1].state is not State.REMOVED]
        return sorted(listed, key=lambda one: -one[1].at_ms)

    def ranges_of(self, topic: str, partition: int) -> tuple[Ranges, ...]:
        """What is left out of a partition, for each log that it has had. The same object as long as it is the same."""
        return self._ranges.get((topic, partition), ())


class _Log:
    """Ranges that can have been seen in one log, in the order of their offsets."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []
        self._messages: dict[int, tuple[int, int]] = {}

    def take(self, place: OffsetRange, tombstone: Tombstone) -> bool:
        """Take a range, unless it, or another one, has offsets of a message that it was not seen to be in."""
        if self._spans and place.first < self._spans[-1][1]:
            return False
        own = {offset: (crc, first) for offset, crc, first in tombstone.messages}
        theirs = takewhile(lambda one: one[0] >= place.first, reversed(self._messages.items()))
        if any(own.get(offset) != noted for offset, noted in theirs if noted[1] < place.end):
            return False
        begins = min((first for _, first in own.values()), default=place.first)
        met = list(takewhile(lambda span: span[1] > begins, reversed(self._spans)))
        for offset, noted in own.items():
            is_met = any(start <= offset and noted[1] < end for start, end in met)
            if self._messages.get(offset, noted) != noted or (is_met and offset not in self._messages):
                return False
        self._spans.append((place.first, place.end))
        self._messages.update(own)
        return True

    def ranges(self) -> Ranges:
        return Ranges(tuple(self._spans), self._messages, max(self._messages, default=-1))


def _by_log(found: Sequence[tuple[OffsetRange, Tombstone]]) -> tuple[Ranges, ...]:
    """Bring ranges together that do not contradict each other. Those of a log that was cut off, or made anew, since are
    kept apart from later ones: else they would count in a wrapper that only the others were seen to be in."""
    logs: list[_Log] = []
    for place, tombstone in found:
        if any(log.take(place, tombstone) for log in logs) or len(logs) == limits.TOMBSTONE_LOGS_MAX:
            continue
        logs.append(_Log())
        logs[-1].take(place, tombstone)
    return tuple(log.ranges() for log in logs)


class Skips:
    """Of one client connection: where its next fetch of a partition begins, as all that its last one brought is left
    out. It stands there as if it had read these records: until it asks for another offset, is told of an error, or
    other ranges count. What one client has seen is never believed for another one, which may see another log."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._noted: TTLCache[Place, tuple[int, int, Sequence[Ranges]]] = TTLCache(
            limits.TOMBSTONE_SKIPS_MAX, limits.TOMBSTONE_SKIP_SECONDS, timer=now
        )
        """Offset that the client says, offset at which the log goes on, and what was left out then."""

    def note(self, place: Place, offset: int, skipped_to: int, ranges: Sequence[Ranges]) -> None:
        """Of what a fetch at this offset brought nothing was left: the next one goes on there."""
        self._noted[place] = offset, skipped_to, ranges

    def forget(self, place: Place) -> None:
        """The client stands elsewhere, or the log may be another one than that answer was taken from."""
        self._noted.pop(place, None)

    def begin(self, place: Place, offset: int, ranges: Sequence[Ranges]) -> int:
        """Where a fetch at this offset is to begin."""
        at, skipped_to, noted = self._noted.get(place, (-1, -1, ()))
        if at == offset and noted is ranges:
            return skipped_to
        self.forget(place)
        return offset
