"""Record batches (magic 2): the header of 61 bytes, the records after it, and their encoding.

Judges only whether the bytes are one whole batch; what the header means for a producer is decided elsewhere.
Source: Kafka's DefaultRecordBatch and DefaultRecord; KIP-98.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from crc32c import crc32c

from .compression import Codec, codec_of, compress, decompressed, decompressing
from .errors import ChecksumMismatch, LimitExceeded, Malformed, RecordLimitExceeded, Truncated
from .kernel import KERNEL
from .primitives import Buffer, encode_varlong, read_varlong, wrap_int64
from .steps import STEP_BYTES, STEP_RECORDS, Steps, at_once

MAGIC: Final = 2
BATCH_OVERHEAD_BYTES: Final = 61
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, two null lengths and a header count: one byte each."""

RECORD_HEADERS_MAX: Final = 10_000
"""Headers of one record. A header may have two bytes on the wire, and takes about a hundred in memory. Applications use
a handful."""
BATCH_HEADERS_MAX: Final = 2_000_000
"""Of all records of a batch that is converted or compared with the log: each is looked at alone, half a second in all.
256 MiB have room for 64 million, and zstd packs them into some hundred KB."""
HEADERS_BYTES_UNCHECKED: Final = 256 * 1024
"""The headers of a record are counted before it is read if it has more bytes than this. Those of a smaller one take
10 MB at most, for a moment, and 20 to 40 ms. To count in every batch would make usual conversions a third slower."""

RECORD_BYTES_MAX: Final = 64 << 20
"""Of one record. It is in memory as a whole, in both formats while it is converted. Clients refuse to send a larger one
than max.request.size, 1 MiB by default."""
RECORDS_MAX: Final = 2_000_000
"""Of one batch that is converted or compared with the log: the digests of all of them are kept then, 100 MB. Java puts
as many into 1 MB only if they are of a few equal bytes each; librdkafka 10,000 at most by default."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20

HEADER: Final = Struct(">qiibIhiqqqhii")
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
PRODUCER_AT: Final = 43
PRODUCER: Final = Struct(">qhi")
_UINT32: Final = Struct(">I")
_INT32: Final = Struct(">i")
_LEADER_EPOCH_AT: Final = 12
FOLLOWS: Final = 1
"""In the field of the partition leader epoch, which producers do not use (Java: -1, librdkafka: 0) and brokers write
themselves: the batch follows the one before it in a pipeline of conditional batches."""
SIZE_FIELDS_BYTES: Final = 12  # base offset and batch length, which the length does not count
_CRC_AND_BODY: Final = Struct(">qiibI")
_AFTER_CRC: Final = Struct(">hiqqqhii")
_new_tuple: Final = tuple.__new__
_STEP_LENGTHS: Final = 4 * STEP_RECORDS  # lengths that are only passed over
_STEP_CHUNKS: Final = 32  # of what is decompressed, however small
_LENGTH_BYTES_MAX: Final = 10
_Field = TypeVar("_Field")


class BatchHeader(NamedTuple):
    """The header of one batch, which has ``size_bytes`` in all. Times are in ms; in a producer's fields -1 is none."""

    size_bytes: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """The number of the codec: a member of ``Codec``, or 5 to 7, which no Kafka knows."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)


class Record(NamedTuple):
    """One record. ``timestamp`` is absolute, in ms."""

    offset_delta: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class LargeRecord(NamedTuple):
    """One record of a batch that has large ones. A key or value above ``STEP_BYTES`` is not copied, as that takes long:
    it is a view of the data. The fields have the names of the compiled reader's records (aiokafka)."""

    offset: int
    timestamp: int
    key: Buffer | None
    value: Buffer | None
    headers: tuple[tuple[str, bytes | None], ...]


def magic_of(records: Buffer) -> int:
    """Return the format of the first batch or message: 0, 1 or 2. Raises Truncated, or Malformed for any other."""
    if len(records) <= MAGIC_AT:
        raise Truncated(f"records: {len(records)} bytes do not reach the magic byte")
    magic = records[MAGIC_AT]
    if magic > MAGIC:
        raise Malformed(f"magic at {MAGIC_AT}: {magic}")
    return magic


