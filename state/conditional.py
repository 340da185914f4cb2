"""Conditional publish (rule R23): a batch that says at which offset it has to be, and what is decided of it. Pure.

All writers of a conditional partition, which is one partition of a conditional topic, have one producer id and epoch,
and the base sequence of a batch is the offset at which it is expected. So the swap that reserves compares where the log
ends, over any number of proxies. All that the entry of that producer id has to tell is where the log ends: it needs no
window, as the log itself shows what lies at an offset, and a lost entry is recreated from the end of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum, auto

from ..values import value
from .commit import Stored
from .decide import Append, BatchIdentity
from .entry import NO_ANCHOR, NO_DATA_GENERATION, NO_OFFSET, WINDOW_BATCHES_MAX, Entry, WindowBatch
from .producer_ids import CONDITIONAL_ID
from .sequence import SEQUENCE_MODULUS, distance

_A_TIME_US = 10**15
"""Microseconds since 1970: 2001. A version at or above this is a time, as no counter of writes comes so far."""
_MORE_THAN_IS_COUNTED = 60 * 10**6
"""Versions, and microseconds: a minute. The version of a fence that follows an earlier lift is the time of that lift
plus the writes since, which are far fewer. Only a version that is higher by more than this is another lift."""
CONDITIONAL_EPOCH = 0
"""Nobody raises it: a new epoch would begin at sequence 0, and not where the log ends (model row O7)."""


class Ahead(Enum):
    """What became of the batch right before this one in the pipeline of its writer."""

    NOTHING = auto()
    """This is the first batch of a pipeline, or the one before it is in the log."""
    OPEN = auto()
    """It is not answered yet."""
    AGAIN = auto()
    """Its writer got a retriable error, and sends it again."""
    REFUSED = auto()
    """Its writer got a final error: it will not be appended, or nobody can tell whether it was."""


@value(frozen=True, slots=True)
class NotYet:
    """The log has not come to the expected offset yet."""


@value(frozen=True, slots=True)
class Past:
    """The log has come past the expected offset. ``offsets``: where the batch lies if it was appended before, at the
    earliest; the log has to be read from there on. Empty: it cannot be in the log, as it would begin below offset 0 or
    reach across the end of the log, and a batch is stored as a whole."""

    offsets: tuple[int, ...]


@value(frozen=True, slots=True)
class HeldBack:
    """The batch before it in its writer's pipeline has no final outcome. The writer sends both again, in order."""


@value(frozen=True, slots=True)
class CutOff:
    """The log ends where the batch expects, but without the batch before it in its writer's pipeline: that one was
    refused, and another writer has appended in its place."""


@value(frozen=True, slots=True)
class FencedPartition:
    """Somebody else writes to the conditional partition, or the log has lost records: it ended at ``end_offset``, and
    should have ended at ``expected_end``. ``offsets``: where the batch may lie, if it was appended before; the log has
    to be read from each of them on."""

    expected_end: int
    end_offset: int
    offsets: tuple[int, ...]


Refusal = NotYet | Past | CutOff | FencedPartition
Verdict = Append | HeldBack | Refusal

_APPEND = Append()


def is_conditional(producer_id: int) -> bool:
    """Is it the producer id of those who publish conditionally?"""
    return producer_id == CONDITIONAL_ID


def sequence_of(offset: int) -> int:
    """Return the base sequence that stands for an offset: sequences have 31 bits."""
    return offset % SEQUENCE_MODULUS


def begun(entry: Entry, data_generation: bytes, next_offset: int) -> Entry:
    """Return the entry of a conditional partition whose log was seen to end at ``next_offset``, once every append that
    was sent before had its outcome."""
    return replace(
        entry,
        version=entry.version + 1,
        data_generation=data_generation,
        producer_epoch=CONDITIONAL_EPOCH,
        next_sequence=sequence_of(next_offset),
        window=(),
        first_base_offset=NO_OFFSET,
        end_offset=next_offset,
        anchor=NO_ANCHOR,
        intent=None,
        is_rebuilt=False,
    )


def unsure(entry: Entry) -> Entry:
    """Return the entry when nobody can tell whether its intent's batches are in the log: where that ends is read again,
    and what lies at their offsets tells each client that comes back."""
    return replace(entry, version=entry.version + 1, data_generation=NO_DATA_GENERATION, intent=None)


