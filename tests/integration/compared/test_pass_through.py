"""Clients that show the broker who they are, want no answer and are gone at once (docs/explanation/compared.md)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer

from idemproxy.proxy.limits import REQUESTS_PER_TURN_MAX
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.sasl_cluster import SaslCluster
from testkit.real.clients.raw_client import HIGH_WATERMARK, RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until

USERS = {"idemproxy": "our secret", "alice": "alice's secret", "bob": "bob's secret"}
RIGHTS = ("Read", "Write", "Describe")
TOPIC = "alices"
STORED_SECONDS_MAX = 30
SETTLED_SECONDS = 1.0


@dataclass(frozen=True)
class World:
    """A broker that asks who is there, and a proxy that lets clients answer themselves."""

    cluster: SaslCluster
    proxy: ConfiguredProxy


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("hasty-pass-through")
    with SaslCluster(directory / "kafka", USERS, mechanisms=("PLAIN",), auto_create_topics=False) as cluster:
        cluster.create_topic(TOPIC, 4)
        cluster.allow(f"Topic:{TOPIC}", {"idemproxy": RIGHTS, "alice": RIGHTS, "bob": ["Describe", "Read"]})
        host, port = cluster.sasl_address(0)
        sasl = {"mechanism": "PLAIN", "username": "idemproxy", "password": USERS["idemproxy"]}
        upstream = {"bootstrap": [f"{host}:{port}"], "sasl": sasl}
        with ConfiguredProxy(
            directory / "proxy", {"upstream": upstream}, listener={"authentication": "pass_through"}
        ) as proxy:
            yield World(cluster, proxy)


def authenticated(world: World, name: str) -> RawClient:
    """Return a connection on which the broker has accepted this user."""
    client = RawClient(world.proxy.address)
    assert client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
    token = f"\0{name}\0{USERS[name]}".encode()
    assert client.ask(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=token).error_code == 0
    return client


@pytest.mark.promise("compared-5")
@pytest.mark.parametrize(("partition", "count"), [(0, 1), (1, 1), (2, 100)])
def test_who_wants_no_answer_may_flush_and_go(world: World, partition: int, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": "{}:{}".format(*world.proxy.address),
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": USERS["alice"],
            "acks": 0,
            "linger.ms": 0,
            "batch.num.messages": 1,
        }
    )
    for number in range(count):
        producer.produce(TOPIC, str(number).encode(), partition=partition)
    assert producer.flush(STORED_SECONDS_MAX) == 0
    producer.close()
    with RawClient(world.cluster.address(0)) as direct:
        wait_until(
            lambda: direct.end_offset(TOPIC, partition, HIGH_WATERMARK) == count, "all are stored", STORED_SECONDS_MAX
        )


def test_an_unauthorized_write_without_acks_changes_nothing_and_ends_the_connection(world: World) -> None:
    with authenticated(world, "alice") as alice:
        producer_id = alice.new_producer_id()
    named, plain = batch([b"named"], producer_id=producer_id), batch([b"plain"])
    for parts in ([(TOPIC, 3, plain)], [(TOPIC, 3, named)], [(TOPIC, 3, plain), (TOPIC, 0, named)]):
        with authenticated(world, "bob") as bob:
            bob.send_produce(parts, acks=0)
            assert bob.is_closed()
    with RawClient(world.cluster.address(0)) as direct, authenticated(world, "alice") as alice:
        assert direct.end_offset(TOPIC, 3) == 0
        assert alice.produce_one(TOPIC, 3, named).base_offset == 0, "it is due, and was not before"


@pytest.mark.parametrize("name", ["nobody", "bob"])
def test_writes_of_departed_unauthenticated_or_unauthorized_clients_are_not_stored(world: World, name: str) -> None:
    with RawClient(world.cluster.address(0)) as direct:
        before = direct.end_offset(TOPIC, 0)
        with RawClient(world.proxy.address) if name == "nobody" else authenticated(world, name) as client:
            kept: list[bytes] = []
            send, client.send_bytes = client.send_bytes, kept.append  # type: ignore[assignment, method-assign]
            for _ in range(2 * REQUESTS_PER_TURN_MAX):
                client.send(ApiKey.API_VERSIONS, 0, b"")
            for number in range(2 * REQUESTS_PER_TURN_MAX):
                client.send_produce([(TOPIC, 0, batch([b"plain"], producer_id=-1 if number % 2 else 77))], acks=0)
            send(b"".join(kept))
        time.sleep(SETTLED_SECONDS)
        assert direct.end_offset(TOPIC, 0) == before
    assert "internal error" not in world.proxy.log
    assert "Traceback" not in world.proxy.log
