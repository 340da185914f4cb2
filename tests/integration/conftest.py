"""What the integration tests share: one real 0.10.2.2 broker and one Spark for the whole session, one proxy before the
broker per module."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.clients.kafka_python_sockets import refused_sockets_closed
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.scenes.witness import Witness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 192
TOPICS: Mapping[str, Mapping[str, str | int]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": 20_000},
}
"""Made before any proxy starts, so that none has to learn of them: a look at the whole cluster is a second apart."""

Place = tuple[str, int]

_partitions = itertools.count()


def _partitions_of(topic: str) -> int:
    return PARTITIONS if topic == "plain" else 8


@pytest.fixture(scope="session", autouse=True)
def kafka_python_leaves_no_sockets() -> Iterator[None]:
    """Whichever test runs when they are collected would fail."""
    with refused_sockets_closed():
        yield


@pytest.fixture(scope="session")
def legacy_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    """A running broker with id 0. Tests never stop it; who pauses it resumes it within half a second."""
    directory = tmp_path_factory.mktemp("legacy-broker")
    with LegacyCluster(directory, auto_create_topics=False, session_timeout_ms=8000) as running:
        for name, config in TOPICS.items():
            running.create_topic(name, _partitions_of(name), config=config)
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark. On a busy machine it takes a minute to start: tests that ask for it need the time."""
    from testkit.real.spark.session import spark_session  # half a second, which most processes need not spend

    # Tasks that fail are repeated three times.
    with spark_session(tmp_path_factory.mktemp("spark"), master="local[2,4]") as running:
        yield running


@pytest.fixture(scope="module")
def shared_proxy(legacy_broker: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy with a private Redis in front of the broker. Tests do not stop it; who has to takes one of his own."""
    directory = tmp_path_factory.mktemp("proxy")
    config = directory / "idemproxy.yaml"
    config.write_text("log: {lines_per_minute_max: 0}\n")  # hundreds of refusals, and each one is looked for
    with ProxyProcess(directory, legacy_broker.address(0), options=("--config", str(config))) as running:
        yield running


@pytest.fixture(scope="module")
def witness(legacy_broker: LegacyCluster, shared_proxy: ProxyProcess) -> Iterator[Witness]:
    """A producer on the shared proxy that has been there all the time."""
    watched = {name: _partitions_of(name) for name in TOPICS}
    with (
        RawClient(legacy_broker.address(0)) as direct,
        Witness(shared_proxy, direct, ("small", 0), watched) as one,
    ):
        yield one


@pytest.fixture
def client(shared_proxy: ProxyProcess) -> Iterator[RawClient]:
    """A connection to the shared proxy."""
    with RawClient(shared_proxy.address) as connection:
        yield connection


@pytest.fixture
def direct(legacy_broker: LegacyCluster) -> Iterator[RawClient]:
    """A connection to the broker itself, past the proxy."""
    with RawClient(legacy_broker.address(0)) as connection:
        yield connection


def _unused_place() -> Place:
    number = next(_partitions)
    assert number < PARTITIONS, "more tests than partitions: raise PARTITIONS"
    return "plain", number


@pytest.fixture
def place() -> Place:
    """A topic and a partition of it that no other test uses; empty."""
    return _unused_place()


@pytest.fixture
def other_place() -> Place:
    """One more of these."""
    return _unused_place()
