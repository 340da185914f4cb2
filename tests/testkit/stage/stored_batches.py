"""Batches as a log holds them, with gaps and at any offset; and message sets as other implementations read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import NamedTuple

from crc32c import crc32c

from idemproxy.codecs import messages  # noqa: F401  (imports the library without warnings)
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import iterate_inside, iterate_shallow, unpacking, verify_crc
from idemproxy.codecs.old_formats import Lower, lowering
from idemproxy.codecs.primitives import encode_varlong, wrap_int64
from idemproxy.codecs.record_batch import LOG_APPEND_TIME_FLAG, batch_of
from idemproxy.codecs.steps import at_once

_kafka_python = import_module("kafka.record.memory_records")
_aiokafka = import_module("aiokafka.record._crecords")

FIRST_TIMESTAMP = 1_700_000_000_000
_LAST_OFFSET_DELTA_AT, _MAX_TIMESTAMP_AT = 23, 35
_CRC_AT, _ATTRIBUTES_AT = 17, 21
_NO_LIMIT = 1 << 30


class StoredRecord(NamedTuple):
    """One record of a batch. ``headers`` are encoded as they stand there, and counted."""

    offset_delta: int
    timestamp: int = FIRST_TIMESTAMP
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    headers: tuple[bytes, ...] = ()


def header(name: bytes, value: bytes | None) -> bytes:
    """Return a record's header as it is encoded."""
    return _encoded(name) + _encoded(value)


def numbered(count: int, value: bytes = b"value") -> list[StoredRecord]:
    """Return so many records without gaps, a millisecond apart."""
    return [StoredRecord(i, FIRST_TIMESTAMP + i, b"k%d" % i, value) for i in range(count)]


def stored_batch(
    records: Sequence[StoredRecord],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    codec: Codec = Codec.NONE,
    append_time: int | None = None,
    attributes: int = 0,
    producer_id: int = -1,
) -> bytes:
    """Return a batch. ``last_offset_delta`` None: that of the last record. ``append_time``: it has log append time.
    ``attributes``: bits above the codec."""
    base_timestamp = records[0].timestamp if records else FIRST_TIMESTAMP
    highest = max((one.timestamp for one in records), default=base_timestamp) if append_time is None else append_time
    batch = bytearray(
        batch_of(
            b"".join(_record(one, base_timestamp) for one in records),
            len(records),
            base_timestamp,
            max_timestamp=highest,
            producer=(producer_id, 0, 0),
            codec=codec,
            attributes=attributes | (0 if append_time is None else LOG_APPEND_TIME_FLAG),
            base_offset=base_offset,
        )
    )
    last = records[-1].offset_delta if last_offset_delta is None else last_offset_delta
    batch[_LAST_OFFSET_DELTA_AT : _LAST_OFFSET_DELTA_AT + 4] = last.to_bytes(4, "big")
    return signed(batch)


def signed(batch: bytes | bytearray) -> bytes:
    """Return the batch with a checksum that fits."""
    changed = bytearray(batch)
    changed[_CRC_AT:_ATTRIBUTES_AT] = crc32c(changed[_ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(changed)


def _record(record: StoredRecord, base_timestamp: int) -> bytes:
    body = b"".join(
        (
            b"\0",
            encode_varlong(wrap_int64(record.timestamp - base_timestamp)),
            encode_varlong(record.offset_delta),
            _encoded(record.key),
            _encoded(record.value),
            encode_varlong(len(record.headers)),
            *record.headers,
        )
    )
    return encode_varlong(len(body)) + body


def _encoded(field: bytes | None) -> bytes:
    return b"\x01" if field is None else encode_varlong(len(field)) + field


class Entry(NamedTuple):
    """One message as it stands in a set; ``inner``: what is inside a wrapper, decompressed, as it stands there. The
    checksums of all are right."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    inner: tuple[Entry, ...]


def entries(message_set: bytes | bytearray | memoryview) -> list[Entry]:
    """Return the whole messages of a set. A wrapper's value is None: two compressors need not make the same bytes."""
    found = []
    for message in iterate_shallow(message_set):
        verify_crc(message_set, message)
        inner: tuple[Entry, ...] = ()
        if message.is_wrapper:
            inside = at_once(unpacking(message, _NO_LIMIT))
            inner = tuple(entries(inside))
            assert len(inner) == sum(1 for _ in iterate_inside(message, inside))
        value = None if message.value is None or inner else bytes(message.value)
        key = None if message.key is None else bytes(message.key)
        found.append(Entry(message.offset, message.magic, message.attributes, message.timestamp, key, value, inner))
    return found


Read = tuple[int, int, bytes | None, bytes | None]
"""Offset, timestamp (-1: none), key and value."""


def kafka_python_reads(message_set: bytes) -> list[Read]:
    """Return all records as kafka-python finds them, which checks their checksums."""
    found: list[Read] = []
    for batch in _kafka_python.MemoryRecords(message_set):
        assert batch.validate_crc()
        for one in batch:
            assert one.validate_crc()
            found.append((one.offset, -1 if one.timestamp is None else one.timestamp, one.key, one.value))
    return found


def aiokafka_reads(message_set: bytes) -> list[Read]:
    """The same, as aiokafka finds them."""
    found: list[Read] = []
    reader = _aiokafka.MemoryRecords(message_set)
    while reader.has_next():
        batch = reader.next_batch()
        assert batch.validate_crc()
        found += [(one.offset, -1 if one.timestamp is None else one.timestamp, one.key, one.value) for one in batch]
    return found


@contextmanager
def with_lower(lower: Lower | None) -> Iterator[None]:
    """Meanwhile records are lowered by this library, or in Python."""
    names = vars(lowering)
    before = names["LOWER"]
    try:
        names["LOWER"] = lower
        yield
    finally:
        names["LOWER"] = before
