"""Batches that are, or may be, in the log already: one of the last five, an older one, one whose first part is stored.
Rules R6, R9, R11.

Flows only, called from ``sequencer.py``; they look into the log and answer. Nothing is appended here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import partial

from ...codecs.batch_digest import digesting_stored
from ...codecs.convert import digesting_batch, digesting_whole
from ...codecs.errors import WireError
from ...codecs.logged import Logged, LoggedBatch
from ...state.commit import Stored
from ...state.decide import BatchIdentity, Duplicate, numbered_as, records_stored, rest_of
from ...state.entry import (
    NO_ANCHOR,
    NO_CONTENT,
    NO_DIGEST,
    NO_OFFSET,
    NO_TIME,
    Entry,
    Intent,
)
from ...state.sequence import SEQUENCE_MODULUS, is_ahead
from .. import limits
from ..events import DuplicateAnswered
from ..flow.effects import Ask, Leader, Now, Wait, in_steps
from ..partition_log.log_chunk import LogChunk, ReadLog, carries, has_content, marked_of
from ..partition_log.log_offsets import Later, Position, Unreadable, look_at
from ..partition_log.log_search import Further, LogSearch, Searched, Undecidable, Wanted, covered, is_covered
from ..partition_log.recognised import Recogniser, joints_of
from . import answers
from .batch import Answer, Batch
from .rebuild import Due, LookedFor, bound_of, has_news, state_read
from .stream import Confirmed, FoundTo, Stream, UnfinishedSearch


class _Found(Enum):
    """What lies where a batch is stored by its numbers."""

    THE_BATCH = auto()
    NOTHING_OF_IT = auto()
    SOME_OF_IT = auto()
    """It was stored in parts, of which the last ones are not there any more."""


# R9 lives here: a duplicate is looked at, and answered.
async def answer_duplicate(stream: Stream, batch: Batch, verdict: Duplicate, *, is_unverified: bool = False) -> None:
    """Rule R9: with other content than the stored batch it is no duplicate: 45, or (``is_unverified``) it stays in the
    queue until the entry is rebuilt (rule R11). Where no digest is stored, its numbers decide. Answer with the stored
    offset, after one look at it in the log unless the broker connection that acknowledged the batch is still open."""
    entry, produce_connection = stream.held.entry, stream.acknowledger(batch.identity)
    assert entry is not None
    if verdict.digest != NO_DIGEST and await digest_of(batch) != verdict.digest:
        if not is_unverified:
            await tell_confirmed(stream, batch, answers.other_content(verdict.base_offset), "other_content")
        return
    found: _Found | Later = _Found.THE_BATCH
    if produce_connection is None or not produce_connection.is_open:
        found = await _look_for(stream, entry, batch, verdict.base_offset)
    if isinstance(found, Later):  # what cannot be read may stay so for ever
        reported = answers.undecidable if isinstance(found, Unreadable) else answers.in_doubt
        stream.dismiss(batch, reported(found.reason), "duplicate_unverified")
    elif found is _Found.THE_BATCH:
        await _tell_stored(stream, batch, answers.appended(verdict.base_offset, verdict.log_append_time_ms))
    elif found is _Found.NOTHING_OF_IT:
        await _tell(stream, batch, answers.vanished(verdict.base_offset), "vanished")
    else:
        await _tell(stream, batch, answers.partly_vanished(), "vanished")


async def tries_of(stream: Stream, batch: Batch) -> list[Batch]:
    """Return the batch, and every other waiting batch with its numbers and its records: some clients make a batch again
    for each try. If a look into the log took longer than such a client waits, its next try is here by now. All of them
    get the result: a look for each would never be in time."""
    name = batch.identity, batch.expected_offset
    tries = [other for other in stream.queue if other is not batch and (other.identity, other.expected_offset) == name]
    digest = await digest_of(batch) if tries else b""
    same = [other for other in tries if digest and await digest_of(other) == digest]
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
    is_confirmed = len(tries) == 1 and confirmed == (batch.arrived_at, stream.instance.lease_epoch)
    for one in tries if is_confirmed else await stream.confirm(tries):
        if one in stream.queue:
            stream.dismiss(one, answer, verdict)


async def _look_for(stream: Stream, entry: Entry, batch: Batch, base_offset: int) -> _Found | Later:
    """Look at the offset where a batch of the window is stored: at the batch marker there or, where the message has
    none, at the content of the first record."""
    stored = next(piece for piece in entry.window if piece.base_sequence == batch.identity.base_sequence)
    piece = Stored(entry.producer_epoch, stored.base_sequence, stored.record_count, base_offset)
    content = await content_of(batch)
    records = 0

    async def fits(message: Logged) -> bool:
        nonlocal records
        records = 0
        if not carries(message, (piece,), stream.producer_id):
            return await in_steps(partial(has_content, message, base_offset, content), batch.sender)
        known = Recogniser(
            stream.producer_id, [BatchIdentity(entry.producer_epoch, stored.base_sequence, stored.record_count)]
        )
        own = [one for one in known.pieces_of(message) if one.base_offset == base_offset]
        records = sum(one.record_count for one in own)
        return True

    there = await look_at(stream.topic, stream.partition, base_offset, fits)
    if isinstance(there, Later):
        return there
    if not there:
        return _Found.NOTHING_OF_IT
    if not 0 < records < batch.record_count:
        return _Found.THE_BATCH
    # It is stored in parts, and this is the first one.
    result = await run_to_end(window_search(stream, batch.identity, base_offset, entry.end_offset))
    if isinstance(result, Later):
        return result
    is_there = isinstance(result, Undecidable) or result.is_any_unmarked or is_covered(result.pieces, batch.identity)
    return _Found.THE_BATCH if is_there else _Found.SOME_OF_IT


async def is_in_intent(intent: Intent, batch: Batch) -> bool:
    """Is what is left of the batch, or all of it, one of the intent's batches (rule R13)?"""
    member = numbered_as(intent, batch.identity)
    return member is not None and await digest_of(batch) == member.digest


