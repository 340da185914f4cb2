"""Fetch up to v5 at brokers that have a lower version, v0 to v3: only what is around the records changes, and these are
neither copied nor read.

Hot and large, hence by hand and in pieces. Source: KIP-74 (v3: max_bytes of the whole answer), KIP-98 (v4: isolation),
KIP-107 (v5: the start of the log, which old brokers do not tell: -1).
"""

from __future__ import annotations

from struct import Struct, pack
from typing import Final

from ...codecs.errors import LimitExceeded, Malformed, Truncated
from ...reactor import Buffer
from .base import THROTTLE_NONE, Chunks, RequestRefused, check_size
from .fields import INT32, INT64, Reader

BRIDGED_VERSION_MAX = 5
BRIDGED_TO_MAX = 3
"""The highest version of a broker that others are translated to."""
PARTITION_BYTES_MIN = 1_000_012 + 12
"""Before v3 a message larger than the partition's limit comes cut off for ever, and a client that was promised v3 or
later does not know that. A broker's default message.max.bytes (1,000,012) and offset and size in front of it fit."""

_CUTS_OFF_MAX = 2
"""The last version in which brokers cut a message off that is larger than the limit of its partition."""

ANSWERED_PARTITIONS_MAX: Final = 43_000
"""Topics and partitions of a request: each is rewritten in the answer, in one step, too."""

_REPLICA_ID = Struct(">i")
_MAX_BYTES_AT = 12
_TOPICS_AT = {0: 12, 1: 12, 2: 12, 3: 16, 4: 17, 5: 17}
_TOPIC_BYTES_MIN = 6
_REQUEST_PARTITION = Struct(">iqi")
_REQUEST_PARTITION_SINCE_5 = Struct(">iqqi")
"""With the start of the log as a follower knows it; consumers say -1."""
_ANSWER_PARTITION_HEAD = Struct(">ihq")
_NO_ABORTED_TRANSACTIONS = INT32.pack(0)
_NO_LOG_START = INT64.pack(-1)


class Fetch:
    """One fetch. With the same version on both sides it is forwarded unchanged, once it is certain that it does not
    come from a replica."""

    __slots__ = ("_client_version", "broker_version")

    def __init__(self, client_version: int, broker_version: int) -> None:
        assert client_version == broker_version or client_version <= BRIDGED_VERSION_MAX
        assert client_version == broker_version or 0 <= broker_version <= min(client_version - 1, BRIDGED_TO_MAX)
        self.broker_version = broker_version
        self._client_version = client_version

    def request(self, body: memoryview) -> Chunks | RequestRefused:
        """The request without log_start_offset for brokers below v5, without isolation_level below v4, without
        max_bytes below v3; below v3 with a larger limit for each partition (``PARTITION_BYTES_MIN``). WireError for a
        replica's fetch."""
        if len(body) < _REPLICA_ID.size:
            raise Truncated(f"replica_id: {len(body)} bytes in the whole request")
        replica_id = _REPLICA_ID.unpack_from(body)[0]
        if replica_id >= 0:
            # The leader would take it for a follower that has read this far, and move its high watermark.
            raise Malformed(f"replica_id {replica_id} at 0: a replica does not fetch through the proxy")
        if self._client_version == self.broker_version:
            return (body,)
        topics_at = _TOPICS_AT[self._client_version]
        if len(body) < topics_at:
            raise Truncated(f"topics at {topics_at}: {len(body)} bytes in the whole request")
        topics: Buffer = body[topics_at:]
        if self._client_version >= 3:  # below nothing is rewritten
            layout = _REQUEST_PARTITION if self._client_version <= 4 else _REQUEST_PARTITION_SINCE_5
            _check_count(body, topics_at, layout.size)
        if self._client_version >= 5:
            topics = _without_log_starts(body[topics_at:])
        if self.broker_version >= 3:
            return (body[: _TOPICS_AT[self.broker_version]], topics)
        if self._client_version < 3:
            return (body,)
        check_size(body)
        return (body[:_MAX_BYTES_AT], _with_enough_bytes(memoryview(topics)))

    def response(self, body: memoryview) -> Chunks:
        """The answer with throttle_time_ms for clients from v1 on; for clients from v4 on each partition says that no
        transaction is open."""
        if self._client_version == self.broker_version:
            return (body,)
        start = 0
        chunks: list[Buffer] = []
        if self.broker_version == 0:
            chunks.append(THROTTLE_NONE)
        else:
            start = len(THROTTLE_NONE)
        if self._client_version < 4:
            return (*chunks, body)
        behind = _NO_ABORTED_TRANSACTIONS if self._client_version == 4 else _NO_LOG_START + _NO_ABORTED_TRANSACTIONS
        return _with_stable_offsets(body, start, chunks, behind)


