"""A start that would let the brokers give idempotence is refused while another proxy gives it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports
from idemproxy.state.store import mode_key
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.store.redis_process import RedisProcess

NAME = "shop"
MODE = mode_key(NAME).decode()
ENDED_SECONDS_MAX = 60.0
OLD_FORMAT = {"inter.broker.protocol.version": "2.8", "log.message.format.version": "0.10.2"}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    (port,) = free_ports(1)
    directory = tmp_path / "redis"
    directory.mkdir()
    with RedisProcess(directory, port=port) as server:
        yield server


def proxy_of(directory: Path, cluster: LegacyCluster, redis: RedisProcess, idempotence: str) -> ConfiguredProxy:
    settings = {
        "upstream": {"bootstrap": [cluster.bootstrap.split(",")[0]], "idempotence": idempotence},
        "redis": {"url": f"redis://127.0.0.1:{redis.port}/0"},
        "cluster_name": NAME,
    }
    return ConfiguredProxy(directory, settings, listener={}, brokers=len(cluster.broker_ids))


def test_a_native_start_is_refused_while_another_proxy_gives_idempotence(redis: RedisProcess, tmp_path: Path) -> None:
    with LegacyCluster(tmp_path / "kafka", version="2.8.2", broker_settings=OLD_FORMAT) as cluster:
        topic = fresh_topic(cluster)
        with proxy_of(tmp_path / "proxy", cluster, redis, "auto") as proxy:
            native = proxy_of(tmp_path / "native", cluster, redis, "native")
            native.launch()
            try:
                assert native.wait(ENDED_SECONDS_MAX) == 2
                assert "proxies that give it are running: stop all of them first" in native.log
            finally:
                native.__exit__()
            assert redis.call("GET", MODE) == b"proxy"
            with RawClient(proxy.address) as client:
                records = batch([b"value"], producer_id=client.new_producer_id(), sequence=0)
                assert client.produce_one(topic, 0, records).error_code == 0
            assert proxy.stop() == 0
