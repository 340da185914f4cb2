"""Record batches (magic 2) to message sets (magic 0 and 1), and one batch to several smaller ones.

Verifies every record that it reads, but not a batch's checksum: the caller has done that, for conversion signs anew and
would launder a corrupt batch. What old formats can't carry (record headers) is refused or dropped by a policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from .packages import without_init

with without_init("aiokafka", "aiokafka.record"):
    from aiokafka.errors import CorruptRecordException
    from aiokafka.record._crecords import DefaultRecordBatch, LegacyRecordBatchBuilder

from .compression import Codec, compress, store_gzip
from .errors import LimitExceeded, Malformed
from .marker import content_digest
from .message_set import OFFSET_AND_SIZE_BYTES, OVERHEAD_BYTES, ShallowMessage, encode_message
from .primitives import Buffer
from .record_batch import (
    BATCH_OVERHEAD_BYTES,
    HEADER,
    MAGIC,
    RECORD_BYTES_MIN,
    SIZE_FIELDS_BYTES,
    BatchHeader,
    Record,
    encode_batch,
    iterate_records,
    parse_single_batch,
    payload_of,
    refuse_too_many_headers,
)

TRACING_HEADERS: Final = ("traceparent", "tracestate", "baggage", "b3", "x-b3-*")
"""Headers that instrumentation adds to every record (W3C, B3), dropped by default; * stands for any text."""

_NO_SIZE_LIMIT: Final = 1 << 62  # the builder refuses records beyond its size; ours is checked before
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_OFFSET: Final = Struct(">q")
_SIZE: Final = Struct(">i")
_READER_PADDING: Final = bytes(32)
# The compiled reader checks lengths against the data, and that the records end with it. A forged length near 2**63
# slips through its sum and is refused by the allocator before anything is allocated: hence the two in the middle.
_READER_ERRORS: Final = (CorruptRecordException, OverflowError, MemoryError, UnicodeDecodeError)


class HeaderRefused(Exception):
    """A record has a header that the broker's format can't carry, and the policy does not allow to drop it."""

    def __init__(self, header: str) -> None:
        super().__init__(f"record header {header!r} can't be stored in this broker's message format")
        self.header = header


class HeaderPolicy:
    """Which record headers are dropped; any other one makes the conversion refuse with HeaderRefused.

    ``drop`` are names, in which * stands for any text. Case does not count.
    """

    __slots__ = ("_dropped",)

    def __init__(self, drop: Iterable[str] = TRACING_HEADERS) -> None:
        patterns = [".*".join(map(re.escape, name.split("*"))) for name in drop]
        self._dropped = re.compile("|".join(patterns) or r"(?!)", re.IGNORECASE | re.DOTALL)

    def check(self, headers: Sequence[tuple[str, bytes | None]]) -> None:
        """Raise HeaderRefused unless every header may be dropped."""
        for name, _ in headers:
            if self._dropped.fullmatch(name) is None:
                raise HeaderRefused(name)


class Converted(NamedTuple):
    """A message set ready to be sent. ``first_content`` is the digest of the first record's key and value."""

    message_set: bytes
    record_count: int
    first_content: bytes


class Inner(NamedTuple):
    """Records as plain messages with offsets from 0 on, not wrapped yet. ``first_content`` as in ``Converted``."""

    message_set: bytearray
    record_count: int
    max_timestamp: int
    first_content: bytes


def content_of_message(message: ShallowMessage) -> bytes:
    """Return the digest of a stored record (a plain message, or one from inside a wrapper) as of one that is sent."""
    return content_digest(message.key, message.value)


def to_inner(
    batches: Sequence[memoryview],
    *,
    policy: HeaderPolicy,
    output_bytes_max: int,
    headers: Sequence[BatchHeader] | None = None,
) -> Inner:
    """Return all records of the batches, in order, as messages of format v1.

    ``headers``: of the batches, where they were read before. Raises WireError for what a batch contains, LimitExceeded
    when it would be above ``output_bytes_max`` bytes decompressed, HeaderRefused by the policy.
    """
    return _convert(batches, headers or [parse_single_batch(batch) for batch in batches], 1, policy, output_bytes_max)


def joined(inners: Sequence[Inner]) -> Inner:
    """Return the records of all, one after the other. Nothing is signed anew: checksums do not cover offsets."""
    message_set = bytearray()
    record_count = 0
    for inner in inners:
        position = len(message_set)
        message_set += inner.message_set
        for offset in range(record_count, record_count + inner.record_count):
            _OFFSET.pack_into(message_set, position, offset)
            position += OFFSET_AND_SIZE_BYTES + _SIZE.unpack_from(message_set, position + _OFFSET.size)[0]
        record_count += inner.record_count
    max_timestamp = max(inner.max_timestamp for inner in inners)
    return Inner(message_set, record_count, max_timestamp, inners[0].first_content)


def wrap(inner: Inner, *, key: bytes | None, codec: Codec, compress_harder: bool = False) -> bytes:
    """Return one wrapper of format v1 with the records in it.

    Offset n-1, inner offsets 0 to n-1, timestamp = the highest inner one: what 0.10.0 takes without rewriting it.
    ``codec`` is the wrapper's: NONE becomes gzip without compression (``compress_harder``: with), ZSTD becomes gzip.
    """
    return encode_message(
        key,
        _compress(codec, inner.message_set, 1, compress_harder),
        magic=1,
        offset=inner.record_count - 1,
        timestamp=inner.max_timestamp,
        codec=_wrapper_codec(codec),
    )