async def why_hidden(stream: Stream, batch: Batch) -> str | None:
    """Return why the log may have this batch though the entry does not, and nobody can tell (rules R10, R17); None: it
    surely does not. A batch with the numbers of what was unrecoverable and another content is a new one, and takes its
    place."""
    entry = stream.held.entry
    if entry is None or entry.intent is None:
        return None
    if await is_in_intent(entry.intent, batch):
        return "an earlier try of it was unrecoverable"  # a client that has not received that answer gets it again
    if not entry.is_ambiguous or begins_again(stream, entry, batch):
        return None
    return "the log does not tell all of this producer"


def begins_again(stream: Stream, entry: Entry, batch: Batch) -> bool:
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


async def is_absent(stream: Stream, batch: Batch) -> bool:
    """Is a batch that comes after a gap surely not in the log itself? What lost its batch marker before the entry was
    rebuilt is not in the entry (rules R10, R11), so the batch is looked for by its content, once by each proxy
    instance.

    False: it was answered, or what is known has changed. As lower batches may be in flight over another connection,
    what cannot be decided gets a retriable code for ``GAP_SECONDS``."""
    entry, known, now = stream.held.entry, stream.looked_for, await Now()
    if entry is None or not entry.is_rebuilt or stream.topic in stream.topics.unmarked:
        return True
    if known is None or not known.is_of(stream.instance.lease_epoch, entry):
        known = LookedFor(stream.instance.lease_epoch, state_read(entry))
    if known.is_all:
        return True
    if batch.is_behind(stream.key, (*stream.out, *stream.queue)):
        stream.dismiss(batch, answers.held_back("what comes before it has to be sent again"), "held_back")
        await stream.read_again()
        return False
    due = await due_of(batch, entry)
    if due in known.due or due.content == NO_CONTENT:
        return True
    result: Searched | Later | Undecidable = Undecidable("the log does not tell whether it has this batch")
    if due not in known.undecided:
        result = await _search_after_gap(stream, entry, batch.identity, due)
        stream.step("resolve", (batch,), now, "gap")
    known = stream.looked_for = known.after_gap(batch.identity.producer_epoch, now)
    is_news = isinstance(result, Searched) and has_news(entry, result.pieces)
    if isinstance(result, Searched) and not is_news:
        stream.looked_for = known.with_absent(due, is_all=not result.has_unmarked)
    elif batch in stream.queue and stream.next_batch() is batch:
        # What a log of format v2 has of another epoch, nobody had looked for: no other proxy has appended it.
        is_undecided = isinstance(result, Undecidable) or (is_news and stream.log_may_hide_producers)
        stream.looked_for = known.with_undecided(due) if is_undecided else known
        is_over = is_undecided and now - known.gap[1] > limits.GAP_SECONDS
        reason = "the log has more of its producer" if isinstance(result, Searched) else result.reason
        reported = answers.undecidable if is_over else answers.in_doubt
        stream.dismiss(batch, reported(reason), "undecidable" if is_over else "gap_unread")
        await stream.read_again()
    return False


