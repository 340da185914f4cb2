"""A reserved group on its way to the log: append, read the outcome, resolve what is in doubt, commit. Rules R5, R6,
R7, R16, R19.

A group is one wrapper, or, where a single batch is too large for the broker, several parts of it one after the other.
Everything that is appended here was reserved before (R2) by ``sequencer.py``; what is left in doubt there is found
again by ``takeover.py``."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import accumulate

from ...codecs.marker import anchor_of
from ...codecs.message_set import ShallowMessage
from ...state.commit import Stored, committed, given_up, released, renewed
from ...state.decide import BatchIdentity
from ...state.entry import NO_ANCHOR, NO_OFFSET, NOBODY, WindowBatch
from .. import limits
from ..events import AppendAfterDeadline, NoRoomForMarker, Reforwarded
from ..flow.effects import Append, Leader, Wait, in_steps
from ..flow.outcome import (
    CONTENT_ERRORS,
    ROUTING_ERRORS,
    SIZE_ERRORS,
    Acknowledger,
    Appended,
    InDoubt,
    NotSent,
    Outcome,
    Refused,
    ended,
)
from ..partition_log.log_chunk import carries
from ..partition_log.log_offsets import Later, Position, look_at
from ..partition_log.log_search import LogSearch, Searched, Undecidable, covered, is_covered
from . import answers
from .batch import Answer, Batch
from .grouping import (
    GroupPlan,
    WrapperPlan,
    compressing_harder,
    halving,
    leaving_the_marker_out,
    located,
    offset_of,
    rest_of,
    stay_apart,
)
from .resolution import LeftOpen, resolve
from .stream import Stream


class Forward:
    """One group under one intent."""

    def __init__(
        self, stream: Stream, group: list[Batch], plan: GroupPlan, leader: int, placed: Sequence[Stored] = ()
    ) -> None:
        entry = stream.held.entry
        assert entry is not None
        assert entry.intent is not None
        self._stream = stream
        self._life = stream.life
        self._observers = stream.observers
        self._topics = stream.topics
        self._bounds = stream.bounds
        self._group = group
        self._pieces = deque(plan.pieces)
        self._sent_sequence = group[0].identity.base_sequence
        self._contents = {plan.content}
        self._leader = leader
        self._timeout_ms = min([batch.timeout_ms for batch in group])
        self._era = stream.life.era
        self._owner = entry.intent.owner
        self._placed = list(placed)
        self._anchor = entry.anchor
        self._is_clean = True
        self._is_nameless = False
        self._told: tuple[bytes, Stored] | None = None
        self._log_append_time_ms = -1
        self._lane: Acknowledger | None = None
        self._last: WrapperPlan | None = None
        self._bound = Position(entry.intent.lower_bound, entry.intent.anchor)
        self._moved_to = NO_OFFSET

    @property
    def _first(self) -> BatchIdentity:
        return self._group[0].identity

    @property
    def _whole(self) -> BatchIdentity:
        """The group as one range of records."""
        first = self._first
        records = sum(batch.identity.record_count for batch in self._group)
        return BatchIdentity(first.producer_epoch, first.base_sequence, records)

    @property
    def _sequences(self) -> tuple[int, ...]:
        """What the group may be found by: its batches' base sequences, and that of the part that is out (rule R14)."""
        return (*(batch.identity.base_sequence for batch in self._group), self._sent_sequence)

    async def work(self) -> None:
        """Go on until the group is in the log and answered, refused and answered, or has to begin anew."""
        stream = self._stream
        while self._pieces:
            piece = self._pieces[0]
            self._sent_sequence = piece.identities[0].base_sequence
            self._contents.add(piece.wrapper.first_content)
            self._told = None
            started = self._observers.step_begins()
            outcome: Outcome = await Append(
                self._leader,
                stream.topic,
                stream.partition,
                piece.wrapper if piece.wrapper.joined_bytes_max else piece.message_set,
                self._timeout_ms,
                self._may_send,
                piece.identities,
                self._group[0].way,
                self._group[0].sender,
            )
            if started:
                stream.step("append", self._group, started, type(outcome).__name__)
            if self._observers.wants_outcomes:
                self._observers.report(ended(self._leader, *stream.key[1:], piece.identities, outcome))
            if isinstance(outcome, Appended):
                outcome = await self._confirmed(piece, outcome)
            if isinstance(outcome, Appended):
                self._place(piece, outcome)
                continue
            if isinstance(outcome, NotSent):
                await self._not_sent()
                return
            if isinstance(outcome, Refused):
                go_on = await self._refused(piece, outcome)
            else:
                del piece  # a doubt may last, and may let go of it
                go_on = await self._resolve(outcome)
            if not go_on:
                return
        await self._commit()

    # R17 lives here: nothing is forwarded for a client that has gone.
    def _may_send(self) -> str | None:
        """Asked in the step of the send (rules R4, R17)."""
        if self._life.incarnation != self._owner:
            return "the incarnation that reserved it has ended"
        for batch in self._group:
            if not batch.is_wanted:
                return "a client has gone"
        if self._stream.is_outdated(self._group[0].identity.producer_epoch):
            return "its client has begun a newer epoch"
        return None

    # ------------------------------------------------------------------ appended
    async def _confirmed(self, piece: WrapperPlan, outcome: Appended) -> Outcome:
        """Rule R5: appended, but with an error code. It may vanish yet, so the record there has to carry our marker,
        with everything that was in the wrapper. What left without one is looked for there in the whole search."""
        if not piece.wrapper.is_marked:
            self._is_nameless = True
            self._told = (piece.wrapper.first_content, located(piece, outcome.base_offset)[0])
            self._observers.report(NoRoomForMarker(*self._stream.key[1:], len(piece.message_set)))
        if outcome.error_code == 0:
            return outcome
        self._is_clean = False
        self._bounds.drop(self._stream.topic, self._stream.partition)
        wanted, anchor = located(piece, outcome.base_offset), outcome.anchor or piece.anchor

        async def fits(message: ShallowMessage) -> bool:
            return carries(message, wanted, self._stream.producer_id) and anchor_of(message) == anchor

        there = await look_at(self._stream.topic, self._stream.partition, outcome.base_offset, fits)
        if there is True:
            return Appended(outcome.base_offset, 0, outcome.log_append_time_ms, anchor=anchor)
        reason = there.reason if isinstance(there, Later) else "another record is where it was appended"
        return InDoubt(f"the broker answered with code {outcome.error_code}: {reason}", self._leader)

    def _place(self, piece: WrapperPlan, outcome: Appended) -> None:
        self._placed.extend(located(piece, outcome.base_offset))
        # What the broker has rebuilt is not known by what was sent: no anchor is better than one that never fits.
        is_unmarked = self._stream.topic in self._topics.unmarked
        self._anchor = NO_ANCHOR if is_unmarked else outcome.anchor or piece.anchor
        if self._topics.too_large and not piece.wrapper.joined_bytes_max:
            self._topics.note_taken(self._stream.topic, len(piece.message_set))
        self._lane = outcome.lane
        self._last = piece
        self._log_append_time_ms = outcome.log_append_time_ms
        self._pieces.popleft()

    async def _commit(self) -> None:
        """Everything is in the log. The client is answered now; the commit rides on the next swap (rule R7), unless
        nothing in the log tells whose it is: then it is written before."""
        stream = self._stream
        last = self._placed[-1]
        end_offset = last.base_offset + last.record_count
        window = []
        for batch in self._group:
            offset = offset_of(self._placed, batch.identity.base_sequence)
            window.append(
                WindowBatch(batch.identity.base_sequence, batch.identity.record_count, offset, self._log_append_time_ms)
            )
        if self._era == self._life.era:
            assert stream.held.entry is not None
            entry = committed(stream.held.entry, window, end_offset, self._anchor)
            stream.held.hold(entry, self._group if self._observers.step_begins() else ())
            stream.remember_lane(self._group, self._lane)
            if self._is_clean:
                if self._anchor != NO_ANCHOR:
                    self._bounds.note(stream.topic, stream.partition, Position(end_offset, self._anchor))
                self._look_back(end_offset - 1)
        else:
            stream.held.forget()
        if self._is_nameless and stream.held.is_unwritten and stream.held.entry is not None:
            await stream.write(stream.held.entry)
        measure = self._observers.measure
        for batch, stored in zip(self._group, window, strict=True):
            stream.answer(batch, answers.appended(stored.base_offset, stored.log_append_time_ms), "appended")
            if measure is not None and self._is_clean and self._lane is not None:
                measure(batch.arrived_at, self._lane)

    def _look_back(self, last_offset: int) -> None:
        """The first append of a partition in this process is read back, aside."""
        stream = self._stream
        place = (stream.topic, stream.partition)
        probe = stream.context.marker_probe
        if place not in probe.probed and self._last is not None and self._last.wrapper.is_marked:
            probe.probed.add(place)
            stream.work_aside(probe.probe(place, self._last.message_set, last_offset))

    # ------------------------------------------------------------------ not appended
    async def _not_sent(self) -> None:
        """Nothing of this piece has left: the batches that are still wanted are due again."""
        self._let_go()
        self._stream.put_back(self._group)
        await Leader(self._stream.topic, self._stream.partition, refresh=True)
        await Wait(limits.PROBE_SECONDS)

    def _let_go(self) -> None:
        """Release the intent. If a part of the batch is in the log it stays open, owned by nobody: the retry brings the
        rest, to whatever proxy it comes (rules R13, R17)."""
        stream = self._stream
        if self._era != self._life.era:
            stream.held.forget()
        elif stream.held.entry is not None:
            entry = stream.held.entry
            open_still = renewed(entry, NOBODY, moved_to=self._moved_to)
            stream.held.hold(open_still if self._placed else released(entry))

    def _leave(self) -> None:
        """The intent stays open, and nobody's: to be resolved where the client comes next (rule R17)."""
        entry = self._stream.held.entry
        assert entry is not None
        self._stream.held.hold(renewed(entry, NOBODY, moved_to=self._moved_to))

    async def _refused(self, piece: WrapperPlan, outcome: Refused) -> bool:
        """The broker did not take the piece, for certain. True: go on with other pieces (rule R19)."""
        code = outcome.error_code
        if code in CONTENT_ERRORS and outcome.merged_bytes:
            return self._apart(piece, outcome)
        if code in CONTENT_ERRORS and len(self._group) > 1:
            return self._one_by_one()
        if code in SIZE_ERRORS and await self._make_smaller(piece):
            return True
        if code in ROUTING_ERRORS:
            await Leader(self._stream.topic, self._stream.partition, refresh=True)
        self._let_go()
        answer = answers.refused(code)
        if self._placed and not answers.is_retriable(code):
            answer = answers.partly_stored(sum(part.record_count for part in self._placed), code)
        self._answer_all(answer, "refused")
        return False

    def _apart(self, piece: WrapperPlan, outcome: Refused) -> bool:
        """Another producer's records may be what the broker does not like: each goes alone, under the intent that it
        has, and is not merged again (rule R19)."""
        if outcome.error_code in SIZE_ERRORS:
            self._topics.note_too_large(self._stream.topic, outcome.merged_bytes)
        stay_apart(self._group, [piece])
        return True

    def _one_by_one(self) -> bool:
        """One of the group may be what the broker does not like: alone, it is known which (rule R19)."""
        for batch in self._group:
            batch.is_alone = True
        self._let_go()
        self._stream.put_back(self._group)
        return False

    async def _make_smaller(self, piece: WrapperPlan) -> bool:
        """Codes 10 and 18: compress first, then split, at last leave the marker out."""
        stream, sender = self._stream, self._group[0].sender
        self._topics.note_too_large(stream.topic, len(piece.message_set))
        if not piece.is_compressed:
            size_bytes = len(piece.message_set)
            piece = self._pieces[0] = await in_steps(partial(compressing_harder, stream.target, piece), sender)
            if len(piece.message_set) < size_bytes:
                return True
        if piece.identities[0].record_count == 1:
            return await self._without_marker(piece)
        if len(self._pieces) >= limits.PARTS_MAX:
            return False
        halves = await in_steps(partial(halving, stream.target, piece), sender)
        self._pieces.popleft()
        self._pieces.extendleft(reversed(halves))
        return True

    async def _without_marker(self, piece: WrapperPlan) -> bool:
        """The last resort for a single record. True: it goes in a form that may be small enough."""
        steps = partial(leaving_the_marker_out, self._stream.target, piece)
        bare = await in_steps(steps, self._group[0].sender)
        if bare is None:
            return False
        self._pieces[0] = bare
        return True

    # ------------------------------------------------------------------ in doubt
    async def _resolve(self, outcome: Outcome) -> bool:
        """Rule R6. True: go on with the pieces that are left."""
        assert isinstance(outcome, InDoubt)
        stream = self._stream
        if outcome.is_late:  # R14: another proxy may have appended them meanwhile
            names = (self._first.producer_epoch, tuple(batch.identity.base_sequence for batch in self._group))
            self._observers.report(AppendAfterDeadline(stream.producer_id, *names, stream.topic, stream.partition))
            stream.schedule_audit(self._bound, self._first.producer_epoch, self._sequences)
        if self._era != self._life.era:
            return self._void(outcome.reason)
        search = self._new_search(outcome.broker_id)
        result = await resolve(stream, search, outcome.reason, self._whole, self._era, before_try=self._let_go_of_bytes)
        if search.moved_to != NO_OFFSET:  # R8
            self._moved_to, self._bound = search.moved_to, search.bound
        if self._era != self._life.era:
            return self._void("the state of the proxy changed while the batch was in doubt")
        if isinstance(result, Undecidable):
            return self._give_up(result.reason)
        if isinstance(result, LeftOpen):
            self._leave()
            return False
        return await self._conclude(outcome, result)

    async def _conclude(self, outcome: InDoubt, result: Searched) -> bool:
        """What the log has of the group is known."""
        self._placed = covered(result.pieces, self._first)
        records = sum(piece.record_count for piece in self._placed)
        self._is_clean = False
        if records >= self._whole.record_count:
            self._pieces.clear()
            self._anchor = result.anchor
            return True
        self._stream.schedule_audit(self._bound, self._first.producer_epoch, self._sequences)  # R14
        if len(self._group) > 1 and records:
            return await self._only_first(records, result.anchor)
        if records == 0 and outcome.error_code in CONTENT_ERRORS and len(self._group) > 1:
            return self._one_by_one()
        return await self._again(records)

    def _let_go_of_bytes(self) -> None:
        """A doubt may last as long as a broker hangs. Nothing of the group is sent again without all of its clients
        (rule R17), and who comes again brings the records."""
        unwanted = [batch for batch in self._group if not batch.is_wanted]
        for batch in unwanted:
            batch.let_go_of_records()
        if unwanted:
            self._pieces.clear()

    async def _only_first(self, records: int, anchor: bytes) -> bool:
        """A group leaves as a whole. Of this one the first batches had left before, and were appended after all: they
        are answered, the others are due again."""
        ends = accumulate(batch.identity.record_count for batch in self._group)
        found = sum(end <= records for end in ends)
        left = self._group[found:]
        self._group, self._anchor = self._group[:found], anchor
        await self._commit()
        self._stream.put_back(left)
        return False

    def _new_search(self, broker_id: int) -> LogSearch:
        entry = self._stream.held.entry
        assert entry is not None and entry.intent is not None  # noqa: PT018
        search = LogSearch(
            self._stream.topic,
            self._stream.partition,
            self._stream.producer_id,
            self._bound,
            self._contents,
            {broker_id, entry.intent.leader},
            lambda pieces: is_covered(pieces, self._whole),
        )
        search.told = self._told
        return search

    async def _again(self, records_found: int) -> bool:
        """Not in the log, or only a part: renew the intent, then forward what is missing, at most twice (rule R6)."""
        stream = self._stream
        entry = stream.held.entry
        assert entry is not None
        assert entry.intent is not None
        attempts = entry.intent.attempts + 1
        if self._may_send() is not None:  # R12, R17
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
        if not await stream.write(renewed(entry, self._owner, attempts, self._leader, self._moved_to)):
            stream.put_back(self._group)
            return False
        rest = partial(rest_of, stream.target, self._group, records_found, self._pieces)
        self._pieces = deque(await in_steps(rest, self._group[0].sender))
        stay_apart(self._group, self._pieces)
        self._observers.report(Reforwarded(*stream.key, self._first.base_sequence, attempts))
        return True

    def _void(self, reason: str) -> bool:
        self._stream.held.forget()
        self._answer_all(answers.in_doubt(reason), "in_doubt")
        return False

    def _give_up(self, reason: str) -> bool:
        """It cannot be decided: the user has to know, and the next epoch must not wait for ever. The batches are
        remembered: whoever did not hear of it brings them again (rule R17)."""
        entry = self._stream.held.entry
        assert entry is not None
        self._stream.held.hold(given_up(entry))
        self._answer_all(answers.undecidable(reason), "undecidable")
        return False

    def _answer_all(self, answer: Answer, verdict: str) -> None:
        for batch in self._group:
            self._stream.answer(batch, answer, verdict)
