"""The admin port of a real proxy process in front of a real broker: health, metrics, JSON, and what a fault shows."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from idemproxy.demo.fault_relay import FaultKind, FaultPlan, FaultRelay
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy.telemetry.metric_names import METRICS, OF_JOURNAL
from testkit.real.brokers.kafka_cluster import fresh_topic, librdkafka_settings, produce
from testkit.real.proxies.proxy_process import QUIET_SECONDS_MAX, ProxyProcess, wait_until
from testkit.real.proxies.two_proxies_relays import Keeping, KeepingRelay
from testkit.real.store.two_proxies_redis import ExternalRedis


class Answer(NamedTuple):
    """One HTTP answer."""

    status: int
    headers: Mapping[str, str]
    text: str


class AdminPort:
    """Asks one proxy's admin port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, method: str = "GET") -> Answer:
        request = urllib.request.Request(f"http://{HOST}:{self.port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Answer(answer.status, dict(answer.headers), answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers), error.read().decode())

    def page(self) -> Any:
        """All that the status page shows."""
        return json.loads(self.get("/api/v1/page").text)

    def metrics(self) -> dict[str, float]:
        """Every series of /metrics, by its name and labels."""
        lines = [line for line in self.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {name: float(number) for name, _, number in (line.rpartition(" ") for line in lines)}


@pytest.fixture
def admin() -> AdminPort:
    (port,) = free_ports(1)
    return AdminPort(port)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path_factory.mktemp("cluster"), auto_create_topics=False, session_timeout_ms=8000) as one:
        yield one


@pytest.fixture(scope="module")
def shared(
    cluster: LegacyCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ProxyProcess, AdminPort]]:
    """A proxy to which nothing happens, for tests that take a topic of their own."""
    (port,) = free_ports(1)
    directory = tmp_path_factory.mktemp("shared")
    with ProxyProcess(directory, cluster.address(0), options=options(AdminPort(port))) as proxy:
        yield proxy, AdminPort(port)


def options(admin: AdminPort) -> tuple[str, ...]:
    return ("--admin-bind", f"{HOST}:{admin.port}")


def settings_of(proxy: ProxyProcess, client_id: str = "orders-service") -> dict[str, Any]:
    host, port = proxy.address
    return {**librdkafka_settings(f"{host}:{port}", enable_idempotence=True), "client.id": client_id}


def test_a_proxy_tells_that_it_is_ready_and_what_it_has_done(
    cluster: LegacyCluster, admin: AdminPort, tmp_path: Path
) -> None:
    topic = fresh_topic(cluster, partitions=2)
    with ProxyProcess(tmp_path, cluster.address(0), options=options(admin)) as proxy:
        assert admin.get("/livez")[::2] == (200, "ok\n")
        assert admin.get("/readyz")[::2] == (200, "ok\n")
        produce(settings_of(proxy), topic, 2, 100)
        metrics = admin.metrics()
        sent = metrics["idemproxy_appends_sent_total"]
        answered = metrics['idemproxy_batches_answered_total{verdict="appended"}']
        assert 0 < sent <= answered <= 100
        for time in ("client_to_broker", "broker", "broker_to_client", "batch"):
            assert metrics[f"idemproxy_{time}_duration_seconds_count"] == answered
            assert 0 < metrics[f"idemproxy_{time}_duration_seconds_sum"] < 10 * answered
        assert metrics["idemproxy_redis_round_trip_duration_seconds_count"] > 0
        assert metrics['idemproxy_requests_received_total{api="produce"}'] >= 1
        assert metrics['idemproxy_requests_received_total{api="init_producer_id"}'] == 1
        assert [metrics[f"idemproxy_{name}"] for name in ("ready", "redis_up", "unknown_outcomes_open")] == [1, 1, 0]
        assert 0 < metrics["idemproxy_lease_remaining_seconds"] <= 5
        assert metrics['idemproxy_broker_up{broker="0"}'] == 1
        assert metrics['idemproxy_produce_connections_open{broker="0",state="busy"}'] == 0
        assert metrics["process_resident_memory_bytes"] > 1e7
        page = admin.page()
        status = page["status"]
        assert (status["ready"], status["not_ready"], status["concerns"]) == (True, [], [])
        assert status["totals"]["batches"] == answered
        assert status["redis"]["connected"] is True
        wait_until(lambda: "idemproxy_redis_memory_used_bytes" in admin.metrics(), "Redis has told how full it is")
        assert admin.metrics()["idemproxy_redis_memory_limit_bytes"] == 0
        assert admin.metrics()["idemproxy_redis_memory_used_bytes"] > 100_000
        (broker,) = page["brokers"]
        assert broker["address"].endswith(f":{cluster.address(0)[1]}")
        assert (broker["id"], broker["ready"], broker["version"]) == (0, True, "0.10.2")
        found = page["producers"]
        assert found["in_memory"] == 2
        assert {(one["topic"], one["partition"]) for one in found["producers"]} == {(topic, 0), (topic, 1)}
        assert all(1 <= len(one["window"]) <= 5 for one in found["producers"])
        assert page["unknown_outcomes"] == []
        assert proxy.stop() == 0


