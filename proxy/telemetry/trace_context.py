"""Finds the trace that a batch belongs to: what an instrumented producer wrote into the headers of its records.

W3C and B3 (one header or several) are understood, or what OTEL_PROPAGATORS names. Loaded only where spans are wanted;
looks at records that were checked before and never refuses one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.b3 import B3MultiFormat
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import Getter, TextMapPropagator
from opentelemetry.trace import SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ...codecs.errors import WireError
from ...codecs.record_batch import iterate_records, parse_single_batch, payload_of
from ...codecs.steps import STEP_BYTES
from .. import limits

_HINTS = (b"traceparent", b"b3", b"B3")
"""The payload of every batch with a context contains one of these, unless other propagators are configured."""
Carrier = Mapping[str, str]


class _Headers(Getter[Carrier]):
    """Reads record headers, whatever the case of their names."""

    def get(self, carrier: Carrier, key: str) -> list[str] | None:
        found = carrier.get(key.lower())
        return None if found is None else [found]

    def keys(self, carrier: Carrier) -> list[str]:
        return list(carrier)


class TraceContexts:
    """Reads trace contexts as the standard variables say."""

    def __init__(self, failed: Callable[[Exception], None] = lambda _error: None) -> None:
        """``failed``: called with what a propagator raised. Raises ValueError when OTEL_PROPAGATORS names one that is
        not installed."""
        self._failed = failed
        self._root = Context()
        self._getter = _Headers()
        self._hints: tuple[bytes, ...] = ()
        if os.environ.get("OTEL_PROPAGATORS"):
            self._propagator: TextMapPropagator = propagate.get_global_textmap()
        else:
            self._propagator = CompositePropagator([B3MultiFormat(), TraceContextTextMapPropagator()])
            self._hints = _HINTS

    def of_batch(self, records: memoryview) -> list[SpanContext]:
        """Return the different contexts of a batch's first records (``TRACED_RECORDS_MAX``, ``TRACED_HEADERS_MAX``), in
        their order. Empty when a propagator fails, or for a batch that unpacks to more than is read in one step."""
        found: dict[tuple[int, int], SpanContext] = {}
        headers_left = limits.TRACED_HEADERS_MAX
        if len(records) > STEP_BYTES:
            return []
        try:
            header = parse_single_batch(records)
            if self._hints:
                data = bytes(payload_of(records, header, STEP_BYTES))
                if not any(hint in data for hint in self._hints):
                    return []
            for record in iterate_records(records, header, STEP_BYTES):
                if record.headers:
                    context = self._of_record(record.headers)
                    if context is None:
                        return []
                    if context.is_valid:
                        found.setdefault((context.trace_id, context.span_id), context)
                    headers_left -= len(record.headers)
                if record.offset_delta >= limits.TRACED_RECORDS_MAX or headers_left <= 0:
                    break
        except WireError:
            pass  # the batch is answered as what it is; its trace is not worth an error
        return list(found.values())

    def _of_record(self, headers: Iterable[tuple[str, bytes | None]]) -> SpanContext | None:
        carrier = {name.lower(): value.decode("ascii", "replace") for name, value in headers if value is not None}
        try:
            context = self._propagator.extract(carrier, self._root, self._getter)
        except Exception as error:  # any package's exception, for anything that a client may write
            self._failed(error)
            return None
        return trace.get_current_span(context).get_span_context()
