"""The records of one partition in a fetch answer, as a message set of format v0 or v1, in steps.

Owns what such a client gets: which batches, with which offsets, times and codecs, and where a set ends. Knows no
request. Source: Kafka 3.9's ``RecordsUtil.downConvert`` and ``MemoryRecordsBuilder``, which Kafka 4 no longer has;
KIP-31 (offsets inside a wrapper), KIP-32 (times), KIP-98 (control batches). It differs where clients get stuck there:

- a batch in zstd, and for format v0 in lz4, becomes gzip: clients of v0 check a frame's header in different ways;
- a set ends before a wrapper that would follow plain messages: the Rust client drops what it read before a wrapper;
- a set has no part of a message at its end, and one whole message whatever the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from struct import Struct
from typing import Any, Final, NamedTuple

from isal import isal_zlib

from ..compression import Codec, codec_of, compressing
from ..errors import Malformed, Truncated, WireError
from ..message_set import (
    CRC_BYTES,
    LOG_APPEND_TIME_FLAG,
    OFFSET_AND_SIZE_BYTES,
    OVERHEAD_BYTES,
    ShallowMessage,
    encode_message,
    iterate_inside,
    iterate_shallow,
    shift_of,
    unpacking,
)
from ..message_set import verify_crc as verify_message_crc
from ..primitives import Buffer, read_varlong, wrap_int64
from ..record_batch import (
    CONTROL_FLAG,
    MAGIC,
    MAGIC_AT,
    RECORD_BYTES_MIN,
    SIZE_FIELDS_BYTES,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    RecordStream,
    StoredBatch,
    iterate_stored,
    verify_crc,
)
from ..steps import STEP_BYTES, STEP_RECORDS, Steps
from . import LOWER

UNPACKED_BYTES_MAX: Final = 256 << 20
"""Bytes of one batch, decompressed: what one piece of work may be, about a second of steps. They are never in memory
together, but those of one record are, and of one block of snappy."""

_OFFSET_AND_SIZE: Final = Struct(">qi")
_UINT32: Final = Struct(">I")
_INT32: Final = Struct(">i")
_CHECKED: Final = {0: Struct(">BBi"), 1: Struct(">BBqi")}
"""What a checksum covers in front of the key: magic, attributes, with v1 the time, length of the key."""
_OFFSET_MAX: Final = (1 << 63) - 1
_STEP_RECORDS_READ: Final = 10 * STEP_RECORDS  # by compiled code
_STEP_RECORDS_IN_PYTHON: Final = STEP_RECORDS // 10
_STEP_ENTRIES: Final = STEP_RECORDS // 25  # batches, or messages that are copied
_DECOMPRESSED_IN_SAME_STEP_BYTES: Final = STEP_BYTES // 8  # and lowered, and compressed
_HEADER_BYTES_MIN: Final = 2

_GZIP_LEVEL: Final = 1
_GZIP_WINDOW_BITS: Final = 31
_GZIPPED_AT_ONCE_BYTES: Final = 32 * 1024
_FRAMED: Final = {Codec.SNAPPY: (16, 0), Codec.LZ4: (7, 4)}
"""Bytes before the first block and after the last one: of xerial's format, and of a frame without checksums."""


class AbortedTransaction(NamedTuple):
    """As a fetch answer lists it: the producer, and the offset of its first record in this transaction."""

    first_offset: int
    producer_id: int


class Lowered(NamedTuple):
    """What became of one partition's records."""

    next_offset: int
    """After all that was looked at; -1 if there was no whole batch. It is above the offset that was asked for if
    records, control batches, aborted transactions or offsets without records are before it."""
    last_offset: int
    """Of the last message in the set; -1 if it is empty."""
    messages_without_headers: int
    """Messages whose record had headers, which these formats can not carry."""
    bytes_wanted: int
    """Above 0: there was only a part of one batch, which has so many bytes. The broker has to be asked for as many."""
    cut_at: int = -1
    """Where the batch begins, in the data, of which the set has not all records for lack of room; -1: of none."""


