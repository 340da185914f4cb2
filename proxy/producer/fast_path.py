"""The no-trouble case of a group of batches, in straight lines: reserve, append, commit, answer. Rules R1, R2, R5, R7,
R8, R10, R12, R17.

It begins only where nothing is unusual; otherwise nothing has happened, and the flows (``sequencer.py``) work as they
do without it. Whatever does not end as usual goes on in a flow: a swap that was not confirmed is repeated there, and an
append that was not acknowledged is looked after by ``forward.py``. So no failure is handled here.

What is known of the producer is in ``stream.py``, what becomes of it in ``state/commit.py``, for both ways alike. At
any time either a flow works on a stream, or this has a group of it out."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from ...codecs.convert import HeaderRefused, wrap_plain
from ...codecs.errors import WireError
from ...codecs.marker import Identity
from ...codecs.steps import STEP_BYTES
from ...reactor import Buffer
from ...state.commit import committed, reserved
from ...state.decide import BatchIdentity
from ...state.entry import NO_ANCHOR, Entry, Intent, IntentBatch, WindowBatch, pack
from ...state.store import Conflict, StoreAway, Swapped
from .. import limits
from ..events import AppendSent, Report
from ..flow.observers import no_step
from ..flow.outcome import Acknowledger, Appended, NotSent, Outcome, classify, ended
from ..flow.wrapper import WrapperPlan
from ..partition_log.log_offsets import Position
from . import answers
from .batch import Batch
from .grouping import gather, planned, planning
from .outside import Broker, Outside
from .stream import NO_INTENT, Stream


class Owner(Protocol):
    """The sequencer, of which a group goes this way."""

    def go_on(self) -> None:
        """It has ended as usual."""
        ...

    def take_over(
        self, group: list[Batch], pieces: deque[WrapperPlan], entry: Entry, era: int, outcome: Outcome | None
    ) -> None:
        """It has not: a flow goes on."""
        ...


class FastPath:
    """Of one producer on one partition: the group that is out this way, if one is. It is what waits for a lane, and
    what a request holds of the partition (``broker/merge.py``). ``committed_at``: when a group was committed last, in
    reactor seconds."""

    __slots__ = (
        "_anchor",
        "_bounds",
        "_broker",
        "_cluster",
        "_content",
        "_context",
        "_entry",
        "_era",
        "_group",
        "_held_bytes",
        "_key",
        "_max_timestamp",
        "_outside",
        "_owner",
        "_place",
        "_plan",
        "_sequencer",
        "_stream",
        "_wrapper",
        "append",
        "committed_at",
        "identities",
        "is_out",
        "partition",
        "sender",
        "size_bytes",
        "timeout_ms",
        "topic",
    )

    appends = 1
    may_grow = False
    wrapper = None

    def __init__(self, stream: Stream, outside: Outside) -> None:
        self.is_out = False
        self.committed_at = 0.0
        self.topic = stream.topic
        self.partition = stream.partition
        self._place = (stream.topic, stream.partition)
        self._key = stream.held.key
        self._stream = stream
        self._context = stream.context
        self._bounds = stream.bounds
        self._outside = outside
        self._cluster: object = None
        self._broker: Broker | None = None
        """The leader, as that cluster has it."""
        self._sequencer: Owner | None = None
        self._group: list[Batch] = []
        self._plan: deque[WrapperPlan] | None = None
        """Of the group, if it was made in steps."""
        self._wrapper: bytes | bytearray = b""
        self.identities: tuple[Identity, ...] = ()
        self.append: Any = None
        """What is asked of it while it waits: itself; None as long as nothing is out, or it would hold itself."""

    # ------------------------------------------------------------------ reserve
    def start(self, sequencer: Owner, first: Batch) -> bool:
        """Reserve a group: this batch, and what follows it in the queue. False: something is unusual, and nothing has
        happened."""
        stream = self._stream
        entry = stream.held.usual_entry(first.principal)
        known = self._bounds.known.get(self._place)
        if entry is None or known is None or not self._is_usual(first, entry, known):
            return False
        life, memory, identity = stream.life, self._context.memory, first.identity
        group = gather(first, stream.queue) if stream.queue else [first]
        if len(group) == 1:
            self.timeout_ms, records = first.timeout_ms, [first.records]
            identities: tuple[Identity, ...] = (_identity(stream.producer_id, identity),)
            batches: tuple[IntentBatch, ...] = (
                IntentBatch(identity.base_sequence, identity.record_count, first.header.crc),
            )
        else:
            self.timeout_ms = min([batch.timeout_ms for batch in group])
            records = [batch.records for batch in group]
            identities = tuple([_identity(stream.producer_id, batch.identity) for batch in group])
            batches = tuple(
                [IntentBatch(b.identity.base_sequence, b.identity.record_count, b.header.crc) for b in group]
            )
        if not self._wrap(group, records, identities):
            return False
        if known[1].offset > entry.end_offset:  # R8
            bound, anchor = known[1].offset, known[1].anchor
        else:
            bound, anchor = entry.end_offset, entry.anchor
        broker = self._broker
        assert broker is not None
        epoch, content, leader = entry.producer_epoch, self._content, broker.id
        intent = Intent(life.incarnation, epoch, batches, bound, anchor, content, leader)
        self._entry = entry = reserved(entry, intent)
        # The group is out from here on; nothing is sent before the swap is confirmed (R2).
        stream.out = self._group = group
        self._sequencer = sequencer
        self._era, self._owner = life.era, life.incarnation
        self.identities = identities
        self.size_bytes = len(self._wrapper)
        self._held_bytes = 0 if self._plan else self.size_bytes  # a plan counts its bytes itself
        memory.bytes_held += self._held_bytes
        self.is_out = True
        self._outside.swap(self._key, stream.held.stored_version, pack(entry), self._reserved)
        return True

    def _is_usual(self, first: Batch, entry: Entry, known: tuple[float, Position]) -> bool:
        """Is there nothing about this batch, its partition and this process that a flow would look at?"""
        stream, context, identity = self._stream, self._context, first.identity
        topic, topics, memory = self.topic, stream.topics, context.memory
        return not (
            identity.base_sequence != entry.next_sequence  # R11
            or identity.producer_epoch != entry.producer_epoch  # R12
            or context.time.now - known[0] > limits.BOUND_AGE_SECONDS  # R8
            or known[1].anchor == NO_ANCHOR  # R8
            or entry.anchor == NO_ANCHOR  # R8
            or first.stored_records
            or stream.watch_intent_until != NO_INTENT  # R17
            or first.waiters[0].connection.way is not None
            or stream.life.is_draining  # R15
            or context.options.merges_producers
            or stream.observers.step_begins is not no_step
            or topic in topics.unmarked  # R6
            or topic in topics.too_large
            or topic in topics.wrapper_codecs
            or self._place not in context.marker_probe.probed  # R6
            or memory.bytes_held > memory.caps.request_bytes_total_max
            or context.is_pass_long()
            or not self._has_leader()
        )

    def _has_leader(self) -> bool:
        """Is the leader known, and can something be sent to it now?"""
        leaders, broker = self._outside.leaders, self._broker
        if leaders.cluster is self._cluster and broker is not None and broker.is_ready:
            return True
        leader = leaders.leader_of(self.topic, self.partition)
        self._broker = broker = None if leader is None else leaders.broker(leader)
        self._cluster = leaders.cluster
        return broker is not None and broker.is_ready

    def _wrap(self, group: list[Batch], records: list[memoryview], identities: tuple[Identity, ...]) -> bool:
        """Convert the group into one wrapper. False: it is more than one step, or cannot be done."""
        stream = self._stream
        made = wrap_plain(records, identities, limits.DECOMPRESSED_BYTES_MAX)
        if made is not None:
            self._wrapper, self._anchor, self._content, self._max_timestamp = made
            self._plan = None
            return True
        if sum(map(len, records)) > STEP_BYTES:
            return False
        steps = planning(stream.target, group)
        try:
            next(steps)
        except StopIteration as end:
            plan: deque[WrapperPlan] = end.value
        except (HeaderRefused, WireError):
            return False
        else:
            steps.close()
            return False
        (piece,) = plan
        self._wrapper, self._anchor, self._content = piece.message_set, piece.anchor, piece.wrapper.first_content
        self._plan = plan
        return True

    def _reserved(self, result: Swapped | Conflict | StoreAway) -> None:
        """The reply to the swap. One that is not confirmed is repeated by the flow: whoever may have reserved owes a
        commit or a release (rule R17)."""
        stream, broker, group = self._stream, self._broker, self._group
        if type(result) is not Swapped or self._era != stream.life.era:
            self._give_back(None)
            return
        stream.held.swapped(self._entry)
        assert broker is not None
        if not broker.is_ready:
            self._give_back(NotSent("the broker is away"))
            return
        self.sender = group[0].waiters[-1].connection.address
        self.append = self
        self._outside.push(broker, self)

    # ------------------------------------------------------------------ as an append that waits, and on a lane
    def may_send(self) -> str | None:
        """Asked in the step of the send (rules R4, R12, R17), as ``forward.py`` is."""
        stream = self._stream
        if self._owner != stream.life.incarnation:
            return "the incarnation that reserved it has ended"
        for batch in self._group:
            if not batch.is_wanted:
                return "a client has gone"
        if stream.queue and stream.is_outdated(self._entry.producer_epoch):
            return "its client has begun a newer epoch"
        return None

    def load(self) -> FastPath:
        """It is what the request holds."""
        return self

    def room_for(self, _job: object) -> bool:
        """Nothing is merged with it."""
        return False

    def add(self, _job: object) -> None:
        """Nothing is."""
        raise AssertionError("nothing is merged with it")

    def message_set(self) -> Buffer:
        """What is sent."""
        return self._wrapper

    def has_left(self, report: Report, broker_id: int) -> None:
        """Its request was sent."""
        counts = self._stream.observers.counts
        if counts is None:
            report(AppendSent(broker_id, self.topic, self.partition, self.identities))
        else:
            counts.appends_sent += 1

    def done(self, outcome: Outcome) -> None:
        """It has not ended as usual: the flow goes on with that."""
        self._outside.look_at(self.topic, outcome)
        self._give_back(outcome)

    def answered(
        self, error_code: int, base_offset: int, log_append_time_ms: int, lane: Acknowledger, broker_id: int
    ) -> None:
        """The broker has answered. If it has appended the group, without a doubt, that is held to be written, and the
        clients are answered (rules R5, R7)."""
        stream, group, place = self._stream, self._group, self._place
        if (
            error_code
            or base_offset < 0
            or self._era != stream.life.era
            or self.topic in stream.topics.unmarked
            or self.topic in stream.topics.too_large
            or place not in self._context.marker_probe.probed
        ):
            self.done(classify(error_code, base_offset, log_append_time_ms, lane, broker_id))
            return
        observers = stream.observers
        if observers.wants_outcomes:
            outcome = Appended(base_offset, error_code, log_append_time_ms, lane)
            observers.report(ended(broker_id, self.topic, self.partition, self.identities, outcome))
        end_offset = base_offset
        window: list[WindowBatch] = []
        for batch in group:
            identity = batch.identity
            window += (WindowBatch(identity.base_sequence, identity.record_count, end_offset, log_append_time_ms),)
            end_offset += identity.record_count
        anchor = self._anchor
        self._entry = entry = committed(self._entry, window, end_offset, anchor)
        stream.held.hold(entry)  # R7
        stream.remember_lane(group, lane)  # R9
        self._bounds.note(self.topic, self.partition, Position(end_offset, anchor))  # R8
        self.committed_at = lane.answered_at
        sequencer = self._over()
        measure, counts = observers.measure, observers.counts
        for batch, stored in zip(group, window, strict=True):
            answer = answers.appended(stored.base_offset, log_append_time_ms)
            if counts is None:
                stream.answer(batch, answer, "appended")
            else:
                for waiter in batch.waiters:
                    waiter.answer(answer)
                counts.appended_at_once(batch.arrived_at)
            if measure is not None:
                measure(batch.arrived_at, lane)
        stream.out = []
        sequencer.go_on()

    # ------------------------------------------------------------------ the end
    def _over(self) -> Owner:
        sequencer = self._sequencer
        assert sequencer is not None
        self.is_out = False
        self._context.memory.bytes_held -= self._held_bytes
        self._sequencer = self._plan = self.append = None
        self._group, self._wrapper, self.identities = [], b"", ()
        return sequencer

    def _give_back(self, outcome: Outcome | None) -> None:
        """A flow goes on: with this outcome, or with the swap that is not confirmed."""
        stream, group, entry, era = self._stream, self._group, self._entry, self._era
        pieces = self._plan or planned(
            stream.target, self.identities, self._wrapper, self._anchor, self._content, self._max_timestamp
        )
        self._over().take_over(group, pieces, entry, era, outcome)


def _identity(producer_id: int, batch: BatchIdentity) -> Identity:
    return Identity(producer_id, batch.producer_epoch, batch.base_sequence, batch.record_count)
