"""Decides what a batch is, given the stored entry. Pure: returns a verdict, changes nothing.

The order of the checks is Kafka's (KIP-98; ProducerStateEntry.findDuplicateBatch, then
ProducerAppendInfo.checkProducerEpoch, then checkSequence): duplicate, epoch, sequence. Whether the client may get a
refusal is not decided here (rule R11: the sequencer first confirms the entry by a swap)."""

from __future__ import annotations

from ..values import value
from .entry import NO_DIGEST, NO_TIME, Entry, Intent, IntentBatch
from .sequence import advance, distance, is_ahead


@value(frozen=True, slots=True)
class BatchIdentity:
    """The identity of a batch: producer epoch, base sequence and number of records (at least one)."""

    producer_epoch: int
    base_sequence: int
    record_count: int


@value(frozen=True, slots=True)
class Append:
    """The batch is the next one."""


@value(frozen=True, slots=True)
class Duplicate:
    """By its numbers the batch is in the log already, among the last five. ``digest``: of the batch that is
    there."""

    base_offset: int
    log_append_time_ms: int = NO_TIME
    digest: bytes = NO_DIGEST


@value(frozen=True, slots=True)
class Overlap:
    """By their sequences its first ``record_count`` records, perhaps all of them, are in the log, but it is none of the
    last five batches. It is an older batch, one that is stored in parts, or another one: only the log can tell."""

    record_count: int


@value(frozen=True, slots=True)
class OutOfOrder:
    """The batch leaves a gap, or begins a new epoch with another sequence than 0."""

    expected: int
    reason: str


@value(frozen=True, slots=True)
class Fenced:
    """The batch's epoch is older than the stored one."""

    producer_epoch: int


Verdict = Append | Duplicate | Overlap | OutOfOrder | Fenced

_APPEND = Append()


def decide(entry: Entry | None, batch: BatchIdentity, any_start: bool = False) -> Verdict:
    """Return what a broker would do with ``batch``. An open intent is not looked at: see ``is_in_intent``.

    ``entry`` None: nothing is stored of this producer on the partition. Then only sequence 0 may start it; with
    ``any_start``, when its state may have expired, any sequence may (as at brokers since KIP-360).
    """
    if entry is None:
        if batch.base_sequence == 0 or any_start:
            return _APPEND
        return OutOfOrder(0, "the first batch of a producer has to start at sequence 0")
    if batch.producer_epoch < entry.producer_epoch:
        return Fenced(entry.producer_epoch)
    if batch.producer_epoch > entry.producer_epoch:
        if batch.base_sequence == 0:
            return _APPEND
        return OutOfOrder(0, "a new producer epoch has to start at sequence 0")
    for known in entry.window:
        if known.base_sequence == batch.base_sequence and known.record_count == batch.record_count:
            return Duplicate(known.base_offset, known.log_append_time_ms, known.digest)
    if batch.base_sequence == entry.next_sequence:
        return _APPEND
    overlap = records_stored(entry, batch)
    return Overlap(overlap) if overlap else OutOfOrder(entry.next_sequence, "there is a gap before this batch")


def records_stored(entry: Entry, batch: BatchIdentity) -> int:
    """Return how many of the batch's first records are in the log by their sequences: those below the sequence that is
    due."""
    if batch.producer_epoch != entry.producer_epoch or not entry.window:
        return 0
    if not is_ahead(batch.base_sequence, entry.next_sequence):
        return 0
    return min(distance(batch.base_sequence, entry.next_sequence), batch.record_count)


def rest_of(batch: BatchIdentity, record_count: int) -> BatchIdentity:
    """Return what is left of a batch whose first ``record_count`` records are in the log."""
    due = advance(batch.base_sequence, record_count)
    return BatchIdentity(batch.producer_epoch, due, batch.record_count - record_count)


def is_directly_after(intent: Intent, batch: BatchIdentity, due: int) -> bool:
    """Are all records that are missing before the batch, from the sequence ``due`` on, among those of the intent? If
    that one was unrecoverable, no gap is proven (rule R11)."""
    if intent.producer_epoch != batch.producer_epoch or not intent.batches:
        return False
    last = intent.batches[-1]
    end = advance(last.base_sequence, last.record_count)
    return is_ahead(due, batch.base_sequence) and not is_ahead(end, batch.base_sequence)


def numbered_as(intent: Intent, batch: BatchIdentity) -> IntentBatch | None:
    """Return the one of the intent's batches that has the numbers of what is left of the batch, or of all of it."""
    end = advance(batch.base_sequence, batch.record_count)
    if intent.producer_epoch == batch.producer_epoch:
        for member in intent.batches:
            is_end = advance(member.base_sequence, member.record_count) == end
            if is_end and member.record_count <= batch.record_count:
                return member
    return None
