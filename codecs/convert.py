"""Record batches (magic 2) to message sets (magic 0 and 1), and one message set to several smaller ones, in steps.

Verifies every record that it reads, but not a batch's checksum. The caller has to do that before: conversion computes
new checksums, so a corrupt batch would look intact afterwards. What message formats v0 and v1 cannot carry (record
headers) is refused or dropped by a policy.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from .packages import without_init

with without_init("aiokafka", "aiokafka.record"):
    from aiokafka.errors import CorruptRecordException
    from aiokafka.record._crecords import DefaultRecordBatch, LegacyRecordBatchBuilder

from .batch_digest import NO_DIGEST, digesting_messages
from .batch_marker import DIGEST_BYTES, content_digest, digesting_content
from .compression import Codec, codec_of, compressing, decompressing, storing_gzip
from .errors import LimitExceeded, Malformed, WireError
from .kernel import KERNEL, OUTPUT_BYTES_MAX
from .logged import LoggedBatch
from .message_set import (
    OFFSET_AND_SIZE_BYTES,
    OVERHEAD_BYTES,
    ShallowMessage,
    encode_message,
    encoding_message,
    iterate_inside,
    iterate_shallow,
    shift_of,
    unpacking,
)
from .primitives import Buffer, read_varlong
from .record_batch import (
    BATCH_OVERHEAD_BYTES,
    HEADER,
    HEADERS_BYTES_UNCHECKED,
    MAGIC,
    RECORD_BYTES_MIN,
    SIZE_FIELDS_BYTES,
    BatchHeader,
    RecordStream,
    finding_longest,
    iterate_large_records,
    iterate_records,
    parse_single_batch,
)
from .steps import STEP_BYTES, STEP_RECORDS, Steps, at_once

TRACING_HEADERS: Final = ("traceparent", "tracestate", "baggage", "b3", "x-b3-*")
"""Headers that instrumentation adds to every record (W3C, B3), dropped by default; * stands for any text."""

SMALL_BYTES_MAX: Final = HEADERS_BYTES_UNCHECKED
"""An uncompressed batch of so many bytes at most is converted by fewer calls."""
_SHIFTED_AT_ONCE: Final = 10 * STEP_RECORDS  # offsets: adding to one is that much faster than reading a record
_NO_SIZE_LIMIT: Final = 1 << 62  # the builder refuses records beyond its size; ours is checked before
_OFFSET: Final = Struct(">q")
_OFFSET_AND_SIZE: Final = Struct(">qi")
_SIZE: Final = Struct(">i")
_TIMESTAMP: Final = Struct(">q")
_TIMESTAMP_AT: Final = 18  # in a message of format v1: after offset, size, checksum, magic and attributes
_READER_PADDING: Final = bytes(32)
_new_tuple: Final = tuple.__new__
_STEP_RECORDS_IN_PLACE: Final = STEP_RECORDS // 5  # read by code that is not compiled
# The compiled reader checks lengths against the data, and that the records end with it. A forged length near 2**63
# slips through its sum and is refused by the allocator before anything is allocated: hence the two in the middle.
_READER_ERRORS: Final = (CorruptRecordException, OverflowError, MemoryError, UnicodeDecodeError)


class HeaderRefused(Exception):
    """A record has a header that the broker's format can't carry, and the policy does not allow to drop it."""

    def __init__(self, header: str) -> None:
        super().__init__(f"record header {header!r} can't be stored in this broker's message format")
        self.header = header


def expression_of(pattern: str) -> str:
    """Return a regular expression for ``fullmatch`` of a pattern in which * stands for any text. Matching never goes
    back (atomic groups): a text between two stars is taken at its first place only, so a name of any length takes time
    in proportion to its length."""
    first, *others = map(re.escape, pattern.split("*"))
    if not others:
        return first
    return first + "".join(f"(?>.*?{part})" for part in others[:-1] if part) + f".*{others[-1]}"


class HeaderPolicy:
    """Which record headers are dropped; any other one makes the conversion refuse with HeaderRefused.

    ``drop`` are names, in which * stands for any text. Case does not count.
    """

    __slots__ = ("_also", "_dropped", "_names")

    def __init__(self, drop: Iterable[str] = TRACING_HEADERS) -> None:
        self._names = drop = tuple(drop)
        self._also: tuple[str, HeaderPolicy] | None = None
        patterns = list(map(expression_of, drop))
        self._dropped = re.compile("|".join(patterns) or r"(?!)", re.IGNORECASE | re.DOTALL)

    def dropping_also(self, name: str) -> HeaderPolicy:
        """Return a policy by which this name is dropped too; made once."""
        if self._also is None or self._also[0] != name:
            self._also = name, HeaderPolicy((*self._names, name))
        return self._also[1]

    def check(self, headers: Sequence[tuple[str, bytes | None]]) -> None:
        """Raise HeaderRefused unless every header may be dropped."""
        for name, _ in headers:
            if self._dropped.fullmatch(name) is None:
                raise HeaderRefused(name)


_ANY_HEADERS: Final = HeaderPolicy(("*",))


class Converted(NamedTuple):
    """A message set ready to be sent. ``first_content`` is the digest of the first record's key and value."""

    message_set: bytes | bytearray
    record_count: int
    first_content: bytes


