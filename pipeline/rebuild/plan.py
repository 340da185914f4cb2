"""Which partitions are read, from where to where, in which ranges. Asks brokers; reads no records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..reading.broker import EARLIEST, LATEST, BrokerProblem, Cluster, NoTimes, TopicPartition
from ..reading.places import Place, Range, ranges_of

RANGE_OFFSETS: Final = 1_000_000
"""Offsets for one task: some seconds of work, where wrappers have a few records each."""
RANGES_MAX: Final = 20_000
NO_LEADER: Final = "it has no leader"


def places_of(
    cluster: Cluster, topics: Sequence[str], partitions: Mapping[str, Sequence[int]], since_ms: int
) -> tuple[tuple[Place, ...], dict[str, str]]:
    """Return the partitions of these topics, each from its first record as late as ``since_ms`` (0: from its beginning)
    to its high watermark; and by name, why others cannot be read. Raises BrokerProblem where none can."""
    places: list[TopicPartition] = [(topic, partition) for topic in topics for partition in partitions[topic]]
    try:
        firsts = cluster.offsets_at(dict.fromkeys(places, EARLIEST))
    except BrokerProblem:
        led = cluster.led(places)
        if not 0 < len(led) < len(places):
            raise
        left = {Place(*place, 0, 0).name: NO_LEADER for place in set(places).difference(led)}
        places, firsts = led, cluster.offsets_at(dict.fromkeys(led, EARLIEST))
    else:
        left = {}
    ends = cluster.offsets_at(dict.fromkeys(places, LATEST))
    starts = dict(firsts)
    for topic in topics if since_ms else ():
        here = [place for place in places if place[0] == topic]
        try:
            for place, offset in cluster.offsets_at(dict.fromkeys(here, since_ms)).items():
                starts[place] = max(firsts[place], offset if offset >= 0 else ends[place])
        except NoTimes:
            pass  # a broker before 0.10.1, or a topic in format v0: its whole log is read
    return tuple(Place(*place, min(starts[place], ends[place]), ends[place]) for place in places), left


def ranges_of_all(places: Sequence[Place]) -> tuple[Range, ...]:
    """Return the ranges of all partitions that have something to read, in order."""
    return ranges_of(places, RANGE_OFFSETS, RANGES_MAX)
