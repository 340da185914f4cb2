"""A name in Redis stands for one cluster: a proxy before other brokers does not start, or ends, and says why."""

from collections.abc import Iterator

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.store import cluster_key
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

pytestmark = pytest.mark.promise("other-cluster")

KEY = cluster_key("default")
NOTICED_SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def proxy(legacy_broker: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """One proxy; a test that ends it starts it again."""
    with ProxyProcess(tmp_path_factory.mktemp("name"), legacy_broker.address(0)) as running:
        yield running


@pytest.fixture(scope="module")
def cluster_id(legacy_broker: LegacyCluster) -> bytes:
    """As the broker itself tells it."""
    with RawClient(legacy_broker.address(0)) as client:
        told: str = client.ask(ApiKey.METADATA, 2, topics=[]).cluster_id
        return told.encode()


def test_the_cluster_id_of_the_brokers_is_kept_with_the_state(proxy: ProxyProcess, cluster_id: bytes) -> None:
    assert proxy.redis("GET", KEY) == cluster_id


def test_it_is_written_again_when_the_state_was_emptied(proxy: ProxyProcess, cluster_id: bytes) -> None:
    proxy.redis("FLUSHALL")
    wait_until(lambda: proxy.redis("GET", KEY) == cluster_id, "the id is kept again", NOTICED_SECONDS_MAX)


def test_a_proxy_before_other_brokers_does_not_start(proxy: ProxyProcess, cluster_id: bytes) -> None:
    proxy.kill()
    proxy.redis("SET", KEY, b"another one")
    proxy.launch()
    assert proxy.wait() == 2
    assert "another one" in proxy.log
    assert cluster_id.decode() in proxy.log
    assert "setting: cluster" in proxy.log
    assert "listening on" not in proxy.log


def test_the_same_brokers_are_served_when_the_name_is_theirs_again(proxy: ProxyProcess, cluster_id: bytes) -> None:
    proxy.start_redis()
    proxy.redis("SET", KEY, cluster_id)
    proxy.start()
    with RawClient(proxy.address) as client:
        records = batch([b"1"], producer_id=client.new_producer_id(), sequence=0)
        assert client.produce_one("small", 7, records).error_code == 0
    assert proxy.redis("GET", KEY) == cluster_id


def test_a_running_proxy_whose_redis_becomes_another_clusters_ends(proxy: ProxyProcess) -> None:
    # In one step: a heartbeat in between would put the own one back.
    proxy.redis("EVAL", "redis.call('FLUSHALL') return redis.call('SET', KEYS[1], ARGV[1])", 1, KEY, b"another one")
    assert proxy.wait(NOTICED_SECONDS_MAX) == 2
    assert "another one" in proxy.log
