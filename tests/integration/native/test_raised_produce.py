"""Message sets of old clients at a real Kafka 4 and at a real 3.9: they are in the log once, as they were sent."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.old_formats.raising import MISSING_TIMESTAMP
from idemproxy.codecs.produce import encode_request
from idemproxy.codecs.record_batch import StoredBatch, iterate_records, iterate_stored
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kraft_cluster import NEWEST, KraftCluster
from testkit.real.clients.raised_producer import RaisedProducer, Shared
from testkit.real.clients.raw_client import RawClient, batch
from testkit.stage.sent_sets import random_set

BEFORE_4 = "3.9.1"
OUTPUT_BYTES_MAX = 64 << 20
SENT_MS = int(time.time() * 1000)
"""A time that messages have. It may be an hour before the test runs, so it is compared with what is stored alone."""
AHEAD_MS = 7_200_000
"""From now on; Kafka 4 takes no more than an hour."""
Fields = tuple[bytes | None, bytes | None, int]
RECORDS: list[Fields] = [(b"key", b"value", SENT_MS), (None, b"", SENT_MS - 5), (b"", None, -1)]
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
_names = itertools.count()


@dataclass
class Scene:
    """One broker."""

    cluster: KraftCluster

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        return {broker: self.cluster.address(broker) for broker in self.cluster.broker_ids}

    @property
    def is_kafka_4(self) -> bool:
        return self.cluster.version == NEWEST

    def topic(self, **config: str | int) -> str:
        name = f"raised-{next(_names)}"
        self.cluster.create_topic(name, config={key.replace("_", "."): value for key, value in config.items()})
        return name

    def batches(self, topic: str) -> list[StoredBatch]:
        with RawClient(self.cluster.address(0)) as reader:
            found: list[StoredBatch] = []
            offset, end = 0, reader.end_offset(topic, 0)
            while offset < end:
                for one in iterate_stored(reader.fetch(topic, 0, offset)):
                    found.append(one)
                    offset = one.base_offset + one.header.last_offset_delta + 1
            return found

    def stored(self, topic: str) -> list[Fields]:
        """Key, value and timestamp of all records of partition 0."""
        return [
            (one.key, one.value, one.timestamp)
            for stored in self.batches(topic)
            for one in iterate_records(stored.records, stored.header, OUTPUT_BYTES_MAX, is_stored=True)
        ]


@pytest.fixture(scope="module", params=[NEWEST, BEFORE_4])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory: Path = tmp_path_factory.mktemp("kraft")
    with KraftCluster(directory, version=request.param, auto_create_topics=False) as running:
        yield Scene(running)


def message_set(records: list[Fields], magic: int, codec: Codec = Codec.NONE) -> bytes:
    plain = encode_set(records, magic=magic)
    if codec is Codec.NONE:
        return plain
    return encode_message(None, compress(codec, plain, magic=magic), magic=magic, codec=codec, timestamp=SENT_MS)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (0, 1), (2, 0)])
def test_a_set_is_stored_as_it_was_sent(scene: Scene, version: int, magic: int, codec: Codec) -> None:
    topic = scene.topic()
    began_ms = int(time.time() * 1000)
    with RaisedProducer(scene.addresses) as producer:
        answers = [
            producer.produce_one(topic, message_set(RECORDS, magic, codec), version=version, acks=acks)
            for acks in (-1, 1)
        ]
    assert [(one.error_code, one.base_offset) for one in answers] == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 3)]
    stored = scene.stored(topic)
    assert [one[:2] for one in stored] == [one[:2] for one in RECORDS] * 2
    if magic:
        assert stored == RECORDS * 2
    else:
        assert all(began_ms <= timestamp <= time.time() * 1000 for _, _, timestamp in stored)
    headers = [one.header for one in scene.batches(topic)]
    assert [header.codec for header in headers] == [codec] * 2
    assert [header.base_sequence for header in headers] == [0, 3]
    assert headers[0].producer_id == headers[1].producer_id >= 0


def test_what_3_9_converts_is_what_is_sent(scene: Scene) -> None:
    """Each kind of set that both take, sent to 3.9.1 as it is and raised."""
    if scene.is_kafka_4:
        with RawClient(scene.cluster.address(0)) as raw:
            raw.send(ApiKey.PRODUCE, 2, b"".join(encode_request(2, -1, 5_000, [("t", 0, b"")])))
            assert raw.is_closed(), "Kafka 4 serves none of it"
        return
    kinds = [(version, magic, codec) for version, magic in ((0, 0), (2, 1), (0, 1), (2, 0)) for codec in CODECS]
    as_it_is, raised = scene.topic(), scene.topic()
    with (
        RawClient(scene.cluster.address(0)) as raw,
        RaisedProducer(scene.addresses, keeps_missing_timestamps=True) as producer,
    ):
        for version, magic, codec in kinds:
            sent = message_set(RECORDS, magic, codec)
            answer = raw.produce_one(as_it_is, 0, sent, version=version)
            assert producer.produce_one(raised, sent, version=version) == answer.__class__(
                raised, 0, answer.error_code, answer.base_offset, answer.log_append_time_ms
            )
        assert producer.produce_one(raised, batch([b"v2"]), version=2).error_code == 0
        assert raw.produce_one(as_it_is, 0, batch([b"v2"]), version=2).error_code == 0
        refused = {
            "empty": b"",
            "cut off": message_set(RECORDS[:1], 1)[:-1],
            "damaged": message_set(RECORDS, 1)[:-1] + b"\0",
        }
        found = {
            name: (
                raw.produce_one(as_it_is, 0, sent, version=2).error_code,
                producer.produce_one(raised, sent, version=2).error_code,
            )
            for name, sent in refused.items()
        }
        # Of a set that is cut off 3.9.1 stores what is whole, and calls that success.
        assert found == {"empty": (0, 0), "cut off": (0, 2), "damaged": (2, 2)}
    assert scene.stored(raised) == scene.stored(as_it_is)
    assert [one.header.codec for one in scene.batches(raised)] == [one.header.codec for one in scene.batches(as_it_is)]


def test_random_sets_are_stored_as_3_9_stores_them_or_where_it_refuses_them(scene: Scene) -> None:
    if scene.is_kafka_4:
        return
    as_it_is, raised = scene.topic(), scene.topic()
    with (
        RawClient(scene.cluster.address(0)) as raw,
        RaisedProducer(scene.addresses, keeps_missing_timestamps=True) as producer,
    ):
        for seed in range(300):
            sent, records = random_set(Random(seed))
            if any(timestamp < MISSING_TIMESTAMP for _, _, timestamp in records):
                continue  # 3.9.1 has UNKNOWN_SERVER_ERROR for it: its own batches cannot hold such a time
            direct = raw.produce_one(as_it_is, 0, sent, version=2).error_code
            mine = producer.produce_one(raised, sent, version=2).error_code
            if direct == ErrorCode.INVALID_RECORD:  # several wrappers, or plain messages next to one: 0.10 takes them
                assert mine == 0
                for value in ([record] for record in records):
                    assert raw.produce_one(as_it_is, 0, message_set(value, 1), version=2).error_code == 0
            else:
                assert mine == direct
    ours, theirs = scene.stored(raised), scene.stored(as_it_is)
    assert [one[:2] for one in ours] == [one[:2] for one in theirs]


def test_several_wrappers_and_plain_messages_in_one_set_are_one_batch(scene: Scene) -> None:
    topic = scene.topic()
    sent = message_set(RECORDS, 1, Codec.GZIP) + message_set(RECORDS, 1) + message_set(RECORDS, 1, Codec.SNAPPY)
    with RaisedProducer(scene.addresses) as producer:
        assert producer.produce_one(topic, sent, version=2).error_code == 0
    assert scene.stored(topic) == RECORDS * 3
    assert len(scene.batches(topic)) == 1


# ---------------------------------------------------------------------- sizes
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_set_above_the_topics_limit_is_stored_in_batches_below_it(scene: Scene, codec: Codec) -> None:
    topic = scene.topic(max_message_bytes=2_000)
    records: list[Fields] = [(None, b"%d" % (number**5) * 4, SENT_MS + number) for number in range(600)]
    with RaisedProducer(scene.addresses) as producer:
        for attempt in range(2):
            answer = producer.produce_one(topic, message_set(records, 1, codec), version=2)
            assert (answer.error_code, answer.base_offset) == (0, 600 * attempt)
            if not attempt:
                first = len(producer.sent)
        assert len(producer.sent) - first < first, "the limit is remembered"
        too_large = producer.produce_one(topic, encode_set([(None, bytes(3_000), SENT_MS)], magic=1), version=2)
        assert too_large.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert producer.produce_one(topic, encode_set(RECORDS, magic=1), version=2).error_code == 0
    assert scene.stored(topic) == records * 2 + RECORDS
    assert all(one.header.size_bytes <= 2_000 for one in scene.batches(topic))


def test_three_megabytes_in_one_request_are_stored(scene: Scene) -> None:
    topic = scene.topic()
    records: list[Fields] = [(None, b"%04d" % number * 256, SENT_MS) for number in range(3_000)]
    with RaisedProducer(scene.addresses) as producer:
        answer = producer.produce_one(topic, encode_set(records, magic=1), version=0)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert len(producer.sent) == 4
    assert scene.stored(topic) == records


# ---------------------------------------------------------------------- refusals
def test_a_refused_set_harms_no_other_one(scene: Scene) -> None:
    compacted, plain = scene.topic(cleanup_policy="compact"), scene.topic()
    keyed = encode_set([(b"k", b"v", SENT_MS)], magic=1)
    with RaisedProducer(scene.addresses) as producer:
        without_key = encode_set([(None, b"v", SENT_MS)], magic=1)
        answers = producer.produce([(compacted, 0, without_key), (plain, 0, without_key)], version=2)
        assert answers[compacted, 0].error_code == ErrorCode.CORRUPT_MESSAGE
        assert answers[plain, 0].error_code == 0
        answers = producer.produce([(compacted, 0, keyed), (plain, 0, keyed), ("nowhere", 0, keyed)], version=2)
        assert answers[compacted, 0].error_code == answers[plain, 0].error_code == 0
        assert answers["nowhere", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [len(scene.stored(topic)) for topic in (compacted, plain)] == [1, 2]
    assert [one.header.producer_epoch for one in scene.batches(plain)] == [0, 0]


@pytest.mark.parametrize("kind", ["missing", "zero", "one", "ahead"])
def test_timestamps_are_judged_by_the_broker(scene: Scene, kind: str) -> None:
    topic = scene.topic()
    timestamp = {"missing": -1, "zero": 0, "one": 1, "ahead": int(time.time() * 1000) + AHEAD_MS}[kind]
    sent = encode_set([(None, b"v", timestamp)], magic=1)
    with RaisedProducer(scene.addresses) as producer:
        code = producer.produce_one(topic, sent, version=2).error_code
    assert code == (ErrorCode.INVALID_TIMESTAMP if kind == "ahead" and scene.is_kafka_4 else 0)
    assert scene.stored(topic) == ([] if code else [(None, b"v", timestamp)])


def test_log_append_time_is_returned(scene: Scene) -> None:
    topic = scene.topic(message_timestamp_type="LogAppendTime")
    with RaisedProducer(scene.addresses) as producer:
        began_ms = int(time.time() * 1000)
        answer = producer.produce_one(topic, encode_set(RECORDS, magic=1), version=2)
    assert began_ms <= answer.log_append_time_ms <= time.time() * 1000
    assert [one.header.max_timestamp for one in scene.batches(topic)] == [answer.log_append_time_ms]


# ---------------------------------------------------------------------- acks
def test_sets_without_acks_are_stored_in_order(scene: Scene) -> None:
    topic = scene.topic()
    sent = [b"%d" % number for number in range(200)]
    lost = itertools.count(1)
    with RaisedProducer(scene.addresses, loses=lambda _: not next(lost) % 5) as producer:
        for value in sent:
            assert producer.produce([(topic, 0, encode_set([(None, value, SENT_MS)], magic=0))], acks=0) == {}
        assert producer.closed is None
        bad = encode_set([(None, b"v", SENT_MS)], magic=0)[:-1]
        assert producer.produce([(topic, 0, bad)], acks=0) == {}
        assert producer.closed is not None
    assert [value for _, value, _ in scene.stored(topic)] == sent


# ---------------------------------------------------------------------- lost answers
@pytest.mark.parametrize("acks", [-1, 1])
def test_sets_whose_answers_are_lost_are_stored_once_and_in_order(scene: Scene, acks: int) -> None:
    topic = scene.topic()
    lost = itertools.count(1)
    offsets: list[int] = []
    sent: list[bytes] = []
    with RaisedProducer(scene.addresses, loses=lambda _: not next(lost) % 3) as producer:
        for number in range(150):
            values = [b"%d-%d" % (number, index) for index in range(1 + number % 4)]
            offsets.append(len(sent))
            sent += values
            records: list[Fields] = [(None, value, SENT_MS) for value in values]
            answer = producer.produce_one(topic, message_set(records, 1, CODECS[number % 4]), version=2, acks=acks)
            assert (answer.error_code, answer.base_offset) == (0, offsets[-1])
        assert len(producer.sent) > 200
    assert [value for _, value, _ in scene.stored(topic)] == sent
    assert {one.header.producer_epoch for one in scene.batches(topic)} == {0}


# ---------------------------------------------------------------------- producer ids
def test_without_a_transactional_id_a_broker_gives_another_id_and_the_next_epoch_is_counted_here(scene: Scene) -> None:
    """What the pool of producer ids stands on."""
    topic, untouched = scene.topic(), scene.topic()
    with RawClient(scene.cluster.address(0)) as raw:
        producer_id = raw.new_producer_id()

        def append(where: str, epoch: int, sequence: int) -> int:
            sent = batch([b"%d-%d" % (epoch, sequence)], producer_id=producer_id, epoch=epoch, sequence=sequence)
            return raw.produce_one(where, 0, sent).error_code

        code, given, epoch = raw.init_producer_id(4, None, producer_id, 0)
        assert (code, epoch) == (0, 0)
        assert given != producer_id
        assert append(topic, 0, 0) == 0
        assert append(topic, 1, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert append(topic, 1, 0) == 0
        assert append(topic, 0, 1) == ErrorCode.INVALID_PRODUCER_EPOCH, "what comes late is refused"
        assert append(untouched, 0, 0) == 0, "but where the next epoch has not written"


@pytest.mark.long
def test_many_connections_that_write_once_leave_few_entries_at_the_broker(scene: Scene) -> None:
    topic, shared = scene.topic(), Shared()
    sent = encode_set([(None, b"v", SENT_MS)], magic=1)
    connections: dict[int, RawClient] = {}
    for _ in range(10_000):
        producer = RaisedProducer(scene.addresses, shared=shared, connections=connections)
        assert producer.produce_one(topic, sent, version=2, acks=1).error_code == 0
    with RawClient(scene.cluster.address(0)) as raw:
        answer = raw.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": topic, "partition_indexes": [0]}])
        assert raw.end_offset(topic, 0) == 10_000
    for connection in connections.values():
        connection.close()
    assert len(answer.topics[0].partitions[0].active_producers) == shared.pools.by_name.known == 1
