"""Numbered records, and readers, by libraries that need an old Python: kafka-python 0.9.5 and 1.0.2, pykafka 2.8,
aiokafka 0.5.2. What it prints and writes down has the form of ``program.py``, which such a Python cannot load.

Usage: old_python.py LIBRARY producer|reader JSON"""

import asyncio
import json
import sys
import time
from typing import Any

_ERRORS_SHOWN_MAX = 20
_RECORDS_AT_ONCE = 10
_POLL_SECONDS = 0.5
Given = Any
"""What came as JSON."""


class Told:
    """What became of the records."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.acked = self.failures = 0
        self.errors = []  # type: list[str]
        self.lines = []  # type: list[str]

    def batches(self) -> "list[tuple[int, int, list[bytes]]]":
        """(partition, number of the first, values), the partitions in turn."""
        given = self.given
        each = given["records"] // given["partitions"]
        name = given["name"]
        return [
            (
                place,
                first,
                [f"{name}:{place}:{n}".encode() for n in range(first, min(first + _RECORDS_AT_ONCE, each))],
            )
            for first in range(0, each, _RECORDS_AT_ONCE)
            for place in range(given["partitions"])
        ]

    def acknowledged(self, partition: int, number: int, offset: int) -> None:
        """One record."""
        self.acked += 1
        self.lines.append(f"{partition} {number} {offset}\n")

    def failed(self, error: object, records: int = 1) -> None:
        """An error reached the user."""
        self.failures += records
        if len(self.errors) < _ERRORS_SHOWN_MAX:
            self.errors.append(repr(error))

    def finish(self) -> None:
        """End the program."""
        with open(self.given["told_file"], "w") as file:
            file.write("".join(self.lines))
        sent = self.given["records"]
        _finish(
            {"sent": sent, "acked": self.acked, "failed": self.failures, "errors": self.errors},
            self.failures == 0 and self.acked == sent,
        )


class Read:
    """What was read."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.records = 0
        self.lines = []  # type: list[bytes]
        self._deadline = time.time() + given["seconds_max"]

    @property
    def goes_on(self) -> bool:
        """Is there more to read, and time?"""
        return bool(self.records < self.given["records"] and time.time() < self._deadline)

    def record(self, partition: int, offset: int, value: bytes) -> None:
        """One record."""
        self.records += 1
        self.lines.append(b"%d %d %s\n" % (partition, offset, value))

    def finish(self, **more: object) -> None:
        """End the program."""
        with open(self.given["records_file"], "wb") as file:
            file.write(b"".join(self.lines))
        _finish(dict(more, records=self.records), self.records >= self.given["records"])


def _finish(outcome: "dict[str, object]", ok: bool) -> None:
    print(json.dumps(dict(outcome, final=True)))
    sys.stdout.flush()
    sys.exit(0 if ok else 1)


# ---------------------------------------------------------------------- kafka-python 0.9.5
def produce_by_0_9(given: Given) -> None:
    """Batches, each sent at once."""
    kafka = __import__("kafka")
    base = __import__("kafka.producer.base", fromlist=["Producer"])
    protocol = __import__("kafka.protocol", fromlist=["CODEC_NONE"])
    codec = {"none": protocol.CODEC_NONE, "gzip": protocol.CODEC_GZIP, "snappy": protocol.CODEC_SNAPPY}
    told, client = Told(given), kafka.KafkaClient(given["bootstrap"])
    producer = base.Producer(client, req_acks=-1, ack_timeout=30000, codec=codec[given["compression"]])
    for partition, first, values in told.batches():
        try:
            (answer,) = producer.send_messages(given["topic"], partition, *values)
        except Exception as error:
            told.failed(error, len(values))
            continue
        for at in range(len(values)):
            told.acknowledged(partition, first + at, answer.offset + at)
    told.finish()


