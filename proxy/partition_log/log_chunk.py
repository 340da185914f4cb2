"""One fetched piece of a partition's log, taken apart once for all searches that read it. Pure.

It says where batch markers are, where offsets are missing and what is stored without a batch marker. What follows from
that is concluded in ``log_search.py``."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from ...codecs.batch_marker import DIGEST_BYTES, Identity, digesting_content, parse_batch_marker
from ...codecs.convert import InnerContents, digesting_inner, digesting_logged
from ...codecs.errors import WireError
from ...codecs.header_marker import header_marker_of
from ...codecs.logged import Logged, LoggedBatch, iterate_logged
from ...codecs.message_set import ShallowMessage
from ...codecs.steps import STEP_BYTES, STEP_RECORDS, Steps, at_once
from ...reactor import Buffer
from ...state.commit import Stored
from ...state.decide import BatchIdentity
from .. import limits
from ..bridge.asks import FetchAnswer, FetchRecords
from ..versions import BrokerRanges
from .recognised import AHEAD_MAX, Recogniser

_CHUNK_BYTES: Final = 1024
_MESSAGE_BYTES: Final = 800
_IDENTITY_BYTES: Final = 420
_CONTENT_BYTES: Final = 18
_BUCKET_BYTES: Final = 330
"""Bytes of memory that the notes of a chunk take: the chunk itself, each message, each identity in a batch marker, each
digest, each bucket of digests."""
_RECORDS_PER_BATCH_MARKER: Final = 4
_BYTES_PER_RECORD: Final = STEP_BYTES // STEP_RECORDS
"""The work of taking a chunk apart is counted in records of other writers: so many unpacked bytes count as one more
record, and one message of ours (with a batch marker) as ``_RECORDS_PER_BATCH_MARKER``."""


class Marked(NamedTuple):
    """A stored message with a batch marker. ``first``: the offset of its first record."""

    first: int
    message: ShallowMessage
    identities: tuple[Identity, ...]


class _Contents:
    """Digests of records, and the offsets where they are. 16 bytes for each (and what the arrays grow ahead), as there
    may be millions; in a few large arrays rather than many objects, so that freeing them takes no time."""

    __slots__ = ("_buckets", "count")

    def __init__(self) -> None:
        self.count = 0
        self._buckets: dict[int, tuple[bytearray, array[int]]] = {}

    @property
    def held_bytes(self) -> int:
        return len(self._buckets) * _BUCKET_BYTES + self.count * _CONTENT_BYTES

    def add(self, digest: bytes, offset: int) -> None:
        self.count += 1
        bucket = self._buckets.get(digest[0])
        if bucket is None:
            bucket = self._buckets[digest[0]] = (bytearray(), array("q"))
        bucket[0].extend(digest)
        bucket[1].append(offset)

    def offsets_of(self, digest: bytes) -> Iterator[int]:
        """Yield the offsets of the records with this digest, in the order in which they were added."""
        digests, offsets = self._buckets.get(digest[0], (b"", ()))
        position = digests.find(digest)
        while position >= 0:
            index, odd = divmod(position, DIGEST_BYTES)
            if not odd:
                yield offsets[index]
            position = digests.find(digest, position + 1)


class LogChunk:
    """What one fetch returned, from ``start`` up to (without) ``end``. If ``end`` is ``start``, it has no complete
    message. ``error_code``: the broker's. ``unreadable``: why the message at ``end`` cannot be read. ``gaps``: ranges
    in which offsets are missing, from and to (exclusive). ``size_bytes``: as fetched, up to ``end`` if there is a
    ``rest``: what comes after that, as one chunk may not have so much. ``held_bytes``: the memory that the chunk
    takes."""

    def __init__(self, start: int, answer: FetchAnswer) -> None:
        self.start = self.end = start
        self.error_code = answer.error_code
        self.high_watermark = answer.high_watermark
        self.size_bytes = self.held_bytes = len(answer.records)
        self.rest = memoryview(b"")
        self.unreadable: str | None = None
        self.gaps: list[tuple[int, int]] = []
        self.marked: list[Marked] = []
        self.messages: list[tuple[int, Logged]] = []
        """Every message or batch with the offset of its first record, in order."""
        self._unopened: ShallowMessage | None = None
        self._contents = _Contents()
        self._identity_count = 0
        self.unmarked_to = start
        """The offset after the last message without a batch marker; ``start`` if there is none."""
        self.hidden_to = start
        """The offset after the last batch of format v2 with a batch marker; ``start`` if there is none."""
        self._unpacked_bytes = 0
        self._pieces: dict[int, list[tuple[Stored, Logged]]] = {}
        self.marked_batches: list[LoggedBatch] = []
        """Those of format v2, in order: each may be any producer's."""

    @property
    def _foreign_count(self) -> int:
        return self._contents.count

    @property
    def _noted_bytes(self) -> int:
        noted_bytes = _CHUNK_BYTES + len(self.messages) * _MESSAGE_BYTES + self._identity_count * _IDENTITY_BYTES
        return noted_bytes + self._contents.held_bytes

    @property
    def _read_count(self) -> int:
        """The work done so far, as a number of records that take as long."""
        own = (len(self.marked) + len(self.marked_batches)) * _RECORDS_PER_BATCH_MARKER + self._identity_count
        return self._foreign_count + self._unpacked_bytes // _BYTES_PER_RECORD + own

    def read(self, records: memoryview) -> Steps[None]:
        """Take all messages apart, once. The chunk has no content before that."""
        read_before = 0
        try:
            for message in iterate_logged(records):
                if message.offset >= self.start:
                    yield from self._take(message)
                if (
                    self._foreign_count >= limits.CHUNK_RECORDS_MAX
                    or self._unpacked_bytes + self._noted_bytes >= limits.CHUNK_MEMORY_BYTES_MAX
                ):
                    self.size_bytes = message.start + message.size_bytes
                    self.rest = records[self.size_bytes :]
                    break
                if self._read_count - read_before >= limits.CHUNK_STEP_RECORDS:
                    read_before = self._read_count
                    yield
        except WireError as error:
            self.unreadable = str(error)
        self.held_bytes = len(records) + self._noted_bytes

    def _take_batch(self, batch: LoggedBatch) -> Steps[None]:
        """One without a producer may be a wrapper that a broker has stored in its own format."""
        if not batch.is_plain:
            self.marked_batches.append(batch)
            self._add(batch.first, batch)
            if batch.marker is not None:
                self.hidden_to = self.end
            return
        try:
            contents = yield from digesting_logged(batch, limits.DECOMPRESSED_BYTES_MAX)
            for number, (offset, digest) in enumerate(contents, 1):
                self._contents.add(digest, offset)
                if not number % STEP_RECORDS:
                    yield
            is_gap = batch.header.record_count < batch.record_count
        except WireError:
            is_gap = True
        self._unpacked_bytes += batch.size_bytes
        self._add(batch.first, batch)
        if is_gap:
            self.gaps.append((batch.first, batch.offset + 1))
        self.unmarked_to = self.end

    def _add(self, first: int, message: Logged) -> None:
        if first > self.end:
            self.gaps.append((self.end, first))
        self.messages.append((first, message))
        self.end = message.offset + 1

    def _take(self, message: Logged) -> Steps[None]:
        if isinstance(message, LoggedBatch):
            yield from self._take_batch(message)
            return
        marked, is_gap = marked_of(message), False
        if marked is not None:
            first = marked.first
            self.marked.append(marked)
            self._identity_count += len(marked.identities)
            for found_id, piece in pieces_in(marked):
                self._pieces.setdefault(found_id, []).append((piece, message))
        elif message.is_wrapper:
            self._unopened = message
            inner = yield from digesting_inner(message, limits.DECOMPRESSED_BYTES_MAX)
            self._unopened = None
            first = inner.offsets[0]
            yield from self._note_contents(inner)
            self._unpacked_bytes += inner.size_bytes
            is_gap = message.offset - first >= len(inner.offsets)  # compaction has left some of its records out
        else:
            first = message.offset
            self._contents.add((yield from digesting_content(message.key, message.value)), first)
        self._add(first, message)
        if is_gap:
            self.gaps.append((first, message.offset + 1))
        if marked is None:
            self.unmarked_to = self.end

    def _note_contents(self, inner: InnerContents) -> Steps[None]:
        """Note the digests of the records in a wrapper without a batch marker. Nothing else of them is kept: unpacked,
        a wrapper may be a thousand times as large."""
        count = len(inner.offsets)
        for start in range(0, count, STEP_RECORDS):
            for index, digest in enumerate(inner.of(start, start + STEP_RECORDS), start):
                self._contents.add(digest, inner.offsets[index])
            if start + STEP_RECORDS < count:
                yield

    def message_at(self, offset: int) -> Logged | None:
        """Return the message that contains this offset, None if there is none."""
        for first, message in self.messages:
            if message.offset >= offset:
                return message if first <= offset else None
        unopened = self._unopened  # its inside cannot be read, but its own offset is that of its last record
        return unopened if unopened is not None and unopened.offset == offset else None

    def pieces_from(self, recogniser: Recogniser, start: int) -> Steps[list[tuple[Stored, Logged]]]:
        """Return what the chunk has of a producer from the message on that contains this offset, or comes after it, in
        order, each piece with the message that holds it. The recogniser comes further with each step."""
        named = self._pieces.get(recogniser.producer_id, [])
        named = named[bisect_left(named, start, key=_offset_of_message) :]
        batches = self.marked_batches
        found: list[tuple[Stored, Logged]] = []
        taken, done = 0, recogniser.work
        for batch in batches[bisect_left(batches, start, key=_offset) :]:
            while taken < len(named) and named[taken][1].offset < batch.offset:
                recogniser.passes(named[taken][0])
                found.append(named[taken])
                taken += 1
            piece = recogniser.is_it(batch)
            if piece is not None:
                found.append((piece, batch))
            if recogniser.work - done >= limits.CHUNK_STEP_RECORDS:
                done = recogniser.work
                yield
        for piece, _ in named[taken:][-AHEAD_MAX:]:  # more of them would push each other out
            recogniser.passes(piece)
        found += named[taken:]
        return found

    def copies_from(self, batches: Collection[Identity], start: int) -> Steps[list[tuple[Identity, int]]]:
        """Return where the chunk has batches of any producers, each with its offset; of one that is stored in parts,
        where it has its first part."""
        found: list[tuple[Identity, int]] = []
        names: dict[tuple[int, int, int], list[Identity]] = {}
        """Several batches have the same numbers where one of them is the rest of another."""
        for name in batches:
            names.setdefault(name[:3], []).append(name)
        taken = 0
        for producer_id in dict.fromkeys(name.producer_id for name in batches):
            pieces = self._pieces.get(producer_id, [])
            for piece, _ in pieces[bisect_left(pieces, start, key=_offset_of_message) :]:
                named = names.get((producer_id, piece.producer_epoch, piece.base_sequence), ())
                found += [(name, piece.base_offset) for name in named]
                taken += 1
                if not taken % limits.CHUNK_STEP_RECORDS:
                    yield
        markers = {header_marker_of(name): [name] for name in batches}
        first = bisect_left(self.marked_batches, start, key=_offset)
        for number, batch in enumerate(self.marked_batches[first:], 1):
            known = names.get(batch.header[6:9], ()) if batch.marker is None else markers.get(batch.marker, ())
            found += [(one, batch.first) for one in known if one.record_count == batch.record_count]
            if not number % limits.CHUNK_STEP_RECORDS:
                yield
        return found

    def first_and_last_gap(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the first and the last range between these offsets in which some are missing; there may be one or
        none."""
        first = bisect_right(self.gaps, start, key=_end)
        last = bisect_left(self.gaps, stop, key=_begin) - 1
        if first <= last:
            yield self.gaps[first]
        if first < last:
            yield self.gaps[last]

    def offsets_of(self, content: bytes) -> Iterator[int]:
        """Return the offsets of records without a batch marker that have this content."""
        return self._contents.offsets_of(content)


def _offset_of_message(one: tuple[Stored, Logged]) -> int:
    return one[1].offset


def _offset(batch: LoggedBatch) -> int:
    return batch.offset


def _begin(gap: tuple[int, int]) -> int:
    return gap[0]


def _end(gap: tuple[int, int]) -> int:
    return gap[1]


def taking_apart(start: int, answer: FetchAnswer) -> Steps[LogChunk]:
    """Return the chunk that one fetch from ``start`` on has returned."""
    chunk = LogChunk(start, answer)
    yield from chunk.read(answer.records)
    return chunk


def carries(message: Logged, wanted: Sequence[Stored], producer_id: int) -> bool:
    """Does the message's batch marker name every piece in ``wanted``, at its offset? A batch that is stored in parts
    begins with its first part."""
    known = Recogniser(producer_id, [BatchIdentity(*_fields(piece)) for piece in wanted])
    stored = {(p.producer_epoch, p.base_sequence, p.base_offset) for p in known.pieces_of(message)}
    return all((piece.producer_epoch, piece.base_sequence, piece.base_offset) in stored for piece in wanted)


def _fields(piece: Stored) -> tuple[int, int, int]:
    return piece.producer_epoch, piece.base_sequence, piece.record_count


def has_content(message: Logged, offset: int, content: bytes) -> Steps[bool]:
    """Has the record at this offset of a message without a batch marker this digest? False for a message with a batch
    marker, or a producer id: its producer is known without looking into it. Raises WireError."""
    is_named = not message.is_plain if isinstance(message, LoggedBatch) else marked_of(message) is not None
    return not is_named and (yield from holds_content(message, offset, content))


def holds_content(message: Logged, offset: int, content: bytes) -> Steps[bool]:
    """The same, whether or not the message has a batch marker. Raises WireError."""
    if isinstance(message, LoggedBatch):
        contents = yield from digesting_logged(message, limits.DECOMPRESSED_BYTES_MAX)
        at = bisect_left(contents, (offset, b""))
        return contents[at : at + 1] == [(offset, content)]
    if not message.is_wrapper:
        return message.offset == offset and (yield from digesting_content(message.key, message.value)) == content
    inner = yield from digesting_inner(message, limits.DECOMPRESSED_BYTES_MAX)
    return offset in inner.offsets and content in inner.of(at := inner.offsets.index(offset), at + 1)


def marked_of(message: ShallowMessage) -> Marked | None:
    """Return the message with the identities in its batch marker; None if it has no batch marker."""
    identities = parse_batch_marker(message.key) if message.is_wrapper else None
    if identities is None:
        return None
    return Marked(message.offset + 1 - sum(identity.record_count for identity in identities), message, identities)


def pieces_in(marked: Marked) -> Iterator[tuple[int, Stored]]:
    """Yield what a message with a batch marker holds, in order: producer id and piece."""
    offset = marked.first
    for identity in marked.identities:
        yield identity.producer_id, Stored(*identity[1:], offset)
        offset += identity.record_count


class Reach(IntEnum):
    """How much of a log a search may have to read. Those of one reach share a pass, and the passes alternate."""

    NEAR_END = 0
    """Little (``limits.NEAR_END_OFFSETS``)."""
    FROM_BOUND = 1
    """What comes after a bound that was recognised (rule R8)."""
    WHOLE_LOG = 2


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ReadLog:
    """A request for what lies at ``offset`` and after it in a partition, below the high watermark. Requests at the same
    time are served by one pass through the log, or by what was read a moment ago.

    ``reach``: how much is asked for next, about. ``joins``: any chunk of its pass from the offset on will do.
    ``is_wanted``: does anybody still wait for it? ``since``: a fetch that left earlier than this (reactor seconds) does
    not serve it."""

    topic: str
    partition: int
    offset: int
    bytes_max: int = limits.FETCH_BYTES
    since: float = 0.0
    reach: Reach = Reach.NEAR_END
    joins: bool = False
    is_wanted: Callable[[], bool] = _always

    def is_served_by(self, chunk: LogChunk, left_at: float, *, is_own: bool) -> bool:
        """Does the chunk, of a fetch that left then, begin at or below the offset, and go beyond it? Or, where the
        question joins a pass, anywhere above. ``is_own``: the chunk is of the question's own pass."""
        if self.since > left_at:
            return False
        if self.offset == chunk.start or chunk.start <= self.offset < chunk.end:
            return True
        return self.joins and is_own and self.offset < chunk.start < chunk.end

    def fetch(self) -> FetchRecords:
        """Return the request to the broker."""
        return FetchRecords(self.topic, self.partition, self.offset, self.bytes_max)

    @property
    def api_key(self) -> int:
        """Fetch."""
        return self.fetch().api_key

    def version_for(self, ranges: BrokerRanges) -> int:
        """As of the fetch."""
        return self.fetch().version_for(ranges)

    def encode(self, api_version: int) -> bytes:
        """As of the fetch."""
        return self.fetch().encode(api_version)

    def parse(self, api_version: int, body: Buffer) -> LogChunk:
        """Return the chunk with its messages taken apart."""
        return at_once(self.read(api_version, body))

    def read(self, api_version: int, body: Buffer) -> Steps[LogChunk]:
        """The same in steps, so that others get turns between them."""
        return (yield from taking_apart(self.offset, self.fetch().parse(api_version, body)))


def ends_below(message: Logged, offset: int) -> bool:
    """Does the message, or a batch in it, end right below this offset? In a log that was truncated or recreated the
    same message may lie elsewhere, with this offset in its middle."""
    if isinstance(message, LoggedBatch):
        return message.offset + 1 == offset
    marked = marked_of(message)
    if marked is None:
        return message.offset + 1 == offset
    return any(piece.base_offset + piece.record_count == offset for _, piece in pieces_in(marked))
