"""Walks through a produce request while its bytes pass: which partitions it names, and whether a batch in it is of a
kind that must not pass. Keeps no records, only the start of a field that has not arrived whole.

Of each batch it reads the producer id and, where the records are not compressed, the headers of the first record.
Nothing is decompressed. What cannot be read is the broker's to judge. Source: ProduceRequest.json, DefaultRecordBatch,
DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error
from typing import Final, NamedTuple

from .errors import Malformed, Truncated
from .headers import is_flexible, skip_tagged_fields
from .primitives import read_unsigned_varint, read_varlong
from .produce import PARTITIONS_MAX
from .record_batch import BATCH_OVERHEAD_BYTES, CODEC_MASK, MAGIC, MAGIC_AT

HEADERS_MAX: Final = 100
"""Headers of one record that are looked at: applications use a handful, and each costs a microsecond."""
REQUEST_HEADERS_MAX: Final = 20_000
"""Of all batches of one request, which may have come as a whole: 10,000 with 100 each would take a second. Later
batches are known by their producer id only."""
FIELD_BYTES_MAX: Final = 64 * 1024
"""Of the start of a request, or of a field in it, that are kept until more arrives: a topic's name and a header's have
32 KiB at most."""
_PRODUCE: Final = 0
_TOPIC_IDS_FROM: Final = 13
_UUID_BYTES: Final = 16
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT32_PAIR: Final = Struct(">ii")
_INT64: Final = Struct(">q")
_TIMEOUT_BYTES: Final = 4
_CODEC_AT: Final = 22
_PRODUCER_ID_AT: Final = 43
_Bytes = bytes | bytearray
_NOT_WHOLE: Final = (IndexError, Truncated, error)


class Wanted(NamedTuple):
    """What is looked for: batches of this producer id, and those whose first record has a header of this name."""

    producer_id: int
    header: bytes

    def may_be_in(self, data: _Bytes, start: int, end: int) -> bool:
        """Could it be among these bytes? A search costs less than a walk where they are few. Not for compressed
        records, in which no header is looked for."""
        return data.find(_INT64.pack(self.producer_id), start, end) >= 0 or data.find(self.header, start, end) >= 0


_NO_ID: Final = Wanted(-1, b"\xff")
"""No record header has such a name."""


class Part(NamedTuple):
    """One partition of a request. ``topic``: its name, from version 13 on its id. ``is_wanted``: it has a batch that is
    looked for."""

    topic: bytes
    partition: int
    is_wanted: bool


class ProduceWalk:
    """One request, from after its acks to its end. ``parts``: the partitions that were looked at. ``has_found``: one
    of them has a batch that is looked for. ``is_over``: nothing more of the request has to be looked at."""

    __slots__ = (
        *("_arrived", "_at", "_base", "_end", "_headers", "_headers_left", "_is_flexible", "_kept", "_partition"),
        *("_partitions", "_size", "_step", "_topic", "_topics", "_version", "_wanted", "has_found", "is_over", "parts"),
    )

    def __init__(self, version: int, size: int, wanted: Wanted) -> None:
        """``size``: of the request, from after its acks."""
        self.parts: list[Part] = []
        self.has_found = self.is_over = False
        self._version = version
        self._is_flexible = is_flexible(_PRODUCE, version)
        self._size = size
        self._wanted = wanted
        self._arrived = 0
        self._at = 0
        """Where in the request the next step begins; it may not have arrived yet."""
        self._kept: _Bytes = b""
        """What has arrived from there on, if that is too little for the step."""
        self._base = 0
        """Where in the request the data of the present call begin."""
        self._step: Callable[[_Bytes, int], int] = self._begin
        self._topic = b""
        self._topics = self._partitions = self._partition = self._end = self._headers = 0
        self._headers_left = REQUEST_HEADERS_MAX

    @property
    def left(self) -> int:
        """Bytes of the request that have not arrived."""
        return self._size - self._arrived

    def feed(self, data: _Bytes, start: int = 0) -> None:
        """Look at what has arrived since the last call: ``data`` from ``start`` on. Bytes after the end of the
        request may follow."""
        here = min(len(data) - start, self.left)
        self._base = self._arrived - start
        self._arrived += here
        if self._at < self._arrived and not self.is_over:
            if self._kept:
                data = self._kept + data[start : start + here]
                self._base, self._kept = self._at, b""
            self._walk(data)
        self.is_over = self.is_over or self._arrived == self._size

    def _walk(self, data: _Bytes) -> None:
        base, arrived = self._base, self._arrived
        at = self._at - base
        try:
            while at + base < arrived and not self.is_over:
                self._at = at + base
                at = self._step(data, at)
            self._at = at + base
        except _NOT_WHOLE:
            self._kept = data[at : arrived - base]
            self.is_over = len(self._kept) > FIELD_BYTES_MAX
        except Malformed:
            self.is_over = True

    # ------------------------------------------------------------------ steps: each returns where the next one begins
    def _begin(self, data: _Bytes, at: int) -> int:
        self._topics, at = self._count(data, at + _TIMEOUT_BYTES)
        self._step = self._begin_topic
        self.is_over = not 0 < self._topics <= PARTITIONS_MAX
        return at

    def _begin_topic(self, data: _Bytes, at: int) -> int:
        if self._version >= _TOPIC_IDS_FROM:
            length = _UUID_BYTES
        elif self._is_flexible:
            length, at = read_unsigned_varint(data, at)
            length -= 1
        else:
            (length,) = _INT16.unpack_from(data, at)
            at += _INT16.size
        if length < 0:
            raise Malformed(f"topic at {at}: length {length}")
        behind = at + length
        self._partitions, next_at = self._count(data, behind)  # whole if that is
        self._topic = bytes(data[at:behind])
        self.is_over = self._partitions + len(self.parts) > PARTITIONS_MAX
        self._step = self._begin_partition if self._partitions > 0 else self._end_topic
        return next_at

    def _begin_partition(self, data: _Bytes, at: int) -> int:
        if self._is_flexible:
            (self._partition,) = _INT32.unpack_from(data, at)
            length, at = read_unsigned_varint(data, at + _INT32.size)
            length -= 1
        else:
            self._partition, length = _INT32_PAIR.unpack_from(data, at)
            at += _INT32_PAIR.size
        self._end = at + self._base + max(length, 0)
        if length < BATCH_OVERHEAD_BYTES:
            return self._end_partition(False)
        if data[at + MAGIC_AT] != MAGIC:
            return self._end_partition(False)
        (producer_id,) = _INT64.unpack_from(data, at + _PRODUCER_ID_AT)
        if producer_id == self._wanted.producer_id:
            return self._end_partition(True)
        if data[at + _CODEC_AT] & CODEC_MASK or length == BATCH_OVERHEAD_BYTES:
            return self._end_partition(False)
        self._step = self._begin_record
        return at + BATCH_OVERHEAD_BYTES

    def _begin_record(self, data: _Bytes, at: int) -> int:
        _, at = read_varlong(data, at)
        _, at = read_varlong(data, at + 1)
        _, at = read_varlong(data, at)
        length, at = read_varlong(data, at)
        self._step = self._pass_value
        return self._inside(at + max(length, 0))

    def _pass_value(self, data: _Bytes, at: int) -> int:
        length, at = read_varlong(data, at)
        self._step = self._count_headers
        return self._inside(at + max(length, 0))

    def _count_headers(self, data: _Bytes, at: int) -> int:
        count, at = read_varlong(data, at)
        self._headers = min(max(count, 0), HEADERS_MAX, self._headers_left)
        self._headers_left -= self._headers
        return self._go_to_header(at)

    def _read_header(self, data: _Bytes, at: int) -> int:
        length, at = read_varlong(data, at)
        name = data[at : at + max(length, 0)]
        size, at = read_varlong(data, at + max(length, 0))
        if name == self._wanted.header:
            return self._end_partition(True)
        self._headers -= 1
        return self._go_to_header(at + max(size, 0))

    def _go_to_header(self, at: int) -> int:
        if self._headers <= 0:
            return self._end_partition(False)
        self._step = self._read_header
        return self._inside(at)

    def _end_partition(self, is_wanted: bool) -> int:
        self.parts.append(Part(self._topic, self._partition, is_wanted))
        self.has_found = self.has_found or is_wanted
        self._partitions -= 1
        at = self._end - self._base
        if self._is_flexible:
            self._step = self._pass_tags
            return at
        return self._behind_partition(at)

    def _pass_tags(self, data: _Bytes, at: int) -> int:
        return self._behind_partition(skip_tagged_fields(data, at))

    def _behind_partition(self, at: int) -> int:
        if self._partitions > 0:
            self._step = self._begin_partition
        elif self._is_flexible:
            self._step = self._end_topic
        else:
            self._next_topic()
        return at

    def _end_topic(self, data: _Bytes, at: int) -> int:
        if self._is_flexible:
            at = skip_tagged_fields(data, at)
        self._next_topic()
        return at

    def _next_topic(self) -> None:
        self._topics -= 1
        self.is_over = self._topics <= 0
        self._step = self._begin_topic

    # ------------------------------------------------------------------ inside
    def _inside(self, at: int) -> int:
        """Return the position, if it is still one of the partition's records."""
        if at + self._base > self._end:
            raise Malformed(f"record at {at}: it ends after its batch")
        return at

    def _count(self, data: _Bytes, at: int) -> tuple[int, int]:
        """Return the length of an array, and where it begins."""
        if self._is_flexible:
            count, at = read_unsigned_varint(data, at)
            return count - 1, at
        (count,) = _INT32.unpack_from(data, at)
        return count, at + _INT32.size


