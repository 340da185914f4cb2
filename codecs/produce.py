"""Produce requests and responses by hand: the hot path. Versions 0-9 as a server, 0-8 as a client.

Finds the records of each partition in place and never looks into them. Keeps wire order and doubles; judges neither.
Source: Kafka's ProduceRequest.json and ProduceResponse.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, error
from sys import intern
from typing import Final

from .errors import LimitExceeded, Malformed, Truncated, UnsupportedVersion
from .headers import skip_tagged_fields
from .primitives import Buffer, encode_unsigned_varint, read_unsigned_varint

API_KEY: Final = 0
CONDITIONAL_PUBLISH: Final = 31_023
"""No API of Kafka: a proxy lists it in ApiVersions where it serves conditional publish on some topics and lists
transactions as well, so that a client can tell it from a broker. No request has it."""
CLIENT_VERSION_MAX: Final = 9
BROKER_VERSION_MAX: Final = 2
"""The version that old brokers are sent at most: the last one with message sets."""
BATCH_VERSIONS: Final = (3, 7)
"""The versions in which batches of format v2 are sent: the first one, and the first one that takes zstd."""
IDEMPOTENT_VERSION_MIN: Final = 3
"""The first version with record batches, which have a producer id (KIP-98)."""
SENT_VERSION_MAX: Final = 8
"""The highest version that is sent as a client, and whose response is parsed: the first one with an error message for
people (KIP-467)."""
FLEXIBLE_VERSION: Final = 9

PARTITIONS_MAX: Final = 10_000
"""Partitions in one request or response. Both concern one broker, which should lead 4,000 at most. Reading or answering
so many takes 10 ms."""

RECORD_ERRORS_MAX: Final = 100_000
"""Records about which a broker complains in one answer: more than a batch of 1 MiB has."""

_NULL_STRING: Final = b"\xff\xff"
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_ACKS_TIMEOUT: Final = Struct(">hi")
_ACKS_TIMEOUT_COUNT: Final = Struct(">hii")
_INT32_PAIR: Final = Struct(">ii")
_ANSWER_V0: Final = Struct(">ihq")
_ANSWER_V2: Final = Struct(">ihqq")
_ANSWER_V5: Final = Struct(">ihqqq")

_int16_at: Final = _INT16.unpack_from
_int32_at: Final = _INT32.unpack_from
_int32_pair_at: Final = _INT32_PAIR.unpack_from


@dataclass(slots=True)
class PartitionRecords:
    """The records for one partition, as a part of the frame they came in; None where the client sent null."""

    topic: str
    partition: int
    records: memoryview | None


@dataclass(slots=True)
class ProduceRequest:
    """A produce request. ``partitions`` are in wire order, doubles included."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: list[PartitionRecords]


@dataclass(slots=True)
class PartitionAnswer:
    """The answer for one partition. ``message`` is for people; clients see it from version 8 on."""

    topic: str
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None


def parse_request(frame: Buffer, body_offset: int, api_version: int) -> ProduceRequest:
    """Return the request whose body starts at ``body_offset``. Copies no records.

    Raises Truncated, Malformed, LimitExceeded (too many partitions), UnsupportedVersion (outside 0-9).
    """
    if not 0 <= api_version <= CLIENT_VERSION_MAX:
        raise UnsupportedVersion(API_KEY, api_version)
    try:
        if api_version >= FLEXIBLE_VERSION:
            return _parse_flexible_request(frame, body_offset)
        return _parse_classic_request(frame, body_offset, api_version)
    except error as exc:
        raise Truncated(f"produce request: {len(frame)} bytes end within a field ({exc})") from None
    except UnicodeDecodeError as exc:
        raise Malformed(f"produce request: a name is not UTF-8 ({exc.reason})") from None