class Inner(NamedTuple):
    """Records as plain messages with offsets from 0 on, not wrapped yet. ``first_content`` as in ``Converted``."""

    message_set: bytearray
    record_count: int
    max_timestamp: int
    first_content: bytes


def content_of_message(message: ShallowMessage) -> bytes:
    """Return the content digest of a stored record (a plain message, or one from inside a wrapper): the same as that of
    the record when it was sent."""
    return content_digest(message.key, message.value)


def converting(
    batches: Sequence[memoryview],
    headers: Sequence[BatchHeader],
    *,
    policy: HeaderPolicy,
    output_bytes_max: int,
    magic: int = 1,
) -> Steps[Inner]:
    """Return all records of the batches, in order, as plain messages of format ``magic`` with offsets from 0 on.

    ``headers``: of the batches. Raises WireError for what a batch contains, LimitExceeded when the messages would have
    more than ``output_bytes_max`` bytes, HeaderRefused by the policy.
    """
    assert batches
    if KERNEL and (made := KERNEL.convert(magic, output_bytes_max, *batches)):
        return _new_tuple(Inner, made)
    writer, room = _Writer(magic), output_bytes_max
    for batch, header in zip(batches, headers, strict=True):
        if not header.attributes and header.size_bytes <= SMALL_BYTES_MAX:  # as nearly every batch
            size_bytes, count = header.size_bytes - BATCH_OVERHEAD_BYTES, header.record_count
            if count * RECORD_BYTES_MIN > size_bytes:
                raise Malformed(f"record batch: {count} records in {size_bytes} bytes")
            room -= size_bytes + count * writer.growth_bytes
            if room < 0:
                raise LimitExceeded(f"conversion: more than {output_bytes_max} bytes")
            padded = memoryview(b"".join((batch, _READER_PADDING)))
            reader = DefaultRecordBatch(padded[: -len(_READER_PADDING)])  # see ``_opening``
            try:
                yield from _copying(reader, writer, policy, STEP_RECORDS, 0, False)
            except _READER_ERRORS as exc:
                raise Malformed(f"record batch: {type(exc).__name__}: {exc}") from None
            continue
        conversion = Conversion(batch, header, policy, unpacked_bytes_max=output_bytes_max)
        if not (yield from conversion.appending(writer, output_bytes_max, at_least_one=False)):
            raise LimitExceeded(f"conversion: more than {output_bytes_max} bytes")
        room = output_bytes_max - writer.size_bytes
    return writer.finish()


