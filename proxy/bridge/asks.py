"""Questions that the proxy itself asks a broker: body out, typed answer in. Owns no connection and decides nothing.

A question is made without knowing the broker; the version is chosen when it is asked. ``parse`` raises WireError for
garbage, for an answer about another partition and for bytes left over; an error code of the broker is a value.
Sources: Kafka's ListOffsets and Fetch; what brokers do with each replica id was seen on real ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct, pack
from typing import Protocol, TypeVar

from ...codecs.errors import Malformed, UnsupportedVersion
from ...codecs.steps import Steps, at_once
from ...reactor import Buffer
from ..versions import ApiKey, BrokerRanges
from . import metadata
from .cluster import Cluster, Topic
from .fields import INT32, Reader, string

T_co = TypeVar("T_co", covariant=True)

HIGH_WATERMARK_REPLICA_ID = -1
"""An ordinary consumer: the latest offset is the high watermark."""
LOG_END_REPLICA_ID = -3
"""The latest offset is the log end. Only a leader answers (to -2 a follower does too), and no broker logs an error."""

_LATEST_TIMESTAMP = -1
_EARLIEST_TIMESTAMP = -2
_LIST_OFFSETS_VERSION_MAX = 1
_FETCH_VERSION_MAX = 4
_FETCH_ZSTD_VERSION = 10
"""Before it brokers refuse to show batches that are compressed with zstd (KIP-110)."""
FIRST_FETCH_OF_BATCHES = 4
"""The first version of Fetch in whose answers messages may have format v2."""
_NO_SESSION = -1
_OFFSET_AND_TIMESTAMP = Struct(">qq")
_PARTITION_HEAD = Struct(">ihq")


class Question(Protocol[T_co]):
    """What to ask, and how to read the answer, in any version that brokers have."""

    @property
    def api_key(self) -> int:
        """Kafka's key of the API."""
        ...

    def version_for(self, ranges: BrokerRanges) -> int:
        """The version to ask this broker in. Raises UnsupportedVersion when it has none that is spoken here."""
        ...

    def encode(self, api_version: int) -> bytes:
        """The request body."""
        ...

    def parse(self, api_version: int, body: Buffer) -> T_co:
        """The answer from its body."""
        ...


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """``offset`` means something only when ``error_code`` is 0."""

    error_code: int
    offset: int


