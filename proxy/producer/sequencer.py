"""One producer on one partition: the flow that decides, reserves, appends, answers and commits. Rules R2, R3, R11,
R13, R17, R19.

One flow at a time works here, so at most one append of this producer is out. What arrives meanwhile queues and
becomes the next group. What a group leaves to be written (``entry_cache.py``) rides on the next reserve, or is written
alone after a moment of quiet. Doubt is worked on in ``takeover.py``, the broker in ``forward.py``; both are called from
here and come back here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

from ...codecs.convert import HeaderRefused
from ...codecs.errors import WireError
from ...state.commit import reserved
from ...state.decide import Append, BelowWindow, Duplicate, Fenced, OutOfOrder, Verdict, decide
from ...state.entry import WINDOW_BATCHES_MAX, Entry, Intent, IntentBatch
from ...state.store import StoreAway
from .. import limits
from ..events import BatchAnswered, InternalError, RetryJoined, StepDone
from ..flow.effects import Leader, Now, Pause, Wait, Wakeup, in_steps
from ..flow.outcome import Acknowledger
from ..partition_log.log_offsets import Later, Position
from . import answers
from .batch import Answer, Batch
from .context import Shared, lower_bound
from .duplicate_audit import auditing
from .duplicates import answer_below_window, answer_duplicate, begins_anew, reopen, why_hidden
from .entry_cache import CachedEntry
from .forward import Forward
from .grouping import Target, gather, planning
from .rebuild import LookedFor
from .takeover import Takeover

if TYPE_CHECKING:
    from ..flow.runner import Flow, FlowRunner


_NOTHING_OWED = float("-inf")


class Sequencer:
    """The work on one (producer id, topic, partition)."""

    def __init__(self, shared: Shared, runner: FlowRunner, producer_id: int, topic: str, partition: int) -> None:
        self.shared = shared
        self.producer_id = producer_id
        self.topic = topic
        self.partition = partition
        self.key = (producer_id, topic, partition)
        self.target = Target(shared, producer_id, topic)
        self.queue: deque[Batch] = deque()
        self.out: list[Batch] = []
        self.bell = Wakeup()
        self.held = CachedEntry(shared, self.bell, producer_id, topic, partition)
        self.acknowledged_by: dict[tuple[int, int], ReferenceType[Acknowledger]] = {}
        """Epoch and base sequence -> the connection that acknowledged it, under which nothing can vanish (rule R9). Not
        kept alive for that: behind it may be the whole session of a client that has gone."""
        self.watch_intent_until = _NOTHING_OWED
        """Until then an intent that may be open is looked after, also when nobody waits here (rules R6, R17)."""
        self.looked_for: LookedFor | None = None
        """What the last rebuild has looked for (rule R10)."""
        self.parks = 0
        """How often in a row the state was looked at and could not be worked on yet."""
        self._runner = runner
        self._running = False

    # ------------------------------------------------------------------ from produce.py
    def submit(self, batch: Batch) -> None:
        """Take a batch; its waiters are answered, sooner or later. A retry of one that is here joins it (rule R13)."""
        for other in (*self.out, *self.queue):
            if other.is_same(batch):
                other.attach(batch)
                self.shared.report(RetryJoined(batch.waiters[0].connection.name, self.topic))
                self.bell.ring()
                return
        if len(self.queue) >= limits.QUEUED_BATCHES_MAX:
            self.answer(batch, answers.held_back("too many batches of this producer wait"), "limited")
            return
        self.queue.append(batch)
        if self._running:
            self._turn_away_foreign()
            self.bell.ring()
        else:
            self.wake()

    def wake(self) -> None:
        """Start working, if nobody does."""
        if not self._running:
            self._running = True
            self._runner.start(self.work(), self._ended, self._broke)

    def work_aside(self, flow: Flow) -> None:
        """Run a flow that nobody waits for."""
        self._runner.start(
            flow, None, lambda error: self.shared.report(InternalError(f"aside for {self.topic}", error))
        )

    def schedule_audit(self, bound: Position, producer_epoch: int, sequences: Iterable[int]) -> None:
        """These batches were sent a second time, after the log did not have them (rule R14)."""
        names = {(self.producer_id, producer_epoch, sequence) for sequence in sequences}
        flow = auditing(self.shared, (self.topic, self.partition), bound, names)
        if flow is not None:
            self.work_aside(flow)

    @property
    def is_awaited(self) -> bool:
        """Does anybody here wait for an answer?"""
        return any(batch.is_wanted for batch in (*self.out, *self.queue))

    @property
    def is_idle(self) -> bool:
        """Nothing is queued, out, or unwritten: it may be forgotten."""
        return not self._running

    # ------------------------------------------------------------------ the flow
    async def work(self) -> None:
        """Work until nothing is queued, everything known is written, and no intent is left that is ours to look
        after."""
        while True:
            self.drop_unwanted()
            is_owing = self.watch_intent_until != _NOTHING_OWED and not self.shared.is_draining
            if not self.queue and not (is_owing and await Now() < self.watch_intent_until):
                if not self.held.is_unwritten:
                    return
                if not await Pause(self.bell, limits.COMMIT_IDLE_SECONDS):
                    await self._write_held()
                continue
            doubt = await self._open_doubt()
            if isinstance(doubt, StoreAway):
                await self._answer_without_store(doubt.reason)
                await Pause(self.bell, limits.PROBE_SECONDS)
                continue
            if doubt is not None:
                await doubt.work()
                continue
            self.watch_intent_until = _NOTHING_OWED
            self.parks = 0
            if self.queue:
                await self._work_on(self._next_batch())

    async def park(self, seconds: float | None = None) -> None:
        """Look at the stored state again later: at first soon, then more seldom, unless it is known when."""
        if self.shared.is_draining:
            for batch in self.queue:
                self.answer(batch, answers.held_back("the proxy is shutting down"), "draining")
        if seconds is None:
            seconds = min(limits.PARK_SECONDS_MIN * 2**self.parks, limits.PARK_SECONDS_MAX)
            self.parks = min(self.parks + 1, limits.PARKS_COUNTED_MAX)
        await Pause(self.bell, seconds)
        self.held.forget()

    async def _work_on(self, batch: Batch) -> None:
        held = self.held
        any_start = held.is_blank and batch.may_begin(self.key) and await held.may_start_anywhere()
        if any_start is None:
            return await self._read_again()
        if any_start and (not batch.is_retry(self.key) or batch.is_behind(self.key, self.queue)):
            self.queue.remove(batch)  # what its client has sent before it may still come, over another connection too
            self.answer(batch, answers.held_back("what comes before it may have to be sent again"), "held_back")
            return
        verdict = decide(None if held.is_blank else held.entry, batch.identity, any_start)
        hidden = None if isinstance(verdict, Duplicate | Fenced) else why_hidden(self, batch)
        if isinstance(verdict, Append) and hidden is None:
            await self._append(gather(batch, self.queue))
        elif isinstance(verdict, Duplicate):
            await answer_duplicate(self, batch, verdict)
        elif await self._confirm() and batch in self.queue:
            await self._turn_down(batch, verdict, hidden)

    async def _turn_down(self, batch: Batch, verdict: Verdict, hidden: str | None) -> None:
        """The entry does not let the batch in. Perhaps the log knows more. ``hidden``: why even that may not tell."""
        if hidden is not None:
            self.queue.remove(batch)
            self.answer(batch, answers.undecidable(hidden), "undecidable")
        elif isinstance(verdict, BelowWindow):
            await answer_below_window(self, batch)
        elif not (isinstance(verdict, OutOfOrder) and await reopen(self, batch)):
            self._refuse(batch, verdict)

    # R2 lives here: nothing is forwarded before its intent is stored.
    async def _append(self, group: list[Batch]) -> None:
        """Reserve, forward, and come back when the group is answered or its doubt is settled."""
        is_late = self.shared.is_pass_long()
        try:
            plan = await in_steps(lambda: planning(self.target, group), group[0].sender, is_late=is_late)
        except HeaderRefused as refusal:
            self._cannot_convert(group, answers.header_refused(refusal.header, self.topic), "header_refused")
            return
        except WireError as error:
            self._cannot_convert(group, answers.unreadable(str(error)), "unreadable")
            return
        for batch in group:
            batch.ahead = None  # what there is now is counted itself
        if self.shared.has_no_room():
            for piece in plan.pieces:
                piece.wrapper.goes_alone()  # what may be merged is kept unpacked, up to a thousand times as large
        leader = self.shared.leader_of(self.topic, self.partition)
        if leader is None:
            leader = await Leader(self.topic, self.partition, refresh=True)
        elif not self.shared.is_reachable(leader):
            # Nothing is reserved that can not be sent: neither the store nor the brokers are to be asked in a loop.
            await self._write_held()
            await Leader(self.topic, self.partition, refresh=True)
            await Wait(limits.LEADER_AWAY_SECONDS)
            return
        bound = await lower_bound(self.shared, self.topic, self.partition, self.entry)
        if leader is None or isinstance(bound, Later):
            self.take_from_queue(group)
            for batch in group:
                self.answer(batch, answers.no_leader(), "no_leader")
            return
        first = group[0].identity
        batches = tuple([IntentBatch(b.identity.base_sequence, b.identity.record_count, b.header.crc) for b in group])
        intent = Intent(
            self.shared.incarnation, first.producer_epoch, batches, bound.offset, bound.anchor, plan.content, leader
        )
        self.take_from_queue(group)
        self.out = group
        started = self.shared.step_begins()
        if await self.write(reserved(self.held.or_fresh(first, group[0].principal), intent)):
            self.step("reserve", group, started)
            forward = Forward(self, group, plan, leader)
            del plan  # it keeps what it needs of it
            await forward.work()
        else:
            self.put_back(group)
        self.out = []

    # ------------------------------------------------------------------ the store
    @property
    def entry(self) -> Entry | None:
        """The latest state that is known."""
        return self.held.entry

    async def write(self, entry: Entry) -> bool:
        """Swap the entry in. False: another one wrote, or a new era began."""
        begun, commits = self.shared.step_begins(), self.held.commits
        written = await self.held.write(entry, self._answer_without_store)
        if self.held.is_unreadable:
            self.watch_intent_until = float(
                "inf"
            )  # an intent of ours may be in it: mended, it would stop everybody (R17)
        if written and commits:
            self.step("commit", commits, begun, "alone" if entry.intent is None else "carried by the next reserve")
        return written

    async def _confirm(self) -> bool:
        """Swap the entry in as it is. False: another one wrote. What was read may be older than the batch, or from a
        server that is the master no longer; a swap that is sent after the batch came shows what is due now."""
        return await self.write(
            self.entry if self.held.is_unwritten and self.entry is not None else self.held.touched()
        )

    async def _read_again(self) -> None:
        """The next look is at the store. A commit that waits goes there first, or its intent would be found open."""
        await self._write_held()
        self.held.forget()

    async def _write_held(self) -> None:
        """What is known and not written yet goes alone."""
        if self.entry is not None and self.held.is_unwritten:
            await self.write(self.entry)

    async def _answer_without_store(self, reason: str) -> None:
        """Rule R2: a request waits for Redis up to a quarter of its own timeout."""
        now = await Now()
        for batch in (*self.queue, *self.out):
            patience = min(batch.timeout_ms / 1000 * limits.STORE_WAIT_SHARE, limits.STORE_WAIT_SECONDS_MAX)
            if batch.is_wanted and (now - batch.arrived_at >= patience or self.shared.is_draining):
                self.answer(batch, answers.in_doubt(reason), "store_away")
        self.drop_unwanted()

    async def _open_doubt(self) -> Takeover | StoreAway | None:
        """Something has to be found out before any batch: a suspect entry (R10), or an intent that is open (R1,
        R12)."""
        if not await self.held.learn():
            return StoreAway("the store cannot be reached")
        self._turn_away_foreign()
        entry = self.entry
        if entry is not None and entry.generation == self.shared.generation:
            return self._doubt_about(entry)
        suspect = await self.held.is_suspect()
        if isinstance(suspect, StoreAway):
            return suspect
        self._turn_away_foreign()  # of an absent entry it is known now whose id it is
        if suspect:
            return Takeover(self, suspect=True)
        return None if self.entry is None else self._doubt_about(self.entry)

    def _doubt_about(self, entry: Entry) -> Takeover | None:
        """Rule R10: after a rebuild, whoever comes next may be in the log without a marker."""
        if entry.has_open_intent:
            return Takeover(self, suspect=False)
        if not entry.is_rebuilt or not self.queue:
            return None
        batch = self._next_batch()
        if self.looked_for is not None and self.looked_for.has(self.shared.era, batch):
            return None
        verdict = decide(None if self.held.is_blank else entry, batch.identity, any_start=True)
        is_due = isinstance(verdict, Append) and why_hidden(self, batch) is None
        return Takeover(self, suspect=True) if is_due and not begins_anew(self, entry, batch) else None

    # ------------------------------------------------------------------ the queue
    def _next_batch(self) -> Batch:
        """The batch that continues the sequence, wherever it stands; else the first."""
        entry = self.entry
        if entry is not None:
            for batch in self.queue:
                identity = batch.identity
                if identity.base_sequence == entry.next_sequence and identity.producer_epoch == entry.producer_epoch:
                    return batch
        return self.queue[0]

    def take_from_queue(self, group: list[Batch]) -> None:
        """Remove the batches of a group from the queue."""
        for batch in group:
            self.queue.remove(batch)

    def put_back(self, group: list[Batch]) -> None:
        """Batches that were not forwarded are due again, before the others. One that nobody wants is dropped and not
        out any more: a retry that joined it would wait for an answer that nobody gives."""
        self.out = []
        self.queue.extendleft(batch for batch in reversed(group) if batch.is_wanted)

    def drop_unwanted(self) -> None:
        """Rule R17: nobody starts for a client that has gone, or that was answered. Nor, rule R12, for one that has
        begun a newer epoch: it may have sent the same records again."""
        if len(self.queue) > 1:
            newest = max(batch.identity.producer_epoch for batch in self.queue)
            for batch in self.queue:
                if batch.identity.producer_epoch < newest:
                    self.answer(batch, answers.in_doubt("a newer epoch of this producer is here"), "newer_epoch")
        for batch in self.queue:
            if not batch.is_wanted:
                self.queue = deque(one for one in self.queue if one.is_wanted)
                return

    def is_outdated(self, producer_epoch: int) -> bool:
        """Does a batch of a newer epoch wait?"""
        return bool(self.queue) and any(batch.identity.producer_epoch > producer_epoch for batch in self.queue)

    # ------------------------------------------------------------------ answers
    def answer(self, batch: Batch, answer: Answer, verdict: str) -> None:
        """Answer everybody who waits for the batch. A failure for good makes clients send what is unfinished again
        under a new epoch: none as long as a lower batch, that may be in the log, is to be sent again."""
        if answers.ends_epoch(answer.error_code) and batch.is_behind(self.key, (*self.out, *self.queue)):  # rule R11
            answer = answers.held_back("behind a batch that has to be sent again first")
            verdict = "held_back"
        for waiter in batch.waiters:
            waiter.answer(answer)
        identity = batch.identity
        self.shared.report(
            BatchAnswered(
                verdict,
                self.producer_id,
                identity.producer_epoch,
                identity.base_sequence,
                self.topic,
                self.partition,
                answer.error_code,
                answer.base_offset,
                answer.message,
                batch.arrived_at,
                self.shared.step_begins(),
                batch.records or None,
            )
        )

    def remember_lane(self, group: Iterable[Batch], lane: Acknowledger | None) -> None:
        """Which connection acknowledged these batches: of as many as the window holds."""
        for batch in group:
            name = batch.identity.producer_epoch, batch.identity.base_sequence
            if lane is not None:
                self.acknowledged_by[name] = ref(lane)
            else:
                self.acknowledged_by.pop(name, None)
        while len(self.acknowledged_by) > WINDOW_BATCHES_MAX:
            del self.acknowledged_by[next(iter(self.acknowledged_by))]

    def _turn_away_foreign(self) -> None:
        """Who has not been issued the producer id learns nothing of its state, and moves none."""
        for batch in self.held.foreign(self.queue):
            self.queue.remove(batch)
            self.answer(batch, answers.foreign_producer_id(), "foreign_producer_id")

    def _cannot_convert(self, group: list[Batch], answer: Answer, verdict: str) -> None:
        """A batch of the group cannot be carried; alone, it is known which."""
        if len(group) > 1:
            for batch in group:
                batch.is_alone = True
        else:
            self.take_from_queue(group)
            self.answer(group[0], answer, verdict)

    def _refuse(self, batch: Batch, verdict: Verdict) -> None:
        self.queue.remove(batch)
        if isinstance(verdict, Fenced):
            self.answer(batch, answers.fenced(verdict), "fenced")
            return
        assert isinstance(verdict, OutOfOrder)
        self.answer(batch, answers.out_of_order(verdict), "out_of_order")

    # ------------------------------------------------------------------ the end
    def step(self, step: str, batches: Iterable[Batch], begun: float, detail: str = "") -> None:
        """Report a step that these batches took together and that began then, if anybody wants to know."""
        if not begun or not (now := self.shared.step_begins()):
            return
        where = (self.topic, self.partition, begun, now - begun, detail)
        for batch in batches:
            identity = batch.identity
            self.shared.report(
                StepDone(step, self.producer_id, identity.producer_epoch, identity.base_sequence, *where)
            )

    def _ended(self, _result: object) -> None:
        self._running = False
        if self.queue:
            self.wake()

    def _broke(self, error: Exception) -> None:
        """An internal error: whoever waits gets a retriable answer. Then the state is read anew, and an intent that was
        left open is resolved: other proxies wait for us as long as we live (rule R17)."""
        self.shared.report(InternalError(f"producer {self.producer_id} on {self.topic}-{self.partition}", error))
        batches, self.out = [*self.out, *self.queue], []
        self.queue.clear()
        self.held.forget()
        self.watch_intent_until = float("inf")
        for batch in batches:
            self.answer(batch, answers.in_doubt("an error inside the proxy"), "failed")
        self._runner.start(self._come_back(), self._ended, self._broke)

    async def _come_back(self) -> None:
        await Pause(self.bell, limits.FAILED_PAUSE_SECONDS)
        await self.work()
