"""The states of an entry, and what leads from one to the other. The table is what the page shows and what the
simulation holds every step of every proxy to; nothing is decided by it.

It tells what a proxy knows of an entry, commits that are not written yet included (rule R7). Reading the entry anew is
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
    OWNED = "owned"
    """Its owner may append without writing of it first: what became of it is written some moments later."""
    IN_DOUBT = "in doubt"
    """An intent is open and nobody knows its outcome: the log is read before anything else is appended."""
    GIVEN_UP = "given up"
    """Nobody can tell whether the batches of the last intent are in the log: they are remembered and never sent again,
    others may come."""
    SUSPECT = "suspect"
    """It may lack its last writes: the log is read before it is believed."""
    BLURRED = "blurred"
    """The log may have more of the producer than the entry, and cannot tell: only a newer epoch goes on."""


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
_GIVEN_UP, _SUSPECT, _BLURRED = EntryState.GIVEN_UP, EntryState.SUSPECT, EntryState.BLURRED
_OWNED = EntryState.OWNED

STEPS = (
    Step(_QUIET, _RESERVED, "a group is reserved", "R2", "reserved"),
    Step(_RESERVED, _QUIET, "appended", "R7", "committed"),
    Step(_RESERVED, _QUIET, "refused, or not sent", "R5", "released"),
    Step(_RESERVED, _IN_DOUBT, "no answer, or its proxy is gone", "R6"),
    Step(_IN_DOUBT, _QUIET, "found in the log", "R6", "committed"),
    Step(_IN_DOUBT, _QUIET, "not in the log, dropped", "R6", "released"),
    Step(_IN_DOUBT, _RESERVED, "not in the log, sent again", "R6"),
    Step(_IN_DOUBT, _GIVEN_UP, "the log cannot tell", "R17", "given_up"),
    Step(_GIVEN_UP, _RESERVED, "others take its place", "R17", "reserved"),
    Step(_QUIET, _OWNED, "its busy producer's proxy owns it", "R2"),
    Step(_OWNED, _QUIET, "handed over", "R17", "released"),
    Step(_OWNED, _QUIET, "it has become another's, and is read", "R1"),
    Step(_OWNED, _RESERVED, "a group gets an intent of its own", "R2", "reserved"),
    Step(_OWNED, _IN_DOUBT, "no answer", "R6", "reserved"),
    Step(_OWNED, _SUSPECT, "the store lost writes", "R10"),
    Step(_OWNED, _SUSPECT, "its proxy is gone", "R1", "renewed"),
    Step(_QUIET, _SUSPECT, "the store lost writes", "R10"),
    Step(_RESERVED, _SUSPECT, "the store lost writes", "R10"),
    Step(_IN_DOUBT, _SUSPECT, "the store lost writes", "R10"),
    Step(_GIVEN_UP, _SUSPECT, "the store lost writes", "R10"),
    Step(_BLURRED, _SUSPECT, "the store lost writes", "R10"),
    Step(_QUIET, _SUSPECT, "the rebuild had not looked for the next batch", "R10", "claimed"),
    Step(_SUSPECT, _QUIET, "rebuilt from the log", "R10", "rebuilt"),
    Step(_SUSPECT, _GIVEN_UP, "rebuilt, and still nobody can tell", "R17", "rebuilt"),
    Step(_SUSPECT, _BLURRED, "the log cannot tell", "R10", "blurred"),
    Step(_BLURRED, _RESERVED, "a newer epoch begins", "R12", "reserved"),
)


def state_of(entry: Entry | None, generation: bytes, *, is_outcome_due: bool) -> EntryState:
    """Return the state of an entry. ``generation``: of the store's data. ``is_outcome_due``: is the group of its intent
    out, in this process, and its outcome not in doubt?"""
    if entry is None:
        return EntryState.QUIET
    if entry.generation != generation:
        return EntryState.SUSPECT
    intent = entry.intent
    if intent is None:
        return EntryState.QUIET
    if not intent.batches:
        if intent.is_ownership:
            return EntryState.OWNED
        return EntryState.BLURRED if intent.is_given_up else EntryState.SUSPECT
    if intent.is_given_up:
        return EntryState.GIVEN_UP
    return EntryState.RESERVED if is_outcome_due else EntryState.IN_DOUBT
