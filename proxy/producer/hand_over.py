"""A producer that has its id from the proxy, at brokers that give idempotence themselves by now: its batches go to them
as they came (rule R21).

The entry tells what is stored in the old way (converted, with markers); the leader tells what it knows of the producer,
and checks all later batches. Nothing is reserved or committed here: a batch in doubt is resent by its client, and the
leader recognises it."""

from __future__ import annotations

from functools import cmp_to_key

from ...codecs.error_codes import ErrorCode
from ...codecs.marker import Identity
from ...state.commit import handed_over, moved_on, released
from ...state.decide import Append as Due
from ...state.decide import Duplicate, Fenced, Overlap, decide, numbered_as
from ...state.sequence import advance
from .. import limits
from ..bridge.known_producers import AskKnownProducer
from ..events import OperatorMessage
from ..flow.effects import Append, Ask, Leader, Unanswered, Wait
from ..flow.outcome import ROUTING_ERRORS, Appended, NotSent, Outcome, Refused, ended
from . import answers
from .batch import Batch
from .duplicates import answer_duplicate, look_for_overlap, why_hidden_or_made_anew
from .retry_notes import comes_before
from .stream import Stream

HANDED_OVER = "producers are handed over to the brokers"
_OTHER_FORMAT = int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)


async def pass_on(stream: Stream) -> None:
    """Work on the lowest batch that waits: answer it, or send it to the leader as it came."""
    batch = _lowest(stream)
    if await _is_of_the_old_way(stream, batch):
        return
    if batch.is_behind(stream.key, ()):  # rule R11; the leader would call it a gap
        stream.dismiss(batch, answers.held_back("behind a batch that has to be sent again first"), "held_back")
        return
    leader = await Leader(stream.topic, stream.partition)
    if leader is None or not stream.context.is_reachable(leader):
        await Leader(stream.topic, stream.partition, refresh=True)
        await Wait(limits.LEADER_AWAY_SECONDS)
        return
    is_due = stream.known_by == leader or await _is_expected(stream, batch, leader)
    if not is_due or not await _takes_the_place(stream, batch):
        return
    name = stream.held.name
    if name is not None and not await stream.heeds_name(name):
        return  # R22: nothing is reserved here that compares the name, so this is the last look before it leaves
    if batch in stream.queue:  # else it was answered while Redis was away
        await _send(stream, batch, leader)


def _lowest(stream: Stream) -> Batch:
    """Return the batch that has to come first: a client sends in order, but a retry may arrive behind later batches."""

    def order(one: Batch, other: Batch) -> int:
        return -1 if comes_before(one.identity.producer_epoch, one.identity.base_sequence, other.identity) else 1

    return min(stream.queue, key=cmp_to_key(order))


async def _is_of_the_old_way(stream: Stream, batch: Batch) -> bool:
    """By the entry, is the batch stored in the old way, or fenced, or given up? Then answer it as always (rule R9)."""
    held = stream.held
    if held.is_blank:
        return False
    verdict = decide(held.entry, batch.identity)
    is_known = isinstance(verdict, Duplicate | Overlap | Fenced)
    hidden = None if is_known else await why_hidden_or_made_anew(stream, batch)
    is_told = hidden is not None or isinstance(verdict, Duplicate | Overlap)
    if is_told and not await stream.confirm([batch]):
        return True  # another proxy may have handed the producer over meanwhile: look at what is stored now
    if isinstance(verdict, Duplicate):
        await answer_duplicate(stream, batch, verdict)
    elif isinstance(verdict, Fenced):
        stream.dismiss(batch, answers.fenced(verdict), "fenced")
    elif isinstance(verdict, Overlap) and verdict.record_count < batch.identity.record_count:
        stream.dismiss(batch, answers.partly_stored(verdict.record_count, _OTHER_FORMAT), "refused")
    elif isinstance(verdict, Overlap):
        await look_for_overlap(stream, batch, verdict.record_count)
    elif hidden is not None:
        stream.dismiss(batch, answers.undecidable(hidden), "undecidable")
    else:
        return False
    return True


