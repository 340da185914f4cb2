"""Fetches of v0 to v3, raised, and answered with what a real 3.9.1 and a real 4.3.1 send; compared with what a 3.9.1,
and a 0.11.0.3 that stores messages of format v1, themselves answer to them.

A 3.9.1 is no measure where its consumers get stuck: at a control batch or a compacted tail at the end, at a record
above the limit, at zstd. Then the test says so, and what these consumers get instead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from confluent_kafka import Producer

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.record_batch import iterate_records, iterate_stored
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.raised_client import OldConsumer, RaisedConsumer, ReadLog
from testkit.real.clients.raw_client import RawClient
from testkit.stage.stored_batches import (
    Entry,
    Read,
    StoredRecord,
    aiokafka_reads,
    entries,
    header,
    kafka_python_reads,
    stored_batch,
)

VERSIONS = range(4)
CODECS = [*Codec, "mixed"]
NO_LIMIT = 1 << 30
COMPACTED_SECONDS_MAX = 60
COMPACTING: dict[str, str | int] = {
    "cleanup.policy": "compact",
    "segment.ms": 1_000,
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": 100,
}
SETTINGS = {"log.cleaner.backoff.ms": 200, "message.max.bytes": 10_000_000, "replica.fetch.max.bytes": 10_000_000}
BIG = bytes(2_500_000)
DAY_MS = 86_400_000


@dataclass
class Scene:
    """A broker, and what was written to it."""

    cluster: LegacyCluster
    raw: RawClient
    now_ms: int = field(default_factory=lambda: int(1000 * time.time()) - DAY_MS)
    open_transactions: list[Producer] = field(default_factory=list)

    def end(self, topic: str) -> int:
        return self.raw.end_offset(topic, 0)

    def write(self, topic: str, batches: list[tuple[Codec, list[StoredRecord]]]) -> None:
        for codec, records in batches:
            answer = self.raw.produce_one(topic, 0, stored_batch(records, codec=codec), version=7)
            assert answer.error_code == ErrorCode.NONE, answer

    def create(self, topic: str, partitions: int = 1, **config: str | int) -> str:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.cluster.create_topic(topic, partitions, config={**settings, "max.message.bytes": 10_000_000})
        return topic

    def records(self, count: int, first: int = 0, at_ms: int = 0, size_bytes: int = 40) -> list[StoredRecord]:
        """So many records with their own keys; each third one has headers."""
        return [
            StoredRecord(
                i,
                self.now_ms + at_ms + i,
                b"k%d" % (first + i),
                b"v%d" % (first + i) + b"x" * size_bytes,
                (header(b"name", b"value"),) if i % 3 == 0 else (),
            )
            for i in range(count)
        ]

    def write_plain(self, topic: str, codec: Codec | str) -> None:
        """Batches of one codec, or of all but zstd."""
        codecs = [codec] * 3 if isinstance(codec, Codec) else [*Codec][:4] * 2
        self.write(topic, [(one, self.records(20 + 30 * number)) for number, one in enumerate(codecs)])

    def write_compacted(self, topic: str, codec: Codec) -> None:
        """Offsets 0 to 19 of which 10 to 19 are compacted away, 20 to 29, 30 to 39 that are all compacted away, 40 to
        49; and one that is not looked at by the cleaner."""
        self.write(topic, [(codec, self.records(20)), (codec, self.records(10, 10, at_ms=10_000))])
        self.write(topic, [(codec, self.records(10, 100, at_ms=20_000)), (codec, self.records(10, 100, at_ms=30_000))])
        self.write(topic, [(codec, self.records(1, 200, at_ms=40_000))])

    def wait_for_compaction(self, topic: str) -> None:
        deadline = time.monotonic() + COMPACTED_SECONDS_MAX
        while len(self.stored(topic)) > 31:
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def write_transactions(self, topic: str, *ends: str) -> None:
        """Transactions of five records, each with its outcome in their values: c, a, or o for one that stays open."""
        producer = Producer(
            {"bootstrap.servers": self.cluster.bootstrap, "transactional.id": f"{topic}-{ends}", "linger.ms": 100}
        )
        producer.init_transactions(30)
        for end in ends:
            producer.begin_transaction()
            for number in range(5):
                producer.produce(topic, f"{end}{number}".encode(), key=b"key", timestamp=self.now_ms)
            producer.flush(30)
            if end == "c":
                producer.commit_transaction(30)
            elif end == "a":
                producer.abort_transaction(30)
            else:
                self.open_transactions.append(producer)

    def stored(self, topic: str, offset: int = 0) -> list[Read]:
        """All records that the log has, by its own batches."""
        found: list[Read] = []
        end = self.end(topic)
        while offset < end:
            before = offset
            for batch in iterate_stored(self.raw.fetch(topic, 0, offset, version=10)):
                head = batch.header
                after = batch.base_offset + head.last_offset_delta + 1
                if not head.attributes & 0x20:
                    for one in iterate_records(batch.records, head, NO_LIMIT, is_stored=True):
                        time_ms = head.max_timestamp if head.is_log_append_time else one.timestamp
                        found.append((batch.base_offset + one.offset_delta, time_ms, one.key, one.value))
                offset = max(offset, after)
            if offset == before:
                break
        return [one for one in found if one[0] >= 0]


def names(codec: Codec | str) -> str:
    return codec.name.lower() if isinstance(codec, Codec) else codec


def written(scene: Scene) -> Scene:
    """The topics of most tests."""
    for codec in CODECS:
        for kind in ("CreateTime", "LogAppendTime"):
            scene.write_plain(scene.create(f"{names(codec)}-{kind}", message_timestamp_type=kind), codec)
    for one in (Codec.NONE, Codec.GZIP, Codec.ZSTD):
        topic = f"compacted-{names(one)}"
        scene.cluster.create_topic(topic, config=COMPACTING)
        scene.write_compacted(topic, one)
    scene.write_plain(scene.create("all-zstd", compression_type="zstd"), Codec.NONE)
    scene.write_transactions(scene.create("transactions"), "c", "a", "c", "a")
    scene.write_transactions(scene.create("open"), "c", "o")
    scene.write(
        scene.create("big"), [(Codec.NONE, scene.records(5)), (Codec.NONE, [StoredRecord(0, scene.now_ms, b"k", BIG)])]
    )
    scene.write("big", [(Codec.GZIP, [StoredRecord(0, scene.now_ms, b"k", BIG)]), (Codec.NONE, scene.records(5))])
    for one in (Codec.NONE, Codec.GZIP, Codec.ZSTD):
        scene.wait_for_compaction(f"compacted-{names(one)}")
    return scene


@pytest.fixture(scope="module")
def kafka_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A 3.9.1, which answers Fetch v0 to v3 itself."""
    directory = tmp_path_factory.mktemp("3.9.1")
    with (
        KraftCluster(directory, version="3.9.1", auto_create_topics=False, broker_settings=SETTINGS) as cluster,
        RawClient(cluster.address(0)) as raw,
    ):
        yield written(Scene(cluster, raw))


