"""Real clients of releases that Kafka 4 shut out produce and consume at a real 4.3.1 through the proxy: with each of
their codecs, in groups and alone. The long run ``runs.old_clients`` has many more of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.old_configurations import (
    JAVA_0_9,
    JAVA_0_10_2,
    KAFKA_PYTHON_0_10,
    LUA,
    WITHOUT_COMPILER,
    OldConfiguration,
)
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.scenes.old_client_trial import PARTITIONS, Trial

pytestmark = pytest.mark.long

RECORDS = 100
FIRST_WITH_IDS = "0.11.0.3"
World = tuple[LegacyCluster, ProxyProcess]


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Kafka 4, and a proxy in front of it."""
    directory = tmp_path_factory.mktemp("newest")
    with (
        KraftCluster(directory / "kafka", auto_create_topics=False) as cluster,
        ProxyProcess(directory / "proxy", cluster.address(0)) as proxy,
    ):
        yield cluster, proxy


@pytest.fixture(scope="module")
def first_with_ids(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The first Kafka that gives producer ids, where all is raised that Kafka 4 would not serve."""
    directory = tmp_path_factory.mktemp("first")
    with LegacyCluster(directory / "kafka", version=FIRST_WITH_IDS, auto_create_topics=False) as cluster:
        upstream = {"bootstrap": ["{}:{}".format(*cluster.address(0))]}
        settings = {"upstream": upstream, "old_clients": {"translate": "always"}}
        with ConfiguredProxy(directory / "proxy", settings, listener={}) as proxy:
            yield cluster, proxy


@pytest.mark.parametrize("configuration", WITHOUT_COMPILER, ids=lambda one: one.name)
def test_an_old_client_produces_and_reads_in_front_of_kafka_4(
    newest: World, tmp_path: Path, configuration: OldConfiguration
) -> None:
    assert trial_of(newest, tmp_path, configuration).complaints == []


@pytest.mark.parametrize("configuration", [JAVA_0_9, JAVA_0_10_2, KAFKA_PYTHON_0_10, LUA], ids=lambda one: one.name)
def test_an_old_client_is_raised_in_front_of_the_first_broker_with_producer_ids(
    first_with_ids: World, tmp_path: Path, configuration: OldConfiguration
) -> None:
    _, proxy = first_with_ids
    assert trial_of(first_with_ids, tmp_path, configuration, newer_codec="gzip").complaints == []
    assert "the proxy rewrites it" in proxy.log


def trial_of(world: World, directory: Path, configuration: OldConfiguration, newer_codec: str = "zstd") -> Trial:
    cluster, proxy = world
    trial = Trial(
        configuration,
        bootstrap="{}:{}".format(*proxy.address),
        direct=cluster.bootstrap,
        topic=fresh_topic(cluster, PARTITIONS),
        directory=directory,
        records=RECORDS,
        newer_codec=newer_codec,
    )
    with ChildProcesses() as children:
        trial.run(children)
    return trial
