"""Reads a topic by confluent-kafka: all partitions assigned by hand, or as a member of a group that commits."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from .program import Read, arguments

_ASK_SECONDS_MAX = 10


def commit(consumer: Consumer, read: Read) -> bool:
    """Was that all committed? What it gives its user of a coordinator that moves is counted."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() == KafkaError._NO_OFFSET:
            return True  # nothing is left
        read.commit_failed(error)
        return False
    return True


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
                read.told_of(message.error())
                continue
            read.record(message.partition(), message.offset(), message.value())
        if given["group"] and read.commit_is_due:
            commit(consumer, read)
    if given["group"]:
        while not commit(consumer, read):
            time.sleep(0.5)
        positions = consumer.committed(places, _ASK_SECONDS_MAX)
        more["committed"] = {one.partition: one.offset for one in positions}
    consumer.close()
    read.finish(**more)


if __name__ == "__main__":
    main()
