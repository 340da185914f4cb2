"""The tombstones that this process knows, as fetches ask for them. Pure but for the reactor's clock.

Owns the index by partition, and for a while where a consumer has to go on whose next records are all left out. Never
reads a log or the store.
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
    records_left_out: int = 0
    """How many offsets the active ranges have."""
    applied: int = 0
    """Partitions in answers of which something was left out."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.tombstones: Tombstones = {}
        self._ranges: dict[Place, Ranges] = {}
        self._skips: TTLCache[tuple[str, int, int], int] = TTLCache(
            limits.TOMBSTONE_SKIPS_MAX, limits.TOMBSTONE_SKIP_SECONDS, timer=now
        )
        """(topic, partition, offset) -> where the log goes on, as seen in an answer of which nothing was left."""

    def take(self, tombstones: Tombstones) -> None:
        """These are all from now on."""
        self.tombstones = tombstones
        self._ranges.clear()
        self.records_left_out = 0
        for place, found in active_by_partition(tombstones).items():
            spans = tuple((one.first, one.end) for one, _ in found)
            messages = {offset: (crc, first) for _, one in found for offset, crc, first in one.messages}
            self._ranges[place] = Ranges(spans, messages, max(messages, default=-1))
            self.records_left_out += sum(end - first for first, end in spans)
        self.is_any = bool(self._ranges)
        self._skips.clear()

    def by_state(self) -> dict[State, int]:
        """Return how many ranges there are in each state that people look for. May be called from another thread."""
        states = [one.state for one in self.tombstones.values()]
        return {state: states.count(state) for state in State if state is not State.REMOVED}

    def newest_first(self) -> list[tuple[OffsetRange, Tombstone]]:
        """Return those that were not taken back. May be called from another thread."""
        listed = [one for one in self.tombstones.items() if one[1].state is not State.REMOVED]
        return sorted(listed, key=lambda one: -one[1].at_ms)

    def ranges_of(self, topic: str, partition: int) -> Ranges | None:
        """What is left out of a partition; None: nothing."""
        return self._ranges.get((topic, partition))

    def note_skip(self, topic: str, partition: int, offset: int, skipped_to: int) -> None:
        """Of what a fetch at this offset brought nothing was left: the next one goes on there."""
        self._skips[topic, partition, offset] = skipped_to

    def forget_skip(self, topic: str, partition: int, offset: int) -> None:
        """The log is no longer what that answer was taken from."""
        self._skips.pop((topic, partition, offset), None)

    def skip(self, topic: str, partition: int, offset: int) -> int:
        """Where a fetch at this offset is to begin."""
        return self._skips.get((topic, partition, offset), offset)