def test_every_metric_has_its_name_its_type_and_its_help_on_the_page(
    shared: tuple[ProxyProcess, AdminPort],
) -> None:
    wait_until(lambda: "idemproxy_redis_memory_used_bytes" in shared[1].metrics(), "Redis has told how full it is")
    answer = shared[1].get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    told = dict(re.findall(r"^# TYPE (idemproxy_\S+) (\S+)$", answer.text, re.MULTILINE))
    helped = dict(re.findall(r"^# HELP (idemproxy_\S+) (.+)$", answer.text, re.MULTILINE))
    expected = {metric.prometheus_name: metric.kind for metric in METRICS}
    assert set(told.items()) <= set(expected.items())
    without_series = {metric.prometheus_name for metric in METRICS if metric.labels or metric in OF_JOURNAL}
    assert set(expected) - set(told) <= without_series, "only what has no series yet is left out"
    assert helped == {metric.prometheus_name: metric.help for metric in METRICS if metric.prometheus_name in told}


def test_a_lost_answer_is_a_duplicate_prevented_that_names_its_client(
    cluster: LegacyCluster, shared: tuple[ProxyProcess, AdminPort]
) -> None:
    """The answer to the client is lost, so it sends the batch again, which is in the log."""
    proxy, admin = shared
    topic = fresh_topic(cluster, partitions=1)
    plan = FaultPlan(kinds=[FaultKind.LOST_ANSWER], every_nth_produce=2, faults_max=1)
    with FaultRelay(proxy.address, rewrite_addresses=True, plan=plan) as relay:
        settings = settings_of(proxy) | {"bootstrap.servers": f"127.0.0.1:{relay.port}", "linger.ms": 0}
        acknowledged = produce(settings, topic, 1, 200)
        assert relay.counts[FaultKind.LOST_ANSWER] == 1
    assert len(acknowledged) == 200
    series = f'idemproxy_duplicates_prevented_total{{client_id="orders-service",how="answered",topic="{topic}"}}'
    assert admin.metrics()[series] >= 1
    page = admin.page()
    (duplicate,) = (one for one in page["duplicates"] if one["topic"] == topic)
    assert duplicate["client_id"] == "orders-service"
    assert page["status"]["totals"]["duplicates_prevented"] >= 1
    assert any(line["text"].startswith("duplicate: producer") for line in page["events"])


