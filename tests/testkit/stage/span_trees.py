"""Spans that events become, in the SDK's own in-memory exporter, and their order as trees. Asserts little itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from idemproxy.proxy import events
from idemproxy.proxy.telemetry.reports import Telemetry
from idemproxy.proxy.telemetry.spans import Spans
from idemproxy.reactor import Address

APPENDED = events.BatchAnswered("appended", 7, 1, 30, "orders", 2, 0, 400, None, 100.0, 100.5)
RESERVE = events.StepDone("reserve", 7, 1, 30, "orders", 2, 100.1, 0.1)
APPEND = events.StepDone("append", 7, 1, 30, "orders", 2, 100.2, 0.25, "Appended")
COMMIT = events.StepDone("commit", 7, 1, 30, "orders", 2, 100.52, 0.01, "alone")


class Broker(NamedTuple):
    """Where a broker is."""

    address: Address


def spans_of(
    reported: Iterable[object],
    brokers: Mapping[int, Broker] | None = None,
    redis: Address | None = None,
    **provider_settings: Any,
) -> list[ReadableSpan]:
    """The spans that these events become, in the order in which they ended."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False, **provider_settings)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = Spans(provider)
    spans.redis = redis
    telemetry = Telemetry(spans)
    telemetry.broker = (brokers or {}).get
    for event in reported:
        telemetry(event)
    telemetry.close()
    return list(exporter.get_finished_spans())


def traces(spans: Iterable[ReadableSpan]) -> list[tuple[ReadableSpan, list[ReadableSpan]]]:
    """Each span without a parent, with its children in order of their begin."""
    everything = sorted(spans, key=lambda span: span.start_time or 0)
    found = []
    for root in (span for span in everything if span.parent is None):
        children = [span for span in everything if span.parent == root.context]
        assert all(child.context.trace_id == root.context.trace_id for child in children)
        found.append((root, children))
    assert sum(1 + len(children) for _, children in found) == len(everything), "a child without a parent"
    return found
