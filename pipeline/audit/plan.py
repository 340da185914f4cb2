"""What is to be read: which partitions, from where to where, in which ranges. Pure, but for the driver's questions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..reading.broker import Access, Address, Cluster
from ..reading.places import END_OF_FILE, NothingToRead, Place, Range, chosen, ranges_of
from ..reading.segments import compacted_partitions, find_segments, partitions_without_segments

ACCESS: Final = Access("idemproxy-audit")
RANGE_OFFSETS: Final = 200_000
"""Offsets for one task: some seconds of work, so that progress shows and a task that fails costs little."""
RANGES_MAX: Final = 20_000
"""Tasks of one Spark stage; in a larger log the ranges are larger."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an audit reads. ``bootstrap`` is empty where segment files are read."""

    places: tuple[Place, ...]
    ranges: tuple[Range, ...]
    bootstrap: tuple[Address, ...] = ()


def of_cluster(bootstrap: Sequence[Address], wanted: Sequence[str], patterns: Sequence[re.Pattern[str]]) -> Plan:
    """Return the plan for topics of a cluster. Raises NothingToRead, BrokerProblem."""
    with Cluster(bootstrap, ACCESS) as cluster:
        there = cluster.partitions(wanted)
        places = [
            Place(topic, partition, *cluster.offsets(topic, partition), has_holes=has_holes)
            for topic, has_holes in ((topic, cluster.has_holes(topic)) for topic in chosen(there, wanted, patterns))
            for partition in there[topic]
        ]
    return Plan(tuple(places), ranges_of(places, RANGE_OFFSETS, RANGES_MAX), tuple(bootstrap))


def of_files(folders: Sequence[Path], wanted: Sequence[str], patterns: Sequence[re.Pattern[str]]) -> Plan:
    """Return the plan for segment files. Raises NothingToRead, OSError."""
    segments = find_segments(folders)
    if not segments:
        raise NothingToRead(f"no segment files (topic-0/00000000000000000000.log) below {', '.join(map(str, folders))}")
    empty = partitions_without_segments(folders)
    topics = set(chosen({one.topic for one in segments} | {topic for topic, _ in empty}, wanted, patterns))
    starts: dict[tuple[str, int], int] = {}
    at: dict[tuple[str, int], Path] = {}
    for one in segments:
        if one.topic in topics:
            place, folder = (one.topic, one.partition), one.path.parent.parent
            starts.setdefault(place, one.base)
            if at.setdefault(place, folder) != folder:
                raise NothingToRead(
                    f"{one.topic}-{one.partition} is in {at[place]} and in {folder}: these are replicas of two brokers,"
                    " and their records would be taken for duplicates; give the directories of one broker"
                )
    compacted = {folder: compacted_partitions(folder) for folder in set(at.values())}
    has_holes = {place: None if (of := compacted[folder]) is None else place in of for place, folder in at.items()}
    numbers = {place: number for number, place in enumerate(starts)}
    ranges = [
        Range(numbers[one.topic, one.partition], one.base, END_OF_FILE, str(one.path.resolve()))
        for one in segments
        if one.topic in topics
    ]
    places = [Place(*place, start, END_OF_FILE, has_holes[place]) for place, start in starts.items()]
    places += [Place(*place, 0, END_OF_FILE) for place in empty if place[0] in topics]
    return Plan(tuple(places), tuple(ranges))


def ranges_by_place(ranges: Sequence[Range]) -> Mapping[int, list[Range]]:
    """Return them by partition, each in order."""
    found: dict[int, list[Range]] = {}
    for one in sorted(ranges, key=lambda one: (one.place, one.start)):
        found.setdefault(one.place, []).append(one)
    return found
