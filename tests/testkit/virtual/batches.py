"""Record batches of format v2 as a broker from 0.11 on sees them: parsed, and converted down for an old reader.

Owns layouts only. The header is read here from the protocol's table; checksum and records by the proxy's codec.
"""

from __future__ import annotations

import struct
import zlib

from idemproxy.codecs.record_batch import iterate_records, parse_single_batch, verify_crc
from testkit.virtual.messages import CORRUPT, DECOMPRESSED_BYTES_MAX, Message, Refusal, at_offset, repacked

MAGIC_AT, MAGIC = 16, 2
_HEADER = struct.Struct(">qiibIhiqqqhii")
"""Offset, size, leader epoch, magic, CRC, attributes, last offset delta, first and highest timestamp, producer id,
epoch, base sequence, count."""


def is_batch(data: bytes) -> bool:
    """Is it in format v2?"""
    return data[MAGIC_AT : MAGIC_AT + 1] == bytes((MAGIC,))


def identity_in(data: bytes) -> tuple[int, int, int, int]:
    """Producer id, epoch, base sequence and record count of one batch."""
    *_, producer_id, producer_epoch, base_sequence, count = _HEADER.unpack_from(data)
    return producer_id, producer_epoch, base_sequence, count


def parse_batch(data: bytes) -> Message:
    """The one batch of a produce request: its records are the inner messages. Raises Refusal (2)."""
    try:
        view = memoryview(data)
        header = parse_single_batch(view)
        verify_crc(view, header)
        records = list(iterate_records(view, header, DECOMPRESSED_BYTES_MAX))
    except Exception as error:
        raise Refusal(CORRUPT, f"not a batch: {error}") from error
    offset, *_ = _HEADER.unpack_from(data)
    inner = tuple(
        Message(delta, MAGIC, 0, record.timestamp, record.key, record.value, b"")
        for delta, record in enumerate(records)
    )
    names = header.producer_id, header.producer_epoch, header.base_sequence
    return Message(offset, MAGIC, header.codec, header.max_timestamp, None, None, data, inner, *names)


def converted_down(batch: Message, first_offset: int) -> bytes:
    """The batch as a Fetch up to version 3 gets it: format v1, without its producer."""
    if not batch.codec:
        return b"".join(_of_format_1(record, first_offset + at).data for at, record in enumerate(batch.inner))
    inner = [_of_format_1(record, at) for at, record in enumerate(batch.inner)]
    wrapper = repacked(batch._replace(magic=1), inner, batch.codec)
    return at_offset(wrapper, first_offset + len(inner) - 1).data


def _of_format_1(record: Message, offset: int) -> Message:
    body = struct.pack(">bbq", 1, 0, record.timestamp) + _blob(record.key) + _blob(record.value)
    data = struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
    return record._replace(offset=offset, magic=1, data=data)


def _blob(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
