"""What the driver asks the brokers: which partitions there are, and which offsets an option means."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..reading.broker import LATEST, Cluster, TopicPartition
from .offsets import named
from .options import Position, Topics
from .problems import WrongOption


def partitions_of(cluster: Cluster, topics: Topics) -> list[TopicPartition]:
    """Return the partitions that are there, in order. Raises WrongOption for one that was named and is not, and where a
    pattern fits none; BrokerProblem."""
    places, missing = look_for(cluster, topics)
    if missing:
        raise WrongOption(missing)
    return places


def look_for(
    cluster: Cluster, topics: Topics, known: Collection[TopicPartition] = (), *, is_patient: bool = True
) -> tuple[list[TopicPartition], str]:
    """Return the partitions that are there, in order, and a sentence about named topics or partitions that are missing,
    or a pattern that fits none; empty: nothing is missing. Raises BrokerProblem.

    ``known``: partitions that a stream has read; the stream itself reports those that are gone. ``is_patient``: also
    wait for topics that are not known, which may have been created a moment ago."""
    known_topics = {name for name, _ in known}
    expected = {*topics.names, *(name for name, _ in topics.partitions)}
    there = cluster.partitions(expected if is_patient else expected & known_topics)
    if topics.partitions:
        found = [place for place in topics.partitions if place[1] in there.get(place[0], ())]
        missing = {*topics.partitions} - {*found, *known}
        return found, f"assign: there is no {named(missing)}" if missing else ""
    names: Iterable[str] = topics.names
    if topics.pattern is not None:
        names = sorted(name for name in there if topics.pattern.fullmatch(name))
        if not names and not known:
            return [], f"subscribePattern: no topic fits {topics.pattern.pattern!r}"
    found = [(name, partition) for name in names for partition in there.get(name, ())]
    absent = [name for name in names if name not in there and name not in known_topics]
    return found, f"subscribe: there is no topic {', '.join(absent)}" if absent else ""


def offsets_of(
    cluster: Cluster, places: Iterable[TopicPartition], position: Position, *, falls_back_to_end: bool
) -> dict[TopicPartition, int]:
    """Return the offset of each partition. ``falls_back_to_end``: where no record is as late as the time. Raises
    WrongOption, BrokerProblem."""
    wanted = list(places)
    if position.time is not None:
        return _by_time(cluster, dict.fromkeys(wanted, position.time), position.option, falls_back_to_end)
    given = position.times if position.times is not None else position.offsets
    assert given is not None
    if given.keys() != set(wanted):
        missing, unknown = set(wanted) - given.keys(), given.keys() - set(wanted)
        wrong = f"{named(missing)} is missing" if missing else f"{named(unknown)} is not read"
        raise WrongOption(f"{position.option}: it has to name every partition, and no other: {wrong}")
    if position.times is not None:
        return _by_time(cluster, position.times, position.option, falls_back_to_end)
    words = {place: offset for place, offset in given.items() if offset < 0}
    return {**given, **(cluster.offsets_at(words) if words else {})}


def _by_time(
    cluster: Cluster, times: Mapping[TopicPartition, int], option: str, falls_back_to_end: bool
) -> dict[TopicPartition, int]:
    found = cluster.offsets_at(times)
    behind = [place for place, offset in found.items() if offset < 0]
    if behind and not falls_back_to_end:
        raise WrongOption(
            f"{option}: no record of {named(behind)} is as late as that; "
            "with startingOffsetsByTimestampStrategy=latest reading begins at the end there"
        )
    return {**found, **(cluster.offsets_at(dict.fromkeys(behind, LATEST)) if behind else {})}
