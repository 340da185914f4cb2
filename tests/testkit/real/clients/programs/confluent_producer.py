"""Numbered records by confluent-kafka (librdkafka). Every error it gives its user is counted."""

from __future__ import annotations

from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from .program import Told, arguments

_FLUSH_SECONDS_MAX = 300


def main() -> None:
    """Send, wait for all answers, say what became of them."""
    given = arguments()
    told = Told(given["partitions"], given["told_file"], given["pace"])
    notices: list[str] = []

    def noticed(error: KafkaError) -> None:
        # Broken connections are news, not failures: librdkafka reports them and continues.
        if error.fatal():
            told.failed(error)
        notices.append(str(error))

    def delivered(number: int, error: KafkaError | None, message: Message) -> None:
        place, offset = message.partition(), message.offset()
        if error is not None:
            told.failed(error)
        elif place is not None:
            told.acknowledged(place, number, -1 if offset is None else offset)

    settings = {"bootstrap.servers": given["bootstrap"], "compression.type": given["compression"]}
    headers = [(name, b"\1") for name in given["headers"]]
    producer = Producer({**settings, **given["settings"], "error_cb": noticed})
    for partition, number, value in told.records(given["name"], given["records"]):
        while True:
            try:
                producer.produce(
                    given["topic"], value, partition=partition, headers=headers, on_delivery=partial(delivered, number)
                )
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(told.ahead_seconds)
    left = producer.flush(_FLUSH_SECONDS_MAX)
    if left:
        told.failed(f"{left} records are still under way")
    told.finish(notices=len(notices))


if __name__ == "__main__":
    main()
