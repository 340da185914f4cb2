"""``format("idemproxy")`` as a sink before a real 0.10.2.2 and a proxy: each row is in the log once, and in order.

What takes minutes, killed drivers above all, is in tests/spark (``make test-spark``)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.partitioner.default import murmur2
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic, stored_values
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.spark.sink_driver import Plan, number_of, run_query, value_of, write_rows

PARTITIONS = 3
ROWS = 2000
pytestmark = pytest.mark.timeout(1800)
"""On a busy machine a session takes a minute to start, and as long a batch."""


@pytest.fixture(autouse=True)
def small_arrow_batches(spark: SparkSession) -> Iterator[None]:
    """With the default a failing task fails before a row has left it, and nothing would be proven."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "500")
    yield
    spark.conf.set(name, str(before))


class Scene:
    """A query, its source and its topic."""

    def __init__(self, cluster: LegacyCluster, proxy: ProxyProcess, folder: Path) -> None:
        self._cluster = cluster
        self.bootstrap = "{}:{}".format(*proxy.address)
        self.topic = fresh_topic(cluster, PARTITIONS)
        self.folder = folder
        self.rows = 0
        write_rows(folder / "source", 0, 0)

    @property
    def sink(self) -> Path:
        """The folder of the sink's files."""
        return self.folder / "checkpoint/sink"

    def add(self, files: int) -> None:
        """Add files to the source."""
        write_rows(self.folder / "source", files, ROWS, first=self.rows // ROWS)
        self.rows += files * ROWS

    def plan(self, **more: object) -> Plan:
        """A run of the query."""
        given: dict[str, object] = {"tasks": 0, "failures": 0, **more}
        return Plan(self.bootstrap, self.topic, str(self.folder / "source"), str(self.folder), **given)  # type: ignore[arg-type]

    def forget(self, batch_id: int, *, published: bool = True) -> None:
        """Let Spark run the last batch again; ``published``: the sink has not noted its end either."""
        for name in (f"{batch_id}", f".{batch_id}.crc"):
            (self.folder / "checkpoint/commits" / name).unlink()
        if published:
            (self.sink / f"{batch_id}.published").unlink()

    def log(self, topic: str | None = None) -> dict[int, list[int]]:
        """The numbers of the rows in each partition, in the order of the log."""
        places = [(topic or self.topic, partition) for partition in range(PARTITIONS)]
        values = {place[1]: [value for _, value in stored_values(self._cluster, place)] for place in places}
        assert all(value == value_of(number_of(value)) for each in values.values() for value in each)
        return {partition: [number_of(value) for value in each] for partition, each in values.items()}


@pytest.fixture
def scene(legacy_broker: LegacyCluster, shared_proxy: ProxyProcess, tmp_path: Path) -> Scene:
    return Scene(legacy_broker, shared_proxy, tmp_path)


def by_key(numbers: range) -> dict[int, list[int]]:
    """Where Kafka's producers send rows with these keys, in order."""
    placed: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for number in numbers:
        placed[(murmur2(b"%d" % number) & 0x7FFF_FFFF) % PARTITIONS].append(number)
    return placed


def test_failing_tasks_and_repeated_batches_leave_each_row_once_and_in_order(spark: SparkSession, scene: Scene) -> None:
    scene.add(2)
    run_query(spark, scene.plan(failures=2))
    assert len(list((scene.folder / "failures").iterdir())) == 4
    assert scene.log() == by_key(range(scene.rows))
    scene.forget(1)
    scene.add(1)
    run_query(spark, scene.plan(failures=1, tasks=4))  # the same batch in other tasks, and in another order
    found = scene.log()
    assert {partition: sorted(numbers) for partition, numbers in found.items()} == by_key(range(scene.rows))
    before = by_key(range(2 * ROWS))
    assert {partition: found[partition][: len(before[partition])] for partition in found} == before
    assert sorted(path.name for path in scene.sink.iterdir()) == [
        *(f"{batch_id}.{kind}" for batch_id in range(3) for kind in ("json", "published")),
        "stage",
    ]
    assert sorted(path.name for path in (scene.sink / "stage").iterdir()) == ["1", "2"]


def test_a_publication_that_stopped_half_way_resumes_even_if_redis_was_emptied(
    spark: SparkSession, scene: Scene, shared_proxy: ProxyProcess
) -> None:
    options = (("kafka.batch.size", "4096"),)
    scene.add(2)
    run_query(spark, scene.plan(options=options))
    scene.forget(1)
    shared_proxy.entries()  # nothing is under way
    assert shared_proxy.redis("FLUSHALL") == b"OK"
    run_query(spark, scene.plan(options=options))
    assert scene.log() == by_key(range(scene.rows))


def test_a_batch_that_the_server_may_have_forgotten_is_not_sent_again(spark: SparkSession, scene: Scene) -> None:
    scene.add(1)
    run_query(spark, scene.plan())
    scene.forget(0)
    time.sleep(1.0)  # longer than half of what is said below
    with pytest.raises(StreamingQueryException, match=r"batch 0 was begun more than .* and not finished"):
        run_query(spark, scene.plan(options=(("producerExpirySeconds", "1"),)))
    assert scene.log() == by_key(range(scene.rows))


def test_numbers_that_the_server_does_not_expect_stop_the_query(spark: SparkSession, scene: Scene) -> None:
    scene.add(1)
    run_query(spark, scene.plan())
    manifest = json.loads((scene.sink / "0.json").read_text())
    for place in manifest["next_sequences"]:
        place[2] += 7  # as if a batch were missing in the log
    (scene.sink / "0.json").write_text(json.dumps(manifest))
    scene.add(1)
    for _ in range(2):  # when it is decided, and when it comes again
        with pytest.raises(StreamingQueryException, match="the server expects another sequence"):
            run_query(spark, scene.plan())
    assert scene.log() == by_key(range(ROWS))


def test_a_run_of_a_batch_write_is_appended_once_however_often_it_is_repeated(
    spark: SparkSession, scene: Scene
) -> None:
    other = fresh_topic(scene._cluster, PARTITIONS)
    rows = spark.range(3000).selectExpr(
        f"if(id % 3 = 0, '{scene.topic}', '{other}') topic",
        "cast(id as string) key",
        "rpad(concat(id, ' '), 100, '.') value",
        "if(id % 3 = 1, 2, null) partition",
        "'left out' another",
    )

    def write(name: str) -> None:
        writer = rows.write.format("idemproxy").mode("append").option("kafka.bootstrap.servers", scene.bootstrap)
        writer.option("stagingLocation", f"file://{scene.folder}/staging").option("producerName", name).save()

    write("first")
    write("first")
    expected = by_key(range(3000))
    of_topic = {partition: [one for one in numbers if one % 3 == 0] for partition, numbers in expected.items()}
    of_other = {partition: [one for one in numbers if one % 3 == 2] for partition, numbers in expected.items()}
    of_other[2] = sorted(of_other[2] + list(range(1, 3000, 3)))
    assert {partition: sorted(numbers) for partition, numbers in scene.log().items()} == of_topic
    assert {partition: sorted(numbers) for partition, numbers in scene.log(other).items()} == of_other
    assert not (scene.folder / "staging/first/sink/stage/0").exists()
    write("second")
    assert {partition: len(numbers) for partition, numbers in scene.log().items()} == {
        partition: 2 * len(numbers) for partition, numbers in of_topic.items()
    }


def test_a_run_with_other_rows_under_a_known_name_ends_with_an_error(spark: SparkSession, scene: Scene) -> None:
    def write(rows: range, tasks: int = 2) -> None:
        frame = spark.range(rows.start, rows.stop, 1, tasks).selectExpr(
            "cast(id as string) key", "rpad(concat(id, ' '), 100, '.') value"
        )
        writer = frame.write.format("idemproxy").mode("append").option("kafka.bootstrap.servers", scene.bootstrap)
        writer.option("topic", scene.topic).option("stagingLocation", str(scene.folder)).option(
            "producerName", "daily"
        ).save()

    write(range(100))
    write(range(100), tasks=3)
    with pytest.raises(Exception, match=r"names a run that is stored: 100 records.*as many with other content"):
        write(range(100, 200))
    with pytest.raises(Exception, match=r"names a run that is stored: 100 records.*this write has 5"):
        write(range(200, 205))
    assert sorted(number for each in scene.log().values() for number in each) == list(range(100))
    assert not (scene.folder / "daily/sink/stage/0").exists()


@pytest.mark.parametrize("is_fixed", [True, False])
def test_each_batch_of_foreach_batch_is_stored_or_refused_by_name(
    spark: SparkSession, scene: Scene, is_fixed: bool
) -> None:
    """Their rows are equal, as those of a source that repeats itself may be."""

    def write(rows: DataFrame, batch_id: int) -> None:
        name = "each" if is_fixed else f"each-{batch_id}"
        writer = rows.selectExpr("value").write.format("idemproxy").mode("append")
        writer = writer.option("kafka.bootstrap.servers", scene.bootstrap).option("topic", scene.topic)
        writer.option("stagingLocation", str(scene.folder)).option("producerName", name).save()

    source = scene.folder / "lines"
    source.mkdir()
    for number in range(2):
        (source / f"{number}.txt").write_text(f"{value_of(7).decode()}\n")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
    checkpoint = str(scene.folder / "each-checkpoint")
    query = lines.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    if is_fixed:
        with pytest.raises(StreamingQueryException, match=r"this write was made in the micro-batch .*/1, and that one"):
            query.trigger(availableNow=True).start().awaitTermination()
    else:
        query.trigger(availableNow=True).start().awaitTermination()
    assert sum(map(len, scene.log().values())) == (1 if is_fixed else 2)


def test_a_checkpoint_whose_sink_folder_was_removed_is_refused(spark: SparkSession, scene: Scene) -> None:
    scene.add(1)
    run_query(spark, scene.plan())
    shutil.rmtree(scene.sink)
    scene.add(1)
    with pytest.raises(StreamingQueryException, match="batch 1 is to be written, and the checkpoint has no folder"):
        run_query(spark, scene.plan())
    assert scene.log() == by_key(range(ROWS))


def test_records_with_headers_are_refused_by_name_and_nothing_is_lost(spark: SparkSession, scene: Scene) -> None:
    rows = spark.createDataFrame(
        [("1", [("trace", b"x")])], "value string, headers array<struct<key:string,value:binary>>"
    )
    writer = rows.write.format("idemproxy").mode("append").option("kafka.bootstrap.servers", scene.bootstrap)
    writer = writer.option("topic", scene.topic).option("stagingLocation", str(scene.folder))
    with pytest.raises(
        Exception, match=r"(?s)batch 0 could not be published.*UNSUPPORTED_FOR_MESSAGE_FORMAT.*let the proxy drop them"
    ):
        writer.option("producerName", "headers").save()
    assert scene.log() == {partition: [] for partition in range(PARTITIONS)}


def test_modes_that_the_sink_does_not_have_are_refused(spark: SparkSession, scene: Scene) -> None:
    rows = spark.range(1).selectExpr("cast(id as string) value")
    writer = rows.write.format("idemproxy").option("topic", scene.topic)
    with pytest.raises(Exception, match="a log can only be appended to"):
        writer.mode("overwrite").save()
    with pytest.raises(Exception, match=r"unknown options: kafka\.linger\.ms; known are topic"):
        writer.mode("append").option("kafka.linger.ms", "5").save()


def test_a_continuous_query_ends_with_a_sentence(spark: SparkSession, scene: Scene) -> None:
    """Spark begins it, calls no writer, and would run for ever."""
    rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    writer = rows.writeStream.format("idemproxy").option("kafka.bootstrap.servers", scene.bootstrap)
    query = (
        writer.option("topic", scene.topic)
        .option("checkpointLocation", str(scene.folder / "continuous"))
        .trigger(continuous="1 second")
        .start()
    )
    try:
        with pytest.raises(StreamingQueryException, match="continuous processing has no batches"):
            assert query.awaitTermination(300), "it runs, and writes nothing"
    finally:
        query.stop()


def test_what_is_planned_again_under_a_batch_that_is_decided_is_not_lost(
    spark: SparkSession, scene: Scene, legacy_broker: LegacyCluster
) -> None:
    """All of the checkpoint but the sink's own folder was put back to a copy of before batch 1."""
    source, checkpoint, copy = fresh_topic(legacy_broker, 1), scene.folder / "checkpoint", scene.folder / "copy"
    sent: list[bytes] = []

    def more() -> None:
        values = [b"%d" % number for number in range(len(sent), len(sent) + 10)]
        host, _, port = scene.bootstrap.rpartition(":")
        with RawClient((host, int(port))) as client:
            assert client.produce_one(source, 0, batch(values)).error_code == 0
        sent.extend(values)

    def life() -> None:
        at = {"kafka.bootstrap.servers": scene.bootstrap}
        rows = spark.readStream.format("idemproxy").options(**at, subscribe=source, startingOffsets="earliest").load()
        written = rows.select("key", "value").writeStream.format("idemproxy").options(**at, topic=scene.topic)
        query = written.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    more()
    life()
    shutil.copytree(checkpoint, copy, ignore=shutil.ignore_patterns("sink"))
    more()
    life()
    for one in checkpoint.iterdir():
        if one.name != "sink":
            shutil.rmtree(one) if one.is_dir() else one.unlink()
    shutil.copytree(copy, checkpoint, dirs_exist_ok=True)
    more()
    with pytest.raises(StreamingQueryException, match="batch 1 was decided with other offsets of its sources"):
        life()
