"""Old clients that authenticate at a real 4.3.1 through the proxy, with the login of their time: they produce and read
under their own rights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation

from idemproxy.demo.child_processes import ChildProcesses
from testkit.real.brokers.kafka_cluster import told, verdict
from testkit.real.brokers.sasl_kraft_cluster import SaslKraftCluster
from testkit.real.clients.client_runs import OLD_PYTHON, start_producer
from testkit.real.clients.java_clients import start_group_reader
from testkit.real.clients.java_clients import start_producer as start_java_producer
from testkit.real.proxies.configured_proxy import ConfiguredProxy

pytestmark = pytest.mark.long

USERS = {"idemproxy": "our secret", "alice": "hers", "bob": "his"}
PARTITIONS, RECORDS = 3, 300
READ_SECONDS_MAX = 60
JAVA = "0.10.2.2"


@dataclass
class World:
    cluster: SaslKraftCluster
    proxy: ConfiguredProxy

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.proxy.address)

    def topic(self, name: str) -> str:
        self.cluster.create_topic(name, PARTITIONS)
        rights = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
        self.cluster.allow(name, {"alice": rights, "bob": (AclOperation.DESCRIBE,)})
        return name


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("raised-sasl-newest")
    with SaslKraftCluster(directory / "kafka", USERS, auto_create_topics=False) as cluster:
        cluster.allow_groups({"alice": (AclOperation.READ,)})
        sasl = {"mechanism": "PLAIN", "username": "idemproxy", "password": USERS["idemproxy"]}
        upstream = {"bootstrap": ["{}:{}".format(*cluster.sasl_address(0))], "sasl": sasl}
        with ConfiguredProxy(
            directory / "proxy", {"upstream": upstream}, listener={"authentication": "pass_through"}
        ) as proxy:
            proxy.wait_for_log("upstream.idempotence: native")
            yield World(cluster, proxy)


@pytest.fixture
def children() -> Iterator[ChildProcesses]:
    with ChildProcesses() as running:
        yield running


def java_login(user: str) -> dict[str, str]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    config = f'{module} username="{user}" password="{USERS[user]}";'
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": config}


def test_an_old_java_client_authenticates_produces_and_reads_in_a_group(
    world: World, children: ChildProcesses, tmp_path: Path
) -> None:
    topic = world.topic("java")
    producer = start_java_producer(
        children,
        tmp_path,
        version=JAVA,
        bootstrap=world.bootstrap,
        topic=topic,
        records=RECORDS,
        partitions=PARTITIONS,
        name="sent",
        compression="gzip",
        settings=java_login("alice") | {"batch.size": "400"},
    )
    outcome = producer.wait()
    assert (outcome["acked"], outcome["failed"]) == (RECORDS, 0)
    reader = start_group_reader(
        children,
        tmp_path,
        version=JAVA,
        bootstrap=world.bootstrap,
        topic=topic,
        records=RECORDS,
        group="of-alice",
        name="read",
        seconds_max=READ_SECONDS_MAX,
        settings=java_login("alice"),
    )
    reader.wait()
    each = RECORDS // PARTITIONS
    assert sorted((one.partition, one.offset, one.value) for one in reader.consumed()) == sorted(
        (partition, offset, f"sent:{partition}:{offset}") for partition in range(PARTITIONS) for offset in range(each)
    )


def test_an_old_java_client_without_the_right_learns_so(world: World, children: ChildProcesses, tmp_path: Path) -> None:
    topic = world.topic("not-bobs")
    producer = start_java_producer(
        children,
        tmp_path,
        version=JAVA,
        bootstrap=world.bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        records=PARTITIONS,
        name="refused",
        compression="none",
        settings=java_login("bob") | {"retries": "0"},
    )
    outcome = producer.wait()
    assert (outcome["acked"], outcome["failed"]) == (0, PARTITIONS)
    assert all("AuthorizationException" in text for text in outcome["errors"]), outcome


def test_an_old_python_client_authenticates_and_produces(
    world: World, children: ChildProcesses, tmp_path: Path
) -> None:
    topic = world.topic("python")
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "api_version": [0, 10]}
    login |= {"sasl_plain_username": "alice", "sasl_plain_password": USERS["alice"]}
    program = start_producer(
        *(children, tmp_path, OLD_PYTHON),
        bootstrap=world.bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        records=RECORDS,
        idempotent=False,
        settings=login,
    )
    outcome = program.wait(120)
    acknowledged = told(OLD_PYTHON, program.acknowledged())
    assert outcome["errors"] == []
    assert len(acknowledged) == RECORDS
    found = verdict(world.cluster, topic, PARTITIONS, acknowledged)
    assert found.is_exactly_once, found
