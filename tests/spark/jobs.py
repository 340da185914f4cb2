"""The jobs as commands on a real 0.10.2.2 behind a proxy: repeated, replayed, and a stateful one killed at random.

Not a part of ``make test``: ``make test-spark`` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from idemproxy.codecs.message_set import iterate_shallow
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.pipeline.sink.murmur2 import murmur2_of
from idemproxy.proxy.main import main
from testkit.real.brokers.kafka_cluster import fresh_topic, stored, stored_values
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.spark.sink_driver import Plan, run_query, write_rows

pytestmark = pytest.mark.timeout(3600)
KEYS = 7
Log = list[list[bytes]]


class Scene:
    """A source, and jobs that are given to the command line."""

    def __init__(self, cluster: LegacyCluster, proxy: ProxyProcess, folder: Path) -> None:
        self._cluster, self._proxy, self.folder = cluster, proxy, folder
        self.bootstrap = "{}:{}".format(*proxy.address)

    def topic(self, partitions: int = 3) -> str:
        return fresh_topic(self._cluster, partitions)

    def fill(self, topic: str, first: int, count: int, partitions: int = 3) -> None:
        with RawClient(self._proxy.address) as client:
            for number in range(first, first + count):
                key = b"k%d" % (number % KEYS)
                partition = (murmur2_of(key) & 0x7FFF_FFFF) % partitions
                record = batch([b"%s:%s:%d" % (topic.encode(), key, number)], key=key)
                assert client.produce_one(topic, partition, record).error_code == 0

    def job(self, name: str, topics: list[str], out: str, *options: str) -> Path:
        """Run it; return its checkpoint."""
        checkpoint = self.folder / f"{name}-{out}"
        command = [name, "--from", self.bootstrap, "--out", out, "--checkpoint", str(checkpoint), *options]
        assert main([*command, *(word for topic in topics for word in ("--topic", topic))]) == 0
        return checkpoint

    def log(self, topic: str, partitions: int = 3) -> Log:
        return [[value for _, value in stored_values(self._cluster, (topic, p))] for p in range(partitions)]


def replay(checkpoint: Path) -> None:
    """Let Spark run the last batch again, as after a crash before it has noted its end."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    (checkpoint / f"sink/{last}.published").unlink()


@pytest.fixture
def scene(spark: SparkSession, cluster: LegacyCluster, proxy: ProxyProcess, tmp_path: Path) -> Scene:
    assert spark.version
    return Scene(cluster, proxy, tmp_path)


def test_a_copy_has_each_record_once_in_the_same_partition_and_order(scene: Scene) -> None:
    source, out = scene.topic(), scene.topic()
    scene.fill(source, 0, 90)
    checkpoint = scene.job("copy", [source], out)
    assert scene.log(out) == scene.log(source)
    replay(checkpoint)
    scene.fill(source, 90, 40)
    scene.job("copy", [source], out)
    assert scene.log(out) == scene.log(source)
    scene.job("copy", [source], out)
    assert scene.log(out) == scene.log(source)


def test_a_merge_log_keeps_the_order_of_each_source_and_is_decided_once(scene: Scene) -> None:
    one, other, out = scene.topic(), scene.topic(), scene.topic()
    scene.fill(one, 0, 60)
    scene.fill(other, 0, 60)
    checkpoint = scene.job("merge", [one, other], out)
    first = scene.log(out)
    replay(checkpoint)
    scene.job("merge", [one, other], out)
    assert scene.log(out) == first
    assert sorted(value for values in first for value in values) == sorted(
        value for topic in (one, other) for values in scene.log(topic) for value in values
    )
    for topic in (one, other):
        mine = [[value for value in values if value.startswith(topic.encode() + b":")] for values in first]
        assert mine == scene.log(topic)  # as many partitions, so each key is where it was, in order


def test_headers_carry_coordinates_where_brokers_store_them_and_old_ones_refuse_with_a_sentence(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = scene.topic(), scene.topic()
    scene.fill(source, 0, 5)
    command = ["repartition", "--from", scene.bootstrap, "--topic", source, "--out", out]
    assert main([*command, "--checkpoint", str(scene.folder / "refused")]) == 2
    assert "header" in capsys.readouterr().err
    assert scene.log(out) == [[], [], []]


def test_batches_that_are_twice_in_a_log_are_cleaned_by_their_batch_markers(
    scene: Scene, cluster: LegacyCluster, proxy: ProxyProcess
) -> None:
    source, out = scene.topic(1), scene.topic(1)
    with RawClient(proxy.address) as client, RawClient(cluster.address(0)) as direct:
        producer_id = client.new_producer_id()
        for number in range(4):
            records = batch([b"%d" % number], producer_id=producer_id, sequence=number)
            assert client.produce_one(source, 0, records).error_code == 0
        log = direct.fetch(source, 0, version=2)
        for message in iterate_shallow(log):  # batch markers and all, past the proxy
            # As it was sent: with another offset the broker would pack it again, without the batch marker.
            again = bytes(8) + log[message.start + 8 : message.start + message.size_bytes]
            assert direct.produce_one(source, 0, again, version=2).error_code == 0
    assert len(scene.log(source, 1)[0]) == 8
    scene.job("clean", [source], out, "--coordinates", "batches")
    assert scene.log(out, 1) == [[b"0", b"1", b"2", b"3"]]


def test_the_changelog_of_a_stateful_job_has_each_change_once(
    spark: SparkSession, scene: Scene, cluster: LegacyCluster
) -> None:
    """Its state is in Spark's checkpoint, its changes in the topic: each count of each key once, in order. The last
    batch comes again, as after a crash."""
    out, files, rows = scene.topic(), 3, 140
    folder = scene.folder / "stateful"
    write_rows(folder / "source", files - 1, rows)
    plan = Plan(scene.bootstrap, out, str(folder / "source"), str(folder), counts_by=KEYS)
    run_query(spark, plan)
    replay(plan.checkpoint)
    write_rows(folder / "source", 1, rows, first=files - 1)
    run_query(spark, plan)
    found: dict[bytes, list[int]] = {}
    for records in stored(cluster, out, 3).values():
        for record in records:
            assert record.key is not None
            assert record.value is not None
            found.setdefault(record.key, []).append(int(record.value))
    assert found == {b"%d" % key: [20, 40, 60] for key in range(KEYS)}


def test_a_query_that_begins_under_the_same_name_fences_the_one_before(spark: SparkSession, scene: Scene) -> None:
    """Each has a checkpoint of its own, so no manifest stands between them."""
    out = scene.topic()
    name = (("producerName", f"writer-of-{out}"), ("fencing", "name"))
    plans = []
    for number in range(2):
        folder = scene.folder / f"query-{number}"
        write_rows(folder / "source", 1, 50)
        plans.append(Plan(scene.bootstrap, out, str(folder / "source"), str(folder), options=name))
    run_query(spark, plans[0])
    run_query(spark, plans[1])
    write_rows(Path(plans[0].source), 1, 50, first=1)
    with pytest.raises(StreamingQueryException, match="Another query has begun under its producerName"):
        run_query(spark, plans[0])
    assert sum(map(len, scene.log(out))) == 100
    write_rows(Path(plans[1].source), 1, 50, first=1)
    run_query(spark, plans[1])
    assert sum(map(len, scene.log(out))) == 150
