"""Traces and metrics in a real OpenTelemetry collector: an instrumented producer's trace continues in the proxy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.propagators.b3 import B3MultiFormat, B3SingleFormat
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST
from testkit.real.brokers.kafka_cluster import fresh_topic, librdkafka_settings, produce
from testkit.real.machine.collector import Collector, Span
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

CLIENT_KIND, PRODUCER_KIND = 3, 4
pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]
"""The first test on a machine builds the collector."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path_factory.mktemp("cluster"), auto_create_topics=False, session_timeout_ms=8000) as one:
        yield one


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    with Collector(tmp_path / "collector") as one:
        yield one


@pytest.fixture
def proxy_with(
    cluster: LegacyCluster, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ProxyProcess]]:
    """Starts a proxy whose telemetry goes to the collector."""
    running: list[ProxyProcess] = []

    def start(protocol: str = "http/protobuf", options: tuple[str, ...] = (), **variables: str) -> ProxyProcess:
        for name, value in {**collector.environment(protocol), **variables}.items():
            monkeypatch.setenv(name, value)
        proxy = ProxyProcess(tmp_path / "proxy", cluster.address(0), options=options)
        running.append(proxy.__enter__())
        return proxy

    yield start
    for proxy in running:
        proxy.__exit__()


def send_traced(
    proxy: ProxyProcess, collector: Collector, topic: str, propagator: TextMapPropagator, **settings: Any
) -> None:
    """Send two records as an instrumented service does: each in a trace of its own, both in one batch: it is sent when
    the producer is flushed."""
    provider = TracerProvider(ALWAYS_ON, Resource({"service.name": "orders"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"http://{HOST}:{collector.http_port}/v1/traces")))
    host, port = proxy.address
    common: Any = librdkafka_settings(f"{host}:{port}", enable_idempotence=True)
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(propagator)
    try:
        producer: Any = ConfluentKafkaInstrumentor.instrument_producer(
            Producer(common | {"linger.ms": 10_000} | settings), tracer_provider=provider
        )
        for number in range(2):
            producer.produce(topic, value=b"v%d" % number, partition=0)
        assert producer.flush(30) == 0
    finally:
        propagate.set_global_textmap(before)
        provider.shutdown()


def whole_trace(collector: Collector) -> tuple[list[Span], Span, dict[str, Span]]:
    """The producer's spans, the proxy's span of the batch, and its children by name, as soon as all are there."""

    def look() -> bool:
        return any(span.name == "commit" for span in collector.spans())

    wait_until(look, "the commit's span has come", 60)
    spans = collector.spans()
    sends = sorted((span for span in spans if span.service == "orders"), key=lambda span: span.begun_ns)
    (batch,) = [span for span in spans if span.name.startswith("produce ")]
    children = {span.name: span for span in spans if span.parent_id == batch.span_id}
    assert all(child.trace_id == batch.trace_id for child in children.values())
    return sends, batch, children


@pytest.mark.promise("compared-18")
@pytest.mark.parametrize(
    ("protocol", "propagator"),
    [
        ("grpc", TraceContextTextMapPropagator()),
        ("http/protobuf", TraceContextTextMapPropagator()),
        ("http/protobuf", B3SingleFormat()),
        ("http/protobuf", B3MultiFormat()),
    ],
    ids=["w3c over grpc", "w3c", "b3", "b3multi"],
)
def test_a_producers_trace_continues_to_the_proxys_commit(
    proxy_with: Callable[..., ProxyProcess],
    collector: Collector,
    cluster: LegacyCluster,
    protocol: str,
    propagator: TextMapPropagator,
) -> None:
    topic = fresh_topic(cluster, partitions=1)
    proxy = proxy_with(protocol)
    send_traced(proxy, collector, topic, propagator)
    (first, second), batch, children = whole_trace(collector)
    assert (batch.trace_id, batch.parent_id) == (first.trace_id, first.span_id)
    assert batch.links == ((second.trace_id, second.span_id),), "the other record's trace is linked"
    assert (batch.service, batch.kind) == ("idemproxy", PRODUCER_KIND)
    assert batch.attributes["messaging.system"] == "kafka"
    assert batch.attributes["messaging.destination.name"] == topic
    assert batch.attributes["messaging.batch.message_count"] == 2
    assert set(children) == {"reserve", "append", "commit"}
    assert {child.kind for child in children.values()} == {CLIENT_KIND}
    assert first.begun_ns <= batch.begun_ns <= children["reserve"].begun_ns <= children["append"].begun_ns
    assert children["append"].ended_ns <= batch.ended_ns <= children["commit"].begun_ns + 1_000_000