def test_an_unknown_outcome_is_shown_with_its_age_until_it_is_resolved(
    cluster: LegacyCluster, admin: AdminPort, tmp_path: Path
) -> None:
    topic = fresh_topic(cluster, partitions=1)
    plan = FaultPlan(kinds=[FaultKind.LOST_ANSWER], every_nth_produce=1, faults_max=1)
    seen: list[Any] = []
    metrics: dict[str, float] = {}
    with (
        FaultRelay(cluster.address(0), rewrite_addresses=True, plan=plan) as relay,
        ProxyProcess(tmp_path, ("127.0.0.1", relay.port), options=options(admin)) as proxy,
    ):
        sending = threading.Thread(target=produce, args=(settings_of(proxy), topic, 1, 1))
        sending.start()

        def look() -> bool:
            metrics.update(admin.metrics())
            seen[:] = admin.page()["unknown_outcomes"]
            return bool(seen) and metrics["idemproxy_unknown_outcomes_open"] == 1

        wait_until(look, "an unknown outcome is shown and counted")
        sending.join()
        (unknown_outcome,) = seen
        assert (unknown_outcome["topic"], unknown_outcome["partition"], unknown_outcome["base_sequence"]) == (
            topic,
            0,
            0,
        )
        assert 0 <= unknown_outcome["age_seconds"] < QUIET_SECONDS_MAX
        wait_until(lambda: admin.page()["unknown_outcomes"] == [], "the unknown outcome is gone")
        assert admin.metrics()['idemproxy_unknown_outcomes_resolved_total{result="found"}'] == 1
        assert admin.metrics()["idemproxy_unknown_outcome_duration_seconds_count"] == 1


@pytest.mark.promise("compared-17")
def test_a_proxy_without_redis_is_alive_and_says_why_it_is_not_ready(
    cluster: LegacyCluster, admin: AdminPort, tmp_path: Path
) -> None:
    with ProxyProcess(tmp_path, cluster.address(0), options=options(admin)) as proxy:
        proxy.kill_redis()

        def says_so() -> bool:
            found = admin.get("/readyz")
            is_away = found.status == 503 and "Redis is away" in found.text and admin.get("/livez").status == 200
            return is_away and admin.metrics()["idemproxy_ready"] == 0 and bool(admin.page()["status"]["not_ready"])

        wait_until(says_so, "it is alive, not ready, and says why")
        wait_until(lambda: admin.get("/readyz").status == 200, "it is ready again", 30)


@pytest.mark.promise("compared-17")
def test_readyz_without_redis_passes_only_for_a_proxy_that_had_redis(
    cluster: LegacyCluster, admin: AdminPort, tmp_path: Path
) -> None:
    """What the chart's pods are asked: consumers and producers without idempotence find them while Redis is away."""
    without = "/readyz?exclude=redis"
    topic = fresh_topic(cluster, partitions=1)
    with ExternalRedis() as redis:
        url = "redis://{}:{}/0".format(*redis.address)
        with ProxyProcess(tmp_path, cluster.address(0), options=(*options(admin), "--redis", url)) as proxy:
            assert admin.get(without)[::2] == (200, "ok\n")
            redis.kill()
            wait_until(lambda: admin.get("/readyz").status == 503, "it is not ready")
            assert admin.get(without)[::2] == (200, "ok\n")
            assert admin.metrics()["idemproxy_ready"] == 0
            plain = settings_of(proxy) | {"enable.idempotence": False}
            assert len(produce(plain, topic, 1, 10)) == 10
            proxy.kill()
            proxy.launch()

            def answer() -> Answer | None:
                with contextlib.suppress(OSError):
                    return admin.get(without)
                return None

            wait_until(lambda: answer() is not None, "the next life answers")
            for _ in range(10):
                assert (found := answer()) is not None
                assert found.status == 503
                assert "no port is open for clients" in found.text
                assert "Redis" not in found.text
                time.sleep(0.2)
            redis.start()
            wait_until(lambda: admin.get(without).status == 200, "it is ready again", 30)


def test_a_check_of_another_name_is_refused_with_those_that_there_are(shared: tuple[ProxyProcess, AdminPort]) -> None:
    _, admin = shared
    found = admin.get("/readyz?exclude=redis&exclude=kafka")
    assert found.status == 400
    assert (
        found.text
        == "exclude='kafka': there is no such check; known are draining, redis, brokers, listeners, journal\n"
    )
    assert admin.get("/readyz?exclude=").status == 400
    assert admin.get("/readyz?exclude=redis&exclude=brokers").status == 200


