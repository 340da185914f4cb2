"""An idempotent producer on the virtual network: connections, requests, time-outs, reconnects.

Up to five produce requests are in flight on one connection, each with at most one batch of a partition; what a lost
connection leaves open is sent again in order. When metadata name another leader, it sends over another connection, and
what is in flight on the first one stays there: Java's NetworkClient has a connection for each broker, and counts
requests in flight on each. A patient client never gives up; one with a delivery time does, and tells its user.
Sequences and epochs are in ``producer``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from idemproxy.reactor import Address, Timer, Wire
from testkit.virtual import client_bytes as wire_bytes
from testkit.virtual.connection import Connection
from testkit.virtual.kafka_bytes import Reader
from testkit.virtual.network import Network
from testkit.virtual.producer import OUT_OF_ORDER, Answer, Batch, Identity, ProducerState, TopicPartition
from testkit.virtual.wire import VirtualWire

EPOCH_MS = 1_700_000_000_000
"""Wall clock at the start of every run."""
CONNECTIONS_MAX = 3
"""Of one client at a time: one for each broker."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Seconds. ``delivery``: after which a batch fails; None: never.

    ``timeout``: what a request asks the broker for; None: as long as the client itself waits. ``codec``: of the
    batches, by its number in the protocol; 4, zstd, goes in a later version. ``remakes``: a batch is recreated for each
    try, with other timestamps, as kafkajs does.
    """

    request_timeout: float = 10.0
    timeout: float | None = None
    in_flight_max: int = 5
    acks: int = -1
    codec: int = 0
    remakes: bool = False
    delivery: float | None = None
    retry_backoff: float = 0.1
    reconnect_backoff: tuple[float, float] = (0.05, 0.3)

    @property
    def produce_version(self) -> int:
        """In which it produces."""
        return wire_bytes.ZSTD_PRODUCE_VERSION if self.codec == wire_bytes.ZSTD else wire_bytes.PRODUCE_VERSION


@dataclass(slots=True)
class _Request:
    """One request that waits for its answer; no batches: InitProducerId."""

    batches: list[tuple[Batch, Identity]]
    deadline: Timer
    sent_at: float
    ahead: list[Identity]
    """Of these batches older ones were in flight over another connection when it was sent."""


class VirtualClient:
    """One producer. ``send`` records into it, then look at ``batches``."""

    def __init__(
        self,
        network: Network,
        name: str,
        addresses: Sequence[Address],
        settings: ClientSettings | None = None,
    ) -> None:
        self.network = network
        self.name = name
        self.addresses = list(addresses)
        self.settings = settings or ClientSettings()
        self.client_id = name
        """What it calls itself in its requests."""
        self.producer_name: str | None = None
        """The name that it asks a producer id for; None: it asks for a fresh one."""
        self.host = network.host(name)
        self.producer = ProducerState()
        self.batches: list[Batch] = []
        """Everything the user has sent, in order."""
        self.on_acknowledged: list[Callable[[Batch], None]] = []
        """Called in the moment in which the user learns that a batch is in the log."""
        self.older_ids: list[tuple[int, int]] = []
        """Producer id and epoch of its earlier instances."""
        self.ids_given_up = 0
        """So often it has asked for a producer id and heard nothing."""
        self.connections_opened = 0
        self.next_address: Address | None = None
        """Where it connects next, once; None: anywhere."""
        self._done = 0
        """So many batches from the first one on were done when somebody looked."""
        self._counts: dict[TopicPartition, int] = {}
        self._sessions: list[_Session] = []
        """All connections that it has, or is opening."""
        self._session: _Session | None = None
        """The one over which it sends."""
        self._left: list[_Left] = []
        """Connections that it has ended or lost, of which something may still be done."""
        self._not_before = 0.0
        self._pump_is_planned = False
        self._connect_is_planned = False

    @property
    def is_done(self) -> bool:
        """The user knows of every batch how it ended."""
        return self.done_in_order == len(self.batches)

    @property
    def done_in_order(self) -> int:
        """So many batches from the first one on are done."""
        while self._done < len(self.batches) and self.batches[self._done].is_done:
            self._done += 1
        return self._done

    @property
    def leaves(self) -> list[Batch]:
        """Every batch that was sent as one, the halves of split ones in their place."""
        found: list[Batch] = []
        stack = list(reversed(self.batches))
        while stack:
            batch = stack.pop()
            if batch.parts:
                stack.extend(reversed(batch.parts))
            else:
                found.append(batch)
        return found

    def send(self, topic: str, partition: int, record_count: int = 1) -> Batch:
        """Give it one batch of unique values."""
        first = self._counts.get((topic, partition), 0)
        self._counts[topic, partition] = first + record_count
        values = [f"{self.name}/{topic}-{partition}/{number}".encode() for number in range(first, first + record_count)]
        batch = Batch((topic, partition), first, values, self.network.now)
        self.batches.append(batch)
        self.producer.state(batch.partition).queue.append(batch)
        if self.settings.delivery is not None:
            self.host.later(self.settings.delivery, self._expire)
        self.plan()
        return batch

    def disconnect(self) -> None:
        """Drop all connections, as a client does that is tired of waiting; it comes back by itself."""
        for session in list(self._sessions):
            session.drop("dropped")

    def turn(self) -> None:
        """Metadata name another leader: from now on it sends over another connection, one that it has or a new one."""
        others: list[_Session | None] = [one for one in self._sessions if one is not self._session]
        if len(others) + 1 < CONNECTIONS_MAX:
            others.append(None)
        self.next_address = self.next_address or self._other_address()
        self._session = self.network.random.choice(others)
        self._plan_connect(0.0)
        self.plan()

    @property
    def connection(self) -> Connection | None:
        """The open connection over which it sends, None while there is none."""
        if self._session is None or self._session.wire is None:
            return None
        assert isinstance(self._session.wire, VirtualWire)
        return self._session.wire.connection

    def move(self) -> None:
        """Drop the connection over which it sends, and connect to another address, if it has one."""
        if self._session is not None and self.connection is not None:
            self.next_address = self._other_address()
            self._session.drop("dropped")

    def _other_address(self) -> Address | None:
        """One to which it does not send now, if it has one."""
        connection = self.connection
        others = [address for address in self.addresses if connection is None or address != connection.address]
        return self.network.random.choice(others) if others else None

    def begin_again(self) -> bool:
        """End, and begin again as another instance that asks for an id of its own; False: it has something to finish,
        or is new."""
        producer = self.producer
        if not self.is_done or not producer.has_id():
            return False
        self.older_ids.append((producer.producer_id, producer.producer_epoch))
        producer.producer_id = producer.producer_epoch = -1
        self.disconnect()
        return True

    def give_up_all(self) -> None:
        """The user gives up whatever is not finished."""
        for state in self.producer.partitions.values():
            for batch in [*state.in_flight, *state.queue]:
                if batch.is_live:
                    self.producer.give_up(batch, self.host.now(), may_be_written=bool(batch.sent_as))
        self.plan()

    def read_nothing(self, seconds: float) -> None:
        """Leave the answers in the socket for so long."""
        if self._session is not None and (wire := self._session.wire) is not None:
            wire.pause()
            self.host.later(seconds, wire.resume)

    def oldest_unanswered(self) -> list[tuple[Wire, float]]:
        """The open connections on which requests wait, and when the oldest of them was sent."""
        return [
            (session.wire, next(iter(session.waiting.values())).sent_at)
            for session in self._sessions
            if session.wire is not None and session.waiting
        ]

    def close(self) -> None:
        """The process ends for good."""
        self.host.crash()

    # ------------------------------------------------------------------ sending
    def plan(self) -> None:
        """Look for something to do at the end of this pass."""
        if not self._pump_is_planned:
            self._pump_is_planned = True
            self.host.at_flush(self._pump)

    def _pump(self) -> None:
        self._pump_is_planned = False
        session = self._session
        if session is None or session.wire is None:
            self._plan_connect()
            return
        if self.host.now() < self._not_before:
            self.host.later(self._not_before - self.host.now(), self.plan)
            return
        if self.producer.before_sending():
            if not any(one.waiting for one in self._sessions):
                session.ask_for_id()
            return
        if self.settings.in_flight_max == 1 and any(one.waiting for one in self._sessions):
            return  # Java mutes a partition then, whatever the connection (RecordAccumulator.mutePartition)
        while len(session.waiting) < self.settings.in_flight_max:
            ready = [batch for partition in self.producer.partitions if (batch := self.producer.take(partition))]
            if not ready:
                break
            session.produce(ready)

    def back_off(self) -> None:
        """Something failed: wait a little before the next request."""
        self._not_before = self.host.now() + self.settings.retry_backoff

    def _plan_connect(self, delay: float | None = None) -> None:
        """None: after a pause, if it has been connected before."""
        if self._session is None and not self._connect_is_planned and not self.is_done:
            self._connect_is_planned = True
            if delay is None:
                delay = self.network.between(self.settings.reconnect_backoff) if self.connections_opened else 0.0
            self.host.later(delay, self._connect)

    def _connect(self) -> None:
        self._connect_is_planned = False
        if self._session is not None:
            return  # it has turned to another one meanwhile
        session = _Session(self)
        self.host.connect(self._opens(session), session)

    def _opens(self, session: _Session) -> Address:
        """It sends over this connection as soon as it is there; returns where that leads."""
        self.connections_opened += 1
        self._session = session
        self._sessions.append(session)
        address, self.next_address = self.next_address, None
        return address or self.network.random.choice(self.addresses)

    # ------------------------------------------------------------------ what a session tells
    def session_ended(self, session: _Session, unanswered: list[tuple[Batch, Identity]]) -> None:
        """What was in flight there is sent again, in order."""
        self._left = [left for left in self._left if left.may_matter]
        if session.connection is not None:
            self._left.append(_Left.now(session.connection, [identity for _, identity in unanswered]))
        if session in self._sessions:
            self._sessions.remove(session)
        if self._session is session:
            self._session = None
        for batch in sorted((batch for batch, _ in unanswered), key=lambda batch: batch.first):
            if batch.is_live:
                self.producer.retry(batch)
        self.plan()

    def is_ahead(self, batch: Batch, session: _Session) -> bool:
        """Are older batches of its partition and epoch in flight over another connection than this one?"""
        assert batch.identity is not None
        return any(
            other.partition == batch.partition and other.first < batch.first and identity[:2] == batch.identity[:2]
            for one in self._sessions
            if one is not session
            for request in one.waiting.values()
            for other, identity in request.batches
        )

    def overtaken_until(self, identity: Identity) -> float:
        """Until when was anything on its way over a connection that it has left before, or this batch in work at its
        other end? Now, where it still is."""
        return max((left.mattered_until(identity) for left in self._left), default=0.0)

    def _expire(self) -> None:
        delivery = self.settings.delivery
        assert delivery is not None
        for state in self.producer.partitions.values():
            for batch in [*state.in_flight, *state.queue]:
                if batch.is_live and self.host.now() >= batch.created_at + delivery - 1e-9:
                    self.producer.give_up(batch, self.host.now(), may_be_written=bool(batch.sent_as))
        self.plan()


@dataclass(frozen=True, slots=True)
class _Left:
    """A connection that the client has left, and what it had not been answered there."""

    connection: Connection
    unanswered: Sequence[Identity]
    answers_bytes: int
    """So much had the other end written by then."""

    @classmethod
    def now(cls, connection: Connection, unanswered: Sequence[Identity]) -> _Left:
        """``unanswered``: as far as the client knows; what is on its way to it may be any of them."""
        back = connection.directions[1]
        return cls(connection, () if back.unread_bytes else unanswered, back.offered_bytes)

    @property
    def is_delivering(self) -> bool:
        """Is anything of it still on its way?"""
        return self.connection.directions[0].is_delivering

    @property
    def may_matter(self) -> bool:
        """Can anything that was sent there still have an effect?"""
        return self.is_delivering or self.connection.ends[1].is_open

    def mattered_until(self, identity: Identity) -> float:
        """When did the last of it arrive, or the other end answer for the last time, if it had this batch?"""
        forward, back = self.connection.directions
        if self.is_delivering or self.may_work_on(identity):
            return self.connection.network.now
        return max(forward.arrived_at, back.offered_at if identity in self.unanswered else 0.0)

    def may_work_on(self, identity: Identity) -> bool:
        """Has the other end this batch, has not answered anything since, and does not know that the client has left?"""
        is_silent = self.connection.directions[1].offered_bytes == self.answers_bytes
        return identity in self.unanswered and is_silent and self.connection.ends[1].is_open


class _Session:
    """One connection of the client: an endpoint."""

    def __init__(self, client: VirtualClient) -> None:
        self.wire: Wire | None = None
        self.connection: Connection | None = None
        self.waiting: dict[int, _Request] = {}
        self._client = client
        self._data = b""
        self._correlation_id = 0
        self._is_over = False

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """Begin to work."""
        assert isinstance(wire, VirtualWire)
        self.wire, self.connection = wire, wire.connection
        self._client.plan()

    def received(self, data: bytes) -> None:
        """Answers, in the order of the requests."""
        self._data += data
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4], "big")
            if len(self._data) < end:
                return
            frame, self._data = self._data[4:end], self._data[end:]
            self._answer(frame)

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        self._end()

    def drop(self, reason: str) -> None:
        """Reset the connection and continue as after a loss."""
        if self.wire is not None:
            self.wire.reset()
        self._end()

    # ------------------------------------------------------------------ requests
    def ask_for_id(self) -> None:
        """InitProducerId."""
        correlation_id = self._register([])
        client = self._client
        self._write(wire_bytes.init_producer_id(correlation_id, client.client_id, client.producer_name))

    def produce(self, batches: list[Batch]) -> None:
        """One request with one batch for each of its partitions."""
        parts, named = [], []
        settings, now = self._client.settings, self._client.network.now
        for batch in batches:
            identity = batch.identity
            assert identity is not None
            self._client.producer.note_sent(batch)
            self._client.network.sent.note(*identity)
            named.append((batch, identity))
            data = wire_bytes.batch_bytes(
                batch.values,
                identity.producer_id,
                identity.producer_epoch,
                identity.base_sequence,
                EPOCH_MS + int((now if settings.remakes else batch.created_at) * 1000),
                settings.codec,
            )
            parts.append((*batch.partition, data))
        correlation_id = self._register(named)
        timeout_ms = round((settings.timeout or settings.request_timeout) * 1000)
        how = settings.acks, settings.produce_version
        self._write(wire_bytes.produce(correlation_id, self._client.client_id, timeout_ms, parts, *how))

    def _register(self, batches: list[tuple[Batch, Identity]]) -> int:
        self._correlation_id += 1
        deadline = self._client.host.later(self._client.settings.request_timeout, lambda: self.drop("no answer"))
        ahead = [identity for batch, identity in batches if self._client.is_ahead(batch, self)]
        self.waiting[self._correlation_id] = _Request(batches, deadline, self._client.network.now, ahead)
        return self._correlation_id

    def _write(self, data: bytes) -> None:
        assert self.wire is not None
        self.wire.send(data)

    # ------------------------------------------------------------------ answers
    def _answer(self, frame: bytes) -> None:
        correlation_id = Reader(frame).int32()
        assert self.waiting, "an answer that nobody waits for"
        assert next(iter(self.waiting)) == correlation_id, "answers are not in the order of the requests"
        request = self.waiting.pop(correlation_id)
        request.deadline.cancel()
        client = self._client
        if not request.batches:
            error, producer_id, epoch = wire_bytes.parse_init_producer_id(frame[4:])
            if error:
                client.back_off()
            else:
                client.producer.new_id(producer_id, epoch)
        else:
            found = wire_bytes.parse_produce(frame[4:], client.settings.produce_version)
            assert set(found) == {batch.partition for batch, _ in request.batches}, "not what was asked for"
            for batch, identity in request.batches:
                error, base_offset = found[batch.partition]
                if error not in (0, 46):
                    client.back_off()
                was_live = batch.is_live
                if error == OUT_OF_ORDER:
                    batch.overtaken_until[identity] = client.overtaken_until(identity)
                since = request.sent_at if identity in request.ahead else None
                client.producer.answered(batch, Answer(client.host.now(), identity, error, base_offset, since))
                if was_live and batch.acknowledged is not None:
                    for tell in client.on_acknowledged:
                        tell(batch)
        client.plan()

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self.wire = None
        waiting, self.waiting = self.waiting, {}
        for request in waiting.values():
            request.deadline.cancel()
            self._client.ids_given_up += not request.batches
        self._client.session_ended(self, [one for request in waiting.values() for one in request.batches])
