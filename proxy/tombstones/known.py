"""The tombstones that this process knows, as fetches ask for them. Pure but for the reactor's clock.

Owns the index by partition, and for each client where it has to go on whose next records are all left out. Never reads
a log or the store.
"""

from __future__ import annotations

from collections.abc import Callable

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
        self._ranges: dict[Place, Ranges] = {}

    def take(self, tombstones: Tombstones) -> None:
        """These are all from now on."""
        self.tombstones = tombstones
        before, self._ranges = self._ranges, {}
        self.records_left_out = 0
        for place, found in active_by_partition(tombstones).items():
            spans = tuple((one.first, one.end) for one, _ in found)
            messages = {offset: (crc, first) for _, one in found for offset, crc, first in one.messages}
            ranges = Ranges(spans, messages, max(messages, default=-1))
            self._ranges[place] = before[place] if before.get(place) == ranges else ranges
            self.records_left_out += sum(end - first for first, end in spans)
        self.is_any = bool(self._ranges)

    def by_state(self) -> dict[State, int]:
        """Return how many ranges there are in each state that people look for. May be called from another thread."""
        states = [one.state for one in self.tombstones.values()]
        return {state: states.count(state) for state in State if state is not State.REMOVED}

    def newest_first(self) -> list[tuple[OffsetRange, Tombstone]]:
        """Return those that were not taken back. May be called from another thread."""
        listed = [one for one in self.tombstones.items() if one[1].state is not State.REMOVED]
        return sorted(listed, key=lambda one: -one[1].at_ms)

    def ranges_of(self, topic: str, partition: int) -> Ranges | None:
        """What is left out of a partition; None: nothing. The same object as long as it is the same."""
        return self._ranges.get((topic, partition))


class Skips:
    """Of one client connection: where its next fetch of a partition begins, as all that its last one brought is left
    out. It stands there as if it had read these records: until it asks for another offset, is told of an error, or
    other ranges count. What one client has seen is never believed for another one, which may see another log."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._noted: TTLCache[Place, tuple[int, int, Ranges]] = TTLCache(
            limits.TOMBSTONE_SKIPS_MAX, limits.TOMBSTONE_SKIP_SECONDS, timer=now
        )
        """Offset that the client says, offset at which the log goes on, and what was left out then."""

    def note(self, place: Place, offset: int, skipped_to: int, ranges: Ranges) -> None:
        """Of what a fetch at this offset brought nothing was left: the next one goes on there."""
        self._noted[place] = offset, skipped_to, ranges

    def forget(self, place: Place) -> None:
        """The client stands elsewhere, or the log may be another one than that answer was taken from."""
        self._noted.pop(place, None)

    def begin(self, place: Place, offset: int, ranges: Ranges) -> int:
        """Where a fetch at this offset is to begin."""
        at, skipped_to, noted = self._noted.get(place, (-1, -1, None))
        if at == offset and noted is ranges:
            return skipped_to
        self.forget(place)
        return offset
