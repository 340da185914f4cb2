"""Spans as a collector gets them: a real broker, a real proxy process, librdkafka, and an HTTP receiver that decodes
OTLP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from idemproxy.demo.fault_relay import FaultKind, FaultPlan, FaultRelay
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic, patient_settings, produce
from testkit.real.proxies.proxy_process import ProxyProcess


class Collector:
    """Takes OTLP over HTTP on a free port and keeps every span."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.paths: set[str] = set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *values: object) -> None:  # noqa: A002
                """Be silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="collector")
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, path: str, body: bytes) -> None:
        self.paths.add(path)
        if path != "/v1/traces":
            return
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services.add(str(attributes(group.resource.attributes)["service.name"]))
            for scope in group.scope_spans:
                self.spans += scope.spans

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def children(self, parent: Span) -> list[Span]:
        found = [s for s in self.spans if s.parent_span_id == parent.span_id and s.trace_id == parent.trace_id]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    @property
    def roots(self) -> list[Span]:
        found = [span for span in self.spans if not span.parent_span_id]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


def attributes(pairs: Iterable[KeyValue]) -> dict[str, str | int]:
    return {p.key: p.value.int_value if p.value.HasField("int_value") else p.value.string_value for p in pairs}


def steps(children: list[Span]) -> list[tuple[str, str | int | None]]:
    return [(child.name, attributes(child.attributes).get("idemproxy.detail")) for child in children]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector whose endpoint every process started from here on has."""
    one = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", one.endpoint)
    yield one
    one.close()


def test_a_produce_arrives_as_one_trace_that_is_flushed_when_the_proxy_ends(
    legacy_broker: LegacyCluster, collector: Collector, tmp_path: Path
) -> None:
    topic = fresh_topic(legacy_broker, partitions=1)
    with ProxyProcess(tmp_path, legacy_broker.address(0)) as proxy:
        host, port = proxy.address
        settings: dict[str, Any] = patient_settings(f"{host}:{port}", enable_idempotence=True)
        settings["client.id"] = "orders-service"
        acknowledged = produce(settings, topic, 1, 1)
        assert proxy.stop() == 0
        counters = json.loads(proxy.wait_for_log("counters: ").partition("counters: ")[2])
    assert counters["batches_answered_total{verdict=appended}"] == 1
    assert (collector.paths, collector.services) == ({"/v1/traces", "/v1/metrics"}, {"idemproxy"})
    (root,) = collector.roots
    assert (root.name, root.kind) == (f"produce {topic}", Span.SPAN_KIND_PRODUCER)
    found = attributes(root.attributes)
    assert found["messaging.system"] == "kafka"
    assert found["messaging.destination.name"] == topic
    assert found["messaging.destination.partition.id"] == "0"
    assert [found["messaging.kafka.offset"]] == list(acknowledged.values())
    assert (found["idemproxy.verdict"], found["idemproxy.base_sequence"]) == ("appended", 0)
    assert found["messaging.client.id"] == "orders-service"
    where = dict(zip(("server.address", "server.port"), legacy_broker.address(0), strict=True))
    assert where.items() <= found.items()
    children = collector.children(root)
    assert steps(children) == [("reserve", None), ("append", "Appended"), ("commit", "alone")]
    reserve, append, commit = children
    assert [child.status.code for child in children] == [Status.STATUS_CODE_UNSET] * 3
    assert where.items() <= attributes(append.attributes).items()
    for at_redis in (attributes(reserve.attributes), attributes(commit.attributes)):
        assert "db.system.name" in at_redis
        assert at_redis["server.address"] != where["server.address"], "the socket of the private Redis"
    moments = [root.start_time_unix_nano, reserve.start_time_unix_nano, reserve.end_time_unix_nano]
    moments += [append.start_time_unix_nano, append.end_time_unix_nano, root.end_time_unix_nano]
    moments += [commit.start_time_unix_nano, commit.end_time_unix_nano]
    assert moments == sorted(moments), "one step after the other; the commit after the answer"


def test_where_brokers_give_idempotence_engine_topics_alone_have_spans(collector: Collector, tmp_path: Path) -> None:
    with (
        LegacyCluster(tmp_path / "kafka", version="3.9.1", auto_create_topics=False) as cluster,
        ProxyProcess(tmp_path / "proxy", cluster.address(0), settings='topics: {engine: ["orders-*"]}\n') as proxy,
    ):
        topics = [fresh_topic(cluster, partitions=1, kind=kind) for kind in ("orders", "other")]
        host, port = proxy.address
        for topic in topics:
            produce(patient_settings(f"{host}:{port}", enable_idempotence=True), topic, 1, 3)
        assert proxy.stop() == 0
    assert {root.name for root in collector.roots} == {f"produce {topics[0]}"}


def test_a_lost_answer_shows_as_a_resolve_in_the_trace(
    legacy_broker: LegacyCluster, collector: Collector, tmp_path: Path
) -> None:
    topic = fresh_topic(legacy_broker, partitions=1)
    plan = FaultPlan(kinds=[FaultKind.LOST_ANSWER], every_nth_produce=1, faults_max=1)
    with (
        FaultRelay(legacy_broker.address(0), rewrite_addresses=True, plan=plan) as relay,
        ProxyProcess(tmp_path, ("127.0.0.1", relay.port)) as proxy,
    ):
        host, port = proxy.address
        acknowledged = produce(patient_settings(f"{host}:{port}", enable_idempotence=True), topic, 1, 1)
        port = relay.port
        assert proxy.stop() == 0
        assert relay.counts[FaultKind.LOST_ANSWER] == 1
        assert "resolved as found" in proxy.log
    (root,) = collector.roots
    children = collector.children(root)
    assert steps(children) == [("reserve", None), ("append", "InDoubt"), ("resolve", "found"), ("commit", "alone")]
    assert attributes(root.attributes)["messaging.kafka.offset"] in acknowledged.values()
    failed = [attributes(child.attributes).get("error.type") for child in children]
    assert failed == [None, "in_doubt", None, None]
    assert [child.name for child in (root, *children) if child.status.code == Status.STATUS_CODE_ERROR] == ["append"]
    assert attributes(children[1].attributes)["server.port"] == port
    resolve = children[2]
    assert resolve.end_time_unix_nano - resolve.start_time_unix_nano >= 1e9, "it settles first, for a second at least"


@pytest.mark.promise("collector-away")
def test_a_collector_that_is_away_disturbs_no_producer_and_no_end(
    legacy_broker: LegacyCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    topic = fresh_topic(legacy_broker, partitions=4)
    with ProxyProcess(tmp_path, legacy_broker.address(0)) as proxy:
        host, port = proxy.address
        acknowledged = produce(patient_settings(f"{host}:{port}", enable_idempotence=True), topic, 4, 2_000)
        assert proxy.stop() == 0
    assert len(acknowledged) == 2_000
