"""What a range of one partition's log has of every producer, from the batch markers of the proxy. Pure.

Only a batch marker names a producer. A message without one, and offsets without a message, may hide something of any
producer. So the offset after the last of these is noted (``unknown_outcome_to``): a producer whose last piece lies
after it is known completely."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from ...codecs import message_set, record_batch
from ...codecs.batch_marker import anchor_of, parse_batch_marker
from ...codecs.errors import WireError
from ...state.commit import Gathered, Stored
from ...state.entry import NO_ANCHOR, NO_OFFSET
from ..reading.container import Broken, entries

NO_TIME: Final = -1
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
    records. ``last``: offset and anchor of the last message in it, to recognise this log later (format v2 has no
    anchor). ``problem``: why the rest of it cannot be read; empty: it was read to its end."""

    start: int
    end: int
    unknown_outcome_to: int
    producers: tuple[FoundProducer, ...]
    last: tuple[int, bytes] = (NO_OFFSET, NO_ANCHOR)
    bytes_read: int = 0
    problem: str = ""


class _Producer:
    __slots__ = ("anchor", "end_offset", "gathered", "time_ms")

    def __init__(self) -> None:
        self.gathered = Gathered()
        self.end_offset, self.anchor, self.time_ms = NO_OFFSET, NO_ANCHOR, NO_TIME


class RangeReading:
    """Takes what was fetched, in order. A message belongs to the range that has its last offset."""

    def __init__(self, start: int, end: int) -> None:
        self.position = self._start = start
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
            if magic == record_batch.MAGIC:
                self._take_batch(data[begin:behind])
            else:
                self._take_message(data[begin:behind])
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
        return FoundRange(
            self._start, self.end, self._unknown_outcome_to, producers, self._last, self._bytes_read, self._problem
        )

    # ------------------------------------------------------------------ inside
    def _take_batch(self, entry: memoryview) -> None:
        """Take a batch of format v2: it has no batch marker, so no producer of a proxy is known for it."""
        (base,) = _INT64.unpack_from(entry)
        last = base
        if len(entry) >= record_batch.BATCH_OVERHEAD_BYTES:
            last += max(record_batch.HEADER.unpack_from(entry)[6], 0)
        self._pass(base, last, NO_ANCHOR, in_doubt=True)

    def _take_message(self, entry: memoryview) -> None:
        (offset,) = _INT64.unpack_from(entry)
        try:
            (message,) = message_set.iterate_shallow(entry)
        except WireError:
            self._pass(offset, offset, NO_ANCHOR, in_doubt=True)
            return
        identities = parse_batch_marker(message.key) if message.is_wrapper else None
        if identities is None:
            # Where a wrapper begins that is not opened does not matter: it is in doubt, and what lies before it, too.
            self._pass(offset, offset, anchor_of(message), in_doubt=True)
            return
        first = offset + 1 - sum(identity.record_count for identity in identities)
        if not self._pass(first, offset, anchor_of(message), in_doubt=False):
            return
        for identity in identities:
            producer = self._producers.get(identity.producer_id)
            if producer is None:
                producer = self._producers[identity.producer_id] = _Producer()
            producer.gathered.take(Stored(*identity[1:], first))
            producer.end_offset, producer.anchor, producer.time_ms = offset + 1, self._last[1], message.timestamp
            first += identity.record_count

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
        return True


def joined(ranges: Iterable[FoundRange]) -> FoundRange:
    """Return what consecutive ranges have together. ``has_unmarked`` of each producer: something after its last piece
    may be its own."""
    producers: dict[int, _Producer] = {}
    start = end = unknown_outcome_to = NO_OFFSET
    bytes_read, last, problem = 0, (NO_OFFSET, NO_ANCHOR), ""
    for one in ranges:
        assert end in (NO_OFFSET, one.start), "ranges that follow each other"
        start = one.start if start == NO_OFFSET else start
        end, unknown_outcome_to, problem = (
            one.end,
            max(unknown_outcome_to, one.unknown_outcome_to),
            problem or one.problem,
        )
        bytes_read += one.bytes_read
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
    return FoundRange(start, end, unknown_outcome_to, whole, last, bytes_read, problem)
