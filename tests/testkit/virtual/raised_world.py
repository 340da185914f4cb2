"""Producers without idempotence at brokers that lead, fail, answer late or never, lose what was not replicated, and
work on requests of connections that are long gone. No sockets; the clock is a number; requests and answers are bytes.

Brokers decide as Kafka's do (``kafka_reference``). Every record is sent in one try only: a client that sends a set
again names it as another try, so what is in a log tells which try has brought it there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from struct import Struct

from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.produce import (
    IDEMPOTENT_VERSION_MIN,
    PartitionAnswer,
    encode_request,
    encode_response,
    parse_request,
    parse_response,
)
from idemproxy.codecs.record_batch import Record, encode_batch, iterate_records, parse_single_batch, verify_crc
from idemproxy.codecs.steps import at_once
from idemproxy.producing.cluster import Cluster
from idemproxy.producing.numbered_batch import Place
from idemproxy.proxy.bridge.upward.departed_clients import ClientIdentity, DepartedClients
from idemproxy.proxy.bridge.upward.produce import TIMEOUT_SHARE, RaisedProduce, RaisedProduceSettings
from idemproxy.proxy.bridge.upward.produce_effects import (
    AnswerClient,
    AskLeaders,
    AskProducerId,
    CloseClient,
    DisconnectBroker,
    Effect,
    RunSteps,
    SendProduce,
)
from idemproxy.proxy.bridge.upward.produce_formats import is_written
from idemproxy.proxy.bridge.upward.producer_ids import ProducerIdPool, ProducerIdPools
from idemproxy.proxy.bridge.upward.topic_limits import TopicLimits

from .kafka_reference import Appended, ReferenceProducer

BROKERS = (0, 1)
TOPIC = "t"
VERSION = 8
NOT_LEADER, TIMED_OUT, TOO_LARGE, CORRUPT, NOT_ENOUGH_REPLICAS = 6, 7, 10, 2, 19
REFUSALS = (NOT_ENOUGH_REPLICAS, 3, 5, 74)
"""Nothing is appended."""
APPENDED_AND_FAILED = (TIMED_OUT, 20, 56, -1)
"""It is appended, and the answer is an error."""
LAST_OLD_CODE = 44
ABOUT_PRODUCER_IDS = (45, 46, 47, 59, 90)
_GIVEN_ID = Struct(">ihqh")
_UNPACKED_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Mishaps:
    """Chances of what goes wrong, each time that it could."""

    refusal: float = 0.1
    failed_append: float = 0.1
    loss: float = 0.2
    move: float = 0.05
    lossy_move: float = 0.0
    """Of a move: what was acknowledged with acks 1 is lost."""
    unreachable: float = 0.05
    departure: float = 0.0
    """Of a client: it connects again, and sends again what was not answered."""


CALM = Mishaps(0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class StoredBatch:
    """One batch in a log."""

    producer_id: int
    epoch: int
    sequence: int
    values: tuple[bytes, ...]


@dataclass
class PlaceLog:
    """One partition at its leader."""

    batches: list[StoredBatch] = field(default_factory=list)
    replicated: int = 0
    """Batches that no election loses."""
    truncated: list[StoredBatch] = field(default_factory=list)
    producers: dict[int, ReferenceProducer] = field(default_factory=dict)

    @property
    def values(self) -> list[bytes]:
        """Of all records, in order."""
        return [one for batch in self.batches for one in batch.values]

    def append(self, batch: StoredBatch) -> Appended | int:
        """Take a batch; return its offset, or an error code."""
        producer = self.producers.setdefault(batch.producer_id, ReferenceProducer())
        judged = producer.append(batch.epoch, batch.sequence, len(batch.values), len(self.values))
        if not isinstance(judged, Appended):
            return judged.error_code
        if not judged.is_duplicate:
            self.batches.append(batch)
        return judged

    def lose(self) -> None:
        """A follower becomes leader that has only what is replicated."""
        self.truncated += self.batches[self.replicated :]
        del self.batches[self.replicated :]
        kept, self.batches, self.producers = self.batches, [], {}
        for batch in kept:
            assert isinstance(self.append(batch), Appended)


@dataclass(eq=False)
class Line:
    """One connection to a broker: what it has not worked on yet, and what is on its way back."""

    broker: int
    requests: deque[SendProduce | AskProducerId] = field(default_factory=deque)
    answers: deque[tuple[SendProduce | AskProducerId, bytes]] = field(default_factory=deque)


@dataclass
class Try:
    """One message set of one request. ``code``: what the client got; None: nothing."""

    place: Place
    values: list[bytes]
    connection: int
    acks: int
    code: int | None = None
    base_offset: int = -1
    before: Try | None = None
    """The client's first try of the same set, on a connection that it has left."""