async def _search_after_gap(
    stream: Stream, entry: Entry, identity: BatchIdentity, due: Due
) -> Searched | Later | Undecidable:
    """Look for a batch by its content from the end of what the entry has. What is appended meanwhile changes the entry,
    so no quiescence check is needed."""

    def is_wanted() -> bool:
        # Not the batch itself: its next try goes on with the search.
        waits = bool(stream.queue) and not stream.is_outdated(identity.producer_epoch)
        return stream.is_needed and waits and stream.next_batch().identity == identity

    where, contents = (stream.topic, stream.partition, stream.producer_id), {due.content: (due.identity,)}
    joints = joints_of(identity) if stream.log_may_hide_producers else ()
    wanted = Wanted(*where, bound_of(entry), None, None, contents, joints=joints, is_wanted=is_wanted)
    name = stream.instance.lease_epoch, state_read(entry), due
    return await continued(stream, name, lambda: LogSearch(wanted))


async def look_for_overlap(stream: Stream, batch: Batch, record_count: int, confirmed: Confirmed | None = None) -> None:
    """By its sequences the first ``record_count`` records of the batch are in the log. Search their batch markers there
    (rules R6, R9, R11), and compare the records that these name:

    - they are its own: the rest of it is appended, or, if these are all, it is a duplicate (DUPLICATE_SEQUENCE_NUMBER
      if it is older than the window);
    - the log was read completely, and has other records under these sequences, or nothing of a batch from before the
      window: OUT_OF_ORDER_SEQUENCE_NUMBER; INVALID_RECORD where the sequences may have wrapped since;
    - only some of them are there, or nothing of a batch that is stored in part or reaches into the window:
      INVALID_RECORD, as brokers have lost records;
    - the log cannot be read now: a retriable error;
    - the log cannot decide, as where messages have no batch marker: INVALID_RECORD."""
    entry, identity = stream.held.entry, batch.identity
    assert entry is not None
    known = [one for one in entry.window if not is_ahead(identity.base_sequence, one.base_sequence)]
    start_at = known[-1].base_offset if known else entry.first_base_offset
    if start_at == NO_OFFSET:
        stream.dismiss(batch, answers.in_doubt("where this epoch begins in the log is not known"), "overlap_unread")
        return
    wanted = replace(identity, record_count=record_count)
    started = await Now()
    result = await _search_window(stream, wanted, start_at)
    found = covered(result.pieces, wanted) if isinstance(result, Searched) else []
    is_same = await has_content_of(stream, batch, found)
    stream.step("resolve", (batch,), started, "overlap")
    if isinstance(result, Undecidable):
        await _tell(stream, batch, answers.undecidable(result.reason), "undecidable")
    elif isinstance(result, Later):
        stream.dismiss(batch, answers.in_doubt(result.reason), "overlap_unread")
    elif isinstance(is_same, Later):
        stream.dismiss(batch, answers.in_doubt(is_same.reason), "overlap_unread")
    elif not is_covered(found, wanted):
        if result.has_others or not is_same or _begins_before_its_epoch(entry, identity):
            await _tell_others(stream, batch, start_at, "out_of_order", confirmed)
        elif result.is_any_unmarked:
            await _tell(
                stream, batch, answers.undecidable("records without a batch marker may be its own"), "undecidable"
            )
        elif result.pieces:  # no 45: under a new epoch its client would append these once more
            await _tell(stream, batch, answers.partly_vanished(), "vanished")
        elif known or record_count < identity.record_count:
            await _tell(stream, batch, answers.all_vanished(record_count), "vanished")
        else:  # older than the window, and nothing of it is there: a client that restarts its sequences has to know
            await _tell_others(stream, batch, start_at, "out_of_order", confirmed)
    elif not is_same:  # after a success, a client that restarts its sequences would lose records
        await _tell_others(stream, batch, start_at, "restarted_sequence", confirmed)
    elif record_count < identity.record_count:
        for one in await tries_of(stream, batch):
            one.note_stored(record_count, found[0].base_offset)
    else:
        stream.found_to = FoundTo.behind(found[-1])
        if known:
            await _tell_stored(stream, batch, answers.appended(found[0].base_offset, NO_TIME))
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


