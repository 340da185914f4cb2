"""Producers at a broker whose answers take a given time, on a virtual clock: nothing counts but produce connections,
requests, and the time that the proxy needs for each batch. ``benchmarks/produce_connections_alone.py`` runs it with
produce connections of other commits too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import Appended, Outcome
from idemproxy.reactor import Address, Buffer, Endpoint
from testkit.stage.clock import Clock, Wire

from . import kafka_bytes as kafka

BROKER, TOPIC = 1, "topic"
ADDRESS: Address = ("kafka", 9092)
PARTITIONS = 32
CONNECT_SECONDS = 0.001
ROUNDS = 30
WARM_UP_ROUNDS = 10


class SlowBroker(Clock):
    """A reactor, and a broker on it whose answers take so long. Nothing else takes any time."""

    def __init__(self, answer_seconds: float) -> None:
        super().__init__()
        self.answer_seconds = answer_seconds
        self.connections = 0

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        self.connections += 1
        self.later(CONNECT_SECONDS, lambda: endpoint.connected(_BrokerWire(self, endpoint)))


class _BrokerWire(Wire):
    """A connection to the broker. It answers each request once its time is over."""

    def __init__(self, broker: SlowBroker, endpoint: Endpoint) -> None:
        super().__init__()
        self._broker = broker
        self._endpoint = endpoint

    def send(self, *chunks: Buffer) -> None:
        request = kafka.parse_request(b"".join(chunks)[4:])
        rows = [(topic, partition, 0, 7) for topic, partition, _ in kafka.parse_produce(request.body).partitions]
        answer = kafka.frame(request.correlation_id, kafka.produce_answer(2, rows))
        self._broker.later(self._broker.answer_seconds, lambda: self._endpoint.received(answer))

    def fence(self, may_send: Callable[[], bool]) -> None:
        assert may_send()


class Pool(Protocol):
    """What takes appends to the broker."""

    def append(self, effect: Append, done: Callable[[Outcome], None]) -> None: ...


class Producers:
    """Each sends the next batch when the one before is done. The proxy gets these ready one at a time, each in so many
    seconds."""

    def __init__(self, broker: SlowBroker, pool: Pool, count: int, size: int, work_seconds: float = 0.0) -> None:
        self.appended = 0
        self.pool = pool
        self._broker = broker
        self._records = bytes(size)
        self._work_seconds = work_seconds
        self._is_free_at = 0.0
        for number in range(count):
            self._prepare(number)

    def per_answer(self) -> float:
        """How many appends are done in the time of one answer, after the warm-up."""
        seconds = self._broker.answer_seconds
        self._broker.run(WARM_UP_ROUNDS * seconds)
        before = self.appended
        self._broker.run(ROUNDS * seconds)
        return (self.appended - before) / ROUNDS

    def _prepare(self, number: int) -> None:
        if not self._work_seconds:
            self._send(number)
            return
        now = self._broker.now()
        self._is_free_at = max(self._is_free_at, now) + self._work_seconds
        self._broker.later(self._is_free_at - now, lambda: self._send(number))

    def _send(self, number: int) -> None:
        def told(outcome: Outcome) -> None:
            assert isinstance(outcome, Appended)
            self.appended += 1
            self._prepare(number)

        self.pool.append(Append(BROKER, TOPIC, number % PARTITIONS, self._records, 30_000, lambda: None), told)
