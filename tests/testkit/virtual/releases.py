"""What a virtual broker is: a Kafka release, which APIs it has, and which message format it stores by its settings.

Only data, and what a broker of Kafka ≥ 0.11 answers of itself (DescribeConfigs, DescribeProducers, InitProducerId).
Sources: the ranges that real brokers of 2.8.2, 3.9.1 and 4.3.1 advertise, cut to the APIs of these worlds; KIP-664,
KIP-724.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from testkit.virtual import kafka_bytes as kafka
from testkit.virtual.kafka_bytes import Reader, array, string

Ranges = Mapping[int, tuple[int, int]]

OLD_FORMAT, NEW_FORMAT = 1, 2
_FORMAT = "log.message.format.version"
_PROTOCOL = "inter.broker.protocol.version"
_BROKER = 4
_STATIC_BROKER_CONFIG = 4
_NO_TAGS = b"\x00"
_PRODUCER_ROW = struct.Struct(">qiiqiq")


@dataclass(frozen=True, slots=True)
class Release:
    """``settings``: what it tells of itself; empty: it cannot be asked. ``message_format``: in which it stores what
    comes, 1 or 2."""

    name: str
    ranges: Ranges
    settings: Mapping[str, str] = field(default_factory=dict)
    message_format: int = OLD_FORMAT

    @property
    def has_producer_ids(self) -> bool:
        """Does it hand out producer ids, and check sequences in its own format?"""
        return kafka.INIT_PRODUCER_ID in self.ranges


_RANGES_2_8: Ranges = {
    **kafka.RANGES_0_10_2,
    **{kafka.PRODUCE: (0, 9), kafka.FETCH: (0, 12), kafka.LIST_OFFSETS: (0, 6), kafka.METADATA: (0, 11)},
    **{kafka.API_VERSIONS: (0, 3), kafka.INIT_PRODUCER_ID: (0, 4), kafka.DESCRIBE_CONFIGS: (0, 4)},
    **{kafka.DESCRIBE_PRODUCERS: (0, 0)},
}
_RANGES_3_9: Ranges = {
    **_RANGES_2_8,
    **{kafka.PRODUCE: (0, 11), kafka.FETCH: (0, 17), kafka.LIST_OFFSETS: (0, 9), kafka.METADATA: (0, 12)},
    **{kafka.API_VERSIONS: (0, 4), kafka.INIT_PRODUCER_ID: (0, 5)},
}

OLD = Release("0.10.2", kafka.RANGES_0_10_2)
"""Without producer ids."""
KEEPS_2_8 = Release("2.8", _RANGES_2_8, {_FORMAT: "0.10.2", _PROTOCOL: "2.8"})
KEEPS_3_9 = Release("3.9", _RANGES_3_9, {_FORMAT: "0.10.2", _PROTOCOL: "2.8"})
"""With producer ids, and message format v1 (docs/how-to/upgrade-brokers.md, steps 2 to 4)."""
RAISED_2_8 = replace(KEEPS_2_8, settings={_FORMAT: "2.8", _PROTOCOL: "2.8"}, message_format=NEW_FORMAT)
RAISED_3_9 = replace(KEEPS_3_9, settings={_FORMAT: "0.10.2", _PROTOCOL: "3.9"}, message_format=NEW_FORMAT)
"""The same with their own format: from 3.0 on the protocol's version alone decides about it (step 5)."""
RAISED_4_3 = Release(
    "4.3",
    {
        **_RANGES_3_9,
        **{kafka.PRODUCE: (3, 13), kafka.FETCH: (4, 18), kafka.LIST_OFFSETS: (1, 11), kafka.METADATA: (0, 13)},
        **{kafka.INIT_PRODUCER_ID: (0, 6), kafka.DESCRIBE_CONFIGS: (1, 4)},
    },
    message_format=NEW_FORMAT,
)
"""It has no setting for a format, and no version of Produce and Fetch that is older than format v2 (KIP-896)."""
UPGRADES: Sequence[tuple[Release, Release]] = ((KEEPS_2_8, RAISED_2_8), (KEEPS_3_9, RAISED_3_9))


def describe_configs_answer(reader: Reader, version: int, broker_id: int, release: Release) -> bytes:
    """Answer the question for a broker's own settings, DescribeConfigs 0 or 1."""
    if reader.count() != 1 or (reader.int8(), reader.text()) != (_BROKER, str(broker_id)):
        raise kafka.BadRequest("another resource than this broker")
    names = reader.array(reader.text)
    if version >= 1:
        reader.int8()
    reader.end()
    rows = []
    for name in names:
        if name in release.settings:
            head = string(name) + string(release.settings[name])
            source = struct.pack(">bbb", 1, _STATIC_BROKER_CONFIG if version >= 1 else 0, 0)
            rows.append(head + source + (array([]) if version >= 1 else b""))
    head = struct.pack(">i", 0) + struct.pack(">ihh", 1, 0, -1)
    return head + struct.pack(">b", _BROKER) + string(str(broker_id)) + array(rows)


def parse_describe_producers(reader: Reader) -> list[tuple[str, int]]:
    """The partitions that DescribeProducers 0 asks for."""
    found = []
    for _ in range(reader.uvarint() - 1):
        topic = reader.take(reader.uvarint() - 1).decode()
        for _ in range(reader.uvarint() - 1):
            found.append((topic, reader.int32()))
        reader.take(1)
    reader.take(1)
    reader.end()
    return found


def describe_producers_answer(rows: Sequence[tuple[str, int, int, Sequence[tuple[int, int, int]]]]) -> bytes:
    """``rows``: (topic, partition, error code, producers: (producer id, epoch, last sequence)), each partition as a
    topic of its own."""
    answer = struct.pack(">i", 0) + _uvarint(len(rows) + 1)
    for topic, partition, error, producers in rows:
        told = b"".join(_PRODUCER_ROW.pack(*one, -1, -1, -1) + _NO_TAGS for one in producers)
        part = struct.pack(">ih", partition, error) + b"\x00" + _uvarint(len(producers) + 1) + told + _NO_TAGS
        answer += _uvarint(len(topic.encode()) + 1) + topic.encode() + _uvarint(2) + part + _NO_TAGS
    return answer + _NO_TAGS


def _uvarint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return found + bytes((number,))
