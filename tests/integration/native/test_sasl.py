"""Real clients show a real broker of Kafka >= 0.11 who they are, through the proxy: tokens pass as bytes, too."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame
from idemproxy.demo.ports import neighbouring_ports
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.sasl_cluster import SaslCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.tls.certificates import Authority
from testkit.real.tls.settings import client_tls, listener_tls

VERSION = "1.1.1"
USERS = {"idemproxy": "our secret", "alice": "alice's secret", "bob": "bob's secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
RIGHTS = ("Read", "Write", "Describe")
RECORDS = 200
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class World:
    """A broker that asks who is there, and a proxy in front of it: a listener with TLS and names, and one without."""

    authority: Authority
    proxy: ConfiguredProxy
    plain_port: int
    open_port: int
    """Of a listener where clients act as the proxy's principal."""

    @property
    def plain(self) -> tuple[str, int]:
        return "127.0.0.1", self.plain_port + 1

    def librdkafka(self, name: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
        return {
            "bootstrap.servers": "{}:{}".format(*self.proxy.address),
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority.ca_file),
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password or USERS[name],
        }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("native-sasl")
    authority = Authority(directory / "ours")
    own = authority.issue("broker")
    kafka = SaslCluster(
        directory / "kafka", USERS, version=VERSION, auto_create_topics=False, authority=authority, own=own
    )
    with kafka as cluster:
        for topic in ("python", "confluent", "hers", "raw"):
            cluster.create_topic(topic, 4)
            cluster.allow(f"Topic:{topic}", {"alice": RIGHTS} | ({"idemproxy": RIGHTS} if topic == "raw" else {}))
        cluster.allow("Cluster:kafka-cluster", {"alice": ["IdempotentWrite"], "idemproxy": ["DescribeConfigs"]})
        host, port = cluster.sasl_tls_address(0)
        sasl = {"mechanism": "SCRAM-SHA-256", "username": "idemproxy", "password": USERS["idemproxy"]}
        upstream: dict[str, Any] = {"bootstrap": [f"{host}:{port}"], "tls": client_tls(authority), "sasl": sasl}
        upstream["allow_unauthenticated_clients"] = True
        listener = {"tls": listener_tls(authority.issue("listener")), "authentication": "pass_through"}
        log = {"lines_per_minute_max": 0}
        proxy = ConfiguredProxy(directory / "proxy", {"upstream": upstream, "log": log}, listener=listener)
        plain_port, open_port = neighbouring_ports(2), neighbouring_ports(2)
        proxy.configuration["listeners"][0]["broker_ids"] = "0"
        plain = {"name": "plain", "bind": f"127.0.0.1:{plain_port}", "broker_ids": "0"}
        proxy.configuration["listeners"].append(plain | {"authentication": "pass_through"})
        anybody = {"name": "anybody", "bind": f"127.0.0.1:{open_port}", "broker_ids": "0"}
        proxy.configuration["listeners"].append(anybody)
        with proxy:
            yield World(authority, proxy, plain_port, open_port)


def test_the_brokers_give_idempotence(world: World) -> None:
    world.proxy.wait_for_log("upstream.idempotence: native")


@pytest.mark.parametrize(("mechanism", "partition"), list(zip(MECHANISMS, range(3), strict=True)))
def test_kafka_python_authenticates_produces_and_reads(world: World, mechanism: str, partition: int) -> None:
    settings = {
        "bootstrap_servers": "{}:{}".format(*world.proxy.address),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(world.authority.ca_file),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": USERS["alice"],
    }
    producer = KafkaProducer(enable_idempotence=True, **settings)
    sent = [producer.send("python", b"%d" % number, partition=partition) for number in range(RECORDS)]
    assert [one.get(WAIT_SECONDS).offset for one in sent] == list(range(RECORDS))
    producer.close()
    reader = KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings)
    reader.assign([TopicPartition("python", partition)])
    assert [next(reader).value for _ in range(RECORDS)] == [b"%d" % number for number in range(RECORDS)]
    reader.close()


