"""A piece of one partition's log, read and taken apart once for all who look for something in it. Pure.

It tells where markers are, where offsets are missing and what is stored without a marker; what follows from that is
concluded in ``resolver.py``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..codecs import message_set
from ..codecs.convert import content_of_message
from ..codecs.errors import WireError
from ..codecs.marker import Identity, parse_marker
from ..codecs.message_set import ShallowMessage
from ..reactor import Buffer
from ..state.commit import Stored
from . import limits
from .bridge.asks import FetchAnswer, FetchRecords
from .versions import BrokerRanges

_CHUNK_BYTES: Final = 1024
_MESSAGE_BYTES: Final = 800
_IDENTITY_BYTES: Final = 420
_CONTENT_BYTES: Final = 200
"""What is noted takes about so much memory: of a chunk, each message, each identity in a marker, each digest."""


class Marked(NamedTuple):
    """A message with a marker. ``first``: the offset of its first record."""

    first: int
    message: ShallowMessage
    identities: tuple[Identity, ...]


class LogChunk:
    """What one fetch brought from ``start`` on. It ends before ``end``; nothing whole is in it if that is the start.

    ``error_code``: the broker's. ``unreadable``: why the message at ``end`` cannot be read. ``gaps``: offsets, from and
    to, that are missing. ``held_bytes``: the memory that it takes."""

    def __init__(self, start: int, answer: FetchAnswer) -> None:
        self.start = self.end = start
        self.error_code = answer.error_code
        self.high_watermark = answer.high_watermark
        self.size_bytes = len(answer.records)
        self.unreadable: str | None = None
        self.gaps: list[tuple[int, int]] = []
        self.marked: list[Marked] = []
        self.messages: list[tuple[int, ShallowMessage]] = []
        """Every message and the offset of its first record, in order."""
        self._unopened: ShallowMessage | None = None
        self._contents: dict[bytes, list[int]] = {}
        self._foreign_count = 0
        self._unpacked_bytes = 0
        self._noted_bytes = _CHUNK_BYTES
        self._pieces: dict[int, list[tuple[Stored, ShallowMessage]]] | None = None
        try:
            for message in message_set.iterate_shallow(answer.records):
                if message.offset >= start:
                    self._take(message)
                if self._foreign_count >= limits.CHUNK_RECORDS_MAX:
                    break
                if self._unpacked_bytes + self._noted_bytes >= limits.CHUNK_MEMORY_BYTES_MAX:
                    break
        except WireError as error:
            self.unreadable = str(error)
        self.held_bytes = self.size_bytes + self._noted_bytes

    def _take(self, message: ShallowMessage) -> None:
        marked = marked_of(message)
        if marked is not None:
            first = marked.first
            self.marked.append(marked)
            self._noted_bytes += len(marked.identities) * _IDENTITY_BYTES
        elif message.is_wrapper:
            self._unopened = message
            inner = message_set.inner_messages(message, limits.DECOMPRESSED_BYTES_MAX)
            self._unopened = None
            first = inner[0].offset
            self._note_contents(inner)
            self._unpacked_bytes += inner[-1].start + inner[-1].size_bytes
            if message.offset - first >= len(inner):
                self.gaps.append((first, message.offset + 1))  # compaction has packed it anew
        else:
            first = message.offset
            self._note_contents((message,))
        if first > self.end:
            self.gaps.append((self.end, first))
        self.messages.append((first, message))
        self._noted_bytes += _MESSAGE_BYTES
        self.end = message.offset + 1

    def _note_contents(self, foreign: Collection[ShallowMessage]) -> None:
        """Only digests are kept of what has no marker: unpacked it may be a thousand times as large."""
        for message in foreign:
            self._contents.setdefault(content_of_message(message), []).append(message.offset)
        self._foreign_count += len(foreign)
        self._noted_bytes += len(foreign) * _CONTENT_BYTES

    def message_at(self, offset: int) -> ShallowMessage | None:
        """The message that has this offset; None: none has."""
        for first, message in self.messages:
            if message.offset >= offset:
                return message if first <= offset else None
        unopened = self._unopened  # whatever is in it: its last offset is its own
        return unopened if unopened is not None and unopened.offset == offset else None

    def pieces_of(self, producer_id: int) -> list[tuple[Stored, ShallowMessage]]:
        """What there is of a producer, in order, each with the message that holds it."""
        if self._pieces is None:
            self._pieces = {}
            for one in self.marked:
                for found_id, piece in pieces_in(one):
                    self._pieces.setdefault(found_id, []).append((piece, one.message))
        return self._pieces.get(producer_id, [])

    def offsets_of(self, content: bytes) -> list[int]:
        """Where records without a marker have this content."""
        return self._contents.get(content, [])


def carries(message: ShallowMessage, wanted: Iterable[Stored], producer_id: int) -> bool:
    """Does its marker name every one of ``wanted``, where they are? A batch that is stored in parts begins with its
    first part."""
    stored = {(p.producer_epoch, p.base_sequence, p.base_offset) for p in pieces_of(message, producer_id)}
    return all((piece.producer_epoch, piece.base_sequence, piece.base_offset) in stored for piece in wanted)


def has_content(message: ShallowMessage, offset: int, content: bytes | None) -> bool:
    """Has its record at ``offset`` this digest? Only a message without a marker is known by its content. It was read to
    the end before."""
    if content is None or marked_of(message) is not None:
        return False
    inner = message_set.inner_messages(message, limits.DECOMPRESSED_BYTES_MAX) if message.is_wrapper else [message]
    return any(one.offset == offset and content_of_message(one) == content for one in inner)


def marked_of(message: ShallowMessage) -> Marked | None:
    """The message with what its marker names; None: it has none."""
    identities = parse_marker(message.key) if message.is_wrapper else None
    if identities is None:
        return None
    return Marked(message.offset + 1 - sum(identity.record_count for identity in identities), message, identities)


def pieces_of(message: ShallowMessage, producer_id: int) -> Iterator[Stored]:
    """Give what a marked wrapper holds of the producer, with offsets; nothing for any other message."""
    marked = marked_of(message)
    if marked is not None:
        for found_id, piece in pieces_in(marked):
            if found_id == producer_id:
                yield piece


def pieces_in(marked: Marked) -> Iterator[tuple[int, Stored]]:
    """Give what a marked message holds, by producer id."""
    offset = marked.first
    for identity in marked.identities:
        yield identity.producer_id, Stored(*identity[1:], offset)
        offset += identity.record_count


@dataclass(frozen=True, slots=True)
class ReadLog:
    """What lies in a partition at ``offset``, which is below the high watermark, and after it. Who asks at one time is
    answered by one fetch, from the lowest offset on, or by one of a moment ago."""

    topic: str
    partition: int
    offset: int

    def fetch(self, bytes_max: int = limits.FETCH_BYTES) -> FetchRecords:
        """The question that a broker is asked."""
        return FetchRecords(self.topic, self.partition, self.offset, bytes_max)

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
        """What is stored there, taken apart."""
        return LogChunk(self.offset, self.fetch().parse(api_version, body))


def ends_below(message: ShallowMessage, offset: int) -> bool:
    """Does the message, or a batch in it, end right below this offset? The same message may lie elsewhere in another
    log, with that offset in its middle."""
    marked = marked_of(message)
    if marked is None:
        return message.offset + 1 == offset
    return any(piece.base_offset + piece.record_count == offset for _, piece in pieces_in(marked))
