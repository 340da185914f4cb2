"""An idempotent producer's state for its partitions, as Java's TransactionManager keeps it: sequences, epoch bumps.

Pure: no bytes, no connection, no clock. Sources: TransactionManager.java and RecordAccumulator.java of 3.9 (canRetry,
bumpIdempotentProducerEpoch, shouldStopDrainBatchesForPartition, maybeResolveSequences), KIP-360. What the checker wants
to know of a batch (under which identities it was sent, why it was renumbered, what the user learned) is kept with it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

NONE, CORRUPT, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_LEADER, TIMED_OUT, TOO_LARGE = 0, 2, 3, 5, 6, 7, 10
NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, OUT_OF_ORDER, DUPLICATE = 19, 20, 45, 46
INVALID_EPOCH, STORAGE_ERROR, UNKNOWN_PRODUCER = 47, 56, 59
RETRIABLE = frozenset(
    {
        CORRUPT,
        UNKNOWN_TOPIC,
        LEADER_NOT_AVAILABLE,
        NOT_LEADER,
        TIMED_OUT,
        NOT_ENOUGH_REPLICAS,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        STORAGE_ERROR,
    }
)
EPOCH_MAX = 32767
SEQUENCE_LIMIT = 2**31
NO_OFFSET = -1

TopicPartition = tuple[str, int]


class Identity(NamedTuple):
    """Under which name a batch was sent."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


@dataclass(slots=True)
class Answer:
    """One answer to one send of a batch."""

    at: float
    identity: Identity
    error_code: int
    base_offset: int
    ahead_since: float | None = None
    """When it was sent, if older batches of its epoch were in flight over another connection then."""


@dataclass(slots=True, eq=False)
class Batch:
    """Some records of one partition. ``first``: the user's number of its first record; it never changes."""

    partition: TopicPartition
    first: int
    values: list[bytes]
    created_at: float
    identity: Identity | None = None
    was_renumbered: bool = False
    sent_as: list[Identity] = field(default_factory=list)
    renumbered_for: list[str] = field(default_factory=list)
    """Why it got another identity, once for each time after the first."""
    overtaken_until: dict[Identity, float] = field(default_factory=dict)
    """Names for which it got ``OUT_OF_ORDER_SEQUENCE_NUMBER`` -> until when bytes were on their way over a connection
    that its client had left, or the batch was in work there under that name."""
    ahead_as: list[Identity] = field(default_factory=list)
    """Names under which it was sent before what comes before it in that epoch: older batches that were in flight when
    the epoch began, and had to be answered first."""
    answers: list[Answer] = field(default_factory=list)
    answers_as_whole: list[Answer] = field(default_factory=list)
    """Of a part: those to the batch that was split."""
    acknowledged: tuple[float, int] | None = None
    """When the user learned that it is in the log, and at which offset (-1: unknown)."""
    failed: tuple[float, str] | None = None
    """When the user learned that it failed, and how."""
    parts: list[Batch] = field(default_factory=list)
    """What it was split into when it was too large."""

    @property
    def is_done(self) -> bool:
        """The user knows how it ended."""
        if self.parts:
            return all(part.is_done for part in self.parts)
        return self.acknowledged is not None or self.failed is not None

    @property
    def is_live(self) -> bool:
        """It can still be sent."""
        return not self.parts and self.acknowledged is None and self.failed is None


@dataclass(slots=True)
class PartitionState:
    """One partition: what waits, what is numbered and not finished, and the numbers."""

    queue: deque[Batch] = field(default_factory=deque)
    """To be sent, renumbered ones and retries in front."""
    in_flight: list[Batch] = field(default_factory=list)
    """Numbered and not finished, in order of their sequences: sent, or waiting to be sent again."""
    producer_id: int = -1
    producer_epoch: int = -1
    next_sequence: int = 0
    last_acknowledged: int = -1
    unresolved_next: int | None = None
    """After a batch that timed out while it was in doubt: the sequence that follows it."""


