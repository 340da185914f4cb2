"""Which partitions are read, from where to where, in which ranges. Asks brokers; reads no records."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..reading.broker import EARLIEST, LATEST, BrokerProblem, Cluster, TopicPartition
from .wanted import Place

RANGE_OFFSETS: Final = 1_000_000
"""Of one task: some seconds of work, where wrappers have a few records each."""
RANGES_MAX: Final = 20_000


class NothingToRead(Exception):
    """There is no such topic; the message is a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Range:
    """A part of one place. ``place``: its number."""

    place: int
    start: int
    end: int


def chosen(topics: Sequence[str], wanted: Sequence[str], patterns: Sequence[re.Pattern[str]]) -> list[str]:
    """Return the topics that were asked for; if none was, all but Kafka's own (``__...``). Raises NothingToRead."""
    missing = [name for name in wanted if name not in topics]
    if missing:
        raise NothingToRead(f"there is no topic {', '.join(missing)}")
    if not wanted and not patterns:
        found = [name for name in topics if not name.startswith("__")]
    else:
        found = [name for name in topics if name in wanted or any(one.fullmatch(name) for one in patterns)]
    if not found:
        raise NothingToRead("there is no topic to read")
    return sorted(found)


def places_of(
    cluster: Cluster, topics: Sequence[str], partitions: Mapping[str, Sequence[int]], since_ms: int
) -> tuple[Place, ...]:
    """Return the partitions of these topics, each from where its log is as late as ``since_ms`` (0: from its beginning)
    to its high watermark. Raises BrokerProblem."""
    places: list[TopicPartition] = [(topic, partition) for topic in topics for partition in partitions[topic]]
    firsts = cluster.offsets_at(dict.fromkeys(places, EARLIEST))
    ends = cluster.offsets_at(dict.fromkeys(places, LATEST))
    starts = dict(firsts)
    for topic in topics if since_ms else ():
        here = [place for place in places if place[0] == topic]
        try:
            for place, offset in cluster.offsets_at(dict.fromkeys(here, since_ms)).items():
                starts[place] = max(firsts[place], offset if offset >= 0 else ends[place])
        except BrokerProblem:
            pass  # a broker before 0.10.1, or a topic in format v0: its log has no times to find
    return tuple(Place(*place, min(starts[place], ends[place]), ends[place]) for place in places)


def ranges_of(places: Sequence[Place]) -> tuple[Range, ...]:
    """Return the ranges of all partitions that have something to read, in order."""
    size = max(RANGE_OFFSETS, -(-sum(place.end - place.start for place in places) // RANGES_MAX))
    return tuple(
        Range(number, start, min(start + size, place.end))
        for number, place in enumerate(places)
        for start in range(place.start, place.end, size)
    )
