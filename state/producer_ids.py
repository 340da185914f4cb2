"""Producer ids: blocks at random aligned places, handed out one by one. Pure: no randomness, clock or store of its own.

A block is claimed in the store before its first id is handed out. Blocks are random, not counted up: otherwise a store
that lost its last writes could issue an id twice, which would make a new producer look like a duplicate.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .entry import NO_PRINCIPAL

BLOCK_SIZE = 1000
PRODUCER_ID_BITS = 62
"""Positive in every client's signed 64 bits. The bit above is set in the ids of names (``names.FIRST_NAMED_ID``)."""
PREFETCH_SHARE = 0.9
"""The next block is claimed when so much of the present one is used, so that no producer waits for it."""
RANDOM_BYTES = 16
CONDITIONAL_ID: int = 2**63 - 1
"""The producer id of all who publish conditionally (rule R23). It is issued to nobody: it lies above all blocks, and is
not the first id of a block, as the id of a name is."""

_BLOCKS: int = 2**PRODUCER_ID_BITS // BLOCK_SIZE
_UNBOUND = struct.Struct(">B16sQ")
_BOUND = struct.Struct(">B16sQ8s")
_UNBOUND_FORMAT, _BOUND_FORMAT, _NAMED_FORMAT = 1, 2, 3


class Block(NamedTuple):
    """A claimed block. ``data_generation``: the data generation in which it was claimed. ``claimed_at_ms``: since 1970.
    ``principal``: to whom its ids are issued. ``name``: the name whose one id it has; empty: producers without one."""

    data_generation: bytes
    claimed_at_ms: int
    principal: bytes = NO_PRINCIPAL
    name: str = ""


def block_of(producer_id: int) -> int:
    """Return the start of the block that the id belongs to."""
    return producer_id - producer_id % BLOCK_SIZE


def pack_block(data_generation: bytes, claimed_at_ms: int, principal: bytes = NO_PRINCIPAL, name: str = "") -> bytes:
    """Return the value of a block's key. Without a principal it is the first format, from before there were principals;
    a name stands at the end."""
    assert len(data_generation) == 16
    if name:
        return _BOUND.pack(_NAMED_FORMAT, data_generation, claimed_at_ms, principal) + name.encode()
    if principal == NO_PRINCIPAL:
        return _UNBOUND.pack(_UNBOUND_FORMAT, data_generation, claimed_at_ms)
    assert len(principal) == len(NO_PRINCIPAL)
    return _BOUND.pack(_BOUND_FORMAT, data_generation, claimed_at_ms, principal)


def unpack_block(value: bytes) -> Block | None:
    """Return what a block's value says; None if this version cannot read it."""
    if len(value) == _UNBOUND.size and value[0] == _UNBOUND_FORMAT:
        return Block(*_UNBOUND.unpack(value)[1:])
    if len(value) == _BOUND.size and value[0] == _BOUND_FORMAT:
        block = Block(*_BOUND.unpack(value)[1:])
        return block if block.principal != NO_PRINCIPAL else None
    if len(value) > _BOUND.size and value[0] == _NAMED_FORMAT:
        try:
            _, data_generation, claimed_at_ms, principal = _BOUND.unpack_from(value)
            return Block(data_generation, claimed_at_ms, principal, value[_BOUND.size :].decode())
        except UnicodeDecodeError:
            return None
    return None


def version_of_block(stored: bytes) -> int:
    """Return what a swap compares that writes a block's value again, to renew it: its first bytes, as no other value is
    ever stored under that key."""
    return int.from_bytes(stored[1:9], "big")


class IdBlocks:
    """The block in use and the one after it. Stores nothing itself: the caller writes the block that ``propose``
    returns to the store, and then calls ``claimed``."""

    __slots__ = ("_current", "_next", "_used")

    def __init__(self) -> None:
        self._current: int | None = None
        self._used = 0
        self._next: int | None = None

    @property
    def wants_block(self) -> bool:
        """Should a block be claimed now? Yes if there is none, or the present one is nearly used up."""
        if self._next is not None:
            return False
        return self._current is None or self._used >= BLOCK_SIZE * PREFETCH_SHARE

    def next_id(self) -> int | None:
        """Return an id that no other producer has, or None while a block has to be claimed first."""
        if self._current is not None and self._used == BLOCK_SIZE:
            self._current = None
        if self._current is None:
            self._current, self._next, self._used = self._next, None, 0
            if self._current is None:
                return None
        producer_id = self._current + self._used
        self._used += 1
        return producer_id

    def propose(self, random_bytes: bytes) -> int:
        """Return the start of a block to be claimed. ``random_bytes``: 16, fresh, from the system's generator."""
        assert len(random_bytes) == RANDOM_BYTES
        return int.from_bytes(random_bytes, "big") % _BLOCKS * BLOCK_SIZE

    def claimed(self, block_start: int) -> None:
        """The block is ours. Called once for each block: a second call would hand out its ids again."""
        assert block_start % BLOCK_SIZE == 0
        assert 0 <= block_start < 2**PRODUCER_ID_BITS
        assert block_start not in (self._current, self._next), "claimed twice"
        if self._current is None:
            self._current, self._used = block_start, 0
        elif self._next is None:
            self._next = block_start

    def forget(self) -> None:
        """Hand out nothing more of the present blocks: they were claimed in an earlier data generation (rule R10)."""
        self._current = self._next = None
        self._used = 0
