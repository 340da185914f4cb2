"""The proxy's certificate is its name at a real old broker, and what the ACLs allow that name is what gets through."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from testkit.real.brokers.sasl_cluster import AUTHORIZED, allow
from testkit.real.brokers.secure_cluster import SecureCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.tls.certificates import Authority
from testkit.real.tls.settings import client_tls

RIGHTS = ("Read", "Write", "Describe")
OURS = "CN=idemproxy,OU=proxies,O=Example"
DENIED = 29
RECORDS = 100


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecureCluster, ConfiguredProxy]]:
    directory = tmp_path_factory.mktemp("rights")
    authority = Authority(directory / "ours")
    own = authority.issue("upstream", "idemproxy", common_name="idemproxy", unit="proxies")
    with SecureCluster(
        directory / "kafka",
        authority,
        authority.issue("broker"),
        client_auth="required",
        broker_settings=AUTHORIZED,
    ) as cluster:
        for topic in ("open", "closed"):
            cluster.create_topic(topic, 1)
        allow(cluster, "Topic:open", {OURS: RIGHTS})
        allow(cluster, "Topic:closed", {OURS: ["Describe"], "CN=somebody-else": RIGHTS})
        bootstrap = [f"localhost:{cluster.tls_address(0)[1]}"]
        upstream = {"bootstrap": bootstrap, "tls": client_tls(authority, own), "allow_unauthenticated_clients": True}
        with ConfiguredProxy(directory / "proxy", {"upstream": upstream}, listener={}) as proxy:
            yield cluster, proxy


def test_an_idempotent_producer_writes_where_the_certificates_name_may(
    world: tuple[SecureCluster, ConfiguredProxy],
) -> None:
    _, proxy = world
    assert f"upstream.tls: the certificate of {OURS} is in use" in proxy.log, "the name is told as the broker has it"
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": "{}:{}".format(*proxy.address), "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce("open", b"%d" % number, on_delivery=lambda _e, message: offsets.append(message.offset()))
    assert producer.flush(30) == 0
    assert offsets == list(range(RECORDS))


def test_where_it_may_not_nothing_is_stored_until_it_may(world: tuple[SecureCluster, ConfiguredProxy]) -> None:
    cluster, proxy = world
    with RawClient(proxy.address) as client, RawClient(cluster.address(0)) as direct:
        records = batch([b"later"], producer_id=client.new_producer_id(), sequence=0)
        assert client.produce_one("closed", 0, records).error_code == DENIED
        assert direct.end_offset("closed", 0) == 0
        allow(cluster, "Topic:closed", {OURS: RIGHTS})
        answer = client.produce_one("closed", 0, records)
        assert (answer.error_code, answer.base_offset, direct.end_offset("closed", 0)) == (0, 0, 1)
