"""Reads a topic by confluent-kafka: all partitions assigned by hand, or as a member of a group that commits."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from .program import Read, arguments

_ASK_SECONDS_MAX = 10


def main() -> None:
    """Read so many records, or until the time is up."""
    given = arguments()
    read = Read(given)
    settings = {"bootstrap.servers": given["bootstrap"], "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**settings, "group.id": given["group"] or "nobody", **given["settings"]})
    places = [TopicPartition(given["topic"], number) for number in range(given["partitions"])]
    more: dict[str, object] = {}
    if given["group"]:
        consumer.subscribe([given["topic"]])
    else:
        borders = [consumer.get_watermark_offsets(place, _ASK_SECONDS_MAX) for place in places]
        more["beginning"], more["end"] = (dict(enumerate(ends)) for ends in zip(*borders, strict=True))
        consumer.assign([TopicPartition(one.topic, one.partition, OFFSET_BEGINNING) for one in places])
    while read.goes_on:
        for message in consumer.consume(500, 0.2):
            if message.error() is not None:
                raise SystemExit(f"an error reached the user: {message.error()}")
            read.record(message.partition(), message.offset(), message.value())
        if given["group"] and read.commit_is_due:
            consumer.commit(asynchronous=False)
    if given["group"]:
        consumer.commit(asynchronous=False)
        positions = consumer.committed(places, _ASK_SECONDS_MAX)
        more["committed"] = {one.partition: one.offset for one in positions}
    consumer.close()
    read.finish(**more)


if __name__ == "__main__":
    main()
