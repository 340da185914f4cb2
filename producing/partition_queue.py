"""One partition of one producer: which batch may be sent, and what an answer means for it and those after it. Pure.

What holds at any time:

- Batches are sent in the order of their sequences, and a batch is never changed: each try sends the same bytes.
- Only five batches, counted from the oldest without an outcome, are ever sent; those among them that have an outcome
  count, too. So whatever has to be sent again is among the last five that the server knows.
- Where nothing was out, the first batch goes alone until it is stored: a server that does not know the producer (any
  more) takes whatever sequence comes first (KIP-360), also that of a second batch whose first one it has just refused
  (KAFKA-14359).
- A batch that has to be sent again waits until every later one that is out is answered or lost; then all go again, in
  order. Meanwhile a later one may be refused as out of order: that says nothing but that an earlier one is missing.
- After a failure nothing is sent until ``start_at``; batches that are out still get the outcome of their answer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice

from ..codecs.error_codes import ErrorCode
from ..codecs.produce import PartitionAnswer
from .errors import (
    BehindFailed,
    Conflict,
    Displaced,
    Fenced,
    NotDelivered,
    OutOfOrder,
    ProduceError,
    Refused,
    Undecided,
    Undeterminable,
    UnknownProducer,
)
from .limits import CORRUPT_TRIES_MAX, IN_FLIGHT_MAX
from .numbered_batch import CONDITIONAL, SEQUENCE_MODULUS, NumberedBatch, Place, Receipt
from .reactions import Meaning, Reaction, reaction_to


class _State(Enum):
    WAITING = auto()
    OUT = auto()
    STORED = auto()
    """Its outcome is reported; it stays until those before it have theirs."""


@dataclass(slots=True, eq=False)
class QueuedBatch:
    """A batch until its outcome is reported. ``token`` is the shell's own, ``deadline`` in seconds of its clock."""

    place: Place
    batch: NumberedBatch
    deadline: float
    token: object
    in_doubt: bool = False
    """Whether it may be in the log, by an earlier try."""
    state: _State = _State.WAITING
    is_told: bool = False
    corrupt_in_row: int = 0
    last_code: int | None = None
    """What the server answered last."""
    expected_offset: int | None = None
    """Where it has to be, if it is published conditionally."""


@dataclass(slots=True)
class Outcome:
    """How a batch has ended, to be passed to the caller that waits for it."""

    batch: QueuedBatch
    result: Receipt | ProduceError