def parse_single_batch(records: memoryview) -> BatchHeader:
    """Return the header of the one batch that ``records`` is. Its checksum and its records are not looked at.

    Raises Truncated, or Malformed when it is more than one batch, another format, empty, or not as a producer sends it.
    """
    size_bytes = len(records)
    if size_bytes < BATCH_OVERHEAD_BYTES:
        raise Truncated(f"record batch: {size_bytes} bytes, its header alone has {BATCH_OVERHEAD_BYTES}")
    fields = HEADER.unpack_from(records)
    base_offset, length, _, magic, _, _, last_offset_delta, _, _, _, _, _, record_count = fields
    if magic != MAGIC:
        raise Malformed(f"record batch: magic {magic}")
    if length + SIZE_FIELDS_BYTES != size_bytes:
        if length + SIZE_FIELDS_BYTES > size_bytes:
            raise Truncated(f"record batch: length {length}, {size_bytes} bytes there")
        raise Malformed(f"record batch: length {length}, {size_bytes} bytes there: more than one batch")
    if base_offset != 0:
        raise Malformed(f"record batch: base offset {base_offset}, producers send 0")
    if record_count != last_offset_delta + 1 or record_count <= 0:
        raise Malformed(f"record batch: {record_count} records, last offset delta {last_offset_delta}")
    return _new_tuple(BatchHeader, (size_bytes, *fields[4:]))


def says_it_follows(records: Buffer) -> bool:
    """Does a conditional batch say that its writer has sent the one right before it as well (``FOLLOWS``)?"""
    return bool(_INT32.unpack_from(records, _LEADER_EPOCH_AT)[0] == FOLLOWS)


def verify_crc(records: memoryview, header: BatchHeader) -> None:
    """Raise ChecksumMismatch unless the batch's CRC-32C is right."""
    crc = KERNEL.crc32c(records, ATTRIBUTES_AT) if KERNEL else crc32c(records[ATTRIBUTES_AT:])
    if crc != header.crc:
        raise ChecksumMismatch(f"record batch: CRC-32C is not {header.crc:#010x}")


