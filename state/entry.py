"""What is stored of one producer on one partition, and its packed form. Owns the byte layout; decides nothing.

One entry is one Redis value, big endian. Byte 0 is the format, bytes 1 to 8 the version that every write raises
(compared by the swap); the rest means nothing to Redis. Source of the window: Kafka ProducerStateEntry
(NUM_BATCHES_TO_RETAIN = 5)."""

from __future__ import annotations

import hashlib
import struct
from enum import Enum
from functools import cache

from ..values import value
from .sequence import advance

FORMAT = 3
WINDOW_BATCHES_MAX = 5
"""As many batches as a producer may have in flight, so the retry of any of them is recognised."""
GROUP_BATCHES_MAX = 5
"""Batches that one intent, and one append, covers."""
NO_OFFSET = -1
NO_TIME = -1
NO_SEQUENCE = -1
NO_DIGEST = bytes(8)
"""The digest of the batch is not known: its numbers alone tell it."""
NO_ANCHOR = bytes(8)
NO_CONTENT = bytes(8)
NO_PRINCIPAL = bytes(8)
NO_INSTANCE_ID = bytes(8)
NO_DATA_GENERATION = bytes(16)
NOBODY = bytes(8)
"""The owner of an intent that was left by its owner: no lease ever has this name, so any proxy may take the intent
over."""

# The layout of a value, also for ``packed.py``.
HEAD = struct.Struct(">BQ16s8shiqq8sBB")
WINDOW_BATCH = struct.Struct(">iiqq8s")
WINDOW_BATCH_UNTIMED = struct.Struct(">iiq8s")
INTENT = struct.Struct(">8shq8s8siBB")
INTENT_BATCH = struct.Struct(">ii8s")
HAS_INTENT, IS_TIMED, IS_REBUILT, _IS_NAMED = 1, 2, 4, 16  # 8 was another flag once
_FLAGS = HAS_INTENT | IS_TIMED | IS_REBUILT | _IS_NAMED
_FLAGS_AT = HEAD.size - 1


class IntentKind(Enum):
    """What an intent says. The value is what is stored in place of its attempts; a plain intent has its attempts
    there."""

    PLAIN = 0
    """Its owner may have appended its batches; without batches, its owner forwards nothing and rebuilds the entry."""
    TAKEN_OVER = 253
    """It was an append reservation, and the log is read for what was appended under it."""
    APPEND_RESERVATION = 254
    """Its owner may append any batches of the epoch (rule R2)."""
    UNRECOVERABLE = 255
    """Nobody can determine whether its batches are in the log (rule R17)."""


_PLAIN, _TAKEN_OVER = IntentKind.PLAIN, IntentKind.TAKEN_OVER
_APPEND_RESERVATION, _UNRECOVERABLE = IntentKind.APPEND_RESERVATION, IntentKind.UNRECOVERABLE


class StoredFormatError(Exception):
    """A stored value that this version cannot read: damaged, or written by a newer proxy."""


@value(frozen=True, slots=True)
class WindowBatch:
    """One of the last five batches that are in the log. Of a batch that is stored in parts: those of its records that
    are stored.

    ``digest``: of the keys and values of the client's whole batch (``codecs/batch_digest.py``): some clients make a
    batch again for each try, with other timestamps (rule R9). ``NO_DIGEST``: the batch was found by its batch marker,
    or is not complete."""

    base_sequence: int
    record_count: int
    base_offset: int
    log_append_time_ms: int = NO_TIME
    digest: bytes = NO_DIGEST


@value(frozen=True, slots=True)
class IntentBatch:
    """One batch that is about to be, or may have been, forwarded. Of a batch that is stored in parts: the records that
    are left; only the first part of these may have been forwarded. ``digest``: of the client's whole batch."""

    base_sequence: int
    record_count: int
    digest: bytes


