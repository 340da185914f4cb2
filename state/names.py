"""Producers with a name (rule R22): what is stored of a name, and which producer id and epoch its next instance gets.
Pure: no randomness, clock or store of its own.

The producer id of a name is known by its value: 2^62 or above, where no other producer has its id. It is the first of a
block of its own, whose stored value (``producer_ids.py``) has the name. The record of the name says which id and epoch
are its newest; the swap that reserves compares them, at a fixed place of the value (rule R22)."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

from ..values import value
from .entry import NO_DATA_GENERATION, StoredFormatError
from .producer_ids import BLOCK_SIZE, CONDITIONAL_ID, PRODUCER_ID_BITS, RANDOM_BYTES

FIRST_NAMED_ID: int = 2**PRODUCER_ID_BITS
EPOCH_MAX = 2**15 - 1
NAME_BYTES_MAX = 249
"""As for the name of a topic: the name is part of a Redis key, and shown in tables."""
NO_ID = -1
NO_EPOCH = -1

FORMAT = 1
_RECORD = struct.Struct(">BQqh16s8shqQ")
_NEWEST = struct.Struct(">qh")
NEWEST_AT = (9, 18)
"""The first and the last byte (inclusive, as GETRANGE takes them) of the newest id and epoch in a record."""
_NAMED_BLOCKS: int = FIRST_NAMED_ID // BLOCK_SIZE - 1


@value(frozen=True, slots=True)
class NameRecord:
    """What is stored of a name. ``version``: raised by every write. ``data_generation``: the Redis data generation in
    which the epoch was issued; ``NO_DATA_GENERATION`` if a higher epoch was seen than was stored: writes may be lost
    (rule R10). ``raised_from``: the epoch whose own instance asked for this one; -1: a new instance did. ``last_id``:
    the producer id before this one, whose state on partitions may not be due to expire yet; -1: none. ``issued_at_ms``:
    since 1970."""

    version: int
    producer_id: int
    producer_epoch: int
    data_generation: bytes
    principal: bytes
    raised_from: int = NO_EPOCH
    last_id: int = NO_ID
    issued_at_ms: int = 0

    @property
    def newest(self) -> tuple[int, int]:
        """The newest producer id and epoch."""
        return self.producer_id, self.producer_epoch


def is_named(producer_id: int) -> bool:
    """Does the producer id belong to a name?"""
    return producer_id >= FIRST_NAMED_ID and producer_id != CONDITIONAL_ID


def propose_named_id(random_bytes: bytes) -> int:
    """Return a producer id to be claimed for a name. ``random_bytes``: 16, fresh, from the system's generator."""
    assert len(random_bytes) == RANDOM_BYTES
    first = -(-FIRST_NAMED_ID // BLOCK_SIZE)
    return (first + int.from_bytes(random_bytes, "big") % _NAMED_BLOCKS) * BLOCK_SIZE


def is_name(name: str) -> bool:
    """Tell whether this can be the name of a producer: 1 to 249 bytes, without control characters."""
    return 0 < len(name.encode()) <= NAME_BYTES_MAX and name.isprintable()


def listed_name(name: str) -> bytes:
    """Return by what a name is listed among those of its principal: 16 hexadecimal digits, where a name may have 249
    bytes."""
    return hashlib.sha256(name.encode()).hexdigest()[:16].encode()


def newest_bytes(producer_id: int, producer_epoch: int) -> bytes:
    """Return what a record has at ``NEWEST_AT`` when these are the newest."""
    return _NEWEST.pack(producer_id, producer_epoch)


def pack_name(record: NameRecord) -> bytes:
    """Return the bytes to store."""
    return _RECORD.pack(
        FORMAT,
        record.version,
        record.producer_id,
        record.producer_epoch,
        record.data_generation,
        record.principal,
        record.raised_from,
        record.last_id,
        record.issued_at_ms,
    )


def unpack_name(stored: bytes) -> NameRecord:
    """Return the record that ``pack_name`` wrote. Raises StoredFormatError for anything else."""
    if len(stored) != _RECORD.size or stored[0] != FORMAT:
        raise StoredFormatError(f"the record of a name has {len(stored)} bytes that cannot be read")
    return NameRecord(*_RECORD.unpack(stored)[1:])


# ---------------------------------------------------------------------- which epoch an instance gets
@value(frozen=True, slots=True)
class Raised:
    """The next epoch of the same producer id: ``record`` is to be written."""

    record: NameRecord


@value(frozen=True, slots=True)
class NewId:
    """A producer id that no instance ever had is needed: ``with_new_id`` gives the record to write."""


@value(frozen=True, slots=True)
class Repeated:
    """The same raise was asked for before, and its answer was lost: the stored id and epoch are the answer."""


@value(frozen=True, slots=True)
class ForeignName:
    """The name belongs to another principal."""


@value(frozen=True, slots=True)
class Outdated:
    """The instance that asks for a higher epoch is not the newest one."""


NameVerdict = Raised | NewId | Repeated | ForeignName | Outdated


# R22 lives here: which producer id and epoch the next instance of a name gets.
def next_instance(
    record: NameRecord | None,
    principal: bytes,
    data_generation: bytes,
    now_ms: int,
    *,
    keeps_id: bool,
    given: tuple[int, int] | None = None,
) -> NameVerdict:
    """Return what InitProducerId gives an instance of a name. ``given``: the id and epoch that the instance has, if it
    asks for a higher epoch only (KIP-360). ``keeps_id``: a new instance gets the id of the one before; to be False for
    clients that raise their epoch by themselves when they are fenced (model row S10).

    No epoch is issued twice: if Redis may have lost that an epoch was issued, after the last epoch (32767), and where
    there is no record, as the name is new, has expired or was forgotten, the name gets a new id (model rows S5, S6, S7,
    S12, S20)."""
    if record is not None and record.principal != principal:
        return ForeignName()
    raised_from = NO_EPOCH
    if given is not None:
        if record is None:
            return Outdated()
        asked_with = record.producer_id if record.producer_epoch else record.last_id  # a raise may have needed a new id
        if record.raised_from != NO_EPOCH and (asked_with, record.raised_from) == given:
            return Repeated()
        if record.newest != given:
            return Outdated()
        raised_from = record.producer_epoch
    elif not keeps_id:
        return NewId()
    if record is None or record.data_generation != data_generation or record.producer_epoch >= EPOCH_MAX:
        return NewId()
    epoch = record.producer_epoch + 1
    return Raised(
        replace(
            record,
            version=record.version + 1,
            producer_epoch=epoch,
            raised_from=raised_from,
            issued_at_ms=now_ms,
        )
    )


def with_new_id(
    record: NameRecord | None,
    producer_id: int,
    principal: bytes,
    data_generation: bytes,
    now_ms: int,
    raised_from: int = NO_EPOCH,
) -> NameRecord:
    """Return the record of a name whose newest instance has a new producer id. ``raised_from``: the epoch that it had
    before, if it asked for a higher one."""
    version, last_id = (1, NO_ID) if record is None else (record.version + 1, record.producer_id)
    return NameRecord(version, producer_id, 0, data_generation, principal, raised_from, last_id, now_ms)


# ---------------------------------------------------------------------- who may append
def is_fenced(record: NameRecord | None, producer_id: int, producer_epoch: int) -> bool:
    """Is a batch with this id and epoch one of an older instance? ``record`` None, the name has expired, was forgotten
    or lost: every batch is."""
    return record is None or record.producer_id != producer_id or producer_epoch < record.producer_epoch


def with_higher_epoch(record: NameRecord, producer_epoch: int) -> NameRecord:
    """Return the record after a higher epoch of its id was seen than is stored: the client has raised it, or Redis has
    lost that it was issued. Still higher epochs may have been issued, so the next instance gets a new id (row S7)."""
    return replace(
        record,
        version=record.version + 1,
        producer_epoch=producer_epoch,
        data_generation=NO_DATA_GENERATION,
        raised_from=NO_EPOCH,
    )
