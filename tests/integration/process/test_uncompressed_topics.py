"""Consumers of what the proxy stores compressed: ``check`` names topics that have nothing compressed today, and the log
names consumers whose fetches are too small for a stored batch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import iterate_shallow
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.store.inspecting import idemproxy

WARNING = r"^warning +topics, 3: not compressed at its end: (.*?)\. idemproxy stores every idempotent batch as one"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path_factory.mktemp("uncompressed"), auto_create_topics=False) as running:
        for topic in ("empty", "plain", "zipped"):
            running.create_topic(topic, 1)
        yield running


@pytest.fixture(scope="module")
def proxy(cluster: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with ProxyProcess(tmp_path_factory.mktemp("uncompressed-proxy"), cluster.address(0)) as running:
        yield running


def test_check_names_topics_whose_newest_message_is_not_compressed(
    cluster: LegacyCluster, proxy: ProxyProcess, tmp_path: Path
) -> None:
    def named() -> list[str]:
        path = tmp_path / "c.yaml"
        settings = {
            "upstream": {"bootstrap": [cluster.bootstrap]},
            "listeners": [{"bind": f"{HOST}:1"}],
            "data_directory": str(tmp_path / "data"),
        }
        path.write_text(yaml.safe_dump(settings))
        return re.findall(WARNING, idemproxy("check", path, "--connect").stdout, re.MULTILINE)

    with RawClient(proxy.address) as client:
        assert named() == []
        for topic, codec in (("plain", Codec.NONE), ("zipped", Codec.GZIP)):
            assert client.produce_one(topic, 0, batch([b"v"], codec=codec)).error_code == 0
        assert named() == ["plain"]
        producer_id = client.new_producer_id()
        assert client.produce_one("plain", 0, batch([b"v"], producer_id=producer_id)).error_code == 0
        assert named() == [], "the proxy has compressed it"


def test_a_consumer_with_fetches_that_are_too_small_is_named_once_and_stands_still(
    cluster: LegacyCluster, proxy: ProxyProcess
) -> None:
    with RawClient(proxy.address) as client:
        producer_id = client.new_producer_id()
        offset = client.produce_one("plain", 0, batch([b"v" * 5000], producer_id=producer_id)).base_offset
    for version, limit in ((4, 100), (2, 2 << 20)):
        with RawClient(proxy.address, client_id=f"reads-{version}-{limit}") as consumer:
            assert list(iterate_shallow(consumer.fetch("plain", 0, offset, version, limit)))
    with RawClient(proxy.address, client_id="old-consumer") as consumer:
        for _ in range(3):
            assert list(iterate_shallow(consumer.fetch("plain", 0, offset, 2, 100))) == []
    line = proxy.wait_for_log("'old-consumer' fetches at most 100 bytes of a partition with Fetch 2")
    assert "the consumer stands still" in line
    assert proxy.log.count(" fetches at most ") == 1
