"""What the end-to-end tests share: a real 0.10.2.2 broker with a proxy in front of it, where nothing breaks."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.clients.kafka_python_sockets import refused_sockets_closed
from testkit.real.proxies.proxy_process import ProxyProcess


@dataclass(frozen=True, slots=True)
class QuietPair:
    """One broker and the proxy in front of it."""

    cluster: LegacyCluster
    proxy: ProxyProcess


@pytest.fixture(scope="session", autouse=True)
def kafka_python_leaves_no_sockets() -> Iterator[None]:
    """Whichever test runs when they are collected would fail."""
    with refused_sockets_closed():
        yield


@pytest.fixture(scope="session")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuietPair]:
    """They run until the end of the session; every test takes topics of its own."""
    directory = tmp_path_factory.mktemp("quiet")
    with (
        LegacyCluster(directory / "cluster", auto_create_topics=False, session_timeout_ms=8000) as cluster,
        ProxyProcess(directory / "proxy", cluster.address(0)) as proxy,
    ):
        yield QuietPair(cluster, proxy)


@pytest.fixture
def children() -> Iterator[ChildProcesses]:
    """Client programs; those that are left are killed after the test."""
    with ChildProcesses() as running:
        yield running
