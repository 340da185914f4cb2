"""By what the batches of one producer are known in a log. Pure.

A wrapper of format v1 names its producer in its batch marker. A batch of format v2 carries only a fingerprint of its
identity: so an identity has to be supposed, and is confirmed by the fingerprint. Of a batch that is looked for it is
known. For a rebuild the log is walked in order: where a batch of the producer is known to begin or to end, the count in
each header gives the one batch that may begin or end there; the next one begins where it ends, or where a newer epoch
begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from ...codecs.batch_marker import Identity, parse_batch_marker
from ...codecs.header_marker import header_marker_of
from ...codecs.logged import Logged, LoggedBatch
from ...state.commit import Stored
from ...state.conditional import CONDITIONAL_EPOCH, is_conditional, sequence_of
from ...state.decide import BatchIdentity
from ...state.entry import NO_OFFSET
from ...state.names import EPOCH_MAX
from ...state.sequence import advance
from .. import limits

Joint = tuple[int, int]
"""An epoch, and a sequence at which a batch of it may begin, and the one before it may end."""
_Expected = dict[int, dict[int, Joint]]
"""Count in a header -> marker that a batch of so many records would have -> its epoch and base sequence."""
AHEAD_MAX: Final = 8
"""Ends of batches that were found last, at which the next ones may begin: a broker may have lost some of them again."""

_MARKERS_MAX: Final = 4_000_000
"""Markers that a bulk rebuild expects at once, about 400 MB; more are computed again."""
_COUNTS_MAX: Final = 256
"""Counts in headers for which the expected markers are kept: nearly all batches of a log have few different ones, and
an unlikely log may have as many as batches."""


class Recogniser:
    """Recognises what a log has of one producer, in log order. ``batches``: those that are looked for. ``joints``:
    where its other batches may meet. A conditional batch is known where it lies in place (rule R23)."""

    __slots__ = (
        "_ahead",
        "_expected",
        "_is_conditional",
        "_joints",
        "_newest",
        "_next",
        "_wanted",
        "producer_id",
        "work",
    )

    def __init__(self, producer_id: int, batches: Iterable[BatchIdentity] = (), joints: Iterable[Joint] = ()) -> None:
        self.producer_id = producer_id
        self._is_conditional = is_conditional(producer_id)
        self._wanted = {_marker(producer_id, batch): batch for batch in batches}
        self._joints = tuple(joints)
        self._newest = max((epoch for epoch, _ in self._joints), default=NO_OFFSET)
        """The newest epoch that is known; without joints none is, and no newer one is looked for."""
        self._ahead: deque[Joint] = deque(maxlen=AHEAD_MAX)
        self._next: _Expected = {}
        """Of batches that begin where one was found to end, ``_ahead``."""
        self._expected: _Expected = {}
        """Of batches that begin or end at a joint, or begin a newer epoch."""
        self.work = 0
        """How many batches were looked at, and markers computed: both take about a microsecond."""

    def copied(self) -> Recogniser:
        """Return one that has come as far, and goes on by itself."""
        copy = Recogniser(self.producer_id)
        copy._wanted, copy._joints, copy._newest = self._wanted, self._joints, self._newest
        copy._ahead, copy._next, copy._expected = self._ahead.copy(), self._next.copy(), self._expected.copy()
        return copy

    def is_it(self, logged: LoggedBatch) -> Stored | None:
        """Return the piece that a batch of format v2 is; None: it is none of these."""
        self.work += 1
        marker, count, header = logged.marker, logged.record_count, logged.header
        if header.producer_id == self.producer_id:
            if header.base_sequence < 0:
                return None  # the end of a transaction
            self._moves(header.producer_epoch, header.base_sequence, count)
            return Stored(header.producer_epoch, header.base_sequence, count, logged.first)
        if marker is None:
            return None
        wanted = self._wanted.get(marker)
        if wanted is not None and wanted.record_count == count:
            return Stored(wanted.producer_epoch, wanted.base_sequence, count, logged.first)
        if self._is_conditional:
            base = sequence_of(logged.first)
            if marker == header_marker_of(Identity(self.producer_id, CONDITIONAL_EPOCH, base, count)):
                return Stored(CONDITIONAL_EPOCH, base, count, logged.first)
        if not self._joints and not self._ahead:
            return None
        following = self._next[count] if count in self._next else self._note(self._next, count, self._ahead)
        joint = following.get(marker)
        if joint is None:
            expected = self._expected
            known = expected[count] if count in expected else self._note(expected, count, self._bases(count))
            joint = known.get(marker)
        if joint is None:
            return None
        epoch, base = joint
        self._moves(epoch, base, count)
        return Stored(epoch, base, count, logged.first)

    def passes(self, piece: Stored) -> None:
        """Take note of a piece that a wrapper of format v1 names: a batch of v2 may follow it."""
        self.work += 1
        self._moves(piece.producer_epoch, piece.base_sequence, piece.record_count)

    def _moves(self, epoch: int, base: int, count: int) -> None:
        self._ahead.append((epoch, advance(base, count)))
        self._next.clear()
        if epoch > self._newest:
            self._newest = epoch
            self._expected.clear()

    def _bases(self, count: int) -> Iterator[Joint]:
        """Yield the beginnings of all batches of so many records that begin or end at a joint, or begin a newer
        epoch."""
        yield from self._joints
        yield from ((epoch, advance(sequence, -count)) for epoch, sequence in self._joints if sequence)
        newer = range(self._newest + 1, min(self._newest + limits.EPOCHS_AHEAD, EPOCH_MAX) + 1)
        yield from ((epoch, 0) for epoch in newer if self._joints)

    def markers_of(self, count: int) -> list[int]:
        """Return the markers by which a batch of so many records would be recognised now."""
        bases = *self._ahead, *self._bases(count)
        return [header_marker_of(Identity(self.producer_id, *base, count)) for base in bases]

    @property
    def newest_epoch(self) -> int:
        """The newest epoch that is known; ``NO_OFFSET``: none."""
        return self._newest

    def _note(self, known: _Expected, count: int, bases: Iterable[Joint]) -> dict[int, Joint]:
        """Compute the markers of batches of so many records that begin there."""
        markers = {header_marker_of(Identity(self.producer_id, *base, count)): base for base in bases}
        self.work += len(markers)
        if len(known) >= _COUNTS_MAX:
            known.clear()
        known[count] = markers
        return markers

    def pieces_of(self, logged: Logged) -> Iterator[Stored]:
        """Yield what a message or batch holds of the producer, with offsets."""
        if isinstance(logged, LoggedBatch):
            piece = self.is_it(logged)
            if piece is not None:
                yield piece
            return
        identities = parse_batch_marker(logged.key) if logged.is_wrapper else None
        if identities is None:
            return
        offset = logged.offset + 1 - sum(identity.record_count for identity in identities)
        for identity in identities:
            if identity.producer_id == self.producer_id:
                yield Stored(*identity[1:], offset)
            offset += identity.record_count


def joints_of(batch: BatchIdentity) -> tuple[Joint, ...]:
    """Return where a batch begins and ends, and where its epoch begins."""
    epoch, base = batch.producer_epoch, batch.base_sequence
    return (epoch, base), (epoch, advance(base, batch.record_count)), (epoch, 0)


class Recognisers:
    """Recognises what a log has of many producers, in log order, for a bulk rebuild (rule R10): a marker is looked up
    once, and then it is asked the producer that may have it."""

    def __init__(self, known: Iterable[Recogniser]) -> None:
        self._known = {one.producer_id: one for one in known}
        self._by_count: dict[int, dict[int, Recogniser]] = {}
        """Count in a header -> marker that a batch of so many records would have -> whose. Also what a producer does
        not expect any more."""
        self._held = 0
        """Markers in all of these."""

    def piece_of(self, batch: LoggedBatch) -> tuple[int, Stored] | None:
        """Return the producer and the piece that a batch without a producer id is; None: nobody knows it."""
        marker, count = batch.marker, batch.record_count
        if marker is None:
            return None
        expected = self._by_count.get(count)
        if expected is None:
            expected = {marker: one for one in self._known.values() for marker in one.markers_of(count)}
            self._keep(count, expected)
        one = expected.get(marker)
        if one is None:
            return None
        newest = one.newest_epoch
        piece = one.is_it(batch)
        if piece is None:
            return None
        self._moved(one, piece, newest)
        return one.producer_id, piece

    def passes(self, producer_id: int, piece: Stored) -> None:
        """Take note of a piece that names its producer: a batch that does not may follow it."""
        one = self._known.get(producer_id)
        if one is not None:
            newest = one.newest_epoch
            one.passes(piece)
            self._moved(one, piece, newest)

    def _moved(self, one: Recogniser, piece: Stored, newest: int) -> None:
        ahead = piece.producer_epoch, advance(piece.base_sequence, piece.record_count)
        for count, expected in self._by_count.items():
            self._held -= len(expected)
            if one.newest_epoch > newest:
                expected.update(dict.fromkeys(one.markers_of(count), one))
            else:
                expected[header_marker_of(Identity(one.producer_id, *ahead, count))] = one
            self._held += len(expected)

    def _keep(self, count: int, expected: dict[int, Recogniser]) -> None:
        if self._held + len(expected) > _MARKERS_MAX:
            self._by_count.clear()
            self._held = 0
        self._by_count[count] = expected
        self._held += len(expected)


def _marker(producer_id: int, batch: BatchIdentity) -> int:
    return header_marker_of(Identity(producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count))