class Conversion:
    """The records of one batch on their way into messages, as many of them at a time as are wanted. In memory are
    the messages, the batch and some MiB of what it unpacks to."""

    __slots__ = ("_header", "_policy", "_stream")

    def __init__(
        self, batch: memoryview, header: BatchHeader, policy: HeaderPolicy, *, unpacked_bytes_max: int
    ) -> None:
        """``unpacked_bytes_max``: of all its records, decompressed."""
        self._header = header
        self._policy = policy
        self._stream = RecordStream(batch, header, unpacked_bytes_max)

    @property
    def is_done(self) -> bool:
        """Were all records taken?"""
        return not self._stream.records_left

    def skipping(self, record_count: int) -> Steps[None]:
        """Pass over the next records."""
        yield from self._stream.skipping(record_count)

    def making(self, output_bytes_max: int, *, magic: int = 1) -> Steps[Inner]:
        """Return the next records, of which some have to be left: as many as fit into so many bytes of messages, at
        least one. Raises as ``converting``."""
        writer = _Writer(magic)
        yield from self.appending(writer, output_bytes_max, at_least_one=True)
        return writer.finish()

    def appending(self, writer: _Writer, output_bytes_max: int, *, at_least_one: bool) -> Steps[bool]:
        """Append the records that are left. False: the next ones were not appended, as they might not fit into
        ``output_bytes_max``; ``at_least_one`` is appended nevertheless, however large."""
        stream, header = self._stream, self._header
        is_first = True
        while stream.records_left:
            if not is_first:
                yield
            is_first = False
            yield from stream.filling(STEP_BYTES)
            room = output_bytes_max - writer.size_bytes
            if KERNEL and (made := writer.appended_compiled(stream, header.base_timestamp, room)):
                stream.take(*made)
                continue
            count, size_bytes = yield from _window(stream)
            must_fit = writer.record_count or not at_least_one
            if must_fit and size_bytes + count * writer.growth_bytes > room:
                return False
            data = memoryview(stream.data)[stream.position : stream.position + size_bytes]
            reader, step_records = yield from _opening(header, data, count)
            is_large = size_bytes > STEP_BYTES
            try:
                headers = yield from _copying(reader, writer, self._policy, step_records, stream.index, is_large)
            except _READER_ERRORS as exc:
                raise Malformed(f"record batch: {type(exc).__name__}: {exc}") from None
            stream.take(count, size_bytes, headers)
        yield from stream.ending()
        return True


def _window(stream: RecordStream) -> Steps[tuple[int, int]]:
    """Return how many of the next records are read in one go, at least one, and their bytes, which are ahead."""
    if stream.is_whole and stream.ahead_bytes <= HEADERS_BYTES_UNCHECKED and stream.records_left <= STEP_RECORDS:
        return (
            stream.records_left,
            stream.ahead_bytes,
        )  # as with nearly every batch: the reader finds out whether it fits
    size_bytes = yield from stream.measuring()
    count, data = 1, memoryview(stream.data)
    end = stream.position + min(stream.ahead_bytes, STEP_BYTES)
    while count < min(stream.records_left, STEP_RECORDS):
        try:
            length, start = read_varlong(data, stream.position + size_bytes)
        except WireError:
            break
        if length < 0 or start + length > end:
            break
        count, size_bytes = count + 1, start + length - stream.position
    return count, size_bytes


def cutting(inner: Inner, at: Sequence[int]) -> Steps[list[Inner]]:
    """Return the records cut before the record numbers ``at`` (ascending): one piece more than there are numbers.

    No checksum changes: those of messages do not cover their offsets. Format v1.
    """
    pieces: list[Inner] = []
    view = memoryview(inner.message_set)
    position = 0
    for first, end in zip((0, *at), (*at, inner.record_count), strict=True):
        start, max_timestamp = position, -1
        for record in range(first, end):
            (size,) = _SIZE.unpack_from(view, position + _OFFSET.size)
            (timestamp,) = _TIMESTAMP.unpack_from(view, position + _TIMESTAMP_AT)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            position += OFFSET_AND_SIZE_BYTES + size
            if not (record + 1) % STEP_RECORDS:
                yield
        piece = bytearray(view[start:position])
        yield from _numbering(piece, end - first)
        message = next(iterate_shallow(piece))
        content = yield from digesting_content(message.key, message.value)
        pieces.append(Inner(piece, end - first, max_timestamp, content))
    return pieces


