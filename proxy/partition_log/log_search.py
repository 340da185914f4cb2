"""Searches the log when an outcome is in doubt (rules R5, R6, R8, R9). Flows only: they ask, wait and conclude; nothing
is written here.

Order of a search: wait for the quiescence check (no request of ours can still be on its way), ask the current leader
for the log end offset, wait until the high watermark has reached it, compare the anchor, scan. Absence is proven only
by a range that was read completely, without gaps, without the batch marker, and without a record of the same content
that carries no batch marker. Anything less is reported as such, never guessed.

A search for all that the log has of a producer (a rebuild) joins a pass through the log that others have begun, where
it is: it reads from there to the end, and then what lies before that place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from ...codecs.batch_marker import Identity
from ...codecs.error_codes import ErrorCode, named
from ...codecs.errors import WireError
from ...codecs.logged import Logged, LoggedBatch, anchor_of, iterate_logged
from ...codecs.steps import STEP_RECORDS, Steps
from ...state.commit import Gathered, Stored
from ...state.conditional import is_in_place
from ...state.decide import BatchIdentity
from ...state.entry import NO_ANCHOR, NO_OFFSET
from ...state.sequence import advance, distance
from ...values import value
from .. import limits
from ..bridge.asks import EarliestOffset, FetchRecords, OffsetAnswer
from ..flow.effects import Ask, Leader, Now, Unanswered, Wait, in_steps
from .log_chunk import LogChunk, Reach, ReadLog, ends_below, marked_of
from .log_offsets import Later, Position, check_quiescence, current_end
from .recognised import Joint, Recogniser


@value(frozen=True, slots=True)
class Searched:
    """The whole range was read, or enough of it. ``pieces``: what it has of the producer, in log order; for a rebuild
    only those that matter (``commit.Gathered``). ``end_offset`` and ``anchor``: of the message with the last piece.
    ``gap_at``: the first missing offset; -1: none. ``has_unmarked``: is a message without a batch marker after that
    piece? ``is_any_unmarked``: anywhere? ``has_others``: does a piece that begins before the wanted batch have its
    first sequence?"""

    pieces: tuple[Stored, ...]
    end_offset: int
    anchor: bytes
    gap_at: int = NO_OFFSET
    has_unmarked: bool = False
    is_any_unmarked: bool = False
    has_others: bool = False

    @property
    def is_cut(self) -> bool:
        """For a rebuild: are offsets missing, and no piece of the producer was found? What is left may then be the end
        of a batch whose beginning is gone."""
        return self.gap_at != NO_OFFSET and not self.pieces


@value(frozen=True, slots=True)
class Undecidable:
    """The log as it is cannot prove that the wanted records are absent. ``reason``: for people."""

    reason: str


@value(frozen=True, slots=True)
class Further(Later):
    """The budget of one try is used up, and the search has come further. Nothing has to be waited for."""


class _Examined(NamedTuple):
    """What was looked for and found in one chunk. ``recogniser``: as it is after that. ``copies``: of which batches, at
    which offsets."""

    recogniser: Recogniser
    pieces: list[tuple[Stored, Logged]]
    copies: list[tuple[Identity, int]]


class _Notes:
    """What one range of the log has, as far as it was read."""

    __slots__ = (
        *("anchor", "end_offset", "front", "gap", "gap_at", "gathered", "has_others", "hidden_to", "in_place_to"),
        *("pieces", "recogniser", "unmarked", "unmarked_to"),
    )

    def __init__(self, recogniser: Recogniser) -> None:
        self.recogniser = recogniser
        self.pieces: list[Stored] = []
        self.gathered = Gathered()
        """The pieces found, for a rebuild only those that matter: the log may have millions."""
        self.end_offset = NO_OFFSET
        self.anchor = NO_ANCHOR
        self.unmarked: dict[bytes, int] = {}
        """The wanted contents that were found without a batch marker, and where."""
        self.unmarked_to = NO_OFFSET
        """The offset after the last message without a batch marker, if there is one."""
        self.hidden_to = NO_OFFSET
        """For a rebuild: the offset after the last batch of format v2 with a batch marker, if there is one. Where it
        was not recognised, it may be the producer's all the same."""
        self.gap: str | None = None
        self.gap_at = NO_OFFSET
        self.front: str | None = None
        """Why the beginning of the range is missing, before the first piece."""
        self.has_others = False
        self.in_place_to: int | None = None
        """Where the first batch ends that lies where it was to be."""

    @property
    def doubtful(self) -> str | None:
        """Why the producer may have more in the range than was recognised; None: it has not. Where the batches before
        a batch of format v2 are missing, nothing tells whose it is."""
        return self.gap or (self.front if self.hidden_to > NO_OFFSET else None)

    def follow_with(self, later: _Notes) -> None:
        """Add the notes about the range that comes next, which was read by a rebuild."""
        is_any = False
        for piece in later.gathered:
            self.gathered.take(piece)
            is_any = True
        if is_any:
            self.end_offset, self.anchor, self.gap = later.end_offset, later.anchor, later.gap
        else:
            self.gap = self.gap or later.gap
        self.gap_at = later.gap_at if self.gap_at == NO_OFFSET else self.gap_at
        self.unmarked = {**later.unmarked, **self.unmarked}
        self.unmarked_to = max(self.unmarked_to, later.unmarked_to)


