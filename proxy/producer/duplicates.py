"""Batches that are, or may be, in the log already: one of the last five, an older one, one whose first part is stored.
Rules R6, R9, R11.

Flows only, called from ``sequencer.py``; they look into the log and answer. Nothing is appended here."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from itertools import groupby
from typing import Final

from ...codecs.convert import digesting_batch
from ...codecs.errors import WireError
from ...codecs.marker import anchor_of
from ...codecs.message_set import ShallowMessage
from ...codecs.steps import STEP_RECORDS, Steps
from ...state.commit import Stored
from ...state.decide import BatchIdentity, Duplicate, is_in_intent, numbered_as
from ...state.entry import NO_ANCHOR, NO_CRC, NO_OFFSET, NO_TIME, Entry
from ...state.sequence import SEQUENCE_MODULUS, advance, distance, is_ahead
from .. import limits
from ..events import DuplicateAnswered
from ..flow.effects import Ask, Leader, Now, Wait, in_steps
from ..partition_log.log_chunk import LogChunk, ReadLog, carries, contents_in, has_contents, pieces_of
from ..partition_log.log_offsets import Later, Position, Unreadable, look_at
from ..partition_log.log_search import Further, LogSearch, Searched, Undecidable, covered, is_covered
from . import answers
from .batch import Answer, Batch
from .stream import Confirmed, FoundTo, Stream, UnfinishedSearch

_HASHED_AT_ONCE: Final = 10 * STEP_RECORDS


class _Found(Enum):
    """What lies where a batch is stored by its numbers."""

    THE_BATCH = auto()
    OTHER_CONTENT = auto()
    """Under the same numbers."""
    NOTHING_OF_IT = auto()
    SOME_OF_IT = auto()
    """It was stored in parts, of which the last ones are not there any more."""


# R9 lives here: a duplicate is looked at, and answered.
async def answer_duplicate(stream: Stream, batch: Batch, verdict: Duplicate, *, is_suspect: bool = False) -> None:
    """Rule R9: answer with the stored offset, after one look at it in the log unless the broker connection that
    acknowledged the batch is still open. If the checksum differs from the stored one, the records are compared, as some
    clients make a batch anew for each try. With other records it is no duplicate: 45, or (``is_suspect``) it stays in
    the queue until the entry is rebuilt (rule R11)."""
    entry, lane = stream.held.entry, stream.acknowledger(batch.identity)
    assert entry is not None
    is_same = verdict.crc == batch.header.crc != NO_CRC
    found: _Found | Later = _Found.THE_BATCH
    if not is_same or lane is None or not lane.is_open:
        found = await _look_for(stream, entry, batch, verdict.base_offset, compares=not is_same)
    if isinstance(found, Later):  # what cannot be read may stay so for ever
        told = answers.undecidable if isinstance(found, Unreadable) else answers.in_doubt
        stream.dismiss(batch, told(found.reason), "duplicate_unverified")
    elif found is _Found.THE_BATCH:
        await _tell_stored(stream, batch, answers.appended(verdict.base_offset, verdict.log_append_time_ms))
    elif found is _Found.NOTHING_OF_IT:
        await _tell(stream, batch, answers.vanished(verdict.base_offset), "vanished")
    elif found is _Found.SOME_OF_IT:
        await _tell(stream, batch, answers.partly_vanished(), "vanished")
    elif not is_suspect:
        await tell_confirmed(stream, batch, answers.other_content(verdict.base_offset), "other_content")


async def tries_of(stream: Stream, batch: Batch) -> list[Batch]:
    """Return the batch, and every other waiting batch with its numbers and its records: some clients make a batch anew
    for each try. If a look into the log took longer than such a client waits, its next try is here by now. All of them
    get the result: a look for each would never be in time."""
    name = batch.identity, batch.expected_offset
    tries = [other for other in stream.queue if other is not batch and (other.identity, other.expected_offset) == name]
    content = await _content_of(batch) if tries else b""
    same = [other for other in tries if content and await _content_of(other) == content]
    return [batch, *[other for other in same if other in stream.queue]]


async def _tell(stream: Stream, batch: Batch, answer: Answer, verdict: str) -> None:
    for one in await tries_of(stream, batch):
        stream.dismiss(one, answer, verdict)


async def _tell_stored(stream: Stream, batch: Batch, answer: Answer, verdict: str = "duplicate") -> None:
    for one in await tries_of(stream, batch):
        stream.dismiss(one, answer, verdict)
        stream.observers.report(DuplicateAnswered(one.waiters[0].connection.name, stream.topic))


async def tell_confirmed(
    stream: Stream, batch: Batch, answer: Answer, verdict: str, confirmed: Confirmed | None = None
) -> None:
    """Rule R11: answer once the entry was confirmed by a swap that left after the last of these tries came.
    ``confirmed``: for what an earlier swap has confirmed it."""
    tries = await tries_of(stream, batch)
    is_confirmed = len(tries) == 1 and confirmed == (batch.arrived_at, stream.life.era)
    for one in tries if is_confirmed else await stream.confirm(tries):
        if one in stream.queue:
            stream.dismiss(one, answer, verdict)


async def _look_for(stream: Stream, entry: Entry, batch: Batch, base_offset: int, *, compares: bool) -> _Found | Later:
    """Look at the offset where a batch of the window is stored. ``compares``: the content of all its records counts;
    else the marker does, or, where there is none, the content of the first record."""
    stored = next(piece for piece in entry.window if piece.base_sequence == batch.identity.base_sequence)
    piece = Stored(entry.producer_epoch, stored.base_sequence, stored.record_count, stored.base_offset)
    contents = await contents_of(batch, None if compares else 1)
    records, differs = 0, False

    async def fits(message: ShallowMessage) -> bool:
        nonlocal records, differs
        records, differs = 0, False
        if not carries(message, (piece,), stream.producer_id):
            return await in_steps(partial(has_contents, message, base_offset, contents), batch.sender)
        own = [one for one in pieces_of(message, stream.producer_id) if one.base_offset == base_offset]
        records = sum(one.record_count for one in own)
        if compares:
            known = await in_steps(partial(contents_in, message, own), batch.sender)
            differs = known != contents[: len(known)]
        return not differs

    there = await look_at(stream.topic, stream.partition, base_offset, fits)
    if isinstance(there, Later):
        return there
    if not there:
        return _Found.OTHER_CONTENT if differs else _Found.NOTHING_OF_IT
    if not 0 < records < batch.record_count:
        return _Found.THE_BATCH
    # It is stored in parts, and this is the first one.
    contents = contents if compares else await contents_of(batch)
    result, known, _ = await _search_records(stream, batch.identity, base_offset, contents)
    if isinstance(result, Later):
        return result
    if isinstance(result, Undecidable):
        return _Found.THE_BATCH
    if not is_covered(result.pieces, batch.identity):
        return _Found.SOME_OF_IT
    return _Found.OTHER_CONTENT if known != contents else _Found.THE_BATCH


def why_hidden(stream: Stream, batch: Batch) -> str | None:
    """Return why the log may have this batch though the entry does not, and nobody can tell (rules R10, R17); None: it
    surely does not."""
    entry = stream.held.entry
    if entry is None or entry.intent is None:
        return None
    if is_in_intent(entry.intent, batch.identity, batch.header.crc):
        return "an earlier try of it was given up"  # a client that has not received that answer gets it again
    if not entry.is_blurred or begins_anew(stream, entry, batch):
        return None
    return "the log does not tell all of this producer"


async def why_hidden_or_made_anew(stream: Stream, batch: Batch) -> str | None:
    """The same, also for a batch that its client has made anew since an earlier try was given up: it has the same
    numbers, but another checksum. The intent has the digest of the first record's content; a batch with another first
    record is a new one, and takes the place of what was given up."""
    entry = stream.held.entry
    if entry is None or entry.intent is None:
        return None
    if (hidden := why_hidden(stream, batch)) is not None:
        return hidden
    intent = entry.intent
    member = numbered_as(intent, batch.identity)
    if member is None:
        return None
    if member == intent.batches[0]:
        first = batch.record_count - member.record_count
        if await contents_of(batch, 1, first) != [intent.content]:
            return None
    return "an earlier try of it may have been given up"


def begins_anew(stream: Stream, entry: Entry, batch: Batch) -> bool:
    """Is it the first batch of a newer epoch, of which its client has surely sent nothing before?"""
    epoch = batch.identity.producer_epoch
    return (
        batch.identity.base_sequence == 0
        and epoch > entry.producer_epoch
        and any(
            not waiter.is_gone and waiter.connection.retry_notes.has_ended_older(stream.key, epoch)
            for waiter in batch.waiters
        )
    )


async def look_for_overlap(stream: Stream, batch: Batch, record_count: int, confirmed: Confirmed | None = None) -> None:
    """By its sequences the first ``record_count`` records of the batch are in the log. Search them there (rules R6, R9,
    R11):

    - they are its own: it goes on behind them, or, if these are all, it is a duplicate (46 if it is older than the
      window);
    - the log was read completely, and has other records under these sequences, or nothing of a batch from before the
      window: 45; 87 where the sequences may have wrapped since;
    - only some of them are there, or nothing of a batch that is stored in part or reaches into the window: 87, as
      brokers have lost records;
    - the log cannot be read now: a retriable error; it cannot tell: 87."""
    entry, identity = stream.held.entry, batch.identity
    assert entry is not None
    known = [one for one in entry.window if not is_ahead(identity.base_sequence, one.base_sequence)]
    start_at = known[-1].base_offset if known else entry.first_base_offset
    if start_at == NO_OFFSET:
        stream.dismiss(batch, answers.in_doubt("where this epoch begins in the log is not known"), "overlap_unread")
        return
    contents = await contents_of(batch, record_count)
    wanted = replace(identity, record_count=record_count)
    started = await Now()
    result: Searched | Later | Undecidable | None = await _look_behind_last(stream, wanted, contents)
    stored_contents, has_others = contents, False
    if result is None:
        result, stored_contents, has_others = await _search_records(stream, wanted, start_at, contents)
    stream.step("resolve", (batch,), started, "overlap")
    if isinstance(result, Later):
        stream.dismiss(batch, answers.in_doubt(result.reason), "overlap_unread")
    elif isinstance(result, Undecidable):
        await _tell(stream, batch, answers.undecidable(result.reason), "undecidable")
    elif not is_covered(result.pieces, wanted):
        has_others = has_others or _begins_before_its_epoch(entry, identity)
        if has_others:
            await _tell_others(stream, batch, start_at, "out_of_order", confirmed)
        elif result.pieces:  # no 45: under a new epoch its client would append these once more
            await _tell(stream, batch, answers.partly_vanished(), "vanished")
        elif known or record_count < identity.record_count:
            await _tell(stream, batch, answers.all_vanished(record_count), "vanished")
        else:  # older than the window, and nothing of it is there: a client that restarts its sequences has to know
            await _tell_others(stream, batch, start_at, "out_of_order", confirmed)
    elif stored_contents != contents:  # told success, a client that restarts its sequences would lose records
        await _tell_others(stream, batch, start_at, "restarted_sequence", confirmed)
    elif record_count < identity.record_count:
        for one in await tries_of(stream, batch):
            one.note_stored(record_count, covered(result.pieces, wanted)[0].base_offset)
    else:
        stream.found_to = FoundTo.behind(covered(result.pieces, wanted)[-1])
        if known:
            base_offset = covered(result.pieces, wanted)[0].base_offset
            await _tell_stored(stream, batch, answers.appended(base_offset, NO_TIME))
        else:
            await _tell_stored(stream, batch, answers.duplicate_below_window(), "duplicate_below_window")


def _begins_before_its_epoch(entry: Entry, identity: BatchIdentity) -> bool:
    """Does the batch begin with a sequence that its epoch, which began with 0 and has not wrapped, never had? False
    where the first batch that is known of the epoch does not begin with 0: the producer had expired, or the log has
    lost the beginning."""
    first = entry.first_base_offset
    begins_with_0 = any(one.base_sequence == 0 and one.base_offset == first for one in entry.window)
    has_come_round = entry.end_offset - first > SEQUENCE_MODULUS
    return begins_with_0 and not has_come_round and identity.base_sequence > entry.next_sequence


async def _tell_others(stream: Stream, batch: Batch, start_at: int, verdict: str, confirmed: Confirmed | None) -> None:
    """Answer a batch under whose sequences the log has other records, or nothing, from ``start_at`` on: 45. If a whole
    round of sequences may lie between there and the end, the batch may be there as well: 87."""
    entry = stream.held.entry
    assert entry is not None
    if entry.end_offset - start_at > SEQUENCE_MODULUS:
        reason = "other records have its sequences, which may have come round since"
        await _tell(stream, batch, answers.undecidable(reason), "undecidable")
    else:
        await tell_confirmed(stream, batch, answers.not_in_log(), verdict, confirmed)


async def _look_behind_last(stream: Stream, wanted: BatchIdentity, contents: Sequence[bytes]) -> Searched | None:
    """Look right behind the batch that was found last: a client that resends many sends them in order, so one reading
    of the log serves all batches in it. None: the batch is not there, and has to be searched for."""
    last = stream.found_to
    if last is None or last.next_sequence != wanted.base_sequence:
        return None
    leader = await Leader(stream.topic, stream.partition, refresh=True)
    if leader is None:
        return None
    chunk = await Ask(leader, ReadLog(stream.topic, stream.partition, last.offset))
    if not isinstance(chunk, LogChunk) or chunk.error_code:
        return None
    pieces: list[Stored] = []
    stored_contents: list[bytes] = []
    for message, own in parts_in(chunk, stream.producer_id, last.offset, wanted):
        pieces += own
        stored_contents += await in_steps(partial(contents_in, message, own), stream.topic)
        if is_covered(pieces, wanted):
            is_it = stored_contents == contents
            return Searched(tuple(pieces), message.offset + 1, anchor_of(message)) if is_it else None
    return None


async def _search_records(
    stream: Stream, wanted: BatchIdentity, start_at: int, contents: Sequence[bytes]
) -> tuple[Searched | Later | Undecidable, list[bytes], bool]:
    """Look for all records of ``wanted``, which have the digests ``contents``, from ``start_at`` to the end of the
    producer's last commit.

    A record that is stored without a marker is only found by its content. So the first record behind the part that was
    found is looked for by its content, too, again and again until nothing new is found. Also returned: the digests of
    what is stored under the batch's sequences, and whether a batch that begins before it has some of these sequences. A
    search that takes longer than one try is continued by the next try."""
    entry = stream.held.entry
    assert entry is not None
    name = stream.life.era, wanted, start_at, await in_steps(partial(_hashing, contents), stream.topic)
    looked_for, search = set(contents[:1]), None
    left = stream.unfinished.pop(name, None)
    if left is not None and await Now() - left.left_at <= limits.SEARCH_LEFT_SECONDS:
        looked_for, search = left.looked_for, left.search
    while True:
        if search is None:
            search = WindowSearch(stream, wanted, start_at, entry.end_offset, looked_for)
            search.whose = {content: [wanted] for content in looked_for}
            search.is_wanted = lambda: stream.is_needed
        assert isinstance(search, WindowSearch)
        result = await run_to_end(search)
        if isinstance(result, Later):
            stream.leave_unfinished(name, UnfinishedSearch(looked_for, search, await Now()))
        if not isinstance(result, Searched):
            return result, [], False
        found = sum(piece.record_count for piece in covered(result.pieces, wanted))
        missing = set(contents[found : found + 1]) - looked_for
        if not missing:
            has_others = search.has_others or begins_with_others(result.pieces, search.first_contents, wanted, contents)
            return result, search.stored_contents, has_others
        looked_for |= missing
        search = None


async def run_to_end(search: LogSearch) -> Searched | Later | Undecidable:
    """Search for ``SCAN_SECONDS_MAX`` at most, then return Later: the client's retry goes on with it."""
    started = await Now()
    while True:
        result = await search.run()
        is_over = not search.is_wanted() or await Now() - started > limits.SCAN_SECONDS_MAX
        if is_over or not isinstance(result, Later):
            return result
        if not isinstance(result, Further):  # else at once, so that it stays with the others of its pass
            await Wait(limits.PROBE_SECONDS)