def read_by_0_9(given: Given) -> None:
    """It commits a group's offsets, and has no members."""
    kafka = __import__("kafka")
    topic, reading = given["topic"], Read(given)
    client = kafka.KafkaClient(given["bootstrap"])
    group = given["group"].encode() if given["group"] else None
    consumer = kafka.SimpleConsumer(client, group, topic, auto_commit=False, auto_offset_reset="smallest")
    consumer.provide_partition_info()
    while reading.goes_on:
        for partition, found in consumer.get_messages(count=100, block=True, timeout=_POLL_SECONDS):
            reading.record(partition, found.offset, found.message.value)
    if group:
        consumer.commit()
    reading.finish()


# ---------------------------------------------------------------------- kafka-python 1.0.2
def produce_by_1_0(given: Given) -> None:
    """All records, then their answers. With one request in flight it can not find out the broker's release."""
    kafka = __import__("kafka")
    told = Told(given)
    compression = None if given["compression"] == "none" else given["compression"]
    producer = kafka.KafkaProducer(
        bootstrap_servers=given["bootstrap"],
        compression_type=compression,
        acks="all",
        batch_size=400,
        linger_ms=5,
        retries=5,
    )
    answers = [
        (first + at, producer.send(given["topic"], value, partition=partition))
        for partition, first, values in told.batches()
        for at, value in enumerate(values)
    ]
    producer.flush()
    for number, answer in answers:
        try:
            found = answer.get(timeout=60)
        except Exception as error:
            told.failed(error)
            continue
        told.acknowledged(found.partition, number, found.offset)
    producer.close()
    told.finish()


def read_by_1_0(given: Given) -> None:
    """A member of a group, or alone."""
    kafka = __import__("kafka")
    topic, reading = given["topic"], Read(given)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=given["bootstrap"],
        group_id=given["group"] or None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=500,
    )
    places = [kafka.TopicPartition(topic, number) for number in range(given["partitions"])]
    if given["group"]:
        consumer.subscribe([topic])
    else:
        consumer.assign(places)
    while reading.goes_on:
        for one in consumer:
            reading.record(one.partition, one.offset, one.value)
            if not reading.goes_on:
                break
    if given["group"]:
        consumer.commit()
    consumer.close()
    reading.finish()


# ---------------------------------------------------------------------- pykafka 2.8
def produce_by_pykafka(given: Given) -> None:
    """Each record to the partition that its key names, as no call takes one."""
    pykafka = __import__("pykafka")
    common = __import__("pykafka.common", fromlist=["CompressionType"])
    codec = {
        "none": common.CompressionType.NONE,
        "gzip": common.CompressionType.GZIP,
        "snappy": common.CompressionType.SNAPPY,
    }
    told = Told(given)
    client = pykafka.KafkaClient(hosts=given["bootstrap"])  # its topics do not keep it alive
    topic = client.topics[given["topic"].encode()]

    def chosen(partitions: "list[Any]", key: bytes) -> Any:
        return next(one for one in partitions if one.id == int(key))

    producer = topic.get_producer(
        partitioner=chosen,
        compression=codec[given["compression"]],
        required_acks=-1,
        delivery_reports=True,
        max_queued_messages=10000,
        linger_ms=5,
    )
    for partition, _first, values in told.batches():
        for value in values:
            producer.produce(value, partition_key=b"%d" % partition)
    for _ in range(given["records"]):
        message, error = producer.get_delivery_report(timeout=60)
        if error is not None:
            told.failed(error)
            continue
        number = int(message.value.rpartition(b":")[2])
        told.acknowledged(message.partition_id, number, message.offset)
    producer.stop()
    told.finish()


