"""Real clients that show a real old broker themselves who they are, through the proxy, and what its ACLs let them do."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError
from kafka.errors import TopicAuthorizationFailedError
from kafka.structs import TopicPartition

from testkit.certificates import Authority
from testkit.sasl_cluster import SaslCluster
from testkit.tls_proxy import ConfiguredProxy, client_tls, listener_tls

RECORDS = 300
WAIT_SECONDS = 30.0
RIGHTS = ("Read", "Write", "Describe")
USERS = {"idemproxy": "our secret", "alice": "alice's secret", "bob": "bob's secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class World:
    """A broker that asks who is there, and a proxy that lets clients answer themselves."""

    authority: Authority
    cluster: SaslCluster
    proxy: ConfiguredProxy

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.proxy.address)

    def kafka_python(self, name: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
        """What kafka-python is told."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.authority.ca_file),
            "sasl_mechanism": mechanism,
            "sasl_plain_username": name,
            "sasl_plain_password": password or USERS[name],
        }

    def librdkafka(self, name: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
        """What librdkafka is told."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority.ca_file),
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password or USERS[name],
        }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("guests")
    authority = Authority(directory / "ours")
    options = {"authority": authority, "own": authority.issue("broker")}
    with SaslCluster(directory / "kafka", USERS, auto_create_topics=False, **options) as cluster:
        for topic in ("python", "confluent", "alices", "hidden", "late"):
            cluster.create_topic(topic, 4)
        cluster.allow("Topic:python", {"idemproxy": RIGHTS, "alice": RIGHTS})
        cluster.allow("Topic:confluent", {"idemproxy": RIGHTS, "alice": RIGHTS})
        cluster.allow("Topic:alices", {"idemproxy": RIGHTS, "alice": RIGHTS, "bob": ["Describe", "Read"]})
        cluster.allow("Topic:hidden", {"idemproxy": RIGHTS, "alice": RIGHTS})
        cluster.allow("Topic:late", {"idemproxy": RIGHTS, "alice": ["Describe", "Read"]})
        cluster.allow("Group:*", {"alice": ["Read"]})
        host, port = cluster.sasl_tls_address(0)
        sasl = {"mechanism": "SCRAM-SHA-256", "username": "idemproxy", "password": USERS["idemproxy"]}
        upstream = {"bootstrap": [f"{host}:{port}"], "tls": client_tls(authority), "sasl": sasl}
        listener = {"tls": listener_tls(authority.issue("listener")), "authentication": "pass_through"}
        with ConfiguredProxy(directory / "proxy", listener, {"upstream": upstream}) as proxy:
            assert isinstance(proxy, ConfiguredProxy)
            yield World(authority, cluster, proxy)


@pytest.mark.parametrize(("mechanism", "partition"), list(zip(MECHANISMS, range(3), strict=True)))
def test_kafka_python_shows_the_broker_who_it_is_and_produces_idempotently(
    world: World, mechanism: str, partition: int
) -> None:
    settings = world.kafka_python("alice", mechanism)
    producer = KafkaProducer(enable_idempotence=True, **settings)
    sent = [producer.send("python", b"%d" % number, partition=partition) for number in range(RECORDS)]
    assert [one.get(WAIT_SECONDS).offset for one in sent] == list(range(RECORDS))
    producer.close()
    reader = KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=10_000, **settings)
    reader.assign([TopicPartition("python", partition)])
    assert [next(reader).value for _ in range(RECORDS)] == [b"%d" % number for number in range(RECORDS)]
    reader.close()


@pytest.mark.parametrize(("mechanism", "partition"), list(zip(MECHANISMS, range(3), strict=True)))
def test_librdkafka_shows_the_broker_who_it_is_and_produces_idempotently(
    world: World, mechanism: str, partition: int
) -> None:
    offsets: list[int] = []
    producer = Producer({**world.librdkafka("alice", mechanism), "enable.idempotence": True})
    for number in range(RECORDS):
        value = b"%d" % number
        producer.produce("confluent", value, partition=partition, on_delivery=lambda _e, m: offsets.append(m.offset()))
    assert producer.flush(WAIT_SECONDS) == 0
    assert offsets == list(range(RECORDS))
