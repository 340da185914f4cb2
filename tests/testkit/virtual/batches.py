"""Record batches of format v2 as a broker from 0.11 on sees them: parsed, packed again, converted up and down.

Owns layouts only. The header is read here from the protocol's table; checksum and records by the proxy's codec.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from crc32c import crc32c

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.primitives import read_varlong
from idemproxy.codecs.record_batch import (
    BatchHeader,
    Record,
    encode_batch,
    iterate_records,
    parse_single_batch,
    payload_of,
    verify_crc,
)
from testkit.virtual.messages import CORRUPT, DECOMPRESSED_BYTES_MAX, Message, Refusal, at_offset, repacked

MAGIC_AT, MAGIC = 16, 2
_HEADER = struct.Struct(">qiibIhiqqqhii")
"""Offset, size, leader epoch, magic, CRC, attributes, last offset delta, first and highest timestamp, producer id,
epoch, base sequence, count."""
_SIZE, _CRC, _ATTRIBUTES, _COUNT = 1, 4, 5, 12
_SIZE_FROM, _CHECKED_FROM, _CODEC_BITS = 12, 21, 7


def is_batch(data: bytes) -> bool:
    """Is it in format v2?"""
    return data[MAGIC_AT : MAGIC_AT + 1] == bytes((MAGIC,))


def identity_in(data: bytes) -> tuple[int, int, int, int]:
    """Producer id, epoch, base sequence and record count of one batch."""
    *_, producer_id, producer_epoch, base_sequence, count = _HEADER.unpack_from(data)
    return producer_id, producer_epoch, base_sequence, count


def codec_in(data: bytes) -> int:
    """With what the records of one batch are packed."""
    return int.from_bytes(data[21:23], "big") & _CODEC_BITS


def codecs_in(data: bytes) -> set[int]:
    """With what the whole batches of format v2 in it are packed."""
    found, start = set(), 0
    while len(data) - start >= _HEADER.size:
        if is_batch(data[start : start + _HEADER.size]):
            found.add(codec_in(data[start : start + _HEADER.size]))
        start += _SIZE_FROM + int.from_bytes(data[start + 8 : start + 12], "big")
    return found


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
    """The batch as a Fetch up to version 3 gets it, and as a broker of format v1 stores it: without its producer."""
    if not batch.codec:
        return b"".join(_of_format_1(record, first_offset + record.offset).data for record in batch.inner)
    inner = [_of_format_1(record, record.offset) for record in batch.inner]
    wrapper = repacked(batch._replace(magic=1), inner, batch.codec)
    return at_offset(wrapper, first_offset + inner[-1].offset).data


def converted_up(message: Message) -> Message:
    """A message of format v1 as a broker stores it whose own format is v2: it has no producer, and no key of its
    wrapper."""
    records = [
        Record(delta, one.timestamp, one.key, one.value) for delta, one in enumerate(message.inner or (message,))
    ]
    return parse_batch(encode_batch(records, codec=Codec(message.codec)))


def repacked_batch(batch: Message, kept: Sequence[int], codec: int) -> Message:
    """The batch as a broker packs it again: with the records that have these numbers among those that it has, in this
    codec. Offsets and the fields of its producer stay (measured on real brokers)."""
    fields = list(_HEADER.unpack_from(batch.data))
    header = BatchHeader(len(batch.data), *fields[4:])
    payload = memoryview(bytes(payload_of(memoryview(batch.data), header, DECOMPRESSED_BYTES_MAX)))
    chunks, position = [], 0
    for _ in batch.inner:
        length, start = read_varlong(payload, position)
        chunks.append(bytes(payload[position : start + length]))
        position = start + length
    records = b"".join(chunks[number] for number in kept)
    if codec:
        records = bytes(compress(Codec(codec), records, magic=MAGIC))
    fields[_SIZE], fields[_ATTRIBUTES], fields[_COUNT] = (
        _HEADER.size - _SIZE_FROM + len(records),
        fields[_ATTRIBUTES] & ~_CODEC_BITS | codec,
        len(kept),
    )
    checked = _HEADER.pack(*fields)[_CHECKED_FROM:] + records
    fields[_CRC] = crc32c(checked)
    data = _HEADER.pack(*fields)[:_CHECKED_FROM] + checked
    return batch._replace(codec=codec, data=data, inner=tuple(batch.inner[number] for number in kept))


def _of_format_1(record: Message, offset: int) -> Message:
    body = struct.pack(">bbq", 1, 0, record.timestamp) + _blob(record.key) + _blob(record.value)
    data = struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
    return record._replace(offset=offset, magic=1, data=data)


def _blob(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