def fenced_by(entry: Entry, data_generation: bytes, next_offset: int, pieces: Sequence[Stored]) -> Entry | None:
    """Return the fenced entry of a conditional partition if it was fenced before, if its log ends (at ``next_offset``)
    below where the entry says, or if one of ``pieces``, found in the log, lies at another offset than its sequence
    says; else None."""
    if is_fenced(entry):
        return replace(entry, version=entry.version + 1, data_generation=data_generation, intent=None)
    if entry.end_offset != NO_OFFSET and next_offset < entry.end_offset:
        return replace(ended_at(entry, next_offset), data_generation=data_generation, intent=None)
    displaced = [piece for piece in pieces if not is_in_place(piece)][-WINDOW_BATCHES_MAX:]
    if not displaced:
        return None
    last = displaced[-1]  # they were appended together: nothing is appended once the first one is known of
    due = sequence_of(last.base_sequence + last.record_count)
    window = tuple([WindowBatch(one.base_sequence, one.record_count, one.base_offset) for one in displaced])
    return replace(
        begun(entry, data_generation, last.base_offset + last.record_count), next_sequence=due, window=window
    )


def is_in_place(piece: Stored) -> bool:
    """Does a batch that was found in the log lie where it was expected?"""
    return sequence_of(piece.base_offset) == piece.base_sequence


def ended_at(entry: Entry, end_offset: int) -> Entry:
    """Return the fenced entry of a conditional partition whose log was seen to end elsewhere than it should, at
    ``end_offset``."""
    return replace(entry, version=entry.version + 1, end_offset=end_offset, anchor=NO_ANCHOR)


def is_fenced(entry: Entry) -> bool:
    """Does the log end elsewhere than what was published conditionally? These two fields differ until the fence is
    lifted, so it needs no flag of its own."""
    return entry.end_offset != NO_OFFSET and sequence_of(entry.end_offset) != entry.next_sequence


def is_lifted_since(stored: Entry, fenced: Entry) -> bool:
    """Has an operator lifted the fence after ``fenced`` was written? The stored version is then the time of that, in
    microseconds since 1970, plus the number of writes since (``inspection.forgotten``)."""
    since = fenced.version if fenced.version < _A_TIME_US else fenced.version + _MORE_THAN_IS_COUNTED
    return stored.version >= _A_TIME_US and stored.version > since


def expected_end(entry: Entry) -> int:
    """Return the offset at which the log of a fenced conditional partition would have ended, had nobody else written to
    it."""
    return entry.end_offset - shift_of(entry.next_sequence, entry.end_offset)


def shift_of(sequence: int, offset: int) -> int:
    """Return by how many records ``offset`` is higher than ``sequence`` says; negative: the log has lost records."""
    ahead = distance(sequence, sequence_of(offset))
    return ahead if ahead < SEQUENCE_MODULUS // 2 else ahead - SEQUENCE_MODULUS


# R23 lives here: a batch is appended only where the log ends.
def decide_conditional(
    entry: Entry, batch: BatchIdentity, offset: int | None = None, ahead: Ahead = Ahead.NOTHING
) -> Verdict:
    """Return what becomes of ``batch``. ``entry``: one that was begun (``begun``). While an intent is open in it only
    the verdict ``Past`` may be used. ``offset``: the expected offset in full, where the client has sent it; the base
    sequence is the same for offsets that are 2^31 apart. Without it the one nearest to the end of the log is meant.
    ``ahead``: a batch of a pipeline is appended after the one before it, or not at all (model row O28)."""
    if is_fenced(entry):
        end = expected_end(entry)
        offset = end - shift_of(batch.base_sequence, end)
        numbers = batch.base_sequence, batch.record_count
        found = [one.base_offset for one in entry.window if (one.base_sequence, one.record_count) == numbers]
        if 0 <= offset <= max(end, entry.end_offset) - batch.record_count:
            found.append(offset)
        return FencedPartition(end, entry.end_offset, tuple(dict.fromkeys(found)))
    if offset is None:
        offset = entry.end_offset - shift_of(batch.base_sequence, entry.end_offset)
    if offset >= entry.end_offset and ahead in (Ahead.OPEN, Ahead.AGAIN):
        return HeldBack()
    if offset == entry.end_offset:
        return _APPEND if ahead is Ahead.NOTHING else CutOff()
    if offset > entry.end_offset:
        return NotYet()
    if offset < 0 or offset + batch.record_count > entry.end_offset:
        return Past(())
    return Past((offset,))
