"""Offsets of consumer groups: OffsetCommit v2 to v1, OffsetFetch v2 to v1.

Source: OffsetCommitRequest (v1: a time stamp per partition, v2: one retention time), KIP-88 (OffsetFetch v2), Kafka's
0.8.2 OffsetCommitRequest.scala.
"""

from __future__ import annotations

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import LimitExceeded
from ...reactor import Buffer
from .base import RequestRefused
from .fields import INT16, INT32, INT64, Reader

_TIME_OF_THE_BROKER = INT64.pack(-1)
_OF_THE_WHOLE_GROUP = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)
"""What a v1 broker says of every partition and a v2 broker once, of the group; a v2 client looks for it only there."""
OFFSETS_MAX = 65_536
"""Topics and partitions of one request: to look at their answers takes 40 ms."""
_COMMIT_TOPIC_BYTES_MIN = 6
_COMMIT_PARTITION_BYTES_MIN = 14
_FETCH_TOPIC_BYTES_MIN = 6
_FETCH_PARTITION_BYTES_MIN = 16
_NO_TOPICS = INT32.pack(0)


class OffsetCommitWithTimestamps:
    """v2 to v1: retention_time_ms is left out (the broker's own setting counts), each partition gets a commit timestamp
    of -1: the broker's time."""

    __slots__ = ()

    def down(self, request: Buffer) -> Buffer | RequestRefused:
        """The same offsets, each with time stamp -1."""
        reader = Reader(request)
        reader.string("group_id")
        reader.int32("generation_id")
        reader.string("member_id")
        parts: list[Buffer] = [reader.data[: reader.position]]
        reader.int64("retention_time_ms")
        start = reader.position
        for _ in range(reader.count("topics", _COMMIT_TOPIC_BYTES_MIN)):
            reader.string("topic name")
            for _ in range(reader.count("partitions", _COMMIT_PARTITION_BYTES_MIN)):
                reader.int32("partition")
                reader.int64("offset")
                parts += (reader.data[start : reader.position], _TIME_OF_THE_BROKER)
                start = reader.position
                reader.nullable_string("metadata")
        parts.append(reader.data[start : reader.position])
        reader.finish()
        return b"".join(parts)

    def up(self, answer: Buffer) -> Buffer:
        """The same."""
        return answer


class OffsetFetchOfNamedPartitions:
    """v2 to v1: "all partitions" can not be asked; an error of the whole group is repeated at the end."""

    __slots__ = ()

    def down(self, request: Buffer) -> Buffer | RequestRefused:
        """The same, unless the list of topics is null: that is refused. LimitExceeded for more than ``OFFSETS_MAX``
        topics and partitions."""
        reader = Reader(request)
        reader.string("group_id")
        topics = reader.count("topics", _FETCH_TOPIC_BYTES_MIN, null_is=-1)
        if topics == -1:
            code = ErrorCode.UNSUPPORTED_VERSION
            return RequestRefused(
                code, "this broker can not list all offsets of a group", _NO_TOPICS + INT16.pack(code)
            )
        if reader.count_partitions(topics, INT32.size, OFFSETS_MAX) > OFFSETS_MAX:
            raise LimitExceeded(f"OffsetFetch: the limit is {OFFSETS_MAX} topics and partitions")
        return request

    def up(self, answer: Buffer) -> Buffer:
        """The same with the group's error code at the end: that of the partitions if it is one of the whole group, else
        0."""
        reader = Reader(answer)
        group_error = int(ErrorCode.NONE)
        for _ in range(reader.count("topics", _FETCH_TOPIC_BYTES_MIN)):
            reader.string("topic name")
            for _ in range(reader.count("partitions", _FETCH_PARTITION_BYTES_MIN)):
                reader.int32("partition")
                reader.int64("offset")
                reader.nullable_string("metadata")
                error_code = reader.int16("error_code")
                if error_code in _OF_THE_WHOLE_GROUP:
                    group_error = error_code
        reader.finish()
        return b"".join((reader.data, INT16.pack(group_error)))
