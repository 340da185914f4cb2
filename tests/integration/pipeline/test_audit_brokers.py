"""The audit's reader before every kind of broker: old ones that tell no versions, and those with record batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.pipeline.audit import plan as planning
from idemproxy.pipeline.audit.plan import ACCESS, Plan, of_cluster
from idemproxy.pipeline.audit.read import compare, read_range
from idemproxy.pipeline.audit.rows import Kind
from idemproxy.pipeline.reading.broker import BrokerProblem, Cluster
from testkit.real.clients.raw_client import RawClient
from testkit.stage.logs import modern, numbered, plain, wrapper

pytestmark = pytest.mark.long

Row = dict[str, int]
RECORDS = 60


def write(cluster: LegacyCluster, version: int, *batches: bytes) -> None:
    """Append to the partition 0 of the topic."""
    cluster.create_topic("orders", 1)
    with RawClient(cluster.address(0)) as client:
        for data in batches:
            client.send_produce([("orders", 0, data)], version=version, acks=1)
            (answer,) = client.produce_answer(version)
            assert answer.error_code == 0, answer


def read(cluster: LegacyCluster, monkeypatch: pytest.MonkeyPatch, range_offsets: int) -> tuple[Plan, list[Row]]:
    """Read the topic in ranges of so many offsets."""
    monkeypatch.setattr(planning, "RANGE_OFFSETS", range_offsets)
    plan = of_cluster([cluster.address(0)], ["orders"], [])
    return plan, [row for one in plan.ranges for batch in read_range(plan, one) for row in batch.to_pylist()]


def records(rows: list[Row]) -> list[Row]:
    return sorted((row for row in rows if row["kind"] == Kind.RECORD), key=lambda row: row["offset"])


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_brokers_that_tell_no_versions_are_read(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LegacyCluster(tmp_path, version=version) as cluster:
        write(cluster, 0, wrapper(numbered(0, 20), 0, magic=0), plain(numbered(20, 20), 0, magic=0))
        write_again = wrapper(numbered(0, 20), 0, magic=0, codec=Codec.SNAPPY)
        with RawClient(cluster.address(0)) as client:
            client.send_produce([("orders", 0, write_again)], version=0, acks=1)
            assert client.produce_answer(0)[0].error_code == 0
        plan, rows = read(cluster, monkeypatch, 7)
        found = records(rows)
        assert [row["offset"] for row in found] == list(range(RECORDS))
        assert len({row["hash1"] for row in found}) == 40
        assert compare(plan, 0, np.array([[45, 5], [45, 6], [59, 19]])).tolist() == [1, 0, 1]


@pytest.mark.parametrize("version", ["0.11.0.3", "3.9.1"])
def test_batches_of_brokers_with_idempotence_are_read_with_their_producers(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LegacyCluster(tmp_path, version=version) as cluster:
        batches = [modern(numbered(n, 10), 0, Identity(77, 0, n, 10), Codec.LZ4) for n in range(0, 50, 10)]
        write(cluster, 3, *batches, modern(numbered(0, 10)))
        plan, rows = read(cluster, monkeypatch, 7)
        assert [place.has_holes for place in plan.places] == [version == "0.11.0.3"]  # taken for a proxy
        found = records(rows)
        assert [row["offset"] for row in found] == list(range(RECORDS))
        assert [row["sequence"] for row in found] == [*range(50), *[-1] * 10]
        assert len({row["hash1"] for row in found}) == 50


def test_a_range_of_one_fetch_after_the_other_and_messages_larger_than_a_fetch(
    legacy_broker: LegacyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from idemproxy.pipeline.audit import read as reading

    monkeypatch.setattr(reading, "FETCH_BYTES", 100)
    legacy_broker.create_topic("audit-small-fetches", 1)
    with RawClient(legacy_broker.address(0)) as client:
        for data in (wrapper(numbered(0, 500), 0), plain([(None, b"x" * 5000, 1)] * 3), plain(numbered(0, 50))):
            client.send_produce([("audit-small-fetches", 0, data)], version=2, acks=1)
            assert client.produce_answer(2)[0].error_code == 0
    plan = of_cluster([legacy_broker.address(0)], ["audit-small-fetches"], [])
    rows = [row for one in plan.ranges for batch in read_range(plan, one) for row in batch.to_pylist()]
    assert [row["offset"] for row in records(rows)] == list(range(553))


def test_a_broker_that_is_not_there_is_one_sentence() -> None:
    nobody = (HOST, free_ports(1)[0])
    with Cluster([nobody], ACCESS) as cluster, pytest.raises(BrokerProblem, match="no broker can be reached at "):
        cluster.partitions()
