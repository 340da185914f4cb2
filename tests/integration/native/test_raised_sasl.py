"""Old clients that authenticate at a real broker themselves: what they write goes over their own connection, under
their own rights."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.framing import frame
from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.verdict import value_of
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kafka_cluster import stored, told, verdict
from testkit.real.brokers.sasl_cluster import SaslCluster
from testkit.real.clients.client_runs import OLD_PYTHON, start_producer
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.configured_proxy import ConfiguredProxy

USERS = {"idemproxy": "our secret", "alice": "hers", "bob": "his", "carol": "carols"}
RECORDS = 600
TOPIC, OTHER = "raised", "other"
RIGHTS = ("Read", "Write", "Describe")


@dataclass
class World:
    cluster: SaslCluster
    proxy: ConfiguredProxy

    @contextmanager
    def client(self, name: str) -> Iterator[RawClient]:
        """One that has logged in with a bare token, as clients of 0.10 do."""
        host, port = self.proxy.address
        with RawClient((host, port + 1), client_id=name) as client:
            assert client.ask(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN").error_code == 0
            client.send_bytes(frame(f"\0{name}\0{USERS[name]}".encode()))
            assert client._receive(4) == bytes(4)
            yield client


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("raised-sasl")
    kafka = SaslCluster(directory / "kafka", USERS, mechanisms=("PLAIN",), version="3.9.1", auto_create_topics=False)
    with kafka as cluster:
        for topic in (TOPIC, OTHER):
            cluster.create_topic(topic, 3)
        cluster.allow(f"Topic:{TOPIC}", {"alice": RIGHTS, "carol": ("Describe",)})
        cluster.allow(f"Topic:{OTHER}", {"carol": RIGHTS})
        cluster.allow("Group:*", {"alice": ("Read",)})
        cluster.allow("Cluster:kafka-cluster", {"idemproxy": ("DescribeConfigs",)})
        sasl = {"mechanism": "PLAIN", "username": "idemproxy", "password": USERS["idemproxy"]}
        upstream = {"bootstrap": ["{}:{}".format(*cluster.sasl_address(0))], "sasl": sasl}
        settings = {"upstream": upstream, "old_clients": {"translate": "always"}}
        with ConfiguredProxy(directory / "proxy", settings, listener={"authentication": "pass_through"}) as proxy:
            proxy.wait_for_log("upstream.idempotence: native")
            yield World(cluster, proxy)


def produced(client: RawClient, topic: str, value: bytes, *, acks: int = -1, version: int = 2) -> PartitionAnswer:
    body = RawClient.produce_body(
        [(topic, 0, encode_set([(None, value, int(time.time() * 1000))], magic=1))], version=version, acks=acks
    )
    client.send(ApiKey.PRODUCE, version, body)
    (answer,) = client.produce_answer(version)
    return answer


def test_a_principal_that_may_write_nowhere_gets_no_producer_id(world: World) -> None:
    """Nobody has got one yet that it could be lent."""
    with world.client("bob") as client:
        assert produced(client, TOPIC, b"not allowed").error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_an_old_library_authenticates_produces_and_reads_in_a_group(world: World, tmp_path: Path) -> None:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "api_version": [0, 10]}
    login |= {"sasl_plain_username": "alice", "sasl_plain_password": USERS["alice"]}
    with ChildProcesses() as children:
        program = start_producer(
            *(children, tmp_path, OLD_PYTHON),
            bootstrap="{}:{}".format(*world.proxy.address),
            topic=TOPIC,
            partitions=3,
            records=RECORDS,
            idempotent=False,
            settings=login,
        )
        outcome = program.wait(120)
        acknowledged = told(OLD_PYTHON, program.acknowledged())
    assert outcome["errors"] == []
    assert len(acknowledged) == RECORDS
    found = verdict(world.cluster, TOPIC, 3, acknowledged)
    assert found.is_exactly_once, found


def test_what_a_principal_may_write_is_written_under_a_producer_id(world: World) -> None:
    with world.client("alice") as client:
        first = produced(client, TOPIC, value_of("raw", 0, 0))
        for number in (1, 2):
            answer = produced(client, TOPIC, value_of("raw", 0, number), acks=1)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, first.base_offset + number)
        assert client.ask(ApiKey.METADATA, 1, topics=[{"name": TOPIC}]).brokers
    log = stored(world.cluster, TOPIC, 1)[0]
    assert [one.value for one in log[-3:]] == [value_of("raw", 0, number) for number in range(3)]


@pytest.mark.parametrize("name", ["bob", "carol"])
def test_a_principal_without_the_right_gets_its_brokers_refusal(world: World, name: str) -> None:
    """Who may write nowhere gets no producer id either, but may be lent one that another principal has got."""
    with world.client(name) as client:
        for _ in range(2):
            code = produced(client, TOPIC, b"not allowed").error_code
            assert code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if name == "carol":
            assert produced(client, OTHER, value_of("carol", 0, 0)).error_code == ErrorCode.NONE
        assert client.ask(ApiKey.METADATA, 1, topics=[]) is not None
    log = stored(world.cluster, TOPIC, 1)[0]
    assert b"not allowed" not in [one.value for one in log]
