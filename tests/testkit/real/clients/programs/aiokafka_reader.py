"""Reads a topic by aiokafka: all partitions assigned by hand, or as a member of a group that commits."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from .program import Read, arguments


async def commit(consumer: AIOKafkaConsumer, read: Read) -> bool:
    """Was that committed? What it gives its user of a coordinator that moves is counted."""
    try:
        await consumer.commit()
    except KafkaError as error:
        read.commit_failed(error)
        return False
    return True


async def run() -> None:
    """Read so many records, or until the time is up."""
    given = arguments()
    read = Read(given)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=given["bootstrap"],
        group_id=given["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **given["settings"],
    )
    places = [TopicPartition(given["topic"], number) for number in range(given["partitions"])]
    more: dict[str, object] = {}
    if given["group"]:
        consumer.subscribe([given["topic"]])
        await consumer.start()
    else:
        await consumer.start()
        consumer.assign(places)
        for name, offsets in (
            ("beginning", await consumer.beginning_offsets(places)),
            ("end", await consumer.end_offsets(places)),
        ):
            more[name] = {place.partition: offset for place, offset in offsets.items()}
        await consumer.seek_to_beginning(*places)
    while read.goes_on:
        for records in (await consumer.getmany(timeout_ms=200)).values():
            for record in records:
                read.record(record.partition, record.offset, record.value)
        if given["group"] and read.commit_is_due:
            await commit(consumer, read)
    if given["group"]:
        while not await commit(consumer, read):
            await consumer.getmany(timeout_ms=500)
        more["committed"] = {place.partition: await consumer.committed(place) for place in places}
    await consumer.stop()
    read.finish(**more)


if __name__ == "__main__":
    asyncio.run(run())
