"""Turns one range of a log into rows: which records there are, whose they are, what is missing between them. Values do
not leave it: each record has two hashes of 64 bits, halves of a BLAKE2b over its content. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from ...codecs.primitives import Buffer
from ...state.sequence import SEQUENCE_MODULUS
from ..reading.container import Broken, Container
from ..reading.contents import Array
from ..reading.decode import containers
from .rows import IS_MARKED, NO_KEY, NO_MARKER, NO_PRODUCER, Columns, Kind, columns, concatenated, record_batch, taken

LENGTHS_BYTES: Final = 8
"""Bytes of a content that belong to no field: the lengths of key and value."""


def hashes_of(contents: Iterable[Buffer]) -> tuple[Array, Array]:
    """Return two hashes of each content."""
    digests = b"".join([blake2b(content, digest_size=16).digest() for content in contents])
    halves = np.frombuffer(digests, "<i8").reshape(-1, 2)
    return halves[:, 0], halves[:, 1]


class RangeTaker:
    """Takes what was read of one range of offsets. A container belongs to the range that its last offset is in; in a
    container of plain messages this holds for each message."""

    def __init__(self, place: int, start: int, end: int, behind: int | None = None) -> None:
        """``start``, ``end``: the range, the second not included. ``behind``: where what comes after the range begins,
        if ``end`` does not say it, as of a segment file."""
        self._place = place
        self._end = end
        self._behind = end if behind is None else behind
        self._first = -1
        self.position = start
        """The offset after what was taken."""
        self.is_over = start >= end
        """The range was read to its end."""
        self._taken: list[Container] = []
        self._others: list[Columns] = []
        self._notes: list[str | None] = []

    def take(self, data: Buffer) -> pa.RecordBatch:
        """Return the rows of all whole entries in the data that belong to this range and were not taken before."""
        try:
            found = containers(data)
            for container in found:
                if container.last < self.position:
                    if self._first >= 0 and container.last < self._first:
                        self._unreadable(container.first, container.last, "offsets go back")
                    continue
                self.is_over = container.last >= self._end - 1
                if container.is_plain and container.first < self._end:
                    part = container.between(self.position, self._end)
                    if part is not None:
                        self._take(part)
                elif container.last < self._end:
                    if self._first >= 0 and container.first < self.position:
                        self._unreadable(container.first, container.last, "offsets go back")
                        self.position = container.last + 1
                    else:
                        self._take(container)
                elif container.unreadable and container.first < self._end:  # where it ends is not certain either
                    self._unreadable(max(container.first, self.position), self._end - 1, container.unreadable)
                if self.is_over:
                    following = None if container.is_plain else next(found, None)
                    if following is not None and following.last < container.last:
                        self._unreadable(self.position, self._end - 1, "offsets go back")
                    break
        except Broken as broken:
            last = max(self.position, self._behind - 1)
            self._unreadable(self.position, last, f"nothing can be read any more: {broken}")
            self.is_over = True
        return self._flushed()

    def deleted(self, last: int) -> pa.RecordBatch:
        """Everything from the position up to and with ``last`` is gone: retention has deleted it meanwhile."""
        self._other(Kind.DELETED, self.position, last)
        self.position = last + 1
        self.is_over = self.position >= self._end
        return self._flushed()

    def truncated(self) -> pa.RecordBatch:
        """The log ends at the position now, though it reached past the range before."""
        reason = f"the log ends at {self.position} now: its leader has lost what it had shown"
        self._unreadable(self.position, self._end - 1, reason)
        self.position, self.is_over = self._end, True
        return self._flushed()

    def cut_off(self) -> pa.RecordBatch:
        """What comes after the position cannot be found: an entry seems to continue after the end of its file."""
        last = max(self.position, self._behind - 1)
        self._unreadable(self.position, last, "an entry continues after the end of its file")
        return self._flushed()

    def torn(self, size: int) -> pa.RecordBatch:
        """So many bytes at the end of the file are no whole entry, as a crash leaves them."""
        self._other(Kind.CUT, self.position, self.position, f"{size} bytes at the end of the file are no whole entry")
        return self._flushed()

    def finished(self, bytes_read: int) -> pa.RecordBatch:
        """Return the row of the range itself."""
        self._other(Kind.RANGE, self._first, self.position, size=bytes_read)
        return self._flushed()

    def _take(self, container: Container) -> None:
        if self._first < 0:
            self._first = container.first
        self.position = container.last + 1
        if container.unreadable:
            self._unreadable(container.first, container.last, container.unreadable)
            return
        self._taken.append(container)
        if not container.is_control and len(container.offsets) <= container.last - container.first:
            edges = np.concatenate(([container.first - 1], container.offsets, [container.last + 1]))
            for at in np.flatnonzero(np.diff(edges) > 1).tolist():
                self._other(Kind.HOLE, int(edges[at]) + 1, int(edges[at + 1]) - 1)

    def _unreadable(self, first: int, last: int, reason: str) -> None:
        self._other(Kind.UNREADABLE, first, last, reason)

    def _other(self, kind: Kind, first: int, last: int, note: str | None = None, size: int = 0) -> None:
        self._others.append(columns(kind, self._place, 1, offset=first, last_offset=last, size=size))
        self._notes.append(note)

    def _flushed(self) -> pa.RecordBatch:
        blocks, notes = self._others, self._notes
        if self._taken:
            found = [_merged(_runs(self._place, self._taken)), _records(self._place, self._taken)]
            notes = [*notes, *[None] * sum(len(block["kind"]) for block in found)]
            blocks = [*blocks, *found]
        self._taken, self._others, self._notes = [], [], []
        return record_batch(concatenated(blocks), notes if any(notes) else None)


def _records(place: int, read: Sequence[Container]) -> Columns:
    lengths = [len(one.offsets) for one in read]
    offsets = np.concatenate([one.offsets for one in read])
    count = len(offsets)
    ids, epochs, sequences = (np.full(count, -1, np.int64) for _ in range(3))
    is_marked = np.repeat([one.marker is not None for one in read], lengths)
    last_of_batch = np.repeat([one.last for one in read], lengths)
    base = 0
    for one, length in zip(read, lengths, strict=True):
        for identity, first in one.pieces:
            begin, end = (base + np.searchsorted(one.offsets, (first, first + identity.record_count))).tolist()
            ids[begin:end], epochs[begin:end] = identity.producer_id, identity.producer_epoch
            sequences[begin:end] = (identity.base_sequence + offsets[begin:end] - first) % SEQUENCE_MODULUS
        base += length
    hash1, hash2 = hashes_of(chain.from_iterable(one.contents for one in read))
    return columns(
        Kind.RECORD,
        place,
        count,
        offset=offsets,
        last_offset=np.where(is_marked, last_of_batch, offsets),
        timestamp=np.concatenate([one.timestamps for one in read]),
        flags=np.repeat([one.flags for one in read], lengths) | is_marked * IS_MARKED,
        producer_id=ids,
        epoch=epochs,
        sequence=sequences,
        hash1=hash1,
        hash2=hash2,
        size=np.concatenate([one.contents.sizes for one in read]) - LENGTHS_BYTES,
    )


def _runs(place: int, read: Sequence[Container]) -> Columns:
    """Return a row for each batch, and for each container that names none."""
    rows: list[tuple[int, ...]] = []
    for one in read:
        timestamp = int(one.timestamps[0]) if len(one.offsets) else -1
        flags = NO_KEY if len(one.offsets) and (one.contents.fields().key_sizes < 0).any() else 0
        if not one.pieces:
            marker = NO_MARKER if one.marker is None else one.marker
            rows.append((one.first, one.last, timestamp, NO_PRODUCER, -1, -1, len(one.offsets), flags, marker))
        for identity, first in one.pieces:
            last = first + identity.record_count - 1
            there = identity.record_count
            if len(one.offsets) <= one.last - one.first:  # compacted, or no records at all
                there = int(np.diff(np.searchsorted(one.offsets, (first, last + 1)))[0])
            rows.append((first, last, timestamp, *identity[:3], there, flags, NO_MARKER))
    names = ("offset", "last_offset", "timestamp", "producer_id", "epoch", "sequence", "size", "flags", "hash1")
    fields = np.array(rows, np.int64).T
    return columns(Kind.RUN, place, len(rows), **dict(zip(names, fields, strict=True)))


def _merged(runs: Columns) -> Columns:
    """Return the runs, with those joined that continue the one before: by offsets, producer, epoch and sequence. One
    with a marker, which names neither, stays alone."""
    producer, epoch, sequence = runs["producer_id"], runs["epoch"], runs["sequence"].astype(np.int64)
    first, last, size = runs["offset"], runs["last_offset"], runs["size"]
    following = (sequence + last - first + 1) % SEQUENCE_MODULUS
    goes_on = (
        (first[1:] == last[:-1] + 1)
        & (producer[1:] == producer[:-1])
        & (epoch[1:] == epoch[:-1])
        & (runs["hash1"][1:] == NO_MARKER)
        & (runs["hash1"][:-1] == NO_MARKER)
        & ((producer[1:] == NO_PRODUCER) | (sequence[1:] == following[:-1]))
    )
    heads = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    merged = taken(runs, heads)
    merged["last_offset"] = last[np.append(heads[1:], len(first)) - 1]
    merged["size"] = np.add.reduceat(size, heads)
    merged["flags"] = np.bitwise_or.reduceat(runs["flags"], heads)
    return merged