def _parse_classic_request(frame: Buffer, position: int, api_version: int) -> ProduceRequest:
    view = memoryview(frame)
    frame_bytes = len(view)
    transactional_id = None
    if api_version >= 3:
        (length,) = _int16_at(frame, position)
        position += 2
        if length >= 0:
            transactional_id = _text(view, position, length)
            position += length
        elif length != -1:
            raise Malformed(f"transactional id at {position - 2}: length {length}")
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, position)
    position += 10
    partitions: list[PartitionRecords] = []
    append = partitions.append
    for _ in range(_count(topic_count, "topics", position)):
        (length,) = _int16_at(frame, position)
        position += 2
        topic = _topic(view, position, length)
        position += length
        (partition_count,) = _int32_at(frame, position)
        position += 4
        if partition_count + len(partitions) > PARTITIONS_MAX:
            raise LimitExceeded(f"produce request: more than {PARTITIONS_MAX} partitions")
        for _ in range(_count(partition_count, "partitions", position)):
            partition, size = _int32_pair_at(frame, position)
            position += 8
            if size >= 0:
                end = position + size
                if end > frame_bytes:
                    raise Truncated(f"records at {position}: {size} bytes announced, {frame_bytes - position} there")
                append(PartitionRecords(topic, partition, view[position:end]))
                position = end
            elif size == -1:
                append(PartitionRecords(topic, partition, None))
            else:
                raise Malformed(f"records at {position - 4}: size {size}")
    if position != frame_bytes:
        raise Malformed(f"produce request: {frame_bytes - position} bytes after its end")
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _parse_flexible_request(frame: Buffer, position: int) -> ProduceRequest:
    view = memoryview(frame)
    frame_bytes = len(view)
    length, position = read_unsigned_varint(frame, position)
    transactional_id = None
    if length:
        transactional_id = _text(view, position, length - 1)
        position += length - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    position += 6
    topic_count, position = read_unsigned_varint(frame, position)
    partitions: list[PartitionRecords] = []
    for _ in range(_count(topic_count - 1, "topics", position)):
        length, position = read_unsigned_varint(frame, position)
        topic = _topic(view, position, length - 1)
        position += length - 1
        partition_count, position = read_unsigned_varint(frame, position)
        if partition_count - 1 + len(partitions) > PARTITIONS_MAX:
            raise LimitExceeded(f"produce request: more than {PARTITIONS_MAX} partitions")
        for _ in range(_count(partition_count - 1, "partitions", position)):
            (partition,) = _int32_at(frame, position)
            length, position = read_unsigned_varint(frame, position + 4)
            records = None
            if length:
                end = position + length - 1
                if end > frame_bytes:
                    raise Truncated(f"records at {position}: {length - 1} bytes, {frame_bytes - position} there")
                records = view[position:end]
                position = end
            position = skip_tagged_fields(frame, position)
            partitions.append(PartitionRecords(topic, partition, records))
        position = skip_tagged_fields(frame, position)
    position = skip_tagged_fields(frame, position)
    if position != frame_bytes:
        raise Malformed(f"produce request: {frame_bytes - position} bytes after its end")
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def _count(count: int, what: str, position: int, at_most: int = PARTITIONS_MAX) -> int:
    if not 0 <= count <= at_most:
        if count < 0:
            raise Malformed(f"{what} at {position}: count {count}")
        raise LimitExceeded(f"{what} at {position}: {count}, the limit is {at_most}")
    return count


def _topic(view: memoryview, position: int, length: int) -> str:
    """Return a name of which there is one object: a process remembers thousands of batches for the same topic."""
    return intern(_text(view, position, length))


def _text(view: memoryview, position: int, length: int) -> str:
    if length < 0:
        raise Malformed(f"name at {position}: length {length}")
    if length > len(view) - position:
        raise Truncated(f"name at {position}: {length} bytes announced, {len(view) - position} there")
    return str(view[position : position + length], "utf-8")


def _by_topic(answers: Sequence[PartitionAnswer]) -> dict[str, list[PartitionAnswer]]:
    topics: dict[str, list[PartitionAnswer]] = {}
    for answer in answers:
        same = topics.get(answer.topic)
        if same is None:
            topics[answer.topic] = [answer]
        else:
            same.append(answer)
    return topics


def encode_response(api_version: int, answers: Sequence[PartitionAnswer], throttle_ms: int = 0) -> bytes:
    """Return the body of a response in ``api_version`` (0-9), grouped by topic in the order of their first answers."""
    assert 0 <= api_version <= CLIENT_VERSION_MAX
    if api_version >= FLEXIBLE_VERSION:
        return _encode_flexible_response(answers, throttle_ms)
    topics = _by_topic(answers)
    chunks = [_INT32.pack(len(topics))]
    for topic, same in topics.items():
        name = topic.encode()
        chunks += (_INT16.pack(len(name)), name, _INT32.pack(len(same)))
        for a in same:
            if api_version >= 5:
                chunks.append(
                    _ANSWER_V5.pack(a.partition, a.error_code, a.base_offset, a.log_append_time_ms, a.log_start_offset)
                )
                if api_version >= 8:
                    chunks.append(_record_errors(a.message))
            elif api_version >= 2:
                chunks.append(_ANSWER_V2.pack(a.partition, a.error_code, a.base_offset, a.log_append_time_ms))
            else:
                chunks.append(_ANSWER_V0.pack(a.partition, a.error_code, a.base_offset))
    if api_version >= 1:
        chunks.append(_INT32.pack(throttle_ms))
    return b"".join(chunks)


def _record_errors(message: str | None) -> bytes:
    if message is None:
        return b"\0\0\0\0\xff\xff"  # no record errors, no message
    text = message.encode()
    return b"\0\0\0\0" + _INT16.pack(len(text)) + text


