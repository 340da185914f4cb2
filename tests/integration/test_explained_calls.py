"""Calls that no old broker can serve, or not as asked: what real clients tell their users. None waits for nothing."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, OffsetSpec, ResourceType
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType
from kafka.errors import IncompatibleBrokerVersion, UnsupportedVersionError

from idemproxy.demo.jars import client_class_path, java_runtime
from idemproxy.proxy.bridge.explained import GROUPS, PARTITIONS, SETTINGS
from testkit.real.java_clients import LAST_3X_CLIENT, MODERN_CLIENT, compiled
from testkit.real.proxy_process import ProxyProcess

Place = tuple[str, int]
SECONDS_MAX = 120
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
    assert said == {}


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