@pytest.mark.parametrize(("mechanism", "partition"), list(zip(MECHANISMS, range(3), strict=True)))
def test_librdkafka_authenticates_and_produces(world: World, mechanism: str, partition: int) -> None:
    offsets: list[int] = []
    producer = Producer({**world.librdkafka("alice", mechanism), "enable.idempotence": True})
    for number in range(RECORDS):
        value = b"%d" % number
        producer.produce("confluent", value, partition=partition, on_delivery=lambda _e, m: offsets.append(m.offset()))
    assert producer.flush(WAIT_SECONDS) == 0
    assert offsets == list(range(RECORDS))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_by_the_broker_and_logged_without_it(world: World, mechanism: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer({**world.librdkafka("alice", mechanism, "not hers"), "error_cb": errors.append})
    wait_until(lambda: producer.poll(0.1) is not None and bool(errors), "librdkafka complains", WAIT_SECONDS)
    assert errors[0].code() in (KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN)
    world.proxy.wait_for_log("authentication from 127.0.0.1 failed")
    assert "not hers" not in world.proxy.log


def test_what_the_broker_allows_one_user_it_does_not_allow_the_other(world: World) -> None:
    told: list[int] = []
    producer = Producer(world.librdkafka("bob", "SCRAM-SHA-256"))
    producer.produce("hers", b"x", on_delivery=lambda error, _m: told.append(0 if error is None else error.code()))
    producer.flush(WAIT_SECONDS)
    assert told
    assert told != [0]


def test_where_clients_need_not_authenticate_the_proxy_does_it_for_them(world: World) -> None:
    with RawClient(("127.0.0.1", world.open_port + 1)) as client:
        told = {one.api_key for one in client.ask(ApiKey.API_VERSIONS, 0).api_keys}
        assert ApiKey.SASL_HANDSHAKE not in told
        (answer,) = client.produce([("raw", 1, batch([b"as the proxy"]))], version=3)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        (answer,) = client.produce([("hers", 1, batch([b"as the proxy"]))], version=3)
        assert answer.error_code in (3, 29)
        assert handshake(client, 1) == 35


# ---------------------------------------------------------------------- byte by byte
def plain_token(name: str, password: str) -> bytes:
    return f"\0{name}\0{password}".encode()


def handshake(client: RawClient, version: int, mechanism: str = "PLAIN") -> int:
    code: int = client.ask(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism).error_code
    return code


def test_bare_tokens_pass_and_requests_follow_them(world: World) -> None:
    with RawClient(world.plain) as client:
        assert handshake(client, 0) == 0
        client.send_bytes(frame(plain_token("alice", USERS["alice"])))
        assert client._receive(4) == bytes(4)
        producer_id = client.new_producer_id()
        (answer,) = client.produce([("raw", 0, batch([b"one"], producer_id=producer_id))], version=3)
        assert (answer.error_code, answer.base_offset) == (0, 0)


def test_a_wrong_bare_token_ends_the_connection_and_is_logged(world: World) -> None:
    before = world.proxy.log.count("authentication from 127.0.0.1 failed")
    with RawClient(world.plain) as client:
        assert handshake(client, 0) == 0
        client.send_bytes(frame(plain_token("alice", "guessed")))
        assert client.is_closed()
    wait_until(lambda: world.proxy.log.count("authentication from 127.0.0.1 failed") > before, "the failure is logged")


def test_tokens_in_requests_pass_and_requests_follow_them(world: World) -> None:
    with RawClient(world.plain) as client:
        assert handshake(client, 1) == 0
        token = plain_token("alice", USERS["alice"])
        assert client.ask(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=token).error_code == 0
        client.new_producer_id()


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH])
def test_nothing_else_gets_to_the_broker_before_a_client_has_authenticated(world: World, key: int) -> None:
    with RawClient(world.plain) as client:
        client.ask(ApiKey.API_VERSIONS, 0)
        client.send(key, 2, bytes(30))
        assert client.is_closed()
    world.proxy.wait_for_log(f"API {int(key)} before authentication")


def test_a_frame_that_is_too_large_for_a_token_ends_the_connection(world: World) -> None:
    with RawClient(world.plain) as client:
        client.send_bytes(struct.pack(">ihhih", 1 << 20, ApiKey.SASL_AUTHENTICATE, 0, 1, -1))
        assert client.is_closed()


def test_a_mechanism_that_the_broker_does_not_have_is_its_refusal(world: World) -> None:
    with RawClient(world.plain) as client:
        answer = client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="GSSAPI")
        assert answer.error_code == 33
        assert set(answer.mechanisms) == set(MECHANISMS)


def test_the_ranges_have_what_a_login_needs(world: World) -> None:
    with RawClient(world.plain) as client:
        told = {one.api_key for one in client.ask(ApiKey.API_VERSIONS, 0).api_keys}
        assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.INIT_PRODUCER_ID} <= told
        body = messages.encode_request(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        client.send_together(*[(ApiKey.SASL_HANDSHAKE, 1, body)] * 5)
        with pytest.raises(ConnectionError):  # some of those before it may be answered
            all(client.answer() for _ in range(5))
    world.proxy.wait_for_log("SaslHandshake again and again")
