"""Real clients through a proxy that shows a real old broker who it is: every mechanism it has, with ACLs."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from kafka.structs import TopicPartition

from testkit.real.brokers.sasl_cluster import SaslCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.tls.certificates import Authority
from testkit.real.tls.settings import client_tls

RECORDS = 300
WAIT_SECONDS = 60.0
OURS = "idemproxy"
SECRET = "comma, equals= and ü"
RIGHTS = ("Read", "Write", "Describe")


@dataclass(frozen=True)
class World:
    """A broker that asks who is there, and what an operator writes about it."""

    authority: Authority
    cluster: SaslCluster
    directory: Path

    def upstream(self, mechanism: str, *, over_tls: bool = False, **sasl: str) -> dict[str, Any]:
        """The section of the file."""
        port = (self.cluster.sasl_tls_address if over_tls else self.cluster.sasl_address)(0)[1]
        said = {"mechanism": mechanism, "username": OURS, "password": SECRET, **sasl}
        section: dict[str, Any] = {
            "bootstrap": [f"127.0.0.1:{port}"],
            "sasl": said,
            "allow_unauthenticated_clients": True,
        }
        if over_tls:
            section["tls"] = client_tls(self.authority)
        return section


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("sasl")
    authority = Authority(directory / "ours")
    users = {OURS: SECRET, "alice": "alice's"}
    own = authority.issue("broker")
    with SaslCluster(directory / "kafka", users, auto_create_topics=False, authority=authority, own=own) as cluster:
        for topic in ("open", "closed", "late"):
            cluster.create_topic(topic, 4)
        cluster.allow("Topic:open", {OURS: RIGHTS})
        cluster.allow("Topic:closed", {OURS: ["Describe"], "alice": RIGHTS})
        cluster.allow("Topic:late", {OURS: RIGHTS})
        cluster.allow("Group:*", {OURS: ["Read"]})
        yield World(authority, cluster, directory)


@contextmanager
def proxy_of(directory: Path, upstream: dict[str, Any]) -> Iterator[ConfiguredProxy]:
    with ConfiguredProxy(directory / "proxy", {"upstream": upstream}, listener={}) as proxy:
        assert isinstance(proxy, ConfiguredProxy)
        yield proxy


def bootstrap(proxy: ConfiguredProxy) -> str:
    return "{}:{}".format(*proxy.address)


@pytest.mark.parametrize(
    ("mechanism", "over_tls", "partition"),
    [("PLAIN", False, 0), ("SCRAM-SHA-256", False, 1), ("SCRAM-SHA-512", True, 2)],
)
def test_kafka_python_produces_and_reads_where_the_proxy_has_to_show_who_it_is(
    world: World, tmp_path: Path, mechanism: str, over_tls: bool, partition: int
) -> None:
    with proxy_of(tmp_path, world.upstream(mechanism, over_tls=over_tls)) as proxy:
        producer = KafkaProducer(bootstrap_servers=bootstrap(proxy), enable_idempotence=True)
        sent = [producer.send("open", b"%d" % number, partition=partition) for number in range(RECORDS)]
        assert [one.get(WAIT_SECONDS).offset for one in sent] == list(range(RECORDS))
        producer.close()
        reader = KafkaConsumer(
            bootstrap_servers=bootstrap(proxy), auto_offset_reset="earliest", consumer_timeout_ms=60_000
        )
        reader.assign([TopicPartition("open", partition)])
        assert [next(reader).value for _ in range(RECORDS)] == [b"%d" % number for number in range(RECORDS)]
        reader.close()
        assert ("the secret can be read on the network" in proxy.log) == (mechanism == "PLAIN" and not over_tls)
        assert SECRET not in proxy.log


def test_librdkafka_produces_and_reads_in_a_group(world: World, tmp_path: Path) -> None:
    with proxy_of(tmp_path, world.upstream("SCRAM-SHA-256")) as proxy:
        offsets: list[int] = []
        producer = Producer({"bootstrap.servers": bootstrap(proxy), "enable.idempotence": True})
        for number in range(RECORDS):
            value = b"%d" % number
            producer.produce("open", value, partition=3, on_delivery=lambda _e, m: offsets.append(m.offset()))
        assert producer.flush(WAIT_SECONDS) == 0
        assert offsets == list(range(RECORDS))
        reader = Consumer({"bootstrap.servers": bootstrap(proxy), "group.id": "sasl", "auto.offset.reset": "earliest"})
        reader.subscribe(["open"])
        values: list[bytes] = []
        end = time.monotonic() + WAIT_SECONDS
        while len(values) < RECORDS and time.monotonic() < end:
            found = reader.consume(RECORDS, 0.5)
            values += [message.value() for message in found if message.partition() == 3]
        reader.close()
        assert values == [b"%d" % number for number in range(RECORDS)]


def test_a_wrong_password_is_said_once_and_a_right_one_is_taken_on_sighup(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("mistaken-4711\n")
    upstream = world.upstream("SCRAM-SHA-256", password_file=str(secret))
    del upstream["sasl"]["password"]
    proxy = ConfiguredProxy(tmp_path / "proxy", {"upstream": upstream}, listener={})
    try:
        proxy.launch()
        said = r"upstream.sasl: 127.0.0.1:\d+, SCRAM-SHA-256 as 'idemproxy': authentication failed: "
        proxy.wait_for_log(said, WAIT_SECONDS)
        time.sleep(3)
        assert proxy.log.count("authentication failed") == 2, proxy.log  # and once that this broker is away
        secret.write_text(SECRET)
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("reloaded: upstream.sasl.password changed", WAIT_SECONDS)
        proxy.wait_for_log("accepts SCRAM-SHA-256 as 'idemproxy' again", WAIT_SECONDS)
        wait_until(lambda: "point clients at" in proxy.log, "the proxy listens", WAIT_SECONDS)
        assert "mistaken-4711" not in proxy.log
        assert proxy.stop() == 0
    finally:
        proxy.__exit__()


def test_a_mechanism_missing_at_the_broker_is_reported_with_those_it_has(world: World, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("abc")
    upstream = world.upstream("OAUTHBEARER")
    upstream["sasl"] = {"mechanism": "OAUTHBEARER", "token_file": str(token)}
    assert checked(tmp_path, upstream) == [
        "PROBLEM",
        "the mechanism OAUTHBEARER is not enabled at the broker, it has 'PLAIN, SCRAM-SHA-256, SCRAM-SHA-512'",
    ]


def test_a_listener_without_sasl_is_reported_as_such(world: World, tmp_path: Path) -> None:
    upstream = world.upstream("PLAIN")
    upstream["bootstrap"] = ["{}:{}".format(*world.cluster.address(0))]
    sign, text = checked(tmp_path, upstream)
    assert sign == "PROBLEM"
    assert text.startswith("this listener of the broker takes no SASL")
    assert text.endswith("; remove upstream.sasl, or name a listener with SASL")


def test_a_closed_connection_is_reported_with_sasl_as_a_likely_reason(world: World, tmp_path: Path) -> None:
    upstream = world.upstream("PLAIN")
    del upstream["sasl"]
    assert checked(tmp_path, upstream) == [
        "PROBLEM",
        "the peer closed the connection; is this a broker's listener, and does it ask for TLS or SASL?",
    ]


def test_check_tries_the_credentials(world: World, tmp_path: Path) -> None:
    assert checked(tmp_path, world.upstream("SCRAM-SHA-512")) == ["ok", "Kafka 0.10.2"]
    sign, text = checked(tmp_path, world.upstream("SCRAM-SHA-512", password="wrong"))
    assert sign == "PROBLEM"
    assert text.startswith("authentication failed: the broker closed the connection after SCRAM-SHA-512 as 'idemproxy'")


def test_check_names_the_topics_that_the_principal_may_not_read(world: World, tmp_path: Path) -> None:
    world.cluster.create_topic("unread", 2)
    world.cluster.allow("Topic:unread", {OURS: ["Describe"]})
    lines = all_checked(tmp_path, world.upstream("SCRAM-SHA-256"))
    (told,) = (line for line in lines if "may not read" in line)
    assert told.startswith("warning topics, ")
    assert "unread" in told
    assert "open" not in told
    world.cluster.allow("Topic:unread", {OURS: ["Describe", "Read"]})
    assert not [line for line in all_checked(tmp_path, world.upstream("SCRAM-SHA-256")) if "unread" in line]


def checked(directory: Path, upstream: dict[str, Any]) -> list[str]:
    """Return sign and text of what ``check --connect`` says about the address to begin with."""
    line = next(line for line in all_checked(directory, upstream) if " upstream 127.0.0.1" in line)
    sign, _, rest = line.partition(" ")
    return [sign, rest.strip().split(": ", 1)[1]]


def all_checked(directory: Path, upstream: dict[str, Any]) -> list[str]:
    """Return all lines of it."""
    file = directory / "checked.yaml"
    file.write_text(yaml.safe_dump({"upstream": upstream, "data_directory": str(directory)}))
    command = [sys.executable, "-m", "idemproxy", "check", str(file), "--connect"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert SECRET not in done.stdout + done.stderr
    return done.stdout.splitlines()


def test_what_the_broker_refuses_our_principal_is_refused_to_clients_and_moves_nothing(
    world: World, tmp_path: Path
) -> None:
    with proxy_of(tmp_path, world.upstream("SCRAM-SHA-256")) as proxy:
        producer = KafkaProducer(bootstrap_servers=bootstrap(proxy), enable_idempotence=True)
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send("closed", b"no", partition=0).get(WAIT_SECONDS)
        producer.close(timeout=1)
        with RawClient(proxy.address) as client, RawClient(world.cluster.address(0)) as direct:
            records = batch([b"later"], producer_id=client.new_producer_id(), sequence=0)
            assert client.produce_one("closed", 1, records).error_code == 29
            world.cluster.allow("Topic:closed", {OURS: RIGHTS})
            answer = client.produce_one("closed", 1, records)
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert direct.end_offset("closed", 0) == 0
            assert direct.end_offset("closed", 1) == 1
