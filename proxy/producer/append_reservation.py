"""An append reservation: the intent by which this proxy instance may append any batches of one producer on one
partition, from a bound on, without a swap for each group. Rules R2, R6, R8, R12, R17.

Pure: called for every write and its result, asked before each group. An append reservation is taken by a swap and ends
with one: a flow's writes store none (``entry_cache.py``), so a group that does not end as usual gets a plain intent
first. The conditions, and what breaks without them: tests/model/README.md (l)."""

from __future__ import annotations

from enum import Enum

from ...state.entry import StoredFormatError, unpack
from ...state.store import Conflict, StoreAway, Swapped
from .. import limits

_NEVER = float("-inf")


class WriteResult(Enum):
    """What the result of a write says."""

    KEPT = "kept"
    """The write is stored, or that is unknown: the next write shows."""
    ASKED_FOR = "asked for"
    """Another proxy wants it: it is handed over as soon as nothing is in flight."""
    LOST = "lost"
    """What is stored is not ours any more."""


class AppendReservation:
    """``owner``: the proxy instance. ``leader``: the only broker to which batches go under it. ``lower_bound`` and
    ``anchor``: none of these batches lies below. ``version``: that of the last write that was sent. ``stored_version``:
    as last seen in the store. Times are reactor seconds."""

    __slots__ = (
        "_bytes_written",
        "_sent_at",
        "anchor",
        "confirmed_at",
        "is_asked_for",
        "is_ending",
        "is_unanswered",
        "leader",
        "lower_bound",
        "owner",
        "stored_version",
        "unwritten_bytes",
        "version",
    )

    def __init__(self, owner: bytes, leader: int, lower_bound: int, anchor: bytes, stored_version: int) -> None:
        """``stored_version``: of the entry before the append reservation is taken."""
        self.owner = owner
        self.leader = leader
        self.lower_bound = lower_bound
        self.anchor = anchor
        self.stored_version = self.version = stored_version
        self.confirmed_at = self._sent_at = _NEVER
        self.is_asked_for = False
        self.is_ending = False
        """The swap that ends it was sent, or is about to be."""
        self.is_unanswered = False
        """A write is on its way."""
        self.unwritten_bytes = 0
        """Bytes sent under it since the last write that was confirmed."""
        self._bytes_written = 0
        """How many of these the write on its way accounts for."""

    @property
    def is_confirmed(self) -> bool:
        """Is it known to be stored?"""
        return self.confirmed_at != _NEVER

    def may_append(self, now: float, leader: int) -> bool:
        """May a group begin under it? Its last confirmed write is recent (R2), nobody has asked for it (R12), and it is
        not ending (R17). The group's leader is the one that it names, which a proxy that takes it over waits for (R6);
        and that proxy would not have too much of this producer to read."""
        return (
            not self.is_asked_for
            and not self.is_ending
            and leader == self.leader
            and now - self.confirmed_at <= limits.APPEND_RESERVATION_SECONDS_MAX
            and self.unwritten_bytes < limits.APPEND_RESERVATION_BYTES_MAX
        )

    def is_due(self, now: float, version: int) -> bool:
        """Is it time to write? ``version``: of the entry in memory, which every commit raises."""
        return (
            version > self.version
            and not self.is_unanswered
            and not self.is_asked_for
            and not self.is_ending
            and self.is_confirmed
            and now - self._sent_at >= limits.APPEND_RESERVATION_WRITE_SECONDS
        )

    def move_to(self, end_offset: int, anchor: bytes) -> None:
        """Raise the bound to the end of the producer's own last commit (R8). No newer position of the partition would
        do: an append that is in flight may lie below it."""
        if end_offset > self.lower_bound:
            self.lower_bound, self.anchor = end_offset, anchor

    def writes(self, version: int, now: float) -> None:
        """A write is about to be sent; the first one takes the append reservation."""
        self.version, self._sent_at, self.is_unanswered = version, now, True
        self._bytes_written = self.unwritten_bytes

    def answered(self, version: int, result: Swapped | Conflict | StoreAway) -> WriteResult:
        """Take the result of the write of ``version``; ``stored_version`` becomes what is stored now, if that shows."""
        self.is_unanswered = False
        if isinstance(result, Swapped):
            self.stored_version, self.confirmed_at = version, self._sent_at
            self.unwritten_bytes -= self._bytes_written
            return WriteResult.KEPT
        if isinstance(result, StoreAway):
            return WriteResult.KEPT
        found = self.version_of(result.value)
        if found is None:
            return WriteResult.LOST
        self.stored_version = found
        self.is_asked_for = True
        return WriteResult.ASKED_FOR

    def version_of(self, value: bytes | None) -> int | None:
        """Return the version of the stored ``value``, if that still has this append reservation: another proxy has
        asked for it, or a write of ours was executed and its reply lost. A proxy that asks changes only the version, so
        the value has no news (R17). None: the entry is another proxy's, or older than what we wrote (R10)."""
        if value is None:
            return None
        try:
            entry = unpack(value)
        except StoredFormatError:
            return None
        intent = entry.intent
        is_ours = intent is not None and intent.is_append_reservation and intent.owner == self.owner
        return entry.version if is_ours and entry.version > self.stored_version else None