def border_of_halves(inner: Inner) -> Steps[int]:
    """Return how many records the first half has if the records are cut into two halves of about equal bytes, with at
    least one record in each."""
    assert inner.record_count > 1
    view = memoryview(inner.message_set)
    half = len(view) // 2
    position = record = 0
    while record < inner.record_count - 1:
        size = OFFSET_AND_SIZE_BYTES + _SIZE.unpack_from(view, position + _OFFSET.size)[0]
        if record and position + size // 2 >= half:
            break
        position += size
        record += 1
        if not record % STEP_RECORDS:
            yield
    return record


def _numbering(message_set: bytearray, record_count: int) -> Steps[None]:
    position = 0
    for offset in range(record_count):
        _OFFSET.pack_into(message_set, position, offset)
        position += OFFSET_AND_SIZE_BYTES + _SIZE.unpack_from(message_set, position + _OFFSET.size)[0]
        if not (offset + 1) % STEP_RECORDS:
            yield


def digesting_whole(
    batch: memoryview, header: BatchHeader, unpacked_bytes_max: int, count: int | None = None
) -> Steps[bytes]:
    """Return the digest (``batch_digest.py``) of a batch, or of its first ``count`` records. Raises WireError."""
    conversion = Conversion(batch, header, _ANY_HEADERS, unpacked_bytes_max=unpacked_bytes_max)
    digest, left = NO_DIGEST, header.record_count if count is None else count
    while left and not conversion.is_done:
        inner = yield from conversion.making(STEP_BYTES)
        taken = min(left, inner.record_count)
        digest, _ = yield from digesting_messages(inner.message_set, taken, before=digest)
        left -= taken
    return digest


def digesting_batch(
    batch: memoryview, header: BatchHeader, output_bytes_max: int, *, first: int = 0, count: int | None = None
) -> Steps[list[bytes]]:
    """Return the digests of the records' keys and values, in order, from record ``first`` on, ``count`` at most.

    Verifies only the records that it reads, up to the last one that it digests. Raises WireError.
    """
    stream = RecordStream(batch, header, output_bytes_max)
    yield from stream.skipping(min(first, stream.records_left))
    contents: list[bytes] = []
    wanted = stream.records_left if count is None else min(count, stream.records_left)
    while len(contents) < wanted:
        yield from stream.filling(STEP_BYTES)
        record_count, size_bytes = yield from _window(stream)
        data = memoryview(stream.data)[stream.position : stream.position + size_bytes]
        reader, step_records = yield from _opening(header, data, record_count)
        try:
            headers = yield from _digesting(reader, contents, wanted, step_records, stream.index)
        except _READER_ERRORS as exc:
            raise Malformed(f"record batch: {type(exc).__name__}: {exc}") from None
        stream.take(record_count, size_bytes, headers)
        if stream.records_left and len(contents) < wanted:
            yield
    return contents


def digesting_logged(batch: LoggedBatch, output_bytes_max: int) -> Steps[list[tuple[int, bytes]]]:
    """Return offset and digest of each record that a stored batch has. Raises WireError."""
    header, contents = batch.header, list[tuple[int, bytes]]()
    if header.record_count == batch.record_count:
        digests = yield from digesting_batch(batch.records, header, output_bytes_max)
        return list(enumerate(digests, batch.first))
    for number, record in enumerate(iterate_records(batch.records, header, output_bytes_max, is_stored=True), 1):
        contents.append((batch.first + record.offset_delta, content_digest(record.key, record.value)))
        if not number % _STEP_RECORDS_IN_PLACE:
            yield
    return contents


def _digesting(reader: Any, contents: list[bytes], wanted: int, step_records: int, index: int) -> Steps[int]:
    """Add the digests of the records to ``contents``, up to ``wanted`` in all; return how many headers they have.
    ``index``: of the first record."""
    taken_bytes, pause_at, headers = 0, index + step_records, 0
    for offset, record in enumerate(reader, index):
        if len(contents) == wanted:
            break
        if record.offset != offset:
            raise Malformed(f"record {offset}: offset delta {record.offset}")
        key, value = record.key, record.value
        contents.append((yield from digesting_content(key, value)))
        taken_bytes += len(key or b"") + len(value or b"")
        pause_at -= len(record.headers)
        headers += len(record.headers)
        if taken_bytes >= STEP_BYTES or offset + 1 >= pause_at:
            taken_bytes, pause_at = 0, offset + 1 + step_records
            yield
    return headers


