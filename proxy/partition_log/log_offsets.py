"""Where one partition's log ends, and what lies at one place of it (rules R5, R6, R8, R9). Flows only: they ask
brokers and wait; nothing is concluded about a producer here, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any

from ...codecs.error_codes import ErrorCode, named
from ...codecs.errors import WireError
from ...codecs.logged import Logged, LoggedBatch, anchor_of, iterate_logged
from ...codecs.message_set import spanning
from ...state.entry import NO_ANCHOR, NO_OFFSET
from ...values import value
from .. import limits
from ..bridge.asks import HIGH_WATERMARK_REPLICA_ID, LOG_END_REPLICA_ID, FetchRecords, LatestOffset
from ..flow.effects import Ask, Leader, Now, QuiescenceCheck, Replicas, Unanswered, Wait, in_steps


@value(frozen=True, slots=True)
class Later:
    """The reading was not finished, for a reason that passes. Try again: the search continues where it stopped."""

    reason: str


@value(frozen=True, slots=True)
class Unreadable(Later):
    """The log has something that this version cannot read, perhaps of another writer. It may stay for ever."""


@value(frozen=True, slots=True)
class Position:
    """An offset that is safe as a lower bound, and the anchor that identifies the record just below it."""

    offset: int
    anchor: bytes

    @property
    def is_recognised(self) -> bool:
        """Can this position be distinguished from the same offset of another log?"""
        return self.anchor != NO_ANCHOR


async def check_quiescence(topic: str, partition: int, broker_ids: Collection[int]) -> Later | None:
    """Wait until each broker has passed the quiescence check for one second, so that it has executed whatever it had
    read (rule R6). A broker that still cannot be reached ``LEADER_GONE_SECONDS`` after the wait began, longer than its
    session, is left out if another one leads the partition by then. Later: one was not seen to be quiescent within
    ``SCAN_SECONDS_MAX``."""
    started = await Now()
    for broker_id in sorted(broker_ids):
        while (seen := await QuiescenceCheck(broker_id, topic, partition)) is not True:
            now = await Now()
            if seen is not False and now - started > limits.LEADER_GONE_SECONDS:
                leader = await Leader(topic, partition, refresh=True)
                if leader is not None and leader != broker_id:
                    break
            if now - started > limits.SCAN_SECONDS_MAX:
                return Later(f"broker {broker_id} has not passed the quiescence check")
    return None


async def current_end(topic: str, partition: int, may_lead: Collection[int]) -> tuple[int, int] | Later:
    """Return (leader, log end offset) once the high watermark has reached that end, so that fetches show all of it.

    ``may_lead``: brokers to which something was sent, replicas or not. As long as two brokers answer as the leader,
    nothing is concluded. Later: not so within ``SCAN_SECONDS_MAX``."""
    started = await Now()
    end, answered_by = NO_OFFSET, None
    while True:
        leader = await Leader(topic, partition, refresh=end == NO_OFFSET)
        if leader is not None:
            answer = await Ask(leader, LatestOffset(topic, partition, LOG_END_REPLICA_ID))
            shown = await Ask(leader, LatestOffset(topic, partition, HIGH_WATERMARK_REPLICA_ID))
            if isinstance(answer, Unanswered) or isinstance(shown, Unanswered) or answer.error_code or shown.error_code:
                end = NO_OFFSET
            else:
                # A higher end does not matter: nothing of ours came after the settling. A lower one means truncation.
                end = answer.offset if end == NO_OFFSET or leader != answered_by else min(end, answer.offset)
                answered_by = leader
                if shown.offset >= end:
                    if not await _has_rival(topic, partition, leader, may_lead):
                        return leader, end
                    end = NO_OFFSET  # the leader is asked for again
        if await Now() - started > limits.SCAN_SECONDS_MAX:
            return Later(
                "the high watermark has not reached the end of the log" if leader is not None else "no leader is known"
            )
        await Wait(limits.PROBE_SECONDS)


async def _has_rival(topic: str, partition: int, leader: int, may_lead: Collection[int] = ()) -> bool:
    """Does another broker answer as the leader too? Then one of the two has been deposed and does not know it, and it
    is not certain which log is right."""
    replicas = await Replicas(topic, partition)
    for broker_id in sorted({*replicas, *may_lead} - {leader}):
        answer = await Ask(broker_id, LatestOffset(topic, partition, LOG_END_REPLICA_ID))
        if not isinstance(answer, Unanswered) and not answer.error_code:
            return True
    return False


async def message_at(
    leader: int, topic: str, partition: int, offset: int, count_bytes: Callable[[int], None] = lambda _: None
) -> Logged | Later | None:
    """Return the stored message that contains ``offset``; None if the log has none there (any more). ``count_bytes`` is
    called with the size of every fetch."""
    fetch_bytes = limits.FETCH_ONE_BYTES
    while True:
        answer = await Ask(leader, FetchRecords(topic, partition, offset, fetch_bytes))
        if isinstance(answer, Unanswered):
            return Later(answer.reason)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return None
        if answer.error_code:
            return Later(f"the leader answers a fetch: {named(answer.error_code)}")
        count_bytes(len(answer.records))
        try:
            for message in iterate_logged(answer.records):
                if message.offset == offset:
                    return message  # not opened: a wrapper's own offset is that of its last record
                if message.offset > offset:
                    if isinstance(message, LoggedBatch):
                        return message if message.first <= offset else None
                    first, _ = await in_steps(partial(spanning, message, limits.DECOMPRESSED_BYTES_MAX), topic)
                    return message if first <= offset else None
        except WireError as error:
            return Unreadable(f"the stored message at offset {offset} cannot be read: {error}")
        if not len(answer.records):
            # The log became shorter since its end was asked for: nothing is proven.
            hidden = answer.high_watermark <= offset
            return Later(f"the high watermark has not passed offset {offset}") if hidden else None
        if fetch_bytes >= limits.FETCH_BYTES_MAX:
            return Unreadable("a stored message is larger than the largest fetch")
        fetch_bytes = min(fetch_bytes * 8, limits.FETCH_BYTES_MAX)


async def newest_position(topic: str, partition: int) -> Position | Later:
    """Return the high watermark of the current leader with its anchor: a safe lower bound for whatever is appended
    later (rule R8)."""
    leader = await Leader(topic, partition)
    if leader is None:
        return Later("no leader is known")
    answer = await Ask(leader, LatestOffset(topic, partition, HIGH_WATERMARK_REPLICA_ID))
    if isinstance(answer, Unanswered):
        return Later(answer.reason)
    if answer.error_code:
        await Leader(topic, partition, refresh=True)
        return Later(f"the leader answers: {named(answer.error_code)}")
    if answer.offset == 0:
        return Position(0, NO_ANCHOR)
    below = await message_at(leader, topic, partition, answer.offset - 1)
    if isinstance(below, Later) and not isinstance(below, Unreadable):
        return below
    return Position(answer.offset, NO_ANCHOR if below is None or isinstance(below, Later) else anchor_of(below))


async def look_at(
    topic: str, partition: int, offset: int, fits: Callable[[Logged], Coroutine[Any, Any, bool]]
) -> bool | Later:
    """Is the message that contains ``offset`` one that ``fits`` (rules R5, R9)? False only if that is certain. Later:
    it could not be determined within ``SCAN_SECONDS_MAX``; Unreadable: the message there cannot be read."""
    started = await Now()
    # The broker that led at the append may not know of its successor.
    leader = await Leader(topic, partition, refresh=True)
    while True:
        if leader is not None:
            shown = await Ask(leader, LatestOffset(topic, partition, HIGH_WATERMARK_REPLICA_ID))
            end = await Ask(leader, LatestOffset(topic, partition, LOG_END_REPLICA_ID))
            if isinstance(shown, Unanswered) or isinstance(end, Unanswered) or shown.error_code or end.error_code:
                await Leader(topic, partition, refresh=True)
            elif shown.offset > offset:
                message = await message_at(leader, topic, partition, offset)
                if isinstance(message, Unreadable):
                    return message
                try:
                    if message is not None and not isinstance(message, Later) and await fits(message):
                        return True
                except WireError as error:  # another writer may have stored it; its records have not been read before
                    return Unreadable(f"the stored message at offset {offset} cannot be read: {error}")
                if not isinstance(message, Later) and not await _has_rival(topic, partition, leader):
                    return False
            elif end.offset <= offset and not await _has_rival(topic, partition, leader):
                return False
        if await Now() - started > limits.SCAN_SECONDS_MAX:
            return Later(f"the high watermark has not passed offset {offset}")
        await Wait(limits.PROBE_SECONDS)
        leader = await Leader(topic, partition)
