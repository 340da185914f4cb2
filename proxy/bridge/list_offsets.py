"""ListOffsets v2 to v1 to v0. Latest and earliest are the same in all; a search by time is not to be had in v0.

Source: KIP-79 (v1), KIP-98 (v2); KafkaApis.handleOffsetRequestV0 answers by segment files, which is not what v1 means.
"""

from __future__ import annotations

from struct import Struct, pack

from ...codecs.error_codes import ErrorCode
from ...reactor import Buffer
from .base import THROTTLE_NONE, Refused
from .fields import INT32, Reader, string

_PARTITION_AND_TIMESTAMP = Struct(">iq")
_PARTITION_AND_ERROR = Struct(">ih")
_ANSWER = Struct(">ihqq")
_TOPIC_BYTES_MIN = 6
_ANSWER_BYTES_MIN = 10
_REPLICA_ID_BYTES = 4
NO_TIMESTAMP = -1
NO_OFFSET = -1


class ListOffsetsWithoutIsolation:
    """v2 to v1: isolation_level goes. Before transactions the last stable offset is the high watermark."""

    __slots__ = ()

    def down(self, request: Buffer) -> Buffer | Refused:
        """replica_id, then what comes behind the isolation level."""
        reader = Reader(request)
        reader.int32("replica_id")
        reader.int8("isolation_level")
        return b"".join((reader.data[:_REPLICA_ID_BYTES], reader.data[reader.position :]))

    def up(self, answer: Buffer) -> Buffer:
        """Nothing to wait for, then the answer."""
        return THROTTLE_NONE + bytes(answer)


class ListOffsetsBySegment:
    """v1 to v0: one offset for each partition. What is asked by time is answered here with 43, as Kafka answers where
    a topic's format has no time stamps."""

    __slots__ = ("_by_time",)

    def __init__(self) -> None:
        self._by_time: dict[str, list[int]] = {}

    def down(self, request: Buffer) -> Buffer | Refused:
        """Latest and earliest go on; the rest is kept for the answer."""
        reader = Reader(request)
        parts = [INT32.pack(reader.int32("replica_id")), b""]
        topics = 0
        for _ in range(reader.count("topics", _TOPIC_BYTES_MIN)):
            name = reader.string("topic name")
            asked = []
            for _ in range(reader.count("partitions", _PARTITION_AND_TIMESTAMP.size)):
                partition, timestamp = reader.unpack(_PARTITION_AND_TIMESTAMP, "partition")
                if timestamp >= 0:
                    self._by_time.setdefault(name, []).append(partition)
                else:
                    asked.append(pack(">iqi", partition, timestamp, 1))
            if asked:
                topics += 1
                parts += (string(name), INT32.pack(len(asked)), *asked)
        reader.finish()
        if self._by_time and not topics:
            code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
            return Refused(code, "this broker has no offsets by time", self._with_refused([], 0))
        parts[1] = INT32.pack(topics)
        return b"".join(parts)

    def up(self, answer: Buffer) -> Buffer:
        """The first of each list of offsets, without a time stamp."""
        reader = Reader(answer)
        parts: list[bytes] = []
        topics = reader.count("topics", _TOPIC_BYTES_MIN)
        for _ in range(topics):
            parts.append(string(reader.string("topic name")))
            count = reader.count("partitions", _ANSWER_BYTES_MIN)
            parts.append(INT32.pack(count))
            for _ in range(count):
                partition, error_code = reader.unpack(_PARTITION_AND_ERROR, "partition")
                offsets = [reader.int64("offset") for _ in range(reader.count("offsets", 8))]
                parts.append(_ANSWER.pack(partition, error_code, NO_TIMESTAMP, offsets[0] if offsets else NO_OFFSET))
        reader.finish()
        return self._with_refused(parts, topics)

    def _with_refused(self, parts: list[bytes], topics: int) -> bytes:
        code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        for name, partitions in self._by_time.items():
            parts += (string(name), INT32.pack(len(partitions)))
            parts += [_ANSWER.pack(partition, code, NO_TIMESTAMP, NO_OFFSET) for partition in partitions]
        return b"".join((INT32.pack(topics + len(self._by_time)), *parts))
