"""What is in the log, read in three ways: records out of one replica's segment files, the messages of all replicas side
by side, and what a plain consumer gets. Made for millions of records: arrays and iterators, no object per record."""

from __future__ import annotations

import time
from array import array
from binascii import crc32
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

from idemproxy.codecs.batch_marker import Identity, parse_batch_marker
from idemproxy.codecs.message_set import inner_messages
from idemproxy.demo.segments import WRAPPER_BYTES_MAX, shallow_messages

READ_SECONDS_MAX = 240.0


@dataclass(frozen=True, slots=True)
class Wrapper:
    """One message as the broker stores it. ``append_ms``: by the broker's clock, None unless the topic keeps that."""

    first_offset: int
    last_offset: int
    identities: tuple[Identity, ...]
    append_ms: int | None


@dataclass(slots=True)
class PartitionLog:
    """One partition of one replica. ``digests``: CRC-32 of each value, parallel to ``offsets``."""

    wrappers: list[Wrapper] = field(default_factory=list)
    offsets: array[int] = field(default_factory=lambda: array("q"))
    digests: array[int] = field(default_factory=lambda: array("L"))

    def wrapper_at(self, offset: int) -> Wrapper:
        """The stored message around a record. Raises IndexError where the log ends below."""
        return self.wrappers[bisect_left(self.wrappers, offset, key=lambda one: one.last_offset)]


def read_log(log_directory: Path, topic: str, partition: int, log: PartitionLog) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, value) in the order of the files, and fill ``log`` on the way. Raises WireError, OSError."""
    for message in shallow_messages(log_directory, topic, partition):
        inner = inner_messages(message, WRAPPER_BYTES_MAX) if message.is_wrapper else [message]
        append_ms = message.timestamp if message.is_log_append_time else None
        identities = (parse_batch_marker(message.key) or ()) if message.is_wrapper else ()
        log.wrappers.append(Wrapper(inner[0].offset, message.offset, identities, append_ms))
        for one in inner:
            value = bytes(one.value or b"")
            log.offsets.append(one.offset)
            log.digests.append(crc32(value))
            yield one.offset, value


def differing_replicas(log_directories: list[Path], topic: str, partition: int) -> list[str]:
    """Return a sentence for each replica that has other messages than the first one, up to where the shorter ends."""
    found = []
    first = [(one.offset, one.crc) for one in shallow_messages(log_directories[0], topic, partition)]
    for number, directory in enumerate(log_directories[1:], 1):
        other = [(one.offset, one.crc) for one in shallow_messages(directory, topic, partition)]
        where = next((a for a, b in zip(first, other, strict=False) if a != b), None)
        if where is not None:
            found.append(f"{topic} {partition}: broker {number} differs from broker 0 from offset {where[0]} on")
        elif len(first) != len(other):
            found.append(f"{topic} {partition}: broker {number} has {len(other)} messages, broker 0 {len(first)}")
    return found


def consume(bootstrap: str, topic: str, partitions: int) -> dict[int, tuple[array[int], array[int]]]:
    """Return (offsets, digests of the values) by partition, as a plain consumer gets them.

    Raises AssertionError when it meets an error or comes to no end.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    got: dict[int, tuple[array[int], array[int]]] = {number: (array("q"), array("L")) for number in range(partitions)}
    reading = set(got)
    end = time.monotonic() + READ_SECONDS_MAX
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in got])
        while reading:
            assert time.monotonic() < end, f"{topic} could not be read to its end within {READ_SECONDS_MAX:.0f} s"
            for message in consumer.consume(10_000, 0.5):
                error = message.error()
                if error is None:
                    offsets, digests = got[message.partition()]
                    offsets.append(message.offset())
                    digests.append(crc32(message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    reading.discard(message.partition())
                else:
                    assert error.retriable(), f"{topic} can not be read: {error}"
    finally:
        consumer.close()
    return got
