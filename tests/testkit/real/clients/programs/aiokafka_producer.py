"""Numbered records by aiokafka. Every error that its user gets is counted, but ``start`` is tried again."""

from __future__ import annotations

import asyncio
import time

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from .program import Told, arguments

_START_SECONDS_MAX = 30


async def started(settings: dict[str, object]) -> AIOKafkaProducer:
    """Return a producer that runs. aiokafka gives up at the first lost connection here, so its caller must not."""
    end = time.monotonic() + _START_SECONDS_MAX
    while True:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            return producer
        except (KafkaError, OSError):
            await producer.stop()
            if time.monotonic() > end:
                raise
            await asyncio.sleep(0.1)


async def run() -> None:
    """Send, wait for all answers, say what became of them."""
    given = arguments()
    told = Told(given["partitions"], given["told_file"], given["pace"])
    compression = None if given["compression"] == "none" else given["compression"]
    settings = {"bootstrap_servers": given["bootstrap"], "compression_type": compression, **given["settings"]}
    producer = await started(settings)
    headers = [(name, b"\1") for name in given["headers"]]
    answers = []
    for partition, number, value in told.records(given["name"], given["records"]):
        answer = await producer.send(given["topic"], value, partition=partition, headers=headers)
        answers.append((partition, number, answer))
        await asyncio.sleep(told.ahead_seconds)
    for partition, number, answer in answers:
        try:
            metadata = await answer
        except KafkaError as error:
            told.failed(repr(error))
        else:
            told.acknowledged(partition, number, metadata.offset)
    await producer.stop()
    told.finish()


if __name__ == "__main__":
    asyncio.run(run())
