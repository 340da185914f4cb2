"""A program: kafka-python reads a partition from its start and writes the values to its output, one a line, until it
has so many, or for a minute. In a process of its own: the library leaves sockets open when a broker has gone."""

from __future__ import annotations

import sys
import time

from kafka import KafkaConsumer, TopicPartition

READ_SECONDS_MAX = 60.0


def main(servers: str, topic: str, count: int, fetch_bytes: int, version: str) -> None:
    """``version``: of the broker, as the library is configured, for example 0.10.0."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers.split(","),
        api_version=tuple(map(int, version.split("."))),
        enable_auto_commit=False,
        max_partition_fetch_bytes=fetch_bytes,
        request_timeout_ms=20_000,
    )
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    until, found = time.monotonic() + READ_SECONDS_MAX, 0
    while found < count and time.monotonic() < until:
        for record in consumer.poll(200, 50).get(place, ()):
            found += 1
            sys.stdout.buffer.write(record.value + b"\n")
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
