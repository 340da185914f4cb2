"""A group of batches on its way to the log: reserve, append, commit, answer, in straight-line code. Under an append
reservation (``append_reservation.py``) there is no reserve. Rules R2, R4, R5, R7, R8, R9, R12, R17.

This is the one place where batches are appended. What it acts on was prepared before: in the usual case at once
(``usual.py``), else by a flow (``sequencer.py``). Both differ in what they have to find out, not in what follows. No
failure is handled here: a swap that is not confirmed, and any outcome but a plain success, goes to a flow
(``recovery.py``), which finishes the group or has it appended again.

At any time either a flow works on a stream, or this has a group of it out."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ...codecs.batch_marker import Identity
from ...reactor import Buffer
from ...state.conditional import shift_of
from ...state.entry import NO_ANCHOR, Entry, unpack
from ...state.packed import PackedEntry, as_named
from ...state.store import Swapped, SwapResult
from ...values import value
from ..admission.memory_budget import Held
from ..events import AppendSent, Report
from ..flow.form import Form
from ..flow.outcome import Acknowledger, Appended, NotSent, Outcome, classify, ended
from ..flow.wrapper import Wrapper
from ..partition_log.log_offsets import Position
from . import answers
from .append_reservation import AppendReservation
from .batch import Batch
from .grouping import planned
from .outside import AppendTarget, Flushed
from .stream import CARRIED, Stream

Wrapped = tuple[Buffer, bytes, bytes, int]
"""What is sent: the wrapper, its anchor, which identifies it in the log, the digest of its first record, and the newest
timestamp of its records. As ``convert.wrap_plain`` makes it."""


@value(frozen=True, slots=True)
class ByFlow:
    """What is particular about a group that a flow has prepared. ``is_reserved``: its intent is stored. ``is_clean``:
    no try of it may have been appended before. ``is_whole``: it has all records of all its batches, and a batch marker
    that names them."""

    is_reserved: bool
    is_clean: bool
    is_whole: bool


@value(frozen=True, slots=True)
class Prepared:
    """A group that may be appended: everything that has to be known for it is known.

    ``entry``: as it is now, without the group's intent, unless it is reserved. ``broker``: the leader, None if it is
    not known as a broker. ``form``: of what is sent. ``bound``: where a search for the group begins (rule R8).
    ``wrapped``: what is sent, the first of ``pieces`` if there are any. ``reservation``: the append reservation under
    which it leaves. ``lease_epoch``, ``owner``: in which it is reserved, and by whom. ``by_flow``: None: nothing was
    unusual, so nobody wants its steps timed, and it may take an append reservation."""

    entry: PackedEntry
    group: list[Batch]
    leader: int
    broker: AppendTarget | None
    form: Form
    bound: Position
    wrapped: Wrapped
    pieces: deque[Wrapper] | None
    reservation: AppendReservation | None
    lease_epoch: int
    owner: bytes
    by_flow: ByFlow | None = None


def prepared(
    stream: Stream,
    group: list[Batch],
    pieces: deque[Wrapper],
    entry: PackedEntry,
    leader: int,
    bound: Position,
    lease_epoch: int,
    owner: bytes,
    *,
    is_reserved: bool = False,
    is_clean: bool = True,
) -> Prepared:
    """Return a group that a flow has prepared. ``pieces``: the wrappers that are left of it; the first one is sent."""
    piece = pieces[0]
    is_all = sum(one.record_count for one in piece.identities) == sum(batch.record_count for batch in group)
    is_whole = is_all and piece.is_marked and not group[0].stored_records
    wrapped = piece.message_set, piece.anchor, piece.first_content, piece.max_timestamp
    broker, by_flow = stream.context.outside.leaders.broker(leader), ByFlow(is_reserved, is_clean, is_whole)
    return Prepared(entry, group, leader, broker, piece.form, bound, wrapped, pieces, None, lease_epoch, owner, by_flow)


@value(frozen=True, slots=True)
class Trouble:
    """A group that has not ended as a plain success. ``entry``: with the group's own intent. ``outcome``: of its
    append; None: the swap that reserves it is not confirmed. ``is_reserved``: its own intent is stored."""

    group: list[Batch]
    pieces: deque[Wrapper]
    entry: Entry
    lease_epoch: int
    outcome: Outcome | None
    is_reserved: bool
    is_clean: bool


class Owner(Flushed, Protocol):
    """The sequencer whose group it is."""

    def go_on(self) -> None:
        """The group has ended, and other batches wait."""
        ...

    def recover(self, trouble: Trouble) -> None:
        """The group has not ended as a plain success: a flow takes it."""
        ...

    def broke(self, error: Exception) -> None:
        """An internal error has ended the append."""
        ...


class GroupAppend:
    """The append of one producer on one partition, with the group that is out, if one is. It is also what waits for a
    produce connection (``broker/queued_append.py``). ``committed_at``: when a group was committed last, in reactor
    seconds. ``message_set``: the wrapper that is sent."""

    __slots__ = (
        "_began",
        "_bounds",
        "_context",
        "_held",
        "_held_bytes",
        "_outside",
        "_place",
        "_plan",
        "_request_bytes",
        "_reservation",
        "_sequencer",
        "_stream",
        "_value",
        "committed_at",
        "form",
        "is_out",
        "message_set",
        "partition",
        "sender",
        "size_bytes",
        "timeout_ms",
        "topic",
    )

    def __init__(self, stream: Stream) -> None:
        self.is_out = False
        self.committed_at = 0.0
        self.topic = stream.topic
        self.partition = stream.partition
        self._place = (stream.topic, stream.partition)
        self._stream = stream
        self._held = stream.held
        self._context = stream.context
        self._bounds = stream.bounds
        self._outside = stream.context.outside
        self._sequencer: Owner | None = None
        self._plan: Prepared | None = None
        self._reservation: AppendReservation | None = None
        """The append reservation under which the group leaves, or which it takes."""
        self._began = 0.0
        self.message_set: Buffer = b""
        self.form = Form.WRAPPER_V1

    @property
    def identities(self) -> tuple[Identity, ...]:
        """The identities in the batch marker of the group that is out."""
        plan = self._plan
        assert plan is not None
        if plan.pieces is not None:
            return plan.pieces[0].identities
        producer_id, whose = self._stream.producer_id, [batch.identity for batch in plan.group]
        return tuple([Identity(producer_id, i.producer_epoch, i.base_sequence, i.record_count) for i in whose])

    # ------------------------------------------------------------------ reserve
    # R2 lives here: nothing is sent before its intent, or the append reservation under which it leaves, is stored.
    def start(self, plan: Prepared, sequencer: Owner, request_bytes: int = 0) -> None:
        """Reserve a group, and send it. ``request_bytes``: bytes of the first batch's request that the memory budget
        does not count yet."""
        stream, held, context, group = self._stream, self._held, self._context, plan.group
        stream.out = group  # from here on; nothing is sent before the swap is confirmed
        self._plan, self._sequencer, self.is_out = plan, sequencer, True
        self.message_set, self.form = plan.wrapped[0], plan.form
        self.size_bytes = len(self.message_set)
        self._request_bytes = self._held_bytes = request_bytes
        if plan.pieces is None:  # else the wrapper counts its bytes itself
            self._held_bytes += self.size_bytes
        context.memory.bytes_held += self._held_bytes
        self.timeout_ms = group[0].timeout_ms
        for batch in group:
            if batch.timeout_ms < self.timeout_ms:
                self.timeout_ms = batch.timeout_ms
        by_flow = plan.by_flow
        if by_flow is not None and by_flow.is_reserved:
            self._send(plan)
            return
        reservation = plan.reservation
        if reservation is not None:
            self._reservation = reservation
            reservation.unwritten_bytes += self.size_bytes
            self._send(plan)
            return
        self._began = 0.0 if by_flow is None and not held.commits else stream.observers.step_begins()
        entry = plan.entry
        is_busy = context.takes_append_reservations and by_flow is None and held.is_unwritten
        if is_busy and plan.form.names_producers:
            where = plan.bound.offset, plan.bound.anchor
            self._reservation = reservation = AppendReservation(plan.owner, plan.leader, *where, held.stored_version)
            now = group[0].arrived_at if group[0].arrived_at > self.committed_at else self.committed_at
            value = held.take_append_reservation(entry, reservation, now)
        else:
            bound = plan.bound
            value = entry.reserving(plan.owner, bound.offset, bound.anchor, plan.wrapped[2], plan.leader, group)
            if held.append_reservation is not None:
                held.append_reservation.is_ending = True  # R17: nothing begins under it from here on
            if held.name is not None:
                value = as_named(value)
            self._value = value
        ttl_ms = 0 if stream.is_conditional else stream.instance.ids_ttl_ms  # R2; R23: a fence stays
        check = None if held.name is None else held.name.check(entry.producer_epoch)  # R22: in the step of the reserve
        self._outside.swap(held.key, held.stored_version, value, ttl_ms, self._reserved, check)

    def _reserved(self, result: SwapResult) -> None:
        """Take the reply to the swap. A swap that is not confirmed is repeated by a flow: a proxy that may have
        reserved owes a commit or a release (rule R17)."""
        plan, reservation, stream, held = self._plan, self._reservation, self._stream, self._held
        assert plan is not None
        try:
            if type(result) is not Swapped or plan.lease_epoch != stream.instance.lease_epoch:
                self._give_back(None)
                return
            if self._began:
                if held.commits:
                    stream.step("commit", held.commits, self._began, CARRIED)
                if plan.by_flow is not None:
                    stream.step("reserve", plan.group, self._began)
            if reservation is None:
                held.reserved(plan.entry, self._value)
            else:
                held.took_append_reservation(reservation)
                reservation.unwritten_bytes += self.size_bytes
                assert self._sequencer is not None
                self._outside.flush_soon(self._sequencer)  # R7
            self._send(plan)
        except Exception as error:  # what it asks for has an error of its own: nobody waits for ever
            self.give_up(error)

    def _send(self, plan: Prepared) -> None:
        """Let the group wait for a connection to its leader: one of the proxy's, or the client's own."""
        stream, waiters, broker = self._stream, plan.group[0].waiters, plan.broker
        self.sender = waiters[-1].connection.address if waiters else ""
        if plan.by_flow is not None:
            self._began = stream.observers.step_begins()
            route = plan.group[0].route
            if route is not None:
                self._outside.queue_append_by(route, plan.leader, self)
                return
        if broker is None or not broker.takes_batches:
            self._give_back(NotSent("the broker is away"))
        elif (broker.form is not self.form or stream.topics.old_format) and stream.form_at(broker) is not self.form:
            self._give_back(NotSent("the broker stores another form since it was prepared"))
        else:
            self._outside.queue_append(broker, self)

    def write_append_reservation(self, now: float) -> None:
        """Write what was appended under an append reservation, if it is time."""
        self._held.write_append_reservation(self._outside.swap, now)

    # ------------------------------------------------------------- as an append that waits, and on a produce connection
    def may_send(self) -> str | None:
        """Return why the group must not leave; None: it may. Asked in the step of the send (rules R4, R12, R17)."""
        plan = self._plan
        assert plan is not None
        return self._stream.why_not_sent(plan.group, plan.owner)

    def has_left(self, report: Report, broker_id: int) -> None:
        """Its request was sent."""
        plan, counts = self._plan, self._stream.observers.counts
        assert plan is not None
        if counts is None or (plan.by_flow is not None and self._began):  # its span says where it was sent
            report(AppendSent(broker_id, self.topic, self.partition, self.identities))
        else:
            counts.appends_sent += 1

    def done(self, outcome: Outcome) -> None:
        """The append has not ended as a plain success: a flow resumes with this outcome."""
        self._outside.look_at(self.topic, outcome)
        self._give_back(outcome)

    def answered(
        self,
        error_code: int,
        base_offset: int,
        log_append_time_ms: int,
        produce_connection: Acknowledger,
        broker_id: int,
    ) -> None:
        """The broker has answered. If it has appended the group without an error, where it was to be, hold the commit
        to be written, and answer the clients (rules R5, R7)."""
        stream, plan, sequencer = self._stream, self._plan, self._sequencer
        assert plan is not None
        assert sequencer is not None
        try:
            by_flow = plan.by_flow
            if (
                error_code
                or base_offset < 0
                or plan.lease_epoch != stream.instance.lease_epoch
                or (by_flow is not None and not by_flow.is_whole)
                or (stream.is_conditional and shift_of(plan.group[0].identity.base_sequence, base_offset))  # R23
                or (base_offset < plan.bound.offset and self.form is Form.OWN_IDS)  # R9: it had them before
            ):
                self.done(classify(error_code, base_offset, log_append_time_ms, produce_connection, broker_id))
                return
            group, observers, is_clean = plan.group, stream.observers, by_flow is None or by_flow.is_clean
            if observers.wants_outcomes:
                outcome = Appended(base_offset, error_code, log_append_time_ms, produce_connection)
                observers.report(ended(broker_id, self.topic, self.partition, self.identities, outcome))
            # Where the broker stores a topic in its own way, the anchor of what was sent would never fit: none is
            # better.
            anchor = NO_ANCHOR if self.topic in stream.topics.unmarked else plan.wrapped[1]
            end_offset = plan.entry.commit(group, base_offset, log_append_time_ms, anchor)
            self._held.is_unwritten = True  # R7
            stream.remember_produce_connection(group, produce_connection)  # R9
            if is_clean and anchor != NO_ANCHOR:
                self._bounds.note(self.topic, self.partition, Position(end_offset, anchor))  # R8
            self.committed_at = produce_connection.answered_at
            if stream.topics.too_large:
                stream.topics.note_taken(self.topic, self.size_bytes)
            if is_clean and self._place not in self._context.batch_marker_probe.probed:
                stream.probe_batch_marker(self.message_set, end_offset - 1)
            if by_flow is not None and (began := self._began):
                self._held.commits = group
                stream.step("append", group, began, "Appended")
            self._over()
            measure, counts = observers.measure if is_clean else None, observers.counts
            for batch in group:
                if counts is None or by_flow is not None:
                    stream.answer(batch, answers.appended(base_offset, log_append_time_ms), "appended")
                else:
                    for waiter in batch.waiters:
                        waiter.appended(base_offset, log_append_time_ms)
                    counts.appended_at_once(batch, self.topic)
                if measure is not None:
                    measure(batch.arrived_at, produce_connection)
                base_offset += batch.identity.record_count
            stream.out = []
            if stream.queue:
                sequencer.go_on()
            else:
                self._outside.flush_soon(sequencer)  # R7
        except Exception as error:  # the other appends of the request get their outcomes, and nobody waits for ever
            if self.is_out:
                self._over()
            sequencer.broke(error)

    # ------------------------------------------------------------------ the end
    def give_up(self, error: Exception) -> None:
        """An internal error has ended the append. Its intent may be open, which a flow looks after."""
        self._over().broke(error)

    def _over(self) -> Owner:
        sequencer = self._sequencer
        assert sequencer is not None
        self.is_out = False
        self._context.memory.bytes_held -= self._held_bytes
        self._plan = self._reservation = self._sequencer = None
        self.message_set = b""
        return sequencer

    def _give_back(self, outcome: Outcome | None) -> None:
        """Have a flow resume: with this outcome or, None, with the swap that is not confirmed. If many groups end so at
        once, that is in a later pass of the event loop; the group counts as out until then."""
        self._outside.in_turn(lambda _: self._hand_back(outcome))

    def _hand_back(self, outcome: Outcome | None) -> None:
        try:
            trouble = self._trouble(outcome)
        except Exception as error:
            self.give_up(error)
        else:
            self._over().recover(trouble)

    def _trouble(self, outcome: Outcome | None) -> Trouble:
        plan, stream = self._plan, self._stream
        assert plan is not None
        by_flow = plan.by_flow
        if by_flow is not None and outcome is not None:
            stream.step("append", plan.group, self._began, type(outcome).__name__)
        pieces = plan.pieces or planned(stream.target, self.identities, plan.form, *plan.wrapped)
        is_clean = by_flow is None or by_flow.is_clean
        if self._request_bytes:
            plan.group[0].held = Held(self._context.memory.hold_bytes, self._request_bytes)
        was_reserved = by_flow is not None and by_flow.is_reserved
        is_reserved = was_reserved or (self._reservation is None and outcome is not None)
        entry = plan.entry.view if was_reserved else self._entry_of(plan)
        return Trouble(plan.group, pieces, entry, plan.lease_epoch, outcome, is_reserved, is_clean)

    def _entry_of(self, plan: Prepared) -> Entry:
        """Return the entry with an intent of the group's own, also in the place of an append reservation."""
        reservation = self._reservation
        if reservation is None:
            return unpack(self._value)
        reservation.move_to(plan.entry.end_offset, plan.entry.anchor)
        where = reservation.owner, reservation.lower_bound, reservation.anchor, plan.wrapped[2], reservation.leader
        return unpack(plan.entry.reserving(*where, plan.group))