@value(frozen=True, slots=True)
class Intent:
    """What a proxy instance may append, stored before a byte goes to the broker (rule R2).

    ``batches`` empty: it is an append reservation, under which its owner may append any batches of the epoch; or a
    takeover, under which its owner forwards nothing and rebuilds the whole entry from the log (rule R10); or,
    unrecoverable, the mark of an ambiguous entry (``commit.ambiguous``). ``lower_bound``: no copy of these batches can
    lie below this offset; ``anchor`` identifies the record just below it (rule R8). ``content``: digest of the first
    record's key and value, to find out whether a batch marker was lost on the way. ``leader``: the broker that it is
    meant for, which has to pass the quiescence check before the log is read (rule R6). ``attempts``: how often it was
    forwarded again; 0 of every kind but the plain one."""

    owner: bytes
    producer_epoch: int
    batches: tuple[IntentBatch, ...]
    lower_bound: int
    anchor: bytes
    content: bytes
    leader: int
    attempts: int = 0
    kind: IntentKind = IntentKind.PLAIN

    @property
    def is_unrecoverable(self) -> bool:
        """Is it undetermined for good whether its batches are in the log? They are remembered, so that they are not
        forwarded again (rule R17), until other batches take their place. Nobody owns them; a rebuild's takeover may
        carry them."""
        return self.kind is _UNRECOVERABLE

    @property
    def is_append_reservation(self) -> bool:
        """May its owner append any batches of this epoch after the bound without an intent for each (rule R2)? Each has
        its batch marker in the log, so a takeover of the append reservation rebuilds the entry from the bound on."""
        return self.kind is _APPEND_RESERVATION

    @property
    def was_append_reservation(self) -> bool:
        """Is it an append reservation, or was it one when its takeover began? Another flow may have to finish that
        takeover."""
        return self.kind is _APPEND_RESERVATION or self.kind is _TAKEN_OVER


@value(frozen=True, slots=True)
class Entry:
    """The state of one producer on one partition.

    ``version``: raised by every write. ``data_generation``: the Redis data generation in which the entry was last known
    to be complete. ``next_sequence``: the sequence that is due. ``window``: oldest first, at most five.
    ``first_base_offset``: where the present epoch begins in the log. ``end_offset``, ``anchor``: end and last record of
    the last committed append, of any epoch. ``is_rebuilt``: the newest part was read from the log, and nothing was
    committed since."""

    version: int
    data_generation: bytes
    principal: bytes
    producer_epoch: int
    next_sequence: int
    window: tuple[WindowBatch, ...] = ()
    first_base_offset: int = NO_OFFSET
    end_offset: int = NO_OFFSET
    anchor: bytes = NO_ANCHOR
    intent: Intent | None = None
    is_rebuilt: bool = False

    @property
    def has_open_intent(self) -> bool:
        """Does something have to be found out before anything else may be appended?"""
        return self.intent is not None and self.intent.kind is not _UNRECOVERABLE

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record that is known to be stored of the epoch; ``NO_SEQUENCE``: none is."""
        has_none = not self.window and not self.next_sequence
        return NO_SEQUENCE if has_none else advance(self.next_sequence, -1)

    @property
    def is_ambiguous(self) -> bool:
        """May the log have more of the producer than is stored, which cannot be determined?"""
        return self.intent is not None and self.intent.is_unrecoverable and not self.intent.batches


def principal_of(name: str | None) -> bytes:
    """Return what stands for a principal in stored values: a digest of its name. None: the anonymous principal, of
    clients that do not authenticate."""
    return NO_PRINCIPAL if name is None else hashlib.blake2b(name.encode(), digest_size=len(NO_PRINCIPAL)).digest()


def pack(entry: Entry) -> bytes:
    """Return the bytes to store: 65 without a window, 185 with a full one, 305 with that and an intent of five batches;
    8 more for each batch in the window where the broker stores log append time."""
    window, intent = entry.window, entry.intent
    count = len(window)
    timed = False
    places: list[int | bytes] = []
    for batch in window:
        places += (batch.base_sequence, batch.record_count, batch.base_offset, batch.digest)
        timed = timed or batch.log_append_time_ms != NO_TIME
    if timed:
        places = []
        for batch in window:
            places += (
                batch.base_sequence,
                batch.record_count,
                batch.base_offset,
                batch.log_append_time_ms,
                batch.digest,
            )
    head = (
        FORMAT,
        entry.version,
        entry.data_generation,
        entry.principal,
        entry.producer_epoch,
        entry.next_sequence,
        entry.first_base_offset,
        entry.end_offset,
        entry.anchor,
        count,
        (HAS_INTENT if intent else 0) | (IS_TIMED if timed else 0) | (IS_REBUILT if entry.is_rebuilt else 0),
    )
    if intent is None:
        return _layout(count, timed, -1).pack(*head, *places)
    members: list[int | bytes] = []
    for member in intent.batches:
        members += (member.base_sequence, member.record_count, member.digest)
    batches = len(intent.batches)
    return _layout(count, timed, batches).pack(
        *head,
        *places,
        intent.owner,
        intent.producer_epoch,
        intent.lower_bound,
        intent.anchor,
        intent.content,
        intent.leader,
        intent.attempts if intent.kind is _PLAIN else intent.kind.value,
        batches,
        *members,
    )


def pack_named(entry: Entry) -> bytes:
    """Return the bytes to store for a producer with a name. Proxies that know no names take them for damaged: they
    would not compare the name's epoch (rule R22)."""
    packed = bytearray(pack(entry))
    packed[_FLAGS_AT] |= _IS_NAMED
    return bytes(packed)


