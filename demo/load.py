"""Real librdkafka producers that send numbered records, at the caller's pace, and note what was acknowledged.

Every producer numbers its records of each partition 0, 1, 2, ... in its values, so that ``verdict.py`` can judge them.
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, Message, Producer

from .verdict import Position, position_of, value_of

UNACKNOWLEDGED_MAX = 10_000
"""Above this the load waits: a queue that grows without limit would only repeat more after each fault."""
DELIVERY_SECONDS_MAX = 120


class Load:
    """The producers of one run. Called from one thread."""

    def __init__(
        self, bootstrap: str, topic: str, *, name: str, producers: int, partitions: int, idempotent: bool
    ) -> None:
        self.acknowledged: dict[Position, int | None] = {}
        self.failed: list[str] = []
        self.fatal: list[str] = []
        self.sent = 0
        self._topic = topic
        self._partitions = partitions
        self._names = [f"{name}-{number}" for number in range(producers)]
        self._producers = [Producer(self._settings(bootstrap, one, idempotent)) for one in self._names]

    def _settings(self, bootstrap: str, name: str, idempotent: bool) -> dict[str, object]:
        return {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "enable.idempotence": idempotent,
            "acks": "all",
            # As users set it, who want order without idempotence; with idempotence it is the most there is.
            "max.in.flight.requests.per.connection": 5,
            "message.send.max.retries": 10_000_000,
            "message.timeout.ms": DELIVERY_SECONDS_MAX * 1000,
            "request.timeout.ms": 5000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 50,
            "linger.ms": 20,
            "batch.num.messages": 100,
            "log_level": 0,
            "error_cb": self._on_error,
        }

    @property
    def unacknowledged(self) -> int:
        """Records that were sent and have neither been acknowledged nor failed."""
        return self.sent - len(self.acknowledged) - len(self.failed)

    def send(self, records: int) -> int:
        """Hand so many records to the producers in turn, fewer when too many are unacknowledged; return how many."""
        before = self.sent
        for _ in range(min(records, UNACKNOWLEDGED_MAX - self.unacknowledged)):
            turn, number_of_producer = divmod(self.sent, len(self._producers))
            number, partition = divmod(turn, self._partitions)
            value = value_of(self._names[number_of_producer], partition, number)
            try:
                self._producers[number_of_producer].produce(
                    self._topic, value, partition=partition, on_delivery=self._on_delivery
                )
            except BufferError:
                break
            self.sent += 1
        return self.sent - before

    def poll(self, seconds: float) -> None:
        """Take in answers for about so long."""
        end = time.monotonic() + seconds
        while True:
            for producer in self._producers:
                producer.poll(0)
            left = end - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.01))

    def close(self) -> None:
        """End the producers, whatever has no answer yet; nothing more is acknowledged."""
        self._producers.clear()

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        position = position_of(message.value())
        assert position is not None
        self.acknowledged[position] = message.offset()

    def _on_error(self, error: KafkaError) -> None:
        # Lost connections are what this is about; a fatal error is not.
        if error.fatal():
            self.fatal.append(str(error))
