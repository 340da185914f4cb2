"""``idemproxy rebuild`` on real brokers that store format v2, where the proxy's batches name no producer: those of
producers that Redis knows are recognised, the others are reported, and nothing is written of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.state.inspection import EntryPlace, parse_key
from testkit.real.brokers.kraft_cluster import cluster_class
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.scenes.bulk_rebuild import PARTITIONS, PRODUCERS, RECORDS, Scene

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.1", marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    directory = tmp_path_factory.mktemp("kafka")
    with cluster_class(request.param)(directory, version=request.param, auto_create_topics=False) as running:
        yield running


@pytest.fixture
def scene(cluster: LegacyCluster, tmp_path: Path) -> Iterator[Scene]:
    config = tmp_path / "idemproxy.yaml"
    config.write_text("upstream: {idempotence: proxy}\n")
    with ProxyProcess(tmp_path, cluster.address(0), options=("--config", str(config))) as proxy:
        yield Scene(cluster, proxy)


def entries(scene: Scene) -> dict[bytes, bytes]:
    """What Redis has of the producers of this topic, once nothing is under way."""
    return {key: value for key, value in scene.proxy.entries().items() if scene.topic.encode() in key}


def restore(scene: Scene, values: dict[bytes, bytes]) -> None:
    for key, value in values.items():
        scene.proxy.redis("SET", key, value)


def assert_nothing_is_twice(scene: Scene, batches: int) -> None:
    expected = [value for p in range(PRODUCERS) for number in range(batches) for value in scene.values(p, number)]
    assert sorted(scene.stored()) == sorted(expected)


def test_what_redis_has_lost_since_a_backup_is_recognised_in_the_log(scene: Scene) -> None:
    for number in range(3):
        scene.send_all(number)
    backup = entries(scene)
    for number in range(3, 9):
        scene.send_all(number)
    scene.proxy.entries()
    assert scene.rebuild("--dry-run")["differences"] == {"same": PRODUCERS}
    assert scene.proxy.redis("FLUSHALL") == b"OK"
    restore(scene, backup)
    found = scene.rebuild("--dry-run", status=1)
    assert (found["differences"], found["unrecognised_batches"]) == ({"unverified": PRODUCERS}, {})
    assert scene.rebuild()["written"] == {"whole": PRODUCERS}
    assert scene.rebuild("--dry-run")["differences"] == {"same": PRODUCERS}
    searches = scene.searches()
    with RawClient(scene.proxy.address) as client:
        for producer in range(PRODUCERS):
            again = scene.send(client, producer, 8)  # its answer was lost, as far as this client knows
            assert (again.error_code, again.base_offset) == (0, scene.told[producer][8])
    scene.send_all(9)
    assert scene.searches() == searches  # nobody waited for a rebuild
    assert_nothing_is_twice(scene, 10)


def test_batches_of_producers_that_redis_does_not_know_are_reported_and_never_written(scene: Scene) -> None:
    for number in range(2):
        scene.send_all(number)
    scene.proxy.entries()
    assert scene.proxy.redis("FLUSHALL") == b"OK"
    for options in ((), ("--dry-run",)):
        found = scene.rebuild(*options, status=1 if options else 0)
        per_partition = {f"{scene.topic}-{number}": 2 * PRODUCERS // PARTITIONS for number in range(PARTITIONS)}
        assert (found["differences"], found["written"]) == ({}, {})
        assert found["unrecognised_batches"] == per_partition
    assert entries(scene) == {}
    scene.send_all(2)
    assert_nothing_is_twice(scene, 3)


def test_an_entry_before_unrecognised_batches_stays_unverified(scene: Scene) -> None:
    scene.send_all(0)
    backup = entries(scene)
    scene.send_all(1)
    scene.proxy.entries()
    assert scene.proxy.redis("FLUSHALL") == b"OK"
    last = scene.producer_ids[-PARTITIONS:]  # the last ones that have written to each partition
    places = {key: parse_key("default", key) for key in backup}
    kept = [key for key, one in places.items() if isinstance(one, EntryPlace) and one.producer_id not in last]
    restore(scene, {key: backup[key] for key in kept})
    found = scene.rebuild()
    assert found["written"] == {"bound": PRODUCERS - PARTITIONS}
    assert found["unrecognised_batches"] == {f"{scene.topic}-{number}": 2 for number in range(PARTITIONS)}
    scene.send_all(2)
    assert_nothing_is_twice(scene, 3)
    assert len(scene.stored()) == PRODUCERS * 3 * RECORDS