class WindowSearch(LogSearch):
    """Looks for one batch in a part of the log to which nothing of it can be appended any more, so there is nothing to
    settle (rule R9).

    ``stored_contents``: the digests of the records that cover the batch, in order. ``first_contents``: those of the
    first piece that has some of its sequences. ``has_others``: does a piece that begins before the batch have its first
    sequence?
    """

    def __init__(
        self,
        stream: Stream,
        batch: BatchIdentity,
        start_at: int,
        stop_at: int | None,
        contents: Collection[bytes],
    ) -> None:
        super().__init__(
            stream.topic,
            stream.partition,
            stream.producer_id,
            Position(start_at, NO_ANCHOR),
            contents,
            set(),
            lambda pieces: is_covered(pieces, batch),
        )
        self._is_settled = True
        self._stop_at = stop_at
        self._batch = batch
        self.stored_contents: list[bytes] = []
        self.first_contents: list[bytes] = []
        self.has_others = False
        self._due = batch.base_sequence

    async def _begin(self, leader: int, log_end: int) -> Later | None:
        """Drop what was read of another leader's log."""
        self.stored_contents, self.first_contents, self.has_others = [], [], False
        self._due = self._batch.base_sequence
        return await super()._begin(leader, log_end)

    def _keep(self, piece: Stored) -> None:
        """Keep only pieces with the batch's sequences: the epoch may have millions of others."""
        if is_part_of(piece, self._batch):
            super()._keep(piece)
        elif piece.producer_epoch == self._batch.producer_epoch:
            ahead = distance(piece.base_sequence, self._batch.base_sequence)
            self.has_others = self.has_others or ahead < piece.record_count

    async def _take(self, chunk: LogChunk, log_end: int) -> None:
        """Also note the contents of what the chunk has of the batch."""
        start = self.reached
        await super()._take(chunk, log_end)
        for message, own in parts_in(chunk, self._producer_id, start, self._batch):
            contents = await in_steps(partial(contents_in, message, own), self._topic)
            for piece in own:
                its, contents = contents[: piece.record_count], contents[piece.record_count :]
                if not self.first_contents:
                    self.first_contents = its
                if piece.base_sequence == self._due:  # as ``covered`` has it: the log may have a second copy of it
                    self.stored_contents += its
                    self._due = advance(self._due, piece.record_count)