class InnerContents:
    """What is inside a wrapper: the offset of each record, and the digest of its key and value."""

    __slots__ = ("_digests", "offsets", "size_bytes")

    def __init__(self, offsets: array[int], digests: bytearray, size_bytes: int) -> None:
        self.offsets = offsets
        """Absolute; usually in order, and at least one."""
        self.size_bytes = size_bytes
        """Of the message set, unpacked."""
        self._digests = digests

    def of(self, first: int, end: int) -> Iterator[bytes]:
        """Yield the digests of the records from number ``first`` to below ``end``, or to the last one."""
        size = DIGEST_BYTES
        for position in range(first * size, min(end, len(self.offsets)) * size, size):
            yield bytes(self._digests[position : position + size])


def digesting_inner(wrapper: ShallowMessage, output_bytes_max: int) -> Steps[InnerContents]:
    """Return offsets and digests of the messages inside a wrapper. Nothing else of them is kept: they may be millions.

    Raises WireError as ``message_set.unpacking`` and ``message_set.iterate_inside``.
    """
    data = yield from unpacking(wrapper, output_bytes_max)
    offsets, digests = array("q"), bytearray()
    taken_bytes = 0
    for count, inner in enumerate(iterate_inside(wrapper, data), 1):
        offsets.append(inner[0])
        if inner[7] > STEP_BYTES:
            digests += yield from digesting_content(inner.key, inner.value)
        else:
            digests += content_digest(inner[5], inner[6])
        taken_bytes += inner[7]
        if taken_bytes >= STEP_BYTES or not count % STEP_RECORDS:
            taken_bytes = 0
            yield
    shift = shift_of(wrapper, offsets[-1])
    if shift:
        for start in range(0, len(offsets), _SHIFTED_AT_ONCE):
            block = [offset + shift for offset in offsets[start : start + _SHIFTED_AT_ONCE]]
            try:
                offsets[start : start + _SHIFTED_AT_ONCE] = array("q", block)
            except OverflowError:
                raise Malformed(f"wrapper at offset {wrapper.offset}: offsets inside it are far away") from None
            if len(block) == _SHIFTED_AT_ONCE:
                yield
    return InnerContents(offsets, digests, len(data))


def wrap_plain(batches: Sequence[memoryview], output_bytes_max: int) -> tuple[bytes, bytes, bytes, int, bytes] | None:
    """Return (wrapper of format v1 with the batch marker of these batches, its anchor, the digest of the first record's
    content, the highest timestamp, the eight bytes of each batch's digest) of uncompressed batches without record
    headers, in one call of the kernel. None: there is no kernel, or it leaves these batches to ``converting`` and
    ``wrapping``, which make the same."""
    return KERNEL.wrap_batches(output_bytes_max, *batches) if KERNEL else None


def wrap(inner: Inner, *, key: bytes | None, codec: Codec, compress_harder: bool = False) -> bytes:
    """Return what ``wrapping`` makes, at once."""
    return bytes(at_once(wrapping(inner, key=key, codec=codec, compress_harder=compress_harder)))


def wrapping(
    inner: Inner, *, key: bytes | None, codec: Codec, compress_harder: bool = False, magic: int = 1
) -> Steps[bytes | bytearray]:
    """Return one wrapper of format ``magic`` with the records in it.

    Offset n-1, inner offsets 0 to n-1, timestamp = the highest inner one: what 0.10.0 takes without rewriting it.
    ``codec`` is the wrapper's: NONE becomes gzip without compression (``compress_harder``: with), ZSTD becomes gzip.
    """
    value: Buffer = inner.message_set
    is_stored = codec is Codec.NONE and not compress_harder
    if not is_stored:
        value = yield from compressing(_wrapper_codec(codec), value, magic=magic)
    if KERNEL and len(value) <= OUTPUT_BYTES_MAX:
        number = _wrapper_codec(codec)
        made = KERNEL.wrap(magic, number, is_stored, inner.record_count - 1, inner.max_timestamp, key, value)
        if made is not None:
            return made
    if is_stored:
        value = yield from storing_gzip(value)
    return (
        yield from encoding_message(
            key,
            value,
            magic=magic,
            offset=inner.record_count - 1,
            timestamp=inner.max_timestamp,
            codec=_wrapper_codec(codec),
        )
    )


