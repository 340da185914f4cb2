"""What is in the log, read in three ways: records out of one replica's segment files, the messages of all replicas side
by side, and what a plain consumer gets. Made for millions of records: arrays and iterators, no object per record."""

from __future__ import annotations

import time
from array import array
from binascii import crc32
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

from idemproxy.codecs.batch_marker import Identity, parse_batch_marker
from idemproxy.codecs.logged import LoggedBatch
from idemproxy.codecs.message_set import inner_messages
from idemproxy.codecs.primitives import Buffer
from idemproxy.codecs.record_batch import CONTROL_FLAG, iterate_records
from idemproxy.demo.segments import WRAPPER_BYTES_MAX, logged

READ_SECONDS_MAX = 240.0


@dataclass(frozen=True, slots=True)
class Wrapper:
    """One message or batch as the broker stores it. ``append_ms``: by the broker's clock, None unless the topic keeps
    that."""

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


def read_log(
    log_directory: Path, topic: str, partition: int, log: PartitionLog, sent: Mapping[int, Identity]
) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, value) in the order of the files, and fill ``log`` on the way. ``sent``: every batch that a proxy
    has sent, by its marker in message format v2. Raises WireError, OSError."""
    for one in logged(log_directory, topic, partition):
        records: Iterable[tuple[int, Buffer | None]]
        if isinstance(one, LoggedBatch):
            if one.header.attributes & CONTROL_FLAG:
                continue
            log.wrappers.append(Wrapper(one.first, one.offset, _identities_of(one, sent), _append_ms(one)))
            opened = iterate_records(one.records, one.header, WRAPPER_BYTES_MAX, is_stored=True)
            records = ((one.first + record.offset_delta, record.value) for record in opened)
        else:
            inner = inner_messages(one, WRAPPER_BYTES_MAX) if one.is_wrapper else [one]
            identities = (parse_batch_marker(one.key) or ()) if one.is_wrapper else ()
            append_ms = one.timestamp if one.is_log_append_time else None
            log.wrappers.append(Wrapper(inner[0].offset, one.offset, identities, append_ms))
            records = ((message.offset, message.value) for message in inner)
        for offset, found in records:
            value = bytes(found or b"")
            log.offsets.append(offset)
            log.digests.append(crc32(value))
            yield offset, value


def _identities_of(batch: LoggedBatch, sent: Mapping[int, Identity]) -> tuple[Identity, ...]:
    header = batch.header
    if header.producer_id >= 0:
        return (Identity(header.producer_id, header.producer_epoch, header.base_sequence, batch.record_count),)
    known = None if batch.marker is None else sent.get(batch.marker)
    return () if known is None else (known,)


def _append_ms(batch: LoggedBatch) -> int | None:
    return batch.header.max_timestamp if batch.header.is_log_append_time else None


def differing_replicas(log_directories: list[Path], topic: str, partition: int) -> list[str]:
    """Return a sentence for each replica that has other messages than the first one, up to where the shorter ends."""
    found = []
    first = list(_checksums(log_directories[0], topic, partition))
    for number, directory in enumerate(log_directories[1:], 1):
        other = list(_checksums(directory, topic, partition))
        where = next((a for a, b in zip(first, other, strict=False) if a != b), None)
        if where is not None:
            found.append(f"{topic} {partition}: broker {number} differs from broker 0 from offset {where[0]} on")
        elif len(first) != len(other):
            found.append(f"{topic} {partition}: broker {number} has {len(other)} messages, broker 0 {len(first)}")
    return found


def _checksums(log_directory: Path, topic: str, partition: int) -> Iterator[tuple[int, int]]:
    for one in logged(log_directory, topic, partition):
        yield one.offset, one.header.crc if isinstance(one, LoggedBatch) else one.crc


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