async def _search_window(stream: Stream, wanted: BatchIdentity, start_at: int) -> Searched | Later | Undecidable:
    """Look for ``wanted`` from ``start_at`` to the end of the producer's last commit; first right after the batch that
    was found last, as a client that resends many sends them in order. A search that takes longer than one try is
    continued by the next try."""
    entry, last = stream.held.entry, stream.found_to
    assert entry is not None
    if last is not None and last.next_sequence == wanted.base_sequence and last.offset > start_at:
        near = min(last.offset + limits.NEAR_END_OFFSETS, entry.end_offset)
        result = await run_to_end(window_search(stream, wanted, last.offset, near))
        if isinstance(result, Searched) and is_covered(result.pieces, wanted):
            return result
    name = stream.instance.lease_epoch, wanted, start_at
    return await continued(stream, name, lambda: window_search(stream, wanted, start_at, entry.end_offset))


async def continued(stream: Stream, name: object, begin: Callable[[], LogSearch]) -> Searched | Later | Undecidable:
    """Continue the search of this name that was left unfinished a moment ago, or begin one."""
    left = stream.unfinished.pop(name, None)
    is_fresh = left is not None and await Now() - left.left_at <= limits.SEARCH_LEFT_SECONDS
    search = left.search if left is not None and is_fresh else begin()
    result = await run_to_end(search)
    if isinstance(result, Later):
        stream.leave_unfinished(name, UnfinishedSearch(search, await Now()))
    return result


async def has_content_of(stream: Stream, batch: Batch, pieces: Sequence[Stored]) -> bool | Later:
    """Do these pieces, which batch markers name in the log that was searched just now, hold the batch's records from
    its first one on, and no others?"""
    count = sum(piece.record_count for piece in pieces)
    if not count or count > batch.record_count:
        return not count
    found = await digest_of_pieces(stream, pieces)
    if isinstance(found, Later):
        return found
    return found == NO_DIGEST or found == await digest_of(batch, count)


async def digest_of_pieces(stream: Stream, pieces: Sequence[Stored]) -> bytes | Later:
    """Return the digest of all records of these pieces, which batch markers name in the log that was searched just now;
    ``NO_DIGEST``: compaction has taken some of them."""
    known = NO_DIGEST
    for piece in pieces:
        leader = await Leader(stream.topic, stream.partition)
        if leader is None:
            return Later("no leader is known")
        chunk = await Ask(leader, ReadLog(stream.topic, stream.partition, piece.base_offset))
        message = chunk.message_at(piece.base_offset) if isinstance(chunk, LogChunk) else None
        if isinstance(message, LoggedBatch):
            found = await digest_at(stream, piece)
            if isinstance(found, Later) or found == NO_DIGEST:
                return found
            known = found
            continue
        marked = None if message is None else marked_of(message)
        if marked is None or not carries(marked.message, (piece,), stream.producer_id):
            return Later("what was found in the log cannot be read again")
        where = limits.DECOMPRESSED_BYTES_MAX, piece.base_offset - marked.first, piece.record_count
        try:
            known = await in_steps(partial(digesting_stored, marked.message, *where, known), stream.topic)
        except WireError as error:
            return Unreadable(f"the stored message at offset {piece.base_offset} cannot be read: {error}")
    return known


