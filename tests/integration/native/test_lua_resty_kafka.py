"""What lua-resty-kafka 0.23 sends, with which APISIX and Kong log to Kafka, in front of a real 4.3.1. Its releases
after 0.07 are in no registry, so their requests are made here; 0.07 itself is among ``old_configurations``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from struct import Struct

import pytest

from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_request_header
from idemproxy.codecs.message_set import encode_message
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kafka_cluster import fresh_topic, stored
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.proxy_process import ProxyProcess

pytestmark = pytest.mark.long

CLIENT_ID = "worker4711"
ACKS, TIMEOUT_MS = 1, 2_000
SOCKET_SECONDS = 3.0
_ACKS_AND_TIMEOUT = Struct(">hi")
World = tuple[LegacyCluster, ProxyProcess]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("lua")
    with (
        KraftCluster(directory / "kafka", auto_create_topics=False) as cluster,
        ProxyProcess(directory / "proxy", cluster.address(0)) as proxy,
    ):
        yield cluster, proxy


def message_set(values: list[bytes], magic: int) -> bytes:
    """Each message has offset 0, no codec, and an empty key where there is none."""
    now_ms = int(1000 * time.time())
    return b"".join(encode_message(b"", value, magic=magic, timestamp=now_ms) for value in values)


@pytest.mark.parametrize(("version", "magic"), [(1, 0), (2, 1)])
def test_what_release_0_23_sends_is_stored_once_and_in_order(world: World, version: int, magic: int) -> None:
    cluster, proxy = world
    topic = fresh_topic(cluster, 2)
    with RawClient(proxy.address, SOCKET_SECONDS, CLIENT_ID) as first:
        (found,) = first.ask(ApiKey.METADATA, 1, topics=[{"name": topic}]).topics
        assert {(one.partition_index, one.leader_id, one.error_code) for one in found.partitions} == {
            (0, 0, 0),
            (1, 0, 0),
        }
        ranges = {one.api_key: one for one in first.ask(ApiKey.API_VERSIONS, 2).api_keys}
    assert ranges[ApiKey.PRODUCE].min_version == 0
    host, port = proxy.address
    with RawClient((host, port + 1), SOCKET_SECONDS, CLIENT_ID) as producing:
        for number in range(4):
            parts = [
                (topic, partition, message_set([b"%d-%d" % (number, n) for n in range(3)], magic))
                for partition in (0, 1)
            ]
            answers = producing.produce(parts, version=version, acks=ACKS, timeout_ms=TIMEOUT_MS)
            assert [(one.partition, one.error_code, one.base_offset) for one in answers] == [
                (0, 0, 3 * number),
                (1, 0, 3 * number),
            ]
    for log in stored(cluster, topic, 2).values():
        assert [one.value for one in log] == [b"%d-%d" % (number, n) for number in range(4) for n in range(3)]
        assert {one.key for one in log} == {b""}, "not null"


def test_a_request_whose_header_has_no_client_id_is_refused_and_named_in_the_log(world: World) -> None:
    """With ``api_version = 0`` release 0.23 sends such a header, which no broker reads."""
    cluster, proxy = world
    topic = fresh_topic(cluster, 1)
    body = RawClient.produce_body([(topic, 0, message_set([b"v"], 0))], version=0, acks=ACKS, timeout_ms=TIMEOUT_MS)
    assert body.startswith(_ACKS_AND_TIMEOUT.pack(ACKS, TIMEOUT_MS))
    header = encode_request_header(ApiKey.PRODUCE, 0, 5, None)[:-2]
    host, port = proxy.address
    with RawClient((host, port + 1)) as broken:
        broken.send_bytes(frame(header, body))
        assert broken.is_closed()
    assert len([line for line in proxy.log.splitlines() if "refused from" in line and "topics at" in line]) == 1
    with RawClient(cluster.address(0)) as direct:
        assert direct.end_offset(topic, 0) == 0