def stamp(
    batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int, *, follows: bool = False
) -> BatchHeader:
    """Write producer id, epoch and base sequence into a finished batch, in place, and sign it again; return its header.

    The old checksum is verified first: signing would launder what was damaged. Raises what ``parse_single_batch`` and
    ``verify_crc`` raise; nothing is changed then.
    """
    assert 0 <= producer_id < 1 << 63
    assert 0 <= producer_epoch < 1 << 15
    assert 0 <= base_sequence < 1 << 31
    view = memoryview(batch)
    verify_crc(view, parse_single_batch(view))
    PRODUCER.pack_into(batch, PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    if follows:
        _INT32.pack_into(batch, _LEADER_EPOCH_AT, FOLLOWS)
    sign(batch)
    return parse_single_batch(view)


def sign(batch: bytearray) -> None:
    """Write the CRC-32C of a finished batch into it."""
    view = memoryview(batch)
    crc = KERNEL.crc32c(view, ATTRIBUTES_AT) if KERNEL else crc32c(view[ATTRIBUTES_AT:])
    _UINT32.pack_into(batch, CRC_AT, crc)


class StoredBatch(NamedTuple):
    """One batch as a log holds it. ``records`` are all its bytes."""

    base_offset: int
    header: BatchHeader
    records: memoryview


def iterate_stored(data: Buffer) -> Iterator[StoredBatch]:
    """Yield the whole batches of what was fetched; stops before one that was cut off at the end, or of another format.

    After compaction a batch may have fewer records than offsets. Raises Malformed for lengths that cannot be.
    """
    view = memoryview(data)
    position = 0
    while len(view) - position >= BATCH_OVERHEAD_BYTES:
        fields = HEADER.unpack_from(view, position)
        size_bytes = fields[1] + SIZE_FIELDS_BYTES
        if fields[3] != MAGIC:
            return
        if size_bytes < BATCH_OVERHEAD_BYTES:
            raise Malformed(f"record batch at {position}: length {fields[1]}")
        if size_bytes > len(view) - position:
            return
        header: BatchHeader = _new_tuple(BatchHeader, (size_bytes, *fields[4:]))
        count, last = header.record_count, header.last_offset_delta
        if not 0 <= count <= last + 1:
            raise Malformed(f"record batch at {position}: {count} records, last offset delta {last}")
        yield StoredBatch(fields[0], header, view[position : position + size_bytes])
        position += size_bytes


def payload_of(records: memoryview, header: BatchHeader, output_bytes_max: int) -> Buffer:
    """Return what ``reading_payload`` makes, at once."""
    return at_once(reading_payload(records, header, output_bytes_max))


def reading_payload(records: memoryview, header: BatchHeader, output_bytes_max: int) -> Steps[Buffer]:
    """Return the records after a batch's header, decompressed. Raises what ``decompressing`` raises, and Malformed."""
    data: Buffer = records[BATCH_OVERHEAD_BYTES:]
    if header.codec:
        data = yield from decompressing(codec_of(header.codec), data, output_bytes_max)
    if header.record_count > len(data) // RECORD_BYTES_MIN:
        raise Malformed(f"record batch: {header.record_count} records in {len(data)} bytes")
    return data


class RecordStream:
    """The records after a batch's header, decompressed as far as they are looked at: a batch may unpack to 32,000
    times its size. ``data`` from ``position`` on are the next ones; ``index``: how many were before them."""

    __slots__ = ("_chunks", "_header", "_headers_left", "data", "index", "is_whole", "position")

    def __init__(self, records: memoryview, header: BatchHeader, output_bytes_max: int) -> None:
        """``output_bytes_max``: of all records together, decompressed; above it LimitExceeded is raised."""
        if header.record_count > RECORDS_MAX:
            raise LimitExceeded(f"record batch: {header.record_count} records, the limit is {RECORDS_MAX}")
        self._header = header
        self._headers_left = BATCH_HEADERS_MAX
        payload = records[BATCH_OVERHEAD_BYTES:]
        self._chunks: Iterator[Buffer] = iter(())
        self.data: Buffer = payload
        self.position = 0
        self.index = 0
        if not header.codec and len(payload) > output_bytes_max:
            raise LimitExceeded(f"record batch: {len(payload)} bytes of records, the limit is {output_bytes_max}")
        self.is_whole = not header.codec
        """Is nothing left to be decompressed after ``data``?"""
        if header.codec:
            self._chunks = decompressed(codec_of(header.codec), payload, output_bytes_max)
            self.data = b""

    @property
    def ahead_bytes(self) -> int:
        """How much is decompressed and was not taken."""
        return len(self.data) - self.position

    @property
    def records_left(self) -> int:
        return self._header.record_count - self.index

    def take(self, record_count: int, size_bytes: int, header_count: int = 0) -> None:
        """Move past the next records. Raises LimitExceeded if all so far have too many headers."""
        self.index += record_count
        self.position += size_bytes
        self._headers_left -= header_count
        if self._headers_left < 0:
            raise LimitExceeded(f"record batch: more than {BATCH_HEADERS_MAX} headers of its records")

    def filling(self, bytes_min: int) -> Steps[None]:
        """Decompress until so many bytes are ahead, or all that there are. Views of ``data`` stay what they are. Raises
        WireError, also for fewer bytes than so many records need."""
        if self.ahead_bytes < bytes_min and not self.is_whole:
            chunk, left = next(self._chunks, None), _STEP_CHUNKS
            data = bytearray(memoryview(self.data)[self.position :])
            bytes_at = len(data)
            while chunk is not None:
                data += chunk
                if len(data) >= bytes_min:
                    break
                left -= 1
                if not left or len(data) - bytes_at >= STEP_BYTES:
                    bytes_at, left = len(data), _STEP_CHUNKS
                    yield
                chunk = next(self._chunks, None)
            self.is_whole = chunk is None
            self.data, self.position = data, 0
        if self.is_whole and self.records_left > self.ahead_bytes // RECORD_BYTES_MIN:
            raise Malformed(f"record batch: {self.records_left} records in {self.ahead_bytes} bytes")

    def skipping(self, record_count: int) -> Steps[None]:
        """Pass over so many records, of which nothing but their lengths is looked at."""
        last = self.index + record_count
        left = _STEP_LENGTHS
        while self.index < last:
            size = yield from self.measuring()
            self.take(1, size)
            left -= 1
            if not left:
                left = _STEP_LENGTHS
                yield

    def measuring(self) -> Steps[int]:
        """Return the bytes of the next record, and have all of them ahead."""
        if self.ahead_bytes < _LENGTH_BYTES_MAX:
            yield from self.filling(STEP_BYTES)
        length, start = read_varlong(memoryview(self.data), self.position)
        if length < 0:
            raise Malformed(f"record {self.index}: length {length}")
        size = start - self.position + length
        if size > RECORD_BYTES_MAX:
            raise LimitExceeded(f"record {self.index}: {size} bytes, the limit is {RECORD_BYTES_MAX}")
        if size > self.ahead_bytes:
            yield from self.filling(max(size, STEP_BYTES))
            if size > self.ahead_bytes:
                raise Truncated(f"record {self.index}: length {length}, {self.ahead_bytes} bytes there")
        return size

    def ending(self) -> Steps[None]:
        """Raise Malformed if anything is after the last record."""
        yield from self.filling(1)
        if self.ahead_bytes:
            raise Malformed(f"record batch: {self.ahead_bytes} bytes after its last record")


def finding_longest(data: Buffer) -> Steps[int]:
    """Return the size in bytes of the longest record above ``HEADERS_BYTES_UNCHECKED``; 0 if there is none. Raises
    LimitExceeded when one has more than ``RECORD_HEADERS_MAX`` headers, before a reader lists them.

    Smaller records are not looked into: they can't hold enough headers to matter. Stops at a record whose length is
    wrong, which the reader that comes after reports.
    """
    longest = 0
    view = memoryview(data)
    position = 0
    left = _STEP_LENGTHS
    while position < len(view):
        left -= 1
        if not left:
            left = _STEP_LENGTHS
            yield
        byte = view[position]
        if byte < 0x80:
            length, start = byte >> 1, position + 1
        else:
            length, start = read_varlong(view, position)
        end = start + length
        if not start < end <= len(view):
            break
        if length > HEADERS_BYTES_UNCHECKED:
            longest = max(longest, length)
            _, position = read_varlong(view, start + 1)
            _, position = read_varlong(view, position)
            for _ in range(2):  # key and value
                size, position = read_varlong(view, position)
                position += max(size, 0)
            _check_header_count(read_varlong(view, position)[0], start)
        position = end
    return longest


def _check_header_count(count: int, position: int) -> None:
    if count > RECORD_HEADERS_MAX:
        raise RecordLimitExceeded(f"record at {position}: {count} headers, the limit is {RECORD_HEADERS_MAX}")


def iterate_records(
    records: memoryview, header: BatchHeader, output_bytes_max: int, *, is_stored: bool = False
) -> Iterator[Record]:
    """Yield the records in order. Decompresses first, at most to ``output_bytes_max`` bytes.

    Raises WireError at the first record that is wrong: lengths, offset deltas 0 to n-1 and the count are verified. Of a
    batch that ``is_stored`` compaction may have taken some: then deltas have to rise, up to the last one. The records'
    own timestamps are given, also where the batch says log append time.
    """
    data = memoryview(payload_of(records, header, output_bytes_max))
    position = 0
    due = 0
    for index in range(header.record_count):
        fields, position = _read_record(data, position, header.base_timestamp, bytes)
        record = Record(*fields)
        delta = record.offset_delta
        if delta != due and not (is_stored and due < delta <= header.last_offset_delta):
            raise Malformed(f"record {index}: offset delta {delta}")
        due = delta + 1
        yield record
    _check_end(data, position)


def iterate_large_records(data: memoryview, header: BatchHeader, record_count: int) -> Iterator[LargeRecord]:
    """Yield the ``record_count`` records that a batch of this header has in ``data``, decompressed. Several times
    slower than a compiled reader, but no record takes long. Raises WireError at the first that is wrong; offset deltas
    are not looked at."""
    position = 0
    for _ in range(record_count):
        fields, position = _read_record(data, position, header.base_timestamp, _copied_if_small)
        yield LargeRecord(*fields)
    _check_end(data, position)


def _copied_if_small(field: memoryview) -> Buffer:
    return field if len(field) > STEP_BYTES else bytes(field)


def _check_end(data: memoryview, position: int) -> None:
    if position != len(data):
        raise Malformed(f"record batch: {len(data) - position} bytes after its last record")


def _read_record(
    data: memoryview, position: int, base_timestamp: int, take: Callable[[memoryview], _Field]
) -> tuple[tuple[int, int, _Field | None, _Field | None, tuple[tuple[str, bytes | None], ...]], int]:
    """Return offset delta, timestamp, key, value and headers of one record, and where it ends."""
    length, start = read_varlong(data, position)
    if not 0 <= length <= len(data) - start:
        raise Truncated(f"record at {position}: length {length}, {len(data) - start} bytes there")
    end = start + length
    data = data[:end]
    # A record's attributes: unused, always 0. A reader that took them for a varint would continue at a wrong place.
    if length and data[start] >= 0x80:
        raise Malformed(f"record at {position}: attributes {data[start]:#04x}")
    timestamp_delta, position = read_varlong(data, start + 1)
    offset_delta, position = read_varlong(data, position)
    key, position = _read_field(data, position, take)
    value, position = _read_field(data, position, take)
    header_count, position = read_varlong(data, position)
    if not 0 <= header_count <= end - position:
        raise Malformed(f"record at {start}: {header_count} headers")
    _check_header_count(header_count, start)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(header_count):
        name, position = _read_field(data, position, bytes)
        header_value, position = _read_field(data, position, bytes)
        if name is None:
            raise Malformed(f"record at {start}: a header without a name")
        try:
            headers.append((name.decode(), header_value))
        except UnicodeDecodeError:
            raise Malformed(f"record at {start}: a header's name is not UTF-8") from None
    if position != end:
        raise Malformed(f"record at {start}: length {length}, its fields end after {position - start}")
    return (offset_delta, wrap_int64(base_timestamp + timestamp_delta), key, value, tuple(headers)), end


def _read_field(data: memoryview, position: int, take: Callable[[memoryview], _Field]) -> tuple[_Field | None, int]:
    length, position = read_varlong(data, position)
    if length < 0:  # any negative length is null to Kafka, not only -1
        return None, position
    if length > len(data) - position:
        raise Truncated(f"field at {position}: length {length}, {len(data) - position} bytes there")
    return take(data[position : position + length]), position + length


def encode_batch(
    records: Sequence[Record],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    codec: Codec = Codec.NONE,
    base_timestamp: int | None = None,
    attributes: int = 0,
    base_offset: int = 0,
) -> bytes:
    """Return one batch of the records, with offset deltas 0 to n-1. ``attributes`` are the bits above the codec."""
    assert records
    assert not attributes & CODEC_MASK
    first = records[0].timestamp if base_timestamp is None else base_timestamp
    chunks: list[bytes] = []
    for index, record in enumerate(records):
        assert record.offset_delta == index
        body = _encode_record(record, first)
        chunks += (encode_varlong(len(body)), body)
    highest = max(record.timestamp for record in records)
    return batch_of(
        b"".join(chunks),
        len(records),
        first,
        max_timestamp=highest,
        producer=(producer_id, producer_epoch, base_sequence),
        codec=codec,
        attributes=attributes,
        base_offset=base_offset,
    )


def batch_of(
    payload: Buffer,
    record_count: int,
    base_timestamp: int,
    *,
    max_timestamp: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Codec = Codec.NONE,
    attributes: int = 0,
    base_offset: int = 0,
) -> bytes:
    """Return one batch of encoded records, which are not looked at. ``max_timestamp`` None: as the first record's.
    ``producer``: id, epoch and base sequence; -1 is none."""
    if codec is not Codec.NONE:
        payload = compress(codec, payload, magic=MAGIC)
    body = _AFTER_CRC.pack(
        attributes | codec,
        record_count - 1,
        base_timestamp,
        base_timestamp if max_timestamp is None else max_timestamp,
        *producer,
        record_count,
    )
    crc = crc32c(payload, crc32c(body))
    length = BATCH_OVERHEAD_BYTES - SIZE_FIELDS_BYTES + len(payload)
    return b"".join((_CRC_AND_BODY.pack(base_offset, length, -1, MAGIC, crc), body, payload))


def _encode_record(record: Record, base_timestamp: int) -> bytes:
    chunks = [
        b"\0",
        encode_varlong(wrap_int64(record.timestamp - base_timestamp)),
        encode_varlong(record.offset_delta),
        _encode_bytes(record.key),
        _encode_bytes(record.value),
        encode_varlong(len(record.headers)),
    ]
    for name, value in record.headers:
        chunks += (_encode_bytes(name.encode()), _encode_bytes(value))
    return b"".join(chunks)


def _encode_bytes(data: bytes | None) -> bytes:
    return b"\x01" if data is None else encode_varlong(len(data)) + data
