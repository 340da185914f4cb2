"""What a range of one partition's log has of every producer. Pure.

The batch marker of a wrapper (format v1) names its producer, and so does the header of a batch of format v2 with a
producer id. The batch marker in the header of one without it names nobody: it is recognised by what Redis has of its
producer (``Recognisers``), as by a proxy. A message without any of these, a batch that nobody recognises, and offsets
without a message, may hide something of any producer. So the offset after the last of these is noted
(``unknown_outcome_to``): a producer whose last piece lies after it is known completely."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from ...codecs import record_batch
from ...codecs.batch_marker import parse_batch_marker
from ...codecs.errors import WireError
from ...codecs.header_marker import NO_PRODUCER_ID
from ...codecs.logged import LoggedBatch, anchor_of, iterate_logged
from ...codecs.message_set import ShallowMessage
from ...proxy.partition_log.recognised import Recognisers
from ...state.commit import Gathered, Stored
from ...state.entry import NO_ANCHOR, NO_OFFSET
from ..reading.container import Broken, entries

NO_TIME: Final = -1
Anchored = tuple[int, bytes]
"""The last offset of a message, and its anchor."""
_INT64: Final = Struct(">q")
_MAGIC_AT: Final = 16


@dataclass(frozen=True, slots=True)
class FoundProducer:
    """What a log has of one producer. Fields as of ``state.rebuilding.Found``. ``time_ms``: the timestamp of its last
    message; -1 if the format has none."""

    producer_id: int
    pieces: tuple[Stored, ...]
    end_offset: int
    anchor: bytes
    time_ms: int
    gap_at: int = NO_OFFSET
    has_unmarked: bool = False


@dataclass(frozen=True, slots=True)
class FoundRange:
    """What lies in [start, end). ``unknown_outcome_to``: the offset after the last thing that may hide a producer's
    records. ``last``: offset and anchor of the last message in it, to recognise this log later. ``unrecognised``: how
    many of its batches have a marker in their header that nobody recognised. ``problem``: why the rest of it cannot be
    read; empty: it was read to its end."""

    start: int
    end: int
    unknown_outcome_to: int
    producers: tuple[FoundProducer, ...]
    last: Anchored = (NO_OFFSET, NO_ANCHOR)
    bytes_read: int = 0
    problem: str = ""
    unrecognised: int = 0


class _Producer:
    __slots__ = ("anchor", "end_offset", "gathered", "time_ms")

    def __init__(self) -> None:
        self.gathered = Gathered()
        self.end_offset, self.anchor, self.time_ms = NO_OFFSET, NO_ANCHOR, NO_TIME


class RangeReading:
    """Takes what was fetched, in order. A message belongs to the range that has its last offset."""

    def __init__(
        self, start: int, end: int, recognisers: Recognisers | None = None, anchored: Collection[Anchored] = ()
    ) -> None:
        """``recognisers``: of the batches that name nobody. ``anchored``: last offsets of messages, with the anchor of
        each; those that are so are in ``holding``."""
        self.position = self._start = start
        self._recognisers = recognisers or Recognisers(())
        self._anchored = anchored
        self.holding: set[Anchored] = set()
        self.unrecognised_from = start
        """Batches below it are not counted."""
        self._unrecognised = 0
        self.end = end
        self._unknown_outcome_to = NO_OFFSET
        self._producers: dict[int, _Producer] = {}
        self._last = (NO_OFFSET, NO_ANCHOR)
        self._bytes_read = 0
        self._problem = ""

    @property
    def is_over(self) -> bool:
        """Is all of the range read?"""
        return self.position >= self.end or bool(self._problem)

    def take(self, data: memoryview) -> None:
        """Take what lies at ``position`` and after it; what is cut off at the end is left."""
        self._bytes_read += len(data)
        problem = ""
        try:
            starts, behind_all = entries(data)
        except Broken as broken:
            problem = f"nothing can be found any more: {broken}"
            starts, behind_all = entries(data[: broken.position])
        ends = [*starts.tolist(), behind_all][1:]
        for begin, behind in zip(starts.tolist(), ends, strict=True):
            if self.is_over:
                return
            magic = data[begin + _MAGIC_AT]
            if magic > record_batch.MAGIC:
                problem = f"an entry of magic {magic}"
                break
            self._take(data[begin:behind])
        if problem and not self.is_over:
            self._problem = f"behind offset {self.position - 1}: {problem}"

    def missing_to(self, offset: int) -> None:
        """There is nothing below this offset: deleted, or compacted away."""
        if offset > self.position:
            self._unknown_outcome_to = self.position = min(offset, self.end)

    def found(self) -> FoundRange:
        """Return all of it."""
        producers = tuple(
            FoundProducer(producer_id, tuple(one.gathered), one.end_offset, one.anchor, one.time_ms)
            for producer_id, one in self._producers.items()
        )
        where = self._start, self.end, self._unknown_outcome_to
        return FoundRange(*where, producers, self._last, self._bytes_read, self._problem, self._unrecognised)

    # ------------------------------------------------------------------ inside
    def _take(self, entry: memoryview) -> None:
        try:
            (logged,) = iterate_logged(entry)
        except WireError:
            (base,) = _INT64.unpack_from(entry)
            last = base
            if entry[_MAGIC_AT] == record_batch.MAGIC and len(entry) >= record_batch.BATCH_OVERHEAD_BYTES:
                last += max(record_batch.HEADER.unpack_from(entry)[6], 0)
            self._pass(base, last, NO_ANCHOR, in_doubt=True)
            return
        if isinstance(logged, LoggedBatch):
            self._take_batch(logged)
        else:
            self._take_message(logged)

    def _take_batch(self, batch: LoggedBatch) -> None:
        """Take a batch of format v2."""
        header, count, anchor = batch.header, batch.record_count, anchor_of(batch)
        if header.producer_id != NO_PRODUCER_ID:
            piece = Stored(header.producer_epoch, header.base_sequence, count, batch.first)
            if self._pass(batch.first, batch.offset, anchor, in_doubt=False) and header.base_sequence >= 0:
                self._note(header.producer_id, piece, header.max_timestamp)  # the end of a transaction has no sequence
                self._recognisers.passes(header.producer_id, piece)
            return
        # Its marker is looked at in log order, so not before it is certain that it belongs to the range.
        if not self._pass(batch.first, batch.offset, anchor, in_doubt=batch.marker is None) or batch.marker is None:
            return
        found = self._recognisers.piece_of(batch)
        if found is not None:
            self._note(*found, header.max_timestamp)
            return
        self._unknown_outcome_to = batch.offset + 1
        self._unrecognised += batch.first >= self.unrecognised_from

    def _take_message(self, message: ShallowMessage) -> None:
        offset, anchor = message.offset, anchor_of(message)
        identities = parse_batch_marker(message.key) if message.is_wrapper else None
        if identities is None:
            # Where a wrapper begins that is not opened does not matter: it is in doubt, and what lies before it, too.
            self._pass(offset, offset, anchor, in_doubt=True)
            return
        first = offset + 1 - sum(identity.record_count for identity in identities)
        if not self._pass(first, offset, anchor, in_doubt=False):
            return
        for identity in identities:
            piece = Stored(*identity[1:], first)
            self._note(identity.producer_id, piece, message.timestamp)
            self._recognisers.passes(identity.producer_id, piece)
            first += identity.record_count

    def _note(self, producer_id: int, piece: Stored, time_ms: int) -> None:
        """Take a piece of the message that was passed last."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = _Producer()
        producer.gathered.take(piece)
        last, producer.anchor = self._last
        producer.end_offset, producer.time_ms = last + 1, time_ms

    def _pass(self, first: int, last: int, anchor: bytes, *, in_doubt: bool) -> bool:
        """The next message covers these offsets. Return whether it belongs to the range."""
        if last < self.position:
            return False
        if first > self.position:
            self._unknown_outcome_to = min(first, self.end)
        if last >= self.end:
            if in_doubt:  # where a batch ends that is damaged is not certain
                self._unknown_outcome_to = self.end
            self.position = self.end
            return False
        if in_doubt:
            self._unknown_outcome_to = last + 1
        self.position = last + 1
        self._last = (last, anchor)
        if self._last in self._anchored:
            self.holding.add(self._last)
        return True