def is_part_of(piece: Stored, batch: BatchIdentity) -> bool:
    """Does the piece begin, by its sequence, with a record of the batch?"""
    ahead = distance(batch.base_sequence, piece.base_sequence)
    return piece.producer_epoch == batch.producer_epoch and ahead < batch.record_count


def begins_with_others(
    pieces: Sequence[Stored], first_contents: list[bytes], batch: BatchIdentity, contents: Sequence[bytes]
) -> bool:
    """Does the first of the pieces under a batch's sequences, whose records have the digests ``first_contents``, hold
    other records than the batch, with the digests ``contents``, has there?"""
    if not pieces:
        return False
    place, count = distance(batch.base_sequence, pieces[0].base_sequence), pieces[0].record_count
    return first_contents != list(contents[place : place + count])


def parts_in(
    chunk: LogChunk, producer_id: int, start: int, batch: BatchIdentity
) -> Iterator[tuple[ShallowMessage, list[Stored]]]:
    """Yield what a chunk has of a batch from an offset on, in log order: each message, and its pieces in it."""
    own = (one for one in chunk.pieces_from(producer_id, start) if is_part_of(one[0], batch))
    for _, found in groupby(own, key=lambda one: one[1].offset):
        parts = list(found)
        yield parts[0][1], [piece for piece, _ in parts]