def read_by_pykafka(given: Given) -> None:
    """A balanced consumer whose group is managed by the broker, or a simple one."""
    pykafka = __import__("pykafka")
    common = __import__("pykafka.common", fromlist=["OffsetType"])
    reading = Read(given)
    client = pykafka.KafkaClient(hosts=given["bootstrap"])
    topic = client.topics[given["topic"].encode()]
    settings = {
        "auto_offset_reset": common.OffsetType.EARLIEST,
        "consumer_timeout_ms": 500,
        "auto_commit_enable": False,
    }  # type: dict[str, Any]
    if given["group"]:
        consumer = topic.get_balanced_consumer(given["group"].encode(), managed=True, **settings)
    else:
        consumer = topic.get_simple_consumer(reset_offset_on_start=True, **settings)
    while reading.goes_on:
        one = consumer.consume()
        if one is not None:
            reading.record(one.partition_id, one.offset, one.value)
    more = {}
    if given["group"]:
        consumer.commit_offsets()
    elif given.get("time_ms") is not None:
        found = topic.fetch_offset_limits(given["time_ms"])
        more["times"] = {partition: answer.offset[0] for partition, answer in found.items()}
    consumer.stop()
    reading.finish(**more)


# ---------------------------------------------------------------------- aiokafka 0.5.2
def produce_by_aiokafka(given: Given) -> None:
    """Into batches as small as the other clients'."""
    aiokafka, loop = __import__("aiokafka"), asyncio.get_event_loop()
    told = Told(given)
    producer = aiokafka.AIOKafkaProducer(
        loop=loop,
        bootstrap_servers=given["bootstrap"],
        compression_type=None if given["compression"] == "none" else given["compression"],
        acks="all",
        max_batch_size=400,
    )
    loop.run_until_complete(producer.start())
    answers = [
        (first + at, loop.run_until_complete(producer.send(given["topic"], value, partition=partition)))
        for partition, first, values in told.batches()
        for at, value in enumerate(values)
    ]
    for number, answer in answers:
        try:
            found = loop.run_until_complete(answer)
        except Exception as error:
            told.failed(error)
            continue
        told.acknowledged(found.partition, number, found.offset)
    loop.run_until_complete(producer.stop())
    told.finish()


def read_by_aiokafka(given: Given) -> None:
    """A member of a group, or alone."""
    aiokafka, loop = __import__("aiokafka"), asyncio.get_event_loop()
    reading, wait = Read(given), loop.run_until_complete
    consumer = aiokafka.AIOKafkaConsumer(
        loop=loop,
        bootstrap_servers=given["bootstrap"],
        group_id=given["group"] or None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    places = [aiokafka.TopicPartition(given["topic"], number) for number in range(given["partitions"])]
    if given["group"]:
        consumer.subscribe([given["topic"]])
    wait(consumer.start())
    if not given["group"]:
        consumer.assign(places)
    while reading.goes_on:
        for records in wait(consumer.getmany(timeout_ms=200)).values():
            for one in records:
                reading.record(one.partition, one.offset, one.value)
    more = {}
    if given["group"]:
        wait(consumer.commit())
        more["committed"] = {place.partition: wait(consumer.committed(place)) for place in places}
    elif given.get("time_ms") is not None:
        found = wait(consumer.offsets_for_times(dict.fromkeys(places, given["time_ms"])))
        more["times"] = {place.partition: answer.offset for place, answer in found.items()}
    wait(consumer.stop())
    reading.finish(**more)


PROGRAMS = {
    "kafka-python-0.9.5 producer": produce_by_0_9,
    "kafka-python-0.9.5 reader": read_by_0_9,
    "kafka-python-1.0.2 producer": produce_by_1_0,
    "kafka-python-1.0.2 reader": read_by_1_0,
    "pykafka-2.8.0 producer": produce_by_pykafka,
    "pykafka-2.8.0 reader": read_by_pykafka,
    "aiokafka-0.5.2 producer": produce_by_aiokafka,
    "aiokafka-0.5.2 reader": read_by_aiokafka,
}  # type: dict[str, Any]


if __name__ == "__main__":
    PROGRAMS[" ".join(sys.argv[1:3])](json.loads(sys.argv[3]))
