"""What the tests of ``inspect`` and ``forget`` share: a Redis, and a proxy that fills it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.store.two_proxies_redis import ExternalRedis


@pytest.fixture(scope="module")
def redis() -> Iterator[ExternalRedis]:
    with ExternalRedis() as running:
        yield running


@pytest.fixture(scope="module")
def url(redis: ExternalRedis) -> str:
    return f"redis://{redis.address[0]}:{redis.address[1]}"


@pytest.fixture(scope="module")
def proxy(legacy_broker: LegacyCluster, url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with ProxyProcess(
        tmp_path_factory.mktemp("inspected"), legacy_broker.address(0), options=("--redis", url)
    ) as running:
        yield running


@pytest.fixture
def producer(proxy: ProxyProcess) -> Iterator[RawClient]:
    with RawClient(proxy.address) as client:
        yield client
