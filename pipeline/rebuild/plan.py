"""Which partitions are read, from where to where, in which ranges. Asks brokers; reads no records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..reading.broker import EARLIEST, LATEST, BrokerProblem, Cluster, TopicPartition
from ..reading.places import Place, Range, ranges_of

RANGE_OFFSETS: Final = 1_000_000
"""Of one task: some seconds of work, where wrappers have a few records each."""
RANGES_MAX: Final = 20_000


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


def ranges_of_all(places: Sequence[Place]) -> tuple[Range, ...]:
    """Return the ranges of all partitions that have something to read, in order."""
    return ranges_of(places, RANGE_OFFSETS, RANGES_MAX)