def to_message_set(
    batch: memoryview,
    *,
    codec: Codec,
    magic: int,
    policy: HeaderPolicy,
    output_bytes_max: int,
    wrap: bool = False,
) -> Converted:
    """Return one batch as format v0 or v1: plain messages for codec NONE, else one wrapper without a key.

    ``wrap`` makes NONE a wrapper too (gzip without compression), so that the batch is stored as a whole or not at all.
    Raises like ``to_inner``.
    """
    inner = _convert((batch,), (parse_single_batch(batch),), magic, policy, output_bytes_max)
    if codec is Codec.NONE and not wrap:
        return Converted(bytes(inner.message_set), inner.record_count, inner.first_content)
    wrapper = encode_message(
        None,
        _compress(codec, inner.message_set, magic, False),
        magic=magic,
        offset=inner.record_count - 1,
        timestamp=inner.max_timestamp,
        codec=_wrapper_codec(codec),
    )
    return Converted(wrapper, inner.record_count, inner.first_content)


def _wrapper_codec(codec: Codec) -> Codec:
    return Codec.GZIP if codec in (Codec.NONE, Codec.ZSTD) else codec


def _compress(codec: Codec, message_set: Buffer, magic: int, compress_harder: bool) -> bytes:
    if codec is Codec.NONE and not compress_harder:
        return store_gzip(message_set)
    return compress(_wrapper_codec(codec), message_set, magic=magic)


def _convert(
    batches: Sequence[memoryview],
    headers: Sequence[BatchHeader],
    magic: int,
    policy: HeaderPolicy,
    output_bytes_max: int,
) -> Inner:
    """Return the records of the batches as plain messages with offsets from 0 on."""
    assert batches
    builder = LegacyRecordBatchBuilder(magic, 0, _NO_SIZE_LIMIT)
    append = builder.append
    offset = 0
    max_timestamp = -1
    first_content = b""
    room = output_bytes_max
    for batch, header in zip(batches, headers, strict=True):
        reader, size_bytes = _reader(batch, header, magic, room)
        room -= size_bytes
        first_offset = offset
        try:
            for record in reader:
                if record.offset != offset - first_offset:
                    raise Malformed(f"record {offset - first_offset}: offset delta {record.offset}")
                timestamp = record.timestamp
                if timestamp > max_timestamp:
                    max_timestamp = timestamp
                elif timestamp < -1:
                    raise Malformed(f"record {offset - first_offset}: timestamp {timestamp}")
                if record.headers:
                    policy.check(record.headers)
                if not offset:
                    first_content = content_digest(record.key, record.value)
                append(offset, timestamp, record.key, record.value)
                offset += 1
        except _READER_ERRORS as exc:
            raise Malformed(f"record batch: {type(exc).__name__}: {exc}") from None
    return Inner(builder.build(), offset, max_timestamp, first_content)


def _reader(batch: memoryview, header: BatchHeader, magic: int, room: int) -> tuple[Any, int]:
    """Return the compiled reader on the batch and the most bytes that its records can have as messages.

    It is given plain records with create time only: so it decompresses nothing (we do, with a limit), and gives the
    records' own times. It reads a number before it checks that the number ends within the data, at most two in a row:
    so it gets a copy with zeros behind, in memory that is ours, where each such number ends at once.
    """
    payload = payload_of(batch, header, room)
    refuse_too_many_headers(payload)
    size_bytes = len(payload) + header.record_count * (OVERHEAD_BYTES[magic] - RECORD_BYTES_MIN)
    if size_bytes > room:
        raise LimitExceeded(f"conversion: up to {size_bytes} bytes, the limit has {room} bytes left")
    start = _plain_header(header, len(payload)) if header.attributes else batch[:BATCH_OVERHEAD_BYTES]
    padded = b"".join((start, payload, _READER_PADDING))
    return DefaultRecordBatch(memoryview(padded)[: -len(_READER_PADDING)]), size_bytes


def _plain_header(header: BatchHeader, payload_bytes: int) -> bytes:
    length = BATCH_OVERHEAD_BYTES - SIZE_FIELDS_BYTES + payload_bytes
    return HEADER.pack(
        0, length, -1, MAGIC, 0, 0, header.last_offset_delta, header.base_timestamp, 0, -1, -1, -1, header.record_count
    )


def split(batch: memoryview, parts: int, *, output_bytes_max: int) -> list[memoryview]:
    """Return consecutive smaller batches with the same records, sizes as equal as whole records allow.

    At most ``parts``, and at least one record in each: a batch of one record comes back alone. Base sequences go on
    from part to part (modulo 2**31), codec and attributes stay, checksums are right. Raises what ``iterate_records``
    raises.
    """
    assert parts > 0
    header = parse_single_batch(batch)
    records = list(iterate_records(batch, header, output_bytes_max))
    sizes = [OVERHEAD_BYTES[1] + len(record.key or b"") + len(record.value or b"") for record in records]
    parts = min(parts, len(records))
    total = sum(sizes)
    result: list[memoryview] = []
    start = taken = 0
    for part in range(1, parts + 1):
        end = start + 1
        taken += sizes[start]
        # Each later part keeps at least one record for itself; a record that crosses the border by half goes on.
        target = total * part // parts
        while end < len(records) - (parts - part) and (part == parts or taken + sizes[end] // 2 < target):
            taken += sizes[end]
            end += 1
        result.append(part_of(header, records, start, end))
        start = end
    return result


def part_of(header: BatchHeader, records: Sequence[Record], start: int, end: int) -> memoryview:
    """Return a batch with these of a batch's records: what the header says stays, the base sequence is advanced."""
    sequence = header.base_sequence
    piece = encode_batch(
        [record._replace(offset_delta=index) for index, record in enumerate(records[start:end])],
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=sequence if sequence < 0 else (sequence + start) & _SEQUENCE_MASK,
        codec=Codec(header.codec),
        base_timestamp=header.base_timestamp,
        attributes=header.attributes & ~0x07,
    )
    return memoryview(piece)
