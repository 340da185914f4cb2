"""One range of a log becomes rows: which records, whose, what is missing between them. Values do not leave it: of each
record there are two hashes of 64 bits, halves of one BLAKE2b over its content. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa

from ..codecs.primitives import Buffer
from ..state.sequence import SEQUENCE_MODULUS
from .decode import Broken, Container, containers
from .rows import NO_PRODUCER, Array, Columns, Kind, columns, concatenated, record_batch, taken

LENGTHS_BYTES: Final = 8
"""Of a content: the lengths of key and value in front of them."""


def hashes_of(contents: Sequence[Buffer]) -> tuple[Array, Array]:
    """Return two hashes of each content."""
    digests = b"".join([blake2b(content, digest_size=16).digest() for content in contents])
    halves = np.frombuffer(digests, "<i8").reshape(-1, 2)
    return halves[:, 0], halves[:, 1]


class RangeTaker:
    """Takes what was read of one range of offsets. A container belongs to the range that its last offset is in."""

    def __init__(self, place: int, start: int, end: int) -> None:
        """``start``, ``end``: the range, the second not included."""
        self._place = place
        self._end = end
        self._first = -1
        self.position = start
        """The offset behind what was taken."""
        self.is_over = start >= end
        """The range was read to its end."""
        self._rows: list[Columns] = []
        self._notes: list[str | None] = []

    def take(self, data: Buffer) -> pa.RecordBatch:
        """Return rows of all that is whole in the data, as far as it belongs here and was not taken before."""
        try:
            for container in containers(data):
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
                    self._take(container)
                if self.is_over:
                    break
        except Broken as broken:
            self._unreadable(self.position, max(self.position, self._end - 1), f"nothing can be read any more: {broken}")
            self.is_over = True
        return self._flushed()

    def lost(self, last: int) -> pa.RecordBatch:
        """What lies before ``last`` and at it is gone: retention has deleted it meanwhile."""
        self._add(columns(Kind.DELETED, self._place, 1, offset=self.position, last_offset=last))
        self.position = last + 1
        self.is_over = self.position >= self._end
        return self._flushed()

    def finished(self, bytes_read: int) -> pa.RecordBatch:
        """Return the row of the range itself."""
        self._add(
            columns(Kind.RANGE, self._place, 1, offset=self._first, last_offset=self.position, size=bytes_read),
        )
        return self._flushed()

    def _take(self, container: Container) -> None:
        if self._first < 0:
            self._first = container.first
        self.position = container.last + 1
        if container.unreadable:
            self._unreadable(container.first, container.last, container.unreadable)
            return
        self._add(_runs(self._place, container))
        if not container.is_control:
            self._add(_records(self._place, container))
            edges = np.concatenate(([container.first - 1], container.offsets, [container.last + 1]))
            at = np.flatnonzero(np.diff(edges) > 1)
            if len(at):
                starts, ends = edges[at] + 1, edges[at + 1] - 1
                self._add(columns(Kind.HOLE, self._place, len(at), offset=starts, last_offset=ends))

    def _unreadable(self, first: int, last: int, reason: str) -> None:
        self._add(columns(Kind.UNREADABLE, self._place, 1, offset=first, last_offset=last), [reason])

    def _add(self, rows: Columns, notes: Iterable[str] | None = None) -> None:
        self._rows.append(rows)
        self._notes.extend(notes if notes is not None else [None] * len(rows["kind"]))

    def _flushed(self) -> pa.RecordBatch:
        rows, notes = concatenated(self._rows), self._notes
        self._rows, self._notes = [], []
        kept = _merged(rows)
        if any(notes):
            return record_batch(taken(rows, kept), [notes[index] for index in kept.tolist()])
        return record_batch(taken(rows, kept))


def _records(place: int, container: Container) -> Columns:
    offsets, count = container.offsets, len(container.offsets)
    ids, epochs, sequences = (np.full(count, -1, np.int64) for _ in range(3))
    for identity, first in container.pieces:
        begin, end = np.searchsorted(offsets, (first, first + identity.record_count))
        ids[begin:end], epochs[begin:end] = identity.producer_id, identity.producer_epoch
        sequences[begin:end] = (identity.base_sequence + offsets[begin:end] - first) % SEQUENCE_MODULUS
    hash1, hash2 = hashes_of(container.contents)
    sizes = np.fromiter(map(len, container.contents), np.int64, count) - LENGTHS_BYTES
    return columns(
        Kind.RECORD,
        place,
        count,
        offset=offsets,
        last_offset=offsets,
        timestamp=container.timestamps,
        flags=container.flags,
        producer_id=ids,
        epoch=epochs,
        sequence=sequences,
        hash1=hash1,
        hash2=hash2,
        size=sizes,
    )


def _runs(place: int, container: Container) -> Columns:
    offsets = container.offsets
    timestamp = int(container.timestamps[0]) if len(offsets) else -1
    if not container.pieces:
        covered = {"offset": container.first, "last_offset": container.last}
        return columns(Kind.RUN, place, 1, timestamp=timestamp, size=len(offsets), **covered)
    fields = np.array([(*identity, first) for identity, first in container.pieces], np.int64)
    ids, epochs, sequences, counts, firsts = fields.T
    begins, ends = np.searchsorted(offsets, firsts), np.searchsorted(offsets, firsts + counts)
    return columns(
        Kind.RUN,
        place,
        len(fields),
        offset=firsts,
        last_offset=firsts + counts - 1,
        timestamp=timestamp,
        producer_id=ids,
        epoch=epochs,
        sequence=sequences,
        size=ends - begins,
    )


def _merged(rows: Columns) -> Array:
    """Return the numbers of the rows that stay when runs that go on where the last one ended become one with it."""
    at = np.flatnonzero(rows["kind"] == Kind.RUN)
    if len(at) < 2:
        return np.arange(len(rows["kind"]))
    runs = taken(rows, at)
    producer, epoch, sequence = runs["producer_id"], runs["epoch"], runs["sequence"]
    first, last, size = runs["offset"], runs["last_offset"], runs["size"]
    following = (sequence + last - first + 1) % SEQUENCE_MODULUS
    goes_on = (
        (first[1:] == last[:-1] + 1)
        & (producer[1:] == producer[:-1])
        & (epoch[1:] == epoch[:-1])
        & ((producer[1:] == NO_PRODUCER) | (sequence[1:] == following[:-1]))
    )
    begins = np.concatenate(([True], ~goes_on))
    heads = np.flatnonzero(begins)
    rows["last_offset"][at[heads]] = last[np.append(heads[1:], len(at)) - 1]
    rows["size"][at[heads]] = np.add.reduceat(size, heads)
    keeps = np.ones(len(rows["kind"]), bool)
    keeps[at[~begins]] = False
    return np.flatnonzero(keeps)