def always() -> bool:
    """Return True: it is wanted whether or not anybody waits."""
    return True


@value(frozen=True, slots=True)
class Wanted:
    """What is looked for, and in which part of a log."""

    topic: str
    partition: int
    producer_id: int
    bound: Position
    """Where the reading begins, if the record below it is still the same (rule R8)."""
    batch: BatchIdentity | None
    """A batch or a group, as one range of records: what covers it is enough. None: everything of the producer, for a
    rebuild: it may have been idle for longer than the log goes back (rule R10)."""
    brokers_to_check: frozenset[int] | None
    """The brokers that may still execute something; None: nothing of what is looked for can still be appended."""
    contents: Mapping[bytes, Collection[BatchIdentity]] = field(default_factory=dict)
    """Digests of records. One of the same content that lies there without a batch marker may be the wanted one, so
    nothing is proven; each with the batches that begin with it, as far as these are known: one that is found by its
    batch marker is certain, whatever else has the same content."""
    copies_of: frozenset[Identity] = frozenset()
    """Batches of any producers of which all copies are noted (rule R14)."""
    stop_at: int | None = None
    """Where the reading ends at the latest."""
    follows_end: bool = False
    """Read to where the log ends now, not where it ended when the reading began. After the quiescence check nothing
    that is looked for can be appended after that, and other producers may append as fast as the log is read."""
    joints: Sequence[Joint] = ()
    """Where batches of the producer may meet that are stored in format v2, for a rebuild. The log is then read in
    order: a pass is not joined."""
    is_at_bound: bool = False
    """The batch can only lie at the bound: nothing has to be read of a log that ends below that."""
    ends_in_place: bool = False
    """Nothing has to be read after the first batch above the bound that lies where it was to be (rule R23): a batch was
    reserved where the log was thought to end, and lies elsewhere only if that offset was taken by somebody else's
    records, which it then comes right after (model row O38)."""
    wider: Position | None = None
    """Where to begin if the bound, then a checkpoint's, does not hold or was not sufficient (rule R10)."""
    budget_bytes: int | None = None
    """What one try may read; None: ``SCAN_BYTES_MAX``."""
    is_wanted: Callable[[], bool] = always
    """Does anybody still wait for the result? Else it ends."""

    @property
    def is_rebuild(self) -> bool:
        """Is everything of the producer wanted?"""
        return self.batch is None and not self.copies_of


def covered(pieces: Sequence[Stored], first: BatchIdentity) -> list[Stored]:
    """Return the pieces that follow each other without a gap, from the first sequence of a batch or a group on."""
    due = first.base_sequence
    found = []
    for piece in pieces:
        if (piece.producer_epoch, piece.base_sequence) == (first.producer_epoch, due):
            found.append(piece)
            due = advance(due, piece.record_count)
    return found


def is_covered(pieces: Sequence[Stored], whole: BatchIdentity) -> bool:
    """Do the pieces have all records of a batch or group?"""
    return sum(piece.record_count for piece in covered(pieces, whole)) >= whole.record_count


def is_part_of(piece: Stored, batch: BatchIdentity) -> bool:
    """Does the piece begin, by its sequence, with a record of the batch?"""
    ahead = distance(batch.base_sequence, piece.base_sequence)
    return piece.producer_epoch == batch.producer_epoch and ahead < batch.record_count


