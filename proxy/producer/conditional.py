"""Batches that are published conditionally, on one partition (rule R23): where the log ends, how a batch that is not
appended is answered, and what follows when a batch lies at another offset than expected. Flows only, called from
``sequencer.py``, ``takeover.py`` and ``recovery.py``. Nothing is appended here; ``state/conditional.py`` decides."""

from __future__ import annotations

from collections.abc import Sequence

from ...state.commit import Stored
from ...state.conditional import (
    CutOff,
    FencedPartition,
    NotYet,
    Past,
    Refusal,
    begun,
    decide_conditional,
    ended_at,
    expected_end,
    fenced_by,
    is_fenced,
    shift_of,
)
from ...state.entry import NO_ANCHOR, NO_OFFSET, NO_TIME, Entry, WindowBatch
from .. import limits
from ..events import ConditionalPartitionBegan, ConditionalPartitionFenced, DuplicateAnswered
from ..flow.effects import Now
from ..partition_log.log_offsets import Later, Position, current_end, newest_position
from ..partition_log.log_search import LogSearch, Searched, Undecidable, Wanted
from . import answers
from .batch import Batch
from .duplicates import content_of, continued, has_content_of, tell_confirmed, tries_of
from .stream import Confirmed, Stream


# ---------------------------------------------------------------------- where the log ends
async def bound_of_conditional_partition(stream: Stream, entry: Entry) -> Position | Later:
    """Return from where on the log of an unverified conditional partition is read: the bound of its intent, else where
    its entry says that the log ended. If the entry is lost: the high watermark, as what the log has by then does not
    matter."""
    if entry.intent is not None:
        return Position(entry.intent.lower_bound, entry.intent.anchor)
    if entry.end_offset != NO_OFFSET:
        return Position(entry.end_offset, entry.anchor)
    return await newest_position(stream.topic, stream.partition)


async def begin_conditional_partition(stream: Stream, entry: Entry, next_offset: int, pieces: Sequence[Stored]) -> None:
    """Write the entry of a conditional partition whose log was read to its end, ``next_offset``, after everything that
    was sent before had its outcome. ``pieces``: the conditional batches that were found there."""
    data_generation = stream.instance.data_generation
    fenced = fenced_by(entry, data_generation, next_offset, pieces)
    if await stream.write(fenced or begun(entry, data_generation, next_offset)):
        if fenced is None:
            stream.observers.report(ConditionalPartitionBegan(stream.topic, stream.partition, next_offset))
        else:
            say_fenced(stream, fenced)


# ---------------------------------------------------------------------- what is not appended
async def turn_down(stream: Stream, batch: Batch, verdict: Refusal, confirmed: Confirmed) -> None:
    """Answer a batch that is not due. A swap has confirmed the entry since the batch came (rule R11)."""
    entry = stream.held.entry
    assert entry is not None
    if await _is_found(stream, batch, () if isinstance(verdict, NotYet | CutOff) else verdict.offsets):
        return
    if isinstance(verdict, FencedPartition):
        answer = answers.partition_fenced(verdict.expected_end, verdict.end_offset)
        await tell_confirmed(stream, batch, answer, "partition_fenced", confirmed)
    elif await _ends_there(stream, batch, entry):
        is_past = isinstance(verdict, Past)
        cut_off = isinstance(verdict, CutOff)
        answer = answers.cut_off(entry.end_offset) if cut_off else answers.conflict(entry.end_offset, is_past=is_past)
        await tell_confirmed(stream, batch, answer, "conflict", confirmed)


async def turn_down_past(stream: Stream) -> float:
    """Another proxy appends to the conditional partition, perhaps without a pause, so the entry is never seen without
    an intent. Meanwhile answer batches whose offset the log has passed: that stays true whatever becomes of the open
    append, which notices foreign records itself. No swap confirms the entry here, as it would make the other proxy's
    next swap fail. Return in how many seconds to look again at the latest."""
    entry, now = stream.held.entry, await Now()
    assert entry is not None
    for batch in [one for one in stream.queue if now - one.arrived_at >= limits.LATE_WAITS_SECONDS]:
        verdict = decide_conditional(entry, batch.identity, batch.expected_offset)
        if not isinstance(verdict, Past) or batch not in stream.queue:
            continue
        if not await _is_found(stream, batch, verdict.offsets):
            for one in await tries_of(stream, batch):
                stream.dismiss(one, answers.conflict(entry.end_offset, is_past=True), "conflict")
    now = await Now()
    due = [one.arrived_at + limits.LATE_WAITS_SECONDS - now for one in stream.queue]
    return min([limits.RESOLVE_WAIT_SECONDS_MAX, *(seconds for seconds in due if seconds > 0)])