async def _is_expected(stream: Stream, batch: Batch, leader: int) -> bool:
    """May the batch go to this leader? A leader that knows the producer decides itself. One that does not would take
    any batch, so this has to be the one that is due; and before it leaves, the entry is written as handed over, so that
    no proxy appends anything in the old way any more."""
    known = await Ask(leader, AskKnownProducer(stream.topic, stream.partition, stream.producer_id))
    if isinstance(known, Unanswered) or known.error_code:
        reason = known.reason if isinstance(known, Unanswered) else f"code {known.error_code}"
        await Leader(stream.topic, stream.partition, refresh=True)
        stream.dismiss(
            batch, answers.in_doubt(f"the leader does not tell which producers it knows: {reason}"), "in_doubt"
        )
        return False
    held = stream.held
    is_handed_over = held.entry is not None and held.entry.is_handed_over
    if known.last_sequence is not None:
        stream.known_by = leader
        if not is_handed_over:
            await stream.read_again()  # another proxy has handed it over, perhaps after more appends in the old way
        return is_handed_over
    any_start = held.is_blank and batch.may_begin(stream.key) and await held.may_start_anywhere()
    if any_start is None:
        await stream.read_again()
        return False
    comes_later = any_start and (not batch.is_retry(stream.key) or batch.is_behind(stream.key, stream.queue))
    if comes_later or not isinstance(decide(None if held.is_blank else held.entry, batch.identity, any_start), Due):
        stream.dismiss(batch, answers.held_back("the leader does not know what comes before it"), "held_back")
        await stream.read_again()  # another proxy may have appended what comes before it
        return False
    if is_handed_over:
        return True
    return await stream.write(handed_over(held.or_fresh(batch.identity, batch.principal)))


async def _takes_the_place(stream: Stream, batch: Batch) -> bool:
    """R17: a batch takes the place of one with its numbers that was given up. That is written before it leaves, as with
    a reserve: nobody would do it later if this proxy dies. False: the swap failed, look again."""
    entry = stream.held.entry
    intent = None if entry is None else entry.intent
    if entry is None or intent is None or not intent.is_given_up or numbered_as(intent, batch.identity) is None:
        return True
    return await stream.write(released(entry))


async def _send(stream: Stream, batch: Batch, leader: int) -> None:
    """Send the batch. If its outcome is unknown it comes again, and the leader recognises it."""
    life, incarnation, identity = stream.life, stream.life.incarnation, batch.identity

    def may_send() -> str | None:
        if incarnation != life.incarnation:
            return "another incarnation has begun"
        return None if batch.is_wanted else "a client has gone"

    stream.take_out([batch])
    names = (Identity(stream.producer_id, identity.producer_epoch, identity.base_sequence, identity.record_count),)
    batch.ahead = None
    outcome: Outcome = await Append(
        leader, *stream.key[1:], batch.records, batch.timeout_ms, may_send, names, batch.way, batch.sender
    )
    if stream.observers.wants_outcomes:
        stream.observers.report(ended(leader, *stream.key[1:], names, outcome))
    if isinstance(outcome, NotSent):
        stream.put_back([batch])
        await Leader(stream.topic, stream.partition, refresh=True)
        await Wait(limits.PROBE_SECONDS)
        return
    if isinstance(outcome, Appended) and outcome.error_code == 0:
        stream.known_by = leader
        answer = answers.appended(outcome.base_offset, outcome.log_append_time_ms)
        stream.answer(batch, answer, "appended")
        stream.out = []  # a retry that comes while it is written joins nothing that has its answer
        await _forget_the_old_way(stream, batch)
    else:
        stream.known_by = None
        await _fail(stream, batch, outcome)
        stream.out = []


async def _forget_the_old_way(stream: Stream, batch: Batch) -> None:
    entry, identity = stream.held.entry, batch.identity
    if entry is None or identity.producer_epoch != entry.producer_epoch:
        return
    done = moved_on(entry, advance(identity.base_sequence, identity.record_count))
    if done is not None:
        await stream.write(done)


async def _fail(stream: Stream, batch: Batch, outcome: Outcome) -> None:
    code = getattr(outcome, "error_code", 0)
    if not isinstance(outcome, Refused) or code in ROUTING_ERRORS:
        await Leader(stream.topic, stream.partition, refresh=True)
    if not isinstance(outcome, Refused):
        stream.answer(batch, answers.in_doubt("the broker's answer was lost, or is not certain"), "in_doubt")
    elif code == _OTHER_FORMAT:
        what = f"topic {stream.topic} has a message.format.version of its own, in which brokers give no idempotence"
        stream.observers.report(OperatorMessage("error", f"{what}: its batches wait until that setting is removed"))
        stream.answer(batch, answers.held_back(what), "held_back")
    else:
        stream.answer(batch, answers.refused(code), "refused")
