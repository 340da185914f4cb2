"""The patterns on a real 0.10.2.2 behind a proxy. What becomes of the rows is looked at without brokers first.

The jobs as commands and under kills are in tests/spark (``make test-spark``)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from kafka.partitioner.default import murmur2
from pyspark.sql import DataFrame, SparkSession

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.pipeline.jobs import patterns
from idemproxy.pipeline.jobs.coordinates import coordinates_of, with_coordinates
from idemproxy.pipeline.jobs.run import Job, run
from testkit.real.brokers.kafka_cluster import fresh_topic, stored_values
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
_COLUMNS = "topic string, partition int, offset bigint, key binary, value binary"
_HEADERS = "headers array<struct<key:string,value:binary>>"


def rows_of(spark: SparkSession, rows: Sequence[tuple[object, ...]], more: str = "") -> DataFrame:
    return spark.createDataFrame(rows, f"{_COLUMNS}{more}")


@pytest.mark.parametrize("carrier", ["headers", "value"])
def test_coordinates_come_back_and_the_record_is_what_it_was(spark: SparkSession, carrier: str) -> None:
    rows = rows_of(
        spark,
        [
            ("in", 1, 5, b"k", b"with\na newline \xff", [("trace", b"1")]),
            ("in", 2, 6, None, None, None),
            ("in", 0, 7, b"", b"", None),
        ],
        f", {_HEADERS}",
    )
    carried = with_coordinates(rows, carrier).selectExpr(
        "'out' AS topic", "0 AS partition", "100 + offset AS offset", "key", "value", "headers"
    )
    found = coordinates_of(carried, carrier).orderBy("offset").collect()
    assert [tuple(row[name] for name in ("source_topic", "source_partition", "source_offset")) for row in found] == [
        ("in", 1, 5),
        ("in", 2, 6),
        ("in", 0, 7),
    ]
    assert [(row.key, row.value) for row in found] == [
        (b"k", b"with\na newline \xff"),
        (None, None),
        (b"", b""),
    ]
    assert [row.headers and [tuple(one) for one in row.headers] for row in found] == [[("trace", b"1")], None, None]
    plain = coordinates_of(rows_of(spark, [("in", 0, 1, b"k", b"no line\nhere", None)], f", {_HEADERS}"), carrier)
    assert [(row.source_offset, row.value) for row in plain.collect()] == [(None, b"no line\nhere")]


def test_a_clean_up_keeps_first_copies_and_puts_back_what_has_changed_places(spark: SparkSession) -> None:
    order = [0, 1, 2, 1, 2, 5, 3, 4, 5, 6]  # of the source: two were sent again, one went ahead, one twice
    rows = rows_of(spark, [("in", 3, number, b"k", b"%d" % number) for number in order])
    carried = with_coordinates(rows, "value").collect()
    log = [("out", 0, at, row.key, row.value) for at, row in enumerate(carried)]
    log.insert(4, ("out", 0, 1000, b"k", b"of nobody"))
    found = patterns.cleaned(rows_of(spark, log), "value").collect()
    assert [row.value for row in found] == [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"of nobody"]
    assert {row.partition for row in found} == {0}


def test_a_duplicate_of_a_batch_is_recognized_by_its_batch_marker(spark: SparkSession) -> None:
    batches = spark.createDataFrame(
        [("out", 0, 0, 1, 7, 0, 0, 2, True), ("out", 0, 2, 3, 7, 0, 2, 2, True), ("out", 0, 4, 5, 7, 0, 0, 2, True)],
        "topic string, partition int, baseOffset bigint, lastOffset bigint, producerId bigint, producerEpoch int, "
        "baseSequence int, recordCount int, crcIsValid boolean",
    )
    rows = rows_of(spark, [("out", 0, offset, None, b"%d" % offset) for offset in range(6)])
    found = patterns.cleaned(rows, patterns.BATCHES, batches).collect()
    assert [row.value for row in found] == [b"0", b"1", b"2", b"3"]


def test_batches_of_the_next_round_of_sequences_are_no_copies(spark: SparkSession) -> None:
    """After 2^31 records of one epoch a producer begins at 0 again; four batches stand for all of the first round."""
    quarter = 1 << 29
    places = [(quarter * number, quarter * number % (1 << 31)) for number in range(6)]
    places.append((6 * quarter, quarter))  # the sixth one again
    batches = spark.createDataFrame(
        [("out", 0, at, at + quarter - 1, 7, 0, sequence, quarter, True) for at, sequence in places],
        "topic string, partition int, baseOffset bigint, lastOffset bigint, producerId bigint, producerEpoch int, "
        "baseSequence int, recordCount int, crcIsValid boolean",
    )
    rows = rows_of(spark, [("out", 0, at, None, b"%d" % number) for number, (at, _) in enumerate(places)])
    found = patterns.cleaned(rows, patterns.BATCHES, batches).collect()
    assert [row.value for row in found] == [b"0", b"1", b"2", b"3", b"4", b"5"]


class Scene:
    """Topics, and jobs between them."""

    def __init__(self, spark: SparkSession, cluster: LegacyCluster, proxy: ProxyProcess, folder: Path) -> None:
        self._spark, self._cluster, self._folder = spark, cluster, folder
        self.proxy = proxy
        self.bootstrap = "{}:{}".format(*proxy.address)

    def topic(self, partitions: int) -> str:
        return fresh_topic(self._cluster, partitions)

    def fill(self, topic: str, partitions: int, first: int, count: int) -> None:
        """Records 'key:number', each where its key belongs."""
        values: dict[int, list[bytes]] = {}
        for number in range(first, first + count):
            key = b"k%d" % (number % 7)
            values.setdefault((murmur2(key) & 0x7FFF_FFFF) % partitions, []).append(b"%s:%d" % (key, number))
        with RawClient(self.proxy.address) as client:
            for partition, some in values.items():
                for value in some:
                    answer = client.produce_one(topic, partition, batch([value], key=value.partition(b":")[0]))
                    assert answer.error_code == 0, answer

    def run(self, name: str, topics: list[str], out: str, carrier: str = "headers") -> Job:
        checkpoint = str(self._folder / f"{name}-{out}")
        job = Job(name, self.bootstrap, self.bootstrap, topics, out, checkpoint, carrier, "clean", False, {}, {})
        run(self._spark, job)
        return job

    def log(self, topic: str, partitions: int) -> list[list[bytes]]:
        return [[value for _, value in stored_values(self._cluster, (topic, p))] for p in range(partitions)]


def by_key(log: list[list[bytes]]) -> dict[bytes, list[int]]:
    """The numbers of each key in the order of the log; a key lies in one partition."""
    found: dict[bytes, list[int]] = {}
    places: dict[bytes, int] = {}
    for partition, values in enumerate(log):
        for value in values:
            key, _, number = value.partition(b":")
            assert places.setdefault(key, partition) == partition
            found.setdefault(key, []).append(int(number))
    return found


@pytest.fixture
def scene(spark: SparkSession, legacy_broker: LegacyCluster, shared_proxy: ProxyProcess, tmp_path: Path) -> Scene:
    return Scene(spark, legacy_broker, shared_proxy, tmp_path)


def test_a_topic_is_repartitioned_repeated_in_part_and_cleaned(scene: Scene) -> None:
    source, wide, pristine = scene.topic(2), scene.topic(5), scene.topic(5)
    scene.fill(source, 2, 0, 60)
    scene.run("repartition", [source], wide, carrier="value")
    log = scene.log(wide, 5)
    said = [json.loads(value.partition(b"\n")[0]) for values in log for value in values]
    assert {one["source-topic"] for one in said} == {source}
    assert len({(one["source-partition"], one["source-offset"]) for one in said}) == 60 == len(said)
    with RawClient(scene.proxy.address) as client:  # as a sink that is no more than at-least-once: the last ones again
        for partition, values in enumerate(log):
            for value in values[-3:]:
                key = value.partition(b"\n")[2].partition(b":")[0]
                assert client.produce_one(wide, partition, batch([value], key=key)).error_code == 0
    scene.run("clean", [wide], pristine, carrier="value")
    found = scene.log(pristine, 5)
    expected = {b"k%d" % key: list(range(key, 60, 7)) for key in range(7)}
    assert by_key(found) == expected
    scene.run("clean", [wide], pristine, carrier="value")  # repeated under its name
    assert scene.log(pristine, 5) == found