def _check_count(body: memoryview, topics_at: int, partition_bytes: int) -> None:
    """Raise LimitExceeded for more than is rewritten in one step. Each topic and each partition counts as one, whatever
    the length of its name."""
    reader = Reader(body, topics_at)
    topics = reader.count("topics", _TOPIC_BYTES_MIN)
    if reader.count_partitions(topics, partition_bytes, ANSWERED_PARTITIONS_MAX) > ANSWERED_PARTITIONS_MAX:
        raise LimitExceeded(f"Fetch: the limit is {ANSWERED_PARTITIONS_MAX} topics and partitions")


def _without_log_starts(topics: memoryview) -> bytes:
    """Leave out the start of the log in each partition of a request."""
    reader = Reader(topics)
    parts: list[Buffer] = []
    start = 0
    for _ in range(reader.count("topics", _TOPIC_BYTES_MIN)):
        reader.string("topic name")
        for _ in range(reader.count("partitions", _REQUEST_PARTITION_SINCE_5.size)):
            reader.unpack(_REQUEST_PARTITION_SINCE_5, "partition")
            bytes_max_at = reader.position - INT32.size
            parts.append(topics[start : bytes_max_at - INT64.size])
            start = bytes_max_at
    parts.append(topics[start:])
    reader.finish()
    return b"".join(parts)


def small_limit(version: int, body: memoryview) -> int | None:
    """Return how many bytes of its first partition a fetch of version 0 to 2 asks for, if that is less than a broker's
    largest message has by default. Such a message comes cut off then, and so again each time: the consumer stands
    still. None: it asks for enough, for nothing, or in a later version, in which brokers send the message whole
    (KIP-74)."""
    if version > _CUTS_OFF_MAX:
        return None
    reader = Reader(body, _TOPICS_AT[version])
    if reader.count("topics", _TOPIC_BYTES_MIN) < 1:
        return None
    reader.string("topic")
    if reader.count("partitions", _REQUEST_PARTITION.size) < 1:
        return None
    limit: int = reader.unpack(_REQUEST_PARTITION, "partition")[2]
    return limit if limit < PARTITION_BYTES_MIN else None


def _with_enough_bytes(topics: memoryview) -> Buffer:
    """Raise each partition's limit to what one message may need."""
    reader = Reader(topics)
    parts: list[Buffer] = []
    start = 0
    for _ in range(reader.count("topics", _TOPIC_BYTES_MIN)):
        reader.string("topic name")
        for _ in range(reader.count("partitions", _REQUEST_PARTITION.size)):
            _, _, bytes_max = reader.unpack(_REQUEST_PARTITION, "partition")
            if bytes_max < PARTITION_BYTES_MIN:
                parts += (topics[start : reader.position - INT32.size], pack(">i", PARTITION_BYTES_MIN))
                start = reader.position
    parts.append(topics[start:])
    reader.finish()
    return b"".join(parts)


def _with_stable_offsets(body: memoryview, start: int, chunks: list[Buffer], behind: bytes) -> Chunks:
    """Insert after each high watermark the last stable offset, which is the same number, and then ``behind``. Records
    are not copied."""
    reader = Reader(body, start)
    copied = 0
    for _ in range(reader.count("topics", _TOPIC_BYTES_MIN)):
        reader.string("topic name")
        for _ in range(reader.count("partitions", _ANSWER_PARTITION_HEAD.size + INT32.size)):
            reader.unpack(_ANSWER_PARTITION_HEAD, "partition")
            position = reader.position
            chunks += (body[copied:position], body[position - 8 : position], behind)
            copied = position
            reader.nullable_bytes("records")
    reader.finish()
    chunks.append(body[copied:])
    return chunks
