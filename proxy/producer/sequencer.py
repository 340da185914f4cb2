"""One producer on one partition: what is done next for it, and the flow that prepares a group which is not usual. Rules
R3, R11, R13, R17, R19.

At any time a group is out (``append.py``), or one flow works here, or nothing: so at most one append of this producer
is in flight. What arrives meanwhile queues and becomes the next group. A group is prepared at once where nothing is
unusual (``usual.py``), else by a flow: it reads the entry, has open intents and unverified entries resolved
(``takeover.py``), decides, converts, waits for leader and bound, and ends by starting the append. An append that is no
plain success is handed to a flow again (``recovery.py``). A commit (``entry_cache.py``) rides on the next reserve, or
is written alone after a moment of quiet. The state, and the batches that wait, are in ``stream.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...codecs.convert import HeaderRefused
from ...codecs.errors import WireError
from ...state.commit import ready_for
from ...state.conditional import Ahead, HeldBack, decide_conditional
from ...state.decide import Append, Duplicate, Fenced, OutOfOrder, Overlap, Verdict, decide, is_directly_after
from ...state.entry import NO_OFFSET, Entry
from ...state.entry_states import EntryState
from ...state.names import NO_EPOCH
from ...state.packed import PackedEntry
from ...state.store import NO_VERSION, StoreAway
from .. import limits
from ..events import GroupPrepared, InternalError
from ..flow.effects import Leader, Now, Pause, Wait, in_steps
from ..flow.form import Form
from ..flow.outcome import NotSent
from ..partition_log.log_offsets import Later, Position
from . import answers
from .append import GroupAppend, Prepared, Trouble, prepared
from .batch import Answer, Batch
from .conditional import turn_down
from .context import Context
from .duplicates import (
    answer_duplicate,
    begins_again,
    due_of,
    is_absent,
    look_for_overlap,
    why_hidden,
)
from .grouping import gather, in_one_pipeline, planning
from .rebuild import is_takeover
from .recovery import Recovery
from .stream import Confirmed, Stream
from .takeover import Takeover
from .usual import Unusual, UsualCase

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
        self._append = GroupAppend(self.stream)
        self._usual = UsualCase(self.stream, self._append)
        self._runner = runner
        self._running = False

    # ------------------------------------------------------------------ from produce.py
    def submit(self, batch: Batch) -> None:
        """Take a batch; its waiters are answered, sooner or later."""
        if not self.goes_at_once(batch):
            self.enqueue(batch)

    def goes_at_once(self, batch: Batch, request_bytes: int = 0) -> bool:
        """Have a batch that has come appended at once; False: it has to wait or to be prepared, and nothing has
        happened. ``request_bytes``: bytes of its request that the memory budget does not count yet."""
        stream = self.stream
        if self._running or stream.queue or stream.out:
            return False
        plan = self._usual.prepare(batch)
        if plan is None:
            return False
        try:
            self._append.start(plan, self, request_bytes)
        except Exception as error:
            self._append.give_up(error)
        return True

    def enqueue(self, batch: Batch) -> None:
        """Take a batch that is not appended at once."""
        stream = self.stream
        if not stream.take_batch(batch):
            return
        if self._running or self._append.is_out:
            stream.turn_away_foreign()
            stream.bell.ring()
        else:
            self.wake()

    def wake(self) -> None:
        """Start a flow that prepares what waits, if none works yet."""
        if not self._running:
            self._run(self.work())

    def _run(self, flow: Flow) -> None:
        self._running = True
        self._runner.start(flow, self._ended, self.broke)

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
        stream = self.stream
        return not (self._running or self._append.is_out or stream.held.is_unwritten or stream.queue)

    # ------------------------------------------------------------------ from append.py
    def go_on(self) -> None:
        """A group has ended, and others wait: start the next one, in its turn."""
        self.stream.context.outside.in_turn(self._go_on)

    def _go_on(self, _nothing: None) -> None:
        if self._running or self._append.is_out:
            return  # what waits was taken meanwhile
        stream = self.stream
        stream.drop_unwanted()
        if not stream.queue:
            stream.context.outside.flush_soon(self)
            return
        plan = self._usual.prepare(stream.next_batch())
        if plan is None:
            self.wake()
        else:
            self._start(plan)

    def _start(self, plan: Prepared) -> None:
        """Have a group appended that waits in the queue or, if it is reserved, is out already."""
        queue = self.stream.queue
        is_waiting = plan.by_flow is None or not plan.by_flow.is_reserved
        for batch in plan.group if is_waiting else ():
            queue.remove(batch)
            batch.ahead = None  # the wrapper counts its bytes itself
        try:
            self._append.start(plan, self)
        except Exception as error:
            self._append.give_up(error)

    def recover(self, trouble: Trouble) -> None:
        """A group has not ended as a plain success."""
        self._run(self._recover(trouble))

    async def _recover(self, trouble: Trouble) -> Prepared | None:
        stream = self.stream
        again = await self._recovered(trouble)
        if again is None:
            stream.out = []
            again = await self.work()
        return again

    async def _recovered(self, trouble: Trouble) -> Prepared | None:
        """Continue with a group: return what is to be appended again; None: the group is answered, or waits again. A
        swap that was not confirmed is repeated first. So is, if the group left under an append reservation, the one
        that ends the append reservation and gives the group an intent of its own: from then on it is like any other
        (rule R2)."""
        stream, group, outcome = self.stream, trouble.group, trouble.outcome
        is_ours = trouble.is_reserved or await stream.write(trouble.entry, is_reserve=True)
        if not is_ours and outcome is not None and trouble.lease_epoch != stream.instance.lease_epoch:
            stream.held.entry, is_ours = (
                trouble.entry,
                True,
            )  # void, like any group that was reserved in an earlier lease epoch
        if is_ours and outcome is not None:
            return await Recovery(stream, trouble).work(outcome)
        if is_ours:
            intent, entry = trouble.entry.intent, stream.held.packed
            assert intent is not None
            assert entry is not None
            bound = Position(intent.lower_bound, intent.anchor)
            where = intent.leader, bound, trouble.lease_epoch, intent.owner
            return prepared(stream, group, trouble.pieces, entry, *where, is_reserved=True, is_clean=trouble.is_clean)
        if outcome is None or isinstance(outcome, NotSent):
            stream.put_back(group)
        else:  # R13: the proxy that has taken the entry over finds in the log what became of the group
            for batch in group:
                stream.answer(batch, answers.in_doubt("another proxy has taken the producer over"), "in_doubt")
        return None

    # ------------------------------------------------------------------ from time to time
    def look(self, now: float) -> bool:
        """Write what is held once no group was committed for a moment; under an append reservation also between
        groups. False: call it again later."""
        append, reservation = self._append, self.stream.held.append_reservation
        if reservation is None:
            if append.committed_at > now - limits.COMMIT_LOOK_SECONDS:
                return False
            self.flush()
            return True
        if self._running:
            return False  # its next write ends the append reservation
        if not append.is_out and (
            reservation.is_asked_for or append.committed_at <= now - limits.APPEND_RESERVATION_WRITE_SECONDS
        ):
            self.flush()  # R17: it is handed over
            return True
        append.write_append_reservation(now)
        return False

    def flush(self) -> None:
        """Have what is held written by a flow, if nothing is at work here."""
        if self.stream.held.is_unwritten and not self._append.is_out and not self._running:
            self._run(self._flush())

    async def _flush(self) -> Prepared | None:
        await self.stream.write_held()
        return await self.work()

    def resolve_open(self, until: float) -> None:
        """Resolve what is open or unverified, though no batch waits: read the stored entry again, and work on it until
        ``until`` (reactor seconds). Does nothing if work is under way here: that comes to an end by itself."""
        if self.is_idle:
            self.stream.held.forget()
            self.stream.watch_intent(until)
            self.wake()

    # ------------------------------------------------------------------ the flow
    async def work(self) -> Prepared | None:
        """Work until a group is prepared, which is then appended; None: nothing is queued, and no intent is left that
        is ours to look after."""
        stream = self.stream
        while True:
            stream.drop_unwanted()
            if not stream.queue and not (stream.watches_intent and await Now() < stream.watch_intent_until):
                if stream.held.is_unwritten:
                    stream.context.outside.flush_soon(self)
                return None
            name = stream.held.name
            if name is not None and stream.queue and not await stream.heeds_name(name):
                continue
            unknown_outcome = await self._open_unknown_outcome()
            if isinstance(unknown_outcome, StoreAway):
                await stream.answer_without_store(unknown_outcome.reason)
                await Pause(stream.bell, limits.PROBE_SECONDS)
                continue
            if unknown_outcome is not None:
                await unknown_outcome.work()
                continue
            stream.nothing_is_open()
            if (
                stream.queue
                and stream.held.append_reservation is not None
                and stream.held.append_reservation.is_asked_for
            ):
                await self._give_append_reservation()
            elif stream.queue:
                plan = await self._work_on(stream.next_batch())
                if plan is not None:
                    return plan

    async def _give_append_reservation(self) -> None:
        """Rule R12: another proxy has asked for the append reservation, perhaps for a newer epoch. It is handed over,
        and that proxy gets time to read the entry, before anything else is reserved here."""
        stream = self.stream
        await stream.write_held()
        if not stream.instance.is_draining:
            await Wait(limits.APPEND_RESERVATION_ASKED_SECONDS)
        stream.held.forget()

    async def _work_on(self, batch: Batch) -> Prepared | None:
        stream = self.stream
        held = stream.held
        if stream.is_conditional:
            return await self._work_on_conditional(batch)
        is_blank = held.is_blank
        any_start = is_blank and batch.may_begin(stream.key) and await held.may_start_anywhere()
        if any_start is None:
            await stream.read_again()
            return None
        if any_start and (not batch.is_retry(stream.key) or batch.is_behind(stream.key, stream.queue)):
            # What its client has sent before it may still come, also over another connection.
            stream.dismiss(batch, answers.held_back("what comes before it may have to be sent again"), "held_back")
            return None
        # ``is_blank`` is asked again because ``may_start_anywhere`` may have waited; only then, as this is hot code.
        verdict = decide(None if is_blank and held.is_blank else held.entry, batch.identity, any_start)
        is_known = isinstance(verdict, Duplicate | Fenced)
        hidden = None if is_known else await why_hidden(stream, batch)
        if batch not in stream.queue:
            return None
        is_due = self._goes_on(batch, verdict) if batch.stored_records else isinstance(verdict, Append)
        if is_due and hidden is None:
            return await self._prepare(batch)
        if isinstance(verdict, Duplicate):
            await answer_duplicate(stream, batch, verdict)
        elif not isinstance(verdict, OutOfOrder) or hidden is not None or await is_absent(stream, batch):
            confirmed = batch.arrived_at, stream.instance.lease_epoch
            if await stream.confirm([batch]):
                await self._turn_down(batch, verdict, hidden, confirmed)
        return None

    async def _work_on_conditional(self, batch: Batch) -> Prepared | None:
        """Rule R23: it is appended where the log ends, or not at all."""
        stream = self.stream
        entry = stream.held.entry
        assert entry is not None, "a conditional partition is begun before its first batch"
        link = batch.link
        ahead = Ahead.NOTHING if link is None else link.ahead
        verdict = decide_conditional(entry, batch.identity, batch.expected_offset, ahead)
        if isinstance(verdict, Append):
            return await self._prepare(batch)
        if isinstance(verdict, HeldBack):
            stream.dismiss(batch, answers.held_back("the batch before it has to be sent again first"), "held_back")
            return None
        confirmed = batch.arrived_at, stream.instance.lease_epoch
        if await stream.confirm([batch]):
            await turn_down(stream, batch, verdict, confirmed)
        return None

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
        elif isinstance(verdict, OutOfOrder) and self._is_after_unknown(batch, verdict):
            stream.dismiss(batch, answers.after_unknown(), "undecidable")
        else:
            self._refuse(batch, verdict)

    def _is_after_unknown(self, batch: Batch, verdict: OutOfOrder) -> bool:
        """Is nothing missing before the batch but records that were unrecoverable (rule R11)? A proxy that has died may
        have answered that they are stored. On a topic without batch markers each crash of a proxy can do that, so there
        OUT_OF_ORDER_SEQUENCE_NUMBER stays: Java and franz-go send the batch again, and lose nothing."""
        stream = self.stream
        intent = None if stream.held.entry is None else stream.held.entry.intent
        if intent is None or not intent.is_unrecoverable or stream.topic in stream.topics.unmarked:
            return False
        return is_directly_after(intent, batch.identity, verdict.expected) and not batch.has_ended(stream.key)

    async def _prepare(self, first: Batch) -> Prepared | None:
        """Find out where a batch that is due goes, and convert it and what goes with it. None: it is answered, or has
        to wait."""
        stream = self.stream
        is_late = stream.context.is_pass_long()
        leader = stream.context.leader_of(stream.topic, stream.partition)
        if leader is None:
            leader = await Leader(stream.topic, stream.partition, refresh=True)
        broker = None if leader is None else stream.context.outside.leaders.broker(leader)
        if first not in stream.queue:
            return None
        if leader is not None and (broker is None or not stream.context.is_reachable(leader)):
            # Nothing is reserved that cannot be sent: that would ask Redis and the brokers in a tight loop.
            await stream.write_held()
            await Leader(stream.topic, stream.partition, refresh=True)
            await Wait(limits.LEADER_AWAY_SECONDS)
            return None
        if leader is None or broker is None:
            stream.dismiss(first, answers.no_leader(), "no_leader")
            return None
        epoch = first.identity.producer_epoch
        left = stream.held.unrecoverable if broker.form is Form.OWN_IDS else None
        if left is not None and left.producer_epoch == epoch:
            stream.marked_epoch = epoch  # R9: a broker that has other records under these numbers calls that a success
        elif stream.marked_epoch != epoch:
            stream.marked_epoch = NO_EPOCH
        form = stream.form_at(broker)
        if stream.context.time.now > stream.context.left_out_ids.told_until and stream.has_to_tell(form):
            if not await stream.context.left_out_ids.telling(stream.instance):
                stream.dismiss(first, answers.in_doubt("the brokers take over, or Redis is away"), "in_doubt")
            return None
        if first.stored_records and not form.holds_groups:
            stream.dismiss(first, answers.rest_is_left(first.stored_records), "refused")
            return None
        group = gather(first, stream.queue, form)
        if stream.is_conditional:
            group = in_one_pipeline(group)
        try:
            pieces = await in_steps(lambda: planning(stream.target, group, form), group[0].sender, is_late=is_late)
        except HeaderRefused as refusal:
            self._cannot_convert(group, answers.header_refused(refusal.header, stream.topic), "header_refused")
            return None
        except WireError as error:
            self._cannot_convert(group, answers.unreadable(error), "unreadable")
            return None
        if not pieces:
            return None  # it begins again if another request for it has come meanwhile
        bound = await stream.bounds.lower_bound(stream.topic, stream.partition, stream.held.entry)
        if isinstance(bound, Later):
            for batch in group:
                stream.dismiss(batch, answers.no_leader(), "no_leader")
            return None
        instance, held, first = stream.instance, stream.held, group[0]
        if held.known_lease_epoch != instance.lease_epoch:
            held.forget()  # what was decided by it is void
            return None
        entry = PackedEntry(ready_for(held.or_fresh(first.identity, first.principal), epoch))
        why = self._usual.why or Unusual.FLOW_AT_WORK
        stream.observers.report(GroupPrepared(stream.topic, why.label))
        where = leader, bound, instance.lease_epoch, instance.instance_id
        return prepared(stream, group, pieces, entry, *where)

    # ------------------------------------------------------------------ what has to be found out first
    async def _open_unknown_outcome(self) -> Takeover | StoreAway | None:
        """Return what has to be resolved before any batch, if there is something: an unverified entry (R10), or an open
        intent (R1, R12). StoreAway: that cannot be determined."""
        stream = self.stream
        if not await stream.held.learn():
            return StoreAway("the store cannot be reached")
        stream.turn_away_foreign()
        entry = stream.held.entry
        if entry is not None and entry.data_generation == stream.instance.data_generation:
            if not entry.is_rebuilt:  # as with nearly every batch
                return Takeover(stream, unverified=False) if entry.has_open_intent else None
            return await self._unknown_outcome_about(entry)
        unverified = await stream.held.is_unverified()
        if isinstance(unverified, StoreAway):
            return unverified
        stream.turn_away_foreign()  # if the entry is absent, ``is_unverified`` has read whose producer id it is
        if unverified:
            return Takeover(stream, unverified=True)
        return None if stream.held.entry is None else await self._unknown_outcome_about(stream.held.entry)

    async def _unknown_outcome_about(self, entry: Entry) -> Takeover | None:
        """Rule R10: after a rebuild, what comes next may be in the log without a batch marker."""
        stream = self.stream
        if entry.has_open_intent:
            return Takeover(stream, unverified=False)
        if is_takeover(entry.intent):
            return Takeover(stream, unverified=True)
        while entry.is_rebuilt and stream.queue:
            batch, looked_for = stream.next_batch(), stream.looked_for
            if looked_for is not None and not looked_for.is_of(stream.instance.lease_epoch, entry):
                looked_for = None
            if looked_for is not None and looked_for.is_all:
                return None
            verdict = decide(None if stream.held.is_blank else entry, batch.identity, any_start=True)
            goes_on = isinstance(verdict, Overlap) and verdict.record_count < batch.identity.record_count
            is_due = (goes_on or isinstance(verdict, Append)) and await why_hidden(stream, batch) is None
            if not is_due or begins_again(stream, entry, batch):
                return None
            due = await due_of(batch, entry)
            if looked_for is None or due not in looked_for.due:
                return Takeover(stream, unverified=True)
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
    def _ended(self, plan: Prepared | None) -> None:
        """The flow has ended: what it has prepared is appended."""
        stream = self.stream
        self._running, self._usual.why = False, None
        if plan is not None:
            self._start(plan)
        elif stream.queue:
            self.wake()
        elif stream.held.stored_version == NO_VERSION and stream.held.is_blank and not stream.is_conditional:
            stream.context.drop_unknown(stream.key)

    def broke(self, error: Exception) -> None:
        """An internal error ended a flow or an append: all who wait get a retriable answer, and after a pause the work
        resumes."""
        stream = self.stream
        stream.observers.report(
            InternalError(f"producer {stream.producer_id} on {stream.topic}-{stream.partition}", error)
        )
        stream.dismiss_all(answers.in_doubt("an error inside the proxy"), "failed")
        self._run(self._come_back())

    async def _come_back(self) -> Prepared | None:
        await Pause(self.stream.bell, limits.FAILED_PAUSE_SECONDS)
        return await self.work()