async def _is_found(stream: Stream, batch: Batch, offsets: Sequence[int]) -> bool:
    """Answer the batch if it lies at one of these offsets or after it, or if it cannot be determined whether it does.
    True: it was answered."""
    for offset in offsets:
        found = await _place_of(stream, batch, offset)
        if isinstance(found, Later):
            stream.dismiss(batch, answers.in_doubt(found.reason), "duplicate_unverified")
            return True
        if isinstance(found, Undecidable):
            stream.dismiss(batch, answers.undecidable(found.reason), "undecidable")
            return True
        if found is not None:
            for one in await tries_of(stream, batch):
                _tell_where(stream, one, found)
            return True
    return False


def _tell_where(stream: Stream, batch: Batch, offset: int) -> None:
    """Answer a batch that was appended before and lies at ``offset``: a success only if that is where it had to be."""
    shift = shift_of(batch.identity.base_sequence, offset)
    if shift:
        stream.dismiss(batch, answers.displaced(offset, offset - shift), "displaced")
    else:
        stream.dismiss(batch, answers.appended(offset, NO_TIME), "duplicate")
        stream.observers.report(DuplicateAnswered(batch.waiters[0].connection.name, stream.topic))


async def _ends_there(stream: Stream, batch: Batch, entry: Entry) -> bool:
    """Does the log end where the entry says? A client that expects another offset may have seen that offset in the log:
    another writer has appended there, or records are lost. By the entry alone it would get a conflict for ever (model
    rows O11, O24). False: the batch was answered, or has to be looked at again."""
    end = await current_end(stream.topic, stream.partition, ())
    if isinstance(end, Later):
        stream.dismiss(batch, answers.in_doubt(end.reason), "conflict_unverified")
        return False
    if end[1] == entry.end_offset:
        return True
    # The swap fails if another proxy has begun to append since the entry was confirmed.
    fenced = ended_at(entry, end[1])
    if await stream.write(fenced):
        say_fenced(stream, fenced)
    return False


async def _place_of(stream: Stream, batch: Batch, offset: int) -> int | Later | Undecidable | None:
    """Return where this batch lies, at ``offset`` or after it, by its batch marker and the content of all its records;
    None: not there. A window of the last five batches could not tell: another writer's batch at the same offset has the
    same producer id, epoch and sequence (model row O4)."""
    identity = batch.identity
    content = await content_of(batch)
    where = stream.topic, stream.partition, stream.producer_id, Position(offset, NO_ANCHOR)
    wanted = Wanted(
        *(*where, identity, None),
        contents={content: (identity,)},
        is_at_bound=True,
        ends_in_place=True,
        is_wanted=lambda: stream.is_needed,
    )
    started = await Now()
    result = await continued(
        stream, (stream.instance.lease_epoch, identity, offset, content), lambda: LogSearch(wanted)
    )
    stream.step("resolve", (batch,), started, "expected offset")
    if not isinstance(result, Searched):
        return result
    for piece in result.pieces:
        if (piece.base_sequence, piece.record_count) == (identity.base_sequence, identity.record_count):
            is_own = await has_content_of(stream, batch, [piece])
            return is_own if isinstance(is_own, Later) else piece.base_offset if is_own else None
    return None


# -------------------------------------------------------------------- somebody else writes to the conditional partition
def say_fenced(stream: Stream, entry: Entry) -> None:
    """Report it, if this entry is of a fenced conditional partition."""
    if is_fenced(entry):
        event = ConditionalPartitionFenced(stream.topic, stream.partition, expected_end(entry), entry.end_offset)
        stream.observers.report(event)


def tell_displaced(stream: Stream, group: Sequence[Batch], window: Sequence[WindowBatch]) -> None:
    """Answer batches that were appended, but lie elsewhere than expected. ``window``: where they lie."""
    end = window[-1].base_offset + window[-1].record_count
    shift = shift_of(window[-1].base_sequence, window[-1].base_offset)
    stream.observers.report(ConditionalPartitionFenced(stream.topic, stream.partition, end - shift, end))
    for batch, in_log in zip(group, window, strict=True):
        expected = in_log.base_offset - shift_of(in_log.base_sequence, in_log.base_offset)
        stream.answer(batch, answers.displaced(in_log.base_offset, expected), "displaced")
