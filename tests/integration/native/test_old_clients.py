"""Real clients that send versions which Kafka 4 dropped: at a real 4.3.1, which would close their connections, the
proxy raises these versions, or returns an error where it is configured to raise none; at 3.9.1 and 0.10.2.2, which
serve them, the clients work unchanged. The proxy names them."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from idemproxy.codecs.message_set import encode_message
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy import limits
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kafka_cluster import consume, fresh_topic, librdkafka_settings, produce
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.client_runs import OLD_JAVA, OLD_PYTHON, start_producer
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.store.inspecting import idemproxy

RECORDS = 5
UNSUPPORTED = 35
OLD_PRODUCERS: Mapping[str, Mapping[str, object]] = {
    OLD_JAVA: {"client.id": "old-java"},
    OLD_PYTHON: {"client_id": "old-python", "api_version": [0, 10], "retries": 0},
}
NAMES = {OLD_JAVA: "old-java", OLD_PYTHON: "old-python"}


EMPTY_FETCH: Mapping[str, Any] = {
    "replica_id": -1,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "topics": [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}],
}


class World:
    """A broker of some release, a proxy in front of it, and the proxy's admin port."""

    def __init__(self, cluster: LegacyCluster, proxy: ProxyProcess, admin: str) -> None:
        self.cluster, self.proxy, self.admin = cluster, proxy, admin
        self.bootstrap = "{}:{}".format(*proxy.address)

    def asked(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=20) as answer:
            return str(answer.read().decode())

    def inspected(self) -> dict[str, dict[str, Any]]:
        """What ``inspect old-clients`` prints for machines, by client id."""
        done = idemproxy("inspect", "old-clients", "--json", "--admin", self.admin)
        assert done.returncode == 0, done.stderr
        return {row["client_id"]: row for row in map(json.loads, done.stdout.splitlines())}

    def lines_about(self, client_id: str) -> list[str]:
        return [line for line in self.proxy.log.splitlines() if f"old client '{client_id}'" in line]

    def send_with(self, client: str, children: ChildProcesses, directory: Path) -> dict[str, Any]:
        """Have a real old producer send some records; return its last line."""
        program = start_producer(
            children,
            directory,
            client,
            bootstrap=self.bootstrap,
            topic=fresh_topic(self.cluster, 1),
            partitions=1,
            records=RECORDS,
            idempotent=False,
            settings=OLD_PRODUCERS[client],
        )
        return program.wait()


def world_of(cluster: LegacyCluster, directory: Path) -> Iterator[World]:
    admin = f"{HOST}:{free_ports(1)[0]}"
    with ProxyProcess(directory, cluster.address(0), options=("--admin-bind", admin)) as proxy:
        yield World(cluster, proxy, admin)


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """In front of Kafka 4."""
    directory = tmp_path_factory.mktemp("newest")
    with KraftCluster(directory / "kafka", auto_create_topics=False) as cluster:
        yield from world_of(cluster, directory / "proxy")


