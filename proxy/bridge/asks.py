"""Questions that the proxy itself asks a broker: body out, typed answer in. Owns no connection and decides nothing.

Each question knows the version it speaks, chosen from the broker's ranges when it is made. ``parse`` raises WireError
for garbage, for an answer about another partition and for bytes left over; an error code of the broker is a value.
Sources: Kafka's ListOffsets and Fetch, and reference/brokers.md section 3 (replica ids, seen).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, pack
from typing import Protocol, TypeVar

from ...codecs.errors import Malformed, UnsupportedVersion
from ...reactor import Buffer
from ..versions import ApiKey, BrokerRanges
from . import api_versions, metadata
from .fields import INT32, Reader, string

T_co = TypeVar("T_co", covariant=True)

HIGH_WATERMARK_REPLICA_ID = -1
"""An ordinary consumer: the latest offset is the high watermark."""
LOG_END_REPLICA_ID = -3
"""The latest offset is the log end. Only a leader answers (-2 would be answered by followers too), and no broker logs
an error."""
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
OFFSET_QUESTION_VERSION_MAX = 1
FETCH_QUESTION_VERSION_MAX = 4
_OFFSET_AND_TIMESTAMP = Struct(">qq")
_PARTITION_HEAD = Struct(">ihq")


class Question(Protocol[T_co]):
    """One request body and how to read its answer."""

    @property
    def api_key(self) -> int:
        """Kafka's key of the API."""
        ...

    @property
    def api_version(self) -> int:
        """The version of both bodies."""
        ...

    def encode(self) -> bytes:
        """The request body."""
        ...

    def parse(self, body: Buffer) -> T_co:
        """The answer from its body."""
        ...


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """``offset`` means something only when ``error_code`` is 0."""

    error_code: int
    offset: int


@dataclass(frozen=True, slots=True)
class OffsetQuestion:
    """The latest or earliest offset of one partition, as ``replica_id`` may see it. ListOffsets v0 or v1."""

    api_version: int
    topic: str
    partition: int
    timestamp: int
    replica_id: int

    @property
    def api_key(self) -> int:
        """ListOffsets."""
        return ApiKey.LIST_OFFSETS

    def encode(self) -> bytes:
        """The request body."""
        offsets_max = INT32.pack(1) if self.api_version == 0 else b""
        partition = pack(">iiq", 1, self.partition, self.timestamp) + offsets_max
        return pack(">ii", self.replica_id, 1) + string(self.topic) + partition

    def parse(self, body: Buffer) -> OffsetAnswer:
        """The broker's answer for this partition."""
        reader = Reader(body)
        _expect(reader, "topics", 1, reader.int32("topics"))
        _expect(reader, "topic name", self.topic, reader.string("topic name"))
        _expect(reader, "partitions", 1, reader.int32("partitions"))
        _expect(reader, "partition", self.partition, reader.int32("partition"))
        error_code = reader.int16("error_code")
        if self.api_version >= 1:
            _, offset = reader.unpack(_OFFSET_AND_TIMESTAMP, "offset")
        else:
            offsets = [reader.int64("offset") for _ in range(reader.count("offsets", 8))]
            if error_code == 0 and len(offsets) != 1:
                raise Malformed(f"{len(offsets)} offsets where one was asked for")
            offset = offsets[0] if offsets else -1
        reader.finish()
        return OffsetAnswer(error_code, offset)


def high_watermark(ranges: BrokerRanges, topic: str, partition: int) -> OffsetQuestion:
    """Ask for the high watermark. Never an offset above it."""
    return _offset_question(ranges, topic, partition, LATEST_TIMESTAMP, HIGH_WATERMARK_REPLICA_ID)


def log_end_offset(ranges: BrokerRanges, topic: str, partition: int) -> OffsetQuestion:
    """Ask the leader for the log end offset, which may be above the high watermark."""
    return _offset_question(ranges, topic, partition, LATEST_TIMESTAMP, LOG_END_REPLICA_ID)


def earliest_offset(ranges: BrokerRanges, topic: str, partition: int) -> OffsetQuestion:
    """Ask for the first offset that is still in the log."""
    return _offset_question(ranges, topic, partition, EARLIEST_TIMESTAMP, HIGH_WATERMARK_REPLICA_ID)


def _offset_question(
    ranges: BrokerRanges, topic: str, partition: int, timestamp: int, replica_id: int
) -> OffsetQuestion:
    version = _version(ranges, ApiKey.LIST_OFFSETS, OFFSET_QUESTION_VERSION_MAX)
    return OffsetQuestion(version, topic, partition, timestamp, replica_id)


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """``records``: as stored, may end in a partial message; a view into the answer, so it keeps the whole of it
    alive."""

    error_code: int
    high_watermark: int
    records: memoryview


