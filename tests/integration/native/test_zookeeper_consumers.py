"""Consumers of 0.8 and 0.9 that find brokers in ZooKeeper, in front of a real 4.3.1: with a ZooKeeper that holds what
the page says, and nothing else."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.zookeeper import ZooKeeper
from testkit.real.brokers.kafka_cluster import fresh_topic, librdkafka_settings, produce
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.java_clients import start_zookeeper_reader
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

pytestmark = pytest.mark.long

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "old-clients.md"
BROKERS, PARTITIONS, RECORDS = 3, 3, 300
READ_SECONDS_MAX = 60
NODE = re.compile(r"^\| `(/[^`]+)` \| `(\{[^`]+\})` \|$", re.MULTILINE)
_groups = itertools.count()


@dataclass
class World:
    cluster: LegacyCluster
    proxy: ProxyProcess
    zookeeper: str

    def write(self, zookeeper: ZooKeeper, path: str, data: bytes) -> None:
        for parent in [str(one) for one in reversed(Path(path).parents)][1:]:
            if not zookeeper.exists(parent):
                zookeeper.create(parent, b"")
        zookeeper.create(path, data)


def page_nodes() -> dict[str, dict[str, object]]:
    """Path -> content, as the page has them."""
    found = {path: json.loads(content) for path, content in NODE.findall(PAGE.read_text())}
    assert list(found) == ["/brokers/ids/1", "/brokers/topics/orders"]
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("zookeeper")
    with (
        LegacyCluster(directory / "zookeeper", brokers=0) as bare,
        KraftCluster(directory / "kafka", brokers=BROKERS, auto_create_topics=False) as cluster,
        ProxyProcess(directory / "proxy", cluster.address(0)) as proxy,
    ):
        world = World(cluster, proxy, "{}:{}".format(*bare.zookeeper_address))
        wait_until(lambda: _is_up(bare.zookeeper_address), "ZooKeeper answers")
        host, port = proxy.address
        content = page_nodes()["/brokers/ids/1"] | {"host": host, "port": port}
        with ZooKeeper(bare.zookeeper_address) as zookeeper:
            world.write(zookeeper, "/brokers/ids/1", json.dumps(content).encode())
        yield world


def _is_up(address: tuple[str, int]) -> bool:
    try:
        with ZooKeeper(address) as zookeeper:
            return zookeeper.exists("/zookeeper")
    except OSError:
        return False


@pytest.fixture
def children() -> Iterator[ChildProcesses]:
    with ChildProcesses() as running:
        yield running


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_a_consumer_that_finds_brokers_in_zookeeper_reads_all_and_resumes_where_it_was(
    world: World, children: ChildProcesses, tmp_path: Path, version: str, storage: str
) -> None:
    topic = fresh_topic(world.cluster, PARTITIONS)
    host, port = world.zookeeper.split(":")
    with ZooKeeper((host, int(port))) as zookeeper:
        content = page_nodes()["/brokers/topics/orders"]
        assert content["partitions"] == {str(number): [1] for number in range(PARTITIONS)}
        world.write(zookeeper, f"/brokers/topics/{topic}", json.dumps(content).encode())
    group = f"group-{next(_groups)}"
    read: list[tuple[int, int]] = []
    for start in range(2):
        produce(librdkafka_settings(world.cluster.bootstrap), topic, PARTITIONS, RECORDS)
        reader = start_zookeeper_reader(
            children,
            tmp_path,
            version=version,
            zookeeper=world.zookeeper,
            group=group,
            topic=topic,
            records=RECORDS,
            seconds_max=READ_SECONDS_MAX,
            name=f"reader-{start}",
            storage=storage,
        )
        assert reader.wait()["records"] == RECORDS
        read += [(one.partition, one.offset) for one in reader.consumed()]
    each = 2 * RECORDS // PARTITIONS
    assert sorted(read) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(each)]
