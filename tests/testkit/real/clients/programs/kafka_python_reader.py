"""Reads a topic by kafka-python, 3.x or 1.4: partitions assigned by hand, or as a member of a group that commits."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from .kafka_python import load, python_settings
from .program import Read, arguments

_POLL_MS = 5000
"""It comes back with the first records. 3.0.12 loses what the group assigned to it for ever if a poll's time is over
just when the answer to SyncGroup comes, seen at a broker 2.8.2 alone with 200 ms on a busy machine."""


def commit(kafka: ModuleType, consumer: Any, read: Read) -> bool:
    """Was that committed? What it gives its user of a coordinator that moves is counted."""
    try:
        consumer.commit()
    except kafka.errors.KafkaError as error:
        read.commit_failed(error)
        return False
    return True


def main() -> None:
    """Read so many records, or until the time is up."""
    kafka, given = load(), arguments()
    settings = python_settings(given["settings"])
    read = Read(given)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=given["bootstrap"],
        group_id=given["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )
    places = [kafka.TopicPartition(given["topic"], number) for number in range(given["partitions"])]
    more: dict[str, object] = {"version": kafka.__version__}
    if given["group"]:
        consumer.subscribe([given["topic"]])
    else:
        consumer.assign(places)
        for name, offsets in (
            ("beginning", consumer.beginning_offsets(places)),
            ("end", consumer.end_offsets(places)),
        ):
            more[name] = {place.partition: offset for place, offset in offsets.items()}
        if (time_ms := given.get("time_ms")) is not None:
            found = consumer.offsets_for_times(dict.fromkeys(places, time_ms))
            more["times"] = {place.partition: one.offset if one else -1 for place, one in found.items()}
        consumer.seek_to_beginning(*places)
    while read.goes_on:
        for records in consumer.poll(timeout_ms=_POLL_MS).values():
            for record in records:
                read.record(record.partition, record.offset, record.value)
        if given["group"] and read.commit_is_due:
            commit(kafka, consumer, read)
    if given["group"]:
        while not commit(kafka, consumer, read):
            consumer.poll(timeout_ms=500)
        more["committed"] = {place.partition: consumer.committed(place) for place in places}
    consumer.close()
    read.finish(**more)


if __name__ == "__main__":
    main()
