"""What the standard OTEL_* variables ask for: spans, metrics by OTLP, the resource. Loads nothing of OpenTelemetry
unless they ask for it.

OTLP goes over HTTP, or over gRPC where OTEL_EXPORTER_OTLP_PROTOCOL says grpc. Settings that cannot be used give one
warning and never end the proxy."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from ... import __version__, installation_of

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource

    from .spans import Spans

_LOG = logging.getLogger("idemproxy")
Signal = Literal["traces", "metrics"]
_EXPORTERS: Final = {
    ("traces", "http/protobuf"): ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "OTLPSpanExporter"),
    ("traces", "grpc"): ("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", "OTLPSpanExporter"),
    ("metrics", "http/protobuf"): ("opentelemetry.exporter.otlp.proto.http.metric_exporter", "OTLPMetricExporter"),
    ("metrics", "grpc"): ("opentelemetry.exporter.otlp.proto.grpc.metric_exporter", "OTLPMetricExporter"),
}


def wants(signal: Signal, environment: Mapping[str, str]) -> bool:
    """Do the standard variables name a place to send this to, and not turn it off again?"""
    places = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = (environment.get(f"OTEL_{signal.upper()}_EXPORTER") or "otlp").lower().replace(" ", "").split(",")
    return any(environment.get(place) for place in places) and not disabled and "otlp" in exporters


def protocol_of(signal: Signal, environment: Mapping[str, str]) -> str:
    """The transport for this: http/protobuf unless the variables name another one."""
    own = environment.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
    return (own or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf").strip().lower()


def resource() -> Resource:
    """The identity of this service, as the variables say; by default it is called idemproxy."""
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource

    found = Resource.create({SERVICE_VERSION: __version__})
    if str(found.attributes[SERVICE_NAME]).startswith("unknown_service"):
        found = found.merge(Resource({SERVICE_NAME: "idemproxy"}))
    return found


def spans_from_environment() -> Spans | None:
    """Return what makes spans. None if they are not wanted, or cannot be sent, which is logged in one line."""
    if not wants("traces", os.environ):
        return None
    try:
        exporter = _exporter("traces")
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from .spans import Spans

        provider = TracerProvider(resource=resource(), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return Spans(provider)
    except (ImportError, ValueError) as error:
        _warn("spans", error)
        return None


def metric_exporter_from_environment() -> MetricExporter | None:
    """Return what sends metrics by OTLP, or None as for spans. ``/metrics`` does not depend on it."""
    if not wants("metrics", os.environ):
        return None
    try:
        exporter: MetricExporter = _exporter("metrics")
        return exporter
    except (ImportError, ValueError) as error:
        _warn("metrics", error)
        return None


def _exporter(signal: Signal) -> Any:
    protocol = protocol_of(signal, os.environ)
    place = _EXPORTERS.get((signal, protocol))
    if place is None:
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; http/protobuf and grpc are served")
    module, name = place
    return getattr(import_module(module), name)()


def _warn(what: str, error: Exception) -> None:
    if isinstance(error, ImportError):
        how = installation_of("otlp")
        _LOG.warning("no %s are sent: OTEL_* asks for them, but an extra is missing (%s): %s", what, error, how)
    else:
        _LOG.warning("no %s are sent: an OTEL_* variable cannot be used: %s", what, error)