@dataclass(frozen=True, slots=True)
class LatestOffset:
    """The end of one partition as ``replica_id`` may see it: high watermark or log end. ListOffsets v0 or v1."""

    topic: str
    partition: int
    replica_id: int = HIGH_WATERMARK_REPLICA_ID

    @property
    def api_key(self) -> int:
        """ListOffsets."""
        return ApiKey.LIST_OFFSETS

    def version_for(self, ranges: BrokerRanges) -> int:
        """v1 where the broker has it."""
        return _version(ranges, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION_MAX)

    def encode(self, api_version: int) -> bytes:
        """The request body."""
        return _encode_list_offsets(api_version, self.replica_id, self.topic, self.partition, _LATEST_TIMESTAMP)

    def parse(self, api_version: int, body: Buffer) -> OffsetAnswer:
        """The offset after the last record that ``replica_id`` may see."""
        return _parse_list_offsets(api_version, body, self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class EarliestOffset:
    """The first offset of one partition that is still in the log. ListOffsets v0 or v1."""

    topic: str
    partition: int

    @property
    def api_key(self) -> int:
        """ListOffsets."""
        return ApiKey.LIST_OFFSETS

    def version_for(self, ranges: BrokerRanges) -> int:
        """v1 where the broker has it."""
        return _version(ranges, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION_MAX)

    def encode(self, api_version: int) -> bytes:
        """The request body."""
        replica_id = HIGH_WATERMARK_REPLICA_ID
        return _encode_list_offsets(api_version, replica_id, self.topic, self.partition, _EARLIEST_TIMESTAMP)

    def parse(self, api_version: int, body: Buffer) -> OffsetAnswer:
        """The first offset; where the log is empty, the offset that the next record will get."""
        return _parse_list_offsets(api_version, body, self.topic, self.partition)


def _encode_list_offsets(api_version: int, replica_id: int, topic: str, partition: int, timestamp: int) -> bytes:
    offsets_max = INT32.pack(1) if api_version == 0 else b""
    return pack(">ii", replica_id, 1) + string(topic) + pack(">iiq", 1, partition, timestamp) + offsets_max


def _parse_list_offsets(api_version: int, body: Buffer, topic: str, partition: int) -> OffsetAnswer:
    reader = Reader(body)
    _expect(reader, "topics", 1, reader.int32("topics"))
    _expect(reader, "topic name", topic, reader.string("topic name"))
    _expect(reader, "partitions", 1, reader.int32("partitions"))
    _expect(reader, "partition", partition, reader.int32("partition"))
    error_code = reader.int16("error_code")
    if api_version >= 1:
        _, offset = reader.unpack(_OFFSET_AND_TIMESTAMP, "offset")
    else:
        offsets = [reader.int64("offset") for _ in range(reader.count("offsets", 8))]
        if error_code == 0 and len(offsets) != 1:
            raise Malformed(f"offsets at {reader.position}: {len(offsets)} where one was asked for")
        offset = offsets[0] if offsets else -1
    reader.finish()
    return OffsetAnswer(error_code, offset)


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """``records``: as stored, may end in a partial message; a view that keeps the whole answer alive."""

    error_code: int
    high_watermark: int
    records: memoryview


@dataclass(frozen=True, slots=True)
class FetchRecords:
    """What lies in one partition from ``offset`` on, below the high watermark, without waiting. Fetch v0 to v4, or
    v10, without a session.

    v0 and v1 show format v0 only (their brokers store nothing else). Before v3 a message larger than ``bytes_max``
    comes cut off, again and again: ask for more then. From v3 on one message at least comes whole.
    """

    topic: str
    partition: int
    offset: int
    bytes_max: int

    @property
    def api_key(self) -> int:
        """Fetch."""
        return ApiKey.FETCH

    def version_for(self, ranges: BrokerRanges) -> int:
        """The highest that the broker has, so that nothing is converted down."""
        first, last = ranges.get(ApiKey.FETCH, (0, 0))
        if first <= _FETCH_ZSTD_VERSION <= last:
            return _FETCH_ZSTD_VERSION
        return _version(ranges, ApiKey.FETCH, _FETCH_VERSION_MAX)

    def encode(self, api_version: int) -> bytes:
        """The request body: max_wait 0, min_bytes 0, records that are not committed included."""
        if api_version == _FETCH_ZSTD_VERSION:
            head = pack(">iiiibii", HIGH_WATERMARK_REPLICA_ID, 0, 0, self.bytes_max, 0, 0, _NO_SESSION)
            where = pack(">iiiqqi", 1, self.partition, -1, self.offset, -1, self.bytes_max)
            return head + INT32.pack(1) + string(self.topic) + where + INT32.pack(0)
        head = pack(">iii", HIGH_WATERMARK_REPLICA_ID, 0, 0)
        if api_version >= 3:
            head += INT32.pack(self.bytes_max)
        if api_version >= 4:
            head += b"\x00"
        where = pack(">iiqi", 1, self.partition, self.offset, self.bytes_max)
        return head + INT32.pack(1) + string(self.topic) + where

    def parse(self, api_version: int, body: Buffer) -> FetchAnswer:
        """What is stored there."""
        reader = Reader(body)
        throttle_ms = reader.int32("throttle_time_ms") if api_version >= 1 else 0
        if api_version == _FETCH_ZSTD_VERSION:
            error_code = reader.int16("error_code")
            reader.int32("session_id")
            if error_code:
                return FetchAnswer(error_code, -1, memoryview(b""))
        topics = reader.int32("topics")
        if topics == 0 and throttle_ms > 0:  # since 2.0 (KIP-219); an answer of its own would let fetches grow
            raise Malformed(f"it has no partition: the broker's quota for consumers is used up for {throttle_ms} ms")
        _expect(reader, "topics", 1, topics)
        _expect(reader, "topic name", self.topic, reader.string("topic name"))
        _expect(reader, "partitions", 1, reader.int32("partitions"))
        partition, error_code, high_watermark = reader.unpack(_PARTITION_HEAD, "partition")
        _expect(reader, "partition", self.partition, partition)
        if api_version >= 4:
            reader.int64("last_stable_offset")
            if api_version == _FETCH_ZSTD_VERSION:
                reader.int64("log_start_offset")
            reader.take(16 * reader.count("aborted_transactions", 16, null_is=0), "aborted_transactions")
        records = reader.nullable_bytes("records")
        reader.finish()
        return FetchAnswer(error_code, high_watermark, memoryview(b"") if records is None else records)


@dataclass(frozen=True, slots=True)
class Metadata:
    """Brokers and topics. ``topics`` None: all; empty: brokers only (but all where the broker knows only v0).

    Naming a topic may create it on a broker before 0.11, whatever ``allow_auto_topic_creation`` says. ``known``: topics
    as brokers reported them before, see ``metadata.read_answer``.
    """

    topics: tuple[str, ...] | None
    allow_auto_topic_creation: bool = True
    known: Mapping[str, Topic] = field(default_factory=dict, compare=False, repr=False)

    @property
    def api_key(self) -> int:
        """Metadata."""
        return ApiKey.METADATA

    def version_for(self, ranges: BrokerRanges) -> int:
        """The highest that the broker has, up to 4."""
        return _version(ranges, ApiKey.METADATA, metadata.QUESTION_VERSION_MAX)

    def encode(self, api_version: int) -> bytes:
        """The request body."""
        return metadata.encode_request(api_version, self.topics, self.allow_auto_topic_creation)

    def parse(self, api_version: int, body: Buffer) -> Cluster:
        """What the broker knows of the cluster."""
        return at_once(self.read(api_version, body))

    def read(self, api_version: int, body: Buffer) -> Steps[Cluster]:
        """The same in steps."""
        return metadata.read_answer(api_version, body, self.known)


def _version(ranges: BrokerRanges, api_key: int, known_max: int) -> int:
    first, last = ranges.get(api_key, (known_max + 1, 0))
    if first > known_max:
        raise UnsupportedVersion(api_key, known_max)
    return min(last, known_max)


def _expect(reader: Reader, what: str, asked: object, reported: object) -> None:
    if asked != reported:
        raise Malformed(f"{what} before {reader.position}: {reported!r} where {asked!r} was asked for")