def unwrapping(wrapper: Buffer, output_bytes_max: int) -> Steps[bytearray]:
    """Return the message set inside a wrapper that ``wrapping`` made."""
    (message,) = iterate_shallow(wrapper)
    assert message.value is not None
    data = yield from decompressing(codec_of(message.codec), message.value, output_bytes_max, magic=message.magic)
    return data if isinstance(data, bytearray) else bytearray(data)


def converting_one(
    batch: memoryview,
    *,
    codec: Codec,
    magic: int,
    policy: HeaderPolicy,
    output_bytes_max: int,
    wrap: bool = False,
) -> Steps[Converted]:
    """Return one batch as format v0 or v1: plain messages for codec NONE, else one wrapper without a key.

    ``wrap`` makes NONE a wrapper too (gzip without compression), so that the batch is stored as a whole or not at all.
    Raises like ``converting``.
    """
    headers = (parse_single_batch(batch),)
    inner = yield from converting((batch,), headers, policy=policy, output_bytes_max=output_bytes_max, magic=magic)
    if codec is Codec.NONE and not wrap:
        return Converted(inner.message_set, inner.record_count, inner.first_content)
    wrapper = yield from wrapping(inner, key=None, codec=codec, magic=magic)
    return Converted(wrapper, inner.record_count, inner.first_content)


def _wrapper_codec(codec: Codec) -> Codec:
    return Codec.GZIP if codec in (Codec.NONE, Codec.ZSTD) else codec