@dataclass(frozen=True, slots=True)
class FetchQuestion:
    """What lies in one partition from ``offset`` on, up to the high watermark, without waiting. Fetch v0 to v4.

    v0 and v1 show format v0 only: a broker that has more must be asked in v2 or later, or wrapper keys are lost.
    Before v3 a message larger than ``bytes_max`` comes cut off, again and again: ask with more then. From v3 on at
    least one comes whole.
    """

    api_version: int
    topic: str
    partition: int
    offset: int
    bytes_max: int

    @property
    def api_key(self) -> int:
        """Fetch."""
        return ApiKey.FETCH

    def encode(self) -> bytes:
        """The request body: max_wait 0, min_bytes 0."""
        head = pack(">iii", HIGH_WATERMARK_REPLICA_ID, 0, 0)
        if self.api_version >= 3:
            head += INT32.pack(self.bytes_max)
        if self.api_version >= 4:
            head += b"\x00"  # isolation_level: read uncommitted
        where = pack(">iiqi", 1, self.partition, self.offset, self.bytes_max)
        return head + INT32.pack(1) + string(self.topic) + where

    def parse(self, body: Buffer) -> FetchAnswer:
        """The broker's answer for this partition."""
        reader = Reader(body)
        if self.api_version >= 1:
            reader.int32("throttle_time_ms")
        _expect(reader, "topics", 1, reader.int32("topics"))
        _expect(reader, "topic name", self.topic, reader.string("topic name"))
        _expect(reader, "partitions", 1, reader.int32("partitions"))
        partition, error_code, high_watermark_offset = reader.unpack(_PARTITION_HEAD, "partition")
        _expect(reader, "partition", self.partition, partition)
        if self.api_version >= 4:
            reader.int64("last_stable_offset")
            reader.take(16 * reader.count("aborted_transactions", 16, null_is=0), "aborted_transactions")
        records = reader.nullable_bytes("records")
        reader.finish()
        return FetchAnswer(error_code, high_watermark_offset, memoryview(b"") if records is None else records)


def fetch(ranges: BrokerRanges, topic: str, partition: int, offset: int, bytes_max: int) -> FetchQuestion:
    """Ask for what is stored from ``offset`` on, in the best version that the broker has."""
    version = _version(ranges, ApiKey.FETCH, FETCH_QUESTION_VERSION_MAX)
    return FetchQuestion(version, topic, partition, offset, bytes_max)


@dataclass(frozen=True, slots=True)
class MetadataQuestion:
    """Brokers and topics. ``topics`` None: all; empty: brokers only (but all where the broker knows only v0)."""

    api_version: int
    topics: tuple[str, ...] | None
    body: bytes

    @property
    def api_key(self) -> int:
        """Metadata."""
        return ApiKey.METADATA

    def encode(self) -> bytes:
        """The request body."""
        return self.body

    def parse(self, body: Buffer) -> metadata.Cluster:
        """What the broker knows of the cluster."""
        return metadata.parse_answer(self.api_version, body)


def cluster(
    ranges: BrokerRanges, topics: Sequence[str] | None, *, allow_auto_topic_creation: bool = True
) -> MetadataQuestion:
    """Ask for the cluster. Naming a topic may create it on a broker before 0.11 (see ``metadata.encode_question``)."""
    version, body = metadata.encode_question(ranges, topics, allow_auto_topic_creation=allow_auto_topic_creation)
    return MetadataQuestion(version, None if topics is None else tuple(topics), body)


@dataclass(frozen=True, slots=True)
class ApiVersionsQuestion:
    """Which versions the broker has. Only for brokers that are known to be 0.10 or later: 0.9 hangs."""

    api_version: int = 0

    @property
    def api_key(self) -> int:
        """ApiVersions."""
        return ApiKey.API_VERSIONS

    def encode(self) -> bytes:
        """The request body, which is empty in v0."""
        return b""

    def parse(self, body: Buffer) -> BrokerRanges:
        """The broker's ranges. A refusal (it has no v0) is a WireError: there is nothing to go on with."""
        error_code, ranges = api_versions.parse_v0(body)
        if error_code:
            raise UnsupportedVersion(ApiKey.API_VERSIONS, 0)
        return ranges


def _version(ranges: BrokerRanges, api_key: int, known_max: int) -> int:
    first, last = ranges[api_key]
    if first > known_max:
        raise UnsupportedVersion(api_key, first)
    return min(last, known_max)


def _expect(reader: Reader, what: str, asked: object, told: object) -> None:
    if asked != told:
        raise Malformed(f"{what} at {reader.position}: {told!r} where {asked!r} was asked for")
