"""The stored entry of one producer and partition as this process holds it: read, swapped, and what is known but not
written yet.

Flows only. A commit or a release is held first and rides on the next swap (rule R7); a swap without a reply is
repeated until one confirms it (R17). What was learned in an earlier era is void. Decides nothing about batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from ...state import store
from ...state.commit import fresh, released
from ...state.conditional import is_conditional, is_fenced, is_lifted_since
from ...state.decide import BatchIdentity
from ...state.entry import (
    NO_GENERATION,
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
from ...state.producer_ids import Block, block_of, unpack_block
from ...state.sequence import is_ahead
from ...state.store import NO_VERSION, PASSING_VERSION, Conflict, NameMoved, StoreAway, Swapped, SwapResult
from .. import limits
from ..events import OperatorMessage
from ..flow.effects import Pause, Read, Swap, Wakeup
from ..flow.observers import Observers
from .batch import Batch
from .life import Life
from .name_guard import NameGuard
from .outside import Swapping
from .ownership import Ownership, Told

_SWAPPED = Swapped()


def _is_passing(value: bytes | None) -> bool:
    return value is not None and int.from_bytes(value[1:9], "big") == PASSING_VERSION


def _is_blank(entry: Entry) -> bool:
    """Does it say nothing of its producer?"""
    return not (entry.window or entry.intent or entry.end_offset >= 0 or entry.producer_epoch)


class CachedEntry:
    """``key``: where it is stored. ``stored_version``: the last one that was seen there. ``name``: of a named producer
    (rule R22), else None."""

    def __init__(
        self, life: Life, observers: Observers, bell: Wakeup, producer_id: int, topic: str, partition: int
    ) -> None:
        self.packed: PackedEntry | None = None
        """The entry as appends change it; None: nothing is stored."""
        self.is_unwritten = False
        self.commits: Sequence[Batch] = ()
        """Batches whose commit is held; empty when no spans are wanted."""
        self.ownership: Ownership | None = None
        """Groups are appended without a swap for each under this ownership, from the swap on that takes it. What is
        held has no intent then, and counts as unwritten until a flow has written it (rule R15)."""
        self._life = life
        self._observers = observers
        self._bell = bell
        self._producer_id = producer_id
        self.key = store.entry_key(life.cluster, producer_id, topic, partition)
        self.stored_version = NO_VERSION
        self._is_conditional = is_conditional(producer_id)
        self.name = NameGuard(life, producer_id) if is_named(producer_id) else None
        self.known_era = -1
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
        era began meanwhile."""
        if not self.is_unwritten and self.may_have_expired:
            self.forget()  # it may have been made anew since, with the same version as the one remembered
        if self.known_era == self._life.era:
            return True
        era = self._life.era
        value = await Read(self.key)
        if isinstance(value, StoreAway) or era != self._life.era:
            return False
        return self._take(value)

    # ------------------------------------------------------------------ appends
    def reserved(self, packed: PackedEntry, value: bytes) -> None:
        """The swap with which ``packed`` reserves a group was confirmed in this era; ``value`` is stored."""
        packed.with_intent, packed.has_intent = value, True
        packed.version += 1
        self.packed = packed
        self.stored_version = packed.version
        self.written_at = self._observers.time.now
        if packed.generation == self._life.generation:
            self.lost = None
        self.is_unwritten = False
        self.commits = ()
        self.ownership = None

    def take_ownership(self, packed: PackedEntry, ownership: Ownership, now: float) -> bytes:
        """Take an ownership from here on; return the value to store, which the caller sends."""
        value = packed.owning(ownership.owner, ownership.lower_bound, ownership.anchor, ownership.leader)
        ownership.writes(packed.version, now)
        self.ownership = ownership
        return value

    def took_ownership(self, ownership: Ownership) -> None:
        """The swap that takes the ownership was confirmed in this era."""
        ownership.answered(ownership.version, _SWAPPED)
        self.stored_version = ownership.version
        self.written_at = self._observers.time.now
        self.commits = ()

    def write_owned(self, swap: Swapping, now: float) -> None:
        """Write what is held, if it is time, while groups go on being appended: the bound is moved to the end of the
        producer's last commit (rule R8), and the ownership stays."""
        owned, packed = self.ownership, self.packed
        if owned is None or packed is None or self.known_era != self._life.era:
            return
        if not owned.is_due(now, packed.version):
            return
        owned.move_to(packed.end_offset, packed.anchor)
        value = packed.owning(owned.owner, owned.lower_bound, owned.anchor, owned.leader)
        owned.writes(packed.version, now)
        ttl_ms = self._life.ids_ttl_ms
        swap(self.key, self.stored_version, value, ttl_ms, partial(self._wrote_owned, owned, packed))

    def _wrote_owned(self, owned: Ownership, packed: PackedEntry, result: SwapResult) -> None:
        assert not isinstance(result, NameMoved), "a named producer has no ownership"
        if self.ownership is not owned or owned.is_ending or self.known_era != self._life.era:
            return  # the flow that ends the ownership sees by its own swap what is stored
        if owned.answered(owned.version, result) is Told.LOST:
            self.forget()
            return
        self.stored_version = owned.stored_version
        self.written_at = self._observers.time.now
        packed.version = max(packed.version, owned.stored_version)  # R17: the version is taken along, never the value

    # ------------------------------------------------------------------ what is held
    def forget_absent(self) -> None:
        """Drop what is only held here, of an entry that is not stored."""
        self.entry = None
        self.forget()

    def forget(self) -> None:
        """Drop what is known, as it may be out of date: ``learn`` reads it again."""
        self.known_era = -1
        self.is_unwritten = False
        self.commits = ()
        self.ownership = None

    @property
    def owner(self) -> bytes:
        """Return the principal that the producer id belongs to, as far as it is known; for an absent entry, only after
        ``is_suspect`` was asked."""
        entry = self.entry
        return self.issued_to if entry is None or entry.principal == NO_PRINCIPAL else entry.principal

    @property
    def given_up(self) -> Intent | None:
        """The given-up intent whose batches are remembered (rule R17), even if the store has lost it since."""
        for entry in (self.entry, self.lost):
            intent = None if entry is None else entry.intent
            if intent is not None and intent.is_given_up and intent.batches:
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
        begun = fresh(self._life.generation, principal, first.producer_epoch, first.base_sequence)
        return begun if entry is None else replace(begun, version=entry.version)

    def touched(self) -> Entry:
        """Return the entry as it is with the next version, or a blank one where there is none."""
        entry = self.entry
        if entry is None:
            entry = fresh(self._life.generation, NO_PRINCIPAL, 0, 0)
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
        """Swap the entry in. False: another proxy wrote, a new era began, or (``is_reserve``) the producer's name has a
        newer instance. ``while_away``: called with the reason after each swap without a reply, before that is repeated.
        An ownership ends here."""
        if self.known_era != self._life.era:
            self.forget()  # what it was made from is void: other leases, perhaps other data
            return False
        era = self._life.era
        name = self.name
        # The swap only confirms that nothing is stored: a producer id that nobody issued costs no key.
        leaves_none = self.stored_version == NO_VERSION and _is_blank(entry) and name is None
        leaves_none = leaves_none and not self._is_conditional
        owned = self.ownership
        if owned is not None:
            owned.is_ending = True  # R17: nothing begins under it from here on
            if entry.intent is None:  # the ownership is handed over, with a version that none of its writes had
                entry = released(entry)
        if name is None:
            value, check = pack(replace(entry, version=PASSING_VERSION) if leaves_none else entry), None
            ttl_ms = self._life.ids_ttl_ms if entry.has_open_intent else self._life.expiry_ms  # R2
            ttl_ms = 0 if self._is_conditional else ttl_ms  # R23: a fence stays
            if leaves_none:
                ttl_ms = limits.BLANK_ENTRY_MS
        else:  # R22: it does not expire before its name, which is renewed together with it
            value, check = pack_named(entry), name.check(entry.producer_epoch) if is_reserve else None
            ttl_ms = self._life.ids_ttl_ms if is_reserve or not self.stored_version else store.KEEP_TTL
        expected = self.stored_version
        while True:
            result = await Swap(self.key, expected, value, ttl_ms, check)
            if era != self._life.era:
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
                found = None if owned is None else owned.version_of(result.value)
                if owned is not None and found is not None:
                    # R17: our own ownership, of which somebody has raised the version, or a write without a reply
                    self.stored_version = owned.stored_version = expected = found
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
        """The swap of ``entry`` was confirmed in this era."""
        self.entry = entry
        self.stored_version = entry.version
        self.written_at = self._observers.time.now
        if entry.generation == self._life.generation:
            self.lost = None
        self.is_unwritten = False
        self.commits = ()
        self.ownership = None

    async def is_suspect(self) -> bool | StoreAway:
        """May the entry lack its last writes (rule R10)? An absent one may, unless its producer id was issued in this
        generation (model row d1). The block of the id is read anew each time, and after the entry: whatever emptied the
        store took both."""
        if self.entry is not None:
            return self.entry.generation != self._life.generation
        if self._is_conditional:
            return True  # R23: what the entry says is read from the end of the log
        block = await self._block()
        if isinstance(block, StoreAway):
            return block
        return block is None or block.generation != self._life.generation

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
        expiry_ms = min(self._life.expiry_ms, self._life.shortest_expiry_ms)
        return self._life.wall_clock_ms() - block.claimed_at_ms > expiry_ms

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
            self.entry = replace(lost, version=max(lost.version, version), generation=NO_GENERATION, intent=intent)
        self.stored_version = version
        self.known_era = self._life.era
        self.is_unwritten = False
        self.commits = ()
        self.ownership = None
        return True

    @property
    def may_have_expired(self) -> bool:
        """May the entry have expired in Redis? Not while this process' last write of it is younger than the expiry."""
        if self._is_conditional or (self.name is not None and not self.name.is_over):
            return False
        age_ms = (self._observers.time.now - self.written_at) * 1000
        expiry_ms = self._life.expiry_ms
        return age_ms >= expiry_ms - min(limits.EXPIRY_SLACK_SECONDS * 1000, expiry_ms // 2)

    def _notice_loss(self, version: int) -> None:
        """The store has an older version than one that it had confirmed, in the same life of its data. What we know of
        this producer is true, but others may have written since: it is suspect (rule R10) until it is rebuilt."""
        self.lost = self.entry
        what = f"version {version} is stored where version {self.stored_version} was written"
        self._observers.report(OperatorMessage("error", f"state of producer {self._producer_id} was lost: {what}"))

    def _goes_further(self, stored: Entry, lost: Entry) -> bool:
        """Does ``stored``, of this life of the data, reach behind all that we knew (``lost``)? Then it was rebuilt and
        written since, and is newer, though its version is lower: versions begin anew where all is lost."""
        if self._is_conditional and is_fenced(lost) and is_lifted_since(stored, lost):
            return True
        if stored.generation != self._life.generation:
            return False
        if self._is_conditional and is_fenced(stored) != is_fenced(lost):
            return is_fenced(stored)  # R23: a fence stays, whoever knows of it
        if stored.producer_epoch != lost.producer_epoch:
            return stored.producer_epoch > lost.producer_epoch
        return is_ahead(lost.next_sequence, stored.next_sequence)

    async def _block(self) -> Block | StoreAway | None:
        """Read the claim of the producer id's block; None: there is none that can be read."""
        value = await Read(store.block_key(self._life.cluster, block_of(self._producer_id)))
        if not isinstance(value, bytes):
            self.is_unissued = value is None
            return value
        self.is_unissued = False
        block = unpack_block(value)
        if block is not None:
            self.issued_to = block.principal
        return block
