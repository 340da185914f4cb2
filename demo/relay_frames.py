"""What the relay understands of Kafka: frame borders, request headers, the ids in a produce request, broker addresses.

Pure functions over bytes. A frame here always carries its 4-byte size in front.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from ..codecs.errors import WireError
from ..codecs.headers import parse_response_header
from ..codecs.messages import decode_response, encode_response, fields_of

PRODUCE, METADATA, FIND_COORDINATOR, INIT_PRODUCER_ID = 0, 3, 10, 22
FRAME_BYTES_MAX = 256 << 20
"""Kafka's own limit for one request is 100 MiB; what is larger is no Kafka."""
_PRODUCE_FLEXIBLE_FROM = 9
_PRODUCE_TOPIC_IDS_FROM = 13
_BATCH_OVERHEAD_BYTES = 61


class NotKafka(Exception):
    """A size that no Kafka frame has."""


class FrameBuffer:
    """Puts frames together out of pieces of a stream."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that are whole now. Raises NotKafka."""
        if not self._rest and len(data) >= 4 and len(data) == _frame_bytes(data, 0):
            return [data]
        self._rest += data
        frames = []
        start = 0
        while len(self._rest) - start >= 4:
            end = start + _frame_bytes(self._rest, start)
            if end > len(self._rest):
                break
            frames.append(bytes(memoryview(self._rest)[start:end]))
            start = end
        if start:
            del self._rest[:start]
        return frames


def _frame_bytes(data: bytes | bytearray, at: int) -> int:
    (size,) = struct.unpack_from(">i", data, at)
    if not 4 <= size <= FRAME_BYTES_MAX:
        raise NotKafka(f"a frame of {size} bytes")
    return int(size) + 4


@dataclass(frozen=True, slots=True)
class ProduceFacts:
    """What is asked of a produce request: whether it will be answered, and whose batches it carries."""

    acks: int
    producer_ids: tuple[int, ...]


def request_head(frame: bytes) -> tuple[int, int, int]:
    """Return (api key, version, correlation id). Raises NotKafka."""
    if len(frame) < 12:
        raise NotKafka("a request shorter than its header")
    key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
    return key, version, correlation_id


def correlation_of(frame: bytes) -> int:
    """Return the correlation id of an answer."""
    (correlation_id,) = struct.unpack_from(">i", frame, 4)
    return int(correlation_id)


def scan_produce(frame: bytes, version: int) -> ProduceFacts:
    """Return acks and the producer ids (>= 0) in the record batches. Raises NotKafka for what can not be followed."""
    try:
        return _scan_produce(_Cursor(frame, 12), version)
    except (struct.error, IndexError) as error:
        raise NotKafka(f"a produce request that ends too early: {error}") from None


def _scan_produce(cursor: _Cursor, version: int) -> ProduceFacts:
    flexible = version >= _PRODUCE_FLEXIBLE_FROM
    cursor.skip(max(0, cursor.int16()))  # client id
    if flexible:
        cursor.tags()
    if version >= 3:
        cursor.skip(cursor.size(flexible, 2))  # transactional id
    acks = cursor.int16()
    cursor.skip(4)  # timeout
    found: list[int] = []
    for _ in range(cursor.size(flexible, 4)):
        cursor.skip(16 if version >= _PRODUCE_TOPIC_IDS_FROM else cursor.size(flexible, 2))
        for _ in range(cursor.size(flexible, 4)):
            cursor.skip(4)  # partition
            size = cursor.size(flexible, 4)
            _producer_ids(cursor.data, cursor.at, min(len(cursor.data), cursor.at + size), found)
            cursor.skip(size)
            if flexible:
                cursor.tags()
        if flexible:
            cursor.tags()
    return ProduceFacts(acks, tuple(found))


def _producer_ids(data: bytes, at: int, end: int, found: list[int]) -> None:
    while end - at >= _BATCH_OVERHEAD_BYTES and data[at + 16] == 2:
        (producer_id,) = struct.unpack_from(">q", data, at + 43)
        if producer_id >= 0:
            found.append(producer_id)
        (length,) = struct.unpack_from(">i", data, at + 8)
        at += 12 + max(length, _BATCH_OVERHEAD_BYTES - 12)


class _Cursor:
    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise IndexError("a length beyond the end")

    def int16(self) -> int:
        (value,) = struct.unpack_from(">h", self.data, self.at)
        self.at += 2
        return int(value)

    def size(self, compact: bool, width: int) -> int:
        """A length or a count: of ``width`` bytes, or one more than itself as a varint. Null counts as 0."""
        if compact:
            return max(0, self._varint() - 1)
        (value,) = struct.unpack_from(">h" if width == 2 else ">i", self.data, self.at)
        self.at += width
        return max(0, int(value))

    def tags(self) -> None:
        for _ in range(self._varint()):
            self._varint()
            self.skip(self._varint())

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 35:
                raise IndexError("a varint that does not end")


def rewrite_addresses(
    frame: bytes, api_key: int, version: int, translate: Callable[[str, int], tuple[str, int]]
) -> bytes:
    """Return a Metadata or FindCoordinator answer with every broker address translated. Raises NotKafka."""
    try:
        _, body_at = parse_response_header(frame[4:], api_key, version)
        answer = decode_response(api_key, version, frame[4 + body_at :])
    except WireError as error:
        raise NotKafka(f"an answer to api {api_key} version {version} that can not be read: {error}") from error
    coordinators = api_key == FIND_COORDINATOR and version >= 4
    for place in answer.brokers if api_key == METADATA else answer.coordinators if coordinators else [answer]:
        if place.host and place.port > 0:
            place.host, place.port = translate(place.host, place.port)
    body = encode_response(api_key, version, **fields_of(answer))
    return struct.pack(">i", body_at + len(body)) + frame[4 : 4 + body_at] + body