def test_a_compressed_batch_has_its_trace_too(
    proxy_with: Callable[..., ProxyProcess], collector: Collector, cluster: LegacyCluster
) -> None:
    topic = fresh_topic(cluster, partitions=1)
    proxy = proxy_with()
    send_traced(proxy, collector, topic, TraceContextTextMapPropagator(), **{"compression.type": "gzip"})
    (first, _), batch, _ = whole_trace(collector)
    assert (batch.trace_id, batch.parent_id) == (first.trace_id, first.span_id)


def test_what_the_producer_has_not_sampled_the_proxy_does_not_either(
    proxy_with: Callable[..., ProxyProcess], collector: Collector, cluster: LegacyCluster
) -> None:
    """Head sampling: none of one's own, and those that a producer has chosen."""
    topic = fresh_topic(cluster, partitions=1)
    proxy = proxy_with(OTEL_TRACES_SAMPLER="parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG="0")
    host, port = proxy.address
    produce(librdkafka_settings(f"{host}:{port}", enable_idempotence=True), topic, 1, 50)
    send_traced(proxy, collector, topic, TraceContextTextMapPropagator())
    sends, batch, _ = whole_trace(collector)
    assert batch.trace_id == sends[0].trace_id
    assert proxy.stop() == 0
    own = [span for span in collector.spans() if span.service == "idemproxy"]
    assert {span.trace_id for span in own} == {batch.trace_id}


def test_metrics_come_by_otlp_as_they_are_on_the_page(
    proxy_with: Callable[..., ProxyProcess], collector: Collector, cluster: LegacyCluster
) -> None:
    topic = fresh_topic(cluster, partitions=1)
    proxy = proxy_with("grpc")
    host, port = proxy.address
    produce(librdkafka_settings(f"{host}:{port}", enable_idempotence=True), topic, 1, 50)
    assert proxy.stop() == 0, "and what is left is sent at the end"
    wait_until(lambda: "idemproxy.batches.answered" in collector.metrics(), "the last metrics have come")
    found = collector.metrics()
    (answered,) = found["idemproxy.batches.answered"]["sum"]["dataPoints"]
    assert answered["attributes"] == [{"key": "verdict", "value": {"stringValue": "appended"}}]
    batches = int(answered["asInt"])
    assert 1 <= batches <= 50
    (times,) = found["idemproxy.client_to_broker.duration"]["histogram"]["dataPoints"]
    assert int(times["count"]) == sum(map(int, times["bucketCounts"])) == batches
    assert len(times["bucketCounts"]) == len(times["explicitBounds"]) + 1
    assert found["idemproxy.client_to_broker.duration"]["unit"] == "s"
    assert found["idemproxy.lease.remaining"]["gauge"]["dataPoints"]


def test_a_line_of_the_log_names_the_trace_that_it_is_about(
    proxy_with: Callable[..., ProxyProcess], collector: Collector, cluster: LegacyCluster
) -> None:
    """A batch with a header that message format v1 cannot carry is refused, and said."""
    topic = fresh_topic(cluster, partitions=1)
    proxy = proxy_with(options=("--log-format", "json", "--dropped-headers", "nothing-else"))
    provider = TracerProvider(shutdown_on_exit=False)
    host, port = proxy.address
    settings: Any = librdkafka_settings(f"{host}:{port}", enable_idempotence=True)
    producer: Any = ConfluentKafkaInstrumentor.instrument_producer(Producer(settings), tracer_provider=provider)
    producer.produce(topic, value=b"v", partition=0)
    producer.flush(30)
    provider.shutdown()
    line = json.loads(proxy.wait_for_log("header_refused"))
    wait_until(lambda: bool(collector.spans()), "its span has come", 60)
    (batch,) = [span for span in collector.spans() if span.name.startswith("produce ")]
    assert (line["trace_id"], line["span_id"]) == (batch.trace_id, batch.span_id)
    assert batch.attributes["error.type"] == "UNSUPPORTED_FOR_MESSAGE_FORMAT"
