"""What becomes of a group whose append (``append.py``) has not ended as a plain success: an append with an error is
confirmed, a refused group made smaller, sent one by one or answered, an unknown outcome resolved. Rules R5, R6, R7,
R16, R17, R19.

Nothing is sent here: what may be sent again is handed back, with what is left of it. A group is one wrapper or, where a
single batch is too large for the broker, the first part of what is left of it: that is committed, and the rest is due
again like a batch of its own. An intent that is left open here is resolved by ``takeover.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...codecs.error_codes import ErrorCode, name_of
from ...codecs.logged import Logged, LoggedBatch, anchor_of
from ...state.commit import Stored, committed, released, renewed, unrecoverable
from ...state.conditional import shift_of, unsure
from ...state.decide import BatchIdentity
from ...state.entry import NO_ANCHOR, NO_DIGEST, NO_OFFSET, NO_TIME, NOBODY, WindowBatch
from .. import limits
from ..events import AppendAfterDeadline, AppendSentAgain, NoRoomForBatchMarker
from ..flow.effects import Leader, Wait, in_steps
from ..flow.form import Form
from ..flow.outcome import (
    CONTENT_ERRORS,
    NUMBER_ERRORS,
    ROUTING_ERRORS,
    SIZE_ERRORS,
    Appended,
    InDoubt,
    NotSent,
    Outcome,
    Refused,
    ended,
)
from ..flow.wrapper import Wrapper
from ..partition_log.log_chunk import carries
from ..partition_log.log_offsets import Later, Position, Unreadable, look_at
from ..partition_log.log_search import LogSearch, Searched, Undecidable, Wanted, covered, is_covered
from . import answers
from .append import Prepared, Trouble, prepared
from .batch import Answer
from .conditional import tell_displaced
from .duplicates import digest_at, digest_of_logged
from .grouping import (
    compressing_harder,
    halving,
    leaving_the_batch_marker_out,
    located,
    offset_of,
    planning,
)
from .resolution import LeftOpen, resolve
from .stream import Stream


class Recovery:
    """One group, of which an append has not ended as a plain success."""

    def __init__(self, stream: Stream, trouble: Trouble) -> None:
        """``stream.held``: has the entry with the group's intent."""
        entry, pieces = stream.held.entry, trouble.pieces
        assert entry is not None
        assert entry.intent is not None
        self._stream = stream
        self._instance = stream.instance
        self._observers = stream.observers
        self._topics = stream.topics
        self._bounds = stream.bounds
        self._group = trouble.group
        self._pieces = pieces
        """The wrappers that are left of the group; the outcome is that of the first."""
        self._sent = pieces[0].identities
        self._form = pieces[0].form
        self._content = entry.intent.content
        self._leader = entry.intent.leader
        self._lease_epoch = trouble.lease_epoch
        self._owner = entry.intent.owner
        self._is_clean = trouble.is_clean
        self._is_nameless = False
        self._bound = Position(entry.intent.lower_bound, entry.intent.anchor)
        self._moved_to = NO_OFFSET

    async def work(self, outcome: Outcome) -> Prepared | None:
        """Work until what was sent is in the log and answered, refused and answered, or has to begin again (None); or
        until it may be sent again, or in other pieces."""
        if self._observers.wants_outcomes:
            self._observers.report(ended(self._leader, *self._stream.key[1:], self._sent, outcome))
        if isinstance(outcome, Appended):
            outcome = await self._confirmed(self._pieces[0], outcome)
        if isinstance(outcome, Appended):
            await self._appended(self._pieces[0], outcome)
            return None
        if isinstance(outcome, NotSent):
            await self._not_sent()
            return None
        if isinstance(outcome, Refused):
            goes_on = await self._refused(self._pieces[0], outcome)
        else:
            goes_on = await self._resolve(outcome)
        return self._again_prepared() if goes_on else None

    def _again_prepared(self) -> Prepared:
        entry = self._stream.held.packed
        assert entry is not None
        where = self._leader, self._bound, self._lease_epoch, self._owner
        return prepared(
            self._stream, self._group, self._pieces, entry, *where, is_reserved=True, is_clean=self._is_clean
        )

    # ------------------------------------------------------------------ appended
    async def _confirmed(self, piece: Wrapper, outcome: Appended) -> Outcome:
        """Rule R5: an append with an error code may vanish yet, so the message there has to carry our batch marker,
        with everything that was in the wrapper. If not, it is in doubt, as is a record that was sent without a batch
        marker."""
        if not piece.is_marked:
            self._is_nameless = True
            self._observers.report(NoRoomForBatchMarker(*self._stream.key[1:], len(piece.message_set)))
        if outcome.error_code == 0:
            return await self._compared(piece, outcome) if self._form is Form.OWN_IDS else outcome
        self._is_clean = False
        self._bounds.drop(self._stream.topic, self._stream.partition)
        wanted, anchor = located(piece, outcome.base_offset), piece.anchor

        async def fits(message: Logged) -> bool:
            return carries(message, wanted, self._stream.producer_id) and anchor_of(message) == anchor

        there = await look_at(self._stream.topic, self._stream.partition, outcome.base_offset, fits)
        if there is True:
            seen = Appended(outcome.base_offset, 0, outcome.log_append_time_ms)
            return await self._compared(piece, seen) if self._form is Form.OWN_IDS else seen
        reason = there.reason if isinstance(there, Later) else "another record is where it was appended"
        return InDoubt(f"the broker answered {name_of(outcome.error_code)} with an offset: {reason}", self._leader)

    async def _compared(self, piece: Wrapper, outcome: Appended) -> Outcome:
        """Rule R9: a broker compares no content. It answers with an old offset where it has the numbers already, and
        with the batch's newest timestamp as a time of its own."""
        self._is_clean = False
        pieces, producer_id = located(piece, outcome.base_offset), self._stream.producer_id
        stored: list[LoggedBatch] = []

        async def fits(message: Logged) -> bool:
            if not isinstance(message, LoggedBatch) or not carries(message, pieces, producer_id):
                return False
            stored.append(message)
            return True

        found = await look_at(self._stream.topic, self._stream.partition, outcome.base_offset, fits)
        if found is True:
            logged = stored[-1]
            digest = await digest_of_logged(self._stream, logged)
            if digest in (NO_DIGEST, self._group[0].digest):
                return outcome if logged.header.is_log_append_time else replace(outcome, log_append_time_ms=NO_TIME)
            found = digest if isinstance(digest, Later) else False
        if isinstance(found, Later) and not isinstance(found, Unreadable):  # it proves nothing: the log is asked again
            return InDoubt(found.reason, self._leader)
        reason = found.reason if isinstance(found, Unreadable) else "it is not where the broker answered"
        return InDoubt(reason, self._leader, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)

    async def _appended(self, piece: Wrapper, outcome: Appended) -> None:
        # The broker stores this topic in its own way, so the anchor of what was sent would never fit: none is better.
        is_unmarked = self._stream.topic in self._topics.unmarked
        anchor = NO_ANCHOR if is_unmarked else piece.anchor
        if self._topics.too_large:
            self._topics.note_taken(self._stream.topic, len(piece.message_set))
        self._pieces.popleft()
        await self._commit(located(piece, outcome.base_offset), anchor, piece, outcome)

    async def _commit(
        self,
        stored: Sequence[Stored],
        anchor: bytes,
        piece: Wrapper | None = None,
        outcome: Appended | None = None,
    ) -> None:
        """The first records of the group are in the log. Batches that are complete are answered now, the others are due
        again. The commit rides on the next swap (rule R7). It is written before the answer where the log alone cannot
        tell whose records they are, or that they are one batch, or where they lie elsewhere than expected (R23)."""
        stream = self._stream
        produce_connection, time_ms = (
            (None, NO_TIME) if outcome is None else (outcome.produce_connection, outcome.log_append_time_ms)
        )
        end_offset = stored[-1].base_offset + stored[-1].record_count
        records = sum([piece.record_count for piece in stored])
        window, due = [], []
        for batch in self._group:
            whole, known = batch.identity, batch.stored_records
            found = min(known + records, whole.record_count)
            records -= found - known
            if found > known:
                offset = batch.base_offset if known else offset_of(stored, whole.base_sequence)
                is_whole = found == whole.record_count
                digest = batch.digest if is_whole else NO_DIGEST
                window.append(WindowBatch(whole.base_sequence, found, offset, time_ms, digest))
                if not is_whole:
                    batch.note_stored(found, offset, self._pieces)
            if found < whole.record_count:
                due.append(batch)
        done = self._group[: len(self._group) - len(due)]
        if self._lease_epoch == self._instance.lease_epoch:
            assert stream.held.entry is not None
            entry = committed(stream.held.entry, window, end_offset, anchor)
            stream.held.hold(entry, done if self._observers.step_begins() else ())
            stream.remember_produce_connection(done, produce_connection)
            if self._is_clean and piece is not None:
                if anchor != NO_ANCHOR:
                    self._bounds.note(stream.topic, stream.partition, Position(end_offset, anchor))
                if piece.is_marked:
                    stream.probe_batch_marker(piece.message_set, end_offset - 1)
        else:
            stream.held.forget()
        is_displaced = stream.is_conditional and any(shift_of(one.base_sequence, one.base_offset) for one in window)
        is_untold = self._is_nameless or (done and done[0].stored_records)
        if (is_untold or is_displaced) and stream.held.is_unwritten and stream.held.entry is not None:
            await stream.write(stream.held.entry)
        if is_displaced:
            tell_displaced(stream, done, window)
            done = []
        measure = self._observers.measure
        for batch, in_log in zip(done, window, strict=False):
            stream.answer(batch, answers.appended(in_log.base_offset, time_ms), "appended")
            if measure is not None and self._is_clean and produce_connection is not None:
                measure(batch.arrived_at, produce_connection)
        if due:
            stream.put_back(due)

    # ------------------------------------------------------------------ not appended
    async def _not_sent(self) -> None:
        """Nothing of this piece has left: the batches that are still wanted are due again."""
        self._let_go()
        self._stream.put_back(self._group)
        await Leader(self._stream.topic, self._stream.partition, refresh=True)
        await Wait(limits.PROBE_SECONDS)

    def _let_go(self) -> None:
        """Nothing of what was reserved is in the log: release the intent."""
        stream = self._stream
        if self._lease_epoch != self._instance.lease_epoch:
            stream.held.forget()
        elif stream.held.entry is not None:
            stream.held.hold(released(stream.held.entry))

    def _leave(self) -> None:
        """Leave the intent open without an owner: the proxy to which the client comes next resolves it (rule R17)."""
        entry = self._stream.held.entry
        assert entry is not None
        self._stream.held.hold(renewed(entry, NOBODY, moved_to=self._moved_to))

    async def _refused(self, piece: Wrapper, outcome: Refused) -> bool:
        """The broker did not take the piece, for certain. True: continue with other pieces (rule R19)."""
        code = outcome.error_code
        if code in CONTENT_ERRORS and len(self._group) > 1:
            return self._one_by_one()
        if code in SIZE_ERRORS and await self._make_smaller(piece):
            return True
        if code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT and self._form is Form.OWN_IDS:
            return self._without_numbers()
        if code in ROUTING_ERRORS:
            await Leader(self._stream.topic, self._stream.partition, refresh=True)
        self._let_go()
        answer = answers.refused(code)
        if (records := self._group[0].stored_records) and not answers.is_retriable(code):
            answer = answers.partly_stored(records, code)
        self._answer_all(answer, "refused")
        return False

    def _one_by_one(self) -> bool:
        """One batch of the group may be the one that the broker refuses: sent one by one, it shows which (rule R19)."""
        for batch in self._group:
            batch.is_alone = True
        self._let_go()
        self._stream.put_back(self._group)
        return False

    async def _make_smaller(self, piece: Wrapper) -> bool:
        """Codes 10 and 18: compress first, then split, at last leave the batch marker out. False: it cannot get
        smaller."""
        stream, sender = self._stream, self._group[0].sender
        self._topics.note_too_large(stream.topic, len(piece.message_set))
        if not piece.is_compressed:
            size_bytes = len(piece.message_set)
            piece = self._pieces[0] = await in_steps(partial(compressing_harder, stream.target, piece), sender)
            if len(piece.message_set) < size_bytes:
                return True
        if stream.is_conditional or not self._form.holds_groups:
            return False  # R23: as a whole and with its batch marker, or not at all
        if piece.identities[0].record_count == 1:
            return await self._without_batch_marker(piece)
        halves = await in_steps(partial(halving, stream.target, piece), sender)
        self._pieces.popleft()
        self._pieces.extendleft(reversed(halves))
        return True

    async def _without_batch_marker(self, piece: Wrapper) -> bool:
        """The last resort for a single record. True: it goes in a form that may be small enough."""
        steps = partial(leaving_the_batch_marker_out, self._stream.target, piece)
        bare = await in_steps(steps, self._group[0].sender)
        if bare is None:
            return False
        self._pieces[0] = bare
        return True

    # ------------------------------------------------------------------ in doubt
    async def _resolve(self, outcome: Outcome) -> bool:
        """Rule R6. True: send it again."""
        assert isinstance(outcome, InDoubt)
        stream = self._stream
        if outcome.is_late:  # R14: another proxy may have appended them meanwhile
            epoch, sequences = self._sent[0].producer_epoch, tuple(one.base_sequence for one in self._sent)
            self._observers.report(
                AppendAfterDeadline(stream.producer_id, epoch, sequences, stream.topic, stream.partition)
            )
            stream.schedule_audit(self._bound, self._batches)
        if self._lease_epoch != self._instance.lease_epoch:
            return self._void(outcome.reason)
        whole = self._whole
        search = self._new_search(outcome.broker_id, whole)
        result = await resolve(
            stream, search, outcome.reason, whole, self._lease_epoch, before_try=self._let_go_of_bytes
        )
        if search.moved_to != NO_OFFSET:  # R8
            self._moved_to, self._bound = search.moved_to, search.bound
        if self._lease_epoch != self._instance.lease_epoch:
            return self._void("the state of the proxy changed while the batch was in doubt")
        if isinstance(result, Undecidable):
            return self._give_up(result.reason)
        if isinstance(result, LeftOpen):
            self._leave()
            return False
        return await self._conclude(outcome, result, whole)

    async def _conclude(self, outcome: InDoubt, result: Searched, whole: BatchIdentity) -> bool:
        """It is known what the log has of what was sent. Of a group that may be the first batches only, from an earlier
        try: these are answered, and the others are due again."""
        stored = covered(result.pieces, whole)
        if stored and self._form.is_v2:
            digest = self._group[0].digest
            # Its marker is a fingerprint of 48 bits only, and its own numbers may be those of other records.
            found = await digest_at(self._stream, stored[0])
            if isinstance(found, Unreadable) or (found != digest and NO_DIGEST not in (found, digest)):
                return self._give_up("what has its identity in the log is another batch, or cannot be read")
            if isinstance(found, Later):
                self._leave()
                self._answer_all(answers.in_doubt(found.reason), "in_doubt")
                return False
        self._is_clean = False
        if not is_covered(stored, whole):
            self._stream.schedule_audit(self._bound, self._batches)  # R14
        elif self._pieces:
            self._pieces.popleft()
        if stored:
            await self._commit(stored, result.anchor)
            return False
        if outcome.error_code in CONTENT_ERRORS and len(self._group) > 1:
            return self._one_by_one()
        if outcome.error_code in NUMBER_ERRORS and self._form is Form.OWN_IDS:
            return self._numbers_refused(outcome.error_code, result)
        return await self._again()

    def _numbers_refused(self, code: int, result: Searched) -> bool:
        """The broker does not take the batch's epoch and sequence, and the log does not have it. A broker that has less
        of the epoch than the entry takes it without them."""
        has_others = code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER or result.has_others or result.pieces
        if code != ErrorCode.INVALID_PRODUCER_EPOCH and not has_others:
            return self._without_numbers()
        self._let_go()
        answer = answers.others_at_broker() if has_others else answers.newer_epoch_at_broker()
        self._answer_all(answer, "refused")
        return False

    def _without_numbers(self) -> bool:
        """Send it, and the rest of its epoch, without its producer id: its broker does not take that there. It is read
        back: a topic that is stored in format v1 loses its batch marker."""
        self._let_go()
        self._stream.context.batch_marker_probe.probed.discard((self._stream.topic, self._stream.partition))
        self._stream.marked_epoch = self._sent[0].producer_epoch
        self._stream.put_back(self._group)
        return False

    def _let_go_of_bytes(self) -> None:
        """Release the records of batches whose clients have gone: an unknown outcome may last as long as a broker
        hangs. The group is not sent again without all of its clients (rule R17), and a retry brings the records
        again."""
        unwanted = [batch for batch in self._group if not batch.is_wanted]
        for batch in unwanted:
            batch.let_go_of_records()
        if unwanted:
            self._pieces.clear()

    @property
    def _whole(self) -> BatchIdentity:
        """What was sent, as one range of records."""
        first = self._sent[0]
        records = sum(identity.record_count for identity in self._sent)
        return BatchIdentity(first.producer_epoch, first.base_sequence, records)

    @property
    def _batches(self) -> list[BatchIdentity]:
        """What was sent, as an audit looks for it (rule R14)."""
        return [BatchIdentity(*identity[1:]) for identity in self._sent]

    def _new_search(self, broker_id: int, whole: BatchIdentity) -> LogSearch:
        entry = self._stream.held.entry
        assert entry is not None and entry.intent is not None  # noqa: PT018
        return LogSearch(
            Wanted(
                *(self._stream.topic, self._stream.partition, self._stream.producer_id, self._bound, whole),
                frozenset((broker_id, entry.intent.leader)),
                contents={self._content: ()},
                follows_end=self._stream.is_conditional,
            )
        )

    async def _again(self) -> bool:
        """Not in the log: renew the intent, then forward it again, at most twice (rule R6)."""
        stream = self._stream
        entry = stream.held.entry
        assert entry is not None
        assert entry.intent is not None
        attempts = entry.intent.attempts + 1
        if stream.why_not_sent(self._group, self._owner) is not None:  # R12, R17
            self._let_go()
            stream.put_back(self._group)
            return False
        if attempts >= limits.FORWARDS_MAX:
            self._let_go()
            for batch in self._group:
                stream.answer(batch, answers.in_doubt("the broker lost the batch several times"), "lost")
            return False
        leader = await Leader(stream.topic, stream.partition, refresh=True)
        self._leader = self._leader if leader is None else leader
        form = self._form_at(self._leader)
        if form is not self._form or stream.has_to_tell(form):  # as it was sent, it cannot be appended there
            self._let_go()
            stream.put_back(self._group)
            return False
        if not await stream.write(renewed(entry, self._owner, attempts, self._leader, self._moved_to), is_reserve=True):
            if stream.held.entry is entry and self._lease_epoch == self._instance.lease_epoch:
                self._let_go()  # R22: its name has a newer instance
            stream.put_back(self._group)
            return False
        if not self._pieces:
            steps = partial(planning, stream.target, self._group, form)
            self._pieces = await in_steps(steps, self._group[0].sender)
        self._observers.report(AppendSentAgain(*stream.key, self._sent[0].base_sequence, attempts))
        return True

    def _form_at(self, leader: int) -> Form:
        """Return how this broker stores batches; if it is not known any more, as those that were sent."""
        broker = self._stream.context.outside.leaders.broker(leader)
        return self._form if broker is None else self._stream.form_at(broker)

    def _void(self, reason: str) -> bool:
        self._stream.held.forget()
        self._answer_all(answers.in_doubt(reason), "in_doubt")
        return False

    def _give_up(self, reason: str) -> bool:
        """The log cannot tell: the user has to know, and later batches must not wait for ever. The batches are
        remembered, as a client that did not get this answer sends them again (rule R17)."""
        entry = self._stream.held.entry
        assert entry is not None
        if self._stream.is_conditional:
            self._stream.held.hold(unsure(entry))
        else:
            self._stream.held.hold(unrecoverable(entry))
        self._answer_all(answers.undecidable(reason), "undecidable")
        return False

    def _answer_all(self, answer: Answer, verdict: str) -> None:
        for batch in self._group:
            self._stream.answer(batch, answer, verdict)
