"""``idemproxy audit`` on a real 3.9.1 behind a proxy that gives idempotence: its batches name no producer, and have a
batch marker in their header."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from idemproxy.codecs.logged import LoggedBatch, iterate_logged
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.commands.inspection.found_duplicates import found_by_audit
from idemproxy.proxy.main import main
from idemproxy.state.hidden_ranges import OffsetRange
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy

VERSION = "3.9.1"
BATCHES, RECORDS = 6, 4
pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True, slots=True)
class Scene:
    """Of partition 0 the second batch was appended again, past the proxy; partition 1 is clean."""

    cluster: LegacyCluster
    topic: str
    journal: Path

    def audit(self, out: Path, *options: str, journal: Path | None = None) -> tuple[int, dict[str, Any]]:
        """Run the command; return its exit status and what it found, by kind."""
        upstream = ("--upstream", "{}:{}".format(*self.cluster.address(0)))
        chosen = options or (*upstream, "--journal", str(journal or self.journal))
        status = main(["audit", "--out", str(out), "--topic", self.topic, *chosen])
        found = json.loads((out / "summary.json").read_text())["findings"]
        return status, {kind: count for kind, count in found.items() if count}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("audited")
    journal = folder / "journal.jsonl"
    with LegacyCluster(folder / "kafka", version=VERSION, auto_create_topics=False) as cluster:
        topic = fresh_topic(cluster, 2)
        upstream = {"bootstrap": ["{}:{}".format(*cluster.address(0))], "idempotence": "proxy"}
        settings = {"upstream": upstream, "journal": {"path": str(journal)}}
        with (
            ConfiguredProxy(folder / "proxy", settings, listener={}) as proxy,
            RawClient((proxy.address[0], proxy.address[1] + 1)) as client,
            RawClient(cluster.address(0)) as direct,
        ):
            for partition in (0, 1):
                producers = [client.new_producer_id() for _ in range(2)]
                for number in range(BATCHES):
                    for producer in producers:
                        values = [b"%d:%d:%d" % (producer, number, index) for index in range(RECORDS)]
                        records = batch(values, producer_id=producer, sequence=number * RECORDS)
                        answer = client.produce_one(topic, partition, records)
                        assert answer.error_code == 0, answer
            stored = [one for one in iterate_logged(direct.fetch(topic, 0, version=10)) if isinstance(one, LoggedBatch)]
            assert all(one.marker is not None for one in stored)
            again = bytes(8) + bytes(stored[1].records[8:])  # producers have no offset yet
            assert direct.produce_one(topic, 0, again).error_code == 0
        yield Scene(cluster, topic, journal)


def test_a_batch_that_is_stored_twice_is_found_by_its_marker_and_nothing_else_is(
    spark: SparkSession, scene: Scene, tmp_path: Path
) -> None:
    assert spark.version
    assert scene.audit(tmp_path) == (1, {"duplicate": RECORDS})
    (found,) = found_by_audit(tmp_path).copies
    first = 2 * BATCHES * RECORDS
    assert (found.place, found.first_copy) == (OffsetRange(scene.topic, 0, first, first + RECORDS), RECORDS)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["acknowledged_batches"] == 2 * 2 * BATCHES
    assert [one["identified_records"] for one in summary["partitions"]] == [first + RECORDS, first]


def test_its_segment_files_say_the_same(spark: SparkSession, scene: Scene, tmp_path: Path) -> None:
    assert spark.version
    assert scene.audit(tmp_path, "--log-dir", str(scene.cluster.log_directories[0])) == (1, {"duplicate": RECORDS})


def test_an_acknowledged_batch_whose_offset_has_another_marker_is_lost(
    spark: SparkSession, scene: Scene, tmp_path: Path
) -> None:
    assert spark.version
    lines = scene.journal.read_text().splitlines()
    (at,) = [at for at, line in enumerate(lines) if '"event":"answered"' in line and f'"{scene.topic}"' in line][-1:]
    told = json.loads(lines[at])
    lost = {**told, "base_sequence": told["base_sequence"] + RECORDS}
    forged = tmp_path / "journal.jsonl"
    forged.write_text("\n".join([*lines, json.dumps(lost, separators=(",", ":"))]) + "\n")
    assert scene.audit(tmp_path, journal=forged) == (1, {"duplicate": RECORDS, "acknowledged_absent": RECORDS})
