"""An entry as it is kept in memory: numbers and bytes, so that it is reserved and committed without an ``Entry`` for
each change, and a readable view of them once somebody asks. Pure.

Makes byte for byte what ``commit.py`` and ``entry.py`` make of the same input, and adds no rule to theirs."""

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
    IS_REBUILT,
    IS_TIMED,
    NO_CONTENT,
    NO_OFFSET,
    NO_TIME,
    WINDOW_BATCH,
    WINDOW_BATCH_UNTIMED,
    WINDOW_BATCHES_MAX,
    Entry,
    IntentKind,
    WindowBatch,
    pack_named,
    unpack,
)
from .sequence import SEQUENCE_MODULUS

_APPEND_RESERVATION = IntentKind.APPEND_RESERVATION.value


class Identified(Protocol):
    """A batch."""

    @property
    def identity(self) -> BatchIdentity: ...

    @property
    def digest(self) -> bytes: ...


class Unstored(Identified, Protocol):
    """A batch that is about to be appended. ``left``: what is not stored yet; if nothing is stored, its identity."""

    @property
    def stored_records(self) -> int: ...

    @property
    def left(self) -> BatchIdentity: ...


class PackedEntry:
    """The fields of an ``Entry``; its window is kept as the bytes that are stored. ``has_intent``: until the batches of
    that are committed. ``with_intent``: the whole value then, if it was made here. ``window_batches``: how many there
    are in the window. ``is_rebuilt``: as a flag of the value."""

    __slots__ = (
        "_batch",
        "_view",
        "_window",
        "anchor",
        "data_generation",
        "end_offset",
        "first_base_offset",
        "has_intent",
        "is_rebuilt",
        "next_sequence",
        "principal",
        "producer_epoch",
        "version",
        "window_batches",
        "with_intent",
    )

    def __init__(self, entry: Entry) -> None:
        self._view = entry
        self.has_intent = entry.intent is not None
        self.with_intent: bytes | None = None
        self.data_generation = entry.data_generation
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
        self.window_batches = len(entry.window)
        self.is_rebuilt = IS_REBUILT if entry.is_rebuilt else 0

    def reserving(
        self,
        owner: bytes,
        lower_bound: int,
        anchor: bytes,
        content: bytes,
        leader: int,
        batches: Sequence[Unstored],
        attempts: int = 0,
    ) -> bytes:
        """Return the value to store, as ``pack(reserved(entry, intent))`` does. ``batches``: five at most, of the
        entry's epoch. Nothing changes here: the caller sets ``version`` and what is said of the intent once the value
        is stored."""
        epoch, is_timed, members = self.producer_epoch, self._batch is WINDOW_BATCH, 0
        named: list[int | bytes] = []
        for batch in batches:
            members += 1
            identity = batch.left if batch.stored_records else batch.identity  # nearly always: one call less
            named += (identity.base_sequence, identity.record_count, batch.digest)
        return _layout(self.window_batches, is_timed, members).pack(
            FORMAT,
            self.version + 1,
            self.data_generation,
            self.principal,
            epoch,
            self.next_sequence,
            self.first_base_offset,
            self.end_offset,
            self.anchor,
            self.window_batches,
            (HAS_INTENT | IS_TIMED if is_timed else HAS_INTENT) | self.is_rebuilt,
            self._window,
            owner,
            epoch,
            lower_bound,
            anchor,
            content,
            leader,
            attempts,
            members,
            *named,
        )

    def reserving_appends(self, owner: bytes, lower_bound: int, anchor: bytes, leader: int) -> bytes:
        """Return the value to store, as ``pack(with_append_reservation(entry, append_reservation))`` does. The version
        is raised at once, not when the value is stored: batches are committed in between, and no later write may have
        the version of this one."""
        value = self.reserving(owner, lower_bound, anchor, NO_CONTENT, leader, (), _APPEND_RESERVATION)
        self.version += 1
        return value

    def commit(self, batches: Sequence[Identified], base_offset: int, log_append_time_ms: int, anchor: bytes) -> int:
        """Commit batches that are in the log from ``base_offset`` on, the first one with the sequence that is due: as
        ``commit.committed``. Return the offset after them."""
        offset, batch = base_offset, self._batch
        if batch is not (WINDOW_BATCH_UNTIMED if log_append_time_ms == NO_TIME else WINDOW_BATCH):
            return self._commit_of_another_kind(batches, base_offset, log_append_time_ms, anchor)
        for one in batches:
            sequence, count = one.identity.base_sequence, one.identity.record_count
            if log_append_time_ms == NO_TIME:
                self._window += batch.pack(sequence, count, offset, one.digest)
            else:
                self._window += batch.pack(sequence, count, offset, log_append_time_ms, one.digest)
            if self.window_batches == WINDOW_BATCHES_MAX:
                self._window = self._window[batch.size :]
            else:
                self.window_batches += 1
            offset += count
        self.next_sequence = (sequence + count) % SEQUENCE_MODULUS
        if base_offset < self.first_base_offset or self.first_base_offset == NO_OFFSET:
            self.first_base_offset = base_offset
        self.end_offset, self.anchor = offset, anchor
        self.version += 1
        self.is_rebuilt = 0
        self.has_intent, self.with_intent = False, None
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
        self._take(committed(self.view, window, offset, anchor))
        self.has_intent, self.with_intent = False, None
        return offset

    @property
    def view(self) -> Entry:
        """It as an ``Entry``, with its intent while it has one."""
        view = self._view
        if view.version != self.version:
            view = self._view = self.entry()
        return view

    def entry(self) -> Entry:
        """Return the same for other threads, which keep nothing here: the loop may have gone on before they do."""
        view, value = self._view, self.with_intent  # read once: the loop may change them
        if view.version == self.version:
            return view
        if value is not None:
            return unpack(value)
        is_timed = self._batch is WINDOW_BATCH
        quiet = _layout(self.window_batches, is_timed, -1).pack(
            FORMAT,
            self.version,
            self.data_generation,
            self.principal,
            self.producer_epoch,
            self.next_sequence,
            self.first_base_offset,
            self.end_offset,
            self.anchor,
            self.window_batches,
            (IS_TIMED if is_timed else 0) | self.is_rebuilt,
            self._window,
        )
        return unpack(quiet)


def as_named(value: bytes) -> bytes:
    """Return the value as it is stored for a producer with a name (``entry.pack_named``)."""
    return pack_named(unpack(value))


@cache
def _layout(window_batches: int, is_timed: bool, intent_batches: int) -> struct.Struct:
    """Return the struct of a whole value; there are only a few. -1: without an intent."""
    window = (WINDOW_BATCH if is_timed else WINDOW_BATCH_UNTIMED).size * window_batches
    intent = INTENT.format[1:] + INTENT_BATCH.format[1:] * intent_batches if intent_batches >= 0 else ""
    return struct.Struct(f"{HEAD.format}{window}s{intent}")
