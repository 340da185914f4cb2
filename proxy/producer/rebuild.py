"""For the rebuild of an unverified entry (rule R10): which batches it has looked for, and when the newest part of the
log is sufficient. What the entry becomes is in ``state/rebuilding.py``. Pure: reads nothing, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...state.commit import Stored
from ...state.decide import BatchIdentity, records_stored, rest_of
from ...state.entry import NO_OFFSET, NOBODY, Entry, Intent, IntentKind
from ...state.sequence import is_ahead
from ...values import value


class Due(NamedTuple):
    """What of a waiting batch the entry does not have. ``content``: the digest of its first record."""

    identity: BatchIdentity
    content: bytes


@value(frozen=True, slots=True)
class LookedFor:
    """The waiting batches that a rebuild has also looked for by their content, as a record without a batch marker does
    not name its producer.

    ``state``: of the entry as that rebuild left it (``state_read``); another proxy may have changed the entry since.
    ``due``: these batches. ``is_all``: the log had no message without a batch marker that could be the producer's, so
    no batch has to be looked for. ``gap_since``: when a batch came after a gap first, in reactor seconds; None: none
    has."""

    lease_epoch: int
    state: tuple[int, int, int]
    due: frozenset[Due]
    is_all: bool
    gap_since: float | None = None

    def is_of(self, lease_epoch: int, entry: Entry) -> bool:
        """Was it this rebuild that left the entry as it is?"""
        return self.lease_epoch == lease_epoch and self.state == state_read(entry)


def state_read(entry: Entry) -> tuple[int, int, int]:
    """Return fields that every append changes, also one under an append reservation: that is taken together with a
    commit."""
    return entry.producer_epoch, entry.next_sequence, entry.end_offset


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
