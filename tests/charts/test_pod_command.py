"""The command of the rendered pod, run against a real 0.10.2 broker and an external Redis.

Arguments and environment are taken from the manifest as a node would take them; only what belongs to the pod's own
surroundings is replaced: its network by loopback, its volume by a folder.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports
from idemproxy.demo.segments import read_partition

CHART = Path(__file__).resolve().parents[2] / "charts/idemproxy"
RECORDS = 200


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path / "cluster") as cluster:
        cluster.create_topic("orders", 1)
        yield cluster


def neighbouring_ports() -> int:
    """Return a free port whose next one is free too: broker 0 is served there."""
    for port in free_ports(50):
        with socket.socket() as next_one:
            try:
                next_one.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise OSError("no two free ports side by side")


def rendered(helm: Path, **values: str) -> list[dict[str, Any]]:
    settings = [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]
    command = [str(helm), "template", "proxy", str(CHART), "--kube-version", "1.33", *settings]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def environment_of(container: dict[str, Any], manifests: list[dict[str, Any]]) -> dict[str, str]:
    """Return the container's variables, with secrets looked up among the rendered ones."""
    secrets = {item["metadata"]["name"]: item["stringData"] for item in manifests if item["kind"] == "Secret"}
    values = {}
    for variable in container.get("env", []):
        reference = variable.get("valueFrom", {}).get("secretKeyRef")
        values[variable["name"]] = secrets[reference["name"]][reference["key"]] if reference else variable["value"]
    return values


def wait_for_port(port: int, process: "subprocess.Popen[str]", output: Path, seconds: float) -> None:
    """Do what the startup probe does."""
    deadline = time.monotonic() + seconds
    while True:
        assert process.poll() is None, output.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.05)


@pytest.mark.timeout(240)
def test_the_rendered_pods_command_serves_an_idempotent_producer_and_ends_on_sigterm(
    helm: Path, external_redis: str, broker: LegacyCluster, tmp_path: Path
) -> None:
    port = neighbouring_ports()
    values = {"redis__url": external_redis, "service__bootstrapPort": str(port), "advertisedHost": "127.0.0.1"}
    manifests = rendered(helm, upstream=broker.bootstrap, **values)
    (workload,) = (manifest for manifest in manifests if manifest["kind"] == "StatefulSet")
    pod = workload["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (volume,) = (mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "data")
    environment = environment_of(container, manifests)
    arguments = [re.sub(r"\$\((\w+)\)", lambda name: environment[name.group(1)], text) for text in container["args"]]
    here = [text.replace("0.0.0.0", "127.0.0.1").replace(volume, str(tmp_path / "data")) for text in arguments]

    output = tmp_path / "proxy.log"
    with output.open("w") as log:
        command = [sys.executable, "-m", "idemproxy", *here]
        process = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log, text=True)
    try:
        probe = container["startupProbe"]
        wait_for_port(port, process, output, probe["periodSeconds"] * probe["failureThreshold"])
        errors = produce(f"127.0.0.1:{port}")
        assert errors == [], output.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=pod["terminationGracePeriodSeconds"]) == 0, output.read_text()
    finally:
        process.kill()
        process.wait()
    stored = [record.value for record in read_partition(broker.log_directories[0], "orders", 0)]
    assert stored == [b"%d" % number for number in range(RECORDS)]


def produce(bootstrap: str) -> list[str]:
    """Send numbered records with an idempotent producer and return what went wrong."""
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
    for number in range(RECORDS):
        producer.produce(
            "orders", b"%d" % number, on_delivery=lambda error, _: errors.append(str(error)) if error else None
        )
        producer.poll(0)
    unsent = producer.flush(60)
    return errors + [f"{unsent} records were not sent"] * bool(unsent)
