"""What tests do with a real cluster: fresh topics, a plain producer, the stored log as the oracle wants it.

Everything here blocks. Owns no process: clusters come from idemproxy.demo.legacy_cluster.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.segments import StoredRecord, read_partition
from idemproxy.demo.verdict import Position, Verdict, judge, position_of, value_of
from testkit.real.clients.java_clients import Acknowledged

_topic_numbers = itertools.count(1)


def fresh_topic(
    cluster: LegacyCluster,
    partitions: int = 4,
    replication: int = 1,
    config: Mapping[str, str | int] | None = None,
    *,
    kind: str = "topic",
) -> str:
    """Create a topic that no other test uses, with leaders; return its name, which begins with ``kind``."""
    name = f"{kind}-{next(_topic_numbers)}"
    cluster.create_topic(name, partitions, replication, config)
    return name


def librdkafka_settings(bootstrap: str, *, delivery_seconds: int = 60, **more: object) -> dict[str, object]:
    """Return a producer's settings that try again until the delivery time is over (names with _ for .)."""
    return {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "request.timeout.ms": 5000,
        "message.timeout.ms": delivery_seconds * 1000,
        "message.send.max.retries": 10_000_000,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 20,
        "linger.ms": 1,
        "batch.num.messages": 40,
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def patient_settings(bootstrap: str, **more: object) -> dict[str, object]:
    """The same for a plain producer where nothing breaks: an answer that a busy machine delays is waited for, as who
    sends again without idempotence has it stored twice."""
    return librdkafka_settings(bootstrap, request_timeout_ms=30_000, **more)  # type: ignore[arg-type]


def produce(
    settings: Mapping[str, object], topic: str, partitions: int, records: int, name: str = "plain"
) -> dict[Position, int]:
    """Send numbered values by librdkafka, partitions in turn; return the offset of every one that was acknowledged.

    Raises AssertionError when any was not acknowledged within its delivery time.
    """
    acknowledged: dict[Position, int] = {}
    errors: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(str(error))
            return
        value = message.value()
        assert value is not None
        partition, number = (int(part) for part in value.decode().rsplit(":", 2)[1:])
        acknowledged[name, partition, number] = -1 if (offset := message.offset()) is None else offset

    producer = Producer(dict(settings))
    for index in range(records):
        partition, number = index % partitions, index // partitions
        while True:
            try:
                producer.produce(topic, value_of(name, partition, number), partition=partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    left = producer.flush(120)
    assert not errors, f"{len(errors)} records failed, first: {errors[0]}"
    assert left == 0, f"{left} records are still under way"
    return acknowledged


def consume(bootstrap: str, topic: str, group: str, records: int, **settings: object) -> list[bytes]:
    """Read so many values as a member of a group (librdkafka), and commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    values: list[bytes] = []
    try:
        consumer.subscribe([topic])
        for _ in range(120):
            messages = consumer.consume(1000, 0.5)
            values += [message.value() or b"" for message in messages if message.error() is None]
            if len(values) >= records:
                consumer.commit(asynchronous=False)
                break
    finally:
        consumer.close()
    return values


def stored(
    cluster: LegacyCluster, topic: str, partitions: int, broker: int | None = None
) -> dict[int, list[StoredRecord]]:
    """Return what is in the segment files, by partition: of one broker, else of each partition's leader, as soon as
    the brokers know one."""
    if broker is None:
        cluster.wait_for_leaders(topic, partitions)
    return {
        number: list(read_partition(_log_directory(cluster, topic, number, broker), topic, number))
        for number in range(partitions)
    }


def stored_texts(cluster: LegacyCluster, topic: str, partitions: int) -> list[tuple[int, int, str]]:
    """Return (partition, offset, value) of all records in the segment files of the partitions' leaders."""
    return [
        (partition, record.offset, (record.value or b"").decode())
        for partition, log in stored(cluster, topic, partitions).items()
        for record in log
    ]


def stored_values(cluster: LegacyCluster, place: tuple[str, int]) -> list[tuple[int, bytes]]:
    """Return (offset, value) of all records in the segment files of the first broker."""
    return [(one.offset, one.value or b"") for one in read_partition(cluster.log_directories[0], *place)]


def verdict(
    cluster: LegacyCluster,
    topic: str,
    partitions: int,
    acknowledged: Mapping[Position, int | None] | Mapping[Position, int] | None = None,
) -> Verdict:
    """Judge the leaders' segment files against what the producers got acknowledged."""
    log = stored(cluster, topic, partitions)
    pairs = {number: [(record.offset, record.value) for record in records] for number, records in log.items()}
    return judge(pairs, None if acknowledged is None else dict(acknowledged))


def codecs_by_name(log: Mapping[int, list[StoredRecord]]) -> dict[str, set[int]]:
    """Return the codecs that the records of each producer are stored with."""
    found: dict[str, set[int]] = {}
    for record in (record for records in log.values() for record in records):
        position = position_of(record.value)
        assert position is not None, record
        found.setdefault(position[0], set()).add(record.codec)
    return found


def told(name: str, acknowledged: list[Acknowledged]) -> dict[Position, int]:
    """Return a Java producer's acknowledgements in the form that ``verdict`` takes."""
    return {(name, one.partition, one.number): one.offset for one in acknowledged}


def _log_directory(cluster: LegacyCluster, topic: str, partition: int, broker: int | None) -> Path:
    node = cluster.leader(topic, partition) if broker is None else broker
    assert node >= 0, f"{topic} {partition} has no leader"
    return cluster.log_directories[node]