def test_a_proxy_whose_brokers_are_away_says_so(admin: AdminPort, tmp_path: Path) -> None:
    (nobody,) = free_ports(1)
    proxy = ProxyProcess(tmp_path, (HOST, nobody), options=options(admin))
    try:
        proxy.launch()

        def tells() -> bool:
            try:
                return "no broker has answered yet" in admin.get("/readyz").text
            except OSError:
                return False

        wait_until(tells, "it says what is missing")
        assert admin.get("/livez").status == 200
        assert admin.get("/metrics").status == 200
    finally:
        proxy.__exit__()


def test_what_cannot_be_used_is_refused_and_changes_nothing(shared: tuple[ProxyProcess, AdminPort]) -> None:
    _, admin = shared
    assert admin.get("/api/v1/producers?producer_id=-1").status == 400
    assert admin.get("/api/v1/nothing").status == 404
    assert admin.get("/api/v1/page", "POST").status == 405
    assert admin.get("/metrics", "DELETE").status == 405
    page = admin.get("/")
    assert page.status == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"


def test_who_sends_half_a_request_is_hung_up_on_and_holds_nobody_up(shared: tuple[ProxyProcess, AdminPort]) -> None:
    _, admin = shared
    begun = time.monotonic()  # before the first one connects: that is when its time begins
    half = [socket.create_connection((HOST, admin.port), timeout=30) for _ in range(50)]
    try:
        for one in half:
            one.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
        assert admin.get("/livez").status == 200
        assert time.monotonic() - begun < 9, "not as long as the others are borne with"
        for one in half:
            while one.recv(4096):
                pass
        assert 5 < time.monotonic() - begun < 60
    finally:
        for one in half:
            one.close()


def test_garbage_and_resets_leave_the_port_as_it_was(shared: tuple[ProxyProcess, AdminPort]) -> None:
    _, admin = shared
    garbage = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 5_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 200,
        b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\nbody",
        b"GET /api/v1/page HTTP/1.1\r\nHost: x\r\n\r\n",
        b"",
    ]
    for number in range(10 * len(garbage)):
        with socket.create_connection((HOST, admin.port), timeout=5) as one:
            with contextlib.suppress(OSError):
                one.sendall(garbage[number % len(garbage)])
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the close is a reset
    assert admin.get("/readyz").status == 200
    assert admin.metrics()["idemproxy_internal_errors_total"] == 0


def test_a_port_in_use_is_one_sentence_and_the_end(cluster: LegacyCluster, admin: AdminPort, tmp_path: Path) -> None:
    with ProxyProcess(tmp_path / "one", cluster.address(0), options=options(admin)):
        other = ProxyProcess(tmp_path / "other", cluster.address(0), options=options(admin))
        try:
            other.launch()
            assert other.wait() == 2
            assert f"admin: cannot listen on {HOST}:{admin.port}: address already in use" in other.log
        finally:
            other.__exit__()


@pytest.mark.promise("compared-17")
def test_a_proxy_that_drains_is_not_ready(cluster: LegacyCluster, admin: AdminPort, tmp_path: Path) -> None:
    """The end waits for an append that the broker does not answer: load balancers have to see it."""
    topic = fresh_topic(cluster, partitions=1)
    with (
        KeepingRelay(cluster.address(0)) as relay,
        ProxyProcess(tmp_path, ("127.0.0.1", relay.port), options=options(admin)) as proxy,
    ):
        relay.keep(Keeping.ANSWERS)
        sending = threading.Thread(target=produce, args=(settings_of(proxy), topic, 1, 1))
        sending.start()
        wait_until(lambda: relay.kept > 0, "an append is not answered")
        proxy.signal(signal.SIGTERM)
        wait_until(lambda: "draining" in admin.get("/readyz").text, "it says that it drains")
        assert admin.get("/livez").status == 200
        relay.let_go()
        assert proxy.wait() == 0
        sending.join()
