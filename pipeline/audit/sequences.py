"""One partition judged by the numbers of its producers: what is there twice, missing, out of order, or not marked.

Takes the runs of a partition in the order of their offsets; values are not needed. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ...codecs.batch_marker import Identity
from ...codecs.header_marker import header_marker_of
from ...state.sequence import SEQUENCE_MODULUS
from ..reading.contents import Array
from ..reading.places import END_OF_FILE
from .findings import finding_rows
from .kinds import Finding
from .rows import NO_KEY, NO_MARKER, NO_PRODUCER, Columns, Kind, taken

_HALF: Final = SEQUENCE_MODULUS // 2


class Covered(NamedTuple):
    """Sequences ``start`` to below ``end``, which lie one after the other from ``offset`` on."""

    start: int
    end: int
    offset: int


@dataclass(slots=True)
class ProducerLog:
    """What one epoch of a producer has in a partition. Sequences are unwrapped: they do not begin at 0 again after
    2^31."""

    pieces: list[Covered] = field(default_factory=list)
    """By sequence; none overlaps another."""
    repeated: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(offset, offset of the first copy, sequence, count)"""
    inverted: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(offset, offset of the highest sequence before it, sequence, count)"""
    _starts: list[int] = field(default_factory=list)
    _highest: int = -(1 << 62)
    _highest_at: int = -1

    def set_unbroken(self, start: int, count: int, offset: int) -> None:
        """Set the whole log at once, where the sequences of each run continue those of the run before. The runs need
        not be adjacent in the log: without a gap or a repetition only the first offset is asked for."""
        self.pieces, self._starts = [Covered(start, start + count, offset)], [start]

    def add(self, offset: int, start: int, count: int) -> None:
        """Add the next run in the order of offsets."""
        position, end = start, start + count
        while position < end:
            index = bisect_right(self._starts, position) - 1
            if index >= 0 and self.pieces[index].end > position:
                known = self.pieces[index]
                stop = min(end, known.end)
                first_copy = known.offset + position - known.start
                self.repeated.append((offset + position - start, first_copy, position, stop - position))
            else:
                stop = min(end, self._starts[index + 1]) if index + 1 < len(self._starts) else end
                self._insert(index, Covered(position, stop, offset + position - start))
            position = stop
        if end > self._highest:
            self._highest, self._highest_at = end, offset + count - 1

    def _insert(self, index: int, new: Covered) -> None:
        if new.start < self._highest:
            self.inverted.append((new.offset, self._highest_at, new.start, new.end - new.start))
        if index >= 0:
            before = self.pieces[index]
            if before.end == new.start and before.offset + before.end - before.start == new.offset:
                self.pieces[index] = Covered(before.start, new.end, before.offset)
                return
        self._starts.insert(index + 1, new.start)
        self.pieces.insert(index + 1, new)

    def missing(self, start: int, count: int) -> int:
        """Return how many of these sequences are not there."""
        found, position, end = 0, start, start + count
        for index in range(max(bisect_right(self._starts, start) - 1, 0), len(self.pieces)):
            piece = self.pieces[index]
            if piece.start >= end:
                break
            found += max(0, min(end, piece.end) - max(position, piece.start))
        return count - found

    def gaps(self) -> Iterator[tuple[Covered, Covered]]:
        """Yield the neighbours of every gap."""
        for before, behind in zip(self.pieces, self.pieces[1:], strict=False):
            if before.end < behind.start:
                yield before, behind


class Partition:
    """The rows of one partition."""

    def __init__(self, place: int, start: int, end: int, rows: Columns, has_holes: bool | None = None) -> None:
        """``start``: the first offset of the log when the audit began; ``end``: after the last one then (of segment
        files ``END_OF_FILE``). ``rows``: in the order of offsets. ``has_holes``: as of ``Place``."""
        self._place, self._start, self._end = place, start, end
        kinds = rows["kind"]
        self._runs = taken(rows, kinds == Kind.RUN)
        self._acknowledged = taken(rows, kinds == Kind.ACKNOWLEDGED)
        is_asked = len(self._acknowledged["offset"]) > 0
        self._markers = frozenset(self._runs["hash1"].tolist() if is_asked else ()) - {NO_MARKER}
        self._unreadable = taken(rows, (kinds == Kind.UNREADABLE) | (kinds == Kind.DELETED))
        within = taken(rows, kinds == Kind.HOLE)
        between = self._between(taken(rows, np.isin(kinds, (Kind.RUN, Kind.UNREADABLE, Kind.DELETED))))
        is_lost = self._lost(between[0], has_holes)
        self._missing = between[0][is_lost], between[1][is_lost]
        firsts = np.concatenate((within["offset"], between[0][~is_lost]))
        lasts = np.concatenate((within["last_offset"], between[1][~is_lost]))
        self._holes = int((lasts - firsts + 1).sum())
        # Whatever the reason, sequences that were at offsets which cannot be read are not missing for certain.
        self._absent = _sorted_spans(
            np.concatenate((firsts, self._unreadable["offset"])),
            np.concatenate((lasts, self._unreadable["last_offset"])),
        )
        self._logs: dict[tuple[int, int], tuple[int, ProducerLog]] = {}

    def findings(self) -> Iterator[pa.RecordBatch]:
        """Yield everything that is wrong by the numbers, and what is worth a note."""
        runs = self._runs
        is_identified, is_marked = runs["producer_id"] >= 0, runs["hash1"] != NO_MARKER
        identified = taken(runs, is_identified)
        yield from self._by_producer(identified)
        yield from self._regressions(identified)
        yield from self._stored_twice(taken(runs, is_marked))
        if (is_identified | is_marked).any():
            foreign = taken(runs, ~is_identified & ~is_marked & (runs["size"] > 0))
            yield self._rows(Finding.FOREIGN_WRITER, foreign, count=foreign["size"])
        yield from self._not_there()
        firsts, lasts = self._missing
        if len(firsts):
            found = {"offset": firsts, "last_offset": lasts, "count": lasts - firsts + 1}
            yield finding_rows(Finding.MISSING_OFFSETS, len(firsts), place=self._place, **found)
        if self._holes:
            yield finding_rows(Finding.OFFSET_HOLE, 1, place=self._place, count=self._holes)

    def _rows(self, kind: Finding, of: Columns, **more: Array) -> pa.RecordBatch:
        names = ("offset", "last_offset", "timestamp", "producer_id", "epoch", "sequence")
        given = {name: of[name] for name in names} | more
        return finding_rows(kind, len(of["offset"]), place=self._place, **given)

    def _between(self, covering: Columns) -> tuple[Array, Array]:
        """Return the first and last offsets of what no run covers: between two of them, before the first one, as
        compaction leaves the log's start where it was, and after the last one. Where a segment file ends is not
        known."""
        order = np.argsort(covering["offset"], kind="stable")
        end = [] if self._end >= END_OF_FILE else [self._end]
        firsts = np.concatenate((covering["offset"][order], np.array(end, np.int64)))
        lasts = np.concatenate((np.array([self._start], np.int64), covering["last_offset"][order] + 1))
        behind = np.maximum.accumulate(lasts)[: len(firsts)]
        at = np.flatnonzero(firsts > behind)
        return behind[at], firsts[at] - 1

    def _lost(self, holes: Array, has_holes: bool | None) -> Array:
        """Return which holes, that begin there, compaction cannot have left. It goes from the start of a log on, and
        removes every record without a key: where one of these lies before a hole, it has never come so far."""
        if has_holes is not None:
            return np.full(len(holes), not has_holes)
        keyless = self._runs["offset"][self._runs["flags"] & NO_KEY != 0]
        return np.asarray(holes > keyless.min(initial=1 << 62))

    def _absent_between(self, low: int, high: int) -> int:
        """Return how many offsets between these two have no record that was read."""
        firsts, lasts = self._absent
        begin, end = np.searchsorted(firsts, (low, high))
        return int((lasts[begin:end] - firsts[begin:end] + 1).sum())

    def _by_producer(self, runs: Columns) -> Iterator[pa.RecordBatch]:
        order = np.lexsort((runs["offset"], runs["epoch"], runs["producer_id"]))
        runs = taken(runs, order)
        count = len(order)
        if not count:
            return
        ids, epochs = runs["producer_id"], runs["epoch"]
        is_new = np.ones(count, bool)
        is_new[1:] = (ids[1:] != ids[:-1]) | (epochs[1:] != epochs[:-1])
        heads = np.flatnonzero(is_new)
        for begin, end in zip(heads.tolist(), [*heads[1:].tolist(), count], strict=True):
            yield from self._one_producer(taken(runs, np.arange(begin, end)))

    def _one_producer(self, runs: Columns) -> Iterator[pa.RecordBatch]:
        offsets, sequences = runs["offset"], runs["sequence"].astype(np.int64)
        counts = runs["last_offset"] - offsets + 1
        steps = (np.diff(sequences) + _HALF) % SEQUENCE_MODULUS - _HALF
        counted = sequences[0] + np.concatenate(([0], np.cumsum(steps)))
        log = ProducerLog()
        if (steps == counts[:-1]).all():
            log.set_unbroken(int(sequences[0]), int(counts.sum()), int(offsets[0]))
        else:
            for offset, start, length in zip(offsets.tolist(), counted.tolist(), counts.tolist(), strict=True):
                log.add(offset, start, length)
        identity = int(runs["producer_id"][0]), int(runs["epoch"][0])
        self._logs[identity] = int(sequences[0]), log
        for kind, found in ((Finding.DUPLICATE, log.repeated), (Finding.INVERSION, log.inverted)):
            for offset, other, start, length in found:
                yield self._finding(kind, identity, offset, offset + length - 1, other, start, length)
        lowest = log.pieces[0]
        if self._start == 0 and lowest.start > 0:
            yield self._gap(identity, -1, lowest.offset, 0, lowest.start)
        for before, behind in log.gaps():
            last = before.offset + before.end - before.start - 1
            yield self._gap(identity, last, behind.offset, before.end, behind.start - before.end)

    def _gap(self, identity: tuple[int, int], before: int, behind: int, start: int, count: int) -> pa.RecordBatch:
        explained = self._absent_between(min(before, behind), max(before, behind)) >= count
        kind = Finding.COMPACTED_GAP if explained else Finding.GAP
        return self._finding(kind, identity, behind, behind, before, start, count)

    def _finding(
        self, kind: Finding, identity: tuple[int, int], offset: int, last: int, other: int, start: int, count: int
    ) -> pa.RecordBatch:
        index = int(np.searchsorted(self._runs["offset"], offset, "right")) - 1
        return finding_rows(
            kind,
            1,
            place=self._place,
            offset=offset,
            last_offset=last,
            other_offset=other,
            timestamp=int(self._runs["timestamp"][index]),
            producer_id=identity[0],
            epoch=identity[1],
            sequence=start % SEQUENCE_MODULUS,
            count=count,
        )

    def _regressions(self, runs: Columns) -> Iterator[pa.RecordBatch]:
        order = np.lexsort((runs["offset"], runs["producer_id"]))
        runs = taken(runs, order)
        if not len(order):
            return
        ids, epochs = runs["producer_id"], runs["epoch"].astype(np.int64)
        number = np.concatenate(([0], np.cumsum(ids[1:] != ids[:-1])))
        # Producers come one after the other, so that one running maximum serves all of them.
        ranked = (number << 32) + epochs
        highest = np.maximum.accumulate(ranked)
        back = np.flatnonzero(ranked < highest)
        if len(back):
            first_at = np.searchsorted(highest, highest[back])
            found = taken(runs, back)
            others = runs["offset"][first_at]
            yield self._rows(Finding.EPOCH_REGRESSION, found, other_offset=others, count=found["size"])

    def _stored_twice(self, marked: Columns) -> Iterator[pa.RecordBatch]:
        """Yield the batches whose marker an earlier batch of as many records has. Whether they are the same is seen by
        their bytes: among millions of batches two may have the same marker by chance."""
        counts = marked["last_offset"] - marked["offset"] + 1
        order = np.lexsort((marked["offset"], counts, marked["hash1"]))
        marked, counts = taken(marked, order), counts[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (np.diff(marked["hash1"]) != 0) | (np.diff(counts) != 0)
        again = np.flatnonzero(~is_first)
        if len(again):
            heads = np.flatnonzero(is_first)
            firsts = marked["offset"][heads[np.searchsorted(heads, again) - 1]]
            yield self._rows(Finding.DUPLICATE, taken(marked, again), other_offset=firsts, count=counts[again])

    def _is_marked(self, producer: int, epoch: int, sequence: int, told: int, count: int) -> bool:
        """Whether a batch in the log has the marker of this one: where it was acknowledged, or elsewhere. How many
        records it has the log knows best: an old journal does not say it."""
        at = int(np.searchsorted(self._runs["offset"], told))
        if told >= 0 and at < len(self._runs["offset"]) and self._runs["offset"][at] == told:
            there = int(self._runs["last_offset"][at]) - told + 1
            if header_marker_of(Identity(producer, epoch, sequence, there)) == self._runs["hash1"][at]:
                return True
        return header_marker_of(Identity(producer, epoch, sequence, count)) in self._markers

    def _not_there(self) -> Iterator[pa.RecordBatch]:
        """Yield the acknowledged batches of which records are not in the log, or not recognisable there."""
        rows = self._acknowledged
        names = ("producer_id", "epoch", "sequence", "offset", "size")
        for number, (producer, epoch, sequence, told, count) in enumerate(
            zip(*(rows[name].tolist() for name in names), strict=True)
        ):
            missing = count
            if (producer, epoch) in self._logs:
                first, log = self._logs[producer, epoch]
                base = log.pieces[0].start if log.pieces else first
                start = base + (sequence - base + _HALF) % SEQUENCE_MODULUS - _HALF
                missing = log.missing(start, count)
            if missing and not (self._markers and self._is_marked(producer, epoch, sequence, told, count)):
                kind = Finding.ACKNOWLEDGED_UNKNOWN if self._cannot_tell(told) else Finding.ACKNOWLEDGED_ABSENT
                yield self._rows(kind, taken(rows, np.array([number])), count=np.array([missing]))

    def _cannot_tell(self, told: int) -> bool:
        """Whether records that were acknowledged at this offset may have been deleted, or may be there without a
        batch marker."""
        if told < 0:  # an old duplicate: the proxy returned no offset
            return self._start > 0 or self._holes > 0
        if told < self._start or told >= self._end or self._absent_between(told, told + 1):
            return True
        firsts, lasts = self._absent
        index = int(np.searchsorted(firsts, told, "right")) - 1
        if index >= 0 and lasts[index] >= told:
            return True
        index = int(np.searchsorted(self._runs["offset"], told, "right")) - 1
        if index < 0 or self._runs["last_offset"][index] < told:
            return False
        return bool(self._runs["producer_id"][index] == NO_PRODUCER and self._runs["hash1"][index] == NO_MARKER)


def _sorted_spans(firsts: Array, lasts: Array) -> tuple[Array, Array]:
    order = np.argsort(firsts, kind="stable")
    return firsts[order], lasts[order]
