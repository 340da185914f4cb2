"""What a fetch returned, as batches with their records, in any message format. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ...codecs import message_set, record_batch
from ...codecs.errors import WireError
from ...codecs.message_set import ShallowMessage
from ...codecs.primitives import Buffer
from ...codecs.record_batch import StoredBatch

UNPACKED_BYTES_MAX: Final = 1 << 20
"""One batch: those of a probe have some hundred bytes."""


class UnreadableAnswer(Exception):
    """The bytes of a fetch are no batches; the message says why."""


class LogRecord(NamedTuple):
    """One record. ``timestamp``: ms; ``headers`` empty before message format v2."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class LogBatch(NamedTuple):
    """One batch of format v2, or one message of v0 or v1 (``magic``). ``producer``: id, epoch, base sequence. ``data``:
    all its bytes. ``key``: of a message of v0 or v1."""

    magic: int
    codec: int
    producer: tuple[int, int, int]
    is_log_append_time: bool
    records: tuple[LogRecord, ...]
    data: bytes
    key: bytes | None = None


def batches_of(data: Buffer, due: int) -> tuple[list[LogBatch], int]:
    """Return the whole batches in fetched bytes without the records below the offset ``due``, and the offset after
    them. Checksums are verified. Raises UnreadableAnswer."""
    view = memoryview(data)
    found: list[LogBatch] = []
    position, end = 0, due
    try:
        while len(view) - position > record_batch.MAGIC_AT:
            rest = view[position:]
            if rest[record_batch.MAGIC_AT] == record_batch.MAGIC:
                batch = next(record_batch.iterate_stored(rest), None)
                if batch is None:
                    break
                found.append(_of_batch(batch))
                position += batch.header.size_bytes
                end = max(end, batch.base_offset + batch.header.last_offset_delta + 1)
            else:
                message = next(message_set.iterate_shallow(rest), None)
                if message is None:
                    break
                message_set.verify_crc(rest, message)
                found.append(_of_message(message, bytes(rest[: message.size_bytes])))
                position += message.size_bytes
                end = max(end, message.offset + 1)
    except WireError as error:
        raise UnreadableAnswer(f"what is stored at offset {end} cannot be read: {error}") from None
    return [one for one in (_from(batch, due) for batch in found) if one.records], end


def _from(batch: LogBatch, due: int) -> LogBatch:
    """Servers may begin with the batch that an offset is inside of."""
    return batch._replace(records=tuple(one for one in batch.records if one.offset >= due))


def _of_batch(batch: StoredBatch) -> LogBatch:
    header = batch.header
    record_batch.verify_crc(batch.records, header)
    inside: Iterable[record_batch.Record] = ()
    if not header.attributes & record_batch.CONTROL_FLAG:
        inside = record_batch.iterate_records(batch.records, header, UNPACKED_BYTES_MAX, is_stored=True)
    return LogBatch(
        record_batch.MAGIC,
        header.codec,
        (header.producer_id, header.producer_epoch, header.base_sequence),
        header.is_log_append_time,
        tuple(
            LogRecord(batch.base_offset + one.offset_delta, one.timestamp, one.key, one.value, one.headers)
            for one in inside
        ),
        bytes(batch.records),
    )


def _of_message(message: ShallowMessage, data: bytes) -> LogBatch:
    inside = message_set.inner_messages(message, UNPACKED_BYTES_MAX) if message.is_wrapper else [message]
    return LogBatch(
        message.magic,
        message.codec,
        (-1, -1, -1),
        message.is_log_append_time,
        tuple(LogRecord(one.offset, one.timestamp, _bytes(one.key), _bytes(one.value)) for one in inside),
        data,
        _bytes(message.key),
    )


def _bytes(field: memoryview | None) -> bytes | None:
    return None if field is None else bytes(field)