@pytest.fixture(scope="module")
def refusing(newest: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """In front of the same broker, with a proxy that raises nothing."""
    admin = f"{HOST}:{free_ports(1)[0]}"
    settings = {
        "upstream": {"bootstrap": ["{}:{}".format(*newest.cluster.address(0))]},
        "old_clients": {"translate": "never"},
        "admin": {"bind": admin},
    }
    with ConfiguredProxy(tmp_path_factory.mktemp("refusing"), settings, listener={}) as proxy:
        yield World(newest.cluster, proxy, admin)


@pytest.fixture(scope="module", params=["0.10.2.2", "3.9.1"])
def serving(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """In front of a broker that serves what Kafka 4 dropped: the proxy gives idempotence, or the broker does."""
    directory = tmp_path_factory.mktemp("serving")
    with LegacyCluster(directory / "kafka", version=request.param, auto_create_topics=False) as cluster:
        yield from world_of(cluster, directory / "proxy")


@pytest.fixture
def children() -> Iterator[ChildProcesses]:
    with ChildProcesses() as running:
        yield running


@pytest.mark.parametrize("client", [OLD_JAVA, OLD_PYTHON])
def test_an_old_producer_works_in_front_of_kafka_4_and_is_named(
    newest: World, children: ChildProcesses, tmp_path: Path, client: str
) -> None:
    outcome = newest.send_with(client, children, tmp_path)
    assert (outcome["acked"], outcome["failed"], outcome["errors"]) == (RECORDS, 0, [])
    row = newest.inspected()[NAMES[client]]
    assert (row["refused"], row["address"]) == (0, HOST)
    assert {(one["api"], one["version"]) for one in row["requests"]} == {("Produce", 2)}
    (line,) = newest.lines_about(NAMES[client])
    assert "sends Produce 2, which Kafka 4 dropped: the proxy rewrites it" in line


@pytest.mark.parametrize("client", [OLD_JAVA, OLD_PYTHON])
def test_an_old_producer_gets_an_error_where_nothing_is_raised(
    refusing: World, children: ChildProcesses, tmp_path: Path, client: str
) -> None:
    outcome = refusing.send_with(client, children, tmp_path)
    assert (outcome["acked"], outcome["failed"]) == (0, RECORDS)
    assert all("UnsupportedVersion" in text or "35" in text for text in outcome["errors"]), outcome["errors"]
    row = refusing.inspected()[NAMES[client]]
    assert row["refused"] == sum(one["requests"] for one in row["requests"]) > 0
    assert {(one["api"], one["version"]) for one in row["requests"]} == {("Produce", 2)}
    (line,) = refusing.lines_about(NAMES[client])
    assert "sends Produce 2, which Kafka 4 dropped and its broker does not serve" in line


def test_requests_around_those_that_are_refused_are_answered_in_order(refusing: World) -> None:
    topic = fresh_topic(refusing.cluster, 1)
    offsets = {"replica_id": -1, "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    fetched = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    fetch = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "topics": [{"topic": topic, "partitions": [fetched]}]}
    with RawClient((HOST, refusing.proxy.address[1] + 1), client_id="raw") as client:
        for _ in range(2):
            assert client.ask(ApiKey.METADATA, 1, topics=[{"name": topic}]).topics[0].error_code == 0
            old = client.ask(ApiKey.FETCH, 2, **fetch)
            assert old.responses[0].partitions[0].error_code == UNSUPPORTED
            assert client.ask(ApiKey.LIST_OFFSETS, 0, **offsets).topics[0].partitions[0].error_code == UNSUPPORTED
            assert client.ask(ApiKey.LIST_OFFSETS, 1, **offsets).topics[0].partitions[0].error_code == 0
            assert client.ask(ApiKey.FETCH, 4, **fetch, max_bytes=1000).responses[0].partitions[0].error_code == 0
        client.send_produce([(topic, 0, encode_message(None, b"lost", magic=1))], version=2, acks=0)
        assert client.is_closed()
    row = refusing.inspected()["raw"]
    assert {(one["api"], one["version"]): one["requests"] for one in row["requests"]} == {
        **{("Produce", 2): 1, ("Fetch", 2): 2, ("ListOffsets", 0): 2},
    }
    assert "Produce 2 is not served by the broker, and these " in refusing.proxy.log


def test_a_check_sums_up_the_old_clients_of_the_running_proxy(refusing: World) -> None:
    with RawClient(refusing.proxy.address, client_id="summed-up") as client:
        client.ask(ApiKey.FETCH, 2, **EMPTY_FETCH)
    listening, upstream = refusing.bootstrap, "{}:{}".format(*refusing.cluster.address(0))
    given = ("--upstream", upstream, "--listen", listening, "--admin-bind", refusing.admin)
    done = idemproxy("check", "--connect", *given, "--data-directory", refusing.proxy.data_directory)
    (line,) = [line for line in done.stdout.splitlines() if "old clients: " in line]
    assert line.startswith("warning old clients: ")
    assert "Fetch" in line
    assert f"says the proxy at {refusing.admin}" in line


def test_a_modern_client_is_no_old_one(newest: World) -> None:
    topic = fresh_topic(newest.cluster, 1)
    assert len(produce(librdkafka_settings(newest.bootstrap), topic, 1, RECORDS)) == RECORDS
    assert len(consume(newest.bootstrap, topic, "modern", RECORDS)) == RECORDS
    told = json.loads(newest.asked("/api/v1/old_clients"))
    assert not {row["client_id"] for row in told["clients"] if "rdkafka" in row["client_id"]}


@pytest.mark.parametrize("client", [OLD_JAVA, OLD_PYTHON])
def test_an_old_producer_works_where_the_broker_serves_it_and_is_counted(
    serving: World, children: ChildProcesses, tmp_path: Path, client: str
) -> None:
    outcome = serving.send_with(client, children, tmp_path)
    assert (outcome["acked"], outcome["failed"], outcome["errors"]) == (RECORDS, 0, [])
    row = serving.inspected()[NAMES[client]]
    sent = {(one["api"], one["version"]): one["requests"] for one in row["requests"]}
    assert (set(sent), row["refused"]) == ({("Produce", 2)}, 0)
    assert 1 <= sent["Produce", 2] <= RECORDS
    assert 'idemproxy_old_client_requests_total{api="produce",version="2"}' in serving.asked("/metrics")
    shown = json.loads(serving.asked("/api/v1/page"))["old_clients"]["clients"]
    assert NAMES[client] in {one["client_id"] for one in shown}
    (line,) = serving.lines_about(NAMES[client])
    assert "sends Produce 2, which Kafka 4 dropped: upgrade the client before the brokers" in line


def test_a_witness_stays_in_the_list_beside_thousands_of_new_client_ids(refusing: World) -> None:
    with RawClient(refusing.proxy.address, client_id="witness") as witness:
        for number in range(limits.OLD_CLIENTS_MAX + 50):
            with RawClient(refusing.proxy.address, client_id=f"stranger-{number}") as stranger:
                answer = stranger.ask(ApiKey.FETCH, 2, **EMPTY_FETCH)
                assert answer.responses[0].partitions[0].error_code == UNSUPPORTED
            if number % 200 == 0:
                witness.ask(ApiKey.FETCH, 2, **EMPTY_FETCH)
    told = json.loads(refusing.asked("/api/v1/old_clients"))
    assert len(told["clients"]) == limits.OLD_CLIENTS_MAX
    assert told["forgotten"] >= 50
    (row,) = [one for one in told["clients"] if one["client_id"] == "witness"]
    assert row["requests"] == [{"api": "Fetch", "version": 2, "requests": 6}]
    wait_until(lambda: "old clients" in refusing.proxy.log, "the lines that were left out are summed up")
