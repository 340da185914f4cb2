"""What Spark's driver and tasks do for ``format("idemproxy")``, on real brokers and without a JVM: which offsets a
trigger gets, and what becomes of logs with gaps, large messages, deleted records, new partitions, logins."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.header_marker import header_marker_of
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.pipeline.reading import patience
from idemproxy.pipeline.reading.broker import BrokerProblem
from idemproxy.pipeline.source.options import parse_options
from idemproxy.pipeline.source.problems import DamagedLog, DataLost, WrongOption
from idemproxy.pipeline.source.reader import BatchReader
from idemproxy.pipeline.source.stream import StreamReader
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.brokers.sasl_cluster import SaslCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.tls.certificates import Authority
from testkit.stage.logs import BEGUN_MS, modern, numbered, plain, wrapper

pytestmark = pytest.mark.long

Row = dict[str, Any]
Offset = dict[str, Any]
SEGMENT_BYTES = 20_000
HOUSEKEEPING = {"log.retention.check.interval.ms": 300, "log.cleaner.backoff.ms": 200}
"""So that deletion and compaction come within the test, not within minutes."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    directory = tmp_path_factory.mktemp("source")
    settings: dict[str, Any] = {"broker_settings": HOUSEKEEPING, "session_timeout_ms": 3000}  # one test kills it
    with LegacyCluster(directory, auto_create_topics=False, **settings) as running:
        yield running


def append(address: tuple[str, int], topic: str, partition: int, *entries: bytes, version: int = 2) -> None:
    with RawClient(address) as client:
        for data in entries:
            client.send_produce([(topic, partition, data)], version=version, acks=1)
            (answer,) = client.produce_answer(version)
            assert answer.error_code == 0, answer


def options(cluster: Any, topic: str, **more: str) -> dict[str, str]:
    names = {name.replace("_", "."): value for name, value in more.items()}
    address = cluster.address if isinstance(cluster, ProxyProcess) else cluster.address(0)
    return {"kafka.bootstrap.servers": "{}:{}".format(*address), "subscribe": topic, **names}


def rows_of(reader: BatchReader | StreamReader, partitions: list[Any]) -> list[Row]:
    """Return what the tasks of these partitions read, each with what Spark has pickled."""
    carried = [pickle.loads(pickle.dumps((reader, partition))) for partition in partitions]
    return [row for one, partition in carried for found in one.read(partition) for row in found.to_pylist()]


def read(given: Mapping[str, str]) -> list[Row]:
    reader = BatchReader(parse_options(given, is_stream=False))
    return rows_of(reader, reader.partitions())


def stream(given: Mapping[str, str]) -> StreamReader:
    return StreamReader(parse_options(given, is_stream=True))


def trigger(reader: StreamReader, start: Offset, limit: Any = None) -> tuple[Offset, list[Row]]:
    """Return where the next trigger ends, as Spark keeps it, and what it reads."""
    end = json.loads(json.dumps(reader.latestOffset(dict(start), limit or reader.getDefaultReadLimit())))
    return end, rows_of(reader, reader.partitions(start, end))


def values(rows: list[Row]) -> list[bytes]:
    return [row["value"] for row in rows]


def expected(first: int, count: int) -> list[bytes]:
    return [value for _, value, _ in numbered(first, count) if value is not None]


# ------------------------------------------------------------------ batches
@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_brokers_that_tell_no_versions_are_read(version: str, tmp_path: Path) -> None:
    with LegacyCluster(tmp_path, version=version) as running:
        running.create_topic("orders", 1)
        old = [wrapper(numbered(0, 20), 0, magic=0), plain(numbered(20, 20), 0, magic=0)]
        append(running.address(0), "orders", 0, *old, version=0)
        found = read(options(running, "orders", minPartitions="3"))
        assert values(found) == expected(0, 40)
        assert {row["timestampType"] for row in found} == {-1}
        assert [row["recordCount"] for row in read(options(running, "orders", rows="batches"))] == [20, *[1] * 20]
        with pytest.raises(BrokerProblem, match="the broker finds no offsets by time, as those before"):
            read(options(running, "orders", startingTimestamp="5"))


