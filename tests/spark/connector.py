"""Spark's own Kafka connector, unmodified and with no option set for it, through the proxy on a real 0.10.2.2: what it
can do there, and that it reads the same rows as ``format("idemproxy")``. docs/how-to/spark-source.md has the table.

Not a part of ``make test``: ``make test-spark`` runs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.spark.session import run_to_end
from testkit.stage.logs import BEGUN_MS

pytestmark = pytest.mark.timeout(900)
RECORDS = 4_000
FAILING_RECORDS = 20_000
FAILS_AT = 0.6
ATTEMPTS_THAT_FAIL = 2


class Topic:
    """A fresh topic with two partitions, through the proxy."""

    def __init__(self, spark: SparkSession, cluster: LegacyCluster, proxy: ProxyProcess) -> None:
        self.spark = spark
        self.name = fresh_topic(cluster, 2)
        self.servers = "{}:{}".format(*proxy.address)

    def rows(self, count: int = RECORDS) -> DataFrame:
        return self.spark.range(0, count, 1, 2).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")

    def write(self, frame: DataFrame, **options: str) -> None:
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", self.servers)
        writer.options(**{"topic": self.name, **options}).save()

    def read(self, source: str = "kafka", **options: str) -> DataFrame:
        reader = self.spark.read.format(source).option("kafka.bootstrap.servers", self.servers)
        topics = {} if "subscribePattern" in options else {"subscribe": self.name}
        return reader.options(**{**topics, **options}).load()

    def stream(self, source: str = "kafka", **options: str) -> DataFrame:
        reader = self.spark.readStream.format(source).option("kafka.bootstrap.servers", self.servers)
        return reader.options(**{"subscribe": self.name, **options}).load()

    def values(self) -> list[int]:
        return sorted(int(row["value"]) for row in self.read().collect())


@pytest.fixture
def topic(spark: SparkSession, cluster: LegacyCluster, proxy: ProxyProcess) -> Topic:
    return Topic(spark, cluster, proxy)


def test_a_batch_written_with_idempotence_is_equal_rows_for_both_sources(topic: Topic) -> None:
    topic.write(topic.rows())
    assert topic.values() == list(range(RECORDS))
    middle = {"startingOffsets": json.dumps({topic.name: {"0": 100, "1": -2}})}
    for options in (
        {},
        {"includeHeaders": "true"},
        {"minPartitions": "6"},
        {"subscribePattern": topic.name[:-1] + "[" + topic.name[-1] + "]"},
        {"startingTimestamp": str(BEGUN_MS)},
        middle,
    ):
        theirs, ours = topic.read(**options), topic.read("idemproxy", **options)
        assert theirs.schema == ours.schema
        assert theirs.exceptAll(ours).count() == ours.exceptAll(theirs).count() == 0
        assert ours.count() == theirs.count() > 0


def test_a_stream_is_read_in_triggers_and_resumes_from_its_checkpoint(topic: Topic, checkpoint: str) -> None:
    seen: list[int] = []

    def take(frame: DataFrame, number: int) -> None:
        seen.append(frame.count())

    def run() -> None:
        stream = topic.stream(startingOffsets="earliest", maxOffsetsPerTrigger="1000").writeStream.foreachBatch(take)
        run_to_end(stream.option("checkpointLocation", checkpoint))

    topic.write(topic.rows())
    run()
    assert sum(seen) == RECORDS
    topic.write(topic.rows(500))
    run()
    assert sum(seen) == RECORDS + 500
    assert max(seen) <= 1000


def test_a_stream_is_written(topic: Topic, cluster: LegacyCluster, proxy: ProxyProcess, checkpoint: str) -> None:
    source = Topic(topic.spark, cluster, proxy)
    source.write(source.rows())
    stream = source.stream(startingOffsets="earliest").select("key", "value").writeStream.format("kafka")
    stream = stream.option("kafka.bootstrap.servers", topic.servers).option("topic", topic.name)
    run_to_end(stream.option("checkpointLocation", checkpoint))
    assert topic.values() == list(range(RECORDS))


def test_headers_are_refused_as_the_broker_stores_none(topic: Topic) -> None:
    headers = "array(struct('trace' AS key, CAST('1' AS BINARY) AS value)) AS headers"
    with pytest.raises(Py4JJavaError, match=f"record header 'trace' cannot be stored in topic {topic.name}: "):
        topic.write(topic.rows(10).selectExpr("*", headers))
    assert topic.values() == []


def failing_function() -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that fails in the second partition after most of its rows, for the first attempts. Workers get
    it by value: they cannot import this file."""

    def failing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        fails = context.partitionId() == 1 and context.attemptNumber() < ATTEMPTS_THAT_FAIL
        taken = 0
        for batch in batches:
            if fails and taken >= FAILING_RECORDS / 2 * FAILS_AT:
                raise RuntimeError("injected")
            taken += batch.num_rows
            yield batch

    return failing


def test_a_task_that_is_tried_again_leaves_duplicates(topic: Topic) -> None:
    """A retry of Spark is new data to any broker and proxy: this connector is at-least-once, whatever it writes to."""
    frame = topic.rows(FAILING_RECORDS).mapInArrow(failing_function(), "key string, value string")
    topic.write(frame)
    found: list[Any] = topic.values()
    duplicates = len(found) - len(set(found))
    assert set(found) == set(range(FAILING_RECORDS))
    assert duplicates == ATTEMPTS_THAT_FAIL * FAILING_RECORDS / 2 * FAILS_AT
    suspected = topic.read("idemproxy").groupBy("value").count().where("count > 1").count()
    assert suspected == FAILING_RECORDS / 2 * FAILS_AT
