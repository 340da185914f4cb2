"""One producer over all its partitions and their leaders, sans-IO: requests out, answers in, outcomes. Pure.

Owns the order of batches, which leader gets what, retries, back-off and the time after which an outcome is said to be
unknown. Never chooses a number by itself, never raises an epoch, and never sends other bytes under numbers that were
used. Sockets, threads and the clock are the shell's: it calls with ``now`` in seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..codecs.produce import PartitionAnswer
from ..values import value
from . import cluster, limits
from .backoff import backoff_seconds
from .cluster import Cluster
from .errors import Fenced, ProduceError
from .numbered_batch import CONDITIONAL, NumberedBatch, Place, ProducerId, number
from .partition_queue import Outcome, PartitionQueue, QueuedBatch
from .reactions import Meaning


@value(frozen=True, slots=True)
class Timing:
    """Seconds. ``delivery_seconds_max``: from ``submit`` to an outcome; ``request_seconds_max``: from a request to its
    answer."""

    delivery_seconds_max: float = limits.DELIVERY_SECONDS_MAX
    request_seconds_max: float = limits.REQUEST_SECONDS_MAX


@dataclass(slots=True, eq=False)
class Request:
    """One produce request: a batch of each of some partitions. ``deadline``: for its answer."""

    batches: dict[Place, QueuedBatch]
    deadline: float

    def parts(self) -> list[tuple[str, int, bytearray]]:
        """Return (topic, partition, batch), as ``codecs.produce.encode_request`` takes them."""
        return [(*place, queued.batch.data) for place, queued in self.batches.items()]


@dataclass(slots=True)
class _Leader:
    """What is under way at one broker."""

    in_flight: deque[Request] = field(default_factory=deque)
    places: dict[Place, None] = field(default_factory=dict)
    """Partitions with batches that go there, in the order in which they are served."""
    muted_until: float = 0.0


class ProducerCore:
    """All of one producer id and epoch."""

    def __init__(
        self,
        producer_id: ProducerId,
        next_sequences: Mapping[Place, int],
        timing: Timing,
        spread: Callable[[], float] = lambda: 1.0,
        *,
        were_used: bool = True,
    ) -> None:
        """``next_sequences``: where saved partitions continue; the others begin at 0. ``spread``: a factor around 1 for
        each back-off, so that many clients do not come back at the same moment. ``were_used``: whether an earlier run
        of the program may have sent batches under ``next_sequences``."""
        self.producer_id = producer_id
        self.fenced: Fenced | None = None
        self.cluster = cluster.NOTHING
        self.buffered_bytes = 0
        self.timing = timing
        self._spread = spread
        self._queues: dict[Place, PartitionQueue] = {
            place: PartitionQueue(place, sequence, was_used=were_used) for place, sequence in next_sequences.items()
        }
        self._active: dict[Place, PartitionQueue] = {}
        """Those with batches without an outcome."""
        self._leaders: dict[int, _Leader] = {}
        self._stale: set[str] = set()
        """Topics whose leaders have to be asked for."""
        self._refresh_at = 0.0
        self._refresh_failures = 0
        self._is_refreshing = False
        self._is_unfinished = False
        """What ``take_unfinished`` returns next."""

    # ------------------------------------------------------------------ the caller's side
    def next_sequence(self, place: Place) -> int:
        """Return the base sequence of the partition's next batch."""
        queue = self._queues.get(place)
        return 0 if queue is None else queue.next_sequence

    def next_sequences(self) -> dict[Place, int]:
        """Return the next base sequences of all partitions that were named or used."""
        return {place: queue.next_sequence for place, queue in self._queues.items()}

    def start_at(self, place: Place, sequence: int, *, was_used: bool = True) -> None:
        """Let the partition's next batch have this sequence, also after a failure. ``was_used``: as for a partition's
        queue. Raises ValueError while batches have no outcome, and what has fenced the producer."""
        if self.fenced is not None:
            raise self.fenced
        queue = self._queue_of(place)
        if not queue.is_idle:
            raise ValueError(f"{place}: there are batches without an outcome")
        queue.start_at(sequence, was_used=was_used)

    def submit(
        self,
        place: Place,
        batch: bytes | bytearray | memoryview | NumberedBatch,
        now: float,
        token: object,
        expected_offset: int | None = None,
    ) -> NumberedBatch:
        """Queue a finished batch under the partition's next numbers, which it may have already. ``expected_offset``:
        where it has to be appended; it may follow a failure of earlier batches. Raises the partition's failure, Fenced,
        and ValueError for what is no batch, or does not follow the batches without an outcome at that offset."""
        if self.fenced is not None:
            raise self.fenced
        queue = self._queue_of(place)
        if expected_offset is not None:
            self._expect(queue, expected_offset)
        elif queue.failure is not None:
            raise queue.failure
        if isinstance(batch, NumberedBatch):
            numbered = batch
            header = numbered.header
            assert (header.producer_id, header.producer_epoch) == (self.producer_id.number, self.producer_id.epoch)
        else:
            follows = queue.expects and not queue.is_idle
            numbered = number(batch, self.producer_id, queue.next_sequence, follows=follows)
        queue.add(numbered, now + self.timing.delivery_seconds_max, token)
        self.buffered_bytes += len(numbered.data)
        self._active[place] = queue
        leader = self.cluster.leaders.get(place)
        if leader is None:
            self._stale.add(place.topic)
        else:
            self._leader(leader).places[place] = None
        return numbered

    @property
    def is_idle(self) -> bool:
        """Whether every batch has an outcome."""
        return not self._active

    @property
    def failures(self) -> list[ProduceError]:
        """Why partitions stand still."""
        return [queue.failure for queue in self._queues.values() if queue.failure is not None]

    # ------------------------------------------------------------------ leaders
    def topics_to_ask_for(self, now: float) -> list[str]:
        """Return the topics whose leaders are to be asked for now. The caller owes ``learned`` or ``not_learned``."""
        if self._is_refreshing or now < self._refresh_at:
            return []
        wanted = {place.topic for place in self._active} & self._stale
        self._is_refreshing = bool(wanted)
        return sorted(wanted)

    def learned(self, topics: Sequence[str], found: Cluster, now: float) -> None:
        """Take an answer to Metadata for these topics."""
        self._is_refreshing = False
        self.cluster = cluster.with_topics_of(self.cluster, found)
        missing = {place.topic for place in self._active if place not in self.cluster.leaders}
        self._stale = (self._stale - set(topics)) | missing  # also of others, whose leader has left
        self._refresh_failures = self._refresh_failures + 1 if self._stale else 0
        self._refresh_at = now + max(limits.METADATA_SECONDS_MIN, self._backoff(self._refresh_failures))
        for leader in self._leaders.values():
            leader.places.clear()
        for place, queue in self._active.items():
            if (broker := self.cluster.leaders.get(place)) is not None:
                self._leader(broker).places[place] = None
            elif (code := self.cluster.errors.get(place.topic)) is not None:
                queue.has_no_leader(code)

    def not_learned(self, now: float) -> None:
        """No server answers Metadata."""
        self._is_refreshing = False
        self._refresh_failures += 1
        self._refresh_at = now + max(limits.METADATA_SECONDS_MIN, self._backoff(self._refresh_failures))

    def brokers(self) -> list[int]:
        """Return the brokers to which a connection is wanted."""
        return [broker for broker, leader in self._leaders.items() if leader.places or leader.in_flight]

    # ------------------------------------------------------------------ requests and answers
    def take_request(self, broker: int, now: float) -> Request | None:
        """Return what goes to this broker now; the caller owes ``answered`` or ``lost``."""
        leader = self._leader(broker)
        if len(leader.in_flight) >= limits.IN_FLIGHT_MAX or now < leader.muted_until or self.fenced is not None:
            return None
        request = Request({}, now + self.timing.request_seconds_max)
        room = limits.REQUEST_BYTES_MAX
        for place in list(leader.places):
            queued = self._sendable(place, broker, now)
            if queued is None:
                continue
            size = len(queued.batch.data)
            if request.batches and size > room:
                break
            room -= size
            self._active[place].sent(queued, broker)
            request.batches[place] = queued
            leader.places[place] = leader.places.pop(place)  # the next turn is the others'
        if not request.batches:
            return None
        leader.in_flight.append(request)
        return request

    def answered(
        self, broker: int, request: Request, answers: Sequence[PartitionAnswer], throttle_seconds: float, now: float
    ) -> list[Outcome]:
        """Take the answers to a request. A partition that is not among them counts as lost."""
        leader = self._leader(broker)
        leader.in_flight.remove(request)
        leader.muted_until = max(leader.muted_until, now + min(throttle_seconds, limits.THROTTLE_SECONDS_MAX))
        by_place = {Place(one.topic, one.partition): one for one in answers}
        outcomes: list[Outcome] = []
        for place, queued in request.batches.items():
            answer = by_place.get(place)
            if answer is None:
                outcomes += self._lost(queued, now, True)
            else:
                outcomes += self._answered(queued, answer, now)
            if self.cluster.leaders.get(place) != broker:
                self._is_unfinished = True
        return self._settle(outcomes)

    def lost(self, broker: int, now: float, *, was_sent: bool = True) -> list[Outcome]:
        """The connection to a broker ended, could not be opened, or an answer on it is overdue. ``was_sent``: False if
        nothing that was out can have left."""
        leader = self._leader(broker)
        outcomes: list[Outcome] = []
        for request in leader.in_flight:
            for queued in request.batches.values():
                outcomes += self._lost(queued, now, was_sent)
        leader.in_flight.clear()
        self._stale |= {place.topic for place in leader.places}
        return self._settle(outcomes)

    def take_unfinished(self) -> bool:
        """Return whether, since the last call, an answer has left more to do than to send the next batch to the same
        broker: leaders have to be asked for, a batch goes again, or another broker leads a partition by now."""
        is_unfinished, self._is_unfinished = self._is_unfinished, False
        return is_unfinished

    def is_overdue(self, broker: int, now: float) -> bool:
        """Whether an answer of this broker has not come in time: the connection is of no use then."""
        leader = self._leaders.get(broker)
        return leader is not None and bool(leader.in_flight) and leader.in_flight[0].deadline <= now

    # ------------------------------------------------------------------ time
    def expire(self, now: float) -> list[Outcome]:
        """Give up batches whose time is over."""
        outcomes: list[Outcome] = []
        for queue in list(self._active.values()):
            outcomes += queue.expire(now)
        return self._settle(outcomes)

    def give_up(self, why: str, place: Place | None = None) -> list[Outcome]:
        """Give up all batches now, or those of one partition."""
        outcomes: list[Outcome] = []
        for queue in list(self._active.values()):
            if place in (None, queue.place):
                outcomes += queue.give_up(why)
        return self._settle(outcomes)

    def wakes_at(self, now: float) -> float | None:
        """Return when ``expire`` or ``topics_to_ask_for`` will have something that they do not have now."""
        times: list[float] = []
        for place, queue in self._active.items():
            if (deadline := queue.first_deadline) is not None:
                times.append(deadline)
            if place.topic in self._stale and not self._is_refreshing:
                times.append(self._refresh_at)
        return min((one for one in times if one > now), default=None)

    def broker_wakes_at(self, broker: int, now: float) -> float | None:
        """Return when a request at this broker is overdue, or ``take_request`` may have something that it does not have
        now, because a back-off or a throttle is over."""
        leader = self._leaders.get(broker)
        if leader is None:
            return None
        times = [self._queues[place].not_before for place in leader.places]
        times.append(leader.muted_until)
        if leader.in_flight:
            times.append(leader.in_flight[0].deadline)
        return min((one for one in times if one > now), default=None)

    # ------------------------------------------------------------------ inside
    def _expect(self, queue: PartitionQueue, offset: int) -> None:
        if self.producer_id != CONDITIONAL:
            raise ValueError("an expected offset needs the producer id CONDITIONAL")
        if offset < 0:
            raise ValueError(f"expected offset {offset}")
        if queue.is_idle:
            queue.expect(offset)
        elif queue.failure is not None or offset != queue.next_offset:
            raise ValueError(f"{queue.place}: there are batches without an outcome, and it does not follow them")

    def _queue_of(self, place: Place) -> PartitionQueue:
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = PartitionQueue(place, 0, was_used=False)
        return queue

    def _leader(self, broker: int) -> _Leader:
        return self._leaders.setdefault(broker, _Leader())

    def _sendable(self, place: Place, broker: int, now: float) -> QueuedBatch | None:
        queue = self._active[place]
        if now < queue.not_before or queue.out_at not in (None, broker):
            return None
        return queue.sendable()

    def _answered(self, queued: QueuedBatch, answer: PartitionAnswer, now: float) -> list[Outcome]:
        queue = self._queues[queued.place]
        outcomes, reaction = queue.answered(queued, answer)
        if reaction.meaning is not Meaning.STORED:
            self._is_unfinished = True
        if reaction.moves:
            self._stale.add(queued.place.topic)
        if reaction.meaning is Meaning.AGAIN:
            self._back_off(queue, now)
        elif reaction.meaning is Meaning.FENCED and self.fenced is None:
            self.fenced = next((one.result for one in outcomes if isinstance(one.result, Fenced)), None)
            if self.fenced is not None:
                for other in list(self._active.values()):
                    outcomes += other.end(self.fenced)
        return outcomes

    def _lost(self, queued: QueuedBatch, now: float, was_sent: bool) -> list[Outcome]:
        queue = self._queues[queued.place]
        self._stale.add(queued.place.topic)
        self._is_unfinished = True
        outcomes = queue.lost(queued, was_sent=was_sent)
        self._back_off(queue, now)
        return outcomes

    def _back_off(self, queue: PartitionQueue, now: float) -> None:
        """Delay the partition's next try; once for all batches that come back together."""
        if now >= queue.not_before:
            queue.failures_in_row += 1
            queue.not_before = now + self._backoff(queue.failures_in_row)

    def _backoff(self, failures: int) -> float:
        return backoff_seconds(failures) * self._spread()

    def _settle(self, outcomes: list[Outcome]) -> list[Outcome]:
        for outcome in outcomes:
            self.buffered_bytes -= len(outcome.batch.batch.data)
            place = outcome.batch.place
            if self._queues[place].is_idle and self._active.pop(place, None) is not None:
                for leader in self._leaders.values():
                    leader.places.pop(place, None)
        return outcomes
