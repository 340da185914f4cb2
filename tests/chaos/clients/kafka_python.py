"""Producer of a chaos run by kafka-python."""

from __future__ import annotations

from functools import partial

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from .program import FLUSH_SECONDS_MAX, Program


def main() -> None:
    """Send until the run stops it, wait for all answers, say what became of them."""
    program = Program()
    producer = KafkaProducer(**program.given["settings"])

    def delivered(partition: int, number: int, metadata: object) -> None:
        program.acknowledged(partition, number, metadata.offset)  # type: ignore[attr-defined]

    def send(partition: int, number: int, value: bytes) -> None:
        try:
            answer = producer.send(program.topic, value, partition=partition)
        except KafkaError as error:
            program.failed(partition, number, error)
            return
        answer.add_callback(partial(delivered, partition, number))
        answer.add_errback(partial(program.failed, partition, number))

    program.run(send, lambda: None)
    try:
        producer.flush(timeout=FLUSH_SECONDS_MAX)
    except KafkaTimeoutError as error:
        program.noticed(error)
    program.finish()


if __name__ == "__main__":
    main()