def lowering(
    data: Buffer,
    fetch_offset: int,
    out: bytearray,
    *,
    magic: int,
    bytes_max: int,
    aborted: Sequence[AbortedTransaction] = (),
    unpacked_bytes_max: int = UNPACKED_BYTES_MAX,
) -> Steps[Lowered]:
    """Append to ``out`` the records from ``fetch_offset`` on as messages of format ``magic``.

    ``data``: whole batches of any format, the last of which may be cut off. ``bytes_max``: of the set; one message is
    made even if it is larger, and a wrapper may exceed it by what it grows. ``aborted``: transactions whose records
    are left out. ``unpacked_bytes_max``: of one batch.

    Ends before a batch that can not be lowered; if nothing was made before it, raises WireError: LimitExceeded for what
    is too large, else what is wrong. ``out`` is unchanged then.
    """
    view = memoryview(data)
    made = _MessageSet(out, fetch_offset, magic, bytes_max, unpacked_bytes_max)
    hidden = yield from _Aborted.opening(aborted)
    position = entries = worked_bytes = 0
    cut_at = -1
    while True:
        if LOWER and (after := made.appended_compiled(view, position, bool(aborted))):
            position = after
            yield
            continue
        before = made.state
        try:
            entry = _entry_at(view, position)
            if entry is None:
                break
            if isinstance(entry, StoredBatch):
                size_bytes = entry.header.size_bytes
                is_taken = yield from made.appending_batch(entry, is_shown=not hidden.hide(entry))
            else:
                size_bytes = entry.size_bytes
                is_taken = yield from made.appending_message(view[position:], entry)
        except WireError:
            made.restore(before)
            if made.last_offset < 0:
                raise
            break
        if not is_taken:
            cut_at = position if made.last_offset != before.last_offset else -1
            break
        position += size_bytes
        entries += 1
        worked_bytes += size_bytes
        if worked_bytes >= STEP_BYTES or entries >= _STEP_ENTRIES:
            entries = worked_bytes = 0
            yield
    bytes_wanted = _size_of_cut(view) if len(view) and not position and made.next_offset < 0 else 0
    return Lowered(made.next_offset, made.last_offset, made.messages_without_headers, bytes_wanted, cut_at)


def _entry_at(view: memoryview, position: int) -> StoredBatch | ShallowMessage | None:
    """Return the batch or message there; None if it is not whole, and the data ends with it."""
    if len(view) - position <= MAGIC_AT:
        return None
    rest = view[position:]
    entries: Iterator[StoredBatch | ShallowMessage]
    entries = iterate_stored(rest) if rest[MAGIC_AT] == MAGIC else iterate_shallow(rest)
    return next(entries, None)


def _size_of_cut(view: memoryview) -> int:
    """Return how many bytes the batch has of which ``view`` is a part; if that is not there, some more than these."""
    if len(view) < SIZE_FIELDS_BYTES:
        return 2 * SIZE_FIELDS_BYTES
    return max(SIZE_FIELDS_BYTES + int(_OFFSET_AND_SIZE.unpack_from(view)[1]), len(view) + 1)


class _Aborted:
    """The transactions that were aborted, as they begin and end along the log."""

    __slots__ = ("_begun", "_to_come")

    def __init__(self) -> None:
        self._to_come: list[AbortedTransaction] = []
        self._begun: set[int] = set()

    @classmethod
    def opening(cls, aborted: Sequence[AbortedTransaction]) -> Steps[_Aborted]:
        """Put them in the order in which they begin; brokers list them as they end."""
        made = cls()
        for number, one in enumerate(aborted, 1):
            heappush(made._to_come, one)
            if not number % STEP_RECORDS:
                yield
        return made

    def hide(self, batch: StoredBatch) -> bool:
        """Return whether the next batch belongs to an aborted transaction."""
        header = batch.header
        last_offset = batch.base_offset + header.last_offset_delta
        while self._to_come and self._to_come[0].first_offset <= last_offset:
            self._begun.add(heappop(self._to_come).producer_id)
        if header.attributes & CONTROL_FLAG:
            self._begun.discard(header.producer_id)  # that of a producer in an aborted transaction aborts it
            return False
        return bool(header.attributes & TRANSACTIONAL_FLAG) and header.producer_id in self._begun


class _State(NamedTuple):
    size_bytes: int
    is_plain_last: bool
    next_offset: int
    last_offset: int
    messages_without_headers: int


