"""Brokers that cannot be served, and what the proxy does about them: at its start, under a running one, in ``check``.

Those of message format v0; where the proxy gives idempotence, those with producer ids of their own that store format
v2, as a lost answer could not be found out there; and where the brokers give it, those that have no producer ids."""

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, neighbouring_ports
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

pytestmark = pytest.mark.long

OLD_FORMAT = {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"}
IGNORED_FORMAT = {"log.message.format.version": "0.10.2"}
"""From 3.0 on, unless the protocol between brokers is held below it as well."""
TOPIC = "orders"
ENDED_SECONDS_MAX = 90.0
BACK_SECONDS_MAX = 60.0
WATCHED_SECONDS = 4.0
RETRIABLE = (5, 6, 7, 19)


def errors_in(log: str) -> list[str]:
    """The lines of a log at level error, and whatever is no line of a log."""
    return [line for line in log.splitlines() if " INFO " not in line and " WARNING " not in line]


def insist(proxy: ProxyProcess, sequence: int, producer_id: int | None = None) -> tuple[int, int]:
    """Produce a batch until it is appended; return the producer's id and the offset."""
    end = time.monotonic() + BACK_SECONDS_MAX
    while True:
        try:
            with RawClient(proxy.address) as client:
                producer_id = client.new_producer_id() if producer_id is None else producer_id
                answer = client.produce_one(TOPIC, 0, batch([b"value"], producer_id=producer_id, sequence=sequence))
            if answer.error_code == 0:
                return producer_id, answer.base_offset
        except OSError:
            pass
        assert time.monotonic() < end, proxy.log[-2000:]
        time.sleep(0.2)


def end_offset(address: tuple[str, int]) -> int:
    """The log end offset, once the broker knows that it leads the partition: that may be seconds after its start."""
    end = time.monotonic() + BACK_SECONDS_MAX
    while True:
        try:
            with RawClient(address) as client:
                return client.end_offset(TOPIC, 0)
        except AssertionError:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


def check(directory: Path, address: tuple[str, int], idempotence: str = "auto") -> tuple[int, str]:
    """Exit status and output of ``idemproxy check --connect``."""
    file = directory / "check.yaml"
    upstream = {"bootstrap": ["{}:{}".format(*address)], "idempotence": idempotence}
    listeners = [{"bind": f"{HOST}:{neighbouring_ports(2)}"}]  # by default 9092 and 9093, which others may have
    settings = {"upstream": upstream, "data_directory": str(directory / "data"), "listeners": listeners}
    file.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-P", "-m", "idemproxy", "check", str(file), "--connect"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.promise("brokers-before-0-10", "brokers-from-0-11")
@pytest.mark.parametrize(
    ("version", "settings", "idempotence", "why"),
    [
        ("0.8.2.2", {}, "auto", "Kafka 0.8.2 stores message format v0 only"),
        ("0.9.0.1", {}, "auto", "Kafka 0.9.0 stores message format v0 only"),
        ("0.10.2.2", {}, "native", "it has no producer ids of its own"),
        ("3.9.1", IGNORED_FORMAT, "proxy", "all brokers store message format v2"),
    ],
)
def test_a_start_before_brokers_that_cannot_be_served_ends_with_one_sentence(
    tmp_path: Path, version: str, settings: Mapping[str, str], idempotence: str, why: str
) -> None:
    with LegacyCluster(tmp_path / "kafka", version=version, broker_settings=settings) as cluster:
        proxy = ConfiguredProxy(
            tmp_path / "proxy",
            {"upstream": {"bootstrap": ["{}:{}".format(*cluster.address(0))], "idempotence": idempotence}},
            listener={},
        )
        proxy.launch()
        try:
            assert proxy.wait(ENDED_SECONDS_MAX) == 2
            (error,) = errors_in(proxy.log)
            assert why in error
            assert "cannot be served: " in error or idempotence == "proxy"  # these could be, natively
            assert "point clients at" not in proxy.log
        finally:
            proxy.__exit__()
        status, told = check(tmp_path, cluster.address(0), idempotence)
        assert status == 1
        assert any(line.startswith("PROBLEM ") and why in line for line in told.splitlines()), told


@pytest.mark.promise("brokers-from-0-11")
def test_an_upgraded_broker_is_served_while_it_keeps_message_format_v1(tmp_path: Path) -> None:
    """After that it is read, and gets no batch; the proxy keeps running, and serves it again in message format v1."""
    kafka = tmp_path / "kafka"
    with LegacyCluster(kafka) as cluster:
        address = cluster.address(0)
        cluster.create_topic(TOPIC)
        proxy = ProxyProcess(tmp_path / "proxy", address)
        with proxy:
            producer_id, offset = insist(proxy, 0)
            assert offset == 0
            become(cluster, OLD_FORMAT)
            assert insist(proxy, 1, producer_id) == (producer_id, 1)
            proxy.wait_for_log("broker 0 has producer ids of its own, and is served as long as it stores .* 0.10.2;")
            status, told = check(tmp_path, address)
            assert (status, "is served as long as it stores message format 0.10.2" in told) == (0, True), told

            become(cluster, {})
            proxy.wait_for_log("broker 0 at .* stores message format 1.1-IV0, .* batches .* wait")
            with RawClient(proxy.address) as client:
                answer = client.produce_one(TOPIC, 0, batch([b"value"], producer_id=producer_id, sequence=2))
                assert answer.error_code in RETRIABLE
                assert client.end_offset(TOPIC, 0) == 2

            become(cluster, OLD_FORMAT)
            assert insist(proxy, 1, producer_id) == (producer_id, 1)
            assert insist(proxy, 2, producer_id) == (producer_id, 2)
            assert errors_in(proxy.log) == []


def become(cluster: LegacyCluster, settings: Mapping[str, str]) -> None:
    cluster.stop_broker(0)
    cluster.become("1.1.1", dict(settings))
    cluster.start_broker(0)


def test_native_mode_does_not_serve_a_kafka_0_10_broker_until_upgraded(
    tmp_path: Path,
) -> None:
    """Nor does a client reach it: the proxy passes nothing on to it."""
    with LegacyCluster(tmp_path / "kafka", version="1.1.1") as cluster:
        cluster.create_topic(TOPIC)
        proxy = ProxyProcess(tmp_path / "proxy", cluster.address(0))
        with proxy:
            proxy.wait_for_log("upstream.idempotence: native")
            status, told = check(tmp_path, cluster.address(0))
            assert status == 0, told
            assert "gives producer ids itself: requests pass through (native)" in told
            assert "may be another service" not in told + proxy.log
            cluster.stop_broker(0)
            cluster.become("0.10.2.2", {})
            cluster.start_broker(0)
            proxy.wait_for_log("broker 0 at .* cannot be served: it has no producer ids of its own")
            with RawClient(proxy.address) as client:
                client.send(18, 0, b"")
                assert client.is_closed()
            cluster.stop_broker(0)
            cluster.become("1.1.1", {})
            cluster.start_broker(0)
            proxy.wait_for_log("broker 0 at .* is back")
            with RawClient(proxy.address) as client:
                assert client.new_producer_id() >= 0
            assert len(errors_in(proxy.log)) == 1, proxy.log


@pytest.mark.promise("brokers-before-0-10")
def test_a_broker_downgraded_to_0_9_is_logged_once_and_later_served(
    tmp_path: Path,
) -> None:
    with LegacyCluster(tmp_path / "kafka") as cluster:
        cluster.create_topic(TOPIC)
        with ProxyProcess(tmp_path / "proxy", cluster.address(0)) as proxy:
            producer_id, _ = insist(proxy, 0)
            cluster.stop_broker(0)
            cluster.become("0.9.0.1", {})
            cluster.start_broker(0)
            proxy.wait_for_log("broker 0 at .* cannot be served: Kafka 0.9.0 stores message format v0 only")
            time.sleep(WATCHED_SECONDS)
            cluster.stop_broker(0)
            cluster.become("0.10.2.2", {})
            cluster.start_broker(0)
            assert insist(proxy, 1, producer_id) == (producer_id, 1)
            wait_until(lambda: "broker 0 at {}:{} is back".format(*cluster.address(0)) in proxy.log, "it is back")
            assert len(errors_in(proxy.log)) == 1, proxy.log
            assert proxy.log.count("is away") <= 2 * 2, proxy.log
