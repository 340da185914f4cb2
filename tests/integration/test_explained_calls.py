"""Admin calls that no old broker can serve: what real clients tell their users."""

from __future__ import annotations

import json
import subprocess

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType
from kafka.errors import UnsupportedVersionError

from idemproxy.demo.jars import client_class_path, java_runtime
from idemproxy.proxy.bridge.explained import PARTITIONS, SETTINGS
from testkit.real.java_clients import LAST_3X_CLIENT, MODERN_CLIENT, compiled
from testkit.real.proxy_process import ProxyProcess

Place = tuple[str, int]
SECONDS_MAX = 60


@pytest.mark.parametrize("version", [LAST_3X_CLIENT, MODERN_CLIENT])
def test_javas_exceptions_say_what_to_do_instead(shared_proxy: ProxyProcess, place: Place, version: str) -> None:
    class_path = f"{compiled('RefusedCalls', version)}:{client_class_path(version)}"
    command = [str(java_runtime()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path, "RefusedCalls"]
    command += ["{}:{}".format(*shared_proxy.address), place[0]]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kind = "org.apache.kafka.common.errors.UnsupportedVersionException: "
    assert json.loads(ran.stdout.splitlines()[-1]) == {
        "describeConfigs": kind + SETTINGS,
        "incrementalAlterConfigs": kind + SETTINGS,
        "createPartitions": kind + PARTITIONS,
        "final": True,
    }


def test_librdkafkas_errors_too(shared_proxy: ProxyProcess, place: Place) -> None:
    admin = AdminClient({"bootstrap.servers": "{}:{}".format(*shared_proxy.address)})
    topic = ConfigResource(ResourceType.TOPIC, place[0])
    for futures, sentence in (
        (admin.describe_configs([topic]), SETTINGS),
        (admin.create_partitions([NewPartitions(place[0], 9)]), PARTITIONS),
    ):
        for future in futures.values():
            with pytest.raises(KafkaException) as caught:
                future.result(SECONDS_MAX)
            assert caught.value.args[0].str() == sentence


def test_kafka_pythons_error_too_and_it_has_no_settings(shared_proxy: ProxyProcess, place: Place) -> None:
    admin = KafkaAdminClient(bootstrap_servers="{}:{}".format(*shared_proxy.address))
    try:
        with pytest.raises(UnsupportedVersionError, match=r"kafka-topics\.sh --zookeeper --alter"):
            admin.create_partitions({place[0]: 9})
        found = admin.describe_configs([PythonResource(ConfigResourceType.TOPIC, place[0])])
        assert found == {"topic": {place[0]: {}}}, "it does not look at the code"
    finally:
        admin.close()
