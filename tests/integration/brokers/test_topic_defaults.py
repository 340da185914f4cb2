"""Topics whose creator leaves partitions and replicas to the broker, by real admin clients on a real 0.10.2.2, which
cannot be asked to choose."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.admin import NewTopic as PythonTopic

from idemproxy.demo.jars import client_class_path, java_runtime
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.clients.foreign_clients import node_command
from testkit.real.clients.java_clients import LAST_3X_CLIENT, MODERN_CLIENT, compiled
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until

SECONDS_MAX = 180
BROKERS, PARTITIONS, REPLICAS = 2, 3, 2


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfiguredProxy]:
    """Before two brokers, so that a default of its own shows."""
    directory = tmp_path_factory.mktemp("defaults")
    with LegacyCluster(directory / "kafka", brokers=BROKERS, auto_create_topics=False) as cluster:
        settings = {
            "upstream": {"bootstrap": cluster.bootstrap.split(",")},
            "topics": {"default_partitions": PARTITIONS, "default_replication_factor": REPLICAS},
        }
        with ConfiguredProxy(directory / "proxy", settings, listener={}, brokers=BROKERS) as running:
            yield running


def has_shape(proxy: ConfiguredProxy, topic: str, partitions: int, replicas: int) -> None:
    """Brokers hear of a new topic one after the other."""
    admin = AdminClient({"bootstrap.servers": "{}:{}".format(*proxy.address)})

    def shape() -> list[int]:
        found = admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic]
        return [len(one.replicas) for one in found.partitions.values()]

    wanted = [replicas] * partitions
    wait_until(lambda: shape() == wanted, f"{topic} has {partitions} partitions with {replicas} replicas each")


@pytest.mark.parametrize("version", [LAST_3X_CLIENT, MODERN_CLIENT])
def test_javas_admin_client_gets_the_defaults_of_the_proxy(proxy: ConfiguredProxy, version: str) -> None:
    """And a topic that is only to be validated does not come to be."""
    topic = f"java-{version}"
    class_path = f"{compiled('TopicCreator', version)}:{client_class_path(version)}"
    command = [str(java_runtime()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path, "TopicCreator"]
    command += ["{}:{}".format(*proxy.address), topic]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    has_shape(proxy, topic, PARTITIONS, REPLICAS)


def test_librdkafkas_admin_client_too(proxy: ConfiguredProxy) -> None:
    admin = AdminClient({"bootstrap.servers": "{}:{}".format(*proxy.address)})
    for wanted in (NewTopic("both", -1, -1), NewTopic("five", 5, -1), NewTopic("single", -1, 1)):
        for made in admin.create_topics([wanted]).values():
            made.result(SECONDS_MAX)
    has_shape(proxy, "both", PARTITIONS, REPLICAS)
    has_shape(proxy, "five", 5, REPLICAS)
    has_shape(proxy, "single", PARTITIONS, 1)


def test_kafka_pythons_admin_client_too(proxy: ConfiguredProxy) -> None:
    admin = KafkaAdminClient(bootstrap_servers="{}:{}".format(*proxy.address))
    try:
        admin.create_topics([PythonTopic("python", -1, -1)])
    finally:
        admin.close()
    has_shape(proxy, "python", PARTITIONS, REPLICAS)


@pytest.mark.parametrize("numbers", [(), (5, 1)], ids=["left to the broker", "named"])
def test_kafkajs_too_which_says_it_in_older_versions(proxy: ConfiguredProxy, numbers: tuple[int, ...]) -> None:
    topic = f"kafkajs-{len(numbers)}"
    command = [*node_command("kafkajs", "topic_creator"), "{}:{}".format(*proxy.address), topic, *map(str, numbers)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    has_shape(proxy, topic, *(numbers or (PARTITIONS, REPLICAS)))


def test_other_defaults_count_from_a_reload_on(proxy: ConfiguredProxy) -> None:
    proxy.configuration["topics"] = {"default_partitions": 7, "default_replication_factor": 1}
    proxy.write(proxy.configuration)
    proxy.signal(signal.SIGHUP)
    proxy.wait_for_log("topics.default_partitions")
    admin = AdminClient({"bootstrap.servers": "{}:{}".format(*proxy.address)})
    for made in admin.create_topics([NewTopic("later", -1, -1)]).values():
        made.result(SECONDS_MAX)
    has_shape(proxy, "later", 7, 1)
