"""``idemproxy hide`` in front of brokers that store format v2, where the proxy gives idempotence: a batch is left out
as a whole or in part, with real consumers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.logged import iterate_logged
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import consume, fresh_topic
from testkit.real.brokers.kraft_cluster import cluster_class
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.scenes.hidden_ranges import hide, read, records_of
from testkit.real.store.inspecting import Place
from testkit.real.store.two_proxies_redis import ExternalRedis


@dataclass(frozen=True, slots=True)
class Scene:
    cluster: LegacyCluster
    proxy: ProxyProcess
    url: str
    version: int
    """Of fetches: Kafka 4 has none below 4."""


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.1", marks=pytest.mark.long)])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("hidden")
    config = folder / "idemproxy.yaml"
    config.write_text("upstream: {idempotence: proxy}\n")
    kafka = cluster_class(request.param)(folder / "kafka", version=request.param, auto_create_topics=False)
    with kafka as cluster, ExternalRedis() as redis:
        url = "redis://{}:{}/0".format(*redis.address)
        options = ("--config", str(config), "--redis", url)
        with ProxyProcess(folder / "proxy", cluster.address(0), options=options) as proxy:
            yield Scene(cluster, proxy, url, 4 if request.param.startswith("4") else 3)


@pytest.mark.promise("hidden-ranges")
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_batch_that_is_stored_twice_is_left_out_and_others_in_part(scene: Scene, codec: Codec) -> None:
    log: Place = (fresh_topic(scene.cluster, 1), 0)
    with RawClient(scene.proxy.address) as client, RawClient(scene.cluster.address(0)) as direct:
        producer = client.new_producer_id()
        for sequence, values in ((0, [b"a0", b"a1", b"a2"]), (3, [b"b0", b"b1", b"b2", b"b3"])):
            records = batch(values, producer_id=producer, sequence=sequence, codec=codec)
            assert client.produce_one(*log, records).error_code == 0
        first = next(iter(iterate_logged(direct.fetch(*log, 0, 4))))
        again = bytes(8) + direct.fetch(*log, 0, 4)[8 : first.size_bytes]
        assert direct.produce_one(*log, again).base_offset == 7
        assert client.produce_one(*log, batch([b"c0"], producer_id=producer, sequence=7)).error_code == 0
    hide(scene.url, log, 7, 9)
    hide(scene.url, log, 4, 5)
    wanted = [b"a0", b"a1", b"a2", b"b0", b"b3", b"c0"]
    with RawClient(scene.proxy.address) as client:
        assert read(client, log, 6, scene.version) == wanted
        assert read(client, log, 6, 4) == wanted
        assert [at for at, _ in records_of(client.fetch(*log, 3, 4)) if at >= 3][:2] == [3, 6]
    assert consume("{}:{}".format(*scene.proxy.address), log[0], f"of {log[0]}", 6) == wanted
    with RawClient(scene.cluster.address(0)) as direct:
        assert len(records_of(direct.fetch(*log, 0, 4))) == 11


@pytest.mark.promise("hidden-ranges")
def test_a_consumer_before_a_hidden_log_end_reads_what_is_appended_next(scene: Scene) -> None:
    log: Place = (fresh_topic(scene.cluster, 1), 0)
    with RawClient(scene.proxy.address) as client:
        for value in (b"a0", b"a0", b"a0"):
            assert client.produce_one(*log, batch([value])).error_code == 0
    hide(scene.url, log, 1, 2)
    with RawClient(scene.proxy.address) as client:
        assert read(client, log, 1) == [b"a0"]
        assert records_of(client.fetch(*log, 1, 4)) == []
        assert client.produce_one(*log, batch([b"b0"])).error_code == 0
        assert read(client, log, 2) == [b"a0", b"b0"]
