"""ListOffsets v2 to v1 to v0. Latest and earliest are the same in all; a search by time does not exist in v0.

Later versions know more negative timestamps that stand for an offset (-3: that of the highest timestamp, KIP-734). Old
brokers take them for times, and answer with the first record, as if it were the one asked for: so they are refused in
any version. Source: KIP-79 (v1), KIP-98 (v2); KafkaApis.handleOffsetRequestV0 answers by segment files, which is not
what v1 means.
"""

from __future__ import annotations

from struct import Struct, pack

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import LimitExceeded
from ...reactor import Buffer
from .base import THROTTLE_NONE, RequestRefused
from .fields import INT32, Reader, string

_PARTITION_AND_TIMESTAMP = Struct(">iq")
_PARTITION_AND_ERROR = Struct(">ih")
_ANSWER = Struct(">ihqq")
_TOPIC_BYTES_MIN = 6
_ANSWER_BYTES_MIN = 10
_REPLICA_ID_BYTES = 4
_ISOLATION_SINCE = 2
"""Versions from here on have isolation_level in the request and throttle_time_ms in the answer."""
LOOKED_AT_BYTES_MAX = 512 * 1024
"""Of a request: 40,000 partitions, which take 10 ms."""
UNKNOWN_KIND = (
    "offsets of another kind than earliest, latest and by time (such as that of the highest time stamp, -3) are only "
    "to be had from brokers of Kafka 3.0 and later"
)
NO_TIMESTAMP = -1
NO_OFFSET = -1
_EARLIEST = -2
"""The lowest number with a meaning."""


class _Kept:
    """The partitions of one request that the broker is not asked about. ``code``: the error code that each of them is
    answered."""

    __slots__ = ("_by_topic", "_code")

    def __init__(self, code: ErrorCode) -> None:
        self._code = code
        self._by_topic: dict[str, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def add(self, topic: str, *partitions: int) -> None:
        self._by_topic.setdefault(topic, []).extend(partitions)

    def encode(self) -> tuple[int, bytes]:
        """How many topics there are, and their part of a v1 answer."""
        parts: list[bytes] = []
        for name, partitions in self._by_topic.items():
            parts += (string(name), INT32.pack(len(partitions)))
            parts += [_ANSWER.pack(partition, self._code, NO_TIMESTAMP, NO_OFFSET) for partition in partitions]
        return len(self._by_topic), b"".join(parts)


class ListOffsetsOfKnownKinds:
    """v1 to v3, the version stays: only times, earliest and latest are forwarded; other negative timestamps get
    UNSUPPORTED_VERSION. ``version``: of the client."""

    __slots__ = ("_head", "_kept", "_throttle")

    def __init__(self, version: int) -> None:
        self._kept = _Kept(ErrorCode.UNSUPPORTED_VERSION)
        self._head = _REPLICA_ID_BYTES + (1 if version >= _ISOLATION_SINCE else 0)
        self._throttle = THROTTLE_NONE if version >= _ISOLATION_SINCE else b""

    def down(self, request: Buffer) -> Buffer | RequestRefused:
        """The request without those partitions; a refusal if none is left. LimitExceeded for more than
        ``LOOKED_AT_BYTES_MAX``."""
        if len(request) > LOOKED_AT_BYTES_MAX:
            raise LimitExceeded(f"ListOffsets: {len(request)} bytes, the limit is {LOOKED_AT_BYTES_MAX} bytes")
        reader = Reader(request)
        head = reader.take(self._head, "replica_id, isolation_level")
        known: list[tuple[str, list[tuple[int, int]]]] = []
        for _ in range(reader.count("topics", _TOPIC_BYTES_MIN)):
            name = reader.string("topic name")
            size = _PARTITION_AND_TIMESTAMP.size * reader.count("partitions", _PARTITION_AND_TIMESTAMP.size)
            asked = list(_PARTITION_AND_TIMESTAMP.iter_unpack(reader.take(size, "partitions")))
            of_known_kinds = [one for one in asked if one[1] >= _EARLIEST]
            if len(of_known_kinds) != len(asked):
                self._kept.add(name, *(partition for partition, timestamp in asked if timestamp < _EARLIEST))
            if of_known_kinds:
                known.append((name, of_known_kinds))
        reader.finish()
        if not self._kept:
            return request
        if not known:
            topics, body = self._kept.encode()
            answer = b"".join((self._throttle, INT32.pack(topics), body))
            return RequestRefused(ErrorCode.UNSUPPORTED_VERSION, UNKNOWN_KIND, answer)
        parts: list[Buffer] = [head, INT32.pack(len(known))]
        for name, asked in known:
            parts += (string(name), INT32.pack(len(asked)), *(_PARTITION_AND_TIMESTAMP.pack(*one) for one in asked))
        return b"".join(parts)

    def up(self, answer: Buffer) -> Buffer:
        """The same, followed by the partitions that the broker was not asked about."""
        if not self._kept:
            return answer
        start = len(self._throttle)
        (topics,) = INT32.unpack_from(answer, start)
        refused, body = self._kept.encode()
        view = memoryview(answer)
        return b"".join((view[:start], INT32.pack(topics + refused), view[start + INT32.size :], body))


class ListOffsetsWithoutIsolation:
    """v2 to v1: isolation_level is left out. Without transactions the last stable offset is the high watermark."""

    __slots__ = ()

    def down(self, request: Buffer) -> Buffer | RequestRefused:
        """replica_id, then what comes after the isolation level."""
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

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept = _Kept(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)

    def down(self, request: Buffer) -> Buffer | RequestRefused:
        """Latest and earliest are forwarded; the rest is kept for the answer."""
        reader = Reader(request)
        parts = [INT32.pack(reader.int32("replica_id")), b""]
        topics = 0
        for _ in range(reader.count("topics", _TOPIC_BYTES_MIN)):
            name = reader.string("topic name")
            asked = []
            for _ in range(reader.count("partitions", _PARTITION_AND_TIMESTAMP.size)):
                partition, timestamp = reader.unpack(_PARTITION_AND_TIMESTAMP, "partition")
                if timestamp >= 0:
                    self._kept.add(name, partition)
                else:
                    asked.append(pack(">iqi", partition, timestamp, 1))
            if asked:
                topics += 1
                parts += (string(name), INT32.pack(len(asked)), *asked)
        reader.finish()
        if self._kept and not topics:
            code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
            return RequestRefused(code, "this broker has no offsets by time", self._with_refused([], 0))
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
        refused, body = self._kept.encode()
        return b"".join((INT32.pack(topics + refused), *parts, body))
