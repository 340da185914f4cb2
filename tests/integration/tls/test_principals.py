"""A producer id belongs to whom it was given: who shows another certificate learns nothing of it and moves nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from testkit.real.brokers.secure_cluster import SecureCluster
from testkit.real.clients.raw_client import batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.tls.certificates import Authority, Files
from testkit.real.tls.raw_client import TlsRawClient
from testkit.real.tls.settings import client_tls, listener_tls

NOT_YOURS = 49
TOPIC = "orders"


@dataclass(frozen=True)
class World:
    authority: Authority
    proxy: ConfiguredProxy

    def client(self, own: Files) -> TlsRawClient:
        return TlsRawClient(self.proxy.address, self.authority, own)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("principals")
    authority = Authority(directory / "certificates")
    tls = client_tls(authority, authority.issue("upstream"))
    with SecureCluster(directory / "kafka", authority, authority.issue("broker"), client_auth="required") as cluster:
        cluster.create_topic(TOPIC, 3)
        upstream = {"bootstrap": [f"localhost:{cluster.tls_address(0)[1]}"], "tls": tls}
        listener = {"tls": listener_tls(authority.issue("listener"), authority)}
        with ConfiguredProxy(directory / "proxy", {"upstream": upstream}, listener=listener) as proxy:
            yield World(authority, proxy)


def test_another_certificate_cannot_use_a_producer_id_and_its_owner_is_unaffected(world: World) -> None:
    orders = world.authority.issue("orders", common_name="orders")
    thief = world.authority.issue("thief", common_name="thief")
    with world.client(orders) as owner, world.client(thief) as stranger:
        producer_id = owner.new_producer_id()
        first = batch([b"first"], producer_id=producer_id)
        answer = owner.produce_one(TOPIC, 0, first)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        for partition, records in (
            (0, first),  # a retry would be answered with its offset
            (0, batch([b"second"], producer_id=producer_id, sequence=1)),
            (0, batch([b"a new epoch"], producer_id=producer_id, epoch=1)),
            (0, batch([b"a gap"], producer_id=producer_id, sequence=7)),
            (1, batch([b"elsewhere"], producer_id=producer_id)),
        ):
            refused = stranger.produce_one(TOPIC, partition, records)
            assert (refused.error_code, refused.base_offset) == (NOT_YOURS, -1)
        world.proxy.wait_for_log("foreign_producer_id: .* principal 'CN=thief", 10)
        answer = owner.produce_one(TOPIC, 0, batch([b"second"], producer_id=producer_id, sequence=1))
        assert (answer.error_code, answer.base_offset) == (0, 1)
        answer = owner.produce_one(TOPIC, 1, batch([b"elsewhere, by its owner"], producer_id=producer_id))
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert owner.values(TOPIC, 0) == [b"first", b"second"]
        assert owner.values(TOPIC, 1) == [b"elsewhere, by its owner"]
        mine = stranger.new_producer_id()
        assert stranger.produce_one(TOPIC, 2, batch([b"mine"], producer_id=mine)).error_code == 0


def test_a_renewed_certificate_with_the_same_subject_is_the_same_owner(world: World) -> None:
    before = world.authority.issue("billing", common_name="billing", unit="payments")
    with world.client(before) as client:
        producer_id = client.new_producer_id()
        assert client.produce_one(TOPIC, 2, batch([b"one"], producer_id=producer_id)).error_code == 0
    renewed = world.authority.issue("billing-renewed", common_name="billing", unit="payments")
    with world.client(renewed) as client:
        again = batch([b"two"], producer_id=producer_id, sequence=1)
        assert client.produce_one(TOPIC, 2, again).error_code == 0
