"""For the rebuild of an unverified entry (rule R10): which batches it has looked for, and when the newest part of the
log is sufficient. What the entry becomes is in ``state/rebuilding.py``. Pure: reads nothing, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...state.commit import Stored
from ...state.decide import BatchIdentity, records_stored, rest_of
from ...state.entry import (
    NO_ANCHOR,
    NO_OFFSET,
    NOBODY,
    WINDOW_BATCHES_MAX,
    Entry,
    Intent,
    IntentBatch,
    IntentKind,
)
from ...state.sequence import is_ahead
from ...values import value
from ..partition_log.log_offsets import Position


class Due(NamedTuple):
    """What of a waiting batch the entry does not have. ``content``: the digest of its first record."""

    identity: BatchIdentity
    content: bytes


State = tuple[int, int, int, tuple[IntentBatch, ...]]


@value(frozen=True, slots=True)
class LookedFor:
    """The waiting batches that were also looked for by their content, as a record without a batch marker does not name
    its producer.

    ``state``: of the entry as the log was read for it (``state_read``); another proxy may have changed the entry since.
    ``due``: these batches; what the entry lacks of them is not in the log. ``is_all``: the log had no message without a
    batch marker that could be the producer's, so no batch has to be looked for. ``undecided``: batches after a gap of
    which the log cannot tell. ``gap``: the epoch of the last batch after a gap, and when one of it came first, in
    reactor seconds."""

    lease_epoch: int
    state: State
    due: frozenset[Due] = frozenset()
    is_all: bool = False
    undecided: frozenset[Due] = frozenset()
    gap: tuple[int, float] = (NO_OFFSET, 0.0)

    def is_of(self, lease_epoch: int, entry: Entry) -> bool:
        """Was the log read for the entry as it is?"""
        return self.lease_epoch == lease_epoch and self.state == state_read(entry)

    def after_gap(self, producer_epoch: int, now: float) -> LookedFor:
        """A batch of this epoch has come after a gap."""
        return self if self.gap[0] == producer_epoch else replace(self, gap=(producer_epoch, now))

    def with_absent(self, due: Due, *, is_all: bool) -> LookedFor:
        """The log does not have this one, either."""
        return replace(self, due=_few(self.due) | {due}, is_all=is_all)

    def with_undecided(self, due: Due) -> LookedFor:
        """The log cannot tell of this one."""
        return replace(self, undecided=_few(self.undecided) | {due})


def _few(known: frozenset[Due]) -> frozenset[Due]:
    """As many as a client has in flight: what is forgotten is looked for again."""
    return known if len(known) < WINDOW_BATCHES_MAX else frozenset()


def state_read(entry: Entry) -> State:
    """Return fields that every append changes, also one under an append reservation: that is taken together with a
    commit. And what was reserved and is unrecoverable, as that may be stored."""
    left = () if entry.intent is None else entry.intent.batches
    return entry.producer_epoch, entry.next_sequence, entry.end_offset, left


def bound_of(entry: Entry) -> Position:
    """Return from where on the log may have more of its producer. An offset without an anchor is no bound here: the
    topic may have been recreated."""
    bound = Position(entry.end_offset if entry.anchor != NO_ANCHOR else 0, entry.anchor)
    intent = entry.intent
    if intent is not None and intent.lower_bound < bound.offset:
        bound = Position(intent.lower_bound if intent.anchor != NO_ANCHOR else 0, intent.anchor)
    return bound


def has_news(entry: Entry, pieces: Iterable[Stored]) -> bool:
    """Is one of these pieces, which are in the log, neither in the entry nor older?"""
    epoch, due = entry.producer_epoch, entry.next_sequence
    return any(
        one.producer_epoch > epoch or (one.producer_epoch == epoch and not is_ahead(one.base_sequence, due))
        for one in pieces
    )


def lowest_of(waiting: Iterable[BatchIdentity]) -> BatchIdentity | None:
    """Return the first of the waiting batches of the newest epoch; None if none waits."""
    known = list(waiting)
    newest = max((one.producer_epoch for one in known), default=NO_OFFSET)
    lowest: BatchIdentity | None = None
    for one in known:
        if one.producer_epoch == newest and (lowest is None or is_ahead(one.base_sequence, lowest.base_sequence)):
            lowest = one
    return lowest


def lowest_missing(done: Entry, waiting: Iterable[BatchIdentity]) -> BatchIdentity | None:
    """Return the records of the first waiting batch that the rebuilt entry does not have. None: it has them all, is of
    a newer epoch, or no batch waits."""
    lowest = lowest_of(waiting)
    if lowest is None or lowest.producer_epoch < done.producer_epoch:
        return None
    stored = records_stored(done, lowest)
    return rest_of(lowest, stored) if stored < lowest.record_count else None


def is_enough(entry: Entry, pieces: Sequence[Stored], lowest: BatchIdentity | None) -> bool:
    """Is the entry complete with these pieces, which are all that was appended since a checkpoint?

    ``lowest``: the first waiting batch. No client retries what is older than the checkpoint, so that batch itself is
    among the pieces or not in the log. Complete means: the sequence that is due is known for certain."""
    if lowest is None:
        return bool(pieces)
    newest = max((piece.producer_epoch for piece in pieces), default=NO_OFFSET)
    if newest < lowest.producer_epoch:
        # Nothing came after that batch: if it continues what is known, all is known.
        if entry.producer_epoch > lowest.producer_epoch:
            return False
        due = entry.next_sequence if entry.producer_epoch == lowest.producer_epoch else 0
        return lowest.base_sequence == due
    of_epoch = [piece for piece in pieces if piece.producer_epoch == lowest.producer_epoch]
    return not of_epoch or not is_ahead(lowest.base_sequence, of_epoch[0].base_sequence)


def is_takeover(intent: Intent | None) -> bool:
    """Is it the takeover of a rebuild that carries what was unrecoverable before (``remembering``)? A takeover has an
    owner, and an unrecoverable intent that is no takeover has none."""
    return intent is not None and intent.is_unrecoverable and bool(intent.batches) and intent.owner != NOBODY


def remembering(takeover: Intent, left: Intent | None) -> Intent:
    """Return the takeover as it is stored. It carries what was unrecoverable before, ``left`` (rule R17): the rebuild
    may have no end, or the proxy may die in the middle of it."""
    if left is None:
        return takeover
    return replace(
        takeover,
        producer_epoch=left.producer_epoch,
        batches=left.batches,
        content=left.content,
        attempts=0,
        kind=IntentKind.UNRECOVERABLE,
    )