def only_topic(data: _Bytes, at: int, version: int) -> tuple[bytes, int] | None:
    """Return the topic of a request whose acks end at ``at``, and where it ends: its name, from version 13 on its id;
    empty: it names several, or none, or cannot be read. None: too little of it has arrived."""
    at += _TIMEOUT_BYTES
    has_flexible = is_flexible(_PRODUCE, version)
    try:
        if has_flexible:
            topics, at = read_unsigned_varint(data, at)
            topics -= 1
        else:
            (topics,) = _INT32.unpack_from(data, at)
            at += _INT32.size
        if topics != 1:
            return b"", at
        if version >= _TOPIC_IDS_FROM:
            length = _UUID_BYTES
        elif has_flexible:
            length, at = read_unsigned_varint(data, at)
            length -= 1
        else:
            (length,) = _INT16.unpack_from(data, at)
            at += _INT16.size
    except _NOT_WHOLE:
        return None
    except Malformed:
        return b"", at
    if length < 0:
        return b"", at
    return (bytes(data[at : at + length]), at + length) if len(data) >= at + length else None


def begins_without_id(data: _Bytes, at: int, end: int, version: int) -> bool | None:
    """Has the first batch of a request no producer id? ``at``: where its acks end, ``end``: where it does. None: too
    little of it has arrived."""
    walk = ProduceWalk(version, end - at, _NO_ID)
    walk.feed(data, at)
    if walk.parts:
        return walk.parts[0].is_wanted
    return False if walk.is_over else None
