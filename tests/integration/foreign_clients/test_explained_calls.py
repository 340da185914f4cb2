"""Calls that no old broker can serve, or not as asked: what real clients tell their users. None waits for nothing."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import Future

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, OffsetSpec, ResourceType
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType
from kafka.errors import IncompatibleBrokerVersion, UnsupportedVersionError

from idemproxy.demo.jars import client_class_path, java_runtime
from idemproxy.proxy.bridge.explained import GROUPS, PARTITIONS, SETTINGS
from testkit.real.clients.java_clients import LAST_3X_CLIENT, MODERN_CLIENT, compiled
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

pytestmark = pytest.mark.long

Place = tuple[str, int]
SECONDS_MAX = 120
NOT_OFFERED = {
    "deleteConsumerGroups": "DELETE_GROUPS",
    "deleteRecords": "DELETE_RECORDS",
    "describeLogDirs": "DESCRIBE_LOG_DIRS",
}
UNSUPPORTED = "org.apache.kafka.common.errors.UnsupportedVersionException: "


def address(proxy: ProxyProcess) -> str:
    return "{}:{}".format(*proxy.address)


@pytest.mark.parametrize("version", [LAST_3X_CLIENT, MODERN_CLIENT])
def test_javas_exceptions_say_what_to_do_instead(shared_proxy: ProxyProcess, place: Place, version: str) -> None:
    class_path = f"{compiled('RefusedCalls', version)}:{client_class_path(version)}"
    command = [str(java_runtime()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path, "RefusedCalls"]
    ran = subprocess.run(
        [*command, address(shared_proxy), place[0]], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said.pop("final")
    for call, missing in {**NOT_OFFERED, "listOffsets": "LIST_OFFSETS with version in range [7,"}.items():
        assert said.pop(call).startswith(f"{UNSUPPORTED}The node does not support {missing}"), call
    assert "group.protocol=classic" in said.pop("newKindOfGroup")
    assert said == {
        "incrementalAlterConfigs": UNSUPPORTED + SETTINGS,
        "createPartitions": UNSUPPORTED + PARTITIONS,
        "offsetsOfGroups": "no failure",
        "describeConfigs": "null DEFAULT_CONFIG",
        "describeConfigsOfNone": "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "
        "This server does not host this topic-partition.",
        "staticMember": UNSUPPORTED
        + "The broker join group protocol version 2 does not support usage of config group.instance.id.",
    }


def test_librdkafkas_errors_too(shared_proxy: ProxyProcess, place: Place) -> None:
    admin = AdminClient({"bootstrap.servers": address(shared_proxy)})
    (future,) = admin.create_partitions([NewPartitions(place[0], 9)]).values()
    with pytest.raises(KafkaException) as caught:
        future.result(SECONDS_MAX)
    assert caught.value.args[0].str() == PARTITIONS
    topic = ConfigResource(ResourceType.TOPIC, place[0])
    (future,) = admin.describe_configs([topic]).values()
    entry = future.result(SECONDS_MAX)["cleanup.policy"]
    assert (entry.value, entry.is_default, [one.value for one in entry.synonyms.values()]) == (None, True, ["delete"])


def refused(future: Future[object]) -> str:
    """What librdkafka says why."""
    with pytest.raises(KafkaException) as caught:
        future.result(SECONDS_MAX)
    return str(caught.value.args[0].str())


def test_librdkafka_says_what_the_brokers_do_not_have(shared_proxy: ProxyProcess, place: Place) -> None:
    admin = AdminClient({"bootstrap.servers": address(shared_proxy)})
    at = TopicPartition(*place)
    said = {
        "delete_consumer_groups": refused(admin.delete_consumer_groups(["a"])["a"]),
        "delete_records": refused(admin.delete_records([TopicPartition(*place, 0)])[at]),
        "list_offsets": refused(admin.list_offsets({at: OffsetSpec.max_timestamp()})[at]),
    }
    missing = "Local: Required feature not supported by broker"
    assert said == {
        "delete_consumer_groups": missing,
        "delete_records": missing,
        "list_offsets": "Broker: API version not supported",
    }


def _has_failed(consumer: Consumer, errors: list[KafkaError]) -> bool:
    message = consumer.poll(0.1)
    if message is not None and (error := message.error()) is not None:
        errors.append(error)
    return bool(errors)


def test_librdkafkas_consumer_of_the_new_kind_of_group_fails_at_once(shared_proxy: ProxyProcess, place: Place) -> None:
    errors: list[KafkaError] = []
    settings = {"bootstrap.servers": address(shared_proxy), "group.id": "new-kind", "group.protocol": "consumer"}
    consumer = Consumer({**settings, "error_cb": errors.append})
    try:
        consumer.subscribe([place[0]])
        wait_until(lambda: _has_failed(consumer, errors), "an error reaches the user")
    finally:
        consumer.close()
    assert "ConsumerGroupHeartbeat fatal error: Broker: API version not supported" in errors[0].str()
    assert GROUPS in shared_proxy.log


def test_kafka_python_says_what_to_do_instead(shared_proxy: ProxyProcess, place: Place) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address(shared_proxy))
    try:
        with pytest.raises(UnsupportedVersionError, match=r"kafka-topics\.sh --zookeeper --alter"):
            admin.create_partitions({place[0]: 9})
        with pytest.raises(IncompatibleBrokerVersion, match="DeleteGroups"):
            admin.delete_groups(["a"])
        resource = PythonResource(ConfigResourceType.TOPIC, place[0], configs=None)
        found = admin.describe_configs([resource], include_synonyms=True, config_filter="all")
        policy = found["topic"][place[0]]["cleanup.policy"]
        assert policy["value"] is None
        assert [one["value"] for one in policy["synonyms"]] == ["delete"]
    finally:
        admin.close()
