"""The state of one producer on one partition in this process: what waits, what is out, what is known of the stored
entry, and the operations on these. Rules R2, R11, R12, R13, R17.

The loop in ``sequencer.py`` decides what is done next. It shares this object with what works for it (``append.py``,
``recovery.py``, ``takeover.py``, ``duplicates.py``, ``conditional.py``); nothing else changes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import ReferenceType, ref

from ...codecs.batch_marker import Identity
from ...reactor import Buffer
from ...state.commit import Stored
from ...state.conditional import is_conditional
from ...state.decide import BatchIdentity
from ...state.entry import WINDOW_BATCHES_MAX, Entry
from ...state.entry_states import EntryState, state_of
from ...state.names import NO_EPOCH
from ...state.sequence import SEQUENCE_MODULUS, advance, is_ahead
from ...state.store import NO_VERSION, StoreAway
from ...values import value
from .. import limits
from ..events import BatchAnswered, InternalError, RetryJoined, StepDone
from ..flow.effects import Now, Pause, Wakeup
from ..flow.form import Form
from ..flow.outcome import Acknowledger
from ..partition_log.log_offsets import Position
from ..partition_log.log_search import LogSearch
from . import answers
from .batch import Answer, Batch
from .context import Context
from .entry_cache import CachedEntry
from .grouping import Target
from .name_guard import NameGuard
from .outside import AppendTarget
from .rebuild import LookedFor

if TYPE_CHECKING:
    from ..flow.runner import Flow, FlowRunner


Confirmed = tuple[float, int]
"""A swap has confirmed the entry for a batch that arrived then (reactor seconds), in that lease epoch; the swap left
after the arrival. A retry that joins the batch is a new arrival (rule R11)."""
NO_INTENT = _LONG_AGO = -math.inf
CARRIED = "carried by the next reserve"
"""How a commit was written, for its span."""


@value(frozen=True, slots=True)
class FoundTo:
    """The place after a batch that was found in the log: the batch with ``next_sequence`` may lie at ``offset``."""

    next_sequence: int
    offset: int

    @classmethod
    def behind(cls, piece: Stored) -> FoundTo:
        """Return the place after a piece."""
        return cls(advance(piece.base_sequence, piece.record_count), piece.base_offset + piece.record_count)


@dataclass(slots=True)
class UnfinishedSearch:
    """A search for an old batch that took longer than one try. ``left_at``: when the last try ended, in reactor
    seconds."""

    search: LogSearch
    left_at: float


class Stream:
    """What is known of one (producer id, topic, partition), and who waits for it. Times are reactor seconds."""

    def __init__(self, context: Context, runner: FlowRunner, producer_id: int, topic: str, partition: int) -> None:
        self.context = context
        self.instance = context.instance
        self.observers = context.observers
        self.topics = context.topics
        self.bounds = context.bounds
        self.producer_id = producer_id
        self.topic = topic
        self.partition = partition
        self.key = (producer_id, topic, partition)
        self.is_conditional = is_conditional(producer_id)
        """Do batches here say at which offset they have to be (rule R23)?"""
        self.target = Target(
            context.topics, context.options, context.memory.hold_bytes, producer_id, topic, self.is_conditional
        )
        self.queue: list[Batch] = []
        """Batches that wait. A flow that answers one removes it."""
        self.out: list[Batch] = []
        """The group that is reserved or sent, and not answered yet."""
        self.bell = Wakeup()
        """Wakes the flow that works here."""
        self.held = CachedEntry(context.instance, context.observers, self.bell, producer_id, topic, partition)
        self.acknowledged_by: list[tuple[tuple[int, int], ReferenceType[Acknowledger]]] = []
        """Epoch and base sequence of the last batches, each with the broker connection that acknowledged it, newest
        last. While that connection lives, the batch cannot have vanished (rule R9). The references are weak: a
        connection may refer to the whole session of a client that has gone."""
        self.watch_intent_until = NO_INTENT
        """Until then (reactor seconds) an intent that may be open is looked after even if no request waits here (rules
        R6, R17)."""
        self.looked_for: LookedFor | None = None
        """Which batches the last rebuild has looked for (rule R10)."""
        self.found_to: FoundTo | None = None
        """Where the next old batch is looked for first (rule R9)."""
        self.unfinished: dict[object, UnfinishedSearch] = {}
        """The searches that later tries continue (rule R9), by what is looked for, and where."""
        self.marked_epoch = NO_EPOCH
        """The epoch of which its brokers know less than the log has, so that they do not take its sequences, or may
        have other records under one that is due."""
        self.waits = 0
        """How often in a row the entry was read and could not be worked on yet (``wait_to_read_again``)."""
        self._asked_version = NO_VERSION
        """The version that was written to ask another proxy for its append reservation last."""
        self.client = ""
        """The client id of a request that brought a batch, for people: the first one that got through, until then the
        first one that came."""
        self._is_client_served = False
        self._runner = runner
        self._is_in_doubt = False
        self._awaited_at = _LONG_AGO

    @property
    def form(self) -> Form | None:
        """How the leader of the partition stores batches; None: it is not known."""
        leader = self.context.leader_of(self.topic, self.partition)
        broker = None if leader is None else self.context.outside.leaders.broker(leader)
        return None if broker is None else self.form_at(broker)

    def form_at(self, broker: AppendTarget) -> Form:
        """Return how this broker stores batches of the topic. What is published conditionally has no producer id."""
        form = self.topics.form_at(self.topic, broker.form)
        is_marked = self.is_conditional or self.marked_epoch != NO_EPOCH
        return Form.MARKED_V2 if is_marked and form is Form.OWN_IDS else form

    def has_to_tell(self, form: Form) -> bool:
        """Has Redis to be told first that a batch goes without its producer id? Conditional ones never have it."""
        is_due = self.context.time.now > self.context.left_out_ids.told_until
        return is_due and form is not Form.OWN_IDS and not self.is_conditional

    @property
    def log_may_hide_producers(self) -> bool:
        """May the log have batches of format v2, which do not tell whose they are? Also where its leader stores v1 now,
        unless that is a release without format v2."""
        leader = self.context.leader_of(self.topic, self.partition)
        broker = None if leader is None else self.context.outside.leaders.broker(leader)
        return broker is None or broker.may_hold_batches

    @property
    def state(self) -> EntryState:
        """The state of the entry, as far as it is known here."""
        return self.state_with(self.held.entry)

    def state_with(self, entry: Entry | None) -> EntryState:
        """Return the state if ``entry`` is what is known."""
        is_outcome_due, reservation = bool(self.out) and not self._is_in_doubt, self.held.append_reservation
        state = state_of(entry, self.instance.data_generation, is_outcome_due=is_outcome_due)
        is_append_reserved = state is EntryState.QUIET and reservation is not None and reservation.is_confirmed
        return EntryState.APPEND_RESERVATION if is_append_reserved else state

    @contextmanager
    def in_doubt(self) -> Iterator[None]:
        """Inside of this the log is read for the outcome of what is out, or of what was found open."""
        self._is_in_doubt = True
        try:
            yield
        finally:
            self._is_in_doubt = False

    @property
    def is_awaited(self) -> bool:
        """Does a request at this proxy wait for an answer?"""
        return any(batch.is_wanted for batch in (*self.out, *self.queue))

    @property
    def is_needed(self) -> bool:
        """Does a request at this proxy wait, or did one a moment ago? A client that got a retriable error is away for a
        moment. Not while the proxy ends: then another one does what is left."""
        now = self.observers.time.now
        if self.is_awaited:
            self._awaited_at = now
        return not self.instance.is_draining and now - self._awaited_at <= limits.HAND_OVER_SECONDS

    @property
    def watches_intent(self) -> bool:
        """Does this proxy look after an intent that may be open, until ``watch_intent_until``?"""
        return self.watch_intent_until != NO_INTENT and not self.instance.is_draining

    def watch_intent(self, until: float = math.inf) -> None:
        """An intent may be open: come back to it until then, whether or not a request waits."""
        self.watch_intent_until = max(self.watch_intent_until, until)

    def nothing_is_open(self) -> None:
        """The entry was seen to be fit to work on."""
        self.watch_intent_until = NO_INTENT
        self.waits = 0

    # ------------------------------------------------------------------ the queue
    def take_batch(self, batch: Batch) -> bool:
        """Take a batch that has come; its waiters are answered, sooner or later. False: it is not queued, because it
        was answered, or is a retry of a batch that is here and joins that one (rule R13)."""
        if not self.client and batch.waiters:
            self.client = batch.waiters[0].connection.name
        for other in (*self.out, *self.queue):
            if other.is_same(batch):
                other.attach(batch)
                self.observers.report(RetryJoined(batch.waiters[0].connection.name, self.topic))
                self.bell.ring()
                return False
        if len(self.queue) >= limits.QUEUED_BATCHES_MAX:
            self.answer(batch, answers.held_back("too many batches of this producer wait"), "limited")
            return False
        self.queue.append(batch)
        return True

    def next_batch(self) -> Batch:
        """Return the queued batch that has the sequence that is due, as its first record or one in its middle; if there
        is none, the first in the queue. In a conditional partition (rule R23) the first in the queue also goes first if
        its offset has been passed: with several writers another one may always have a batch that is due."""
        due = self.queue[0]
        if self.is_conditional and self._is_first_late:
            return due
        entry = self.held.entry
        if entry is not None:
            for batch in self.queue:
                identity = batch.identity
                ahead = (entry.next_sequence - identity.base_sequence) % SEQUENCE_MODULUS  # its first ones are stored
                if ahead < identity.record_count and identity.producer_epoch == entry.producer_epoch:
                    due = batch
                    break
        return self._first_of_pipeline(due) if self.is_conditional else due

    def _first_of_pipeline(self, batch: Batch) -> Batch:
        """Return the first queued batch of the pipeline up to this one: the outcome of that one decides about it.
        Record counts that nobody has checked yet may make a circle of batches: then it is any of them."""
        for _ in self.queue:
            link = batch.link
            if link is None or link.before is None:
                return batch
            ahead = next((one for one in self.queue if any(w.link is link.before for w in one.waiters)), None)
            if ahead is None:
                return batch
            batch = ahead
        return batch

    @property
    def _is_first_late(self) -> bool:
        entry, first = self.held.entry, self.queue[0].identity
        return entry is not None and is_ahead(first.base_sequence, entry.next_sequence)

    def put_back(self, group: list[Batch]) -> None:
        """Put batches that were not forwarded back, before the others. One that no request wants is dropped, and is not
        out any more: a retry that joined it would never be answered."""
        self.out = []
        self.queue[:0] = [batch for batch in group if batch.is_wanted]

    def drop_unwanted(self) -> None:
        """Rule R17: drop batches whose clients have gone or were answered. Rule R12: if a batch of a newer epoch waits,
        answer those of older epochs retriably and drop them, as the client may have sent their records again."""
        if len(self.queue) > 1:
            newest = max(batch.identity.producer_epoch for batch in self.queue)
            for batch in self.queue:
                if batch.identity.producer_epoch < newest:
                    self.answer(batch, answers.in_doubt("a newer epoch of this producer is here"), "newer_epoch")
        for batch in self.queue:
            if not batch.is_wanted:
                self.queue = [one for one in self.queue if one.is_wanted]
                return

    def is_outdated(self, producer_epoch: int) -> bool:
        """Does a batch of a newer epoch wait?"""
        return bool(self.queue) and any(batch.identity.producer_epoch > producer_epoch for batch in self.queue)

    # R17 lives here: nothing is forwarded for a client that has gone.
    def why_not_sent(self, group: Iterable[Batch], owner: bytes) -> str | None:
        """Return why a group that this proxy instance has reserved must not leave; None: it may (rules R4, R12,
        R17)."""
        if owner != self.instance.instance_id:
            return "the proxy instance that reserved it has ended"
        for batch in group:
            for waiter in batch.waiters:
                if not (waiter.is_done or waiter.connection.is_closed):
                    break
            else:
                return "a client has gone"
        if self.queue and self.is_outdated(batch.identity.producer_epoch):
            return "its client has begun a newer epoch"
        return None

    def turn_away_foreign(self) -> None:
        """Answer batches of clients to which the producer id was not issued. They learn nothing of its state, and
        change nothing."""
        for batch in self.held.foreign(self.queue):
            self.dismiss(batch, answers.foreign_producer_id(), "foreign_producer_id")

    async def heeds_name(self, name: NameGuard) -> bool:
        """Rule R22: answer batches of older instances of the name, so that they are refused on every partition. True:
        batches are left in the queue; False: none is, or Redis is away."""
        for batch in list(self.queue):
            admitted = await name.admits(batch.identity.producer_epoch, batch.principal)
            if isinstance(admitted, StoreAway):
                await self.answer_without_store(admitted.reason)
                await Pause(self.bell, limits.PROBE_SECONDS)
                return False
            if batch not in self.queue:
                continue
            if name.principal is not None and batch.principal != name.principal:
                self.dismiss(batch, answers.foreign_producer_id(), "foreign_producer_id")
            elif not admitted:
                self.dismiss(batch, answers.fenced_by_name(), "fenced")
        return bool(self.queue)

    # ------------------------------------------------------------------ the entry
    async def write(self, entry: Entry, *, is_reserve: bool = False) -> bool:
        """Swap the entry in. False: another proxy wrote, a new lease epoch began, or (``is_reserve``) the producer's
        name has a newer instance."""
        begun, commits = self.observers.step_begins(), self.held.commits
        written = await self.held.write(entry, self.answer_without_store, is_reserve=is_reserve)
        if self.held.is_unreadable:
            self.watch_intent()  # an intent of ours may be in it, and would block others once it is readable (R17)
        if written and commits:
            self.step("commit", commits, begun, "alone" if entry.intent is None else CARRIED)
        return written

    async def ask_for_append_reservation(self) -> None:
        """Ask another proxy for its append reservation (rule R12): a swap that changes nothing but the version makes
        its next write fail, and so it learns that the entry is wanted elsewhere. Asks once for each version."""
        entry = self.held.entry
        if entry is None or entry.version == self._asked_version:
            return
        asked = self.held.touched()
        if await self.write(asked):
            self._asked_version = asked.version
            self.waits = 0

    async def confirm(self, batches: Iterable[Batch]) -> list[Batch]:
        """Confirm the entry by swapping it in as it is. Return those of these batches that still wait and that no retry
        has joined meanwhile; none if another proxy wrote. An entry that was only read may be older than a batch, or
        come from a server that is no longer the master; a swap that left after the batch came shows what is due now."""
        arrived = [(batch, batch.arrived_at) for batch in batches]
        is_written = await self.write(
            self.held.entry if self.held.is_unwritten and self.held.entry is not None else self.held.touched()
        )
        queue = self.queue if is_written else ()
        return [batch for batch, arrived_at in arrived if batch in queue and batch.arrived_at == arrived_at]

    async def read_again(self) -> None:
        """Have the entry read from the store next. A held commit is written first: else its intent would be found
        open."""
        await self.write_held()
        self.held.forget()

    async def write_held(self) -> None:
        """Write what is held now, by a swap of its own."""
        if self.held.entry is not None and self.held.is_unwritten:
            await self.write(self.held.entry)

    async def wait_to_read_again(
        self, seconds: float | None = None, at_most: float = limits.RESOLVE_WAIT_SECONDS_MAX
    ) -> None:
        """Wait, then have the stored entry read again. ``seconds``: how long, if that is known; else at first shortly,
        and each time longer, but never longer than ``at_most`` seconds."""
        if self.instance.is_draining:
            for batch in self.queue:
                self.answer(batch, answers.held_back("the proxy is shutting down"), "draining")
        if seconds is None:
            seconds = min(limits.RESOLVE_WAIT_SECONDS_MIN * 2**self.waits, at_most)
            self.waits = min(self.waits + 1, limits.RESOLVE_WAITS_COUNTED_MAX)
        await Pause(self.bell, seconds)
        self.held.forget()

    async def answer_without_store(self, reason: str) -> None:
        """Rule R2: answer batches that have waited for Redis for a quarter of their own timeout."""
        now = await Now()
        for batch in (*self.queue, *self.out):
            patience = min(batch.timeout_ms / 1000 * limits.STORE_WAIT_SHARE, limits.STORE_WAIT_SECONDS_MAX)
            if batch.is_wanted and (now - batch.arrived_at >= patience or self.instance.is_draining):
                self.answer(batch, answers.in_doubt(reason), "store_away")
        self.drop_unwanted()

    def leave_unfinished(self, name: object, search: UnfinishedSearch) -> None:
        """Keep a search for the next try. The latest few are kept, for ``SEARCH_LEFT_SECONDS``, as tries of other
        batches may come in between."""
        kept = {
            known: one
            for known, one in self.unfinished.items()
            if search.left_at - one.left_at <= limits.SEARCH_LEFT_SECONDS
        }
        self.unfinished = dict([*kept.items(), (name, search)][-WINDOW_BATCHES_MAX:])

    # ------------------------------------------------------------------ answers
    def answer(self, batch: Batch, answer: Answer, verdict: str) -> None:
        """Answer all requests that wait for the batch. A failure that is not retriable makes clients send what is
        unfinished again under a new epoch: it becomes a retriable one while a lower batch, which may be in the log, is
        to be sent again (rule R11)."""
        if answers.ends_epoch(answer.error_code) and batch.is_behind(self.key, (*self.out, *self.queue)):  # rule R11
            answer = answers.held_back("after a batch that has to be sent again first")
            verdict = "held_back"
        client = self.client
        if batch.waiters and (answer.error_code or not self._is_client_served):
            client = batch.waiters[0].connection.name
            if not answer.error_code:  # the first client to come may have had no right to the producer id
                self.client, self._is_client_served = client, True
        for waiter in batch.waiters:
            waiter.answer(answer)
        identity = batch.identity
        newest = batch.waiters[-1].connection if batch.waiters else None
        self.observers.report(
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
                self.observers.step_begins(),
                batch.records or None,
                None if batch.trace is None else batch.trace.trace_id,
                client,
                identity.record_count,
                batch.header.crc,
                "" if newest is None else newest.address,
                "" if newest is None else newest.principal_name,
            )
        )

    def dismiss(self, batch: Batch, answer: Answer, verdict: str) -> None:
        """Take a batch out of the queue and answer it."""
        if batch in self.queue:
            self.queue.remove(batch)
        self.answer(batch, answer, verdict)

    def dismiss_all(self, answer: Answer, verdict: str) -> None:
        """Answer all waiting requests, also those of the group that is out, and have the stored entry read again: an
        intent may be left open in it, and other proxies wait for it as long as this one lives (rule R17)."""
        batches, self.out = [*self.out, *self.queue], []
        self.queue.clear()
        self.held.forget()
        self.watch_intent()
        for batch in batches:
            self.answer(batch, answer, verdict)

    def remember_produce_connection(self, group: Iterable[Batch], produce_connection: Acknowledger | None) -> None:
        """Remember the connection that acknowledged these batches, for as many batches as the window holds.
        ``produce_connection`` None: they were seen in the log."""
        known = self.acknowledged_by
        for batch in group:
            name = batch.identity.producer_epoch, batch.identity.base_sequence
            if produce_connection is not None:
                known.append((name, ref(produce_connection)))
                del known[:-WINDOW_BATCHES_MAX]
            else:
                self.acknowledged_by = known = [one for one in known if one[0] != name]

    def acknowledger(self, identity: BatchIdentity) -> Acknowledger | None:
        """Return the connection that acknowledged this batch, if it is remembered and still exists."""
        name = identity.producer_epoch, identity.base_sequence
        for known, produce_connection in reversed(self.acknowledged_by):
            if known == name:
                return produce_connection()
        return None

    def step(self, step: str, batches: Iterable[Batch], begun: float, detail: str = "") -> None:
        """Report a step that these batches took together and that began then, if spans are wanted."""
        if not begun or not (now := self.observers.step_begins()):
            return
        where = (self.topic, self.partition, begun, now - begun, detail)
        for batch in batches:
            identity = batch.identity
            self.observers.report(
                StepDone(step, self.producer_id, identity.producer_epoch, identity.base_sequence, *where)
            )

    # ------------------------------------------------------------------ aside
    def probe_batch_marker(self, message_set: Buffer, last_offset: int) -> None:
        """Have an append read back by a flow of its own, unless one was lately (``batch_marker_probe.py``)."""
        place, probe = (self.topic, self.partition), self.context.batch_marker_probe
        if place not in probe.probed and place not in probe.pending:
            probe.pending.add(place)
            self.work_aside(probe.probe(place, message_set, last_offset))

    def work_aside(self, flow: Flow) -> None:
        """Run a flow that no request waits for."""
        self._runner.start(
            flow, None, lambda error: self.observers.report(InternalError(f"aside for {self.topic}", error))
        )

    def schedule_audit(self, bound: Position, batches: Iterable[BatchIdentity]) -> None:
        """Have these batches looked for again later (rule R14): the log did not have them, and they are sent again or
        dropped."""
        names = {Identity(self.producer_id, one.producer_epoch, one.base_sequence, one.record_count) for one in batches}
        flow = self.context.duplicate_audit.looking_for((self.topic, self.partition), bound, names)
        if flow is not None:
            self.work_aside(flow)
