"""Clients that show a real old broker who they are continue when it ends and comes back: each batch once, in order.
Nobody takes a broker that ended in the middle of an exchange for one that has refused him."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from idemproxy.demo.child_processes import ChildProcesses
from testkit.real.brokers import kafka_cluster
from testkit.real.brokers.sasl_cluster import SaslCluster
from testkit.real.clients import java_clients
from testkit.real.proxies.configured_proxy import ConfiguredProxy

pytestmark = pytest.mark.long

RIGHTS = ("Read", "Write", "Describe")
OURS = ("Read", "Describe")
"""Enough to find out what became of a batch; the proxy's own principal appends nothing."""
USERS = {"idemproxy": "our secret", "java": "java's secret", "librdkafka": "librdkafka's secret"}
PARTITIONS = 4
RECORDS = 4_000
PAUSE_SECONDS = 2.5


MODULES = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-512": "scram.ScramLoginModule"}


def jaas(name: str, mechanism: str) -> dict[str, str]:
    """The settings of Java clients."""
    module = f"org.apache.kafka.common.security.{MODULES[mechanism]}"
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{name}" password="{USERS[name]}";',
    }


def test_every_batch_is_there_once_when_the_broker_is_killed_and_stopped(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"auto_create_topics": False, "session_timeout_ms": 1500}
    with SaslCluster(tmp_path / "kafka", USERS, **settings) as cluster, ChildProcesses() as children:
        cluster.create_topic("topic", PARTITIONS)
        cluster.allow("Topic:topic", {name: RIGHTS for name in USERS} | {"idemproxy": OURS})
        sasl = {"mechanism": "SCRAM-SHA-256", "username": "idemproxy", "password": USERS["idemproxy"]}
        upstream = {"bootstrap": ["{}:{}".format(*cluster.sasl_address(0))], "sasl": sasl}
        with ConfiguredProxy(
            tmp_path / "proxy", {"upstream": upstream}, listener={"authentication": "pass_through"}
        ) as proxy:
            bootstrap = "{}:{}".format(*proxy.address)
            java = java_clients.start_producer(
                children,
                tmp_path,
                version=java_clients.LAST_3X_CLIENT,
                bootstrap=bootstrap,
                topic="topic",
                partitions=PARTITIONS,
                records=RECORDS,
                records_per_second=RECORDS // 12,
                settings=jaas("java", "SCRAM-SHA-512"),
            )

            def trouble() -> None:
                for end in (cluster.kill_broker, cluster.stop_broker, cluster.kill_broker):
                    time.sleep(PAUSE_SECONDS)
                    end(0)
                    cluster.start_broker(0)

            breaking = threading.Thread(target=trouble)
            breaking.start()
            settings = kafka_cluster.librdkafka_settings(
                bootstrap,
                enable_idempotence=True,
                security_protocol="sasl_plaintext",
                sasl_mechanism="PLAIN",
                sasl_username="librdkafka",
                sasl_password=USERS["librdkafka"],
            )
            told: dict[tuple[str, int, int], int] = {}
            rounds = 0
            while breaking.is_alive() or not told:
                told |= kafka_cluster.produce(settings, "topic", PARTITIONS, 400, f"librdkafka-{rounds}")
                rounds += 1
                time.sleep(0.1)
            breaking.join()
            last = java.wait(120)
            assert (last["acked"], last["failed"]) == (RECORDS, 0), last
            told |= kafka_cluster.told("java", java.acknowledged())
            found = kafka_cluster.verdict(cluster, "topic", PARTITIONS, told)
            assert found.is_exactly_once, found
            assert "authentication" not in "".join(last["errors"]).lower()


@pytest.mark.parametrize(
    ("version", "mechanism"),
    [
        (java_clients.OLD_CLIENT, "PLAIN"),
        (java_clients.MODERN_CLIENT, "SCRAM-SHA-512"),
    ],  # the old one's SCRAM needs JAXB
)
def test_java_shows_the_broker_who_it_is(tmp_path: Path, version: str, mechanism: str) -> None:
    with SaslCluster(tmp_path / "kafka", USERS, auto_create_topics=False) as cluster, ChildProcesses() as children:
        cluster.create_topic("topic", PARTITIONS)
        cluster.allow("Topic:topic", {name: RIGHTS for name in USERS} | {"idemproxy": OURS})
        cluster.allow("Group:*", {"java": ["Read"]})
        sasl = {"mechanism": "SCRAM-SHA-256", "username": "idemproxy", "password": USERS["idemproxy"]}
        upstream = {"bootstrap": ["{}:{}".format(*cluster.sasl_address(0))], "sasl": sasl}
        with ConfiguredProxy(
            tmp_path / "proxy", {"upstream": upstream}, listener={"authentication": "pass_through"}
        ) as proxy:
            bootstrap, settings = "{}:{}".format(*proxy.address), jaas("java", mechanism)
            producer = java_clients.start_producer(
                children,
                tmp_path,
                version=version,
                bootstrap=bootstrap,
                topic="topic",
                partitions=PARTITIONS,
                records=400,
                settings=settings,
            )
            told = producer.wait()
            assert (told["acked"], told["failed"]) == (400, 0), told
            reader = java_clients.start_group_reader(
                children,
                tmp_path,
                version=java_clients.LAST_3X_CLIENT,
                bootstrap=bootstrap,
                topic="topic",
                group="java",
                records=400,
                settings=settings,
            )
            assert reader.wait()["records"] == 400