class ProducerState:
    """All partitions of one producer."""

    def __init__(self) -> None:
        self.producer_id = -1
        self.producer_epoch = -1
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self._bump_wanted: dict[TopicPartition, str] = {}

    def state(self, partition: TopicPartition) -> PartitionState:
        """The state of a partition, made on first use."""
        state = self.partitions.get(partition)
        if state is None:
            state = self.partitions[partition] = PartitionState()
        return state

    def has_id(self) -> bool:
        """A producer id is known."""
        return self.producer_id >= 0

    def take(self, partition: TopicPartition) -> Batch | None:
        """The next batch of a partition that may be sent now, numbered; None when the rules say to wait."""
        state = self.state(partition)
        if not state.queue or not self.has_id():
            return None
        batch = state.queue[0]
        if batch.identity is None:
            is_stale = (state.producer_id, state.producer_epoch) != (self.producer_id, self.producer_epoch)
            if (state.in_flight and is_stale) or state.unresolved_next is not None:
                return None
            if is_stale:
                self._begin(state)
            self._number(state, batch)
            state.in_flight.append(batch)
        elif state.in_flight and batch is not state.in_flight[0]:
            return None  # a retry goes alone: only the lowest unfinished one
        state.queue.popleft()
        assert batch.identity is not None
        return batch

    def note_sent(self, batch: Batch) -> None:
        """It leaves under its present name."""
        identity = batch.identity
        assert identity is not None
        if identity in batch.sent_as:
            return
        batch.sent_as.append(identity)
        before = [one for one in self.state(batch.partition).in_flight if one.first < batch.first]
        if any(one.identity not in one.sent_as for one in before):
            batch.ahead_as.append(identity)

    def retry(self, batch: Batch) -> None:
        """Put it back where its sequence belongs."""
        queue = self.state(batch.partition).queue
        assert batch.identity is not None
        position = 0
        while position < len(queue):
            other = queue[position]
            if other.identity is None or other.first > batch.first:
                break
            position += 1
        queue.insert(position, batch)

    def answered(self, batch: Batch, answer: Answer) -> None:
        """Act on an answer: success, another try, a new epoch, or an error that the user sees."""
        batch.answers.append(answer)
        at, identity, error_code, base_offset = answer.at, answer.identity, answer.error_code, answer.base_offset
        if not batch.is_live:
            return
        state = self.state(batch.partition)
        if error_code in (NONE, DUPLICATE):
            batch.acknowledged = at, base_offset if error_code == NONE else NO_OFFSET
            self._finish(state, batch)
            if batch.identity != identity:
                self._want_bump(batch.partition, "a late success left a gap in the new epoch")
            else:
                last = (identity.base_sequence + identity.record_count - 1) % SEQUENCE_LIMIT
                # An answer of a retry may come after those of later batches (Java: maybeUpdateLastAckedSequence).
                state.last_acknowledged = max(state.last_acknowledged, last)
        elif error_code == TOO_LARGE and len(batch.values) > 1:
            self._split(state, batch)
        elif self._may_retry(state, batch, error_code):
            self.retry(batch)
        else:
            batch.failed = at, f"code {error_code}"
            self._finish(state, batch)
            self._want_bump(batch.partition, f"batch {batch.first} failed with {error_code}")

    def give_up(self, batch: Batch, at: float, *, may_be_written: bool) -> None:
        """The delivery time is over: the batch fails for the user, and the outcome is never learned."""
        state = self.state(batch.partition)
        batch.failed = at, "gave up"
        if batch in state.queue:
            state.queue.remove(batch)
        self._finish(state, batch)
        if batch.identity is not None and (may_be_written or batch.sent_as):
            behind = batch.identity.base_sequence + batch.identity.record_count
            state.unresolved_next = max(behind, state.unresolved_next or 0)

    def before_sending(self) -> bool:
        """Resolve what was left open and bump the epoch where that is due. True: a new producer id is needed."""
        for partition, state in self.partitions.items():
            if state.unresolved_next is not None and not state.in_flight:
                if state.next_sequence != (state.last_acknowledged + 1) % SEQUENCE_LIMIT:
                    self._want_bump(partition, "given up and never resolved")
                state.unresolved_next = None
        if self._bump_wanted and self.has_id():
            if self.producer_epoch == EPOCH_MAX:
                self.producer_id = self.producer_epoch = -1
            else:
                self.producer_epoch += 1
                self._renumber()
        return not self.has_id()

    def new_id(self, producer_id: int, producer_epoch: int) -> None:
        """A producer id was given."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self._renumber()

    # ------------------------------------------------------------------ inside
    def _begin(self, state: PartitionState) -> None:
        state.producer_id, state.producer_epoch = self.producer_id, self.producer_epoch
        state.next_sequence, state.last_acknowledged = 0, -1

    def _number(self, state: PartitionState, batch: Batch) -> None:
        count = len(batch.values)
        batch.identity = Identity(state.producer_id, state.producer_epoch, state.next_sequence, count)
        state.next_sequence = (state.next_sequence + count) % SEQUENCE_LIMIT

    def _renumber(self) -> None:
        """Partitions that asked for it begin again, with all their unfinished batches; others when they have
        drained."""
        for partition, reason in self._bump_wanted.items():
            state = self.state(partition)
            self._begin(state)
            state.unresolved_next = None
            for batch in state.in_flight:
                self._number(state, batch)
                batch.was_renumbered = True
                batch.renumbered_for.append(reason)
        self._bump_wanted.clear()

    def _want_bump(self, partition: TopicPartition, reason: str) -> None:
        self._bump_wanted.setdefault(partition, reason)

    def _may_retry(self, state: PartitionState, batch: Batch, error_code: int) -> bool:
        assert batch.identity is not None
        if error_code == UNKNOWN_PRODUCER:
            self._want_bump(batch.partition, f"59 for batch {batch.first}")
            return True
        if error_code == OUT_OF_ORDER:
            sequence = batch.identity.base_sequence
            is_next = sequence == (state.last_acknowledged + 1) % SEQUENCE_LIMIT
            is_unresolved = state.unresolved_next is not None
            if not is_unresolved and (batch.was_renumbered or not is_next):
                return True
            if not is_unresolved or sequence == state.unresolved_next:
                self._want_bump(batch.partition, f"45 for batch {batch.first}")
            return True
        return error_code in RETRIABLE

    def _split(self, state: PartitionState, batch: Batch) -> None:
        """Too large: halves that share the sequences of the whole."""
        assert batch.identity is not None
        middle = len(batch.values) // 2
        whole = batch.identity
        for start, end in ((0, middle), (middle, len(batch.values))):
            part = Batch(batch.partition, batch.first + start, batch.values[start:end], batch.created_at)
            sequence = (whole.base_sequence + start) % SEQUENCE_LIMIT
            part.identity = Identity(whole.producer_id, whole.producer_epoch, sequence, end - start)
            part.answers_as_whole = [*batch.answers_as_whole, *batch.answers]
            batch.parts.append(part)
        at = state.in_flight.index(batch)
        state.in_flight[at : at + 1] = batch.parts
        for part in batch.parts:
            self.retry(part)

    def _finish(self, state: PartitionState, batch: Batch) -> None:
        if batch in state.in_flight:
            state.in_flight.remove(batch)