class OldConnection:
    """One connection of an old client, as long as anything of it is under way."""

    def __init__(self, world: RaisedWorld, number: int, identity: ClientIdentity, broker: int) -> None:
        self.number = number
        self.identity = identity
        self.broker = broker
        self.lines: dict[int, Line] = {}
        self.tries: list[Try] = []
        """Of the request that is under way."""
        self.is_woken = False
        self.has_left = False
        self.deadline = 0.0
        settings = RaisedProduceSettings(broker, VERSION, _UNPACKED_BYTES_MAX)
        self.machine = RaisedProduce(settings, identity, world.pools, world.departed, world.limits, self._wake)
        self.events: deque[Effect] = deque()

    def _wake(self) -> None:
        self.is_woken = True


class RaisedWorld:
    """Some clients, some partitions, two brokers, one proxy."""

    def __init__(
        self,
        random: Random,
        mishaps: Mishaps,
        *,
        clients: int = 3,
        partitions: int = 2,
        batch_bytes_max: int = 200,
        ids_max: int = 2,
        acks: tuple[int, ...] = (-1,),
        timeout_ms: int = 8_000,
        places_per_request: int = 2,
        client_version: int = 2,
    ) -> None:
        """``client_version``: of Produce; from 3 on clients send batches."""
        self.random = random
        self.mishaps = mishaps
        self.pool = ProducerIdPool(ids_max)
        self.pools = ProducerIdPools(self.pool, self.pool)
        self.departed = DepartedClients()
        self.limits = TopicLimits()
        self.batch_bytes_max = batch_bytes_max
        self.acks = acks
        self.places_per_request = places_per_request
        self.client_version = client_version
        self.timeout_ms = timeout_ms
        self.now = 1000.0
        self.places = [Place(TOPIC, number) for number in range(partitions)]
        self.leaders = {place: random.choice(BROKERS) for place in self.places}
        self.logs = {place: PlaceLog() for place in self.places}
        self.tries: list[Try] = []
        self.left: list[Line] = []
        """Connections to brokers that were given up, with requests that the broker still works on."""
        self._count = 0
        self._next_id = 100
        self.connections: list[OldConnection] = []
        self.ghosts: list[OldConnection] = []
        """Their clients have gone, and something is out."""
        for client in range(clients):
            for broker in BROKERS:
                self._connect(ClientIdentity("10.0.0.1", f"client-{client}"), broker)

    def _connect(self, identity: ClientIdentity, broker: int) -> OldConnection:
        self._count += 1
        connection = OldConnection(self, self._count, identity, broker)
        self.connections.append(connection)
        return connection

    # ------------------------------------------------------------------ clients
    def request(self, connection: OldConnection) -> None:
        """The client sends another request, mostly to the leaders: it has a connection to each broker, and does not
        send to a partition over both at a time."""
        dice = self.random
        acks = dice.choice(self.acks)
        mine = [other for other in self.connections if other.identity == connection.identity]
        busy = {one.place for other in mine for one in other.tries}
        free = [place for place in self.places if place not in busy]
        if not free:
            return
        led = [place for place in free if self.leaders[place] == connection.broker]
        places = led if led and dice.random() < 0.9 else free
        places = dice.sample(places, dice.randint(1, min(len(places), self.places_per_request)))
        self._begin(connection, [(place, dice.choice((1, 1, 3, 12))) for place in places], acks)

    def _begin(
        self, connection: OldConnection, wanted: list[tuple[Place, int]], acks: int, before: Sequence[Try] = ()
    ) -> None:
        tries: list[Try] = []
        for index, (place, count) in enumerate(wanted):
            self._count += 1
            values = [b"%d-%d-%d" % (connection.number, self._count, number) for number in range(count)]
            tries.append(Try(place, values, connection.number, acks, before=before[index] if before else None))
        connection.tries = tries
        self.tries += tries
        version = self.client_version
        sets = [(*one.place, self._set_of(one.values)) for one in tries]
        body = b"".join(encode_request(version, acks, self.timeout_ms, sets))
        assert version < IDEMPOTENT_VERSION_MIN or is_written(body, version)
        connection.deadline = self.now + self.timeout_ms / 1000 * TIMEOUT_SHARE
        self._do(connection, connection.machine.begin(body, version, self.now, int(self.now * 1000)))

    def _set_of(self, values: list[bytes]) -> bytes:
        if self.client_version < IDEMPOTENT_VERSION_MIN:
            return encode_set([(None, value, 5) for value in values], magic=1)
        records = [Record(number, 5, None, value) for number, value in enumerate(values)]
        return encode_batch(records, producer_id=-1, producer_epoch=-1, base_sequence=-1)

    def depart(self, connection: OldConnection) -> None:
        """The client gives up its connection, and sends its sets again on another one."""
        acks = connection.tries[0].acks
        self.connections.remove(connection)
        self.ghosts.append(connection)
        connection.has_left = True
        self._do(connection, connection.machine.left(self.now))
        later = self._connect(connection.identity, connection.broker)
        self._begin(later, [(one.place, len(one.values)) for one in connection.tries], acks, connection.tries)

    # ------------------------------------------------------------------ what the machine asks for
    def _do(self, connection: OldConnection, effects: list[Effect]) -> None:
        todo = deque(effects)
        while todo:
            effect = todo.popleft()
            match effect:
                case RunSteps(number, start):
                    todo += connection.machine.worked(number, at_once(start()), self.now)
                case SendProduce(_, broker, _, _) | AskProducerId(broker, _, _):
                    if broker not in connection.lines and self.random.random() < self.mishaps.unreachable:
                        todo += connection.machine.lost(broker, self.now, was_sent=False)
                        continue
                    connection.lines.setdefault(broker, Line(broker)).requests.append(effect)
                case AskLeaders(topics):
                    if self.random.random() < self.mishaps.refusal:
                        todo += connection.machine.not_learned(self.now)
                    else:
                        todo += connection.machine.learned(topics, self._cluster(), self.now)
                case DisconnectBroker(broker):
                    if (line := connection.lines.pop(broker, None)) is not None:
                        self.left.append(line)
                case AnswerClient(body):
                    self._take_answer(connection, body)
                case CloseClient():
                    self._close(connection)
        if connection.machine.is_idle and connection.tries and connection.tries[0].acks == 0:
            for one in connection.tries if not connection.has_left else ():
                one.code = one.code or 0
            connection.tries = []
        wakes_at = connection.machine.wakes_at
        assert connection.machine.is_idle == (wakes_at is None)
        assert wakes_at is None or wakes_at <= connection.deadline, "no wake-up at the deadline"
        if wakes_at is None and connection in self.ghosts:
            self.ghosts.remove(connection)
            self.left += connection.lines.values()

    def _close(self, connection: OldConnection) -> None:
        """A set without acks has failed: its client learns that some of it may be missing."""
        assert connection.tries[0].acks == 0
        for one in connection.tries:
            one.code = TIMED_OUT
        if not connection.has_left:
            self.connections.remove(connection)
            self.left += connection.lines.values()
            self._connect(connection.identity, connection.broker)

    def _cluster(self) -> Cluster:
        numbers = tuple(place.partition for place in self.places)
        return Cluster({broker: ("broker", broker) for broker in BROKERS}, dict(self.leaders), {TOPIC: numbers}, {})

    def _take_answer(self, connection: OldConnection, body: bytes) -> None:
        assert self.now <= connection.deadline + 0.5, "too late for the client"
        answers, _ = parse_response(body, 0, self.client_version)
        by_place = {Place(one.topic, one.partition): one for one in answers}
        assert len(by_place) == len(connection.tries)
        for one in connection.tries:
            one.code = by_place[one.place].error_code
            one.base_offset = by_place[one.place].base_offset
            if self.client_version < IDEMPOTENT_VERSION_MIN:
                assert one.code <= LAST_OLD_CODE
            assert one.code not in ABOUT_PRODUCER_IDS
        connection.tries = []

    # ------------------------------------------------------------------ steps
    def step(self) -> None:
        """Let something happen."""
        dice = self.random
        everybody = [*self.connections, *self.ghosts]
        connection = dice.choice(everybody)
        match dice.randrange(8):
            case 0 | 1:
                if not connection.has_left and connection.machine.is_idle:
                    self.request(connection)
            case 2 | 3:
                self.work(dice.choice([*(line for one in everybody for line in one.lines.values()), *self.left, None]))
            case 4 | 5:
                self.deliver(connection)
            case 6:
                if dice.random() < self.mishaps.loss and connection.lines:
                    self.lose(connection, dice.choice(list(connection.lines)))
                if dice.random() < self.mishaps.move:
                    self.move(dice.choice(self.places))
                if connection.tries and not connection.has_left and dice.random() < self.mishaps.departure:
                    self.depart(connection)
            case 7:
                self.pass_time(dice.choice((0.001, 0.05, 0.5)))

    def settle(self, steps_max: int = 3000) -> None:
        """From now on nothing goes wrong: run until all is answered, and all that was left is worked on."""
        self.mishaps = CALM
        for _ in range(steps_max):
            if all(one.machine.is_idle for one in (*self.connections, *self.ghosts)):
                break
            for connection in [*self.connections, *self.ghosts]:
                for line in list(connection.lines.values()):
                    self.work(line)
                self.deliver(connection)
            self.pass_time(0.05)
        assert all(one.machine.is_idle for one in self.connections), f"no end after {steps_max} steps"
        assert not self.ghosts
        for line in [*self.left, *(line for one in self.connections for line in one.lines.values())]:
            while line.requests:
                self.work(line)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and wake whom it is time for."""
        self.now += seconds
        for connection in [*self.connections, *self.ghosts]:
            wakes_at = connection.machine.wakes_at
            due = wakes_at is not None and wakes_at <= self.now
            if (due or connection.is_woken) and not connection.machine.is_idle:
                connection.is_woken = False
                self._do(connection, connection.machine.woken(self.now))

    def move(self, place: Place) -> None:
        """Another broker leads the partition."""
        self.leaders[place] = self.random.choice(BROKERS)
        if self.random.random() < self.mishaps.lossy_move:
            self.logs[place].lose()

    def work(self, line: Line | None) -> None:
        """A broker works on the oldest request of a connection, which may be gone."""
        if line is None or not line.requests:
            return
        asked = line.requests.popleft()
        if isinstance(asked, AskProducerId):
            self._next_id += 1
            code = 15 if self.random.random() < self.mishaps.refusal else 0
            line.answers.append((asked, _GIVEN_ID.pack(0, code, self._next_id, 0)))
            return
        request = parse_request(b"".join(asked.body), 0, asked.api_version)
        assert request.acks != 0
        answers = []
        for one in request.partitions:
            assert one.records is not None
            answers.append(self._append(line.broker, Place(one.topic, one.partition), one.records, request.acks))
        line.answers.append((asked, encode_response(asked.api_version, answers)))

    def _append(self, broker: int, place: Place, data: memoryview, acks: int) -> PartitionAnswer:
        dice, log = self.random, self.logs[place]
        if self.leaders[place] != broker:
            return PartitionAnswer(*place, NOT_LEADER, -1)
        if dice.random() < self.mishaps.refusal:
            return PartitionAnswer(*place, dice.choice(REFUSALS), -1)
        header = parse_single_batch(data)
        verify_crc(data, header)
        if len(data) > self.batch_bytes_max:
            return PartitionAnswer(*place, TOO_LARGE, -1)
        values = tuple(one.value or b"" for one in iterate_records(data, header, _UNPACKED_BYTES_MAX))
        judged = log.append(StoredBatch(header.producer_id, header.producer_epoch, header.base_sequence, values))
        if not isinstance(judged, Appended):
            return PartitionAnswer(*place, judged, -1)
        if acks == -1:
            log.replicated = len(log.batches)
        if dice.random() < self.mishaps.failed_append:
            return PartitionAnswer(*place, dice.choice(APPENDED_AND_FAILED), -1)
        return PartitionAnswer(*place, 0, judged.base_offset)

    def deliver(self, connection: OldConnection) -> None:
        """The proxy gets the oldest answer of one of a client's connections."""
        lines = [line for line in connection.lines.values() if line.answers]
        if not lines:
            return
        asked, body = self.random.choice(lines).answers.popleft()
        if isinstance(asked, SendProduce):
            self._do(connection, connection.machine.answered(asked.number, body, self.now))
        else:
            self._do(connection, connection.machine.answered_id(body, self.now))

    def lose(self, connection: OldConnection, broker: int) -> None:
        """A connection breaks; the broker continues with what it has read of it."""
        line = connection.lines.pop(broker)
        while line.requests and self.random.random() < 0.3:
            line.requests.pop()  # never arrived
        self.left.append(line)
        self._do(connection, connection.machine.lost(broker, self.now))
