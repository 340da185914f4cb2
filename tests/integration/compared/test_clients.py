"""Real clients that other proxies gave trouble to (compared.md), through the proxy with a real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import iterate_shallow
from idemproxy.demo.fault_relay import FaultPlan, FaultRelay
from idemproxy.demo.jars import client_class_path, java_runtime
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.java_clients import LAST_3X_CLIENT, MODERN_CLIENT, compiled
from testkit.real.clients.raw_client import RawClient
from testkit.real.machine.pinned_packages import folder_with
from testkit.real.proxies.proxy_process import ProxyProcess

Place = tuple[str, int]
SECONDS_MAX = 180
OLD_LIBRDKAFKA = ("confluent-kafka==2.6.1",)
"""Before librdkafka 2.11.1 a broker whose Produce does not begin at version 0 is taken for one without codecs."""
ONE_COMPRESSED_BATCH = """
import sys
from confluent_kafka import Producer, libversion

bootstrap, topic, partition, is_idempotent, codec = sys.argv[1:]
settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": is_idempotent == "True"}
failures = []
producer = Producer({**settings, "linger.ms": 100, "message.timeout.ms": 30000})
for _ in range(100):
    producer.produce(topic, b"a" * 1000, partition=int(partition), on_delivery=lambda e, m: e and failures.append(e))
left = producer.flush(30)
print(libversion()[0])
sys.exit(f"{left} left, {failures[:1]}" if left or failures else 0)
"""


@pytest.mark.promise("compared-2")
@pytest.mark.parametrize("version", [LAST_3X_CLIENT, MODERN_CLIENT])
def test_javas_admin_client_sees_only_the_proxys_own_addresses(shared_proxy: ProxyProcess, version: str) -> None:
    host, port = shared_proxy.address
    class_path = f"{compiled('ClusterDescriber', version)}:{client_class_path(version)}"
    command = [str(java_runtime()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path, "ClusterDescriber"]
    with FaultRelay(shared_proxy.address, rewrite_addresses=True, plan=FaultPlan(faults_max=0)) as relay:
        ran = subprocess.run(
            [*command, relay.address], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
        assert relay.requests[ApiKey.DESCRIBE_CLUSTER, 1] >= 1, "it asks this as soon as it is offered"
    assert ran.returncode == 0, ran.stdout + ran.stderr
    last = json.loads(ran.stdout.splitlines()[-1])
    assert last == {"brokers": [f"{host}:{port + 1}"], "final": True}


@pytest.mark.promise("compared-2")
def test_kafka_pythons_admin_client_too(shared_proxy: ProxyProcess) -> None:
    host, port = shared_proxy.address
    admin = KafkaAdminClient(bootstrap_servers=f"{host}:{port}")
    try:
        found = admin.describe_cluster()
    finally:
        admin.close()
    assert [(one["broker_id"], one["host"], one["port"]) for one in found["brokers"]] == [(0, host, port + 1)]


@pytest.mark.promise("compared-4")
@pytest.mark.parametrize("codec", ["gzip", "lz4"])
@pytest.mark.parametrize("is_idempotent", [True, False])
def test_an_old_librdkafka_keeps_compressing(
    shared_proxy: ProxyProcess, client: RawClient, place: Place, codec: str, is_idempotent: bool
) -> None:
    host, port = shared_proxy.address
    command = [
        sys.executable,
        "-c",
        ONE_COMPRESSED_BATCH,
        f"{host}:{port}",
        *map(str, place),
        str(is_idempotent),
        codec,
    ]
    environment = {**os.environ, "PYTHONPATH": os.fspath(folder_with(*OLD_LIBRDKAFKA))}
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environment, cwd=Path.home()
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.strip() == "2.6.1"
    stored = client.fetch(*place)
    assert {message.codec for message in iterate_shallow(stored)} == {Codec[codec.upper()]}
    assert len(stored) < 20_000, "of 100,000 bytes"
    assert client.end_offset(*place, replica_id=-1) == 100
