"""The states of an entry, and what leads from one to the other. The table is what the page shows and what the
simulation holds every step of every proxy to; nothing is decided by it.

It tells what a proxy knows of an entry, commits that are not written yet included (rule R7). Reading the entry again is
no step: another proxy may have made any number of them."""

from __future__ import annotations

from enum import Enum

from ..values import value
from .entry import Entry


class EntryState(Enum):
    """What may be done with an entry next."""

    QUIET = "quiet"
    """Nothing is open, or nothing is stored: the next batch is decided by what is known."""
    RESERVED = "reserved"
    """A group is out, and its outcome is on its way."""
    APPEND_RESERVATION = "append reservation"
    """Its owner may append without writing of it first: what became of it is written some moments later."""
    IN_DOUBT = "in doubt"
    """An intent is open and nobody knows its outcome: the log is read before anything else is appended."""
    UNRECOVERABLE = "unrecoverable"
    """Nobody can tell whether the batches of the last intent are in the log: they are remembered and never sent again,
    others may come."""
    UNVERIFIED = "unverified"
    """It may lack its last writes: the log is read before it is believed."""
    AMBIGUOUS = "ambiguous"
    """The log may have more of the producer than the entry, and cannot tell: only a newer epoch can continue."""


@value(frozen=True, slots=True)
class Step:
    """``rule``: the one that asks for it. ``function``: of ``commit.py``, it makes the entry of the next state; empty:
    the entry stays the same, what is known of it changes."""

    before: EntryState
    after: EntryState
    cause: str
    rule: str
    function: str = ""


_QUIET, _RESERVED, _IN_DOUBT = EntryState.QUIET, EntryState.RESERVED, EntryState.IN_DOUBT
_UNRECOVERABLE, _UNVERIFIED, _AMBIGUOUS = EntryState.UNRECOVERABLE, EntryState.UNVERIFIED, EntryState.AMBIGUOUS
_APPEND_RESERVATION = EntryState.APPEND_RESERVATION

STEPS = (
    Step(_QUIET, _RESERVED, "a group is reserved", "R2", "reserved"),
    Step(_RESERVED, _QUIET, "appended", "R7", "committed"),
    Step(_RESERVED, _QUIET, "refused, or not sent", "R5", "released"),
    Step(_RESERVED, _IN_DOUBT, "no answer, or its proxy is gone", "R6"),
    Step(_IN_DOUBT, _QUIET, "found in the log", "R6", "committed"),
    Step(_IN_DOUBT, _QUIET, "not in the log, dropped", "R6", "released"),
    Step(_IN_DOUBT, _RESERVED, "not in the log, sent again", "R6"),
    Step(_IN_DOUBT, _UNRECOVERABLE, "the log cannot tell", "R17", "unrecoverable"),
    Step(_UNRECOVERABLE, _RESERVED, "others take its place", "R17", "reserved"),
    Step(_QUIET, _APPEND_RESERVATION, "its busy producer's proxy owns it", "R2"),
    Step(_APPEND_RESERVATION, _QUIET, "handed over", "R17", "released"),
    Step(_APPEND_RESERVATION, _QUIET, "it has become another's, and is read", "R1"),
    Step(_APPEND_RESERVATION, _RESERVED, "a group gets an intent of its own", "R2", "reserved"),
    Step(_APPEND_RESERVATION, _IN_DOUBT, "no answer", "R6", "reserved"),
    Step(_APPEND_RESERVATION, _UNVERIFIED, "the store lost writes", "R10"),
    Step(_APPEND_RESERVATION, _UNVERIFIED, "its proxy is gone", "R1", "renewed"),
    Step(_QUIET, _UNVERIFIED, "the store lost writes", "R10"),
    Step(_RESERVED, _UNVERIFIED, "the store lost writes", "R10"),
    Step(_IN_DOUBT, _UNVERIFIED, "the store lost writes", "R10"),
    Step(_UNRECOVERABLE, _UNVERIFIED, "the store lost writes", "R10"),
    Step(_AMBIGUOUS, _UNVERIFIED, "the store lost writes", "R10"),
    Step(_QUIET, _UNVERIFIED, "the rebuild had not looked for the next batch", "R10", "with_takeover"),
    Step(_UNVERIFIED, _QUIET, "rebuilt from the log", "R10", "rebuilt"),
    Step(_UNVERIFIED, _UNRECOVERABLE, "rebuilt, and still nobody can tell", "R17", "rebuilt"),
    Step(_UNVERIFIED, _AMBIGUOUS, "the log cannot tell", "R10", "ambiguous"),
    Step(_AMBIGUOUS, _RESERVED, "a newer epoch begins", "R12", "reserved"),
)


def state_of(entry: Entry | None, data_generation: bytes, *, is_outcome_due: bool) -> EntryState:
    """Return the state of an entry. ``data_generation``: of the store's data. ``is_outcome_due``: is the group of its
    intent out, in this process, and its outcome not in doubt?"""
    if entry is None:
        return EntryState.QUIET
    if entry.data_generation != data_generation:
        return EntryState.UNVERIFIED
    intent = entry.intent
    if intent is None:
        return EntryState.QUIET
    if not intent.batches:
        if intent.is_append_reservation:
            return EntryState.APPEND_RESERVATION
        return EntryState.AMBIGUOUS if intent.is_unrecoverable else EntryState.UNVERIFIED
    if intent.is_unrecoverable:
        return EntryState.UNRECOVERABLE
    return EntryState.RESERVED if is_outcome_due else EntryState.IN_DOUBT
