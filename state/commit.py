"""How an entry changes after a fact: reserved, taken over, committed, released, rebuilt from the log. Pure.

Every function returns a new entry whose version is one higher: each write raises it, a release too, so that a swap
that is still on its way through an old socket fails when it arrives (rule R2; model rows b3, b4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..values import value
from .entry import NO_ANCHOR, NO_OFFSET, NOBODY, WINDOW_BATCHES_MAX, Entry, Intent, IntentKind, WindowBatch
from .sequence import SEQUENCE_MODULUS, advance, distance, is_ahead


@value(frozen=True, slots=True)
class Stored:
    """A piece of a producer's records as it was found in the log: a batch, or a part of one."""

    producer_epoch: int
    base_sequence: int
    record_count: int
    base_offset: int


def fresh(data_generation: bytes, principal: bytes, producer_epoch: int, next_sequence: int) -> Entry:
    """Return the entry of a producer that has none on this partition yet. Its version is 0, that of an absent key."""
    return Entry(0, data_generation, principal, producer_epoch, next_sequence)


# R12 lives here: a new epoch begins at its reserve.
def ready_for(entry: Entry, producer_epoch: int) -> Entry:
    """Return the entry as it is when batches of this epoch are reserved: without an intent, as theirs takes its place.
    A new epoch begins here; end and anchor of the last commit stay (rule R12)."""
    if producer_epoch > entry.producer_epoch:
        entry = _begin_epoch(entry, producer_epoch)
    return entry if entry.intent is None else replace(entry, intent=None)


def reserved(entry: Entry, intent: Intent) -> Entry:
    """Return the entry with an intent (rule R2)."""
    return _with_intent(ready_for(entry, intent.producer_epoch), intent)


def with_append_reservation(entry: Entry, append_reservation: Intent) -> Entry:
    """Return the entry as it is stored while its owner appends without a swap for each group (rule R2). It begins no
    epoch, and takes the place of nothing that is open or remembered."""
    assert append_reservation.is_append_reservation
    assert append_reservation.producer_epoch == entry.producer_epoch
    assert entry.intent is None or entry.intent.is_append_reservation
    return _with_intent(entry, append_reservation)


def renewed(
    entry: Entry,
    owner: bytes,
    attempts: int | None = None,
    leader: int | None = None,
    moved_to: int = NO_OFFSET,
    kind: IntentKind | None = None,
) -> Entry:
    """Return the entry with ``owner`` as its intent's owner: it was taken over, or is about to be forwarded once more,
    perhaps to another ``leader``. The bound is kept, unless it was seen not to hold (rule R8): then it is where the log
    begins, ``moved_to``."""
    assert entry.intent is not None
    intent = replace(entry.intent, owner=owner)
    if moved_to != NO_OFFSET:
        intent = replace(intent, lower_bound=moved_to, anchor=NO_ANCHOR)
    if attempts is not None:
        intent = replace(intent, attempts=attempts)
    if kind is not None:
        intent = replace(intent, kind=kind, attempts=0)
    if leader is not None:
        intent = replace(intent, leader=leader)
    return replace(entry, version=entry.version + 1, intent=intent)


def released(entry: Entry) -> Entry:
    """Return the entry without an intent."""
    return _with_intent(entry, None)


def unrecoverable(entry: Entry) -> Entry:
    """Return the entry when it cannot be determined whether its intent's batches are in the log: they are remembered,
    not released (rule R17), and no longer block later batches."""
    assert entry.intent is not None
    return _with_intent(entry, replace(entry.intent, owner=NOBODY, kind=IntentKind.UNRECOVERABLE, attempts=0))


def with_takeover(entry: Entry, takeover: Intent) -> Entry:
    """Return an unverified entry with the takeover of the proxy that rebuilds it now (rule R10)."""
    return _with_intent(entry, takeover)


def committed(entry: Entry, batches: Sequence[WindowBatch], end_offset: int, anchor: bytes) -> Entry:
    """Return the entry after ``batches``, in sequence and of the entry's epoch, were found or acknowledged in the
    log. The intent is gone. The first batch may be one of which the entry has a part already, and replaces that part.

    ``end_offset``, ``anchor``: the end of the append, and the digest of the message that ends there."""
    window, due = entry.window, batches[0].base_sequence
    if due != entry.next_sequence:
        assert distance(due, entry.next_sequence) < batches[0].record_count, (batches, entry)
        window = tuple(one for one in window if distance(due, one.base_sequence) >= batches[0].record_count)
    for batch in batches:
        assert batch.base_sequence == due, (batch, entry)
        due = advance(due, batch.record_count)
    first = _least(entry.first_base_offset, batches[0].base_offset)
    return Entry(
        entry.version + 1,
        entry.data_generation,
        entry.principal,
        entry.producer_epoch,
        due,
        (*window, *batches)[-WINDOW_BATCHES_MAX:],
        first,
        end_offset,
        anchor,
        None,
    )


