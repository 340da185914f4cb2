"""The requests and answers of brokers as bytes, broker's side: Produce 0-8, Fetch 0-10, ListOffsets 0-1, Metadata 0-4.

Written from the protocol's tables and independent of the proxy's codecs, so that an error there cannot hide here. Owns
layouts; decides nothing. A request that cannot be parsed raises BadRequest, on which a broker closes the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

PRODUCE, FETCH, LIST_OFFSETS, METADATA, SASL_HANDSHAKE, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 2, 3, 17, 18, 22
DESCRIBE_CONFIGS, DESCRIBE_PRODUCERS = 32, 61
READ_MAX = {PRODUCE: 8, FETCH: 10, LIST_OFFSETS: 1, METADATA: 4, DESCRIBE_CONFIGS: 1, INIT_PRODUCER_ID: 1}
"""The highest versions that are read here, whatever a broker advertises."""

API_RANGES_0_10_2: tuple[tuple[int, int, int], ...] = (
    (0, 0, 2), (1, 0, 3), (2, 0, 1), (3, 0, 2), (4, 0, 0), (5, 0, 0), (6, 0, 3), (7, 1, 1), (8, 0, 2), (9, 0, 2),
    (10, 0, 0), (11, 0, 1), (12, 0, 0), (13, 0, 0), (14, 0, 0), (15, 0, 0), (16, 0, 0), (17, 0, 0), (18, 0, 0),
    (19, 0, 1), (20, 0, 0),
)  # fmt: skip
"""What a real 0.10.2.2 advertises: key, lowest, highest version."""


_INT8, _INT16, _INT32, _INT64 = (struct.Struct(layout) for layout in (">b", ">h", ">i", ">q"))
_REQUEST_HEADER = struct.Struct(">hhi")
_PRODUCE_HEADER = struct.Struct(">hi")
_FETCH_HEADER = struct.Struct(">iii")


class BadRequest(Exception):
    """Bytes that this broker does not understand."""


class Reader:
    """Takes fields off the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        """So many bytes."""
        end = self.position + count
        if count < 0 or end > len(self.data):
            raise BadRequest(f"{count} bytes at {self.position} of {len(self.data)}")
        taken, self.position = self.data[self.position : end], end
        return taken

    def int8(self) -> int:
        """One signed byte."""
        return self.numbers(_INT8)[0]

    def int16(self) -> int:
        """Two bytes, signed."""
        return self.numbers(_INT16)[0]

    def int32(self) -> int:
        """Four bytes, signed."""
        return self.numbers(_INT32)[0]

    def int64(self) -> int:
        """Eight bytes, signed."""
        return self.numbers(_INT64)[0]

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        """Several numbers that follow each other."""
        try:
            found = layout.unpack_from(self.data, self.position)
        except struct.error:
            raise BadRequest(f"{layout.size} bytes at {self.position} of {len(self.data)}") from None
        self.position += layout.size
        return found

    def string(self) -> str | None:
        """A nullable string."""
        (length,) = self.numbers(_INT16)
        return None if length == -1 else self.take(length).decode()

    def text(self) -> str:
        """A string that is not null."""
        found = self.string()
        if found is None:
            raise BadRequest("a string is null")
        return found

    def blob(self) -> bytes | None:
        """Nullable bytes."""
        (length,) = self.numbers(_INT32)
        return None if length == -1 else self.take(length)

    def array(self, element: Callable[[], T]) -> list[T]:
        """An array that is not null."""
        return [element() for _ in range(self.count())]

    def count(self) -> int:
        """How many elements an array has that is not null."""
        (count,) = self.numbers(_INT32)
        if not 0 <= count <= len(self.data):
            raise BadRequest(f"an array of {count} elements")
        return count

    def uvarint(self) -> int:
        """An unsigned number of variable length."""
        found = shift = 0
        while True:
            (byte,) = self.take(1)
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7

    def end(self) -> None:
        """Nothing may be left."""
        if self.position != len(self.data):
            raise BadRequest(f"{len(self.data) - self.position} bytes too many")


