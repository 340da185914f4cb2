"""What is usual about a group of batches, and how such a group is prepared at once, without a flow. Rules R1, R2, R6,
R8, R10, R11, R12, R15, R17, R22, R23.

``Unusual`` and ``UsualCase._why_not`` are the table of the conditions, all of them: what is not usual is prepared by a
flow (``sequencer.py``), which looks at everything that is passed over here. Both end in the same append
(``append.py``). A batch that comes while a group of its producer is out, or others wait, is looked at in its turn (rule
R3): that alone makes nothing unusual."""

from __future__ import annotations

from collections import deque
from enum import Enum

from ...codecs.convert import HeaderRefused, wrap_plain
from ...codecs.errors import WireError
from ...codecs.steps import STEP_BYTES
from ...state.entry import NO_ANCHOR, NO_PRINCIPAL
from ...state.names import NO_EPOCH
from ...state.packed import PackedEntry
from .. import limits
from ..flow.form import Form
from ..flow.wrapper import Wrapper
from ..partition_log.log_offsets import Position
from .append import GroupAppend, Prepared, Wrapped
from .batch import Batch
from .grouping import gather, planning, sent_as_is
from .outside import AppendTarget
from .stream import NO_INTENT, Stream


class Unusual(Enum):
    """Why a group is prepared by a flow: the value of a metric's label, the rule that this keeps, and what a person may
    want to know."""

    FLOW_AT_WORK = "flow_at_work", "R3", "a flow of the producer is at work, and takes the batch with it"
    CONDITIONAL = "conditional", "R23", "the batch says where it has to be"
    NAMED = "producer_name", "R22", "the newest instance of the producer's name is compared"
    NOT_KNOWN = "not_known", "R10", "the proxy knows nothing of the producer, or nothing is stored"
    LEASE_EPOCH = "lease_epoch", "R1", "what is known was learned under another lease, or of other data"
    OPEN_OR_UNRECOVERABLE = "open_or_unrecoverable", "R17", "the outcome of a batch is open, or was unrecoverable"
    REBUILT = "rebuilt", "R10", "the entry was read from the log, which may have more of the producer"
    NO_WINDOW = "no_window", "R12", "nothing of the epoch is in the log"
    DATA_GENERATION = "redis_data_generation", "R10", "the entry is of an earlier data generation"
    WRITES_LOST = "writes_lost", "R10", "Redis had lost writes of the entry"
    PRINCIPAL = "principal", "R11", "the producer id belongs to another principal"
    EXPIRED = "expired", "R10", "the entry may have expired in Redis"
    SEQUENCE = "sequence", "R11", "the batch has not the sequence that is due"
    EPOCH = "epoch", "R12", "the batch is of another epoch"
    BOUND = "bound", "R8", "no position of the partition is known that is young enough"
    NO_ANCHOR = "no_anchor", "R8", "the record below the bound is not known"
    PART = "part", "R2", "the first records of the batch are in the log"
    INTENT_WATCHED = "intent_watched", "R17", "an intent of this proxy may be open in Redis"
    WITHOUT_ID = "without_id", "R9", "the batch goes without its producer id, and Redis has to have that first"
    OWN_CONNECTION = "own_connection", "R17", "the batch goes over a connection of the client's own"
    DRAINING = "draining", "R15", "the proxy ends"
    NO_BATCH_MARKERS = "no_batch_markers", "R6", "the topic does not keep batch markers"
    SIZE_REFUSED = "size_refused", "R19", "the topic has refused a size"
    BROKER_CODEC = "broker_codec", "R6", "the broker compresses the topic in its own way"
    NOT_PROBED = "not_probed", "R6", "no append to the partition was read back lately"
    MEMORY = "memory", "R19", "the memory for requests is used up"
    PASS_LONG = "pass_long", "R19", "this pass of the event loop has done enough"
    LEADER = "leader", "R17", "no leader is known, or it cannot be reached"
    APPEND_RESERVATION = (
        "append_reservation",
        "R2",
        "the producer has an append reservation, and may not append under it now",
    )
    TRACED = "traced", "R19", "a span of the batch is wanted, or its records may name a trace"
    LARGE = "large", "R19", "the batch takes several steps to convert, or cannot be converted"

    def __init__(self, label: str, rule: str, why: str) -> None:
        self.label = label
        self.rule = rule
        self.why = why