def rebuilt(entry: Entry, stored: Sequence[Stored], data_generation: bytes, end_offset: int, anchor: bytes) -> Entry:
    """Return an unverified entry with everything that the log has of this producer, in log order (rule R10, model row
    f1).

    ``end_offset``, ``anchor``: of the last piece found; ignored when nothing was.
    """
    for piece in stored:
        if piece.producer_epoch > entry.producer_epoch:
            entry = _begin_epoch(entry, piece.producer_epoch)
        if piece.producer_epoch < entry.producer_epoch:
            continue
        if entry.window and is_ahead(piece.base_sequence, entry.next_sequence):
            # Known already: the search may have begun below the last commits.
            entry = replace(entry, first_base_offset=_least(entry.first_base_offset, piece.base_offset))
            continue
        if not entry.window or piece.base_sequence != entry.next_sequence:
            # The log has a hole before this piece (compaction): the window restarts after the hole.
            entry = replace(entry, next_sequence=piece.base_sequence, window=())
        entry = _recorded(entry, WindowBatch(piece.base_sequence, piece.record_count, piece.base_offset))
    if stored:
        entry = replace(entry, end_offset=end_offset, anchor=anchor)
    is_rebuilt = entry.is_rebuilt or bool(stored)
    return replace(
        entry, version=entry.version + 1, data_generation=data_generation, intent=None, is_rebuilt=is_rebuilt
    )


class Gathered:
    """Some of a producer's pieces, which come one by one in log order and may be millions: only those are kept of which
    ``rebuilt`` makes the same entry as of all.

    Of an older epoch the first piece is kept. The pieces of the newest epoch form stretches: a stretch is what lies
    within half the ring after its first piece, so that "before" and "after" are well defined in it; a piece elsewhere
    begins the next stretch. Of a stretch its first piece is kept, and the last pieces that fill a window: an entry that
    knows none of these takes them all, and one that knows some of them knows everything between."""

    def __init__(self) -> None:
        self._older: dict[int, Stored] = {}
        self._newest: list[Stored] = []
        self._start = 0
        """Where in ``_newest`` the present stretch begins."""
        self._last_begin = self._end = self._in_order = 0
        """Where the last piece begins and where all pieces end, in records after the start; and how many pieces at the
        end each begin at or after the end of all before them."""

    def __iter__(self) -> Iterator[Stored]:
        """Yield what is kept; the first one of each epoch is its first in the log."""
        yield from self._older.values()
        yield from self._newest

    def take(self, piece: Stored) -> None:
        """Add the next piece."""
        newest = self._newest
        epoch = newest[0].producer_epoch if newest else NO_OFFSET
        if piece.producer_epoch < epoch:
            self._older.setdefault(piece.producer_epoch, piece)
            return
        if piece.producer_epoch > epoch:
            if newest:
                self._older[epoch] = newest[0]
            self._newest = []
            self._begin(piece)
            return
        begin = distance(newest[self._start].base_sequence, piece.base_sequence)
        end = begin + piece.record_count
        if max(end, self._end) >= SEQUENCE_MODULUS // 2:
            self._begin(piece)
        elif begin > self._last_begin:  # else it adds nothing: an entry with the last piece is ahead of it
            newest.append(piece)
            self._in_order = self._in_order + 1 if begin >= self._end else 0
            self._last_begin, self._end = begin, max(end, self._end)
            if self._in_order > WINDOW_BATCHES_MAX:
                del newest[self._start + 1 : -WINDOW_BATCHES_MAX]

    def _begin(self, piece: Stored) -> None:
        self._start = len(self._newest)
        self._newest.append(piece)
        self._last_begin, self._end, self._in_order = 0, piece.record_count, 0


def ambiguous(entry: Entry, data_generation: bytes) -> Entry:
    """Return an unverified entry that the log does not allow to be rebuilt: what is stored is true, and there may be
    more (rule R10). Its intent, without batches, says so until a newer epoch begins."""
    assert entry.intent is not None
    intent = replace(entry.intent, kind=IntentKind.UNRECOVERABLE, attempts=0, batches=())
    return replace(entry, version=entry.version + 1, data_generation=data_generation, intent=intent)


def _begin_epoch(entry: Entry, producer_epoch: int) -> Entry:
    """Return the entry with an empty window at the start of an epoch; end and anchor of the last commit stay, as they
    are bounds (rule R12)."""
    return replace(
        entry,
        producer_epoch=producer_epoch,
        next_sequence=0,
        window=(),
        first_base_offset=NO_OFFSET,
        is_rebuilt=False,
    )


def _with_intent(entry: Entry, intent: Intent | None) -> Entry:
    """Return the entry with this intent and the next version. ``replace`` would take five times as long on the hot
    path."""
    return Entry(
        entry.version + 1,
        entry.data_generation,
        entry.principal,
        entry.producer_epoch,
        entry.next_sequence,
        entry.window,
        entry.first_base_offset,
        entry.end_offset,
        entry.anchor,
        intent,
        entry.is_rebuilt,
    )


def _least(known: int, base_offset: int) -> int:
    """Return the lower of both offsets: where an epoch begins in the log at the earliest. After a truncation its first
    batch may lie higher than before."""
    return base_offset if known == NO_OFFSET or base_offset < known else known


def _recorded(entry: Entry, batch: WindowBatch) -> Entry:
    window = (*entry.window, batch)[-WINDOW_BATCHES_MAX:]
    first = _least(entry.first_base_offset, batch.base_offset)
    after = advance(batch.base_sequence, batch.record_count)
    return replace(entry, window=window, next_sequence=after, first_base_offset=first)
