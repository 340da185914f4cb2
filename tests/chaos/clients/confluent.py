"""Producer of a chaos run by confluent-kafka (librdkafka)."""

from __future__ import annotations

from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from .program import FLUSH_SECONDS_MAX, Program


def main() -> None:
    """Send until the run stops it, wait for all answers, say what became of them."""
    program = Program()

    def noticed(error: KafkaError) -> None:
        # Broken connections are news, not failures: librdkafka tells of them and continues.
        if error.fatal():
            program.noticed(error)
            program.is_broken = True

    def delivered(partition: int, number: int, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None:
            program.failed(partition, number, error)
        else:
            program.acknowledged(partition, number, -1 if offset is None else offset)

    producer = Producer({**program.given["settings"], "error_cb": noticed})

    def send(partition: int, number: int, value: bytes) -> None:
        told = partial(delivered, partition, number)
        while True:
            try:
                producer.produce(program.topic, value, partition=partition, on_delivery=told)
                return
            except BufferError:
                producer.poll(0.05)
            except KafkaException as error:
                program.failed(partition, number, error)
                program.is_broken = True
                return

    program.run(send, lambda: producer.poll(0))
    left = producer.flush(FLUSH_SECONDS_MAX)
    program.finish(unanswered=left)


if __name__ == "__main__":
    main()
