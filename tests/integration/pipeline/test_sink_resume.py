"""A publication that was begun resumes where the server says that it stopped: nothing is sent twice. Where the server
says nothing it is searched for, with the same end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from idemproxy.client import Client, OutOfOrder, Producer
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.pipeline.sink.commit import stage_folder
from idemproxy.pipeline.sink.manifest import Manifest, Writer, numbered
from idemproxy.pipeline.sink.options import SinkOptions, sink_options
from idemproxy.pipeline.sink.problems import SinkProblem
from idemproxy.pipeline.sink.publish import publish
from idemproxy.pipeline.sink.stage import stage
from idemproxy.pipeline.sink.storage import Storage, storage_at
from testkit.real.brokers.kafka_cluster import fresh_topic, stored_values
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.proxies.two_proxies import TwoProxies

pytestmark = pytest.mark.long

PARTITIONS = 2
ROWS = 6000
Decided = tuple[Manifest, Storage, SinkOptions]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The partition of each batch that was handed to a producer."""
    places: list[tuple[str, int]] = []
    send = Producer.send

    def sending(self: Producer, topic: str, partition: int, batch: Any, **options: Any) -> Any:
        places.append((topic, partition))
        return send(self, topic, partition, batch, **options)

    monkeypatch.setattr(Producer, "send", sending)
    return places


def decided(address: tuple[str, int], topic: str, folder: Path, name: str | None) -> Decided:
    """A manifest of many batches on each partition, and where its files are."""
    bootstrap = "{}:{}".format(*address)
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": topic,
        "checkpointLocation": str(folder),
        "kafka.batch.size": "4096",
    }
    options = sink_options(given, is_streaming=True)
    storage = storage_at(options.location)
    columns = [pa.array([b"%d" % row for row in range(ROWS)]), pa.array([b"value %d" % row for row in range(ROWS)])]
    rows = pa.record_batch(columns, names=["key", "value"])
    file = stage([rows], stage_folder(0), 0, storage, options)
    with Client(bootstrap) as client:
        given_id = client.init_producer_id(name)
    writer = Writer(given_id.number, given_id.epoch, name, name is not None)
    return numbered(0, [file], writer, {}, 0), storage, options


def half_of(manifest: Manifest) -> Manifest:
    """As far as a driver came that was killed."""
    return replace(
        manifest, planned={place: planned[: len(planned) // 2] for place, planned in manifest.planned.items()}
    )


def batches_of(manifest: Manifest) -> int:
    return sum(map(len, manifest.planned.values()))


def check(cluster: LegacyCluster, topic: str) -> None:
    found = [value for one in range(PARTITIONS) for _, value in stored_values(cluster, (topic, one))]
    assert sorted(found) == sorted(b"value %d" % row for row in range(ROWS))


@pytest.mark.promise("sink-starts-again")
@pytest.mark.parametrize("name", ["orders query", None])
def test_what_the_server_tells_is_not_sent_again(
    legacy_broker: LegacyCluster, shared_proxy: ProxyProcess, tmp_path: Path, sent: list[object], name: str | None
) -> None:
    """A producer without a name is known to the proxy at which it was at work."""
    topic = fresh_topic(legacy_broker, PARTITIONS)
    manifest, storage, options = decided(shared_proxy.address, topic, tmp_path, name)
    half = half_of(manifest)
    assert min(map(len, half.planned.values())) > 5
    publish(half, storage, options, was_begun=False)
    publish(manifest, storage, options, was_begun=True)
    assert len(sent) == batches_of(manifest)
    publish(manifest, storage, options, was_begun=True)
    assert len(sent) == batches_of(manifest)
    check(legacy_broker, topic)


@pytest.fixture
def pair(legacy_broker: LegacyCluster, tmp_path: Path) -> Iterator[TwoProxies]:
    directory = tmp_path / "proxies"
    directory.mkdir()
    with TwoProxies(directory, legacy_broker) as running:
        yield running


@pytest.mark.promise("sink-starts-again")
def test_another_proxy_knows_progress_by_producer_name_and_searches_without_one(
    legacy_broker: LegacyCluster, pair: TwoProxies, tmp_path: Path, sent: list[object]
) -> None:
    first, second = pair.proxies
    for name, is_told in (("payments query", True), (None, False)):
        topic = fresh_topic(legacy_broker, PARTITIONS)
        manifest, storage, options = decided(first.address, topic, tmp_path / str(name), name)
        sent.clear()
        publish(half_of(manifest), storage, options, was_begun=False)
        first.kill()
        at_second = sink_options(
            {
                "kafka.bootstrap.servers": "{}:{}".format(*second.address),
                "topic": topic,
                "checkpointLocation": options.folder,
            },
            is_streaming=True,
        )
        publish(manifest, storage, at_second, was_begun=True)
        assert (len(sent) == batches_of(manifest)) is is_told
        check(legacy_broker, topic)
        first.start()


@pytest.mark.promise("sink-starts-again")
def test_where_redis_has_lost_all_it_is_searched_for(
    legacy_broker: LegacyCluster, shared_proxy: ProxyProcess, tmp_path: Path, sent: list[object]
) -> None:
    topic = fresh_topic(legacy_broker, PARTITIONS)
    manifest, storage, options = decided(shared_proxy.address, topic, tmp_path, None)
    publish(half_of(manifest), storage, options, was_begun=False)
    shared_proxy.entries()  # nothing is under way
    assert shared_proxy.redis("FLUSHALL") == b"OK"
    publish(manifest, storage, options, was_begun=True)
    assert len(sent) > batches_of(manifest)
    check(legacy_broker, topic)


def test_rows_of_a_copied_checkpoint_are_not_taken_for_those_of_the_other_one(
    legacy_broker: LegacyCluster, shared_proxy: ProxyProcess, tmp_path: Path
) -> None:
    """Both give the numbers that come next to rows of their own. A broker would take the second ones for duplicates of
    the first; the proxy looks at what the log has."""
    topic = fresh_topic(legacy_broker, PARTITIONS)
    manifest, storage, options = decided(shared_proxy.address, topic, tmp_path / "one", None)
    publish(manifest, storage, options, was_begun=False)
    columns = [pa.array([b"%d" % row for row in range(ROWS)]), pa.array([b"other %d" % row for row in range(ROWS)])]
    file = stage([pa.record_batch(columns, names=["key", "value"])], stage_folder(1), 0, storage, options)
    copy = half_of(numbered(1, [file], manifest.writer, {}, 0))
    for was_begun in (False, True):
        with pytest.raises((OutOfOrder, SinkProblem), match="the server expects another sequence"):
            publish(copy, storage, options, was_begun=was_begun)
    check(legacy_broker, topic)