def _encode_flexible_response(answers: Sequence[PartitionAnswer], throttle_ms: int) -> bytes:
    topics = _by_topic(answers)
    chunks = [encode_unsigned_varint(len(topics) + 1)]
    for topic, same in topics.items():
        name = topic.encode()
        chunks += (encode_unsigned_varint(len(name) + 1), name, encode_unsigned_varint(len(same) + 1))
        for a in same:
            chunks.append(
                _ANSWER_V5.pack(a.partition, a.error_code, a.base_offset, a.log_append_time_ms, a.log_start_offset)
            )
            if a.message is None:
                chunks.append(b"\x01\0\0")  # no record errors, no message, no tagged fields
            else:
                text = a.message.encode()
                chunks += (b"\x01", encode_unsigned_varint(len(text) + 1), text, b"\0")
        chunks.append(b"\0")
    chunks += (_INT32.pack(throttle_ms), b"\0")
    return b"".join(chunks)


def encode_request(
    api_version: int, acks: int, timeout_ms: int, parts: Sequence[tuple[str, int, Buffer]]
) -> list[Buffer]:
    """Return the body of a request in ``api_version`` (0-8, without a transactional id) as chunks; the records are not
    copied.

    ``parts`` are (topic, partition, records), each partition at most once: of two the broker silently takes the last.
    """
    assert 0 <= api_version <= SENT_VERSION_MAX
    topics: dict[str, dict[int, Buffer]] = {}
    for topic, partition, records in parts:
        if topic not in topics:
            topics[topic] = {}
        partitions = topics[topic]
        assert partition not in partitions, f"{topic}-{partition} twice in one request"
        partitions[partition] = records
    chunks: list[Buffer] = []
    pending = _NULL_STRING if api_version >= IDEMPOTENT_VERSION_MIN else b""
    pending += _ACKS_TIMEOUT_COUNT.pack(acks, timeout_ms, len(topics))
    for topic, partitions in topics.items():
        name = topic.encode()
        pending += _INT16.pack(len(name)) + name + _INT32.pack(len(partitions))
        for (partition, records), size in zip(partitions.items(), map(len, partitions.values()), strict=True):
            chunks += (pending + _INT32_PAIR.pack(partition, size), records)
            pending = b""
    if pending:
        chunks.append(pending)
    return chunks


def parse_response(frame: Buffer, body_offset: int, api_version: int) -> tuple[list[PartitionAnswer], int]:
    """Return (answers in wire order, throttle time in ms). Brokers answer in any order: match by topic and partition.

    Raises Truncated, Malformed, LimitExceeded, UnsupportedVersion (outside 0-8).
    """
    if not 0 <= api_version <= SENT_VERSION_MAX:
        raise UnsupportedVersion(API_KEY, api_version)
    try:
        return _parse_response(memoryview(frame), body_offset, api_version)
    except error as exc:
        raise Truncated(f"produce response: {len(frame)} bytes end within a field ({exc})") from None
    except UnicodeDecodeError as exc:
        raise Malformed(f"produce response: a name is not UTF-8 ({exc.reason})") from None


def _parse_response(view: memoryview, position: int, api_version: int) -> tuple[list[PartitionAnswer], int]:
    answers: list[PartitionAnswer] = []
    (topic_count,) = _int32_at(view, position)
    position += 4
    for _ in range(_count(topic_count, "topics", position)):
        (length,) = _int16_at(view, position)
        position += 2
        topic = _text(view, position, length)
        position += length
        (partition_count,) = _int32_at(view, position)
        position += 4
        if partition_count + len(answers) > PARTITIONS_MAX:
            raise LimitExceeded(f"produce response: more than {PARTITIONS_MAX} partitions")
        for _ in range(_count(partition_count, "partitions", position)):
            if api_version >= 5:
                answer = PartitionAnswer(topic, *_ANSWER_V5.unpack_from(view, position))
                position += _ANSWER_V5.size
                if api_version >= 8:
                    answer.message, position = _read_message(view, position)
                answers.append(answer)
            elif api_version >= 2:
                answers += (PartitionAnswer(topic, *_ANSWER_V2.unpack_from(view, position)),)
                position += _ANSWER_V2.size
            else:
                answers.append(PartitionAnswer(topic, *_ANSWER_V0.unpack_from(view, position)))
                position += _ANSWER_V0.size
    throttle_ms = 0
    if api_version >= 1:
        (throttle_ms,) = _int32_at(view, position)
        position += 4
    if position != len(view):
        raise Malformed(f"produce response: {len(view) - position} bytes after its end")
    return answers, throttle_ms


def _read_message(view: memoryview, position: int) -> tuple[str | None, int]:
    """Return the message for one partition: its own, else that of the first record that the broker complains about."""
    found = None
    (count,) = _int32_at(view, position)
    position += 4
    for _ in range(_count(count, "record errors", position, RECORD_ERRORS_MAX)):
        of_record, position = _nullable_text(view, position + 4)
        found = of_record if found is None else found
    of_batch, position = _nullable_text(view, position)
    return found if of_batch is None else of_batch, position


def _nullable_text(view: memoryview, position: int) -> tuple[str | None, int]:
    (length,) = _int16_at(view, position)
    position += 2
    if length == -1:
        return None, position
    return _text(view, position, length), position + length
