"""What lies in a partition's log: messages of formats v0 and v1, and batches of v2, which may follow each other. Looks
into none of them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from .batch_marker import DIGEST_BYTES
from .batch_marker import anchor_of as anchor_of_message
from .errors import Malformed
from .header_marker import NO_PRODUCER_ID, read_header_marker
from .message_set import ShallowMessage, end_of_message, read_message
from .primitives import Buffer
from .record_batch import BATCH_OVERHEAD_BYTES, HEADER, MAGIC, MAGIC_AT, BatchHeader

_ANCHOR: Final = blake2b(digest_size=DIGEST_BYTES, person=b"batch")
_MARKED: Final = Struct(">qi")
_OWN: Final = Struct(">qhii")
_UNMARKED: Final = Struct(">hiiI")


class LoggedBatch(NamedTuple):
    """One batch of format v2 as it stands in the log."""

    offset: int
    """Of its last record, as of a wrapper."""
    first: int
    marker: int | None
    """The batch marker in its header; None: it has none."""
    header: BatchHeader
    records: memoryview
    """All its bytes."""
    size_bytes: int
    start: int
    """Its position in the data."""

    @property
    def record_count(self) -> int:
        """Of the batch as it was sent; compaction may have taken some of them since."""
        return self.offset - self.first + 1

    @property
    def is_plain(self) -> bool:
        """Has it neither a batch marker nor a producer id? Then it may be a wrapper that its broker has converted."""
        return self.marker is None and self.header.producer_id == NO_PRODUCER_ID


Logged = ShallowMessage | LoggedBatch


def iterate_logged(data: Buffer) -> Iterator[Logged]:
    """Yield the whole messages and batches in what was fetched; stops before one that was cut off at the end. Raises
    Malformed and Truncated."""
    view = memoryview(data)
    position = 0
    while (end := end_of_message(view, position)) is not None:
        is_batch = end - position > MAGIC_AT and view[position + MAGIC_AT] == MAGIC
        yield _read_batch(view, position, end) if is_batch else read_message(view, position, end)
        position = end


def _read_batch(view: memoryview, start: int, end: int) -> LoggedBatch:
    size_bytes = end - start
    if size_bytes < BATCH_OVERHEAD_BYTES:
        raise Malformed(f"record batch at {start}: {size_bytes} bytes")
    fields = HEADER.unpack_from(view, start)
    header = BatchHeader(size_bytes, *fields[4:])
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise Malformed(
            f"record batch at {start}: {header.record_count} records, last offset delta {header.last_offset_delta}"
        )
    first = fields[0]
    last = first + header.last_offset_delta
    return LoggedBatch(last, first, read_header_marker(header), header, view[start:end], size_bytes, start)


def anchor_of(logged: Logged) -> bytes:
    """Return 8 bytes by which what is stored is recognised later: of its batch marker or its producer, if it has one. A
    broker that sets timestamps or compresses changes the CRC, and keeps these."""
    if isinstance(logged, ShallowMessage):
        return anchor_of_message(logged)
    header = logged.header
    if logged.marker is not None:
        return anchor_of_header_marker(logged.marker, logged.record_count)
    if header.producer_id != NO_PRODUCER_ID:
        return anchor_of_own_ids(header)
    made = _ANCHOR.copy()
    made.update(_UNMARKED.pack(header.producer_epoch, header.base_sequence, header.last_offset_delta, header.crc))
    return made.digest()


def anchor_of_own_ids(header: BatchHeader) -> bytes:
    """Return the anchor of a batch that has a producer id."""
    made = _ANCHOR.copy()
    made.update(_OWN.pack(header.producer_id, header.producer_epoch, header.base_sequence, header.last_offset_delta))
    return made.digest()


def anchor_of_header_marker(marker: int, record_count: int) -> bytes:
    """Return the anchor of a batch that carries this marker."""
    made = _ANCHOR.copy()
    made.update(_MARKED.pack(marker, record_count))
    return made.digest()