@cache
def _layout(window_batches: int, timed: bool, intent_batches: int) -> struct.Struct:
    """Return the struct of a whole value; there are only a few. -1: without an intent."""
    window = (WINDOW_BATCH if timed else WINDOW_BATCH_UNTIMED).format[1:] * window_batches
    intent = INTENT.format[1:] + INTENT_BATCH.format[1:] * intent_batches if intent_batches >= 0 else ""
    return struct.Struct(HEAD.format + window + intent)


def unpack(value: bytes) -> Entry:
    """Return the entry that ``pack`` wrote. Raises StoredFormatError for anything else."""
    try:
        return _unpack(value)
    except struct.error as error:
        raise StoredFormatError(f"stored entry of {len(value)} bytes is cut short: {error}") from None


def _unpack(value: bytes) -> Entry:
    (form, version, data_generation, principal, epoch, next_sequence, first, end, anchor, count, flags) = (
        HEAD.unpack_from(value)
    )
    if form != FORMAT:
        raise StoredFormatError(f"stored entry has format {form}, this proxy reads {FORMAT}")
    if count > WINDOW_BATCHES_MAX or flags & ~_FLAGS:
        raise StoredFormatError(f"stored entry has {count} batches and flags {flags}")
    position = HEAD.size
    window, is_timed = [], bool(flags & IS_TIMED)
    layout = WINDOW_BATCH if is_timed else WINDOW_BATCH_UNTIMED
    for _ in range(count):
        sequence, records, offset, *rest = layout.unpack_from(value, position)
        window.append(WindowBatch(sequence, records, offset, rest[0] if is_timed else NO_TIME, rest[-1]))
        position += layout.size
    intent = None
    if flags & HAS_INTENT:
        intent, position = _unpack_intent(value, position)
    if position != len(value):
        raise StoredFormatError(f"stored entry has {len(value) - position} bytes too many")
    common = version, data_generation, principal, epoch, next_sequence, tuple(window), first, end, anchor
    return Entry(*common, intent, bool(flags & IS_REBUILT))


def _unpack_intent(value: bytes, position: int) -> tuple[Intent, int]:
    owner, epoch, bound, anchor, content, leader, attempts, count = INTENT.unpack_from(value, position)
    if count > GROUP_BATCHES_MAX:
        raise StoredFormatError(f"stored intent has {count} batches")
    position += INTENT.size
    batches = []
    for _ in range(count):
        batches.append(IntentBatch(*INTENT_BATCH.unpack_from(value, position)))
        position += INTENT_BATCH.size
    kind = _PLAIN
    if attempts == _UNRECOVERABLE.value:
        kind, attempts = _UNRECOVERABLE, 0
    elif not batches and attempts >= _TAKEN_OVER.value:
        kind, attempts = IntentKind(attempts), 0
    return Intent(owner, epoch, tuple(batches), bound, anchor, content, leader, attempts, kind), position