class LogSearch:
    """One search in [bound, end of the log). Calling ``run`` again continues where it stopped."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._topic = wanted.topic
        self._partition = wanted.partition
        self._producer_id = wanted.producer_id
        self.bound = wanted.bound
        self.wider = wanted.wider
        self._known_from = 0
        self._is_quiescent = wanted.brokers_to_check is None
        self._since: float | None = None
        """When the reading began, in reactor seconds; None: it has not."""
        self._end: int | None = None
        self._next: int | None = None
        self._leader: int | None = None
        """The leader whose log was read so far: another one's log may differ."""
        self._notes = self._new_notes()
        self._doubtful: str | None = None
        self._begun_at = 0
        """Where the reading begins, once that is known."""
        self._joined: tuple[int, _Notes] | None = None
        """Where a pass was joined, and the notes about what comes before that."""
        self._later: _Notes | None = None
        """The notes about what comes after that place, once all of it was read; up to ``_read_to``."""
        self._read_to = NO_OFFSET
        self.copies: dict[Identity, set[int]] = {name: set() for name in wanted.copies_of}
        """The offsets at which each of these batches was found."""
        self.bytes_read = 0
        self.chunks_read = 0
        """Chunks that were examined: with each the search comes further."""
        self.moved_to = NO_OFFSET
        """Where the log began when the record below the bound was seen to be another one. The old bound is then none of
        this log, even if the same record should come to lie below it again later (rule R8)."""

    def _new_notes(self) -> _Notes:
        wanted = self.wanted
        return _Notes(Recogniser(wanted.producer_id, () if wanted.batch is None else (wanted.batch,), wanted.joints))

    @property
    def reached(self) -> int:
        """The offset up to which the log was read."""
        return NO_OFFSET if self._next is None else self._next

    def begin_again(self) -> None:
        """Wait for the quiescence check and read once more, from the bound as it is known now."""
        self._is_quiescent, self._next, self._since = self.wanted.brokers_to_check is None, None, None

    def read_on(self) -> None:
        """Read on to where the log ends now."""
        self._end = None

    def _enough(self, pieces: Sequence[Stored]) -> bool:
        """Are the pieces all that is wanted? Then the rest of the log does not matter."""
        return self.wanted.batch is not None and is_covered(pieces, self.wanted.batch)

    def widen(self, known_from: int = 0) -> None:
        """Start over from the earlier bound. ``known_from``: from there on the log was read. That is a checkpoint: what
        is missing below it is older than all that a client may still send again."""
        assert self.wider is not None
        self.bound, self.wider, self._next, self._known_from = self.wider, None, None, known_from

    # R6 lives here: the quiescence check, then read from the lower bound to the log end.
    async def run(self) -> Searched | Later | Undecidable:
        """Search, within the budget of one try."""
        wanted, may_lead = self.wanted, self.wanted.brokers_to_check or frozenset()
        if not self._is_quiescent:
            leader = await Leader(self._topic, self._partition, refresh=True)
            if leader is None:
                return Later("no leader is known")
            not_quiescent = await check_quiescence(self._topic, self._partition, may_lead | {leader})
            if not_quiescent is not None:
                return not_quiescent
            self._is_quiescent = True
        if self._since is None:
            self._since = await Now()
        end = await current_end(self._topic, self._partition, may_lead)
        if isinstance(end, Later):
            return end
        leader, log_end = end
        if wanted.stop_at is not None:
            log_end = min(log_end, wanted.stop_at)
        if not wanted.follows_end and self._end is not None and self._next is not None and leader == self._leader:
            log_end = min(log_end, self._end)
        self._end = log_end
        if self._next is None or max(self._next, self._read_to) > log_end or leader != self._leader:
            begun = await self._begin(leader, log_end)
            if begun is not None:
                return begun
            assert self._next is not None
            self._begun_at = self._next
            self._leader = leader
        return await self._scan(leader, log_end)

    async def _begin(self, leader: int, log_end: int) -> Later | None:
        """Set where to start: at the bound if the record below it is still the same, else at the start of the log (rule
        R8). Later: that cannot be determined now."""
        self._notes, self._joined, self._later, self._read_to = self._new_notes(), None, None, NO_OFFSET
        self._doubtful, self._next = None, None
        bound = self.bound
        if self.wanted.is_at_bound and bound.offset > log_end:
            self._next = log_end
            return None
        earliest = await Ask(leader, EarliestOffset(self._topic, self._partition))
        if isinstance(earliest, Unanswered) or earliest.error_code:
            return Later("the start of the log is not known")
        holds = bound.offset <= log_end
        if holds and bound.offset > 0 and bound.anchor != NO_ANCHOR:
            chunk = await self._read(leader, bound.offset - 1)
            if isinstance(chunk, Unanswered):
                return Later(chunk.reason)
            if chunk.error_code not in (0, ErrorCode.OFFSET_OUT_OF_RANGE):
                return Later(f"the leader answers a fetch: {named(chunk.error_code)}")
            retained = bound.offset - 1 >= earliest.offset
            below = chunk.message_at(bound.offset - 1)
            if below is None and not chunk.error_code and chunk.high_watermark < bound.offset:
                return Later(f"the high watermark has not passed offset {bound.offset - 1}")
            is_same = below is not None and anchor_of(below) == bound.anchor and ends_below(below, bound.offset)
            holds = not retained or is_same
            if below is not None and self._enough(own := list(self._notes.recogniser.pieces_of(below))):
                # The wanted batch lies right below the bound: it was there, was truncated, and was appended again.
                notes = self._notes
                notes.pieces, notes.end_offset, notes.anchor = own, below.offset + 1, anchor_of(below)
        if not holds and self.wider is not None:
            self.widen()
            return await self._begin(leader, log_end)
        if not holds:
            self.moved_to = earliest.offset
            self.bound = bound = Position(earliest.offset, NO_ANCHOR)
        self._next = bound.offset
        is_cut = self._next < earliest.offset or self.moved_to != NO_OFFSET
        if self.wanted.joints and is_cut and self._known_from < earliest.offset:
            self._notes.front = f"what lay below offset {earliest.offset} is not in the log any more"
        if self.wanted.is_rebuild and self._next < earliest.offset:
            # Retention deletes the oldest records first: what it has deleted says nothing of what may come next, if
            # that tells whose it is.
            self._note_gap(self._next, earliest.offset, is_harmless=True)
            self._next = earliest.offset
        if self._next < earliest.offset:
            self._doubtful = f"records from offset {self._next} to {earliest.offset} were deleted by retention"
            self._next = earliest.offset
        return None

    async def _read(self, leader: int, offset: int, *, joins: bool = False) -> LogChunk | Unanswered:
        # A fetch for another search, from before this one began to read, may show a log that was truncated or recreated
        # since. The batch that is wanted was appended before this search began to read, so a later fetch shows it.
        assert self._since is not None
        question = ReadLog(
            *(self._topic, self._partition, offset),
            since=self._since,
            reach=self._reach_from(offset),
            joins=joins,
            is_wanted=self.wanted.is_wanted,
        )
        chunk = await Ask(leader, question)
        if isinstance(chunk, LogChunk) and chunk.start == offset:  # else it was read for other searches
            self.bytes_read += chunk.size_bytes
        return chunk

    def _reach_from(self, offset: int) -> Reach:
        assert self._end is not None
        if self._end - offset <= limits.NEAR_END_OFFSETS:
            return Reach.NEAR_END
        return Reach.FROM_BOUND if self.bound.is_recognised else Reach.WHOLE_LOG

    @property
    def _may_join(self) -> bool:
        """Is nothing read yet, and does it not matter where the reading begins? For all others the first copy in the
        log counts, or the search ends where it has found enough."""
        return (
            self.wanted.is_rebuild
            and not self.wanted.joints
            and not self.wanted.follows_end
            and self._joined is None
            and self._next == self._begun_at
        )

    def _join(self, offset: int) -> None:
        """Continue at this offset, with a pass of others; what comes before it is read later."""
        assert self._next is not None
        self._joined, self._notes, self._next = (offset, self._notes), self._new_notes(), offset

    async def _scan(self, leader: int, log_end: int) -> Searched | Later | Undecidable:
        assert self._next is not None
        started = await Now()
        bytes_before, chunks_before = self.bytes_read, self.chunks_read
        budget_bytes = self.wanted.budget_bytes or limits.SCAN_BYTES_MAX
        joins = self._may_join
        while (stop := self._reads_to(log_end)) is not None:
            if not self.wanted.is_wanted():
                return Later("nobody waits for the outcome any more")
            if self.bytes_read - bytes_before >= budget_bytes or await Now() - started > limits.SCAN_SECONDS_MAX:
                further = Further if self.chunks_read > chunks_before else Later
                return further(f"the search has come to offset {self._next} of {log_end}")
            chunk = await self._read(leader, self._next, joins=joins)
            if isinstance(chunk, Unanswered):
                return Later(chunk.reason)
            if chunk.error_code:
                if chunk.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._retention_has_passed(leader)
                return Later(f"the leader answers a fetch: {named(chunk.error_code)}")
            if joins and chunk.start > self._next:
                joins = False
                if chunk.start >= log_end:
                    continue  # the pass has come further than this search has to
                self._join(chunk.start)
                stop = log_end
            joins = False
            if chunk.end > self._next:
                await self._take(chunk, stop)
                self.chunks_read += 1
            elif chunk.unreadable is not None:
                reason = f"the log cannot be read at offset {self._next}: {chunk.unreadable}"
                behind = await self._behind_wrapper(leader, chunk.size_bytes)
                if isinstance(behind, Later):
                    return behind
                if behind is None:
                    return Undecidable(reason)
                self._note_gap(self._next, behind, reason)  # it may only be one of ours if its batch marker was lost
                self._next = min(behind, stop)
            elif chunk.size_bytes:
                return Undecidable(f"the message at offset {self._next} is larger than the largest fetch")
            elif chunk.high_watermark < stop:
                return Later(f"the leader shows nothing at offset {self._next} of {log_end}")
            else:
                self._note_gap(self._next, stop)
                self._next = stop
        if self._later is not None:
            self._notes.follow_with(self._later)
            self._joined, self._later, self._next = None, None, self._read_to
        notes = self._notes
        pieces = tuple(notes.gathered if self.wanted.is_rebuild else notes.pieces)
        if (doubtful := self._doubtful or self._equal(pieces) or notes.doubtful) and not self._enough(notes.pieces):
            return Undecidable(doubtful)
        has_unmarked = max(notes.unmarked_to, notes.hidden_to) > notes.end_offset
        return Searched(
            *(pieces, notes.end_offset, notes.anchor, notes.gap_at, has_unmarked),
            is_any_unmarked=notes.unmarked_to != NO_OFFSET,
            has_others=notes.has_others,
        )

    async def _retention_has_passed(self, leader: int) -> None:
        """What lies at the next offset is deleted: start over above that part. What was read after the place where a
        pass was joined is kept: read again, it would take so long again that retention passes once more."""
        assert self._next is not None
        if self._joined is not None and self._later is not None:
            earliest = await Ask(leader, EarliestOffset(self._topic, self._partition))
            if isinstance(earliest, OffsetAnswer) and not earliest.error_code and self._next < earliest.offset:
                self._note_gap(self._next, earliest.offset, is_harmless=True)
                self._next = min(earliest.offset, self._joined[0])
                return
        self._next = None

    def _reads_to(self, log_end: int) -> int | None:
        """Return where the range ends that is read now; None: all that is wanted was read."""
        assert self._next is not None
        if self._joined is not None and self._later is None and self._next >= log_end:
            # From where a pass was joined all was read: what comes before that place is next.
            self._read_to = self._next
            self._later, self._notes, self._next = self._notes, self._joined[1], self._begun_at
        if self._notes.in_place_to is not None:
            log_end = min(log_end, self._notes.in_place_to)
        stop = log_end if self._joined is None or self._later is None else self._joined[0]
        return stop if self._next < stop and not self._enough(self._notes.pieces) else None

    def _equal(self, pieces: Sequence[Stored]) -> str | None:
        """Return why a record that was found without a batch marker may be a wanted one; None: none may."""
        for content, offset in self._notes.unmarked.items():
            batches = self.wanted.contents[content]
            if not batches or not all(is_covered(pieces, batch) for batch in batches):
                return f"a record of the same content without a batch marker is at offset {offset}"
        return None

    async def _behind_wrapper(self, leader: int, size_bytes: int) -> int | Later | None:
        """Return the offset after the wrapper at the next offset, if only its inside cannot be read: a wrapper's own
        offset is that of its last record. None: it is no wrapper, or it has a batch marker."""
        assert self._next is not None
        answer = await Ask(leader, FetchRecords(self._topic, self._partition, self._next, size_bytes))
        if isinstance(answer, Unanswered):
            return Later(answer.reason)
        if answer.error_code:
            return Later(f"the leader answers a fetch: {named(answer.error_code)}")
        self.bytes_read += len(answer.records)
        try:
            for message in iterate_logged(answer.records):
                if message.offset >= self._next:
                    if isinstance(message, LoggedBatch):
                        return None
                    return message.offset + 1 if message.is_wrapper and marked_of(message) is None else None
        except WireError:
            pass  # no message begins there
        return None

    def _examining(self, chunk: LogChunk, start: int) -> Steps[_Examined]:
        """Look for what is wanted in the messages of a chunk. Notes nothing, as it may be begun again."""
        known = self._notes.recogniser.copied()
        pieces = yield from chunk.pieces_from(known, start)
        copies = (yield from chunk.copies_from(self.copies, start)) if self.copies else []
        return _Examined(known, pieces, copies)

    async def _take(self, chunk: LogChunk, stop: int) -> None:
        """Examine the messages of a chunk from the next offset up to ``stop``."""
        assert self._next is not None
        start, notes = self._next, self._notes
        found = await in_steps(lambda: self._examining(chunk, start), self._topic)
        notes.recogniser = found.recogniser
        if self.wanted.ends_in_place and notes.in_place_to is None:
            notes.in_place_to = self._ends_in_place(found.pieces)
            stop = stop if notes.in_place_to is None else min(stop, notes.in_place_to)
        self._next = min(chunk.end, stop)
        if chunk.unmarked_to > start:
            notes.unmarked_to = chunk.unmarked_to
        if self.wanted.joints and chunk.hidden_to > start:
            notes.hidden_to = chunk.hidden_to
        known_to = await self._keep_all(found.pieces, stop)
        if known_to != NO_OFFSET and self.wanted.is_rebuild:
            notes.front = None
            notes.gap = None  # batches in it come before this piece, and the piece says which sequence is due
        for gap_from, gap_to in chunk.first_and_last_gap(start, stop):
            self._note_gap(max(gap_from, start), gap_to, is_harmless=self.wanted.is_rebuild and gap_from <= known_to)
        for content in self.wanted.contents.keys() - notes.unmarked.keys():
            offset = next((one for one in chunk.offsets_of(content) if start <= one < stop), None)
            if offset is not None:
                notes.unmarked[content] = offset
        for name, offset in found.copies:
            self.copies[name].add(offset)

    async def _keep_all(self, pieces: Sequence[tuple[Stored, Logged]], stop: int) -> int:
        """Note the pieces; return the offset of the message with the last one."""
        last: Logged | None = None
        for number, (piece, message) in enumerate(pieces, 1):
            if self._later is not None and message.offset >= stop:
                break  # it is noted among what comes later
            self._keep(piece)
            last = message
            if not number % STEP_RECORDS:
                await Wait(0)
        if last is None:
            return NO_OFFSET
        self._notes.end_offset, self._notes.anchor = last.offset + 1, anchor_of(last)
        return last.offset

    def _ends_in_place(self, pieces: Iterable[tuple[Stored, Logged]]) -> int | None:
        """Return where the first batch ends that lies where it was to be; None: there is none."""
        for piece, _ in pieces:
            end_offset = piece.base_offset + piece.record_count
            if end_offset > self.wanted.bound.offset and is_in_place(piece):
                return end_offset
        return None

    def _keep(self, piece: Stored) -> None:
        """Of one batch only pieces with its sequences are kept: the epoch may have millions of others."""
        notes, batch = self._notes, self.wanted.batch
        if batch is None:
            notes.gathered.take(piece)
        elif is_part_of(piece, batch):
            notes.pieces.append(piece)
        elif piece.producer_epoch == batch.producer_epoch:
            notes.has_others |= distance(piece.base_sequence, batch.base_sequence) < piece.record_count

    def _note_gap(self, gap_from: int, gap_to: int, reason: str = "", *, is_harmless: bool = False) -> None:
        notes = self._notes
        if notes.gap_at == NO_OFFSET:
            notes.gap_at = gap_from
        if not is_harmless:
            notes.gap = reason or f"offsets {gap_from} to {gap_to} are missing from the log"
