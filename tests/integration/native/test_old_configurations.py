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
from testkit.real.clients.old_configurations import WITHOUT_COMPILER, OldConfiguration
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.scenes.old_client_trial import PARTITIONS, Trial

RECORDS = 100


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LegacyCluster, ProxyProcess]]:
    """Kafka 4, and a proxy in front of it."""
    directory = tmp_path_factory.mktemp("newest")
    with (
        KraftCluster(directory / "kafka", auto_create_topics=False) as cluster,
        ProxyProcess(directory / "proxy", cluster.address(0)) as proxy,
    ):
        yield cluster, proxy


@pytest.mark.parametrize("configuration", WITHOUT_COMPILER, ids=lambda one: one.name)
def test_an_old_client_produces_and_reads_in_front_of_kafka_4(
    newest: tuple[LegacyCluster, ProxyProcess], tmp_path: Path, configuration: OldConfiguration
) -> None:
    cluster, proxy = newest
    trial = Trial(
        configuration,
        bootstrap="{}:{}".format(*proxy.address),
        direct=cluster.bootstrap,
        topic=fresh_topic(cluster, PARTITIONS),
        directory=tmp_path,
        records=RECORDS,
    )
    with ChildProcesses() as children:
        trial.run(children)
    assert trial.complaints == []