@pytest.fixture(scope="module")
def kafka_4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A 4.3.1, which closes connections over them."""
    directory = tmp_path_factory.mktemp("4.3.1")
    with (
        KraftCluster(directory, auto_create_topics=False, broker_settings=SETTINGS) as cluster,
        RawClient(cluster.address(0)) as raw,
    ):
        yield written(Scene(cluster, raw))


def entries_of(log: ReadLog) -> list[Entry]:
    return [one for message_set in log.message_sets for one in entries(message_set)]


def read_back(log: ReadLog, version: int, offset: int = 0) -> list[Read]:
    """All records as two other implementations find them, without what stands in a wrapper before an offset."""
    found = [one for message_set in log.message_sets for one in kafka_python_reads(message_set)]
    assert found == [one for message_set in log.message_sets for one in aiokafka_reads(message_set)]
    assert all(one[1] == -1 for one in found) is (version < 2)
    return [one for one in found if one[0] >= offset]


def expected(records: list[Read], version: int) -> list[Read]:
    return records if version >= 2 else [(offset, -1, key, value) for offset, _, key, value in records]


def codecs_of(found: list[Entry]) -> set[int]:
    return {one.attributes & 7 for one in found}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", CODECS, ids=names)
def test_entries_are_those_of_a_3_9_1_but_for_codecs_that_clients_do_not_read(
    kafka_3: Scene, codec: Codec | str, kind: str, version: int
) -> None:
    topic = f"{names(codec)}-{kind}"
    end = kafka_3.end(topic)
    theirs = OldConsumer(kafka_3.raw, version).read(topic, end)
    consumer = RaisedConsumer(kafka_3.raw, version)
    ours = consumer.read(topic, end)
    records = kafka_3.stored(topic)
    assert read_back(ours, version) == expected(records, version)
    assert (ours.stuck_at, ours.error_codes) == ([], set())
    assert consumer.messages_without_headers > len(records) // 4
    found = entries_of(ours)
    if codec is Codec.ZSTD:
        assert theirs.error_codes == {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
        assert codecs_of(found) == {Codec.GZIP}
    elif version < 2 and codec in (Codec.LZ4, "mixed"):
        assert Codec.LZ4 in codecs_of(entries_of(theirs)) - codecs_of(found)
        assert found == [
            one._replace(attributes=Codec.GZIP) if one.attributes == Codec.LZ4 else one for one in entries_of(theirs)
        ]
    else:
        assert found == entries_of(theirs)
        assert theirs.stuck_at == []


def random_batch(scene: Scene, random: Random) -> tuple[Codec, list[StoredRecord]]:
    """A batch of any size and codec but zstd, with keys and values that may be null."""

    def content() -> bytes | None:
        return random.choice((None, b"", random.randbytes(random.randint(1, 300)), bytes(random.randint(1, 2_000))))

    return random.choice([*Codec][:4]), [
        StoredRecord(
            i,
            scene.now_ms + random.randint(-1_000, 1_000),
            content(),
            content(),
            (header(b"name", None),) * random.choice((0, 0, 1, 3)),
        )
        for i in range(random.choice((1, 1, 3, 20, 150)))
    ]


@pytest.mark.parametrize("seed", range(6))
def test_random_logs_give_the_entries_of_a_3_9_1_from_any_offset(kafka_3: Scene, seed: int) -> None:
    random = Random(seed)
    topic = kafka_3.create(f"random-{seed}", message_timestamp_type=random.choice(("CreateTime", "LogAppendTime")))
    kafka_3.write(topic, [random_batch(kafka_3, random) for _ in range(random.randint(2, 12))])
    end = kafka_3.end(topic)
    for version in VERSIONS:
        for offset in (0, *(random.randrange(end) for _ in range(3))):
            theirs = OldConsumer(kafka_3.raw, version).read(topic, end, offset=offset)
            ours = RaisedConsumer(kafka_3.raw, version).read(topic, end, offset=offset)
            assert entries_of(ours) == [
                one._replace(attributes=Codec.GZIP) if version < 2 and one.attributes == Codec.LZ4 else one
                for one in entries_of(theirs)
            ]
            records = [one for one in kafka_3.stored(topic) if one[0] >= offset]
            assert read_back(ours, version, offset) == expected(records, version)
            assert (theirs.stuck_at, ours.stuck_at) == ([], [])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD], ids=names)
def test_compacted_offsets_are_passed_over_where_a_3_9_1_is_stuck(kafka_3: Scene, codec: Codec, version: int) -> None:
    topic = f"compacted-{names(codec)}"
    end = kafka_3.end(topic)
    records = kafka_3.stored(topic)
    assert [one[0] for one in records] == [*range(10), *range(20, 30), *range(40, 51)]
    ours = RaisedConsumer(kafka_3.raw, version).read(topic, end)
    assert read_back(ours, version) == expected(records, version)
    assert ours.stuck_at == []
    assert RaisedConsumer(kafka_3.raw, version).read(topic, end, bytes_max=200).stuck_at == []
    theirs = OldConsumer(kafka_3.raw, version).read(topic, end)
    if codec is Codec.ZSTD:
        assert theirs.error_codes == {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
    else:
        assert entries_of(ours) == entries_of(theirs)
    # With little room for more than the batch whose end is gone, it gets nothing there, for ever.
    stuck = OldConsumer(kafka_3.raw, version).read(topic, 20, offset=10, bytes_max=200)
    assert stuck.stuck_at
    after = RaisedConsumer(kafka_3.raw, version).fetch(topic, {0: 10}, bytes_max=200)[0]
    assert kafka_python_reads(bytes(after.records))[0][0] == 20


@pytest.mark.parametrize("version", VERSIONS)
def test_transactions_are_read_as_by_a_3_9_1_and_control_batches_are_passed_over(kafka_3: Scene, version: int) -> None:
    for topic in ("transactions", "open"):
        end = kafka_3.end(topic)
        theirs = OldConsumer(kafka_3.raw, version).read(topic, end)
        ours = RaisedConsumer(kafka_3.raw, version).read(topic, end)
        assert entries_of(ours) == entries_of(theirs)
        assert read_back(ours, version) == expected(kafka_3.stored(topic), version)
        if topic == "transactions":
            assert theirs.stuck_at == ours.stuck_at == [end - 1]  # a control batch is at the end


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_above_the_limit_is_sent_where_a_3_9_1_is_stuck(kafka_3: Scene, version: int) -> None:
    end = kafka_3.end("big")
    ours = RaisedConsumer(kafka_3.raw, version).read("big", end)
    assert read_back(ours, version) == expected(kafka_3.stored("big"), version)
    assert ours.stuck_at == []
    theirs = OldConsumer(kafka_3.raw, version).read("big", end)
    assert (5 in theirs.stuck_at) is (version < 3)


@pytest.mark.parametrize("limit", [1, 500, 5_000])
@pytest.mark.parametrize("codec", [Codec.NONE, "mixed"], ids=names)
def test_each_fetch_brings_a_message_whatever_the_limit(kafka_3: Scene, codec: Codec | str, limit: int) -> None:
    topic = f"{names(codec)}-CreateTime"
    for version in VERSIONS:
        ours = RaisedConsumer(kafka_3.raw, version).read(topic, kafka_3.end(topic), bytes_max=limit)
        assert read_back(ours, version) == expected(kafka_3.stored(topic), version)
        for message_set in ours.message_sets:
            found = entries(message_set)
            assert len(found) == 1 or len(message_set) <= limit or found[0].inner
            assert [bool(one.inner) for one in found] == sorted((bool(one.inner) for one in found), reverse=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_is_read_at_a_4_3_1(kafka_4: Scene, version: int) -> None:
    topics = [f"{names(codec)}-{kind}" for codec in CODECS for kind in ("CreateTime", "LogAppendTime")]
    topics += [f"compacted-{names(codec)}" for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD)]
    for topic in (*topics, "all-zstd", "transactions", "open", "big"):
        ours = RaisedConsumer(kafka_4.raw, version).read(topic, kafka_4.end(topic))
        assert read_back(ours, version) == expected(kafka_4.stored(topic), version), topic
        readable = {Codec.NONE, Codec.GZIP, Codec.SNAPPY} | ({Codec.LZ4} if version >= 2 else set())
        assert codecs_of(entries_of(ours)) <= readable
        assert ours.stuck_at == ([kafka_4.end(topic) - 1] if topic == "transactions" else [])


def values(log: ReadLog) -> list[bytes]:
    return [one[3] or b"" for message_set in log.message_sets for one in kafka_python_reads(message_set)]


@pytest.mark.parametrize("version", VERSIONS)
def test_only_committed_records_are_read_if_that_is_set(kafka_4: Scene, version: int) -> None:
    every, committed = (RaisedConsumer(kafka_4.raw, version, committed=choice) for choice in (False, True))
    end = kafka_4.end("transactions")
    in_order = [f"{kind}{number}".encode() for kind in "caca" for number in range(5)]
    assert values(every.read("transactions", end)) == in_order
    assert values(committed.read("transactions", end)) == [one for one in in_order if one.startswith(b"c")]
    end = kafka_4.end("open")
    assert values(every.read("open", end)) == [b"%c%d" % (kind, number) for kind in b"co" for number in range(5)]
    assert values(committed.read("open", 6)) == [b"c%d" % number for number in range(5)]
    first_open = committed.fetch("open", {0: 6})[0]
    assert (bytes(first_open.records), first_open.high_watermark) == (b"", 6)
    assert every.fetch("open", {0: 6})[0].high_watermark == end


@pytest.mark.parametrize("version", VERSIONS)
def test_at_a_quiet_end_the_broker_is_asked_at_most_three_times_a_second(kafka_4: Scene, version: int) -> None:
    consumer = RaisedConsumer(kafka_4.raw, version)
    end = kafka_4.end("transactions")
    begun, fetches = time.monotonic(), 0
    while time.monotonic() < begun + 2:
        one = consumer.fetch("transactions", {0: end - 1}, wait_ms=500)[0]
        assert (bytes(one.records), one.high_watermark) == (b"", end)
        fetches += 1
    assert fetches <= 5
    assert consumer.fetches <= 6


def test_what_a_busy_partition_leaves_no_room_for_comes_next(kafka_4: Scene) -> None:
    kafka_4.create("two", 2)
    kafka_4.write("two", [(Codec.NONE, kafka_4.records(2_000, size_bytes=1_000))])
    answer = kafka_4.raw.produce_one("two", 1, stored_batch([StoredRecord(0, kafka_4.now_ms, b"k", BIG)]), version=7)
    assert answer.error_code == ErrorCode.NONE
    consumer = RaisedConsumer(kafka_4.raw, 1)
    first = consumer.fetch("two", {0: 0, 1: 0})
    assert (bool(first[0].records), bool(first[1].records)) == (True, False)
    second = consumer.fetch("two", {0: entries(first[0].records)[-1].offset + 1, 1: 0})
    assert [one.value for one in entries(second[1].records)] == [BIG]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_stored_messages_of_format_v1_are_those_of_a_0_11(kafka_0_11: Scene, version: int) -> None:
    for codec in [*Codec][:4]:
        topic = f"v1-{names(codec)}"
        end = kafka_0_11.end(topic)
        theirs = entries_of(OldConsumer(kafka_0_11.raw, version).read(topic, end))
        ours = RaisedConsumer(kafka_0_11.raw, version, broker_version=4).read(topic, end)
        if version < 2 and codec is Codec.LZ4:
            theirs = [one._replace(attributes=Codec.GZIP) for one in theirs]
        assert entries_of(ours) == theirs
        assert [one[0] for one in read_back(ours, version)] == list(range(end))


@pytest.fixture(scope="module")
def kafka_0_11(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A 0.11.0.3 that stores messages of format v1, and answers Fetch v4 with them."""
    settings = {"log.message.format.version": "0.10.2"}
    with (
        LegacyCluster(tmp_path_factory.mktemp("0.11"), version="0.11.0.3", broker_settings=settings) as cluster,
        RawClient(cluster.address(0)) as raw,
    ):
        scene = Scene(cluster, raw)
        for codec in [*Codec][:4]:
            topic = f"v1-{names(codec)}"
            cluster.create_topic(topic)
            for count in (3, 40):
                records = [one._replace(headers=()) for one in scene.records(count)]
                answer = raw.produce_one(topic, 0, stored_batch(records, codec=codec))
                assert answer.error_code == ErrorCode.NONE
        yield scene