class UsualCase:
    """The usual case of one producer on one partition."""

    __slots__ = ("_append", "_broker", "_cluster", "_place", "_stream", "why")

    def __init__(self, stream: Stream, append: GroupAppend) -> None:
        self._stream = stream
        self._append = append
        self._place = (stream.topic, stream.partition)
        self._cluster: object = None
        self._broker: AppendTarget | None = None
        """The leader, as ``_cluster`` had it."""
        self.why: Unusual | None = Unusual.NOT_KNOWN
        """Why the last batch was not usual."""

    def prepare(self, first: Batch) -> Prepared | None:
        """Prepare a group: this batch, and what follows it in the queue. None: something is unusual, see ``why``, and
        nothing has happened."""
        stream = self._stream
        entry, reservation, broker = stream.held.packed, stream.held.append_reservation, self._broker
        if broker is None or not broker.takes_batches or stream.context.outside.leaders.cluster is not self._cluster:
            broker = self._leader()
        self.why = why = self._why_not(first, entry, broker)
        if why is not None:
            return None
        assert entry is not None
        assert broker is not None
        is_plain = stream.marked_epoch == NO_EPOCH and not stream.topics.old_format
        form = broker.form if is_plain else stream.form_at(broker)
        if form is not Form.OWN_IDS and stream.context.time.now > stream.context.left_out_ids.told_until:
            self.why = Unusual.WITHOUT_ID
            return None
        if reservation is not None and not form.names_producers:  # R2: it was taken when batches left in another form
            self.why = Unusual.APPEND_RESERVATION
            return None
        group = gather(first, stream.queue, form) if stream.queue else [first]
        if stream.observers.begin_trace is not None and self._is_traced(group):
            self.why = Unusual.TRACED
            return None
        pieces: deque[Wrapper] | None = None
        records: list[memoryview] = []
        for batch in group:
            records += (batch.records,)
        made = None if form.is_v2 else wrap_plain(records, limits.DECOMPRESSED_BYTES_MAX)
        wrapped: Wrapped | None = sent_as_is(first) if form is Form.OWN_IDS else None
        if made is not None:
            message_set, anchor, content, max_timestamp, digests = made
            wrapped, at = (message_set, anchor, content, max_timestamp), 0
            for batch in group:
                batch.digest, at = digests[at : at + 8], at + 8
        elif wrapped is None:
            pieces = self._plan_in_a_step(group, records, form)
            if pieces is None:
                self.why = Unusual.LARGE
                return None
            piece = pieces[0]
            wrapped = piece.message_set, piece.anchor, piece.first_content, piece.max_timestamp
        instance = stream.instance
        bound = stream.bounds.known[self._place][1]
        if entry.end_offset > bound.offset:  # R8: the later of both
            bound = Position(entry.end_offset, entry.anchor)
        whose = instance.lease_epoch, instance.instance_id
        return Prepared(entry, group, broker.id, broker, form, bound, wrapped, pieces, reservation, *whose)

    def _why_not(self, first: Batch, entry: PackedEntry | None, broker: AppendTarget | None) -> Unusual | None:
        """Return what a flow has to look at first; None: nothing, about this batch, its producer, its partition and
        this process."""
        stream, append, identity, place = self._stream, self._append, first.identity, self._place
        held, context, instance, topics, topic = (
            stream.held,
            stream.context,
            stream.instance,
            stream.topics,
            stream.topic,
        )
        bounds, reservation = stream.bounds.known, held.append_reservation
        if stream.is_conditional:
            return Unusual.CONDITIONAL
        if held.name is not None:
            return Unusual.NAMED
        if entry is None:
            return Unusual.NOT_KNOWN
        if held.known_lease_epoch != instance.lease_epoch:
            return Unusual.LEASE_EPOCH
        if entry.has_intent:
            return Unusual.OPEN_OR_UNRECOVERABLE
        if entry.is_rebuilt:
            return Unusual.REBUILT
        if not entry.window_batches:
            return Unusual.NO_WINDOW
        if entry.data_generation != instance.data_generation:
            return Unusual.DATA_GENERATION
        if held.lost is not None:
            return Unusual.WRITES_LOST
        if entry.principal != first.principal or (first.principal == NO_PRINCIPAL and held.issued_to != NO_PRINCIPAL):
            return Unusual.PRINCIPAL
        if not held.is_unwritten and held.may_have_expired:
            return Unusual.EXPIRED
        if identity.base_sequence != entry.next_sequence:
            return Unusual.SEQUENCE
        if identity.producer_epoch != entry.producer_epoch:
            return Unusual.EPOCH
        if place not in bounds or context.time.now - bounds[place][0] > limits.BOUND_AGE_SECONDS:
            return Unusual.BOUND
        if bounds[place][1].anchor == NO_ANCHOR or entry.anchor == NO_ANCHOR:
            return Unusual.NO_ANCHOR
        if first.stored_records:
            return Unusual.PART
        if stream.watch_intent_until != NO_INTENT:
            return Unusual.INTENT_WATCHED
        if first.waiters[0].connection.route is not None:
            return Unusual.OWN_CONNECTION
        if instance.is_draining:
            return Unusual.DRAINING
        if topic in topics.unmarked:
            return Unusual.NO_BATCH_MARKERS
        if topic in topics.too_large:
            return Unusual.SIZE_REFUSED
        if topic in topics.wrapper_codecs:
            return Unusual.BROKER_CODEC
        if place not in context.batch_marker_probe.probed:
            return Unusual.NOT_PROBED
        if context.memory.bytes_held > context.memory.caps.request_bytes_total_max:
            return Unusual.MEMORY
        if context.is_pass_long():
            return Unusual.PASS_LONG
        if broker is None or not broker.takes_batches:
            return Unusual.LEADER
        if reservation is not None:
            now = first.arrived_at if first.arrived_at > append.committed_at else append.committed_at
            if not reservation.may_append(now, broker.id):
                return Unusual.APPEND_RESERVATION
        return None

    def _leader(self) -> AppendTarget | None:
        """Look the leader up."""
        leaders = self._stream.context.outside.leaders
        leader = leaders.leader_of(*self._place)
        self._broker = None if leader is None else leaders.broker(leader)
        self._cluster = leaders.cluster
        return self._broker

    def _is_traced(self, group: list[Batch]) -> bool:
        """Is a span wanted of one of them? Its steps are timed."""
        begin_trace = self._stream.observers.begin_trace
        assert begin_trace is not None
        for batch in group:
            if batch.trace is None:
                batch.trace = begin_trace(self._stream.topic)
            if batch.trace.is_sampled:
                return True
        return False

    def _plan_in_a_step(self, group: list[Batch], records: list[memoryview], form: Form) -> deque[Wrapper] | None:
        """Convert the group as flows do. None: it takes more than one step, or cannot be done."""
        stream = self._stream
        # With spans, a record's headers may name a trace, which decides whether the batch is sampled: a flow looks.
        if stream.observers.begin_trace is not None or sum(map(len, records)) > STEP_BYTES:
            return None
        steps = planning(stream.target, group, form)
        try:
            next(steps)
        except StopIteration as end:
            pieces: deque[Wrapper] = end.value
            return pieces
        except (HeaderRefused, WireError):
            return None
        steps.close()
        return None