def test_a_broker_with_record_batches_is_read_with_its_headers(tmp_path: Path) -> None:
    with KraftCluster(tmp_path) as running:
        running.create_topic("orders", 1)
        headers = (("trace", b"1"), ("none", None))
        first = batch([b"value 0"], producer_id=77, headers=headers)
        append(running.address(0), "orders", 0, first, modern(numbered(1, 9), 0, codec=Codec.ZSTD), version=7)
        found = read(options(running, "orders", includeHeaders="true"))
        assert values(found) == expected(0, 10)
        assert found[0]["headers"] == [{"key": "trace", "value": b"1"}, {"key": "none", "value": None}]
        assert found[1]["headers"] is None
        one, other = read(options(running, "orders", rows="batches"))
        assert (one["producerId"], one["baseSequence"], one["lastOffset"], one["codec"]) == (77, 0, 0, "none")
        assert (other["producerId"], other["lastOffset"], other["codec"]) == (None, 9, "zstd")


def test_times_offsets_and_cut_ranges(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, 2)
    append(cluster.address(0), topic, 0, wrapper(numbered(0, 30)), plain(numbered(30, 10)))
    append(cluster.address(0), topic, 1, wrapper(numbered(100, 20)))
    assert sorted(values(read(options(cluster, topic)))) == sorted(expected(0, 40) + expected(100, 20))
    since = {"startingTimestamp": str(BEGUN_MS + 25), "endingTimestamp": str(BEGUN_MS + 105)}
    assert values(read(options(cluster, topic, **since))) == expected(25, 15) + expected(100, 5)
    between = {"startingOffsets": json.dumps({topic: {"0": 3, "1": -2}})}
    between["endingOffsets"] = json.dumps({topic: {"0": 7, "1": -1}})
    assert values(read(options(cluster, topic, **between))) == expected(3, 4) + expected(100, 20)
    reader = BatchReader(parse_options(options(cluster, topic, minPartitions="12"), is_stream=False))
    assert len(reader.partitions()) == 12
    assert sorted(values(rows_of(reader, reader.partitions()))) == sorted(expected(0, 40) + expected(100, 20))
    found = read(options(cluster, topic, rows="batches", maxRecordsPerPartition="7"))
    assert [(row["partition"], row["baseOffset"], row["lastOffset"]) for row in found if row["recordCount"] > 1] == [
        (0, 0, 29),
        (1, 0, 19),
    ]
    assert len(found) == 12


def test_batches_show_what_a_proxy_has_written(cluster: LegacyCluster, tmp_path: Path) -> None:
    topic = fresh_topic(cluster, 1)
    with ProxyProcess(tmp_path, cluster.address(0)) as proxy, RawClient(proxy.address) as client:
        producer = client.new_producer_id()
        for sequence in (0, 3):
            records = batch([b"a", b"b", b"c"], producer_id=producer, sequence=sequence)
            client.send_produce([(topic, 0, records)])
            assert client.produce_answer()[0].error_code == 0
        through = {"kafka.bootstrap.servers": "{}:{}".format(*proxy.address)}
        for given in (options(cluster, topic, rows="batches"), {**options(cluster, topic, rows="batches"), **through}):
            found = read(given)
            assert [(row["producerId"], row["producerEpoch"], row["baseSequence"]) for row in found] == [
                (producer, 0, 0),
                (producer, 0, 3),
            ]
            assert [(row["baseOffset"], row["lastOffset"]) for row in found] == [(0, 2), (3, 5)]
            assert all(row["batchMarker"] and row["crcIsValid"] for row in found)


def test_batches_of_a_proxy_before_kafka_4_show_their_marker_and_no_producer(tmp_path: Path) -> None:
    config = tmp_path / "idemproxy.yaml"
    config.write_text("upstream: {idempotence: proxy}\n")
    with (
        KraftCluster(tmp_path / "kafka", auto_create_topics=False) as running,
        ProxyProcess(tmp_path / "proxy", running.address(0), options=("--config", str(config))) as proxy,
        RawClient(proxy.address) as client,
    ):
        topic, producer = fresh_topic(running, 1), client.new_producer_id()
        for sequence in (0, 3):
            records = batch([b"a", b"b", b"c"], producer_id=producer, sequence=sequence)
            wait_until(lambda: client.produce_one(topic, 0, records).error_code == 0, "it is appended")  # noqa: B023
        for given in (options(running, topic, rows="batches"), options(proxy, topic, rows="batches")):
            found = read(given)
            assert [(row["baseOffset"], row["lastOffset"]) for row in found] == [(0, 2), (3, 5)]
            assert {(row["producerId"], row["producerEpoch"], row["baseSequence"]) for row in found} == {(None,) * 3}
            names = [Identity(producer, 0, sequence, 3) for sequence in (0, 3)]
            assert [row["batchMarker"] for row in found] == [header_marker_of(one).to_bytes(6, "big") for one in names]


