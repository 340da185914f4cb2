"""The usual case of a group of batches in straight-line code: reserve, append, commit, answer. Under an ownership
(``ownership.py``) there is no reserve. Rules R1, R2, R5, R7, R8, R10, R12, R17.

It begins only where nothing is unusual; otherwise nothing has happened, and the flows (``sequencer.py``) work as they
do without it. Whatever does not end as usual goes on in a flow: a swap that was not confirmed is repeated there, and an
append that was not acknowledged goes to ``forward.py``. So no failure is handled here.

What is known of the producer is in ``stream.py``, what becomes of it in ``state/commit.py``, for both ways alike. At
any time either a flow works on a stream, or this has a group of it out."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ...codecs.convert import HeaderRefused, wrap_plain
from ...codecs.errors import WireError
from ...codecs.marker import Identity
from ...codecs.steps import STEP_BYTES
from ...state.entry import NO_ANCHOR, Entry, unpack
from ...state.packed import PackedEntry
from ...state.store import Conflict, StoreAway, Swapped
from .. import limits
from ..admission.memory_budget import Held
from ..events import AppendSent, Report
from ..flow.outcome import Acknowledger, Appended, NotSent, Outcome, classify, ended
from ..flow.wrapper import Wrapper
from ..partition_log.log_offsets import Position
from . import answers
from .batch import Batch
from .grouping import gather, planned, planning
from .outside import Broker, Flushed, Outside
from .ownership import Ownership
from .stream import CARRIED, NO_INTENT, Stream


class Owner(Flushed, Protocol):
    """The sequencer whose group goes the fast path."""

    def go_on(self) -> None:
        """The group has ended as usual, and other batches wait."""
        ...

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
        """The group has not ended as usual: a flow goes on with it (``Sequencer.take_over``)."""
        ...


class FastPath:
    """The fast path of one producer on one partition, with the group that is out, if one is. It is also the append that
    waits for a lane (``broker/queued_append.py``). ``committed_at``: when a group was committed last, in reactor
    seconds. ``message_set``: the wrapper that is sent."""

    __slots__ = (
        "_anchor",
        "_began",
        "_bounds",
        "_broker",
        "_cluster",
        "_content",
        "_context",
        "_entry",
        "_era",
        "_group",
        "_held",
        "_held_bytes",
        "_max_timestamp",
        "_outside",
        "_owned",
        "_owner",
        "_place",
        "_plan",
        "_request_bytes",
        "_sequencer",
        "_stream",
        "_value",
        "committed_at",
        "is_out",
        "message_set",
        "partition",
        "sender",
        "size_bytes",
        "timeout_ms",
        "topic",
    )

    def __init__(self, stream: Stream, outside: Outside) -> None:
        self.is_out = False
        self.committed_at = 0.0
        self.topic = stream.topic
        self.partition = stream.partition
        self._place = (stream.topic, stream.partition)
        self._stream = stream
        self._held = stream.held
        self._context = stream.context
        self._bounds = stream.bounds
        self._outside = outside
        self._cluster: object = None
        self._broker: Broker | None = None
        """The leader, as ``_cluster`` has it."""
        self._sequencer: Owner | None = None
        self._owned: Ownership | None = None
        """The ownership under which the group leaves, or which it takes."""
        self._group: list[Batch] = []
        self._plan: deque[Wrapper] | None = None
        """The wrapper of the group, if it was made in steps."""
        self.message_set: bytes | bytearray = b""

    @property
    def identities(self) -> tuple[Identity, ...]:
        """The identities in the marker of the group that is out."""
        producer_id, whose = self._stream.producer_id, [batch.identity for batch in self._group]
        return tuple([Identity(producer_id, i.producer_epoch, i.base_sequence, i.record_count) for i in whose])

    # ------------------------------------------------------------------ reserve
    def start(self, sequencer: Owner, first: Batch, request_bytes: int = 0) -> bool:
        """Reserve a group: this batch, and what follows it in the queue. False: something is unusual, and nothing has
        happened. ``request_bytes``: bytes of the first batch's request that the memory budget does not count yet."""
        stream, held, context = self._stream, self._held, self._context
        entry = held.usual(first.principal)
        if entry is None or not self._is_usual(first, entry):
            return False
        owned, broker = held.ownership, self._broker
        assert broker is not None
        now = first.arrived_at if first.arrived_at > self.committed_at else self.committed_at
        if owned is not None and not owned.may_append(now, broker.id):  # R2
            return False
        group = gather(first, stream.queue) if stream.queue else [first]
        if stream.observers.begin_trace is not None and self._is_traced(group):
            return False
        records: list[memoryview] = []
        for batch in group:
            records += (batch.records,)
        made = wrap_plain(records, limits.DECOMPRESSED_BYTES_MAX)
        if made is not None:
            self.message_set, self._anchor, self._content, self._max_timestamp, digests = made
            at = 0
            for batch in group:
                batch.digest, at = digests[at : at + 8], at + 8
        elif not self._wrap_in_steps(group, records):
            return False
        newest, life = self._bounds.known[self._place][1], stream.life
        bound, anchor = entry.end_offset, entry.anchor
        if newest.offset > bound:  # R8
            bound, anchor = newest.offset, newest.anchor
        self.timeout_ms, members = first.timeout_ms, 0
        batches: list[int | bytes] = []
        for batch in group:
            members += 1
            batches += (batch.identity.base_sequence, batch.identity.record_count, batch.digest)
            if batch.timeout_ms < self.timeout_ms:
                self.timeout_ms = batch.timeout_ms
        # The group is out from here on; nothing is sent before the swap is confirmed (R2).
        stream.out = self._group = group
        self._entry, self._sequencer = entry, sequencer
        self._era, self._owner = life.era, life.incarnation
        self.size_bytes = len(self.message_set)
        self._request_bytes = self._held_bytes = request_bytes
        if self._plan is None:  # else the plan's wrapper counts its bytes itself
            self._held_bytes += self.size_bytes
        context.memory.bytes_held += self._held_bytes
        self._began = stream.observers.step_begins() if held.commits else 0.0
        self.is_out = True
        if owned is not None:
            self._owned = owned
            owned.unwritten_bytes += self.size_bytes
            self.sender = first.waiters[-1].connection.address
            self._outside.push(broker, self)  # R2: the ownership is stored
            return True
        if context.owns and held.is_unwritten:  # the producer is busy
            self._owned = owned = Ownership(life.incarnation, broker.id, bound, anchor, held.stored_version)
            value = held.take_ownership(entry, owned, now)
        else:
            value = entry.reserving(life.incarnation, bound, anchor, self._content, broker.id, members, batches)
            self._value = value
        self._outside.swap(held.key, held.stored_version, value, self._reserved)
        return True

    def _is_usual(self, first: Batch, entry: PackedEntry) -> bool:
        """Is there nothing about this batch, its partition and this process that a flow would look at?"""
        stream, context, identity, place = self._stream, self._context, first.identity, self._place
        topic, topics, memory, bounds = self.topic, stream.topics, context.memory, self._bounds.known
        broker, is_known = self._broker, self._outside.leaders.cluster is self._cluster
        return not (
            identity.base_sequence != entry.next_sequence  # R11
            or identity.producer_epoch != entry.producer_epoch  # R12
            or place not in bounds  # R8
            or context.time.now - bounds[place][0] > limits.BOUND_AGE_SECONDS  # R8
            or bounds[place][1].anchor == NO_ANCHOR  # R8
            or entry.anchor == NO_ANCHOR  # R8
            or first.stored_records
            or stream.watch_intent_until != NO_INTENT  # R17
            or first.waiters[0].connection.way is not None
            or stream.life.is_draining  # R15
            or topic in topics.unmarked  # R6
            or topic in topics.too_large
            or topic in topics.wrapper_codecs
            or place not in context.marker_probe.probed  # R6
            or memory.bytes_held > memory.caps.request_bytes_total_max
            or context.is_pass_long()
            or not ((is_known and broker is not None and broker.takes_batches) or self._has_leader())
        )

    def _has_leader(self) -> bool:
        """Look the leader up. Is it known, and can something be sent to it now?"""
        leaders = self._outside.leaders
        leader = leaders.leader_of(self.topic, self.partition)
        self._broker = broker = None if leader is None else leaders.broker(leader)
        self._cluster = leaders.cluster
        return broker is not None and broker.takes_batches

    def _is_traced(self, group: list[Batch]) -> bool:
        """Is a span wanted of one of them? Its steps are timed in a flow."""
        begin_trace = self._stream.observers.begin_trace
        assert begin_trace is not None
        for batch in group:
            if batch.trace is None:
                batch.trace = begin_trace(self.topic)
            if batch.trace.is_sampled:
                return True
        return False

    def _wrap_in_steps(self, group: list[Batch], records: list[memoryview]) -> bool:
        """Convert the group as flows do. False: it takes more than one step, or cannot be done."""
        stream = self._stream
        # With spans, a record's headers may name a trace, which decides whether the batch is sampled: a flow looks.
        if stream.observers.begin_trace is not None or sum(map(len, records)) > STEP_BYTES:
            return False
        steps = planning(stream.target, group)
        try:
            next(steps)
        except StopIteration as end:
            plan: deque[Wrapper] = end.value
        except (HeaderRefused, WireError):
            return False
        else:
            steps.close()
            return False
        (piece,) = plan
        self.message_set, self._anchor, self._content = piece.message_set, piece.anchor, piece.first_content
        self._plan = plan
        return True

    def _reserved(self, result: Swapped | Conflict | StoreAway) -> None:
        """Take the reply to the swap. A swap that is not confirmed is repeated by a flow: a proxy that may have
        reserved owes a commit or a release (rule R17)."""
        broker, owned = self._broker, self._owned
        if type(result) is not Swapped or self._era != self._stream.life.era:
            self._give_back(None)
            return
        if self._held.commits:
            self._stream.step("commit", self._held.commits, self._began, CARRIED)
        if owned is None:
            self._held.reserved(self._entry, self._value)
        else:
            assert self._sequencer is not None
            self._held.took_ownership(owned)
            owned.unwritten_bytes += self.size_bytes
            self._outside.flush_soon(self._sequencer)  # R7
        assert broker is not None
        if not broker.takes_batches:
            self._give_back(NotSent("the broker is away"))
            return
        self.sender = self._group[0].waiters[-1].connection.address
        self._outside.push(broker, self)

    def write_owned(self, now: float) -> None:
        """Write what was appended under an ownership, if it is time."""
        self._held.write_owned(self._outside.swap, now)

    # ------------------------------------------------------------------ as an append that waits, and on a lane
    def may_send(self) -> str | None:
        """Return why the group must not leave; None: it may. Asked in the step of the send (rules R4, R12, R17), as
        ``Forward`` is."""
        stream = self._stream
        if self._owner != stream.life.incarnation:
            return "the incarnation that reserved it has ended"
        for batch in self._group:
            for waiter in batch.waiters:
                if not (waiter.is_done or waiter.connection.is_closed):
                    break
            else:
                return "a client has gone"
        if stream.queue and stream.is_outdated(self._entry.producer_epoch):
            return "its client has begun a newer epoch"
        return None

    def has_left(self, report: Report, broker_id: int) -> None:
        """Its request was sent."""
        counts = self._stream.observers.counts
        if counts is None:
            report(AppendSent(broker_id, self.topic, self.partition, self.identities))
        else:
            counts.appends_sent += 1

    def done(self, outcome: Outcome) -> None:
        """The append has not ended as usual: a flow goes on with this outcome."""
        self._outside.look_at(self.topic, outcome)
        self._give_back(outcome)

    def answered(
        self, error_code: int, base_offset: int, log_append_time_ms: int, lane: Acknowledger, broker_id: int
    ) -> None:
        """The broker has answered. If it has appended the group without an error, hold the commit to be written, and
        answer the clients (rules R5, R7)."""
        stream, group, anchor = self._stream, self._group, self._anchor
        if (
            error_code
            or base_offset < 0
            or self._era != stream.life.era
            or self.topic in stream.topics.unmarked
            or self.topic in stream.topics.too_large
            or self._place not in self._context.marker_probe.probed
        ):
            self.done(classify(error_code, base_offset, log_append_time_ms, lane, broker_id))
            return
        observers = stream.observers
        if observers.wants_outcomes:
            outcome = Appended(base_offset, error_code, log_append_time_ms, lane)
            observers.report(ended(broker_id, self.topic, self.partition, self.identities, outcome))
        end_offset = self._entry.commit(group, base_offset, log_append_time_ms, anchor)
        self._held.is_unwritten = True  # R7
        stream.remember_lane(group, lane)  # R9
        self._bounds.note(self.topic, self.partition, Position(end_offset, anchor))  # R8
        self.committed_at = lane.answered_at
        sequencer = self._over()
        measure, counts = observers.measure, observers.counts
        for batch in group:
            if counts is None:
                stream.answer(batch, answers.appended(base_offset, log_append_time_ms), "appended")
            else:
                for waiter in batch.waiters:
                    waiter.appended(base_offset, log_append_time_ms)
                counts.appended_at_once(batch, self.topic)
            if measure is not None:
                measure(batch.arrived_at, lane)
            base_offset += batch.identity.record_count
        stream.out = []
        if stream.queue:
            sequencer.go_on()
        else:
            self._outside.flush_soon(sequencer)  # R7

    # ------------------------------------------------------------------ the end
    def _over(self) -> Owner:
        sequencer = self._sequencer
        assert sequencer is not None
        self.is_out = False
        self._context.memory.bytes_held -= self._held_bytes
        self._sequencer = self._plan = self._owned = None
        self._group, self.message_set = [], b""
        return sequencer

    def _give_back(self, outcome: Outcome | None) -> None:
        """Have a flow go on: with this outcome or, None, with the swap that is not confirmed. If many groups end so at
        once, that is in a later pass of the event loop; the group counts as out until then."""
        self._outside.in_turn(lambda _: self._hand_back(outcome))

    def _hand_back(self, outcome: Outcome | None) -> None:
        stream, group, era = self._stream, self._group, self._era
        pieces = self._plan or planned(
            stream.target, self.identities, self.message_set, self._anchor, self._content, self._max_timestamp
        )
        if self._request_bytes:
            group[0].held = Held(self._context.memory.hold_bytes, self._request_bytes)
        is_reserved = self._owned is None and outcome is not None
        value = self._value if self._owned is None else self._reserving(self._owned)
        self._over().take_over(group, pieces, unpack(value), era, outcome, is_reserved=is_reserved)

    def _reserving(self, owned: Ownership) -> bytes:
        """Return the value with an intent of the group's own in the place of the ownership."""
        owned.move_to(self._entry.end_offset, self._entry.anchor)
        batches: list[int | bytes] = []
        for batch in self._group:
            batches += (batch.identity.base_sequence, batch.identity.record_count, batch.digest)
        where = owned.lower_bound, owned.anchor, self._content, owned.leader
        return self._entry.reserving(owned.owner, *where, len(self._group), batches)
