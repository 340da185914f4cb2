"""One producer on one partition: the flow that decides, reserves, appends, answers and commits. Rules R2, R3, R11,
R13, R17, R19.

One flow at a time works here, so at most one append of this producer is in flight. What arrives meanwhile queues and
becomes the next group. A commit (``entry_cache.py``) rides on the next reserve, or is written alone after a moment of
quiet. The state, and the batches that wait, are in ``stream.py``. Open intents and suspect entries are worked on by
``takeover.py``, a reserved group by ``forward.py``; both are called from here and return here."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...codecs.convert import HeaderRefused
from ...codecs.errors import WireError
from ...state.commit import reserved
from ...state.conditional import Ahead, HeldBack, decide_conditional
from ...state.decide import Append, Duplicate, Fenced, OutOfOrder, Overlap, Verdict, decide, is_directly_after
from ...state.entry import NO_OFFSET, Entry, Intent, IntentBatch
from ...state.entry_states import EntryState
from ...state.store import NO_VERSION, StoreAway
from .. import limits
from ..events import InternalError
from ..flow.effects import Leader, Now, Pause, Wait, in_steps
from ..flow.outcome import NotSent, Outcome
from ..flow.wrapper import Wrapper
from ..partition_log.log_offsets import Later
from . import answers
from .batch import Answer, Batch
from .conditional import turn_down
from .context import Context
from .duplicates import (
    answer_duplicate,
    begins_anew,
    due_of,
    look_for_overlap,
    why_hidden,
)
from .fast_path import FastPath
from .forward import Forward
from .grouping import gather, in_one_pipeline, planning
from .rebuild import is_claimed
from .stream import Confirmed, Stream
from .takeover import Takeover

if TYPE_CHECKING:
    from ..flow.runner import Flow, FlowRunner


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """One producer on one partition at one moment, for people. ``queued``: how many batches wait. ``under_way``: how
    many are reserved or sent, and not answered yet. ``entry``: as last known; None: there is none. ``client``: the
    client id, "" if unknown."""

    producer_id: int
    topic: str
    partition: int
    queued: int
    under_way: int
    is_idle: bool
    entry: Entry | None
    state: EntryState
    client: str = ""


class Sequencer:
    """The work on one (producer id, topic, partition)."""

    def __init__(self, context: Context, runner: FlowRunner, producer_id: int, topic: str, partition: int) -> None:
        self.stream = Stream(context, runner, producer_id, topic, partition)
        outside, stream = context.fast_path, self.stream
        goes_slowly = stream.is_conditional or stream.held.name is not None  # R22, R23: flows compare what they need
        self._fast = None if outside is None or goes_slowly else FastPath(stream, outside)
        self._runner = runner
        self._running = False

    # ------------------------------------------------------------------ from produce.py
    def submit(self, batch: Batch) -> None:
        """Take a batch; its waiters are answered, sooner or later."""
        if not self.goes_fast(batch):
            self.enqueue(batch)

    def enqueue(self, batch: Batch) -> None:
        """Take a batch that does not go the fast path at once."""
        stream = self.stream
        if not stream.take(batch):
            return
        if self._running or self._is_out_fast:
            stream.turn_away_foreign()
            stream.bell.ring()
        else:
            self.wake()

    def wake(self) -> None:
        """Start working, if no flow works yet."""
        if not self._running:
            self._run(self.work())

    def _run(self, flow: Flow) -> None:
        self._running = True
        self._runner.start(flow, self._ended, self._broke)

    def statistics(self) -> ProducerStatistics:
        """Return its state at this moment. May be called from other threads."""
        stream, entry = self.stream, self.stream.held.seen
        counts = len(stream.queue), len(stream.out)
        state = stream.state_with(entry)
        return ProducerStatistics(*stream.key, *counts, self.is_idle, entry, state, stream.client)

    @property
    def written_at(self) -> float:
        """When something was written here last, in reactor seconds; minus infinity: never."""
        return self.stream.held.written_at

    @property
    def is_idle(self) -> bool:
        """Is nothing queued, out, or unwritten? Then it may be dropped."""
        return not (self._running or self._is_out_fast or self.stream.held.is_unwritten)

    # ------------------------------------------------------------------ beside the flow: fast_path.py
    @property
    def _is_out_fast(self) -> bool:
        return self._fast is not None and self._fast.is_out

    def goes_fast(self, batch: Batch, request_bytes: int = 0) -> bool:
        """Send a batch that has come on the fast path; False: it does not go, and nothing has happened. It goes only if
        nothing is queued or out, and no flow works here, or only rests. ``request_bytes``: bytes of its request that
        the memory budget does not count yet."""
        stream, fast = self.stream, self._fast
        if fast is None or stream.queue or stream.out:
            return False
        if self._running and not stream.is_resting:
            return False
        if not fast.start(self, batch, request_bytes):
            return False
        if self._running:
            stream.bell.ring()  # the resting flow ends
        return True

    def go_on(self) -> None:
        """A group has gone the fast path, and others wait: start the next one, in its turn."""
        outside = self.stream.context.fast_path
        assert outside is not None
        outside.in_turn(self._go_on)

    def _go_on(self, _nothing: None) -> None:
        if self._running or self._is_out_fast:
            return  # what waits was taken meanwhile
        self.stream.drop_unwanted()
        if not self.stream.queue:
            outside = self.stream.context.fast_path
            assert outside is not None
            outside.flush_soon(self)
        elif not self._starts_next():
            self.wake()

    def _starts_next(self) -> bool:
        """Start what waits on the fast path, if it may go. To be called between two groups only."""
        stream = self.stream
        if self._fast is None or not self._fast.start(self, stream.next_batch()):
            return False
        for batch in stream.out:
            stream.queue.remove(batch)
            batch.ahead = None  # the wrapper counts its bytes itself
        return True

    def look(self, now: float) -> bool:
        """Write what is held of groups that went the fast path once no group was committed for a moment; under an
        ownership also while groups go on. False: call it again later."""
        fast, owned = self._fast, self.stream.held.ownership
        assert fast is not None
        if owned is None:
            if fast.committed_at > now - limits.COMMIT_LOOK_SECONDS:
                return False
            self.flush()
            return True
        if self._running:
            return False  # its next write ends the ownership
        if not fast.is_out and (owned.is_asked_for or fast.committed_at <= now - limits.OWNED_WRITE_SECONDS):
            self.flush()  # R17: it is handed over
            return True
        fast.write_owned(now)
        return False

    def flush(self) -> None:
        """Have what is held written by a flow, if nothing is at work here."""
        if self.stream.held.is_unwritten and not self._is_out_fast and not self._running:
            self.stream.is_flush_due = True
            self.wake()

    def settle(self, until: float) -> None:
        """Resolve what is open or suspect, though no batch waits: read the stored entry anew, and work on it until
        ``until`` (reactor seconds). Does nothing if work is going on here: that comes to an end by itself."""
        if self.is_idle:
            self.stream.held.forget()
            self.stream.watch_intent(until)
            self.wake()

    def take_over(
        self,
        group: list[Batch],
        pieces: deque[Wrapper],
        entry: Entry,
        era: int,
        outcome: Outcome | None,
        *,
        is_reserved: bool,
    ) -> None:
        """A group that went the fast path does not end as usual. ``outcome``: of its append; None: the swap of
        ``entry`` is not confirmed. ``is_reserved`` False: it left under an ownership, ``entry`` is not stored."""
        self._run(self._finish(group, pieces, entry, era, outcome, is_reserved=is_reserved))

    async def _finish(
        self,
        group: list[Batch],
        pieces: deque[Wrapper],
        entry: Entry,
        era: int,
        outcome: Outcome | None,
        *,
        is_reserved: bool,
    ) -> None:
        """Go on with a group of the fast path. If it left under an ownership, it first gets an intent of its own, by
        the swap that ends the ownership: from then on it is a group like any other (rule R2)."""
        stream = self.stream
        is_ours = is_reserved or await stream.write(entry)
        if not is_ours and outcome is not None and era != stream.life.era:
            stream.held.entry, is_ours = entry, True  # void, like any group that was reserved in an earlier era
        if is_ours:
            assert entry.intent is not None
            forward = Forward(stream, group, pieces, entry.intent.leader, None if outcome is None else era)
            del pieces  # it keeps what it needs of them
            await forward.work(outcome)
        elif outcome is None or isinstance(outcome, NotSent):
            stream.put_back(group)
        else:  # R13: the proxy that has taken the entry over finds in the log what became of the group
            for batch in group:
                stream.answer(batch, answers.in_doubt("another proxy has taken the producer over"), "in_doubt")
        stream.out = []
        await self.work()

    # ------------------------------------------------------------------ the flow
    async def work(self) -> None:
        """Work until nothing is queued, everything known is written, and no intent is left that is ours to look
        after."""
        stream = self.stream
        while True:
            stream.drop_unwanted()
            if not stream.queue and not (stream.watches_intent and await Now() < stream.watch_intent_until):
                if not stream.held.is_unwritten:
                    return
                if stream.is_flush_due or not await self._rest():
                    stream.is_flush_due = False
                    await stream.write_held()
                elif self._is_out_fast:
                    return
                continue
            name = stream.held.name
            if name is not None and stream.queue and not await stream.heeds_name(name):
                continue
            doubt = await self._open_doubt()
            if isinstance(doubt, StoreAway):
                await stream.answer_without_store(doubt.reason)
                await Pause(stream.bell, limits.PROBE_SECONDS)
                continue
            if doubt is not None:
                await doubt.work()
                continue
            stream.nothing_is_open()
            if stream.queue and stream.held.ownership is not None and stream.held.ownership.is_asked_for:
                await self._give_ownership()
            elif stream.queue:
                if self._starts_next():
                    return
                await self._work_on(stream.next_batch())

    async def _give_ownership(self) -> None:
        """Rule R12: another proxy has asked for the ownership, perhaps for a newer epoch. It is handed over, and that
        proxy gets time to read the entry, before anything else is reserved here."""
        stream = self.stream
        await stream.write_held()
        if not stream.life.is_draining:
            await Wait(limits.OWNED_ASKED_SECONDS)
        stream.held.forget()

    async def _rest(self) -> bool:
        """Wait for a batch. False: none came within ``COMMIT_IDLE_SECONDS``, so what is held is written alone."""
        stream = self.stream
        stream.is_resting = True
        rung = await Pause(stream.bell, limits.COMMIT_IDLE_SECONDS)
        stream.is_resting = False
        return rung

    async def _work_on(self, batch: Batch) -> None:
        stream = self.stream
        held = stream.held
        if stream.is_conditional:
            return await self._work_on_conditional(batch)
        is_blank = held.is_blank
        any_start = is_blank and batch.may_begin(stream.key) and await held.may_start_anywhere()
        if any_start is None:
            return await stream.read_again()
        if any_start and (not batch.is_retry(stream.key) or batch.is_behind(stream.key, stream.queue)):
            # What its client has sent before it may still come, also over another connection.
            stream.dismiss(batch, answers.held_back("what comes before it may have to be sent again"), "held_back")
            return
        # ``is_blank`` is asked again because ``may_start_anywhere`` may have waited; only then, as this is hot code.
        verdict = decide(None if is_blank and held.is_blank else held.entry, batch.identity, any_start)
        is_known = isinstance(verdict, Duplicate | Fenced)
        hidden = None if is_known else await why_hidden(stream, batch)
        if batch not in stream.queue:
            return
        is_due = self._goes_on(batch, verdict) if batch.stored_records else isinstance(verdict, Append)
        if is_due and hidden is None:
            await self._append(gather(batch, stream.queue))
        elif isinstance(verdict, Duplicate):
            await answer_duplicate(stream, batch, verdict)
        else:
            confirmed = batch.arrived_at, stream.life.era
            if await stream.confirm([batch]):
                await self._turn_down(batch, verdict, hidden, confirmed)

    async def _work_on_conditional(self, batch: Batch) -> None:
        """Rule R23: it is appended where the log ends, or not at all."""
        stream = self.stream
        entry = stream.held.entry
        assert entry is not None, "a shard is begun before its first batch"
        link = batch.link
        ahead = Ahead.NOTHING if link is None else link.ahead
        verdict = decide_conditional(entry, batch.identity, batch.expected_offset, ahead)
        if isinstance(verdict, Append):
            await self._append(in_one_pipeline(gather(batch, stream.queue)))
            return
        if isinstance(verdict, HeldBack):
            stream.dismiss(batch, answers.held_back("the batch before it has to be sent again first"), "held_back")
            return
        confirmed = batch.arrived_at, stream.life.era
        if await stream.confirm([batch]):
            await turn_down(stream, batch, verdict, confirmed)

    def _goes_on(self, batch: Batch, verdict: Verdict) -> bool:
        """Is the rest of a batch due, whose first ``stored_records`` were seen in the log?"""
        if isinstance(verdict, Overlap) and verdict.record_count == batch.stored_records:
            return True
        batch.note_stored(0, NO_OFFSET)  # the entry has less of it, or more
        return isinstance(verdict, Append)

    async def _turn_down(self, batch: Batch, verdict: Verdict, hidden: str | None, confirmed: Confirmed) -> None:
        """By the entry the batch is not due. The log may have more than the entry; ``hidden``: why even the log may not
        tell."""
        stream = self.stream
        if hidden is not None:
            stream.dismiss(batch, answers.undecidable(hidden), "undecidable")
        elif isinstance(verdict, Overlap):
            await look_for_overlap(stream, batch, verdict.record_count, confirmed)
        elif isinstance(verdict, OutOfOrder) and self._may_hide_a_gap():
            stream.dismiss(
                batch, answers.undecidable("what comes before it may be stored without a marker"), "undecidable"
            )
        elif isinstance(verdict, OutOfOrder) and self._is_after_unknown(batch, verdict):
            stream.dismiss(batch, answers.after_unknown(), "undecidable")
        else:
            self._refuse(batch, verdict)

    def _is_after_unknown(self, batch: Batch, verdict: OutOfOrder) -> bool:
        """Is nothing missing before the batch but records that were given up (rule R11)? A proxy that has died may have
        answered that they are stored. On a topic without batch markers each crash of a proxy can do that, so there
        OUT_OF_ORDER_SEQUENCE_NUMBER stays: Java and franz-go send the batch again, and lose nothing."""
        stream = self.stream
        intent = None if stream.held.entry is None else stream.held.entry.intent
        if intent is None or not intent.is_given_up or stream.topic in stream.topics.unmarked:
            return False
        return is_directly_after(intent, batch.identity, verdict.expected) and not batch.has_ended(stream.key)

    def _may_hide_a_gap(self) -> bool:
        stream = self.stream
        entry, found = stream.held.entry, stream.looked_for
        if entry is None or not entry.is_rebuilt:
            return False
        if found is None or not found.is_of(stream.life.era, entry):
            return stream.context.owns  # only the proxy that rebuilt the entry knew whether it had an ownership
        return found.hides_a_gap

    # R2 lives here: nothing is forwarded before its intent is stored.
    async def _append(self, group: list[Batch]) -> None:
        """Reserve, forward, and come back when the group is answered or its doubt is settled."""
        stream = self.stream
        is_late = stream.context.is_pass_long()
        try:
            pieces = await in_steps(lambda: planning(stream.target, group), group[0].sender, is_late=is_late)
        except HeaderRefused as refusal:
            self._cannot_convert(group, answers.header_refused(refusal.header, stream.topic), "header_refused")
            return
        except WireError as error:
            self._cannot_convert(group, answers.unreadable(error), "unreadable")
            return
        if not pieces:
            return  # it begins anew if another request for it has come meanwhile
        for batch in group:
            batch.ahead = None  # the wrapper counts its bytes itself
        leader = stream.context.leader_of(stream.topic, stream.partition)
        if leader is None:
            leader = await Leader(stream.topic, stream.partition, refresh=True)
        elif not stream.context.is_reachable(leader):
            # Nothing is reserved that cannot be sent: that would ask Redis and the brokers in a tight loop.
            await stream.write_held()
            await Leader(stream.topic, stream.partition, refresh=True)
            await Wait(limits.LEADER_AWAY_SECONDS)
            return
        bound = await stream.bounds.lower_bound(stream.topic, stream.partition, stream.held.entry)
        if leader is None or isinstance(bound, Later):
            for batch in group:
                stream.dismiss(batch, answers.no_leader(), "no_leader")
            return
        first = group[0].identity
        left = [batch.left if batch.stored_records else batch.identity for batch in group]
        batches = tuple(
            [IntentBatch(i.base_sequence, i.record_count, b.digest) for i, b in zip(left, group, strict=True)]
        )
        content = pieces[0].first_content
        intent = Intent(
            stream.life.incarnation, first.producer_epoch, batches, bound.offset, bound.anchor, content, leader
        )
        stream.take_out(group)
        started = stream.observers.step_begins()
        if await stream.write(reserved(stream.held.or_fresh(first, group[0].principal), intent), is_reserve=True):
            stream.step("reserve", group, started)
            forward = Forward(stream, group, pieces, leader)
            del pieces  # it keeps what it needs of them
            await forward.work()
        else:
            stream.put_back(group)
        stream.out = []

    # ------------------------------------------------------------------ what has to be found out first
    async def _open_doubt(self) -> Takeover | StoreAway | None:
        """Return what has to be resolved before any batch, if there is something: a suspect entry (R10), or an open
        intent (R1, R12). StoreAway: that cannot be told."""
        stream = self.stream
        if not await stream.held.learn():
            return StoreAway("the store cannot be reached")
        stream.turn_away_foreign()
        entry = stream.held.entry
        if entry is not None and entry.generation == stream.life.generation:
            if not entry.is_rebuilt:  # as with nearly every batch
                return Takeover(stream, suspect=False) if entry.has_open_intent else None
            return await self._doubt_about(entry)
        suspect = await stream.held.is_suspect()
        if isinstance(suspect, StoreAway):
            return suspect
        stream.turn_away_foreign()  # if the entry is absent, ``is_suspect`` has read whose producer id it is
        if suspect:
            return Takeover(stream, suspect=True)
        return None if stream.held.entry is None else await self._doubt_about(stream.held.entry)

    async def _doubt_about(self, entry: Entry) -> Takeover | None:
        """Rule R10: after a rebuild, what comes next may be in the log without a marker."""
        stream = self.stream
        if entry.has_open_intent:
            return Takeover(stream, suspect=False)
        if is_claimed(entry.intent):
            return Takeover(stream, suspect=True)
        while entry.is_rebuilt and stream.queue:
            batch, looked_for = stream.next_batch(), stream.looked_for
            if looked_for is not None and not looked_for.is_of(stream.life.era, entry):
                looked_for = None
            if looked_for is not None and looked_for.is_all:
                return None
            verdict = decide(None if stream.held.is_blank else entry, batch.identity, any_start=True)
            goes_on = isinstance(verdict, Overlap) and verdict.record_count < batch.identity.record_count
            is_due = (goes_on or isinstance(verdict, Append)) and await why_hidden(stream, batch) is None
            if not is_due or begins_anew(stream, entry, batch):
                return None
            due = await due_of(batch, entry)
            if looked_for is None or due not in looked_for.due:
                return Takeover(stream, suspect=True)
            if stream.queue and stream.next_batch() is batch:
                return None
        return None

    # ------------------------------------------------------------------ answers
    def _cannot_convert(self, group: list[Batch], answer: Answer, verdict: str) -> None:
        """A batch of the group cannot be converted. Next each goes alone, which shows which one it is."""
        if len(group) > 1:
            for batch in group:
                batch.is_alone = True
        else:
            self.stream.dismiss(group[0], answer, verdict)

    def _refuse(self, batch: Batch, verdict: Verdict) -> None:
        if isinstance(verdict, Fenced):
            self.stream.dismiss(batch, answers.fenced(verdict), "fenced")
            return
        assert isinstance(verdict, OutOfOrder)
        self.stream.dismiss(batch, answers.out_of_order(verdict), "out_of_order")

    # ------------------------------------------------------------------ the end
    def _ended(self, _result: object) -> None:
        stream = self.stream
        self._running = False
        if stream.queue and not self._is_out_fast:
            self.wake()
        elif stream.held.stored_version == NO_VERSION and stream.held.is_blank and not stream.is_conditional:
            stream.context.drop_unknown(stream.key)

    def _broke(self, error: Exception) -> None:
        """An internal error ended the flow: all who wait get a retriable answer, and after a pause the work goes on."""
        stream = self.stream
        stream.is_resting = False
        stream.observers.report(
            InternalError(f"producer {stream.producer_id} on {stream.topic}-{stream.partition}", error)
        )
        stream.dismiss_all(answers.in_doubt("an error inside the proxy"), "failed")
        self._runner.start(self._come_back(), self._ended, self._broke)

    async def _come_back(self) -> None:
        await Pause(self.stream.bell, limits.FAILED_PAUSE_SECONDS)
        await self.work()
