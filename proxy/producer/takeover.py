"""What has to be resolved before a sequencer may work: open intents and unverified entries. Rules R1, R6, R9, R10, R12,
R13.

An intent that is found open belongs to another proxy instance, alive or gone, or to an earlier flow of this one. While
its owner lives we wait; then it is taken over and resolved from the log. There are no records to send here, so nothing
is appended: what the log has of the intent is committed, also a part of a batch, and the rest is dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...state.commit import ambiguous, committed, fresh, released, renewed, unrecoverable, with_takeover
from ...state.conditional import unsure
from ...state.decide import BatchIdentity, Duplicate, decide, rest_of
from ...state.entry import (
    NO_ANCHOR,
    NO_CONTENT,
    NO_DATA_GENERATION,
    NO_DIGEST,
    NO_OFFSET,
    NOBODY,
    Entry,
    Intent,
    IntentKind,
    WindowBatch,
)
from ...state.rebuilding import completed
from .. import limits
from ..events import TakenOver
from ..flow.effects import Leader, MemberAlive, Now
from ..partition_log.log_offsets import Later, Position, Unreadable, check_quiescence, current_end
from ..partition_log.log_search import LogSearch, Searched, Undecidable, Wanted, always, covered
from ..partition_log.recognised import Joint, joints_of
from . import answers
from .conditional import begin_conditional_partition, bound_of_conditional_partition, say_fenced, turn_down_past
from .duplicates import answer_duplicate, due_of, is_in_intent
from .grouping import offset_of
from .intent_content import has_intents_content
from .rebuild import (
    Due,
    LookedFor,
    bound_of,
    is_enough,
    is_takeover,
    lowest_missing,
    lowest_of,
    remembering,
    state_read,
)
from .resolution import LeftOpen, Resolution, resolve
from .stream import Stream


class Takeover:
    """One unknown outcome about the entry of one stream."""

    def __init__(self, stream: Stream, *, unverified: bool) -> None:
        self._stream = stream
        self._instance = stream.instance
        self._observers = stream.observers
        self._bounds = stream.bounds
        self._is_unverified = unverified
        self._lease_epoch = stream.instance.lease_epoch
        self._brokers_to_check: set[int] = set()
        """Brokers for which an earlier intent was meant, so that they may still execute an append (rule R6)."""
        self._unrecoverable: Intent | None = None
        self._contents: dict[bytes, tuple[BatchIdentity, ...]] = {}
        """The contents (digests of records) that a rebuild looks for, each with the batches that begin with it, as far
        as these are known."""
        self._due: set[Due] = set()
        """Batches that a rebuild looks for by their content."""
        self._checkpoint: Position | None = None
        """The checkpoint at which the search of a rebuild begins; None: it begins at the bound."""
        self._searched_to = 0
        """Where the log ended in the last complete search."""
        self._was_append_reservation = False
        """Is or was the intent an append reservation, so that the log may have batches that the store has never heard
        of? Also True of an ambiguous entry."""
        self._is_stored = True
        """Is it the rebuild of an entry that is stored? Else nothing is stored before its result is."""
        self._is_blind = False
        """Does nothing tell which batches to look for, as nothing is stored and nobody waits any more? Then a log of
        format v2 may have some that are not seen."""
        self._is_counted = False
        """Is it one of the unknown outcomes of producer ids that nobody issued?"""
        self._led_at = 0.0
        """When the partition was seen to have a leader last, in reactor seconds."""
        self._moved_to = NO_OFFSET
        """Where the log began when the bound was seen not to hold (rule R8)."""

    async def work(self) -> None:
        """Do what can be done now: wait a little, or resolve."""
        if self._is_for_its_clients_alone:
            await self._work_for_clients()
        elif not self._is_unverified or await self._is_quiet():
            await self._work()

    @property
    def _is_for_its_clients_alone(self) -> bool:
        """Is nothing stored, so that nobody but the waiting clients needs the result? Of a conditional partition others
        publish."""
        return self._is_unverified and self._stream.held.entry is None and not self._stream.is_conditional

    async def _work_for_clients(self) -> None:
        """Rebuild an entry of which nothing is stored, if there are not too many of producer ids that nobody issued,
        and the proxy does not end: what waits gets a retriable code then."""
        stream, refusal, verdict, admitted = self._stream, None, "limited", None
        has_leader = not stream.held.is_unissued or await self._finds_leader()
        if not stream.queue:
            stream.nothing_is_open()
            return
        if self._instance.is_draining:
            refusal = answers.held_back("the proxy is shutting down")
        elif not has_leader:
            refusal, verdict = answers.no_leader(), "no_leader"
        elif stream.held.is_unissued:
            first = stream.queue[0]
            admitted = stream.context.unissued.admit(
                first.waiters[0].connection.address,
                first.principal,
                is_after_loss=self._observers.time.now < self._instance.returning_until,
            )
            if admitted is None:
                refusal = answers.in_doubt("too many outcomes of producer ids that nobody issued are unknown")
                self._slow_down()
        if refusal is not None:
            for batch in list(stream.queue):
                stream.dismiss(batch, refusal, verdict)
            return
        self._is_counted = admitted is not None
        try:
            if await self._is_quiet():
                await self._work()
        finally:
            if admitted is not None:
                admitted.end()

    def _slow_down(self) -> None:
        """What is refused may come again at once, with others like it, and each reads Redis. So nothing more is taken
        of its connection for a while, as a broker does with a client above its quota (KIP-219)."""
        for batch in self._stream.queue:
            for waiter in batch.waiters:
                if not waiter.connection.is_closed:  # also where the time of the request is up
                    waiter.connection.rest(limits.UNISSUED_REST_SECONDS)

    @property
    def _has_leader(self) -> bool:
        """Can the log be asked for?"""
        stream, context = self._stream, self._stream.context
        leader = context.leader_of(stream.topic, stream.partition)
        return leader is not None and context.is_reachable(leader)

    async def _finds_leader(self) -> bool:
        """The same; if not, a leader is looked for."""
        if not self._has_leader:
            await Leader(self._stream.topic, self._stream.partition, refresh=True)
        return self._has_leader

    def _is_wanted(self) -> bool:
        """Does a client need what is read? What is counted takes a place of others: not for long without a leader."""
        stream = self._stream
        now = stream.observers.time.now
        if not self._is_counted or self._has_leader:
            self._led_at = now
        return stream.is_needed and now - self._led_at <= limits.HAND_OVER_SECONDS

    async def _work(self) -> None:
        stream = self._stream
        entry = stream.held.entry
        intent = entry.intent if entry is not None and entry.has_open_intent else None
        if entry is not None and is_takeover(entry.intent):
            intent = entry.intent
        if intent is not None and intent.owner != self._instance.instance_id:
            is_over = await self._is_over(intent.owner)
            if not is_over:
                at_most = limits.RESOLVE_WAIT_SECONDS_MAX
                if stream.is_conditional and not self._is_unverified:
                    at_most = await turn_down_past(stream)
                if stream.queue and intent.is_append_reservation and not self._is_unverified:
                    await stream.ask_for_append_reservation()
                if stream.queue:  # R6: if its owner has died, the intent is resolved even if no client waits any more
                    lease_ends = await Now() + limits.LEASE_SECONDS + limits.LEASE_MARGIN_SECONDS
                    stream.watch_intent(lease_ends)
                await stream.wait_to_read_again(at_most=at_most)
                return
        if not self._is_unverified:
            assert entry is not None
            await self._take_over(entry)
        elif entry is None or not await self._answer_known(entry):
            await self._rebuild(entry)

    # R1 lives here: an intent is touched only when its owner's lease is over.
    async def _is_over(self, owner: bytes) -> bool:
        """Rule R1: has this owner's lease certainly ended? When our own registration was lost, those of other proxies
        may be lost too while they live: the leases that they hold have to run out first (rule R10). This process' own
        intents, and those without an owner, need not wait for that."""
        if await MemberAlive(owner) is not False:
            return False
        is_strangers = owner != NOBODY and owner not in self._instance.earlier_instance_ids
        return not is_strangers or self._instance.lease_epoch == 1 or await Now() >= self._instance.grace_until

    async def _is_quiet(self) -> bool:
        """Rule R10: may an unverified entry be touched now? The leases of the lost state have to run out first. If our
        own registration is gone, the state was lost just now, and a new lease epoch begins with the next heartbeat.
        False: it was waited a little."""
        if (now := await Now()) < self._instance.grace_until:
            await self._stream.wait_to_read_again(self._instance.grace_until - now)
            return False
        if await MemberAlive(self._instance.instance_id) is not True:
            await self._stream.wait_to_read_again()
            return False
        return True

    # ------------------------------------------------------------------ an open intent
    async def _take_over(self, entry: Entry) -> None:
        """Rule R1: the owner of the intent is gone. Take the intent over, look for its batches in the log, commit what
        is there, and drop the rest."""
        stream = self._stream
        intent = entry.intent
        assert intent is not None
        if intent.owner != self._instance.instance_id:
            self._observers.report(TakenOver(stream.producer_id, stream.topic, stream.partition, intent.owner))
        kind = IntentKind.TAKEN_OVER if intent.is_append_reservation else None
        if not await stream.write(renewed(entry, self._instance.instance_id, kind=kind)):
            return
        result = await self._search(intent, {intent.content: ()})
        if isinstance(result, Searched) and result.pieces and intent.batches and not stream.is_conditional:
            result = await self._compared(entry, intent, result)
        entry_now = stream.held.entry
        if self._lease_epoch != self._instance.lease_epoch or entry_now is None or entry_now.intent is None:
            stream.held.forget()
            return
        if isinstance(result, LeftOpen):
            await stream.write(self._renewed(entry_now, NOBODY))
            return
        if isinstance(result, Undecidable):
            if stream.is_conditional:
                await stream.write(unsure(entry_now))
            else:
                await stream.write(
                    unrecoverable(entry_now) if intent.batches else ambiguous(entry_now, entry_now.data_generation)
                )
            return
        if (
            intent.was_append_reservation and result.is_cut
        ):  # what it appended may have been deleted, with the numbers in it
            await stream.write(ambiguous(entry_now, entry_now.data_generation))
            return
        if not intent.batches:  # an append reservation, or a rebuild that was not finished
            await self._finish_rebuild(entry_now, result)
            return
        await self._conclude(entry_now, intent, result)

    async def _compared(self, entry: Entry, intent: Intent, result: Searched) -> Resolution:
        """Rule R9: what another batch has under the intent's numbers is not committed as the intent's. In a conditional
        partition each client's batch is compared when it comes (rule R23)."""
        is_own = await has_intents_content(self._stream, entry, intent, result.pieces)
        if is_own is True:
            return result
        if isinstance(is_own, Later) and not isinstance(is_own, Unreadable):
            return LeftOpen(is_own.reason)
        reason = is_own.reason if isinstance(is_own, Later) else "the log has another batch under its numbers"
        await self._answer_undecidable(intent, reason)
        return Undecidable(reason)

    async def _conclude(self, entry: Entry, intent: Intent, result: Searched) -> None:
        """Commit what the log has: all of the intent; of a group perhaps only the first batches, which an earlier try
        had sent; or the first part of a batch that is stored in parts. The rest is dropped, and looked for later (rule
        R14)."""
        stream = self._stream
        stored = covered(result.pieces, BatchIdentity(intent.producer_epoch, intent.batches[0].base_sequence, 1))
        records = sum(piece.record_count for piece in stored)
        window, dropped = [], []
        for batch in intent.batches:
            found = min(records, batch.record_count)
            records -= found
            if found:
                digest = batch.digest if found == batch.record_count else NO_DIGEST
                offset = offset_of(stored, batch.base_sequence)
                window.append(WindowBatch(batch.base_sequence, found, offset, digest=digest))
            if found < batch.record_count:
                whole = BatchIdentity(intent.producer_epoch, batch.base_sequence, batch.record_count)
                dropped.append(rest_of(whole, found))
        if dropped:
            stream.schedule_audit(self._bound_of(intent), dropped)
        done = committed(entry, window, result.end_offset, result.anchor) if window else released(entry)
        if await stream.write(done) and stream.is_conditional:
            say_fenced(stream, done)

    # ------------------------------------------------------------------ an unverified entry
    async def _answer_known(self, entry: Entry) -> bool:
        """An unverified entry may lack something, but what it has is true: batches in its window are answered first
        (rule R9), and the log is read for others only. False: no batch was answered."""
        stream = self._stream
        if stream.is_conditional:
            return False  # another writer's batch has the same numbers (R23)
        was_any = False
        for batch in list(stream.queue):
            verdict = decide(entry, batch.identity)
            if isinstance(verdict, Duplicate) and batch in stream.queue:
                await answer_duplicate(stream, batch, verdict, is_unverified=True)
                was_any = was_any or batch not in stream.queue
        return was_any

    async def _rebuild(self, entry: Entry | None) -> None:
        """Rule R10: the entry may lack its last writes. Take everything that the log has of the producer from the
        stored bound on, or from a checkpoint where that is sufficient. The takeover has the stored bound in any case: a
        proxy that takes the takeover over has checkpoints of its own."""
        self._is_stored = entry is not None or self._stream.is_conditional
        if entry is None:
            entry = fresh(NO_DATA_GENERATION, self._stream.held.owner, 0, 0)
        bound = await self._bound_of_rebuild(entry)
        if bound is None:
            await self._stream.wait_to_read_again()
            return
        takeover = await self._write_takeover(entry, bound)
        if takeover is not None:
            await self._end_rebuild(await self._search_all(takeover, bound))

    async def _bound_of_rebuild(self, entry: Entry) -> Position | None:
        """Return the offset from which on the entry may lack something; None: it cannot be determined now."""
        if self._stream.is_conditional:
            found = await bound_of_conditional_partition(self._stream, entry)
            return None if isinstance(found, Later) else found
        return bound_of(entry)

    async def _write_takeover(self, entry: Entry, bound: Position) -> Intent | None:
        """Write the takeover: that this proxy rebuilds the entry, with all that a proxy which takes the takeover over
        has to know. None: another proxy has written meanwhile."""
        stream = self._stream
        if entry.intent is not None and entry.intent.leader >= 0:
            self._brokers_to_check.add(entry.intent.leader)
        if (left := stream.held.unrecoverable) is not None and not stream.is_conditional:
            self._unrecoverable = replace(left, owner=NOBODY)
        self._was_append_reservation = entry.is_ambiguous or (
            entry.intent is not None and entry.intent.was_append_reservation
        )
        # What was in doubt is also looked for by its content, by this proxy and by one that takes the takeover over.
        is_open = entry.intent is not None and not entry.intent.is_unrecoverable and not stream.is_conditional
        leader = await Leader(stream.topic, stream.partition)
        earlier = -1 if entry.intent is None else entry.intent.leader
        takeover = Intent(
            self._instance.instance_id,
            entry.producer_epoch,
            (),
            bound.offset,
            bound.anchor,
            entry.intent.content if entry.intent is not None and is_open else NO_CONTENT,
            earlier if earlier >= 0 or leader is None else leader,
            kind=IntentKind.TAKEN_OVER if self._was_append_reservation else IntentKind.PLAIN,
        )
        if not self._is_stored:
            # Nothing is written before the log was read: the swap of what was found fails if somebody has written
            # meanwhile (model rows P14, P15).
            stream.held.entry = with_takeover(entry, takeover)
            return takeover
        if not await stream.write(with_takeover(entry, remembering(takeover, self._unrecoverable))):
            return None
        if leader is not None and leader != takeover.leader:
            # R6: a takeover names one broker. The earlier one has to pass the quiescence check before the takeover
            # names the leader.
            self._brokers_to_check.add(leader)
            if await check_quiescence(stream.topic, stream.partition, {takeover.leader}) is None:
                held = stream.held.entry
                if held is None or held.intent is None:
                    return None
                if not await stream.write(self._renewed(held, self._instance.instance_id, leader)):
                    return None
        return takeover

    async def _search_all(self, takeover: Intent, bound: Position) -> Resolution:
        """Search for all that the log has of the producer, and for the waiting batches by their content."""
        stream = self._stream
        if takeover.content != NO_CONTENT:
            self._contents[takeover.content] = ()
        if not stream.is_conditional:  # what waits in a conditional partition is looked for at its own offset (R23)
            await self._look_for_waiting()
            self._checkpoint = await self._checkpoint_above(bound)
        return await self._search(takeover, self._contents)

    async def _end_rebuild(self, result: Resolution) -> None:
        """Write what was found."""
        stream = self._stream
        entry = stream.held.entry
        if self._lease_epoch != self._instance.lease_epoch or entry is None:
            stream.held.forget()
        elif self._is_blind:
            stream.held.forget_absent()
        elif isinstance(result, Searched) and result.is_cut and self._was_append_reservation:
            await stream.write(ambiguous(entry, self._instance.data_generation))
        elif isinstance(result, Searched):
            await self._finish_rebuild(entry, result)
        elif isinstance(result, Undecidable):
            await self._end_undecided(entry)
        elif self._is_stored:  # the proxy to which the client comes next tries again (rule R17)
            await stream.write(self._renewed(entry, NOBODY))
        else:
            stream.held.forget_absent()

    async def _look_for_waiting(self) -> None:
        """Look for the waiting batches by the content of their first record that is not known to be stored, too: a
        record without a batch marker does not tell whose it is. As a producer's records lie in order, nothing that
        follows a missing one is there. A batch that comes after the rebuild is looked for then (``sequencer.py``)."""
        stream = self._stream
        for batch in list(stream.queue):
            due = await due_of(batch, stream.held.entry)
            if due not in self._due and due.content != NO_CONTENT:
                self._contents[due.content] = (*self._contents.get(due.content, ()), due.identity)
            self._due.add(due)

    async def _checkpoint_above(self, bound: Position) -> Position | None:
        """Return the checkpoint above which everything lies that the waiting requests may have tried before; None if
        there is none, or if it is no later than the bound."""
        stream = self._stream
        asked_at = min([await Now(), *(batch.arrived_at for batch in stream.queue)])
        checkpoint = self._bounds.checkpoints.before_horizon((stream.topic, stream.partition), asked_at)
        return checkpoint if checkpoint is not None and checkpoint.offset > bound.offset else None

    async def _end_undecided(self, entry: Entry) -> None:
        """The log cannot tell all of an unverified producer: its entry becomes ambiguous. Of a conditional partition
        only the end of the log matters (rule R23)."""
        stream = self._stream
        if not stream.is_conditional:
            await stream.write(ambiguous(entry, self._instance.data_generation))
            return
        end = await current_end(stream.topic, stream.partition, self._brokers_to_check)
        if isinstance(end, Later):
            await stream.write(self._renewed(entry, NOBODY))
        else:
            await begin_conditional_partition(stream, entry, end[1], ())

    async def _finish_rebuild(self, entry: Entry, result: Searched) -> None:
        if self._stream.is_conditional:
            await begin_conditional_partition(self._stream, entry, self._searched_to, result.pieces)
            return
        is_since_checkpoint = self._checkpoint is not None
        done = completed(
            entry, result, self._instance.data_generation, self._unrecoverable, is_since_checkpoint=is_since_checkpoint
        )
        if not await self._stream.write(done):
            return
        lease_epoch, due = self._instance.lease_epoch, frozenset(self._due)
        self._stream.looked_for = LookedFor(lease_epoch, state_read(done), due, is_all=not result.has_unmarked)
        # Rule R14: the batch may have been sent before, by a proxy that held the lost state. A copy that is appended
        # late lies after the end that was read.
        missing = lowest_missing(done, (batch.identity for batch in self._stream.queue))
        if missing is not None:
            bound = Position(self._searched_to, NO_ANCHOR)
            self._stream.schedule_audit(bound, [missing])

    # ------------------------------------------------------------------ searching
    async def _search(self, intent: Intent, contents: Mapping[bytes, tuple[BatchIdentity, ...]]) -> Resolution:
        """Search until the outcome is known. Undecidable: the requests that wait for the intent's batches were answered
        with that."""
        wanted: BatchIdentity | None = None
        if intent.batches:
            records = sum(batch.record_count for batch in intent.batches)
            wanted = BatchIdentity(intent.producer_epoch, intent.batches[0].base_sequence, records)
        search = self._new_search(intent, contents, wanted)
        reason = "unverified" if self._is_unverified else "open intent"
        result = await resolve(
            self._stream, search, reason, wanted, self._lease_epoch, is_too_little=self._is_too_little
        )
        if search.moved_to != NO_OFFSET:
            self._moved_to = search.moved_to
        if isinstance(result, Searched):
            self._searched_to = search.reached
        elif isinstance(result, Undecidable):
            await self._answer_undecidable(intent, result.reason)
        return result

    def _is_too_little(self, search: LogSearch, result: Searched | Later | Undecidable) -> bool:
        """Was the log only read from a checkpoint on, and does that not determine the producer's state? Then the search
        has to begin at the stored bound. If the checkpoint did not hold, those of the partition are forgotten."""
        stream = self._stream
        if self._checkpoint is not None and search.wider is None:
            self._checkpoint = None
            self._bounds.forget(stream.topic, stream.partition)
        if self._checkpoint is None or stream.held.entry is None or not isinstance(result, Searched):
            return False
        if is_enough(stream.held.entry, result.pieces, lowest_of(batch.identity for batch in stream.queue)):
            return False
        self._checkpoint = None
        return True

    def _new_search(
        self, intent: Intent, contents: Mapping[bytes, tuple[BatchIdentity, ...]], wanted: BatchIdentity | None
    ) -> LogSearch:
        """Make a search; ``wanted`` None: for everything that the log has of the producer."""
        stream = self._stream
        bound, brokers_to_check = self._bound_of(intent), set(self._brokers_to_check)
        if intent.leader >= 0:
            brokers_to_check.add(intent.leader)
        self._led_at = stream.observers.time.now
        may_hide = stream.log_may_hide_producers and not stream.is_conditional  # those are known by their place (R23)
        self._is_blind = not self._is_stored and not stream.queue and may_hide
        joints = self._joints() if wanted is None and may_hide else ()
        return LogSearch(
            Wanted(
                *(stream.topic, stream.partition, stream.producer_id, self._checkpoint or bound, wanted),
                frozenset(brokers_to_check),
                contents=contents,
                # a conditional partition is read to where the log ends now (rule R23)
                follows_end=stream.is_conditional,
                joints=joints,
                wider=None if self._checkpoint is None else bound,
                is_wanted=always if self._is_stored else self._is_wanted,
            )
        )

    def _joints(self) -> tuple[Joint, ...]:
        """Return where batches of the producer may meet: where the waiting ones and what was unrecoverable begin and
        end, where the entry ends, and where these epochs begin."""
        entry, left = self._stream.held.entry, self._unrecoverable
        known = [batch.identity for batch in self._stream.queue]
        if entry is not None:
            known.append(BatchIdentity(entry.producer_epoch, entry.next_sequence, 0))
        if left is not None:
            known += [BatchIdentity(left.producer_epoch, one.base_sequence, one.record_count) for one in left.batches]
        return tuple(dict.fromkeys(joint for one in known for joint in joints_of(one)))

    def _renewed(self, entry: Entry, owner: bytes, leader: int | None = None) -> Entry:
        return renewed(entry, owner, None, leader, self._moved_to)

    def _bound_of(self, intent: Intent) -> Position:
        moved = self._moved_to != NO_OFFSET
        return Position(self._moved_to, NO_ANCHOR) if moved else Position(intent.lower_bound, intent.anchor)

    async def _answer_undecidable(self, intent: Intent, reason: str) -> None:
        """Answer the requests that wait for the intent's batches; other batches are unaffected."""
        stream = self._stream
        for batch in list(stream.queue):
            if await is_in_intent(intent, batch):
                stream.dismiss(batch, answers.undecidable(reason), "undecidable")
