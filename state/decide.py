"""Decides what a batch is, given the stored entry. Pure: returns a verdict, changes nothing.

The order of the checks is Kafka's (KIP-98; ProducerStateEntry.findDuplicateBatch, then
ProducerAppendInfo.checkProducerEpoch, then checkSequence): duplicate, epoch, sequence. Whether a refusal may be told to
the client is not decided here (rule R11: the sequencer asks the authority again first)."""

from __future__ import annotations

from ..values import value
from .entry import NO_TIME, Entry, Intent, WindowBatch
from .sequence import advance, distance, is_ahead, last_of


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
    """The batch is in the log already, among the last five."""

    base_offset: int
    log_append_time_ms: int = NO_TIME


@value(frozen=True, slots=True)
class BelowWindow:
    """It begins before what the window remembers: a duplicate if the log has it. Of a batch that was stored in parts
    a window that was rebuilt may have the last ones."""


@value(frozen=True, slots=True)
class OutOfOrder:
    """The batch leaves a gap, begins a new epoch with another sequence than 0, or overlaps with what is in the log."""

    expected: int
    reason: str


@value(frozen=True, slots=True)
class Fenced:
    """The batch's epoch is older than the stored one."""

    producer_epoch: int


Verdict = Append | Duplicate | BelowWindow | OutOfOrder | Fenced

_APPEND = Append()
_BELOW = BelowWindow()


def decide(entry: Entry | None, batch: BatchIdentity, any_start: bool = False) -> Verdict:
    """Return what a broker would do with ``batch``. An open intent is not looked at: see ``is_in_intent``.

    ``entry`` None: nothing is stored of this producer here; then only sequence 0 starts it, or any (``any_start``: its
    state has expired, as Kafka does since KIP-360).
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
    duplicate = _find_duplicate(entry.window, batch)
    if duplicate is not None:
        return duplicate
    if batch.base_sequence == entry.next_sequence:
        return _APPEND
    if not entry.window or is_ahead(entry.next_sequence, batch.base_sequence):
        return OutOfOrder(entry.next_sequence, "there is a gap before this batch")
    begins_below = is_ahead(batch.base_sequence, entry.window[0].base_sequence)
    if begins_below and is_ahead(last_of(batch.base_sequence, batch.record_count), entry.next_sequence):
        return _BELOW
    return OutOfOrder(entry.next_sequence, "the batch overlaps with batches that are in the log")


def _find_duplicate(window: tuple[WindowBatch, ...], batch: BatchIdentity) -> Duplicate | None:
    """Return the batch of the window that this one repeats, also if it was stored in several parts, which follow each
    other in the window."""
    for index, first in enumerate(window):
        if first.base_sequence != batch.base_sequence:
            continue
        records = 0
        for part in window[index:]:
            if part.base_sequence != advance(first.base_sequence, records):
                break
            records += part.record_count
            if records == batch.record_count:
                return Duplicate(first.base_offset, first.log_append_time_ms)
            if records > batch.record_count:
                break
    return None


def records_in_log(entry: Entry, batch: BatchIdentity) -> int:
    """Return how many of its first records a rebuild has found, if that was up to the middle of the batch: it was
    stored in parts. 0: for certain none."""
    if not entry.is_rebuilt or batch.producer_epoch != entry.producer_epoch:
        return 0
    records = distance(batch.base_sequence, entry.next_sequence)
    return records if records < batch.record_count else 0


def is_in_intent(intent: Intent, batch: BatchIdentity, crc: int) -> bool:
    """Is the batch one of the intent's batches, with the same content (rule R13)?"""
    return intent.producer_epoch == batch.producer_epoch and any(
        (member.base_sequence, member.record_count, member.crc) == (batch.base_sequence, batch.record_count, crc)
        for member in intent.batches
    )
