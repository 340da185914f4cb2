"""What each client did on each topic: batches, records, bytes, duplicates, errors, and when. Plain numbers, capped, as
clients choose their names freely. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from .. import limits
from .metric_names import OTHER

Place = tuple[str, str]
"""Client id and topic."""
BEYOND: Final = (OTHER, OTHER)
"""Where everything is counted that has no pair of its own."""


class Activity:
    """One client on one topic: its batches with a producer id. ``appended``, ``records`` and ``record_bytes`` are of
    those that were appended. ``answered``, ``joined``: duplicates that were prevented, as they were answered from the
    log, or joined to a first try that was under way. ``last_at``, ``failed_at``: of the last batch, and of the last one
    that got an error, seconds of the clock."""

    __slots__ = ("answered", "appended", "failed_at", "joined", "last_at", "record_bytes", "records", "verdicts")

    def __init__(self) -> None:
        self.appended = self.records = self.record_bytes = 0
        self.answered = self.joined = 0
        self.verdicts: dict[str, int] = {}
        """Batches with another verdict than appended."""
        self.last_at = 0.0
        self.failed_at = float("-inf")

    def count_appended(self, record_count: int, record_bytes: int) -> None:
        """A batch was appended."""
        self.appended += 1
        self.records += record_count
        self.record_bytes += record_bytes

    def add_answered(self, other: Activity) -> None:
        """Add another pair's batches; not the duplicates that were prevented."""
        self.appended += other.appended
        self.records += other.records
        self.record_bytes += other.record_bytes
        for verdict, count in other.verdicts.items():
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + count

    @property
    def prevented(self) -> int:
        """Duplicates that were prevented."""
        return self.answered + self.joined


class Activities:
    """The activity of all clients on all topics. A pair that was idle for long may make room for another one, and
    begins at 0 when it comes back. Its batches stay counted for their topic."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        """The clock of ``last_at``."""
        self._known: dict[Place, Activity] = {}
        self._left: dict[str, Activity] = {}
        """By topic, what pairs did that have made room."""
        self._whole = self._known, self._left
        """Both, for other threads: replaced in one step, so that nobody sees a pair in both of them or in none."""
        self._full_until = float("-inf")
        """Nothing makes room before this time."""

    def of(self, client: str, topic: str) -> Activity:
        """Return where this pair is counted, and note that it is active now."""
        place = client, topic
        found = self._known.get(place)
        now = self.now()
        if found is None:
            found = self._new(place, now)
        found.last_at = now
        return found

    def items(self) -> list[tuple[Place, Activity]]:
        """Return all of them. May be called from another thread."""
        return list(self._known.items())

    def by_topic(self) -> list[tuple[str, Activity]]:
        """Return (topic, activity) of all pairs, so that a topic may come several times. May be called from another
        thread."""
        known, left = self._whole
        return [*left.items(), *((topic, one) for (_, topic), one in list(known.items()))]

    def duplicates(self) -> Iterator[tuple[Place, Activity]]:
        """Yield those with duplicates that were prevented."""
        return ((place, one) for place, one in self.items() if one.prevented)

    def _new(self, place: Place, now: float) -> Activity:
        if place != BEYOND and not self._has_room(place, now):
            return self.of(*BEYOND)
        found = self._known[place] = Activity()
        return found

    def _has_room(self, place: Place, now: float) -> bool:
        """May this pair be counted separately? At the cap the pair that was idle for longest makes room, if it was idle
        for ``CLIENT_TOPIC_IDLE_SECONDS``."""
        pairs = len(self._known) - (BEYOND in self._known)
        if pairs < limits.CLIENT_TOPIC_SERIES_MAX:
            return True
        if now < self._full_until:
            return False
        idlest, at = min(
            ((other, one.last_at) for other, one in self._known.items() if other != BEYOND), key=lambda one: one[1]
        )
        if now - at < limits.CLIENT_TOPIC_IDLE_SECONDS:
            self._full_until = at + limits.CLIENT_TOPIC_IDLE_SECONDS
            return False
        self._replace(idlest, place)
        return True

    def _replace(self, idlest: Place, coming: Place) -> None:
        """Have one pair make room for another one. Topics have the same cap as pairs: those that no pair has any more
        are dropped first, oldest first."""
        known, left = dict(self._known), dict(self._left)
        total, (_, topic) = Activity(), idlest
        for one in (left.pop(topic, None), known.pop(idlest)):
            if one is not None:
                total.add_answered(one)
        if total.appended or total.verdicts:
            left[topic] = total
        in_use = {topic for _, topic in (*known, coming)} - {OTHER}
        unused = [topic for topic in left if topic not in in_use and topic != OTHER]
        for topic in unused[: max(0, len(in_use) + len(unused) - limits.CLIENT_TOPIC_SERIES_MAX)]:
            del left[topic]
        self._known, self._left = self._whole = known, left
