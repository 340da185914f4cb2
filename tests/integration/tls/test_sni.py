"""One port for all brokers: the server name that a client asks for says which is meant. Real brokers and clients."""

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from idemproxy.demo.child_processes import ChildProcesses
from testkit.real.brokers.secure_cluster import SecureCluster
from testkit.real.clients import java_clients
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.tls.certificates import PASSWORD, Authority
from testkit.real.tls.settings import client_tls, listener_tls

pytestmark = pytest.mark.long

NAME = "kafka.test"
BROKERS = 2
PARTITIONS = 4
RECORDS = 400


@dataclass(frozen=True)
class World:
    authority: Authority
    proxy: ConfiguredProxy

    @property
    def port(self) -> int:
        return self.proxy.address[1]

    @property
    def kafka_python(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": f"{NAME}:{self.port}",
            "security_protocol": "SSL",
            "ssl_cafile": str(self.authority.ca_file),
        }

    def line(self, name: str | None) -> ssl.SSLSocket:
        """A connection that asks for this name."""
        context = ssl.create_default_context(cafile=str(self.authority.ca_file))
        context.check_hostname = False
        plain = socket.create_connection(self.proxy.address, 5)
        return context.wrap_socket(plain, server_hostname=name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("sni")
    authority = Authority(directory / "certificates")
    broker, own = authority.issue("broker"), authority.issue("own", NAME, f"*.{NAME}")
    with SecureCluster(directory / "kafka", authority, broker, brokers=BROKERS) as cluster:
        for topic in ("python", "java"):
            cluster.create_topic(topic, PARTITIONS)
        listener = {
            "routing": "sni",
            "bootstrap_name": NAME,
            "advertised": f"broker-{{id}}.{NAME}:{{port}}",
            "tls": listener_tls(own),
        }
        places = [f"localhost:{cluster.tls_address(number)[1]}" for number in range(BROKERS)]
        settings = {"upstream": {"bootstrap": places, "tls": client_tls(authority)}}
        with ConfiguredProxy(directory / "proxy", settings, listener=listener, brokers=0) as proxy:
            yield World(authority, proxy)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name service of this process knows our names."""
    real: Callable[..., Any] = socket.getaddrinfo

    def look_up(host: str, *rest: Any, **options: Any) -> Any:
        return real("127.0.0.1" if host == NAME or host.endswith(f".{NAME}") else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.usefixtures("names")
def test_clients_get_a_name_for_each_broker_and_one_port(world: World) -> None:
    admin = KafkaAdminClient(**world.kafka_python)
    brokers = {one["broker_id"]: (one["host"], one["port"]) for one in admin.describe_cluster()["brokers"]}
    admin.close()
    assert brokers == {number: (f"broker-{number}.{NAME}", world.port) for number in range(BROKERS)}


@pytest.mark.usefixtures("names")
def test_kafka_python_reaches_every_broker_through_the_one_port(world: World) -> None:
    producer = KafkaProducer(enable_idempotence=True, **world.kafka_python)
    sent = [producer.send("python", b"%d" % number, partition=number % PARTITIONS) for number in range(RECORDS)]
    assert [one.get(30).offset for one in sent] == [number // PARTITIONS for number in range(RECORDS)]
    producer.close()
    reader = KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=60_000, **world.kafka_python)
    reader.assign([TopicPartition("python", number) for number in range(PARTITIONS)])
    assert sorted(int(message.value) for message, _ in zip(reader, range(RECORDS), strict=False)) == [*range(RECORDS)]
    reader.close()


@pytest.mark.promise("compared-13")
def test_java_reaches_every_broker_and_its_groups_coordinator_through_the_one_port(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 {NAME} {' '.join(f'broker-{number}.{NAME}' for number in range(BROKERS))}\n")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djdk.net.hosts.file={os.fspath(hosts)}")
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(world.authority.trust_store()),
        "ssl.truststore.password": PASSWORD,
    }
    common: dict[str, Any] = {"bootstrap": f"{NAME}:{world.port}", "topic": "java", "settings": settings}
    with ChildProcesses() as children:
        producer = java_clients.start_producer(
            children, tmp_path, version="3.9.1", partitions=PARTITIONS, records=RECORDS, **common
        )
        told = producer.wait()
        assert (told["acked"], told["failed"]) == (RECORDS, 0)
        reader = java_clients.start_group_reader(
            children, tmp_path, version="3.9.1", group="sni", records=RECORDS, **common
        )
        assert reader.wait()["records"] == RECORDS


@pytest.mark.parametrize("name", [None, "elsewhere.test", f"broker-x.{NAME}"], ids=["none", "unknown", "no number"])
def test_a_client_that_asks_for_an_unknown_name_is_disconnected_and_logged(world: World, name: str | None) -> None:
    with world.line(name) as line:
        assert line.recv(1) == b""
    world.proxy.wait_for_log(f"{name!r} is the name of no broker here")