def joined(ranges: Iterable[FoundRange]) -> FoundRange:
    """Return what consecutive ranges have together. ``has_unmarked`` of each producer: something after its last piece
    may be its own."""
    producers: dict[int, _Producer] = {}
    start = end = unknown_outcome_to = NO_OFFSET
    bytes_read, last, problem, unrecognised = 0, (NO_OFFSET, NO_ANCHOR), "", 0
    for one in ranges:
        assert end in (NO_OFFSET, one.start), "ranges that follow each other"
        start = one.start if start == NO_OFFSET else start
        end, unknown_outcome_to, problem = (
            one.end,
            max(unknown_outcome_to, one.unknown_outcome_to),
            problem or one.problem,
        )
        bytes_read += one.bytes_read
        unrecognised += one.unrecognised
        last = one.last if one.last[0] != NO_OFFSET else last
        for found in one.producers:
            producer = producers.get(found.producer_id)
            if producer is None:
                producer = producers[found.producer_id] = _Producer()
            for piece in found.pieces:
                producer.gathered.take(piece)
            producer.end_offset, producer.anchor, producer.time_ms = found.end_offset, found.anchor, found.time_ms
    whole = tuple(
        FoundProducer(
            producer_id,
            tuple(one.gathered),
            one.end_offset,
            one.anchor,
            one.time_ms,
            has_unmarked=unknown_outcome_to > one.end_offset,
        )
        for producer_id, one in producers.items()
    )
    return FoundRange(start, end, unknown_outcome_to, whole, last, bytes_read, problem, unrecognised)
