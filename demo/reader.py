"""Reads a topic back twice: by a plain consumer straight from the broker, and out of the broker's segment files."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

from .segments import read_partition

READ_SECONDS_MAX = 60.0

Log = dict[int, list[tuple[int, bytes | None]]]
"""(offset, value) in the order of the log, by partition."""


class ReadFailed(Exception):
    """The topic can not be read back; one sentence."""


def consume_all(bootstrap: str, topic: str, partitions: int) -> Log:
    """Return what a plain consumer sees from the beginning to the end. Raises ReadFailed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-back",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    log: Log = {number: [] for number in range(partitions)}
    open_ones = set(log)
    deadline = time.monotonic() + READ_SECONDS_MAX
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in log])
        while open_ones:
            if time.monotonic() > deadline:
                raise ReadFailed(f"{topic} could not be read to its end within {READ_SECONDS_MAX:.0f} s")
            for message in consumer.consume(5000, 0.5):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    open_ones.discard(partition)
                elif error is not None:
                    raise ReadFailed(f"{topic} {partition} can not be read: {error}")
                else:
                    log[partition].append((offset, message.value()))
    finally:
        consumer.close()
    return log


def read_segments(log_directory: Path, topic: str, partitions: int) -> Log:
    """Return what stands in the broker's files. Raises WireError for broken ones."""
    return {
        number: [(record.offset, record.value) for record in read_partition(log_directory, topic, number)]
        for number in range(partitions)
    }
