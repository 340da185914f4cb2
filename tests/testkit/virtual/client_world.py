"""A cluster as the client's producer core meets it: brokers that lead, fail, answer late or never, and work on
requests of connections that are long gone. No bytes of the protocol, no sockets; the clock is a number.

Whatever the core sends is checked on the way: bytes under numbers never change, order is kept, five at most."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from idemproxy.client.records import Record, finish
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.codecs.record_batch import parse_single_batch
from idemproxy.producing.cluster import Cluster
from idemproxy.producing.errors import ProduceError
from idemproxy.producing.numbered_batch import Place, ProducerId, Receipt
from idemproxy.producing.partition_queue import Outcome
from idemproxy.producing.producer_core import ProducerCore, Request, Timing

from .kafka_reference import Appended, ReferenceProducer

IN_FLIGHT_MAX = 5
BROKERS = (0, 1)
CORRUPT, NOT_ENOUGH_REPLICAS = 2, 19
REFUSALS = (CORRUPT, 3, 5, 6, NOT_ENOUGH_REPLICAS)
"""Nothing is appended, and the client comes again."""
APPENDED_AND_FAILED = (7, 20, -1)
"""It is appended, and the answer is an error."""
DOUBTFUL_REFUSALS = (7, 56)
"""Nothing is appended, and the answer does not say so."""
PRODUCER = ProducerId(4711, 3)


@dataclass(eq=False)
class Line:
    """One connection: requests that the broker has not worked on yet, and answers on their way."""

    broker: int
    requests: deque[Request] = field(default_factory=deque)
    answers: deque[tuple[Request, list[PartitionAnswer]]] = field(default_factory=deque)


@dataclass(frozen=True)
class Troubles:
    """Chances of what goes wrong, each time that it could."""

    refusal: float = 0.1
    failed_append: float = 0.1
    loss: float = 0.05
    move: float = 0.03
    throttle: float = 0.02


CALM = Troubles(0, 0, 0, 0, 0)


class ClientWorld:
    """One producer, some partitions, two brokers."""

    def __init__(
        self,
        random: Random,
        *,
        partitions: int = 2,
        delivery_seconds_max: float = 1e9,
        next_sequences: Mapping[Place, int] | None = None,
        troubles: Troubles | None = None,
        finds_old_ones: bool = False,
    ) -> None:
        """``finds_old_ones``: a batch before the last five is answered as the proxy does, with 46, not with 45."""
        self.random = random
        self.troubles = troubles or Troubles()
        self.places = [Place("t", number) for number in range(partitions)]
        self.core = ProducerCore(PRODUCER, next_sequences or {}, Timing(delivery_seconds_max, 30.0))
        self.finds_old_ones = finds_old_ones
        self.now = 100.0
        self.leaders = {place: random.choice(BROKERS) for place in self.places}
        self.lines: dict[int, Line] = {}
        self.left: list[Line] = []
        """Connections that the client has left, with requests that the broker still works on."""
        self.producers = {place: ReferenceProducer() for place in self.places}
        self.logs: dict[Place, list[int]] = {place: [] for place in self.places}
        """The number of each batch that was appended, in order; each takes one offset."""
        self.results: dict[int, Receipt | ProduceError] = {}
        self.sent: dict[tuple[Place, int], bytes] = {}
        self.numbers: dict[tuple[Place, int], int] = {}
        self._damaged: set[bytes] = set()
        self._count = 0

    # ------------------------------------------------------------------ the caller
    def submit(self, place: Place) -> int:
        """Send one more batch of one to three records; return its number."""
        number, self._count = self._count, self._count + 1
        records = [Record(b"%d" % number, timestamp_ms=number)] * self.random.randint(1, 3)
        numbered = self.core.submit(place, finish(records), self.now, number)
        key = place, numbered.header.base_sequence
        assert key not in self.numbers, f"the numbers of {self.numbers[key]} are given to {number}"
        self.numbers[key] = number
        return number

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self._take(self.core.expire(self.now))

    def second_life(self, saved: int, **options: Any) -> ClientWorld:
        """Return the world of a client that comes after this one, which has ended at this moment, and sends the batches
        from the number ``saved`` on once more, as far as this one had sent any. Brokers keep what they have."""
        order = sorted((number, key) for key, number in self.numbers.items())
        first = next(key for number, key in order if number == saved)
        later = ClientWorld(self.random, partitions=1, next_sequences={first[0]: first[1]}, **options)
        later.producers, later.logs, later.leaders = self.producers, self.logs, self.leaders
        later.left = [*self.lines.values(), *self.left]
        later.sent = dict(self.sent)
        later.numbers = {key: number for number, key in order if key in self.sent}
        later.results = {number: self.results[number] for number, _ in order if number < saved}
        for number, key in order:
            if number >= saved and key in self.sent:
                numbered = later.core.submit(key[0], self.sent[key], later.now, number)
                assert numbered.header.base_sequence == key[1]
        return later

    # ------------------------------------------------------------------ steps
    def step(self) -> None:
        """Let something happen."""
        dice = self.random
        self._ask_for_leaders()
        match dice.randrange(8):
            case 0 | 1:
                self.send(dice.choice(BROKERS))
            case 2 | 3:
                self.work(dice.choice([*self.lines.values(), *self.left] or [None]))
            case 4 | 5:
                self.deliver(dice.choice([*self.lines.values()] or [None]))
            case 6:
                if dice.random() < self.troubles.loss:
                    self.lose(dice.choice(BROKERS))
                if dice.random() < self.troubles.move:
                    self.leaders[dice.choice(self.places)] = dice.choice(BROKERS)
            case 7:
                self.pass_time(dice.choice((0.001, 0.05, 0.5)))

    def settle(self, steps_max: int = 5000) -> None:
        """From now on nothing goes wrong: run until every batch has its outcome, and all that was left is worked on."""
        self.troubles = CALM
        for _ in range(steps_max):
            if self.core.is_idle:
                break
            self._ask_for_leaders()
            for broker in BROKERS:
                self.send(broker)
            for line in list(self.lines.values()):
                self.work(line)
                self.deliver(line)
            self.pass_time(0.05)
        assert self.core.is_idle, f"no end after {steps_max} steps"
        for line in self.left:
            while line.requests:
                self.work(line)

    def _ask_for_leaders(self) -> None:
        topics = self.core.topics_to_ask_for(self.now)
        if topics and self.random.random() < self.troubles.refusal:
            self.core.not_learned(self.now)
        elif topics:
            brokers = {broker: ("broker", broker) for broker in BROKERS}
            numbers = tuple(place.partition for place in self.places)
            self.core.learned(topics, Cluster(brokers, dict(self.leaders), {"t": numbers}, {}), self.now)

    def send(self, broker: int) -> None:
        """The client sends what it has for this broker."""
        request = self.core.take_request(broker, self.now)
        if request is None:
            return
        line = self.lines.setdefault(broker, Line(broker))
        line.requests.append(request)
        out = [*line.requests, *(one for one, _ in line.answers)]
        assert len(out) <= IN_FLIGHT_MAX, "too many requests on a connection"
        for place, queued in request.batches.items():
            self._check_sent(place, bytes(queued.batch.data), broker)

    def _check_sent(self, place: Place, data: bytes, broker: int) -> None:
        header = parse_single_batch(memoryview(data))
        assert (header.producer_id, header.producer_epoch) == (PRODUCER.number, PRODUCER.epoch)
        key = place, header.base_sequence
        assert self.sent.setdefault(key, data) == data, "other bytes under the same numbers"
        number = self.numbers[key]
        out = {
            self.numbers[place, request.batches[place].batch.header.base_sequence]: line.broker
            for line in self.lines.values()
            for request in (*line.requests, *(one for one, _ in line.answers))
            if place in request.batches
        }
        assert set(out.values()) == {broker}, "one partition at two brokers"
        assert max(out) == number, "sent before a later one was back"
        mine = sorted(one for (where, _), one in self.numbers.items() if where == place)
        open_ones = [one for one in mine if one not in self.results]
        for earlier in (one for one in open_ones if one < number):
            assert earlier in out, f"{number} was sent before {earlier}"
        span = mine[mine.index(min(open_ones)) : mine.index(number) + 1] if open_ones else []
        assert len(span) <= IN_FLIGHT_MAX, "what has to be sent again may be too old for the server"

    def work(self, line: Line | None) -> None:
        """A broker works on the oldest request of a connection, which may be gone."""
        if line is None or not line.requests:
            return
        request = line.requests.popleft()
        answers = [self._append(line.broker, place, bytes(q.batch.data)) for place, q in request.batches.items()]
        line.answers.append((request, answers))

    def _append(self, broker: int, place: Place, data: bytes) -> PartitionAnswer:
        dice = self.random
        if self.leaders[place] != broker:
            return PartitionAnswer(*place, 6, -1)
        if dice.random() < self.troubles.refusal:
            code = dice.choice(REFUSALS + DOUBTFUL_REFUSALS)
            if code == CORRUPT:  # once: a client believes in damage on the way, but not three times
                code = NOT_ENOUGH_REPLICAS if data in self._damaged else code
                self._damaged.add(data)
            return PartitionAnswer(*place, code, -1)
        header = parse_single_batch(memoryview(data))
        log = self.logs[place]
        verdict = self.producers[place].append(
            header.producer_epoch, header.base_sequence, header.record_count, len(log)
        )
        if not isinstance(verdict, Appended):
            if self.finds_old_ones and self.numbers[place, header.base_sequence] in log:
                return PartitionAnswer(*place, 46, -1)
            return PartitionAnswer(*place, verdict.error_code, -1)
        if not verdict.is_duplicate:
            log.append(self.numbers[place, header.base_sequence])
        if dice.random() < self.troubles.failed_append:
            return PartitionAnswer(*place, dice.choice(APPENDED_AND_FAILED), dice.choice((-1, verdict.base_offset)))
        return PartitionAnswer(*place, 0, verdict.base_offset)

    def deliver(self, line: Line | None) -> None:
        """The client gets the oldest answer of a connection."""
        if line is None or not line.answers:
            return
        request, answers = line.answers.popleft()
        throttle = 0.2 if self.random.random() < self.troubles.throttle else 0.0
        self._take(self.core.answered(line.broker, request, answers, throttle, self.now))

    def lose(self, broker: int) -> None:
        """The connection breaks; the broker continues with what it has read of it."""
        line = self.lines.pop(broker, None)
        if line is not None:
            while line.requests and self.random.random() < 0.3:
                line.requests.pop()  # never arrived
            self.left.append(line)
        self._take(self.core.lost(broker, self.now))

    def _take(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            number = outcome.batch.token
            assert isinstance(number, int)
            assert number not in self.results, "two outcomes"
            self.results[number] = outcome.result
