"""Offsets of partitions as JSON, in the layout of Spark's Kafka source: ``{"orders":{"0":23,"1":-2}}``. Pure.

The offset of a stream says more: of a partition that it has for the first time also where reading it begins. Spark
keeps the offset in the checkpoint before it reads, so a query that is killed in its first batch begins there again, not
at what is the latest offset by then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ..reading.broker import TopicPartition
from .problems import WrongOption

Offsets = Mapping[TopicPartition, int]
BEGINS_AT: Final = "begins at"
"""A key next to the topics; no topic can have this name, as it contains a space."""
_INT64_END: Final = 1 << 63
_INT32_END: Final = 1 << 31


class StreamOffset(NamedTuple):
    """``ends``: after what was read. ``begins``: of partitions that are read for the first time."""

    ends: Offsets
    begins: Offsets


def parse_offsets(text: str, option: str) -> dict[TopicPartition, int]:
    """Return what the JSON of an option says: numbers by topic and partition. Raises WrongOption."""
    found = {}
    for topic, by_partition in _object(text, option).items():
        if topic == BEGINS_AT:
            continue  # copied from the progress of a stream
        if not isinstance(by_partition, dict):
            raise WrongOption(f'{option}: {topic}: {{"partition": number}} is wanted')
        for partition, number in by_partition.items():
            if isinstance(number, bool) or not isinstance(number, int) or not -_INT64_END <= number < _INT64_END:
                raise WrongOption(f"{option}: {topic}, partition {partition}: {number!r} is no number")
            found[topic, _partition(partition, topic, option)] = number
    return found


def parse_assignment(text: str, option: str) -> list[TopicPartition]:
    """Return what the JSON of ``assign`` says: ``{"orders":[0,1]}``. Raises WrongOption."""
    found: set[TopicPartition] = set()
    for topic, partitions in _object(text, option).items():
        if not isinstance(partitions, list):
            raise WrongOption(f"{option}: {topic}: a list of partitions is wanted")
        found.update((topic, _partition(one, topic, option)) for one in partitions)
    if not found:
        raise WrongOption(f"{option}: no partition")
    return sorted(found)


def as_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return the offsets as Spark writes them."""
    made: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        made.setdefault(topic, {})[str(partition)] = offset
    return made


def stream_offset_json(offset: StreamOffset) -> dict[str, Any]:
    """Return what Spark keeps in the checkpoint and shows in the progress."""
    made: dict[str, Any] = as_json(offset.ends)
    if offset.begins or not offset.ends:  # without partitions it still says that the stream has begun
        made[BEGINS_AT] = as_json(offset.begins)
    return made


def parse_stream_offset(kept: Mapping[str, Any]) -> StreamOffset:
    """Return what ``stream_offset_json`` has made."""
    ends = {topic: by_partition for topic, by_partition in kept.items() if topic != BEGINS_AT}
    return StreamOffset(_from_json(ends), _from_json(kept.get(BEGINS_AT, {})))


def named(places: Iterable[TopicPartition], at_most: int = 5) -> str:
    """Return partitions for a sentence."""
    names = [f"{topic}-{partition}" for topic, partition in sorted(places)]
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + more


def _from_json(kept: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {(topic, int(number)): offset for topic, found in kept.items() for number, offset in found.items()}


def _object(text: str, option: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as problem:
        raise WrongOption(f"{option}: this is no JSON: {problem}") from None
    if not isinstance(found, dict):
        raise WrongOption(f"{option}: a JSON object by topic is wanted")
    return found


def _partition(given: object, topic: str, option: str) -> int:
    text = str(given)
    if isinstance(given, bool | float) or not text.isdecimal() or int(text) >= _INT32_END:
        raise WrongOption(f"{option}: {topic}: {given!r} is no partition")
    return int(text)
