"""What Redis has of a producer against what the log has of it, and what is to be written for that (rule R10). Pure.

What an entry becomes is decided where the proxies decide it (``state.rebuilding``). Here it is only decided whether
that may be written in bulk: never over an intent, never with less than is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ...state.commit import Stored, fresh
from ...state.conditional import is_conditional
from ...state.entry import NO_DATA_GENERATION, NO_OFFSET, NO_PRINCIPAL, Entry, StoredFormatError, pack, unpack
from ...state.names import is_named
from ...state.producer_ids import unpack_block
from ...state.rebuilding import completed, known_as_a_whole, known_in_part
from ...state.sequence import is_ahead
from .found import FoundProducer


class Difference(StrEnum):
    """What Redis has of one producer on one partition."""

    SAME = "same"
    """All that the log has, as of this data generation."""
    MISSING = "missing"
    """Nothing."""
    UNVERIFIED = "unverified"
    """Something of an earlier data generation: the next proxy reads the log before it uses that."""
    BEHIND = "behind"
    """Less than the log, and it counts as complete: writes were lost, and no proxy knows."""
    AHEAD = "ahead"
    """More than the log: acknowledged records have gone from the log. It is left as it is."""
    BUSY = "busy"
    """An intent is open, or a batch was unrecoverable, or a proxy was faster: the proxies look after it."""
    NAMED = "producer_name"
    """It has a name, and the proxies look after it (rule R22)."""
    CONDITIONAL = "conditional"
    """It says where the log of a conditional partition ends, or that it is fenced: the proxies read that (rule R23)."""
    UNRECOGNISED = "unrecognised"
    """Something, and the log does not have its last batch there any more. In format v2 nothing names its producer: only
    a proxy that knows its next batch can look further."""
    DAMAGED = "damaged"
    """A value that this version cannot read."""


UNHEALTHY: Final = (Difference.MISSING, Difference.UNVERIFIED, Difference.BEHIND, Difference.AHEAD, Difference.DAMAGED)
"""With any of these a dry run ends with 1."""


class Effect(StrEnum):
    """What is written."""

    NOTHING = "nothing"
    WHOLE = "whole"
    """The entry is complete: the producer continues at once."""
    BOUND = "bound"
    """The entry is true and stays unverified, as something without a batch marker, or missing, lies after it: the next
    proxy reads the log from there on only."""


@dataclass(frozen=True, slots=True)
class Judged:
    """``expected_version``: of what is stored, which the swap compares. ``value``: to store, None where nothing is."""

    difference: Difference
    effect: Effect = Effect.NOTHING
    expected_version: int = 0
    value: bytes | None = None


def judge(
    found: FoundProducer, stored: bytes | None, block: bytes | None, data_generation: bytes, version_from: int
) -> Judged:
    """Return what is to be written for one producer.

    ``stored``: read before the end of the log was asked for, up to which ``found`` reaches. ``block``: what is
    stored for the block of its producer id, if anything. ``version_from``: the least version of what is written, in
    microseconds since 1970, so that it is above every version that was counted up: a proxy that remembers the lost
    entry would take a lower version, as that of a backup, for another loss."""
    try:
        entry = None if stored is None else unpack(stored)
    except StoredFormatError:
        return Judged(Difference.DAMAGED)
    difference = _difference(found, entry, data_generation)
    if difference not in (Difference.MISSING, Difference.UNVERIFIED, Difference.BEHIND):
        return Judged(difference)
    before = entry
    if before is None:
        claim = None if block is None else unpack_block(block)
        principal = NO_PRINCIPAL if claim is None else claim.principal
        before = fresh(NO_DATA_GENERATION, principal, 0, 0)
    before = replace(before, version=max(before.version, version_from))
    done = completed(before, found, data_generation, None, is_since_checkpoint=True)
    effect = Effect.BOUND if found.has_unmarked else Effect.WHOLE
    done = known_in_part(done) if found.has_unmarked else known_as_a_whole(done)
    if effect is Effect.BOUND and difference is Difference.UNVERIFIED and _says_so(entry, done):
        return Judged(difference)
    return Judged(difference, effect, 0 if entry is None else entry.version, pack(done))


def judge_unfound(producer_id: int, stored: bytes, log_start: int, log_end: int) -> Judged | None:
    """Return what an entry is of which the log, as far as it was read, was seen to have nothing: nothing is written.
    None: its producer has written nothing there."""
    try:
        entry = unpack(stored)
    except StoredFormatError:
        return Judged(Difference.DAMAGED)
    if entry.end_offset <= log_start and entry.intent is None:
        return None
    kind = _others_look_after(producer_id, entry)
    return Judged(kind or (Difference.AHEAD if entry.end_offset > log_end else Difference.UNRECOGNISED))


def may_be_recognised(producer_id: int, entry: Entry) -> bool:
    """Is the entry one that tells where the producer's batches in format v2 go on?"""
    return entry.end_offset != NO_OFFSET and _others_look_after(producer_id, entry) is None


def known_of(entry: Entry) -> tuple[Stored, ...]:
    """Return what an entry says is in the log, which is true if its last record is (rule R8)."""
    return tuple(
        Stored(entry.producer_epoch, one.base_sequence, one.record_count, one.base_offset) for one in entry.window
    )


def _says_so(entry: Entry | None, done: Entry) -> bool:
    """Is an unverified entry as far as the log is already?"""
    return entry is not None and (entry.end_offset, entry.producer_epoch, entry.next_sequence) == (
        done.end_offset,
        done.producer_epoch,
        done.next_sequence,
    )


def _difference(found: FoundProducer, entry: Entry | None, data_generation: bytes) -> Difference:
    if (kind := _others_look_after(found.producer_id, entry)) is not None:
        return kind
    if entry is None:
        return Difference.MISSING
    if _is_more(entry, found):
        return Difference.AHEAD
    if entry.data_generation != data_generation:
        return Difference.UNVERIFIED
    return Difference.BEHIND if _is_less(entry, found) else Difference.SAME


def _others_look_after(producer_id: int, entry: Entry | None) -> Difference | None:
    if is_conditional(producer_id):
        return Difference.CONDITIONAL
    if is_named(producer_id):
        return Difference.NAMED
    return None if entry is None or entry.intent is None else Difference.BUSY


def _next_of(found: FoundProducer) -> tuple[int, int]:
    """Return the epoch and the sequence that are due by the log alone."""
    alone = completed(
        fresh(NO_DATA_GENERATION, NO_PRINCIPAL, 0, 0), found, NO_DATA_GENERATION, None, is_since_checkpoint=True
    )
    return alone.producer_epoch, alone.next_sequence


def _is_less(entry: Entry, found: FoundProducer) -> bool:
    epoch, due = _next_of(found)
    return epoch > entry.producer_epoch or (
        epoch == entry.producer_epoch and due != entry.next_sequence and is_ahead(entry.next_sequence, due)
    )


def _is_more(entry: Entry, found: FoundProducer) -> bool:
    """Does it say that something is in the log after the producer's last piece, though all there has a batch
    marker?"""
    if found.has_unmarked:
        return False  # it may be there without one
    epoch, due = _next_of(found)
    if entry.producer_epoch != epoch:
        return entry.producer_epoch > epoch and bool(entry.window)
    return due != entry.next_sequence and is_ahead(due, entry.next_sequence)
