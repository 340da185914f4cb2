"""Real clients inside this process that produce numbered records at a steady pace until they are stopped.

Every error that a client gives its user is kept. They speak to whatever address they are given and know no proxy.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from idemproxy.demo.verdict import Position, value_of
from testkit.real.brokers.kafka_cluster import librdkafka_settings

from .programs.kafka_python import load

DELIVERY_SECONDS = 240
_PAUSE_SECONDS = 0.02


class PacedClient(ABC, threading.Thread):
    """One idempotent producer that sends a few records every 20 ms, the partitions in turn."""

    def __init__(self, name: str, topic: str, partitions: int, records_per_step: int) -> None:
        super().__init__(name=name, daemon=True)
        self.acknowledged: dict[Position, int] = {}
        self.errors: list[str] = []
        self.sent = 0
        self._topic = topic
        self._partitions = partitions
        self._records_per_step = records_per_step
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Send nothing more; ``join`` waits for the answers."""
        self._stopping.set()

    def run(self) -> None:
        """Produce, then wait until everything is answered."""
        try:
            while not self._stopping.wait(_PAUSE_SECONDS):
                for _ in range(self._records_per_step):
                    partition, number = self.sent % self._partitions, self.sent // self._partitions
                    self._send(value_of(self.name, partition, number), partition, (self.name, partition, number))
                    self.sent += 1
                self._serve()
            self._flush()
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")

    @abstractmethod
    def _send(self, value: bytes, partition: int, position: Position) -> None:
        """Hand one record to the client."""

    @abstractmethod
    def _serve(self) -> None:
        """Let the client call back."""

    @abstractmethod
    def _flush(self) -> None:
        """Wait for all answers."""


class LibrdkafkaClient(PacedClient):
    """confluent-kafka."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int, records_per_step: int = 10) -> None:
        super().__init__(name, topic, partitions, records_per_step)
        settings = librdkafka_settings(bootstrap, delivery_seconds=DELIVERY_SECONDS, enable_idempotence=True)
        self._producer = Producer({**settings, "error_cb": self._noticed})

    def _noticed(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(f"fatal: {error}")

    def _delivered(self, position: Position, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged[position] = -1 if offset is None else offset

    def _send(self, value: bytes, partition: int, position: Position) -> None:
        delivered = partial(self._delivered, position)
        self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)

    def _serve(self) -> None:
        self._producer.poll(0)

    def _flush(self) -> None:
        if left := self._producer.flush(DELIVERY_SECONDS):
            self.errors.append(f"{left} records were not answered")


class KafkaPythonClient(PacedClient):
    """kafka-python 3."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int, records_per_step: int = 10) -> None:
        super().__init__(name, topic, partitions, records_per_step)
        self._producer: Any = load().KafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            acks="all",
            request_timeout_ms=5000,
            retry_backoff_ms=100,
            reconnect_backoff_max_ms=500,
            linger_ms=5,
            batch_size=400,
            delivery_timeout_ms=DELIVERY_SECONDS * 1000,
        )

    def _delivered(self, position: Position, metadata: Any) -> None:
        self.acknowledged[position] = metadata.offset

    def _failed(self, error: object) -> None:
        self.errors.append(repr(error))

    def _send(self, value: bytes, partition: int, position: Position) -> None:
        answer = self._producer.send(self._topic, value, partition=partition)
        answer.add_callback(partial(self._delivered, position))
        answer.add_errback(self._failed)

    def _serve(self) -> None:
        """It has a thread of its own."""

    def _flush(self) -> None:
        self._producer.flush(timeout=DELIVERY_SECONDS)
        self._producer.close()


class ClientLoad:
    """Several such clients at once. A context manager: leaving it stops them and waits for their answers."""

    def __init__(self, clients: Sequence[PacedClient]) -> None:
        self.clients = clients

    def __enter__(self) -> ClientLoad:
        for client in self.clients:
            client.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self.clients:
            client.stop()
        if kind is None:
            for client in self.clients:
                client.join(DELIVERY_SECONDS + 10)

    @property
    def sent(self) -> int:
        """Records that were handed to the clients."""
        return sum(client.sent for client in self.clients)

    def acknowledged(self) -> dict[Position, int]:
        """Every record that a client called stored, with the offset that it got."""
        return {position: offset for client in self.clients for position, offset in client.acknowledged.items()}

    def errors(self) -> list[str]:
        """Every error that a client reported to its user, of all of them."""
        return [f"{client.name}: {error}" for client in self.clients for error in client.errors]

    def all_go_on(self, records: int = 20, seconds_max: float = 90.0) -> float:
        """Wait until each has so many more records acknowledged; return the seconds that it took."""
        return self._wait([len(client.acknowledged) + records for client in self.clients], seconds_max)

    def all_catch_up(self, seconds_max: float = 90.0) -> float:
        """Wait until each has as many records acknowledged as it has sent by now; return the seconds that it took."""
        return self._wait([client.sent for client in self.clients], seconds_max)

    def _wait(self, wanted: Sequence[int], seconds_max: float) -> float:
        begun = time.monotonic()
        while any(len(client.acknowledged) < count for client, count in zip(self.clients, wanted, strict=True)):
            took = time.monotonic() - begun
            now = [len(client.acknowledged) for client in self.clients]
            assert took < seconds_max, f"{now} of {wanted} in {took:.0f} s: {self.errors()}"
            time.sleep(0.01)
        return time.monotonic() - begun