async def contents_of(batch: Batch, count: int | None = None, first: int = 0) -> list[bytes]:
    """Return the digests of the records from ``first`` on, ``count`` at most; none for a batch that cannot be read,
    which is refused before it is sent."""
    most = limits.UNPACKED_BYTES_MAX
    steps = partial(digesting_batch, batch.records, batch.header, most, first=first, count=count)
    try:
        return await in_steps(steps, batch.sender)
    except WireError:
        return []


async def _content_of(batch: Batch) -> bytes:
    """Return one digest of the content of all its records, so that little is kept while other batches are read. Empty:
    it cannot be read."""

    def digesting() -> Steps[bytes]:
        contents = yield from digesting_batch(batch.records, batch.header, limits.UNPACKED_BYTES_MAX)
        made = yield from _hashing(contents)
        while len(contents) > _HASHED_AT_ONCE:  # freeing many small objects takes long, too
            del contents[-_HASHED_AT_ONCE:]
            yield
        return made

    try:
        return await in_steps(digesting, batch.sender)
    except WireError:
        return b""


def _hashing(contents: Sequence[bytes]) -> Steps[bytes]:
    made = hashlib.blake2b()
    for start in range(0, len(contents), _HASHED_AT_ONCE):
        if start:
            yield
        made.update(b"".join(contents[start : start + _HASHED_AT_ONCE]))
    return made.digest()
