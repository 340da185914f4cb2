"""Rendered pods, really started against a real 0.10.2 broker: the proxy with its rendered configuration and an external
Redis, the Redis that the chart can bring, and what `helm test` runs."""

import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme
from charts.conftest import REDIS_PASSWORD
from charts.node import PROXY, NodePod
from charts.rendering import one, pod_of, render
from confluent_kafka import Producer

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports, neighbouring_ports
from idemproxy.demo.segments import read_partition
from idemproxy.proxy.telemetry.metric_names import METRICS, OF_JOURNAL
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.store.redis_process import server_binary

RECORDS = 200


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path / "cluster") as cluster:
        cluster.create_topic("orders", 1)
        yield cluster


def values_for(broker: LegacyCluster, port: int) -> dict[str, Any]:
    return {
        "upstream__bootstrap": [broker.bootstrap],
        "listeners__clients__port": port,
        "admin__port": free_ports(1)[0],
    }


def produce(bootstrap: str, **settings: str) -> list[str]:
    """Send numbered records with an idempotent producer and return what went wrong."""
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, **settings})
    for number in range(RECORDS):
        producer.produce(
            "orders", b"%d" % number, on_delivery=lambda error, _: errors.append(str(error)) if error else None
        )
        producer.poll(0)
    unsent = producer.flush(60)
    return errors + [f"{unsent} records were not sent"] * bool(unsent)


def stored(broker: LegacyCluster) -> list[bytes | None]:
    return [record.value for record in read_partition(broker.log_directories[0], "orders", 0)]


