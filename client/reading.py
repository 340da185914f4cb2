"""Records out of what a fetch returns, in any of the three message formats, also mixed. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..codecs import message_set, record_batch
from ..codecs.errors import WireError
from ..codecs.message_set import ShallowMessage
from ..codecs.primitives import Buffer
from ..codecs.record_batch import CONTROL_FLAG, StoredBatch
from .errors import UnreadableLog
from .limits import DECOMPRESSED_BYTES_MAX
from .records import StoredRecord

_MAGIC_AT = 16


def records_from(data: Buffer, offset: int) -> tuple[list[StoredRecord], int]:
    """Return the records from ``offset`` on, and the offset after the last whole message. A message that is cut off at
    the end is left out, and so are control batches (transaction markers). Checksums are verified. Raises
    UnreadableLog."""
    view = memoryview(data)
    found: list[StoredRecord] = []
    due = offset
    position = 0
    try:
        while len(view) - position > _MAGIC_AT:
            if view[position + _MAGIC_AT] == record_batch.MAGIC:
                batch = next(record_batch.iterate_stored(view[position:]), None)
                if batch is None:
                    break
                position += batch.header.size_bytes
                found += [one for one in _of_batch(batch) if one.offset >= due]
                due = max(due, batch.base_offset + batch.header.last_offset_delta + 1)
            else:
                message = next(message_set.iterate_shallow(view[position:]), None)
                if message is None:
                    break
                message_set.verify_crc(view[position:], message)
                position += message.size_bytes
                found += [one for one in _of_message(message) if one.offset >= due]
                due = max(due, message.offset + 1)
    except WireError as error:
        raise UnreadableLog(f"what is stored at offset {due} cannot be read: {error}") from None
    return found, due


def _of_batch(batch: StoredBatch) -> Iterator[StoredRecord]:
    header = batch.header
    record_batch.verify_crc(batch.records, header)
    if header.attributes & CONTROL_FLAG:
        return
    for one in record_batch.iterate_records(batch.records, header, DECOMPRESSED_BYTES_MAX, is_stored=True):
        timestamp = header.max_timestamp if header.is_log_append_time else one.timestamp
        yield StoredRecord(batch.base_offset + one.offset_delta, timestamp, one.key, one.value, one.headers)


def _of_message(message: ShallowMessage) -> Iterator[StoredRecord]:
    inside = message_set.inner_messages(message, DECOMPRESSED_BYTES_MAX) if message.is_wrapper else [message]
    for one in inside:
        key = None if one.key is None else bytes(one.key)
        yield StoredRecord(one.offset, one.timestamp, key, None if one.value is None else bytes(one.value))