async def digest_at(stream: Stream, piece: Stored) -> bytes | Later:
    """Return the digest of a batch that was found in the log just now; ``NO_DIGEST``: compaction has taken some of its
    records."""
    leader = await Leader(stream.topic, stream.partition)
    if leader is None:
        return Later("no leader is known")
    chunk = await Ask(leader, ReadLog(stream.topic, stream.partition, piece.base_offset))
    logged = chunk.message_at(piece.base_offset) if isinstance(chunk, LogChunk) else None
    if not isinstance(logged, LoggedBatch) or not carries(logged, (piece,), stream.producer_id):
        return Later("what was found in the log cannot be read again")
    return await digest_of_logged(stream, logged)


async def digest_of_logged(stream: Stream, logged: LoggedBatch) -> bytes | Later:
    """Return the digest of its content; ``NO_DIGEST``: compaction has taken some of its records."""
    if logged.header.record_count < logged.record_count:
        return NO_DIGEST
    steps = partial(digesting_whole, logged.records, logged.header, limits.UNPACKED_BYTES_MAX)
    try:
        return await in_steps(steps, stream.topic)
    except WireError as error:
        return Unreadable(f"the stored batch at offset {logged.first} cannot be read: {error}")


async def run_to_end(search: LogSearch) -> Searched | Later | Undecidable:
    """Search for ``SCAN_SECONDS_MAX`` at most, then return Later: the client's retry continues it."""
    started = await Now()
    while True:
        result = await search.run()
        is_over = not search.wanted.is_wanted() or await Now() - started > limits.SCAN_SECONDS_MAX
        if is_over or not isinstance(result, Later):
            return result
        if not isinstance(result, Further):  # else at once, so that it stays with the others of its pass
            await Wait(limits.PROBE_SECONDS)


def window_search(stream: Stream, batch: BatchIdentity, start_at: int, stop_at: int) -> LogSearch:
    """Return a search for one batch in a part of the log to which nothing of it can be appended any more, so it needs
    no quiescence check (rule R9)."""
    where = stream.topic, stream.partition, stream.producer_id, Position(start_at, NO_ANCHOR)
    return LogSearch(Wanted(*where, batch, None, stop_at=stop_at, is_wanted=lambda: stream.is_needed))


async def due_of(batch: Batch, entry: Entry | None) -> Due:
    """Return what of a waiting batch the entry does not have."""
    stored = 0 if entry is None else records_stored(entry, batch.identity)
    return Due(rest_of(batch.identity, stored), await content_of(batch, stored))


async def content_of(batch: Batch, number: int = 0) -> bytes:
    """Return the digest of one record, by which a message without a batch marker is compared with it. ``NO_CONTENT`` if
    there is none, or the batch cannot be read: it is refused before it is sent."""
    steps = partial(digesting_batch, batch.records, batch.header, limits.UNPACKED_BYTES_MAX, first=number, count=1)
    try:
        return next(iter(await in_steps(steps, batch.sender)), NO_CONTENT)
    except WireError:
        return NO_CONTENT


async def digest_of(batch: Batch, count: int | None = None) -> bytes:
    """Return the digest of a batch's content, or of that of its first ``count`` records. Empty: it cannot be read."""
    if count is None or count == batch.record_count:
        if batch.digest == NO_DIGEST:
            batch.digest = await _digest_of(batch, None)
        return batch.digest
    return await _digest_of(batch, count)


async def _digest_of(batch: Batch, count: int | None) -> bytes:
    steps = partial(digesting_whole, batch.records, batch.header, limits.UNPACKED_BYTES_MAX, count)
    try:
        return await in_steps(steps, batch.sender)
    except WireError:
        return b""