def helm_test(manifests: list[dict[str, Any]], ids: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run what `helm test` runs; the names of Services stand for this machine. ``ids``: not those listed."""
    (container,) = one(manifests, "Pod", "proxy-idemproxy-test")["spec"]["containers"]
    code, seconds, admin, listed, *listeners = container["args"]
    assert [container["command"], float(seconds)] == [["python", "-c"], 60]
    services = {item["metadata"]["name"] for item in manifests if item["kind"] == "Service"}
    assert {re.split("[/:]+", place)[-2] for place in (admin, listeners[0].removesuffix(":tls"))} == services
    here = [re.sub(r"proxy-idemproxy-\w+", "127.0.0.1", word) for word in (admin, ids or listed, *listeners)]
    return subprocess.run([sys.executable, "-c", code, "5", *here], capture_output=True, text=True, timeout=240)


@pytest.mark.timeout(240)
def test_the_rendered_pods_command_serves_an_idempotent_producer_and_ends_on_sigterm(
    helm: Path, external_redis: str, broker: LegacyCluster, tmp_path: Path
) -> None:
    port = neighbouring_ports(2)
    values = values_for(broker, port)
    manifests = render(helm, redis__url=external_redis, **values)
    with NodePod(tmp_path / "pod", manifests, pod_of(manifests), {}) as pod:
        pod.start(PROXY).wait_until_ready()
        assert pod.probe("readinessProbe")[0] == pod.probe("livenessProbe")[0] == 200
        wait_until(lambda: "\nidemproxy_redis_memory_used_bytes" in pod.get("/metrics")[1], "Redis has told its memory")
        # Alerts look for increases: what is counted has to be there from the start, with 0.
        shown = pod.get("/metrics")[1]
        missing = [one for one in METRICS if not one.labels and f"\n{one.prometheus_name}" not in shown]
        assert missing == [*OF_JOURNAL], "no journal is kept"
        assert produce(f"127.0.0.1:{port}") == [], pod.output.read_text()
        told = helm_test(manifests)
        assert told.returncode == 0, told.stdout + told.stderr
        assert f"127.0.0.1:{port}: brokers 0 at 127.0.0.1:{port + 1}" in told.stdout
        forgotten = helm_test(manifests, ids="1,2")
        assert (forgotten.returncode, "add it to upstream.brokerIds" in forgotten.stderr) == (1, True)
        assert "no client is told of broker 0" in forgotten.stderr
        pod.process.send_signal(signal.SIGTERM)
        assert pod.process.wait(timeout=pod.pod["terminationGracePeriodSeconds"]) == 0, pod.output.read_text()
    assert stored(broker) == [b"%d" % number for number in range(RECORDS)]


@pytest.mark.timeout(240)
def test_certificates_and_the_password_of_redis_reach_the_proxy_as_files(
    helm: Path, external_redis: str, broker: LegacyCluster, tmp_path: Path
) -> None:
    port = neighbouring_ports(2)
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    secrets = {
        "login": {"password": REDIS_PASSWORD},
        "server": {
            "tls.crt": b"".join(blob.bytes() for blob in certificate.cert_chain_pems).decode(),
            "tls.key": certificate.private_key_pem.bytes().decode(),
        },
    }
    values = values_for(broker, port) | {
        "redis__url": external_redis.replace(f":{REDIS_PASSWORD}@", ""),
        "redis__username": "default",
        "redis__passwordSecret__name": "login",
        "listeners__clients__tls": {"enabled": True, "secretName": "server"},
    }
    manifests = render(helm, **values)
    with NodePod(tmp_path / "pod", manifests, pod_of(manifests), secrets) as pod:
        pod.start(PROXY).wait_until_ready()
        settings = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")}
        assert produce(f"127.0.0.1:{port}", **settings) == [], pod.output.read_text()
        told = helm_test(manifests)
        assert told.returncode == 0, told.stdout + told.stderr
    assert stored(broker) == [b"%d" % number for number in range(RECORDS)]


class TlsClient(RawClient):
    """A client that asks for a name and insists on a certificate for it."""

    def __init__(self, port: int, name: str, authority: Path) -> None:
        super().__init__(("127.0.0.1", port))
        self._socket = ssl.create_default_context(cafile=str(authority)).wrap_socket(self._socket, server_hostname=name)


@pytest.mark.promise("compared-14")
@pytest.mark.timeout(240)
def test_with_sni_certificate_services_and_metadata_have_the_same_names(
    helm: Path, external_redis: str, broker: LegacyCluster, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    manager = {"enabled": True, "issuerRef": {"name": "inside"}}
    values = values_for(broker, port) | {
        "redis__url": external_redis,
        "listeners__clients__routing": "sni",
        "listeners__clients__tls": {"enabled": True, "certManager": manager},
    }
    manifests = render(helm, **values)
    asked = one(manifests, "Certificate", "proxy-idemproxy-clients")["spec"]
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = authority.issue_cert(*asked["dnsNames"])
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems).decode()
    secrets = {asked["secretName"]: {"tls.crt": chain, "tls.key": issued.private_key_pem.bytes().decode()}}
    with NodePod(tmp_path / "pod", manifests, pod_of(manifests), secrets, keeps_names=True) as pod:
        pod.start(PROXY).wait_until_ready()
        services = {item["metadata"]["name"] for item in manifests if item["kind"] == "Service"}
        for name in asked["dnsNames"]:
            assert name.removesuffix(".streams.svc.cluster.local") in services
            with TlsClient(port, name, tmp_path / "ca.pem") as client:
                (told,) = client.ask(ApiKey.METADATA, 1, topics=None).brokers
                assert (told.host, told.port) == (asked["dnsNames"][-1], port)


@pytest.mark.timeout(120)
def test_helm_test_fails_with_the_reason_where_a_client_would_not_get_through(helm: Path, tmp_path: Path) -> None:
    port, admin = free_ports(2)
    values: dict[str, Any] = {"upstream__bootstrap": ["127.0.0.1:1"], "redis__embedded": True, "admin__port": admin}
    manifests = render(helm, **values, listeners__clients__port=port)
    with NodePod(tmp_path / "pod", manifests, pod_of(manifests), {}) as pod:
        pod.start(PROXY)
        deadline = time.monotonic() + 60
        while pod.probe("livenessProbe")[0] != 200:
            assert time.monotonic() < deadline, pod.output.read_text()
            time.sleep(0.1)
        status, reasons = pod.probe("readinessProbe")
        assert status == 503
        told = helm_test(manifests)
    assert told.returncode == 1
    assert "failed: " in told.stderr
    assert "503" in told.stderr
    assert reasons != ""


@pytest.mark.parametrize(
    "password", ["it's $HOME and more", 'a\\nb"c', '\\"', "$(id) `id` ${HOME}", "%s %d", "a\\", r"\x41\\", "'"]
)
def test_the_charts_own_redis_starts_with_its_settings_and_asks_for_the_password(
    helm: Path, tmp_path: Path, password: str
) -> None:
    (port,) = free_ports(1)
    values: dict[str, Any] = {
        "redis__bundled__enabled": True,
        "redis__passwordSecret": {"name": "login", "key": "secret"},
    }
    manifests = render(helm, upstream__bootstrap=["kafka:9092"], **values)
    settings = one(manifests, "ConfigMap", "proxy-idemproxy-redis")["data"]
    settings["redis.conf"] = settings["redis.conf"].replace("port 6379", f"port {port}")
    secrets = {"login": {"secret": password}}
    with NodePod(tmp_path / "pod", manifests, pod_of(manifests, "proxy-idemproxy-redis"), secrets) as pod:
        programs = tmp_path / "programs"
        programs.mkdir()
        (programs / "redis-server").symlink_to(server_binary())
        pod.start([], path=str(programs))
        client = redis.Redis(port=port, password=password)
        deadline = time.monotonic() + 20
        while not answers(client):
            assert pod.process.poll() is None, pod.output.read_text()
            assert time.monotonic() < deadline, pod.output.read_text()
            time.sleep(0.05)
        wanted = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "save": ""}
        seen = {name: client.config_get(name)[name] for name in wanted}
        assert seen == wanted
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()
        assert password not in (Path("/proc") / str(pod.process.pid) / "cmdline").read_text()
        client.close()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