class _MessageSet:
    """The messages of one partition, at the end of ``out``."""

    __slots__ = (
        "_bytes_max",
        "_fetch_offset",
        "_is_plain_last",
        "_magic",
        "_out",
        "_start",
        "_unpacked_bytes_max",
        "last_offset",
        "messages_without_headers",
        "next_offset",
    )

    def __init__(self, out: bytearray, fetch_offset: int, magic: int, bytes_max: int, unpacked_bytes_max: int) -> None:
        self._out = out
        self._start = len(out)
        self._fetch_offset = fetch_offset
        self._magic = magic
        self._bytes_max = bytes_max
        self._unpacked_bytes_max = unpacked_bytes_max
        self._is_plain_last = False
        self.next_offset = self.last_offset = -1
        self.messages_without_headers = 0

    def appended_compiled(self, view: memoryview, position: int, is_any_aborted: bool) -> int:
        """Have the next batches appended by compiled code, if they are usual and there is room for all of them; return
        the position after them. 0: nothing has changed."""
        assert LOWER is not None
        made = LOWER.lower_batches(view, self._magic, position, self._fetch_offset, is_any_aborted, self._room)
        if made is None:
            return 0
        messages, after, self.next_offset, last_offset, without_headers = made
        if messages:
            self._out += messages
            self.last_offset = last_offset
            self._is_plain_last = True
            self.messages_without_headers += without_headers
        return after

    @property
    def state(self) -> _State:
        """What ``restore`` takes."""
        return _State(
            len(self._out), self._is_plain_last, self.next_offset, self.last_offset, self.messages_without_headers
        )

    def restore(self, state: _State) -> None:
        """Take back what was appended since then."""
        size_bytes, self._is_plain_last, self.next_offset, self.last_offset, self.messages_without_headers = state
        del self._out[size_bytes:]

    def appending_batch(self, batch: StoredBatch, *, is_shown: bool) -> Steps[bool]:
        """Append the records of a batch; an uncompressed one perhaps in part. False: the set ends before, or in it."""
        header, base_offset = batch.header, batch.base_offset
        last_offset = base_offset + header.last_offset_delta
        if base_offset < 0 or last_offset > _OFFSET_MAX:
            raise Malformed(f"record batch: offsets {base_offset} to {last_offset}")
        if last_offset < self._fetch_offset:
            return True
        if not is_shown or header.attributes & CONTROL_FLAG or not header.record_count:
            self.next_offset = last_offset + 1
            return True
        if not self._has_room(header.size_bytes if header.codec else 1, is_wrapper=bool(header.codec)):
            return False
        verify_crc(batch.records, header)
        if header.codec:
            yield from self._appending_wrapper(batch)
        elif not (yield from self._appending_plain(batch)):
            self.next_offset = self.last_offset + 1
            return False
        self.next_offset = last_offset + 1
        return True

    def appending_message(self, data: memoryview, message: ShallowMessage) -> Steps[bool]:
        """Append a message that was stored in format v0 or v1, which ``data`` begins with. False: the set ends before
        it."""
        if message.offset < self._fetch_offset:
            return True
        if not self._has_room(message.size_bytes, is_wrapper=message.is_wrapper):
            return False
        codec = codec_of(message.codec)
        if message.magic <= self._magic and codec is _readable(codec, self._magic):
            yield from _copying(self._out, data[: message.size_bytes])
        else:
            verify_message_crc(data, message._replace(start=0))
            if message.is_wrapper:
                yield from self._appending_rewrapped(message, codec)
            else:
                yield from _appending_message(
                    self._out, self._magic, 0, message.offset, message.timestamp, message.key, message.value
                )
        self._is_plain_last = not message.is_wrapper
        self.last_offset = message.offset
        self.next_offset = message.offset + 1
        return True

    @property
    def _room(self) -> int:
        return self._bytes_max - (len(self._out) - self._start)

    def _has_room(self, size_bytes: int, *, is_wrapper: bool) -> bool:
        """May a batch or message follow what is there? ``size_bytes``: what it takes at least."""
        if self.last_offset < 0:
            return True
        return size_bytes <= self._room and not (is_wrapper and self._is_plain_last)

    def _appending_plain(self, batch: StoredBatch) -> Steps[bool]:
        """Append the records from the fetch offset on, one message for each. False: some are left, for lack of
        room."""
        messages = _BatchMessages(
            batch,
            self._magic,
            shift=batch.base_offset,
            first=self._fetch_offset - batch.base_offset,
            unpacked_bytes_max=batch.header.size_bytes,
        )
        while messages.are_left:
            index, without_headers = messages.index, messages.without_headers
            part = yield from messages.making(max(self._room, 0), at_least_one=self.last_offset < 0)
            if messages.index == index:
                return False
            yield from _copying(self._out, part)
            self.messages_without_headers += messages.without_headers - without_headers
            if messages.last >= 0:
                self._is_plain_last = True
                self.last_offset = batch.base_offset + messages.last
            if messages.are_left:
                yield
        yield from messages.ending()
        return True

    def _appending_wrapper(self, batch: StoredBatch) -> Steps[None]:
        """Append one wrapper with all records, also those before the fetch offset, as brokers do. Nothing, if all of
        them are before it: compaction took what was asked for."""
        header, magic, start = batch.header, self._magic, len(self._out)
        messages = _BatchMessages(batch, magic, unpacked_bytes_max=self._unpacked_bytes_max)
        if magic:
            messages.shift = -(yield from messages.finding_first())
        else:
            messages.shift = batch.base_offset
        codec = _readable(codec_of(header.codec), magic)
        self._out += bytes(OVERHEAD_BYTES[magic])
        value = _CompressedValue(self._out, codec, magic)
        while messages.are_left:
            part = yield from messages.making(STEP_BYTES, at_least_one=True)
            yield from value.appending(part, is_last=not messages.are_left)
            if messages.are_left:
                yield
        yield from messages.ending()
        last_offset = batch.base_offset + messages.last
        if last_offset < self._fetch_offset:
            del self._out[start:]
            return
        attributes = codec | (messages.attributes & LOG_APPEND_TIME_FLAG)
        _seal_wrapper(self._out, start, magic, attributes, last_offset, messages.max_timestamp)
        self._is_plain_last = False
        self.last_offset = last_offset
        self.messages_without_headers += messages.without_headers

    def _appending_rewrapped(self, wrapper: ShallowMessage, codec: Codec) -> Steps[None]:
        """Append the same wrapper in format v0, or in another codec. All that is inside is in memory meanwhile."""
        start = len(self._out)
        inside = yield from unpacking(wrapper, self._unpacked_bytes_max)
        last = 0
        for number, message in enumerate(iterate_inside(wrapper, inside), 1):
            last = message.offset
            if not number % STEP_RECORDS:
                yield
        shift = shift_of(wrapper, last)
        self._out += bytes(OVERHEAD_BYTES[0])
        value = _CompressedValue(self._out, _readable(codec, 0), 0)
        part = bytearray()
        for number, message in enumerate(iterate_inside(wrapper, inside), 1):
            yield from _appending_message(part, 0, 0, message.offset + shift, -1, message.key, message.value)
            if len(part) >= STEP_BYTES or not number % _STEP_RECORDS_IN_PYTHON:
                yield from value.appending(part, is_last=False)
                part.clear()
                yield
        yield from value.appending(part, is_last=True)
        _seal_wrapper(self._out, start, 0, _readable(codec, 0), wrapper.offset, -1)


