"""DescribeProducers v0, both bodies. The proxy answers it; which producers there are is not decided here.

Source: KIP-664, DescribeProducersRequest.json and DescribeProducersResponse.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import Malformed, Truncated
from ...reactor import Buffer
from ...values import value
from .base import THROTTLE_NONE
from .fields import INT16, INT32, NO_TAGS, Reader, compact_nullable_string, uvarint

PARTITIONS_MAX = 10_000
"""In one request: what is asked of one broker is one step of the loop."""
_PRODUCER = Struct(">qiiqiqB")
"""Producer id, epoch, last sequence, last timestamp, coordinator epoch, start of its transaction, no tags."""
_TOPIC_BYTES_MIN = 3
_PARTITION_BYTES_MIN = 4
_NO_TIME = _NO_COORDINATOR = _NO_TRANSACTION = -1

Place = tuple[str, int]


@value(frozen=True, slots=True)
class ActiveProducer:
    """One producer on one partition. ``last_sequence``: the sequence of its last stored record in this epoch; -1: there
    is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int


@value(frozen=True, slots=True)
class DescribedPartition:
    """What is answered of one partition. ``message``: for people, with an error."""

    topic: str
    partition: int
    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    producers: tuple[ActiveProducer, ...] = ()


def parse_describe_producers(body: Buffer) -> list[Place]:
    """Return the partitions that a client asks for, as it names them; at most ``PARTITIONS_MAX``. WireError for
    garbage."""
    reader = Reader(body)
    places: list[Place] = []
    for _ in range(_count(reader, "topics", _TOPIC_BYTES_MIN)):
        topic = reader.compact_nullable_string("topic name") or ""
        count = _count(reader, "partition_indexes", _PARTITION_BYTES_MIN)
        if len(places) + count > PARTITIONS_MAX:
            raise Malformed(f"partition_indexes: more than {PARTITIONS_MAX} in all before {reader.position}")
        places += ((topic, reader.int32("partition_index")) for _ in range(count))
        reader.skip_tags()
    reader.skip_tags()
    reader.finish()
    return places


def encode_describe_producers(partitions: Sequence[DescribedPartition]) -> bytes:
    """Return the answer's body. Partitions of one topic follow each other."""
    by_topic: dict[str, list[DescribedPartition]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic, []).append(one)
    chunks = [THROTTLE_NONE, uvarint(len(by_topic) + 1)]
    for topic, members in by_topic.items():
        chunks += (compact_nullable_string(topic), uvarint(len(members) + 1), *map(_partition, members), NO_TAGS)
    return b"".join((*chunks, NO_TAGS))


def _partition(reported: DescribedPartition) -> bytes:
    rows = (
        _PRODUCER.pack(
            *(one.producer_id, one.producer_epoch, one.last_sequence), _NO_TIME, _NO_COORDINATOR, _NO_TRANSACTION, 0
        )
        for one in reported.producers
    )
    head = INT32.pack(reported.partition) + INT16.pack(reported.error_code) + compact_nullable_string(reported.message)
    return b"".join((head, uvarint(len(reported.producers) + 1), *rows, NO_TAGS))


def _count(reader: Reader, field: str, entry_bytes_min: int) -> int:
    """Return the length of a compact array that fits what is left; null is taken for an empty one."""
    count = max(reader.uvarint(field) - 1, 0)
    if count * entry_bytes_min > reader.end - reader.position:
        raise Truncated(f"{field}: {count} entries announced at {reader.position}")
    return count
