"""The stored entry of one producer and partition as this process holds it: read, swapped, and what is known but not
written yet.

Flows only. A commit or a release is held first and rides on the next swap (rule R7); a swap without a reply is repeated
until one confirms it (R17). What was learned in an earlier lease epoch is void. Decides nothing about batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from ...state import store
from ...state.commit import fresh, released
from ...state.conditional import is_conditional, is_fenced, is_lifted_since
from ...state.decide import BatchIdentity
from ...state.entry import (
    NO_DATA_GENERATION,
    NO_PRINCIPAL,
    NOBODY,
    Entry,
    Intent,
    StoredFormatError,
    pack,
    pack_named,
    unpack,
)
from ...state.names import is_named
from ...state.packed import PackedEntry
from ...state.producer_ids import Block, unpack_block
from ...state.sequence import is_ahead
from ...state.store import NO_VERSION, PASSING_VERSION, Conflict, NameMoved, StoreAway, Swapped, SwapResult
from .. import limits
from ..events import OperatorMessage
from ..flow.effects import Pause, Read, Swap, Wakeup
from ..flow.observers import Observers
from .append_reservation import AppendReservation, WriteResult
from .batch import Batch
from .name_guard import NameGuard
from .outside import Swapping
from .proxy_instance import ProxyInstance

_SWAPPED = Swapped()


def _is_passing(value: bytes | None) -> bool:
    return value is not None and int.from_bytes(value[1:9], "big") == PASSING_VERSION


def _is_blank(entry: Entry) -> bool:
    """Does it say nothing of its producer?"""
    return not (entry.window or entry.intent or entry.end_offset >= 0 or entry.producer_epoch)


class CachedEntry:
    """``key``: where it is stored. ``stored_version``: the last one that was seen there. ``name``: of a producer with a
    name (rule R22), else None."""

    def __init__(
        self, instance: ProxyInstance, observers: Observers, bell: Wakeup, producer_id: int, topic: str, partition: int
    ) -> None:
        self.packed: PackedEntry | None = None
        """The entry as appends change it; None: nothing is stored."""
        self.is_unwritten = False
        self.commits: Sequence[Batch] = ()
        """Batches whose commit is held; empty when no spans are wanted."""
        self.append_reservation: AppendReservation | None = None
        """Groups are appended without a swap for each under this append reservation, from the swap on that takes it.
        What is held has no intent then, and counts as unwritten until a flow has written it (rule R15)."""
        self._instance = instance
        self._observers = observers
        self._bell = bell
        self._producer_id = producer_id
        self.key = store.entry_key(instance.cluster, producer_id, topic, partition)
        self.stored_version = NO_VERSION
        self._is_conditional = is_conditional(producer_id)
        self.name = NameGuard(instance, producer_id) if is_named(producer_id) else None
        self.known_lease_epoch = -1
        self.written_at = float("-inf")
        """When a swap of this process was confirmed last, in reactor seconds."""
        self._unreadable: bytes | None = None
        self.issued_to = NO_PRINCIPAL
        self.is_unissued = False
        """Was no block of the producer id there when it was looked for last?"""
        self.lost: Entry | None = None
        """The entry as this process knew it when the store was seen to have lost it, until it is rebuilt."""

    @property
    def entry(self) -> Entry | None:
        """The entry as last known, with what is not written yet; None when nothing is stored."""
        packed = self.packed
        return None if packed is None else packed.view

    @entry.setter
    def entry(self, entry: Entry | None) -> None:
        self.packed = None if entry is None else PackedEntry(entry)

    @property
    def seen(self) -> Entry | None:
        """The same for other threads."""
        packed = self.packed
        return None if packed is None else packed.entry()

    async def learn(self) -> bool:
        """Get the entry, from memory or from Redis. False: Redis is away, has what this version cannot read, or a new
        lease epoch began meanwhile."""
        if not self.is_unwritten and self.may_have_expired:
            self.forget()  # it may have been recreated since, with the same version as the one remembered
        if self.known_lease_epoch == self._instance.lease_epoch:
            return True
        lease_epoch = self._instance.lease_epoch
        value = await Read(self.key)
        if isinstance(value, StoreAway) or lease_epoch != self._instance.lease_epoch:
            return False
        return self._take(value)

    # ------------------------------------------------------------------ appends
    def reserved(self, packed: PackedEntry, value: bytes) -> None:
        """The swap with which ``packed`` reserves a group was confirmed in this lease epoch; ``value`` is stored."""
        packed.with_intent, packed.has_intent = value, True
        packed.version += 1
        self.packed = packed
        self.stored_version = packed.version
        self.written_at = self._observers.time.now
        if packed.data_generation == self._instance.data_generation:
            self.lost = None
        self.is_unwritten = False
        self.commits = ()
        self.append_reservation = None

    def take_append_reservation(self, packed: PackedEntry, append_reservation: AppendReservation, now: float) -> bytes:
        """Take an append reservation from here on; return the value to store, which the caller sends."""
        value = packed.reserving_appends(
            append_reservation.owner,
            append_reservation.lower_bound,
            append_reservation.anchor,
            append_reservation.leader,
        )
        append_reservation.writes(packed.version, now)
        self.append_reservation = append_reservation
        return value

    def took_append_reservation(self, append_reservation: AppendReservation) -> None:
        """The swap that takes the append reservation was confirmed in this lease epoch."""
        append_reservation.answered(append_reservation.version, _SWAPPED)
        self.stored_version = append_reservation.version
        self.written_at = self._observers.time.now
        self.commits = ()

    def write_append_reservation(self, swap: Swapping, now: float) -> None:
        """Write what is held, if it is time, while groups are still appended: the bound is moved to the end of the
        producer's last commit (rule R8), and the append reservation stays."""
        reservation, packed = self.append_reservation, self.packed
        if reservation is None or packed is None or self.known_lease_epoch != self._instance.lease_epoch:
            return
        if not reservation.is_due(now, packed.version):
            return
        reservation.move_to(packed.end_offset, packed.anchor)
        value = packed.reserving_appends(
            reservation.owner, reservation.lower_bound, reservation.anchor, reservation.leader
        )
        reservation.writes(packed.version, now)
        ttl_ms = self._instance.ids_ttl_ms
        swap(self.key, self.stored_version, value, ttl_ms, partial(self._wrote_append_reservation, reservation, packed))

    def _wrote_append_reservation(
        self, reservation: AppendReservation, packed: PackedEntry, result: SwapResult
    ) -> None:
        assert not isinstance(result, NameMoved), "a producer with a name has no append reservation"
        if (
            self.append_reservation is not reservation
            or reservation.is_ending
            or self.known_lease_epoch != self._instance.lease_epoch
        ):
            return  # the flow that ends the append reservation sees by its own swap what is stored
        if reservation.answered(reservation.version, result) is WriteResult.LOST:
            self.forget()
            return
        self.stored_version = reservation.stored_version
        self.written_at = self._observers.time.now
        packed.version = max(
            packed.version, reservation.stored_version
        )  # R17: the version is taken along, never the value

    # ------------------------------------------------------------------ what is held
    def forget_absent(self) -> None:
        """Drop what is only held here, of an entry that is not stored."""
        self.entry = None
        self.forget()

    def forget(self) -> None:
        """Drop what is known, as it may be out of date: ``learn`` reads it again."""
        self.known_lease_epoch = -1
        self.is_unwritten = False
        self.commits = ()
        self.append_reservation = None

    @property
    def owner(self) -> bytes:
        """Return the principal that the producer id belongs to, as far as it is known; for an absent entry, only after
        ``is_unverified`` was asked."""
        entry = self.entry
        return self.issued_to if entry is None or entry.principal == NO_PRINCIPAL else entry.principal

    @property
    def unrecoverable(self) -> Intent | None:
        """The unrecoverable intent whose batches are remembered (rule R17), even if the store has lost it since."""
        for entry in (self.entry, self.lost):
            intent = None if entry is None else entry.intent
            if intent is not None and intent.is_unrecoverable and intent.batches:
                return intent
        return None

    @property
    def is_unreadable(self) -> bool:
        """Is something stored that this version cannot read?"""
        return self._unreadable is not None

    def foreign(self, batches: Iterable[Batch]) -> list[Batch]:
        """Return the batches of another principal than the owner."""
        owner = self.owner
        return [] if owner == NO_PRINCIPAL else [batch for batch in batches if batch.principal != owner]

    def or_fresh(self, first: BatchIdentity, principal: bytes) -> Entry:
        """Return the entry, or the one that a first batch begins; it belongs to ``principal`` from here on."""
        entry = self.entry
        if not self.is_blank:
            assert entry is not None
            return replace(entry, principal=principal) if self.owner == NO_PRINCIPAL != principal else entry
        begun = fresh(self._instance.data_generation, principal, first.producer_epoch, first.base_sequence)
        return begun if entry is None else replace(begun, version=entry.version)

    def touched(self) -> Entry:
        """Return the entry as it is with the next version, or a blank one where there is none."""
        entry = self.entry
        if entry is None:
            entry = fresh(self._instance.data_generation, NO_PRINCIPAL, 0, 0)
        return replace(entry, version=entry.version + 1)

    @property
    def is_blank(self) -> bool:
        """Is nothing known of the producer here? There is no entry, or the log was read and has nothing of it."""
        entry = self.entry
        return entry is None or _is_blank(entry)

    def hold(self, entry: Entry, commits: Sequence[Batch] = ()) -> None:
        """Hold a commit or a release, which the next swap writes. ``commits``: the committed batches, for spans."""
        self.entry = entry
        self.is_unwritten = True
        self.commits = commits

    # R7 lives here: what is held, a commit or a release, is written by the swap of the next entry.
    async def write(
        self, entry: Entry, while_away: Callable[[str], Awaitable[None]], *, is_reserve: bool = False
    ) -> bool:
        """Swap the entry in. False: another proxy wrote, a new lease epoch began, or (``is_reserve``) the producer's
        name has a newer instance. ``while_away``: called with the reason after each swap without a reply, before that
        is repeated. An append reservation ends here."""
        if self.known_lease_epoch != self._instance.lease_epoch:
            self.forget()  # what it was made from is void: other leases, perhaps other data
            return False
        lease_epoch = self._instance.lease_epoch
        name = self.name
        # The swap only confirms that nothing is stored: a producer id that nobody issued costs no key.
        leaves_none = self.stored_version == NO_VERSION and _is_blank(entry) and name is None
        leaves_none = leaves_none and not self._is_conditional
        reservation = self.append_reservation
        if reservation is not None:
            reservation.is_ending = True  # R17: nothing begins under it from here on
            if (
                entry.intent is None
            ):  # the append reservation is handed over, with a version that none of its writes had
                entry = released(entry)
        if name is None:
            value, check = pack(replace(entry, version=PASSING_VERSION) if leaves_none else entry), None
            ttl_ms = self._instance.ids_ttl_ms if entry.has_open_intent else self._instance.expiry_ms  # R2
            ttl_ms = 0 if self._is_conditional else ttl_ms  # R23: a fence stays
            if leaves_none:
                ttl_ms = limits.BLANK_ENTRY_MS
        else:  # R22: it does not expire before its name, which is renewed together with it
            value, check = pack_named(entry), name.check(entry.producer_epoch) if is_reserve else None
            ttl_ms = self._instance.ids_ttl_ms if is_reserve or not self.stored_version else store.KEEP_TTL
        expected = self.stored_version
        while True:
            result = await Swap(self.key, expected, value, ttl_ms, check)
            if lease_epoch != self._instance.lease_epoch:
                self.forget()
                return False
            if isinstance(result, Swapped):
                self.swapped(entry)
                if leaves_none:
                    self.entry, self.stored_version = replace(entry, version=NO_VERSION), NO_VERSION
                return True
            if isinstance(result, Conflict):
                if expected == NO_VERSION and _is_passing(result.value):
                    expected = PASSING_VERSION
                    continue
                if expected == PASSING_VERSION and result.value is None:
                    expected = NO_VERSION
                    continue
                found = None if reservation is None else reservation.version_of(result.value)
                if reservation is not None and found is not None:
                    # R17: our own append reservation, of which somebody has raised the version, or a write without a
                    # reply
                    self.stored_version = reservation.stored_version = expected = found
                    entry = replace(entry, version=max(entry.version, found + 1))
                    value = pack(entry)
                    continue
                self._take(result.value)
                return False
            if isinstance(result, NameMoved):
                assert name is not None
                name.moved(result.record)
                return False
            # Nobody knows whether it was executed. The same swap again is harmless, and makes a late first one fail
            # (model row b3).
            await while_away(result.reason)
            await Pause(self._bell, limits.PROBE_SECONDS)

    def swapped(self, entry: Entry) -> None:
        """The swap of ``entry`` was confirmed in this lease epoch."""
        self.entry = entry
        self.stored_version = entry.version
        self.written_at = self._observers.time.now
        if entry.data_generation == self._instance.data_generation:
            self.lost = None
        self.is_unwritten = False
        self.commits = ()
        self.append_reservation = None

    async def is_unverified(self) -> bool | StoreAway:
        """May the entry lack its last writes (rule R10)? An absent one may, unless its producer id was issued in this
        data generation (model row d1). The block of the id is read again each time, and after the entry: whatever
        emptied the store took both."""
        if self.entry is not None:
            return self.entry.data_generation != self._instance.data_generation
        if self._is_conditional:
            return True  # R23: what the entry says is read from the end of the log
        block = await self._block()
        if isinstance(block, StoreAway):
            return block
        return block is None or block.data_generation != self._instance.data_generation

    async def may_start_anywhere(self) -> bool | None:
        """May a producer begin with any sequence here, as its state may have expired? Kafka allows that since 2.5
        (KIP-360). None: Redis went away, or was emptied, since the entry was read. The state of a named one does not
        expire (rule R22)."""
        if self.name is not None:
            return False
        block = await self._block()
        if isinstance(block, StoreAway) or (block is None and self.entry is None):
            return None
        if block is None:
            return False
        expiry_ms = min(self._instance.expiry_ms, self._instance.shortest_expiry_ms)
        return self._instance.wall_clock_ms() - block.claimed_at_ms > expiry_ms

    def _take(self, value: bytes | None) -> bool:
        try:
            stored = unpack(value) if value is not None and not _is_passing(value) else None
        except StoredFormatError as error:
            if value != self._unreadable:  # it is read again and again, until an operator repairs it
                self._unreadable = value
                self._observers.report(
                    OperatorMessage("error", f"stored state of producer {self._producer_id}: {error}")
                )
            self.forget()
            return False
        self._unreadable = None
        version = stored.version if stored else NO_VERSION
        if version < self.stored_version and not self.may_have_expired:
            self._notice_loss(version)
        if stored is not None and self.lost is not None and self._goes_further(stored, self.lost):
            self.lost = None
        lost = self.lost
        if lost is None:
            self.entry = stored
        else:
            intent = stored.intent if stored is not None else None
            if intent is None and lost.intent is not None:
                intent = replace(lost.intent, owner=NOBODY)  # still true, but no lease is waited for
            self.entry = replace(
                lost, version=max(lost.version, version), data_generation=NO_DATA_GENERATION, intent=intent
            )
        self.stored_version = version
        self.known_lease_epoch = self._instance.lease_epoch
        self.is_unwritten = False
        self.commits = ()
        self.append_reservation = None
        return True

    @property
    def may_have_expired(self) -> bool:
        """May the entry have expired in Redis? Not while this process' last write of it is younger than the expiry."""
        if self._is_conditional or (self.name is not None and not self.name.is_over):
            return False
        age_ms = (self._observers.time.now - self.written_at) * 1000
        expiry_ms = self._instance.expiry_ms
        return age_ms >= expiry_ms - min(limits.EXPIRY_SLACK_SECONDS * 1000, expiry_ms // 2)

    def _notice_loss(self, version: int) -> None:
        """The store has an older version than one that it had confirmed, in the same data generation. What we know of
        this producer is true, but others may have written since: it is unverified (rule R10) until it is rebuilt."""
        self.lost = self.entry
        what = f"version {version} is stored where version {self.stored_version} was written"
        self._observers.report(OperatorMessage("error", f"state of producer {self._producer_id} was lost: {what}"))

    def _goes_further(self, stored: Entry, lost: Entry) -> bool:
        """Does ``stored``, of this data generation, reach further than all that we knew (``lost``)? Then it was rebuilt
        and written since, and is newer, though its version is lower: versions begin again where all is lost."""
        if self._is_conditional and is_fenced(lost) and is_lifted_since(stored, lost):
            return True
        if stored.data_generation != self._instance.data_generation:
            return False
        if self._is_conditional and is_fenced(stored) != is_fenced(lost):
            return is_fenced(stored)  # R23: a fence stays, no matter which of the two has it
        if stored.producer_epoch != lost.producer_epoch:
            return stored.producer_epoch > lost.producer_epoch
        return is_ahead(lost.next_sequence, stored.next_sequence)

    async def _block(self) -> Block | StoreAway | None:
        """Read the stored block of the producer id; None: there is none that can be read."""
        instance = self._instance
        value = await Read(instance.issue_key(instance.first_id(self._producer_id)))
        if not isinstance(value, bytes):
            self.is_unissued = value is None
            return value
        self.is_unissued = False
        block = unpack_block(value)
        if block is not None:
            self.issued_to = block.principal
        return block
