"""Real clients over TLS, through the proxy, to a real old broker over TLS; certificates on both sides."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from idemproxy.demo.child_processes import ChildProcesses
from testkit.real.brokers.secure_cluster import SecureCluster
from testkit.real.clients import java_clients
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.tls.certificates import PASSWORD, Authority, Files
from testkit.real.tls.settings import client_tls, listener_tls

pytestmark = pytest.mark.long

RECORDS = 500
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class World:
    """A broker that asks for certificates, and a proxy that does too."""

    authority: Authority
    other_authority: Authority
    client: Files
    stranger: Files
    proxy: ConfiguredProxy

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.proxy.address)

    def kafka_python(self, own: Files | None = None) -> dict[str, Any]:
        """The settings of kafka-python."""
        own = own or self.client
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SSL",
            "ssl_cafile": str(self.authority.ca_file),
            "ssl_certfile": str(own.cert),
            "ssl_keyfile": str(own.key),
        }

    def librdkafka(self, own: Files | None = None) -> dict[str, Any]:
        """The settings of librdkafka."""
        own = own or self.client
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority.ca_file),
            "ssl.certificate.location": str(own.cert),
            "ssl.key.location": str(own.key),
        }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("tls")
    authority, other = Authority(directory / "ours"), Authority(directory / "others", "other")
    broker, proxy_to_broker = (
        authority.issue("broker"),
        authority.issue("upstream", "idemproxy", common_name="idemproxy"),
    )
    proxy_to_clients = authority.issue("listener")
    settings = {"upstream": {"bootstrap": [], "tls": client_tls(authority, proxy_to_broker)}}
    with SecureCluster(directory / "kafka", authority, broker, client_auth="required") as cluster:
        for topic in ("python", "confluent", "java"):
            cluster.create_topic(topic, 2)
        settings["upstream"]["bootstrap"] = [f"localhost:{cluster.tls_address(0)[1]}"]
        with ConfiguredProxy(
            directory / "proxy", settings, listener={"tls": listener_tls(proxy_to_clients, authority)}
        ) as proxy:
            client = authority.issue("client", "orders", common_name="orders")
            yield World(authority, other, client, other.issue("stranger", "stranger"), proxy)


def test_kafka_python_produces_and_reads_over_tls_on_both_sides(world: World) -> None:
    producer = KafkaProducer(enable_idempotence=True, **world.kafka_python())
    sent = [producer.send("python", b"%d" % number, partition=0) for number in range(RECORDS)]
    assert [one.get(WAIT_SECONDS).offset for one in sent] == list(range(RECORDS))
    producer.close()
    reader = KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=60_000, **world.kafka_python())
    reader.assign([TopicPartition("python", 0)])
    assert [next(reader).value for _ in range(RECORDS)] == [b"%d" % number for number in range(RECORDS)]
    reader.close()


def test_librdkafka_produces_and_reads_over_tls_on_both_sides(world: World) -> None:
    offsets: list[int] = []
    producer = Producer({**world.librdkafka(), "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce("confluent", b"%d" % number, partition=0, on_delivery=lambda _e, m: offsets.append(m.offset()))
    assert producer.flush(WAIT_SECONDS) == 0
    assert offsets == list(range(RECORDS))
    reader = Consumer({**world.librdkafka(), "group.id": "tls", "auto.offset.reset": "earliest"})
    reader.subscribe(["confluent"])
    values: list[bytes] = []
    end = time.monotonic() + WAIT_SECONDS
    while len(values) < RECORDS and time.monotonic() < end:
        values += [message.value() for message in reader.consume(RECORDS, 0.5)]
    reader.close()
    assert values == [b"%d" % number for number in range(RECORDS)]


def test_java_continues_over_new_keys_in_the_middle_of_a_connection(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS 1.3 lets either side ask for new keys at any moment; Java does after so many bytes."""
    limit = tmp_path / "security.properties"
    limit.write_text("jdk.tls.keyLimits=AES/GCM/NoPadding KeyUpdate 2^12\n")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.properties={limit} -Djavax.net.debug=ssl:handshake")
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(world.authority.trust_store()),
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": str(world.authority.key_store(world.client)),
        "ssl.keystore.password": PASSWORD,
        "linger.ms": "0",
    }
    with ChildProcesses() as children:
        producer = java_clients.start_producer(
            children, tmp_path, version=java_clients.LAST_3X_CLIENT, bootstrap=world.bootstrap, topic="java",
            partitions=2, records=2000, settings=settings,
        )  # fmt: skip
        told = producer.wait()
        printed = producer.process.output.read_text(errors="replace")
    assert (told["acked"], told["failed"], told["offsets_in_order"]) == (2000, 0, True)
    assert printed.count("Produced KeyUpdate post-handshake message") >= 2
    assert "Consuming KeyUpdate post-handshake message" in printed, "we answer with new keys of ours"


def test_a_client_of_another_authority_gets_nowhere_and_the_log_says_why(world: World) -> None:
    errors: list[KafkaError] = []
    settings = {**world.librdkafka(world.stranger), "error_cb": errors.append}
    producer = Producer(settings)
    wait_until(lambda: producer.poll(0.1) is not None and bool(errors), "librdkafka complains", WAIT_SECONDS)
    assert errors[0].code() in (KafkaError._SSL, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)
    world.proxy.wait_for_log("127.0.0.1.*the peer's certificate is not accepted: ")


def test_a_plain_client_on_the_tls_port_is_logged(world: World) -> None:
    producer = Producer({"bootstrap.servers": world.bootstrap, "error_cb": lambda _error: None})
    world.proxy.wait_for_log("127.0.0.1.*the client does not speak TLS, and this listener speaks nothing else")
    producer.flush(0)
