"""``format("idemproxy")`` in a real Spark on a real 0.10.2.2: the format is found without being registered, batches and
streams are read, a query resumes from its checkpoint, and what is wrong is said in one error message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from idemproxy.codecs.batch_marker import Identity
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient
from testkit.real.spark.session import run_to_end
from testkit.stage.logs import numbered, plain, wrapper

pytestmark = pytest.mark.timeout(600)
"""On a busy machine a session takes a minute to start."""
RECORDS_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
)


class Reading:
    """A topic with two partitions, and Spark's readers of it."""

    def __init__(self, spark: SparkSession, cluster: LegacyCluster) -> None:
        self.spark = spark
        self.address = cluster.address(0)
        self.topic = fresh_topic(cluster, 2)
        self._written = 0

    def write(self, count: int, partition: int = 0) -> None:
        """Append so many records, half of them as a wrapper with a batch marker."""
        half = count // 2
        first = self._written
        identity = Identity(5, 0, first, half)
        entries = [wrapper(numbered(first, half), 0, identity), plain(numbered(first + half, count - half))]
        with RawClient(self.address) as client:
            for data in entries:
                client.send_produce([(self.topic, partition, data)], version=2, acks=1)
                assert client.produce_answer(2)[0].error_code == 0
        self._written += count

    def batch(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("idemproxy").option("kafka.bootstrap.servers", "{}:{}".format(*self.address))
        return reader.options(**{"subscribe": self.topic, **options}).load()

    def stream(self, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("idemproxy")
        reader = reader.option("kafka.bootstrap.servers", "{}:{}".format(*self.address))
        return reader.options(**{"subscribe": self.topic, **options}).load()


@pytest.fixture
def reading(spark: SparkSession, legacy_broker: LegacyCluster) -> Reading:
    return Reading(spark, legacy_broker)


class Sink:
    """Keeps what each micro-batch has, by its number."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.batches[number] = sorted(row["offset"] for row in frame.select("offset").collect())

    def offsets(self) -> Iterator[int]:
        for number in sorted(self.batches):
            yield from self.batches[number]


def run(frame: DataFrame, checkpoint: Path, sink: Sink) -> StreamingQuery:
    """Read what is there, and end."""
    return run_to_end(frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint)))


def test_a_batch_has_the_columns_of_sparks_own_source(reading: Reading) -> None:
    reading.write(60)
    reading.write(40, partition=1)
    frame = reading.batch(minPartitions="4")
    assert frame.schema.simpleString() == RECORDS_SCHEMA + ">"
    assert frame.rdd.getNumPartitions() == 5
    found = frame.selectExpr("CAST(value AS STRING) AS value", "partition", "timestamp").orderBy("timestamp").collect()
    assert [row["value"] for row in found] == [f"value {number}" for number in range(100)]
    assert [row["partition"] for row in found] == [0] * 60 + [1] * 40
    with_headers = reading.batch(includeHeaders="true")
    assert with_headers.schema.simpleString() == RECORDS_SCHEMA + ",headers:array<struct<key:string,value:binary>>>"
    assert with_headers.where("headers IS NULL").count() == 100


def test_batches_are_rows_that_sql_can_ask(reading: Reading) -> None:
    reading.write(60)
    frame = reading.batch(rows="batches")
    (row,) = frame.where("batchMarker IS NOT NULL").collect()
    assert (row["producerId"], row["baseSequence"], row["recordCount"], row["codec"]) == (5, 0, 30, "gzip")
    assert frame.where("crcIsValid AND batchMarker IS NULL AND baseOffset = lastOffset").count() == 30


def test_an_empty_topic_has_no_rows(reading: Reading) -> None:
    assert reading.batch().count() == 0


def test_a_stream_ends_where_the_topic_does_and_resumes_from_its_checkpoint(reading: Reading, tmp_path: Path) -> None:
    sink = Sink()
    reading.write(100)
    query = run(reading.stream(startingOffsets="earliest", maxOffsetsPerTrigger="40"), tmp_path, sink)
    assert {number: len(offsets) for number, offsets in sink.batches.items()} == {0: 40, 1: 40, 2: 20}
    progress = query.lastProgress
    assert progress is not None
    (source,) = progress["sources"]
    assert json.loads(source["endOffset"]) == {reading.topic: {"0": 100, "1": 0}}
    assert json.loads(source["latestOffset"]) == {reading.topic: {"0": 100, "1": 0}}
    reading.write(30)
    run(reading.stream(maxOffsetsPerTrigger="40"), tmp_path, sink)
    assert list(sink.offsets()) == list(range(130))


def test_a_batch_whose_commit_was_lost_is_read_again_as_it_was(reading: Reading, tmp_path: Path) -> None:
    first, again = Sink(), Sink()
    reading.write(20)
    run(reading.stream(startingOffsets="earliest"), tmp_path, first)
    for name in ("0", ".0.crc"):
        (tmp_path / "commits" / name).unlink()
    reading.write(10)
    run(reading.stream(), tmp_path, again)
    assert first.batches == {0: list(range(20))}
    assert again.batches == {0: list(range(20)), 1: list(range(20, 30))}


def test_a_stream_from_the_latest_offset_keeps_it_over_a_restart(reading: Reading, tmp_path: Path) -> None:
    sink = Sink()
    reading.write(20)
    run(reading.stream(), tmp_path, sink)
    assert list(sink.offsets()) == []
    reading.write(10)
    run(reading.stream(), tmp_path, sink)
    assert list(sink.offsets()) == list(range(20, 30))


def test_what_is_wrong_is_one_sentence(reading: Reading) -> None:
    for options, said in (
        ({"subscrib": "x"}, "subscrib: no such option to read with; there are kafka.bootstrap.servers, subscribe,"),
        ({"subscribe": "nothing"}, "subscribe: there is no topic nothing"),
        ({"startingOffsets": "latest"}, "startingOffsets: latest leaves a batch query nothing to read"),
    ):
        with pytest.raises(PySparkException) as raised:
            reading.batch(**options).collect()
        assert said in str(raised.value)
    declared = reading.spark.read.format("idemproxy").schema("value string")
    declared = declared.options(**{"kafka.bootstrap.servers": "x:1", "subscribe": "x"})
    with pytest.raises(PySparkException, match="schema: the columns are given, leave it out: key binary"):
        declared.load().collect()
