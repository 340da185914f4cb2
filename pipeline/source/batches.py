"""Batches as rows (``rows=batches``): what stands in the log as one entry, from its header alone. Pure.

A wrapper without the proxy's batch marker does not say how many records it has, so it is unpacked and counted; nothing
else is. Plain messages of formats v0 and v1 are entries of their own. A wrapper whose batch marker names several
batches is a row for each; ``entryOffset``, ``crc`` and ``sizeBytes`` are the wrapper's."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ...codecs import message_set, record_batch
from ...codecs.batch_marker import parse_batch_marker
from ...codecs.compression import codec_of
from ...codecs.errors import WireError
from ...codecs.header_marker import HEADER_MARKER_BYTES, read_header_marker
from ...codecs.record_batch import BatchHeader
from ..reading.container import pieces_of
from ..reading.decode import containers
from .columns import BATCHES
from .records import APPEND_TIME, CREATE_TIME, NO_TIME, NONE_MS, arrow_schema, times

SCHEMA: Final = arrow_schema(BATCHES)
_INT64: Final = Struct(">q")
_UINT32: Final = Struct(">I")
_CRC_AT: Final = 12
"""Where a message's checksum is; that of a batch is in ``BatchHeader``."""
_MAGIC_AT: Final = 16


class BatchRow(NamedTuple):
    """One row, without topic and partition. None: unknown, or the format has none."""

    base_offset: int
    last_offset: int
    record_count: int | None
    timestamp: int
    timestamp_type: int
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    batch_marker: bytes | None
    magic: int
    codec: str
    crc: int
    crc_is_valid: bool
    size_bytes: int
    entry_offset: int
    is_transactional: bool = False
    is_control: bool = False

    @property
    def entry_end(self) -> int:
        """The last offset of the whole entry; the range that has it has the row."""
        return max(self.last_offset, self.entry_offset)


def rows_of_entry(entry: memoryview) -> Iterator[BatchRow]:
    """Yield the rows of one entry."""
    if entry[_MAGIC_AT] == record_batch.MAGIC:
        yield _of_batch(entry)
    else:
        yield from _of_message(entry)


def table(topic: str, partition: int, rows: list[BatchRow]) -> pa.RecordBatch:
    """Return rows as Arrow."""
    count = len(rows)
    by_column = dict(zip(BatchRow._fields, zip(*rows, strict=True), strict=True))
    stamps = times(np.array(by_column["timestamp"], np.int64))
    columns = [pa.repeat(topic, count), pa.array(np.full(count, partition, np.int32))]
    for name, field in zip(BatchRow._fields, list(SCHEMA)[2:], strict=True):
        columns.append(stamps if name == "timestamp" else pa.array(by_column[name], field.type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _of_batch(entry: memoryview) -> BatchRow:
    if len(entry) < record_batch.BATCH_OVERHEAD_BYTES:
        (base,) = _INT64.unpack_from(entry)
        return _damaged(base, record_batch.MAGIC, 0, len(entry))
    base, *fields = record_batch.HEADER.unpack_from(entry)
    header = BatchHeader(len(entry), *fields[3:])
    try:
        record_batch.verify_crc(entry, header)
        codec = codec_of(header.codec).name.lower()
    except WireError:
        return _damaged(base, record_batch.MAGIC, header.crc, len(entry))
    is_known, marker = header.producer_id >= 0, read_header_marker(header)
    has_time = header.max_timestamp != NONE_MS
    return BatchRow(
        base_offset=base,
        last_offset=base + max(header.last_offset_delta, 0),
        record_count=max(header.record_count, 0),
        timestamp=header.max_timestamp,
        timestamp_type=(APPEND_TIME if header.is_log_append_time else CREATE_TIME) if has_time else NO_TIME,
        producer_id=header.producer_id if is_known else None,
        producer_epoch=header.producer_epoch if is_known else None,
        base_sequence=header.base_sequence if is_known and header.base_sequence >= 0 else None,
        batch_marker=None if marker is None else marker.to_bytes(HEADER_MARKER_BYTES, "big"),
        magic=record_batch.MAGIC,
        codec=codec,
        crc=header.crc,
        crc_is_valid=True,
        size_bytes=len(entry),
        entry_offset=base,
        is_transactional=bool(header.attributes & record_batch.TRANSACTIONAL_FLAG),
        is_control=bool(header.attributes & record_batch.CONTROL_FLAG),
    )


def _of_message(entry: memoryview) -> Iterator[BatchRow]:
    """Yield the row of a plain message or wrapper, or those of the batches that its batch marker names."""
    (offset,) = _INT64.unpack_from(entry)
    try:
        (message,) = message_set.iterate_shallow(entry)
        codec = codec_of(message.codec)
        message_set.verify_crc(entry, message)
    except WireError:
        yield _damaged(offset, entry[_MAGIC_AT], _UINT32.unpack_from(entry, _CRC_AT)[0], len(entry))
        return
    time_type = APPEND_TIME if message.is_log_append_time else CREATE_TIME
    row = _damaged(offset, message.magic, message.crc, len(entry))._replace(
        record_count=1,
        timestamp=message.timestamp,
        timestamp_type=time_type if message.timestamp != NONE_MS else NO_TIME,
        codec=codec.name.lower(),
        crc_is_valid=True,
    )
    if not message.is_wrapper:
        yield row
        return
    pieces = pieces_of(parse_batch_marker(message.key), offset)
    for identity, first in pieces:
        yield row._replace(
            base_offset=first,
            last_offset=first + identity.record_count - 1,
            record_count=identity.record_count,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=identity.base_sequence,
            batch_marker=bytes(message.key or b""),
        )
    if not pieces:
        (container,) = containers(entry)
        yield row._replace(
            base_offset=container.first, record_count=None if container.unreadable else len(container.offsets)
        )


def _damaged(offset: int, magic: int, crc: int, size_bytes: int) -> BatchRow:
    """Return the row of an entry of which only these are believed."""
    return BatchRow(
        base_offset=offset,
        last_offset=offset,
        record_count=None,
        timestamp=-1,
        timestamp_type=NO_TIME,
        producer_id=None,
        producer_epoch=None,
        base_sequence=None,
        batch_marker=None,
        magic=magic,
        codec="",
        crc=crc,
        crc_is_valid=False,
        size_bytes=size_bytes,
        entry_offset=offset,
    )