def test_messages_larger_than_a_fetch_are_read(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, 1)
    append(cluster.address(0), topic, 0, plain([(None, b"x" * 50_000, 1)] * 3), wrapper(numbered(3, 100)))
    found = read(options(cluster, topic, kafka_max_partition_fetch_bytes="1000"))
    assert [row["offset"] for row in found] == list(range(103))


def test_topics_by_pattern_and_partitions_by_assignment(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, 3)
    for partition in range(3):
        append(cluster.address(0), topic, partition, plain(numbered(partition, 1)))
    given = options(cluster, topic)
    del given["subscribe"]
    by_pattern = {**given, "subscribePattern": topic[:-1] + f"[{topic[-1]}]"}
    assert values(read(by_pattern)) == expected(0, 3)
    assert values(read({**given, "assign": json.dumps({topic: [2, 0]})})) == expected(0, 1) + expected(2, 1)
    for wrong, said in (
        ({"subscribePattern": "no such.*"}, "subscribePattern: no topic fits 'no such.*'"),
        ({"subscribe": "nothing"}, "subscribe: there is no topic nothing"),
        ({"assign": json.dumps({topic: [3]})}, f"assign: there is no {topic}-3"),
        ({"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 1}})}, f"{topic}-1, {topic}-2 is missing"),
        ({"subscribe": topic, "startingTimestamp": str(BEGUN_MS * 2)}, "is as late as that; with startingOffsetsByTi"),
    ):
        with pytest.raises(WrongOption) as raised:
            read({**given, **wrong})
        assert said in str(raised.value)
    at_the_end = {"startingTimestamp": str(BEGUN_MS * 2), "startingOffsetsByTimestampStrategy": "latest"}
    assert read(options(cluster, topic, **at_the_end)) == []


def test_a_topic_that_was_created_past_the_proxy_is_found_at_once(
    legacy_broker: LegacyCluster, shared_proxy: ProxyProcess
) -> None:
    """The proxy shows the cluster as it was up to a second ago."""
    with RawClient(shared_proxy.address) as client:
        for _ in range(5):
            client.ask(ApiKey.METADATA, 1, topics=None)
            topic = fresh_topic(legacy_broker, 1)
            append(legacy_broker.address(0), topic, 0, plain(numbered(0, 3)))
            assert values(read(options(shared_proxy, topic))) == expected(0, 3)


def test_damage_ends_a_query_unless_losses_are_allowed(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, 1)
    append(cluster.address(0), topic, 0, plain(numbered(0, 5)), wrapper(numbered(5, 5)), plain(numbered(10, 5)))
    (segment,) = (cluster.log_directories[0] / f"{topic}-0").glob("*.log")
    damaged = bytearray(segment.read_bytes())
    at = damaged.index(b"value 3")
    damaged[at] ^= 1
    segment.write_bytes(damaged)
    with pytest.raises(DamagedLog, match=f"{topic}-0: the offsets 3 to 3 cannot be read: the checksum does not fit"):
        read(options(cluster, topic))
    assert [row["offset"] for row in read(options(cluster, topic, failOnDataLoss="false"))] == [0, 1, 2, *range(4, 15)]
    found = read(options(cluster, topic, rows="batches"))
    assert [row["baseOffset"] for row in found if not row["crcIsValid"]] == [3]


def test_nobody_there_is_one_sentence() -> None:
    given = {"kafka.bootstrap.servers": f"{HOST}:{free_ports(1)[0]}", "subscribe": "orders"}
    with pytest.raises(BrokerProblem, match="no broker can be reached at"):
        read(given)


def test_a_broker_that_restarts_is_waited_for(cluster: LegacyCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = fresh_topic(cluster, 1)
    append(cluster.address(0), topic, 0, wrapper(numbered(0, 20)))
    reader = BatchReader(parse_options(options(cluster, topic), is_stream=False))
    planned = reader.partitions()
    slept: list[float] = []
    sleep, reading = time.sleep, threading.get_ident()

    def restart(seconds: float) -> None:
        sleep(seconds)
        if threading.get_ident() != reading:  # others of this process sleep, too
            return
        slept.append(seconds)
        if len(slept) == 1:
            cluster.start_broker(0)

    cluster.kill_broker(0)
    monkeypatch.setattr(time, "sleep", restart)
    assert values(rows_of(reader, planned)) == expected(0, 20)
    assert slept


@pytest.mark.parametrize(("mechanism", "over_tls"), [("PLAIN", False), ("SCRAM-SHA-512", True)])
def test_brokers_that_ask_who_is_there_are_read(tmp_path: Path, mechanism: str, over_tls: bool) -> None:
    authority = Authority(tmp_path / "ours")
    own = authority.issue("broker")
    with SaslCluster(tmp_path / "kafka", {"spark": "secret"}, authority=authority, own=own) as running:
        running.create_topic("orders", 1)
        running.allow("Topic:orders", {"spark": ["Read", "Describe"]})
        append(running.address(0), "orders", 0, wrapper(numbered(0, 20)))
        address = (running.sasl_tls_address if over_tls else running.sasl_address)(0)
        given = {
            "kafka.bootstrap.servers": f"localhost:{address[1]}",
            "subscribe": "orders",
            "kafka.security.protocol": "SASL_SSL" if over_tls else "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": 'some.Module required username="spark" password="secret";',
            "kafka.ssl.truststore.location": str(authority.ca_file),
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.endpoint.identification.algorithm": "",
        }
        assert values(read(given)) == expected(0, 20)
        wrong = given["kafka.sasl.jaas.config"].replace("secret", "guessed")
        with pytest.raises(BrokerProblem, match="authentication failed: "):
            read({**given, "kafka.sasl.jaas.config": wrong})


# ------------------------------------------------------------------ streams
def test_triggers_take_as_much_as_they_may_and_in_the_end_nothing(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, 2)
    append(cluster.address(0), topic, 0, wrapper(numbered(0, 90)))
    append(cluster.address(0), topic, 1, plain(numbered(90, 10)))
    reader = stream(options(cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger="40"))
    assert reader.getDefaultReadLimit() == ReadMaxRows(40)
    offset, seen, sizes = reader.initialOffset(), [], []
    for _ in range(3):
        offset, rows = trigger(reader, offset)
        seen += values(rows)
        sizes.append(len(rows))
    assert sizes == [40, 40, 20]
    assert sorted(seen) == sorted(expected(0, 100))
    assert trigger(reader, offset) == (offset, [])
    assert offset == reader.reportLatestOffset() == {topic: {"0": 90, "1": 10}}
    append(cluster.address(0), topic, 0, plain(numbered(100, 3)))
    offset, rows = trigger(reader, offset, ReadAllAvailable())
    assert values(rows) == expected(100, 3)
    assert stream(options(cluster, topic)).getDefaultReadLimit() == ReadAllAvailable()


def test_a_stream_that_begins_at_the_latest_offset_begins_there_again_after_a_crash(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, 1)
    append(cluster.address(0), topic, 0, plain(numbered(0, 5)))
    reader = stream(options(cluster, topic))
    kept, rows = trigger(reader, reader.initialOffset())
    assert rows == []
    append(cluster.address(0), topic, 0, plain(numbered(5, 5)))
    # Killed before the first batch was committed, it is given the end that is in the checkpoint, and no start.
    again = stream(options(cluster, topic))
    assert rows_of(again, again.partitions(again.initialOffset(), kept)) == []
    _, rows = trigger(again, kept)
    assert values(rows) == expected(5, 5)


def test_a_first_batch_that_is_read_again_has_the_same_records(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, 1)
    append(cluster.address(0), topic, 0, plain(numbered(0, 5)))
    given = options(cluster, topic, startingOffsets=json.dumps({topic: {"0": 2}}))
    reader = stream(given)
    kept, rows = trigger(reader, reader.initialOffset())
    assert kept == {topic: {"0": 5}, "begins at": {topic: {"0": 2}}}
    append(cluster.address(0), topic, 0, plain(numbered(5, 5)))
    again = stream(options(cluster, topic))  # says latest: only what is in the checkpoint counts
    assert rows_of(again, again.partitions({}, kept)) == rows
    assert values(rows) == expected(2, 3)


def test_all_that_was_there_and_nothing_later_with_available_now(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, 1)
    append(cluster.address(0), topic, 0, plain(numbered(0, 7)))
    reader = stream(options(cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger="5"))
    reader.prepareForTriggerAvailableNow()
    append(cluster.address(0), topic, 0, plain(numbered(7, 9)))
    offset, first = trigger(reader, reader.initialOffset())
    offset, second = trigger(reader, offset)
    assert values(first + second) == expected(0, 7)
    assert trigger(reader, offset) == (offset, [])


def test_a_new_partition_begins_at_its_first_offset_and_again_after_a_crash(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, 1)
    reader = stream(options(cluster, topic))
    offset, _ = trigger(reader, reader.initialOffset())
    cluster.add_partitions(topic, 2)
    append(cluster.address(0), topic, 1, plain(numbered(0, 5)))
    end, rows = trigger(reader, offset)
    assert values(rows) == expected(0, 5)
    assert end["begins at"] == {topic: {"1": 0}}
    again = stream(options(cluster, topic))
    assert rows_of(again, again.partitions(offset, end)) == rows
    assert trigger(again, end) == (end, [])


def test_what_retention_deletes_while_a_stream_stands_ends_it_or_is_passed_over(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, 1, config={"segment.bytes": SEGMENT_BYTES, "retention.bytes": SEGMENT_BYTES})
    append(cluster.address(0), topic, 0, plain(numbered(0, 5)))
    given = options(cluster, topic, startingOffsets="earliest")
    strict, tolerant = stream(given), stream({**given, "failOnDataLoss": "false"})
    offset, rows = trigger(strict, strict.initialOffset())
    assert values(rows) == expected(0, 5)
    for first in range(5, 105, 10):
        append(cluster.address(0), topic, 0, plain([(b"k", b"x" * 1000, first + n) for n in range(10)]))
    earliest = BatchReader(parse_options(given, is_stream=False))

    def first_offset() -> int:
        return int(earliest.partitions()[0].value.range.start)

    # Retention deletes one segment after another, each of one batch here, until two are left, just over the bytes to
    # keep. A read in between would find a hole where a segment went away under it.
    wait_until(lambda: first_offset() == 85, "retention has deleted all it may", 120)
    with pytest.raises(DataLost, match=f"{topic}-0: the offsets 5 to [0-9]+ are gone: the log begins at [0-9]+"):
        trigger(strict, offset)
    end, rows = trigger(tolerant, offset)
    assert end == {topic: {"0": 105}}
    assert [row["offset"] for row in rows] == list(range(85, 105))


def test_gaps_of_compaction_are_no_loss(cluster: LegacyCluster) -> None:
    config: dict[str, str | int] = {
        "cleanup.policy": "compact",
        "segment.bytes": SEGMENT_BYTES,
        "min.cleanable.dirty.ratio": "0.01",
    }
    topic = fresh_topic(cluster, 1, config=config)
    for first in range(0, 100, 10):
        append(cluster.address(0), topic, 0, plain([(b"the same", b"x" * 1000, first + n) for n in range(10)]))

    def found() -> list[int]:
        return [row["offset"] for row in read(options(cluster, topic, minPartitions="10"))]

    wait_until(lambda: len(found()) < 60, "compaction has left gaps", 120)
    assert found()[-1] == 99
    reader = stream(options(cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger="30"))
    offset, seen = reader.initialOffset(), []
    for _ in range(4):
        offset, rows = trigger(reader, offset)
        seen += [row["offset"] for row in rows]
    assert offset == {topic: {"0": 100}}
    assert seen == sorted(set(seen))
    assert seen[-1] == 99


def test_recreated_topic_ends_a_stream_unless_fail_on_data_loss_is_false(
    cluster: LegacyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "LAG_SECONDS_MAX", 0.2)
    topic = fresh_topic(cluster, 2)
    append(cluster.address(0), topic, 0, plain(numbered(0, 9)))
    given = options(cluster, topic, startingOffsets="earliest")
    offset, _ = trigger(stream(given), {})
    ahead = {topic: {"0": 12, "1": 0}}
    with pytest.raises(DataLost, match=f"{topic}-0: the offsets 9 to 11 are gone: the log ends at 9: "):
        rows_of(stream(given), stream(given).partitions(offset, ahead))
    with pytest.raises(DataLost, match=f"{topic}-0: shorter than what was read; was the topic deleted or recreated"):
        trigger(stream(given), ahead)
    with pytest.raises(DataLost, match=f"{topic}-7: not there any more"):
        trigger(stream(given), {topic: {**offset[topic], "7": 4}})
    tolerant = stream({**given, "failOnDataLoss": "false"})
    assert rows_of(tolerant, tolerant.partitions(offset, ahead)) == []
    end, rows = trigger(tolerant, {topic: {**ahead[topic], "7": 4}})
    assert (end, rows) == ({topic: {"0": 9, "1": 0}}, [])


def test_a_stream_of_batches_has_each_batch_once(cluster: LegacyCluster) -> None:
    topic = fresh_topic(cluster, 1)
    for first in range(0, 50, 10):
        append(cluster.address(0), topic, 0, wrapper(numbered(first, 10), 0, Identity(5, 0, first, 10)))
    given = options(cluster, topic, rows="batches", startingOffsets="earliest", maxOffsetsPerTrigger="7")
    reader = stream(given)
    offset, seen = reader.initialOffset(), []
    for _ in range(8):
        offset, rows = trigger(reader, offset)
        seen += [row["baseSequence"] for row in rows]
    assert seen == [0, 10, 20, 30, 40]