def has_records(frame: bytes) -> bool:
    """Is it a produce request with something in it?"""
    request = parse_request(frame)
    if request.api_key != PRODUCE:
        return False
    return any(row[2] for row in parse_produce(request.body, request.api_version).partitions)


def string(text: str | None) -> bytes:
    """A nullable string."""
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def array(elements: Sequence[bytes]) -> bytes:
    """An array of encoded elements."""
    return struct.pack(">i", len(elements)) + b"".join(elements)


class Request(NamedTuple):
    """Header, and a reader that stands at the body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Reader


class ProduceBody(NamedTuple):
    """``partitions``: (topic, partition, message set) in wire order, doubles kept."""

    acks: int
    timeout_ms: int
    partitions: list[tuple[str, int, bytes | None]]


class FetchBody(NamedTuple):
    """``partitions``: (topic, partition, offset, bytes at most). ``bytes_max``: of the whole answer (version 3)."""

    replica_id: int
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    partitions: list[tuple[str, int, int, int]]


class ListOffsetsBody(NamedTuple):
    """``partitions``: (topic, partition, time)."""

    replica_id: int
    partitions: list[tuple[str, int, int]]


def parse_request(frame: bytes) -> Request:
    """Return header and body of a frame without its size."""
    reader = Reader(frame)
    key, version, correlation_id = reader.numbers(_REQUEST_HEADER)
    client_id = reader.string()
    if key == DESCRIBE_PRODUCERS and reader.take(1) != b"\x00":
        raise BadRequest("a tagged field in the header")
    return Request(key, version, correlation_id, client_id, reader)


def _by_topic(reader: Reader, element: Callable[[str], T], *, is_last: bool = True) -> list[T]:
    found: list[T] = []
    for _ in range(reader.count()):
        topic = reader.text()
        found += [element(topic) for _ in range(reader.count())]
    if is_last:
        reader.end()
    return found


def parse_produce(reader: Reader, version: int = 2) -> ProduceBody:
    """Versions 0 to 2: one layout; 3 to 8: one with a transactional id."""
    if version >= 3 and reader.string() is not None:
        raise BadRequest("nobody has transactions here")
    acks, timeout_ms = reader.numbers(_PRODUCE_HEADER)
    return ProduceBody(acks, timeout_ms, _by_topic(reader, lambda topic: (topic, reader.int32(), reader.blob())))


def parse_fetch(reader: Reader, version: int) -> FetchBody:
    """Versions 0 to 10; none has a session."""
    replica_id, wait_ms, bytes_min = reader.numbers(_FETCH_HEADER)
    bytes_max = reader.int32() if version >= 3 else 2**31 - 1
    if version >= 4:
        reader.int8()  # the isolation level
    if version >= 7 and (reader.int32(), reader.int32()) != (0, -1):
        raise BadRequest("nobody has a fetch session here")

    def partition(topic: str) -> tuple[str, int, int, int]:
        number = reader.int32()
        if version >= 9:
            reader.int32()  # the leader epoch that is expected
        offset = reader.int64()
        if version >= 5:
            reader.int64()  # where the log of a follower begins
        return topic, number, offset, reader.int32()

    partitions = _by_topic(reader, partition, is_last=version < 7)
    if version >= 7:
        _by_topic(reader, lambda _topic: reader.int32())  # what a session is to forget
    return FetchBody(replica_id, wait_ms, bytes_min, bytes_max, partitions)


def parse_list_offsets(reader: Reader, version: int) -> ListOffsetsBody:
    """Versions 0 and 1."""

    def partition(topic: str) -> tuple[str, int, int]:
        number, time = reader.int32(), reader.int64()
        if version == 0:
            reader.int32()  # how many offsets; one is all that anybody here asks for
        return topic, number, time

    return ListOffsetsBody(reader.int32(), _by_topic(reader, partition))


def parse_metadata(reader: Reader, version: int) -> list[str] | None:
    """Topic names; None: all topics."""
    count = reader.int32()
    names = [reader.text() for _ in range(max(0, count))]
    if version >= 4:
        reader.int8()  # may topics be created? None are here
    reader.end()
    if version == 0:
        return names or None
    return None if count == -1 else names


def _grouped(rows: Sequence[tuple[str, bytes]]) -> bytes:
    topics: dict[str, list[bytes]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return array([string(topic) + array(found) for topic, found in topics.items()])


def produce_answer(version: int, answers: Sequence[tuple[str, int, int, int]], throttle_ms: int = 0) -> bytes:
    """``answers``: (topic, partition, error code, base offset)."""
    tail = b"".join(
        (
            struct.pack(">q", -1) if version >= 2 else b"",  # the time of the append
            struct.pack(">q", 0) if version >= 5 else b"",  # where the log starts
            array([]) + string(None) if version >= 8 else b"",  # records that are at fault, and a sentence
        )
    )
    rows = [
        (topic, struct.pack(">ihq", partition, error, base_offset) + tail)
        for topic, partition, error, base_offset in answers
    ]
    return _grouped(rows) + (struct.pack(">i", throttle_ms) if version >= 1 else b"")


def fetch_answer(version: int, answers: Sequence[tuple[str, int, int, int, bytes]]) -> bytes:
    """``answers``: (topic, partition, error code, high watermark, message set)."""
    start = struct.pack(">q", 0) if version >= 5 else b""
    stable = [b"" if version < 4 else struct.pack(">q", one[3]) + start + struct.pack(">i", -1) for one in answers]
    rows = [
        (topic, struct.pack(">ihq", partition, error, high_watermark) + last + struct.pack(">i", len(data)) + data)
        for (topic, partition, error, high_watermark, data), last in zip(answers, stable, strict=True)
    ]
    session = struct.pack(">hi", 0, 0) if version >= 7 else b""
    return (struct.pack(">i", 0) if version >= 1 else b"") + session + _grouped(rows)


def list_offsets_answer(version: int, answers: Sequence[tuple[str, int, int, int]]) -> bytes:
    """``answers``: (topic, partition, error code, offset)."""
    rows = []
    for topic, partition, error, offset in answers:
        head = struct.pack(">ih", partition, error)
        if version == 0:
            rows.append((topic, head + array([] if error else [struct.pack(">q", offset)])))
        else:
            rows.append((topic, head + struct.pack(">qq", -1, offset)))
    return _grouped(rows)


def metadata_answer(
    version: int,
    brokers: Sequence[tuple[int, str, int]],
    cluster_id: str,
    controller_id: int,
    topics: Sequence[tuple[int, str, Sequence[tuple[int, int, int, Sequence[int], Sequence[int]]]]],
) -> bytes:
    """``topics``: (error code, name, partitions: (error code, number, leader, replicas, in-sync replicas))."""
    rows = [
        struct.pack(">i", number) + string(host) + struct.pack(">i", port) + (string(None) if version >= 1 else b"")
        for number, host, port in brokers
    ]
    answer = (struct.pack(">i", 0) if version >= 3 else b"") + array(rows)
    if version >= 2:
        answer += string(cluster_id)
    if version >= 1:
        answer += struct.pack(">i", controller_id)
    encoded = []
    for error, name, partitions in topics:
        parts = [
            struct.pack(">hii", code, number, leader)
            + array([struct.pack(">i", replica) for replica in replicas])
            + array([struct.pack(">i", replica) for replica in in_sync])
            for code, number, leader, replicas, in_sync in partitions
        ]
        internal = b"\x00" if version >= 1 else b""
        encoded.append(struct.pack(">h", error) + string(name) + internal + array(parts))
    return answer + array(encoded)


RANGES_0_10_2: Mapping[int, tuple[int, int]] = {api: (low, high) for api, low, high in API_RANGES_0_10_2}


def api_versions_answer(ranges: Mapping[int, tuple[int, int]] = RANGES_0_10_2) -> bytes:
    """Version 0, without an error."""
    return struct.pack(">h", 0) + array([struct.pack(">hhh", key, *both) for key, both in sorted(ranges.items())])


def init_producer_id_answer(producer_id: int) -> bytes:
    """Versions 0 and 1, epoch 0."""
    return struct.pack(">ihqh", 0, 0, producer_id, 0)


def frame(correlation_id: int, body: bytes) -> bytes:
    """Size, correlation id, body."""
    return struct.pack(">ii", len(body) + 4, correlation_id) + body
