"""Our Java programs against a real 0.10.2.2 broker: what each release of the client does without a proxy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic, told, verdict
from testkit.real.clients.java_clients import (
    LAST_3X_CLIENT,
    MODERN_CLIENT,
    OLD_CLIENT,
    start_group_reader,
    start_producer,
)

PARTITIONS = 4
PATIENT = {"request.timeout.ms": "30000"}
"""Where nothing breaks: a plain producer that does not wait for a late answer has its records stored twice."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def children() -> Iterator[ChildProcesses]:
    with ChildProcesses() as running:
        yield running


@pytest.mark.parametrize(
    ("version", "settings"), [(OLD_CLIENT, PATIENT), (LAST_3X_CLIENT, {"enable.idempotence": "false", **PATIENT})]
)
def test_a_plain_java_producer_gets_the_offsets_that_its_records_have(
    cluster: LegacyCluster, children: ChildProcesses, tmp_path: Path, version: str, settings: dict[str, str]
) -> None:
    topic = fresh_topic(cluster, PARTITIONS)
    program = start_producer(
        children,
        tmp_path,
        version=version,
        bootstrap=cluster.bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        records=2000,
        compression="gzip",
        settings=settings,
    )
    last = program.wait()
    assert last == {
        "sent": 2000,
        "acked": 2000,
        "failed": 0,
        "offsets_known": True,
        "offsets_in_order": True,
        "errors": [],
        "final": True,
    }
    acknowledged = told("java", program.acknowledged())
    assert len(acknowledged) == 2000
    assert verdict(cluster, topic, PARTITIONS, acknowledged).is_exactly_once


@pytest.mark.parametrize("version", [LAST_3X_CLIENT, MODERN_CLIENT])
def test_an_idempotent_java_producer_fails_at_an_old_broker(
    cluster: LegacyCluster, children: ChildProcesses, tmp_path: Path, version: str
) -> None:
    topic = fresh_topic(cluster, PARTITIONS)
    program = start_producer(
        children,
        tmp_path,
        version=version,
        bootstrap=cluster.bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        records=20,
    )
    last = program.wait()
    assert (last["sent"], last["acked"], last["failed"]) == (20, 0, 20)
    assert "UnsupportedVersionException" in last["errors"][0]


def test_an_old_java_group_reads_everything_and_commits(
    cluster: LegacyCluster, children: ChildProcesses, tmp_path: Path
) -> None:
    topic = fresh_topic(cluster, PARTITIONS)
    start_producer(
        children,
        tmp_path,
        version=OLD_CLIENT,
        bootstrap=cluster.bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        records=400,
    ).wait()
    reader = start_group_reader(
        children, tmp_path, bootstrap=cluster.bootstrap, topic=topic, group="readers", records=400
    )
    assert reader.wait() == {"records": 400, "committed": {"0": 100, "1": 100, "2": 100, "3": 100}, "final": True}
    assert sorted((one.partition, one.offset, one.value) for one in reader.consumed()) == sorted(
        (partition, number, f"java:{partition}:{number}") for partition in range(PARTITIONS) for number in range(100)
    )
