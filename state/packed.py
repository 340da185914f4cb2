"""An entry as numbers and bytes, for the fast path: reserved and committed without an ``Entry`` for each change. Pure.

Makes byte for byte what ``commit.py`` and ``entry.py`` make of the same input, and adds no rule to theirs. Entries that
are in any way unusual (rebuilt, given up) cannot be held here."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Protocol

from .commit import committed
from .decide import BatchIdentity
from .entry import (
    FORMAT,
    HAS_INTENT,
    HEAD,
    INTENT,
    INTENT_BATCH,
    IS_TIMED,
    NO_CONTENT,
    NO_OFFSET,
    NO_TIME,
    OWNED,
    WINDOW_BATCH,
    WINDOW_BATCH_UNTIMED,
    WINDOW_BATCHES_MAX,
    Entry,
    WindowBatch,
    unpack,
)
from .sequence import SEQUENCE_MODULUS


class Identified(Protocol):
    """A batch."""

    @property
    def identity(self) -> BatchIdentity: ...

    @property
    def digest(self) -> bytes: ...


class PackedEntry:
    """The fields of an ``Entry`` that has no intent and was not rebuilt; its window is kept as the bytes that are
    stored. ``reserved``: the stored value with an intent, until the reserved batches are committed; else None."""

    __slots__ = (
        "_batch",
        "_window",
        "_window_batches",
        "anchor",
        "end_offset",
        "first_base_offset",
        "generation",
        "next_sequence",
        "principal",
        "producer_epoch",
        "reserved",
        "version",
    )

    def __init__(self, entry: Entry) -> None:
        self.reserved: bytes | None = None
        self.generation = entry.generation
        self.principal = entry.principal
        self.producer_epoch = entry.producer_epoch
        self._take(entry)

    def _take(self, entry: Entry) -> None:
        self.version = entry.version
        self.next_sequence = entry.next_sequence
        self.first_base_offset = entry.first_base_offset
        self.end_offset = entry.end_offset
        self.anchor = entry.anchor
        is_timed = any(batch.log_append_time_ms != NO_TIME for batch in entry.window)
        self._batch = WINDOW_BATCH if is_timed else WINDOW_BATCH_UNTIMED
        fields = [
            (b.base_sequence, b.record_count, b.base_offset, *((b.log_append_time_ms,) if is_timed else ()), b.digest)
            for b in entry.window
        ]
        self._window = b"".join([self._batch.pack(*one) for one in fields])
        self._window_batches = len(entry.window)

    def reserving(
        self,
        owner: bytes,
        lower_bound: int,
        anchor: bytes,
        content: bytes,
        leader: int,
        members: int,
        batches: Sequence[int | bytes],
        attempts: int = 0,
    ) -> bytes:
        """Return the value to store, as ``pack(reserved(entry, intent))`` does. ``members``: how many batches, five at
        most, of the entry's epoch. ``batches``: base sequence, record count and digest of each, in one flat sequence.
        Nothing changes here: the caller sets ``version`` and ``reserved`` once the value is stored."""
        epoch, is_timed = self.producer_epoch, self._batch is WINDOW_BATCH
        return _layout(self._window_batches, is_timed, members).pack(
            FORMAT,
            self.version + 1,
            self.generation,
            self.principal,
            epoch,
            self.next_sequence,
            self.first_base_offset,
            self.end_offset,
            self.anchor,
            self._window_batches,
            HAS_INTENT | IS_TIMED if is_timed else HAS_INTENT,
            self._window,
            owner,
            epoch,
            lower_bound,
            anchor,
            content,
            leader,
            attempts,
            members,
            *batches,
        )

    def owning(self, owner: bytes, lower_bound: int, anchor: bytes, leader: int) -> bytes:
        """Return the value to store, as ``pack(owned(entry, ownership))`` does. The version is raised at once, not when
        the value is stored: batches are committed in between, and no later write may have the version of this one."""
        value = self.reserving(owner, lower_bound, anchor, NO_CONTENT, leader, 0, (), OWNED)
        self.version += 1
        return value

    def commit(self, batches: Sequence[Identified], base_offset: int, log_append_time_ms: int, anchor: bytes) -> int:
        """Commit batches that are in the log from ``base_offset`` on, the first one with the sequence that is due: as
        ``commit.committed``. Return the offset behind them."""
        offset, batch = base_offset, self._batch
        if batch is not (WINDOW_BATCH_UNTIMED if log_append_time_ms == NO_TIME else WINDOW_BATCH):
            return self._commit_of_another_kind(batches, base_offset, log_append_time_ms, anchor)
        for one in batches:
            sequence, count = one.identity.base_sequence, one.identity.record_count
            if log_append_time_ms == NO_TIME:
                self._window += batch.pack(sequence, count, offset, one.digest)
            else:
                self._window += batch.pack(sequence, count, offset, log_append_time_ms, one.digest)
            if self._window_batches == WINDOW_BATCHES_MAX:
                self._window = self._window[batch.size :]
            else:
                self._window_batches += 1
            offset += count
        self.next_sequence = (sequence + count) % SEQUENCE_MODULUS
        if base_offset < self.first_base_offset or self.first_base_offset == NO_OFFSET:
            self.first_base_offset = base_offset
        self.end_offset, self.anchor = offset, anchor
        self.version += 1
        self.reserved = None
        return offset

    def _commit_of_another_kind(
        self, batches: Sequence[Identified], base_offset: int, log_append_time_ms: int, anchor: bytes
    ) -> int:
        """The same where some of the batches have a log append time and others do not, which changes the layout."""
        window, offset = [], base_offset
        for one in batches:
            sequence, count = one.identity.base_sequence, one.identity.record_count
            window.append(WindowBatch(sequence, count, offset, log_append_time_ms, one.digest))
            offset += count
        self._take(committed(self.entry(), window, offset, anchor))
        self.reserved = None
        return offset

    def entry(self) -> Entry:
        """Return it as an ``Entry``, with its intent while one is reserved."""
        reserved = self.reserved  # read once: another thread may call this
        if reserved is not None:
            return unpack(reserved)
        is_timed = self._batch is WINDOW_BATCH
        quiet = _layout(self._window_batches, is_timed, -1).pack(
            FORMAT,
            self.version,
            self.generation,
            self.principal,
            self.producer_epoch,
            self.next_sequence,
            self.first_base_offset,
            self.end_offset,
            self.anchor,
            self._window_batches,
            IS_TIMED if is_timed else 0,
            self._window,
        )
        return unpack(quiet)


@cache
def _layout(window_batches: int, is_timed: bool, intent_batches: int) -> struct.Struct:
    """Return the struct of a whole value; there are only a few. -1: without an intent."""
    window = (WINDOW_BATCH if is_timed else WINDOW_BATCH_UNTIMED).size * window_batches
    intent = INTENT.format[1:] + INTENT_BATCH.format[1:] * intent_batches if intent_batches >= 0 else ""
    return struct.Struct(f"{HEAD.format}{window}s{intent}")