class _Writer:
    """Appends messages to a message set. ``message_set``: the part that is complete; the rest is still in the compiled
    builder."""

    __slots__ = (
        "_builder",
        "_magic",
        "first_content",
        "growth_bytes",
        "max_timestamp",
        "message_set",
        "record_count",
    )

    def __init__(self, magic: int) -> None:
        self._magic = magic
        self.growth_bytes = OVERHEAD_BYTES[magic] - RECORD_BYTES_MIN
        """By how many bytes a record grows at most when it becomes a message."""
        self._builder = LegacyRecordBatchBuilder(magic, 0, _NO_SIZE_LIMIT)
        self.message_set = bytearray()
        self.record_count = 0
        self.max_timestamp = -1
        self.first_content = b""

    @property
    def append(self) -> Callable[[int, int, bytes | None, bytes | None], object]:
        """Takes offset, timestamp, key and value."""
        append: Callable[[int, int, bytes | None, bytes | None], object] = self._builder.append
        return append

    def appending_large(self, offset: int, timestamp: int, key: Buffer | None, value: Buffer | None) -> Steps[None]:
        """Append a record that is copied in steps, as its key or value is larger than one step."""
        self._flush()
        yield
        if value is None:
            self.message_set += encode_message(key, None, magic=self._magic, offset=offset, timestamp=timestamp)
            return
        message = yield from encoding_message(key, value, magic=self._magic, offset=offset, timestamp=timestamp)
        if not self.message_set:
            self.message_set = bytearray(message) if isinstance(message, bytes) else message
            return
        view = memoryview(message)
        for start in range(0, len(view), STEP_BYTES):
            yield
            self.message_set += view[start : start + STEP_BYTES]

    @property
    def size_bytes(self) -> int:
        """Of all messages so far."""
        return len(self.message_set) + int(self._builder.size())

    def appended_compiled(self, stream: RecordStream, base_timestamp: int, room: int) -> tuple[int, int] | None:
        """Have the kernel append the next records of a batch, one part of them that fits into ``room`` bytes. Returns
        how many, and their bytes; None if it did not, and nothing has changed."""
        count = min(stream.records_left, stream.ahead_bytes // RECORD_BYTES_MIN)
        if min(STEP_BYTES, stream.ahead_bytes + count * self.growth_bytes) > room:
            return None
        assert KERNEL is not None
        self._flush()
        index, position = stream.index, stream.position
        made = KERNEL.convert_part(
            self._magic, self.record_count, stream.data, position, base_timestamp, index, index + count
        )
        if made is None:
            return None
        part, behind, next_index, highest, content = made
        self.max_timestamp = max(self.max_timestamp, highest)
        if self.message_set:
            self.message_set += part
        else:
            self.message_set, self.first_content = part, content
        self.record_count += next_index - index
        return next_index - index, behind - position

    def _flush(self) -> None:
        """Move what is in the builder into ``message_set``."""
        built: bytearray = self._builder.build()
        if built:
            self.message_set += built
            self._builder = LegacyRecordBatchBuilder(self._magic, 0, _NO_SIZE_LIMIT)

    def finish(self) -> Inner:
        """Return all messages."""
        rest = self._builder.build()
        if self.message_set:
            self.message_set += rest
            rest = self.message_set
        return Inner(rest, self.record_count, self.max_timestamp, self.first_content)


def _copying(
    reader: Any, writer: _Writer, policy: HeaderPolicy, step_records: int, index: int, may_be_large: bool
) -> Steps[int]:
    """Append records of one batch, of which the first is its record ``index``; return how many headers they have.
    ``may_be_large``: together they may have more bytes than are copied in one step. Raises Malformed, HeaderRefused,
    and what the reader raises."""
    append = writer.append
    offset = writer.record_count
    first_offset = offset - index
    max_timestamp = writer.max_timestamp
    pause_at = offset + step_records
    copied_bytes = headers = 0
    for record in reader:
        if record.offset != offset - first_offset:
            raise Malformed(f"record {offset - first_offset}: offset delta {record.offset}")
        timestamp = record.timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        key, value = record.key, record.value
        if record.headers:
            policy.check(record.headers)
            pause_at -= len(record.headers)
            headers += len(record.headers)
        if not offset:
            if may_be_large:
                writer.first_content = yield from digesting_content(key, value)
            else:
                writer.first_content = content_digest(key, value)
        if may_be_large and (size := len(key or b"") + len(value or b"")) > STEP_BYTES:
            yield from writer.appending_large(offset, timestamp, key, value)
            append = writer.append
        else:
            append(offset, timestamp, key, value)
        offset += 1
        if may_be_large:
            copied_bytes += size
        if offset >= pause_at or copied_bytes >= STEP_BYTES:
            pause_at, copied_bytes = offset + step_records, 0
            yield
    writer.record_count, writer.max_timestamp = offset, max_timestamp
    return headers


def _opening(header: BatchHeader, payload: Buffer, record_count: int) -> Steps[tuple[Any, int]]:
    """Return a reader on so many records of a batch, which are ``payload``, and how many of them it reads in one step.

    A record that is larger than a step is read in place. All others are left to the compiled reader, which copies. It
    is given plain records with create time only: so it decompresses nothing (we do, with a limit), and gives the
    records' own times. It reads a number before it checks that the number ends within the data, at most two in a row:
    so it gets a copy followed by zeros, in memory that is ours, where each such number ends at once.
    """
    longest = 0
    if len(payload) > HEADERS_BYTES_UNCHECKED:
        longest = yield from finding_longest(payload)
    if longest > STEP_BYTES:
        return iterate_large_records(memoryview(payload), header, record_count), _STEP_RECORDS_IN_PLACE
    start = _plain_header(header, len(payload), record_count)
    padded: Buffer
    if len(payload) <= STEP_BYTES:
        padded = b"".join((start, payload, _READER_PADDING))
    else:
        padded = yield from _copied(start, payload, _READER_PADDING)
    return DefaultRecordBatch(memoryview(padded)[: -len(_READER_PADDING)]), STEP_RECORDS


def _copied(*chunks: Buffer) -> Steps[bytearray]:
    copy = bytearray()
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view), STEP_BYTES):
            copy += view[start : start + STEP_BYTES]
            yield
    return copy


def _plain_header(header: BatchHeader, payload_bytes: int, record_count: int) -> bytes:
    length = BATCH_OVERHEAD_BYTES - SIZE_FIELDS_BYTES + payload_bytes
    return HEADER.pack(0, length, -1, MAGIC, 0, 0, record_count - 1, header.base_timestamp, 0, -1, -1, -1, record_count)