class PartitionQueue:
    """The batches of one partition, from the oldest without an outcome to the newest."""

    def __init__(self, place: Place, next_sequence: int, *, was_used: bool) -> None:
        """``was_used``: an earlier run of the program may have sent the batches that come next, so each may be in the
        log before its first try."""
        self.place = place
        self.next_sequence = next_sequence
        self.failure: ProduceError | None = None
        """Why nothing is sent any more."""
        self.out_at: int | None = None
        """The broker at which batches are out; no other one gets any meanwhile."""
        self.failures_in_row = 0
        """Tries that came to nothing, for the back-off."""
        self.not_before = 0.0
        self._was_used = was_used
        self._undecided: set[int] = set()
        """Base sequences of batches that were reported as ``Undecided`` or ``Undeterminable`` since ``start_at``: sent
        again, they are in doubt."""
        self.next_offset: int | None = None
        """Where the next batch has to be, if batches are published conditionally."""
        self._is_known = False
        """Whether the server has stored a batch since nothing was out, so that it knows which sequence is due."""
        self._batches: deque[QueuedBatch] = deque()
        self._out = 0
        """Batches that are out, also those whose outcome is reported already."""

    @property
    def is_idle(self) -> bool:
        """Whether every batch has an outcome."""
        return not self._batches

    @property
    def expects(self) -> bool:
        """Whether the next batch is published conditionally."""
        return self.next_offset is not None

    @property
    def first_deadline(self) -> float | None:
        """When the oldest batch without an outcome expires; None: there is none."""
        return next((one.deadline for one in self._batches if not one.is_told), None)

    def start_at(self, sequence: int, *, was_used: bool = True) -> None:
        """Continue with this sequence, also after a failure. Only where every batch has an outcome. ``was_used``: as at
        the beginning; False where it is certain that no server has taken the sequence."""
        self._begin_at(sequence)
        self.next_offset = None
        self._was_used = was_used
        self._undecided.clear()

    def expect(self, offset: int) -> None:
        """Publish the next batch conditionally at this offset. An earlier run is not assumed to have sent it: whether
        it is in the log is what its answer says."""
        self._begin_at(offset % SEQUENCE_MODULUS)
        self.next_offset = offset
        self._was_used = False

    def _begin_at(self, sequence: int) -> None:
        assert self.is_idle
        self.next_sequence = sequence
        self.failure = None
        self.failures_in_row = 0

    def add(self, batch: NumberedBatch, deadline: float, token: object) -> QueuedBatch:
        """Queue a batch that has ``next_sequence``; after ``expect`` it has to be at ``next_offset``."""
        assert self.failure is None
        assert batch.header.base_sequence == self.next_sequence
        self._is_known = self._is_known and not self.is_idle
        in_doubt = self._was_used or self.next_sequence in self._undecided
        queued = QueuedBatch(self.place, batch, deadline, token, in_doubt, expected_offset=self.next_offset)
        self._batches.append(queued)
        if self.next_offset is not None:
            self.next_offset += batch.header.record_count
        self.next_sequence = batch.next_sequence
        return queued

    def sendable(self) -> QueuedBatch | None:
        """Return the batch that may be sent now, if there is one."""
        if self.failure is not None:
            return None
        found: QueuedBatch | None = None
        out = 0
        for one in islice(self._batches, IN_FLIGHT_MAX if self._is_known else 1):
            if one.state is _State.OUT:
                if found is not None:
                    return None  # an earlier one goes again only when this one is back
                out += 1
            elif one.state is _State.WAITING and found is None:
                found = one
        return found if out == self._out else None  # else batches that have failed are still out: wait for them

    def sent(self, batch: QueuedBatch, broker: int) -> None:
        """The batch goes to this broker."""
        assert batch.state is _State.WAITING
        assert self.out_at in (None, broker)
        batch.state = _State.OUT
        self.out_at = broker
        self._out += 1

    def has_no_leader(self, code: int) -> None:
        """Metadata has this error for the topic: batches that fail unsent have it as their ``code``."""
        for one in self._batches:
            if one.state is _State.WAITING:
                one.last_code = code

    # ------------------------------------------------------------------ what became of a try
    def answered(self, batch: QueuedBatch, answer: PartitionAnswer) -> tuple[list[Outcome], Reaction]:
        """Take the answer to a batch that is out."""
        self._came_back(batch)
        reaction = reaction_to(answer.error_code)
        batch.last_code = answer.error_code
        if reaction.meaning is Meaning.STORED:
            if (error := self._displaced(batch, answer)) is not None:
                return self.fail(batch, error) if not batch.is_told else [], reaction
            return self._stored(batch, answer), reaction
        # Whatever the code: with an offset it was appended on that leader.
        batch.in_doubt = batch.in_doubt or reaction.is_outcome_unknown or answer.base_offset >= 0
        if batch.is_told or self._goes_again(batch, reaction):
            return [], reaction
        return self.fail(batch, self._error_of(batch, answer, reaction)), reaction

    def lost(self, batch: QueuedBatch, *, was_sent: bool = True) -> list[Outcome]:
        """The connection ended while the batch was out. ``was_sent``: False if nothing of it can have left."""
        self._came_back(batch)
        batch.in_doubt = batch.in_doubt or was_sent
        if self.failure is not None and not batch.is_told:
            return self._drop(batch)
        return []

    def expire(self, now: float) -> list[Outcome]:
        """Give up what has waited for too long."""
        outcomes: list[Outcome] = []
        while (first := next((one for one in self._batches if not one.is_told), None)) and first.deadline <= now:
            outcomes += self.fail(first, self._given_up(first, "the time for its delivery is over"))
        return outcomes

    def fail(self, batch: QueuedBatch, error: ProduceError) -> list[Outcome]:
        """End the batch with this error, and those that are not out with ``BehindFailed`` or ``Undecided``. Those that
        are out end in the same way when they come back, unless with a receipt."""
        self.failure = self.failure or error
        outcomes = [self._tell(batch, error)]
        for one in [one for one in self._batches if one.state is _State.WAITING and not one.is_told]:
            outcomes += self._drop(one)
        self._forget_told()
        return outcomes

    def give_up(self, why: str) -> list[Outcome]:
        """End all batches: nobody waits for the server any more."""
        outcomes: list[Outcome] = []
        for one in list(self._batches):
            if not one.is_told:
                outcomes += self.fail(one, self._given_up(one, why))
        return outcomes

    def end(self, error: ProduceError) -> list[Outcome]:
        """Send nothing more, as the whole producer has ended. Batches that are out still get the outcome of their
        answer."""
        self.failure = self.failure or error
        waiting = [one for one in self._batches if one.state is _State.WAITING and not one.is_told]
        return [outcome for one in waiting for outcome in self._drop(one)]

    # ------------------------------------------------------------------ inside
    def _came_back(self, batch: QueuedBatch) -> None:
        self._out -= 1
        if not self._out:
            self.out_at = None
        batch.state = _State.WAITING

    def _stored(self, batch: QueuedBatch, answer: PartitionAnswer) -> list[Outcome]:
        batch.state = _State.STORED
        self._is_known = True
        self.failures_in_row = 0
        if batch.is_told:
            return []
        header = batch.batch.header
        receipt = Receipt(
            *self.place,
            header.base_sequence,
            header.record_count,
            answer.base_offset if answer.base_offset >= 0 else None,
            answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        )
        outcome = self._tell(batch, receipt)
        self._forget_told()
        return [outcome]

    def _goes_again(self, batch: QueuedBatch, reaction: Reaction) -> bool:
        if self.failure is not None:
            return False
        if reaction.meaning is Meaning.GAP:
            return self._has_open_before(batch)
        if reaction.meaning is not Meaning.AGAIN:
            return False
        batch.corrupt_in_row = batch.corrupt_in_row + 1 if batch.last_code == ErrorCode.CORRUPT_MESSAGE else 0
        return batch.corrupt_in_row < CORRUPT_TRIES_MAX

    def _has_open_before(self, batch: QueuedBatch) -> bool:
        for one in self._batches:
            if one is batch:
                return False
            if one.state is not _State.STORED:
                return True
        return False

    def _error_of(self, batch: QueuedBatch, answer: PartitionAnswer, reaction: Reaction) -> ProduceError:
        kind: type[ProduceError]
        if batch.expected_offset is not None and reaction.meaning is Meaning.GAP:
            return self._conflict(batch, batch.expected_offset, answer)
        if answer.error_code == ErrorCode.INVALID_RECORD:
            return self._final(batch, answer)
        if self.failure is not None and reaction.meaning is not Meaning.FENCED:
            return self._behind(batch)
        if reaction.meaning is Meaning.FENCED:
            kind, what = Fenced, "the producer is fenced"
        elif answer.error_code == ErrorCode.UNKNOWN_PRODUCER_ID:
            kind, what = UnknownProducer, "the server does not know the producer any more"
        elif reaction.meaning is Meaning.GAP:
            kind, what = OutOfOrder, "the server expects another sequence"
        elif batch.in_doubt:
            kind, what = Undecided, "the server takes it no more, and it may be in the log"
        else:
            kind, what = Refused, "the server refuses it"
        return self._error(kind, batch, what, answer.message)

    def _displaced(self, batch: QueuedBatch, answer: PartitionAnswer) -> ProduceError | None:
        """Return the error for a batch that was published conditionally and, as the server reports, stored elsewhere
        than expected; None: it is where it has to be. Compared for every server, as one that knows nothing of
        conditional publish returns success, too."""
        header = batch.batch.header
        if header.producer_id != CONDITIONAL.number:
            return None
        at, expected = answer.base_offset, batch.expected_offset
        if at == expected or (expected is None and at >= 0 and at % SEQUENCE_MODULUS == header.base_sequence):
            return None
        where = f"expected at offset {expected}" if expected is not None else f"offset {header.base_sequence} mod 2^31"
        if at < 0:
            return self._error(Undecided, batch, f"{where}, and the server does not tell where it is", answer.message)
        return self._elsewhere(batch, where, answer)

    def _final(self, batch: QueuedBatch, answer: PartitionAnswer) -> ProduceError:
        """Return the error for INVALID_RECORD. With an offset it says where the batch lies."""
        if answer.base_offset < 0 or batch.expected_offset is None:
            return self._error(Undeterminable, batch, "nobody can tell whether it is in the log", answer.message)
        return self._elsewhere(batch, f"expected at offset {batch.expected_offset}", answer)

    def _elsewhere(self, batch: QueuedBatch, where: str, answer: PartitionAnswer) -> ProduceError:
        what = f"{where}, and the server says that it is at {answer.base_offset}"
        error = self._error(Displaced, batch, what, answer.message)
        assert isinstance(error, Displaced)
        error.base_offset = answer.base_offset
        return error

    def _conflict(self, batch: QueuedBatch, expected_offset: int, answer: PartitionAnswer) -> ProduceError:
        """Return the error for a log that ends elsewhere. If it has not reached the expected offset yet, an earlier try
        that was not answered may still be appended, by another proxy, once it has: then the batch is Undecided. Not so
        after a batch of the same pipeline that had a conflict: each proxy refuses what follows that one."""
        next_offset = answer.log_start_offset if answer.log_start_offset >= 0 else None
        may_come = next_offset is None or next_offset <= expected_offset
        if batch.in_doubt and may_come and not isinstance(self.failure, Conflict):
            return self._error(Undecided, batch, "the log has not come to the expected offset, and a try is out")
        error = self._error(Conflict, batch, f"expected at offset {expected_offset}", answer.message)
        assert isinstance(error, Conflict)
        error.next_offset = next_offset
        return error

    def _given_up(self, batch: QueuedBatch, why: str) -> ProduceError:
        if batch.state is _State.OUT or batch.in_doubt:
            return self._error(Undecided, batch, f"{why}, and it may be in the log")
        return self._error(NotDelivered, batch, f"{why}; it is not in the log")

    def _behind(self, batch: QueuedBatch) -> ProduceError:
        assert self.failure is not None
        is_here = (self.failure.topic, self.failure.partition) == self.place
        why = "a batch before it has failed" if is_here else "the producer has ended"
        if batch.in_doubt:
            return self._error(Undecided, batch, f"{why}, and it may be in the log")
        return self._error(BehindFailed, batch, f"{why}; it is not in the log")

    def _error(
        self, kind: type[ProduceError], batch: QueuedBatch, what: str, message: str | None = None
    ) -> ProduceError:
        header = batch.batch.header
        return kind(self.place, header.base_sequence, header.record_count, what, code=batch.last_code, message=message)

    def _drop(self, batch: QueuedBatch) -> list[Outcome]:
        outcome = self._tell(batch, self._behind(batch))
        self._forget_told()
        return [outcome]

    def _tell(self, batch: QueuedBatch, result: Receipt | ProduceError) -> Outcome:
        assert not batch.is_told
        batch.is_told = True
        base_sequence = batch.batch.header.base_sequence
        if isinstance(result, Undecided | Undeterminable):
            self._undecided.add(base_sequence)
        else:
            self._undecided.discard(base_sequence)
        return Outcome(batch, result)

    def _forget_told(self) -> None:
        """Drop batches whose outcome is reported: those at the front; after a failure all of them. One that is still
        out stays counted in ``_out`` until it is back."""
        batches = self._batches
        if self.failure is not None:
            remaining = [one for one in batches if not one.is_told]
            batches.clear()
            batches.extend(remaining)
        while batches and batches[0].is_told:
            batches.popleft()
