"""What of which logs is to be read: topics that were asked for, their partitions, and ranges of about the same size,
one for each task. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

END_OF_FILE: Final = 1 << 62
"""A segment is read to its end, wherever that is."""


class NothingToRead(Exception):
    """There is no such topic; the message is a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Place:
    """One partition, and what of it is read: from ``start`` up to ``end``, which it had when the run began.
    ``has_holes``: whether offsets may be missing in it, as compaction removes records; None: that is not known."""

    topic: str
    partition: int
    start: int
    end: int
    has_holes: bool | None = None

    @property
    def name(self) -> str:
        """As the brokers' folders are called."""
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Range:
    """What one task reads of one partition. ``place``: its number in the plan. ``path``: of the segment file; empty: it
    is fetched."""

    place: int
    start: int
    end: int
    path: str = ""


def chosen(topics: Iterable[str], wanted: Sequence[str], patterns: Sequence[re.Pattern[str]]) -> list[str]:
    """Return the topics that were asked for, by name or by a pattern that fits the whole name; if none was asked for,
    all but Kafka's own (``__...``). Raises NothingToRead for a name that is not there."""
    there = sorted(topics)
    missing = [name for name in wanted if name not in there]
    if missing:
        raise NothingToRead(f"there is no topic {', '.join(missing)}")
    if not wanted and not patterns:
        return [name for name in there if not name.startswith("__")]
    found = [name for name in there if name in wanted or any(pattern.fullmatch(name) for pattern in patterns)]
    if not found:
        raise NothingToRead(f"no topic fits {', '.join(pattern.pattern for pattern in patterns)}")
    return found


def ranges_of(places: Sequence[Place], range_offsets: int, ranges_max: int) -> tuple[Range, ...]:
    """Return the ranges of all partitions that have something to read, in order. ``ranges_max``: in a larger log the
    ranges are larger."""
    total = sum(place.end - place.start for place in places)
    size = max(range_offsets, -(-total // ranges_max))
    return tuple(
        Range(number, start, min(start + size, place.end))
        for number, place in enumerate(places)
        for start in range(place.start, place.end, size)
    )