def _readable(codec: Codec, magic: int) -> Codec:
    """Return the codec that clients of a format read, for what is stored in ``codec``."""
    if codec is Codec.ZSTD or (codec is Codec.LZ4 and not magic):
        return Codec.GZIP
    return codec


class _BatchMessages:
    """The records of one batch as plain messages, as many of them at a time as are wanted."""

    __slots__ = (
        "_append_time",
        "_before",
        "_first",
        "_header",
        "_magic",
        "_stream",
        "attributes",
        "last",
        "max_timestamp",
        "shift",
        "without_headers",
    )

    def __init__(
        self, batch: StoredBatch, magic: int, *, unpacked_bytes_max: int, shift: int = 0, first: int = 0
    ) -> None:
        """``shift``: what makes a message's offset of an offset delta. ``first``: the offset delta that they begin
        with, at the earliest."""
        header = batch.header
        self._stream = RecordStream(batch.records, header, unpacked_bytes_max)
        self._header = header
        self._magic = magic
        self._first = first
        self._append_time = header.max_timestamp if header.is_log_append_time else 0
        self._before = -1
        self.shift = shift
        self.attributes = LOG_APPEND_TIME_FLAG if magic and header.is_log_append_time else 0
        self.last = -1
        """Offset delta of the last message that was made; -1: none was."""
        self.max_timestamp = -1
        self.without_headers = 0

    @property
    def are_left(self) -> bool:
        return self._stream.records_left > 0

    @property
    def index(self) -> int:
        """How many records were read."""
        return self._stream.index

    def finding_first(self) -> Steps[int]:
        """Return the first record's offset delta."""
        stream = self._stream
        size = yield from stream.measuring()
        return _read_record(memoryview(stream.data)[stream.position : stream.position + size], self._header)[0]

    def making(self, room: int, *, at_least_one: bool) -> Steps[Buffer]:
        """Return the next messages, of which some have to be left: those that fit into ``room`` bytes, and into a step.
        ``at_least_one``: the first one is made even if it does not. Raises WireError."""
        stream = self._stream
        yield from stream.filling(STEP_BYTES)
        if LOWER:
            made = LOWER.lower_part(
                stream.data,
                self._magic,
                self.attributes,
                self.shift,
                self._header.base_timestamp,
                self._append_time,
                stream.position,
                min(stream.records_left, stream.ahead_bytes // RECORD_BYTES_MIN, _STEP_RECORDS_READ),
                self._before,
                self._first,
                self._header.last_offset_delta,
                room,
                at_least_one,
            )
            if made is not None:
                part, position, count, self._before, last, max_timestamp, without_headers = made
                stream.take(count, position - stream.position)
                self._note(last, max_timestamp, without_headers)
                return part
        return (yield from self._making_in_python(room, at_least_one))

    def ending(self) -> Steps[None]:
        """Raise Malformed if anything is after the last record."""
        yield from self._stream.ending()

    def _making_in_python(self, room: int, at_least_one: bool) -> Steps[bytearray]:
        part, stream, header = bytearray(), self._stream, self._header
        for _ in range(min(stream.records_left, _STEP_RECORDS_IN_PYTHON)):
            size = yield from stream.measuring()
            record = memoryview(stream.data)[stream.position : stream.position + size]
            delta, timestamp, key, value, header_count = _read_record(record, header)
            if not self._before < delta <= header.last_offset_delta:
                raise Malformed(f"record {stream.index}: offset delta {delta} after {self._before}")
            if delta >= self._first:
                message_bytes = OVERHEAD_BYTES[self._magic] + len(key or b"") + len(value or b"")
                if message_bytes > room - len(part) and not (at_least_one and not part):
                    break
                if self.attributes:
                    timestamp = self._append_time
                yield from _appending_message(
                    part, self._magic, self.attributes, self.shift + delta, timestamp, key, value
                )
                self._note(delta, timestamp, bool(header_count))
            stream.take(1, size)
            self._before = delta
            if len(part) >= STEP_BYTES:
                break
        return part

    def _note(self, last: int, max_timestamp: int, without_headers: int) -> None:
        if last >= 0:
            self.last = last
            self.max_timestamp = max(self.max_timestamp, max_timestamp)
        self.without_headers += without_headers


def _read_record(record: memoryview, header: BatchHeader) -> tuple[int, int, memoryview | None, memoryview | None, int]:
    """Return offset delta, time, key, value and number of headers of one whole record. What is in the headers is not
    looked at: they are left out."""
    length, position = read_varlong(record, 0)
    if length < 1 or record[position] >= 0x80:  # attributes: unused, always 0
        raise Malformed(f"record: length {length}, or its attributes are wrong")
    timestamp_delta, position = read_varlong(record, position + 1)
    delta, position = read_varlong(record, position)
    key, position = _read_field(record, position)
    value, position = _read_field(record, position)
    header_count, position = read_varlong(record, position)
    left = len(record) - position
    if not 0 <= header_count <= left // _HEADER_BYTES_MIN or (left and not header_count):
        raise Malformed(f"record: {header_count} headers in {left} bytes")
    return delta, wrap_int64(header.base_timestamp + timestamp_delta), key, value, header_count


def _read_field(record: memoryview, position: int) -> tuple[memoryview | None, int]:
    length, position = read_varlong(record, position)
    if length < 0:  # any negative length is null to Kafka, not only -1
        return None, position
    if length > len(record) - position:
        raise Truncated(f"field at {position}: length {length}, {len(record) - position} bytes there")
    return record[position : position + length], position + length


def _appending_message(
    out: bytearray,
    magic: int,
    attributes: int,
    offset: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
) -> Steps[None]:
    """Append one plain message; what is large is copied in steps."""
    size = len(key or b"") + len(value or b"")
    if size <= STEP_BYTES:
        is_stamped = bool(attributes & LOG_APPEND_TIME_FLAG)
        out += encode_message(key, value, magic=magic, offset=offset, timestamp=timestamp, log_append_time=is_stamped)
        return
    key_length = -1 if key is None else len(key)
    front = _front(magic, attributes, timestamp, key_length)
    value_length = _INT32.pack(-1 if value is None else len(value))
    crc = isal_zlib.crc32(front)
    for checked in (key or b"", value_length, value or b""):
        crc = isal_zlib.crc32(checked, crc)
        yield
    out += _OFFSET_AND_SIZE.pack(offset, OVERHEAD_BYTES[magic] - OFFSET_AND_SIZE_BYTES + size)
    out += _UINT32.pack(crc)
    out += front
    yield from _copying(out, key or b"")
    out += value_length
    yield from _copying(out, value or b"")


def _front(magic: int, attributes: int, timestamp: int, key_length: int) -> bytes:
    """What is between a message's checksum and its key."""
    fields = (magic, attributes, timestamp, key_length) if magic else (magic, attributes, key_length)
    return _CHECKED[magic].pack(*fields)


def _copying(out: bytearray, data: Buffer) -> Steps[None]:
    if len(data) <= STEP_BYTES:
        out += data
        return
    view = memoryview(data)
    for start in range(0, len(view), STEP_BYTES):
        out += view[start : start + STEP_BYTES]
        yield


def _seal_wrapper(out: bytearray, start: int, magic: int, attributes: int, offset: int, timestamp: int) -> None:
    """Write all of a wrapper but its value, which ``out`` ends with; room for it was left at ``start``. Its key is
    null."""
    overhead = OVERHEAD_BYTES[magic]
    value_bytes = len(out) - start - overhead
    front = _front(magic, attributes, timestamp, -1) + _INT32.pack(value_bytes)
    checked_at = start + OFFSET_AND_SIZE_BYTES + CRC_BYTES
    out[checked_at : checked_at + len(front)] = front
    with memoryview(out) as view, view[checked_at:] as checked:
        crc = isal_zlib.crc32(checked)
    _OFFSET_AND_SIZE.pack_into(out, start, offset, len(out) - start - OFFSET_AND_SIZE_BYTES)
    _UINT32.pack_into(out, start + OFFSET_AND_SIZE_BYTES, crc)


class _CompressedValue:
    """What is inside a wrapper, compressed as it comes: a batch may unpack to thousands of times its size, and no more
    than a megabyte of that is kept. The bytes do not depend on the pieces that it comes in."""

    __slots__ = ("_codec", "_gzip", "_is_begun", "_magic", "_out", "_pending")

    def __init__(self, out: bytearray, codec: Codec, magic: int) -> None:
        self._out = out
        self._codec = codec
        self._magic = magic
        self._pending = bytearray()
        self._is_begun = False
        self._gzip: Any = None
        if codec is Codec.GZIP:
            self._gzip = isal_zlib.compressobj(_GZIP_LEVEL, isal_zlib.DEFLATED, _GZIP_WINDOW_BITS)

    def appending(self, messages: Buffer, *, is_last: bool) -> Steps[None]:
        """Append more of the inner messages; with the last of them, the end of the value."""
        if is_last and not self._pending and len(messages) <= STEP_BYTES:
            yield from self._compressing(messages, is_last=True)  # as nearly every batch
            return
        view = memoryview(messages)
        for start in range(0, len(view), STEP_BYTES):
            self._pending += view[start : start + STEP_BYTES]
            if len(self._pending) >= STEP_BYTES:
                yield from self._compressing_pending(STEP_BYTES, is_last=False)
        if is_last:
            yield from self._compressing_pending(len(self._pending), is_last=True)

    def _compressing_pending(self, size_bytes: int, *, is_last: bool) -> Steps[None]:
        with memoryview(self._pending) as pending, pending[:size_bytes] as block:
            yield from self._compressing(block, is_last=is_last)
        del self._pending[:size_bytes]

    def _compressing(self, block: Buffer, *, is_last: bool) -> Steps[None]:
        if len(block) > _DECOMPRESSED_IN_SAME_STEP_BYTES:
            yield
        if self._gzip is not None:
            view = memoryview(block)
            for start in range(0, len(view), _GZIPPED_AT_ONCE_BYTES):
                self._out += self._gzip.compress(view[start : start + _GZIPPED_AT_ONCE_BYTES])
            if is_last:
                self._out += self._gzip.flush()
            return
        framed = memoryview((yield from compressing(self._codec, block, magic=self._magic)))
        front, end = _FRAMED[self._codec]
        self._out += framed[front if self._is_begun else 0 : len(framed) if is_last else len(framed) - end]
        self._is_begun = True
