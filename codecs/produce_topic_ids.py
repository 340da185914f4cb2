"""Produce 13, in which a request names topics by their ids (KIP-516). All else is as in version 9.

A topic id is the text of its 32 hexadecimal digits in place of the topic's name, in what is taken and in what is
returned. Source: Kafka's ProduceRequest.json and ProduceResponse.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Final

from .errors import LimitExceeded, Malformed, Truncated
from .headers import ANSWER_TAGGED_FIELDS_MAX, skip_tagged_fields
from .primitives import Buffer, encode_unsigned_varint, read_unsigned_varint
from .produce import PARTITIONS_MAX, RECORD_ERRORS_MAX, PartitionAnswer, PartitionRecords, ProduceRequest

VERSION: Final = 13
TOPIC_ID_BYTES: Final = 16

_ACKS_TIMEOUT: Final = Struct(">hi")
_INT32: Final = Struct(">i")
_ANSWER: Final = Struct(">ihqqq")
"""Partition, error code, base offset, log append time, log start offset."""
_NOT_WHOLE: Final = (IndexError, error)


def parse_request(body: Buffer) -> ProduceRequest:
    """Return the request. Copies no records. Raises Truncated, Malformed, LimitExceeded (too many partitions)."""
    view = memoryview(body)
    try:
        return _parse_request(view)
    except _NOT_WHOLE as exc:
        raise Truncated(f"produce request: {len(view)} bytes end within a field ({exc})") from None
    except UnicodeDecodeError as exc:
        raise Malformed(f"produce request: a name is not UTF-8 ({exc.reason})") from None


def _parse_request(view: memoryview) -> ProduceRequest:
    length, at = read_unsigned_varint(view, 0)
    transactional_id = None
    if length:
        text, at = _taken(view, at, length - 1)
        transactional_id = str(text, "utf-8")
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, at)
    topic_count, at = _count(view, at + _ACKS_TIMEOUT.size, "topics")
    partitions: list[PartitionRecords] = []
    for _ in range(topic_count):
        topic_id, at = _taken(view, at, TOPIC_ID_BYTES)
        partition_count, at = _count(view, at, "partitions")
        if partition_count + len(partitions) > PARTITIONS_MAX:
            raise LimitExceeded(f"produce request: more than {PARTITIONS_MAX} partitions")
        for _ in range(partition_count):
            (partition,) = _INT32.unpack_from(view, at)
            length, at = read_unsigned_varint(view, at + _INT32.size)
            records = None
            if length:
                records, at = _taken(view, at, length - 1)
            at = skip_tagged_fields(view, at)
            partitions.append(PartitionRecords(topic_id.hex(), partition, records))
        at = skip_tagged_fields(view, at)
    at = skip_tagged_fields(view, at)
    if at != len(view):
        raise Malformed(f"produce request: {len(view) - at} bytes after its end")
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def encode_request(acks: int, timeout_ms: int, parts: Sequence[tuple[str, int, Buffer]]) -> list[Buffer]:
    """Return the body of a request without a transactional id as chunks; the records are not copied. ``parts``: topic
    id, partition, records, each partition at most once."""
    topics: dict[str, list[tuple[int, Buffer]]] = {}
    for topic_id, partition, records in parts:
        topics.setdefault(topic_id, []).append((partition, records))
    chunks: list[Buffer] = []
    pending = b"\0" + _ACKS_TIMEOUT.pack(acks, timeout_ms) + encode_unsigned_varint(len(topics) + 1)
    for topic_id, partitions in topics.items():
        pending += bytes.fromhex(topic_id) + encode_unsigned_varint(len(partitions) + 1)
        for partition, records in partitions:
            chunks += (pending + _INT32.pack(partition) + encode_unsigned_varint(len(records) + 1), records)
            pending = b"\0"  # no tagged fields of the partition
        pending += b"\0"
    chunks.append(pending + b"\0")
    return chunks


def parse_response(body: Buffer) -> tuple[list[PartitionAnswer], int]:
    """Return (answers in wire order, throttle time in ms). Raises Truncated, Malformed, LimitExceeded."""
    view = memoryview(body)
    try:
        return _parse_response(view)
    except _NOT_WHOLE as exc:
        raise Truncated(f"produce response: {len(view)} bytes end within a field ({exc})") from None
    except UnicodeDecodeError as exc:
        raise Malformed(f"produce response: a message is not UTF-8 ({exc.reason})") from None


def _parse_response(view: memoryview) -> tuple[list[PartitionAnswer], int]:
    answers: list[PartitionAnswer] = []
    topic_count, at = _count(view, 0, "topics")
    for _ in range(topic_count):
        topic_id, at = _taken(view, at, TOPIC_ID_BYTES)
        partition_count, at = _count(view, at, "partitions")
        if partition_count + len(answers) > PARTITIONS_MAX:
            raise LimitExceeded(f"produce response: more than {PARTITIONS_MAX} partitions")
        for _ in range(partition_count):
            answer = PartitionAnswer(topic_id.hex(), *_ANSWER.unpack_from(view, at))
            answer.message, at = _message(view, at + _ANSWER.size)
            at = skip_tagged_fields(view, at, ANSWER_TAGGED_FIELDS_MAX)
            answers.append(answer)
        at = skip_tagged_fields(view, at, ANSWER_TAGGED_FIELDS_MAX)
    (throttle_ms,) = _INT32.unpack_from(view, at)
    at = skip_tagged_fields(view, at + _INT32.size, ANSWER_TAGGED_FIELDS_MAX)
    if at != len(view):
        raise Malformed(f"produce response: {len(view) - at} bytes after its end")
    return answers, throttle_ms


def encode_response(answers: Sequence[PartitionAnswer], throttle_ms: int = 0) -> bytes:
    """Return the body of a response, grouped by topic in the order of their first answers."""
    topics: dict[str, list[PartitionAnswer]] = {}
    for answer in answers:
        topics.setdefault(answer.topic, []).append(answer)
    chunks = [encode_unsigned_varint(len(topics) + 1)]
    for topic_id, same in topics.items():
        chunks += (bytes.fromhex(topic_id), encode_unsigned_varint(len(same) + 1))
        for a in same:
            text = b"" if a.message is None else a.message.encode()
            length = 0 if a.message is None else len(text) + 1
            chunks += (
                _ANSWER.pack(a.partition, a.error_code, a.base_offset, a.log_append_time_ms, a.log_start_offset),
                b"\x01",  # no record errors
                encode_unsigned_varint(length) + text + b"\0",
            )
        chunks.append(b"\0")
    chunks += (_INT32.pack(throttle_ms), b"\0")
    return b"".join(chunks)


def _message(view: memoryview, at: int) -> tuple[str | None, int]:
    """Return the message for one partition: its own, else that of the first record that the broker complains about."""
    found = None
    count, at = _count(view, at, "record errors", RECORD_ERRORS_MAX)
    for _ in range(count):
        of_record, at = _nullable_text(view, at + _INT32.size)
        at = skip_tagged_fields(view, at, ANSWER_TAGGED_FIELDS_MAX)
        found = of_record if found is None else found
    of_batch, at = _nullable_text(view, at)
    return found if of_batch is None else of_batch, at


def _nullable_text(view: memoryview, at: int) -> tuple[str | None, int]:
    length, at = read_unsigned_varint(view, at)
    if not length:
        return None, at
    text, at = _taken(view, at, length - 1)
    return str(text, "utf-8"), at


def _taken(view: memoryview, at: int, size: int) -> tuple[memoryview, int]:
    """Return so many bytes, and where they end."""
    if size > len(view) - at:
        raise Truncated(f"field at {at}: {size} bytes announced, {len(view) - at} there")
    return view[at : at + size], at + size


def _count(view: memoryview, at: int, what: str, at_most: int = PARTITIONS_MAX) -> tuple[int, int]:
    count, behind = read_unsigned_varint(view, at)
    if not count:
        raise Malformed(f"{what} at {at}: null")
    if count - 1 > at_most:
        raise LimitExceeded(f"{what} at {at}: {count - 1}, the limit is {at_most}")
    return count - 1, behind
