"""Turns events into log lines, counters and OpenTelemetry spans: the one room that knows their names. Decides nothing.

Nothing of OpenTelemetry is loaded unless the standard OTEL_* variables ask for it. Spans are made from finished steps,
with the times that the events carry; the SDK's own thread sends them.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from cachetools import LRUCache

from .. import __version__
from ..codecs.error_codes import ErrorCode
from ..state import store
from . import events

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

_LOG = logging.getLogger("idemproxy")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_Key = tuple[int, int, int, str, int]
"""Producer id, epoch, base sequence, topic, partition: one batch."""
_BATCHES_MAX = 10_000
"""Batches that steps or a commit are awaited of; above it the oldest trace loses them."""
_STEPS_MAX = 64
"""Steps that are kept of one batch: one that cannot be sent takes some again and again until its client gives up."""
_FLUSH_SECONDS_MAX = 5.0
"""The end of the process waits so long for a collector; the SDK alone would wait 30 s."""


class Metric(NamedTuple):
    """A counter of one kind of event. ``label``: the field of the event that tells its series apart."""

    name: str
    help: str
    label: str | None = None


METRICS: dict[type, Metric] = {
    events.AppendSent: Metric("appends_sent_total", "Groups of batches that left for a broker."),
    events.AppendMerged: Metric("appends_merged_total", "Of these, groups in a wrapper with other producers' batches."),
    events.BatchAnswered: Metric("batches_answered_total", "Record batches answered.", "verdict"),
    events.DoubtOpened: Metric("doubts_opened_total", "Appends whose outcome was unknown."),
    events.DoubtResolved: Metric("doubts_resolved_total", "Doubts after the log was read.", "result"),
    events.Reforwarded: Metric("reforwards_total", "Batches sent once more that the log did not have."),
    events.LateWrite: Metric("late_writes_total", "Appends that left when the lease was about to end, or later."),
    events.SecondCopy: Metric("duplicates_total", "Batches found twice in the log: the hard limit was met."),
    events.MarkerLost: Metric("topics_unmarked_total", "Topics found to be stored without the proxy's markers."),
    events.TakenOver: Metric("intents_taken_over_total", "Open intents of proxies that are gone."),
    events.ProducerIdIssued: Metric("producer_ids_issued_total", "Producer ids handed out."),
    events.ProducerMet: Metric("producers_met_total", "Producers and partitions taken into memory."),
    events.ProducerDropped: Metric("producers_dropped_total", "Idle ones of these dropped from memory again."),
    events.GenerationChanged: Metric("store_generations_total", "Lives of the Redis data that were seen."),
    events.ClientRefused: Metric("bad_input_total", "Requests or batches refused for what is in them."),
    events.LaneLost: Metric("lanes_lost_total", "Connections to brokers for produce that ended."),
    events.FlowFailed: Metric("failures_total", "Errors of the proxy's own."),
    store.StoreLost: Metric("store_lost_total", "Losses of the connection to Redis."),
}
"""Every counter there is, by the event that it counts."""


class Telemetry:
    """Takes every event of one process. ``counts``: series -> count, as in ``doubts_resolved_total{result=found}``."""

    def __init__(self, spans: Spans | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self.spans = spans

    def __call__(self, event: Any) -> None:
        """Take one event."""
        metric = METRICS.get(type(event))
        if metric is not None:
            self.counts[_series(metric, event)] += 1
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def log(self, level: int, text: str, *values: object) -> None:
        """Write one line."""
        _LOG.log(level, text, *values)

    def close(self) -> None:
        """Write the counters down and send the spans that are left. Blocks, at most a few seconds."""
        if self.counts:
            self.log(logging.INFO, "counters: %s", json.dumps(self.counts, sort_keys=True))
        if self.spans is not None:
            self.spans.close()


def _series(metric: Metric, event: Any) -> str:
    return metric.name if metric.label is None else f"{metric.name}{{{metric.label}={getattr(event, metric.label)}}}"


def _said(telemetry: Telemetry, event: events.Said) -> None:
    telemetry.log(_LEVELS[event.level], "%s", event.what)


def _answered(telemetry: Telemetry, event: events.BatchAnswered) -> None:
    if telemetry.spans is not None:
        telemetry.spans.answered(event)
    if event.verdict == "duplicate":
        telemetry.log(
            logging.INFO,
            "duplicate: producer %d epoch %d sequence %d on %s-%d answered with offset %d",
            event.producer_id,
            event.producer_epoch,
            event.base_sequence,
            event.topic,
            event.partition,
            event.base_offset,
        )
    elif event.verdict != "appended":
        telemetry.log(
            logging.WARNING if event.error_code and event.verdict != "duplicate_below_window" else logging.INFO,
            "%s: producer %d epoch %d sequence %d on %s-%d: code %d: %s",
            event.verdict,
            event.producer_id,
            event.producer_epoch,
            event.base_sequence,
            event.topic,
            event.partition,
            event.error_code,
            event.message,
        )


def _step_done(telemetry: Telemetry, event: events.StepDone) -> None:
    if telemetry.spans is not None:
        telemetry.spans.step_done(event)


def _doubt_opened(telemetry: Telemetry, event: events.DoubtOpened) -> None:
    telemetry.log(
        logging.INFO,
        "in doubt: producer %d sequence %d on %s-%d: %s",
        event.producer_id,
        event.base_sequence,
        event.topic,
        event.partition,
        event.reason,
    )


def _doubt_resolved(telemetry: Telemetry, event: events.DoubtResolved) -> None:
    telemetry.log(
        logging.INFO if event.result != "unknown" else logging.ERROR,
        "resolved as %s: producer %d sequence %d on %s-%d, %d bytes read in %.1f s %s",
        event.result,
        event.producer_id,
        event.base_sequence,
        event.topic,
        event.partition,
        event.bytes_read,
        event.seconds,
        event.detail,
    )


def _second_copy(telemetry: Telemetry, event: events.SecondCopy) -> None:
    telemetry.log(
        logging.ERROR,
        "DUPLICATE: producer %d epoch %d sequence %d is in %s-%d at the offsets %s: a broker, or a proxy in the middle "
        "of a send, had stood still for so long that the first try was appended after all",
        event.producer_id,
        event.producer_epoch,
        event.base_sequence,
        event.topic,
        event.partition,
        ", ".join(map(str, event.offsets)),
    )


def _late_write(telemetry: Telemetry, event: events.LateWrite) -> None:
    telemetry.log(
        logging.ERROR,
        "LATE: producer %d epoch %d sequence %s left for %s-%d when the lease was about to end, or later: this process "
        "stood still in the middle of a send. Second copies are looked for after one minute and after ten",
        event.producer_id,
        event.producer_epoch,
        ", ".join(map(str, event.base_sequences)),
        event.topic,
        event.partition,
    )


def _marker_lost(telemetry: Telemetry, event: events.MarkerLost) -> None:
    telemetry.log(
        logging.WARNING,
        "topic %s keeps no markers: batches are stored in %s-%d as %s. One whose answer is lost may fail with code 87, "
        "as nobody can tell whether it is in the log. compression.type=producer, message.format.version=0.10 keep them",
        event.topic,
        event.topic,
        event.partition,
        event.stored_as,
    )


def _generation(telemetry: Telemetry, event: events.GenerationChanged) -> None:
    telemetry.log(logging.INFO, "the store's data has generation %s", event.generation.hex())


def _refused(telemetry: Telemetry, event: events.ClientRefused) -> None:
    telemetry.log(logging.WARNING, "refused from %r: %s", event.client, event.what)


def _failed(telemetry: Telemetry, event: events.FlowFailed) -> None:
    _LOG.error("error of ours in %s", event.where, exc_info=event.error)


def _store_ready(telemetry: Telemetry, event: store.StoreReady) -> None:
    telemetry.log(logging.INFO, "Redis is ready")


def _store_lost(telemetry: Telemetry, event: store.StoreLost) -> None:
    telemetry.log(logging.WARNING, "Redis is away: %s", event.reason)


def _store_refused(telemetry: Telemetry, event: store.StoreRefused) -> None:
    telemetry.log(logging.ERROR, "Redis cannot be used: %s", event.reason)


def _store_warning(telemetry: Telemetry, event: store.StoreWarning) -> None:
    telemetry.log(logging.WARNING, "Redis: %s", event.text)


_HANDLERS: dict[type, Any] = {
    events.Said: _said,
    events.BatchAnswered: _answered,
    events.StepDone: _step_done,
    events.DoubtOpened: _doubt_opened,
    events.DoubtResolved: _doubt_resolved,
    events.GenerationChanged: _generation,
    events.MarkerLost: _marker_lost,
    events.LateWrite: _late_write,
    events.SecondCopy: _second_copy,
    events.ClientRefused: _refused,
    events.FlowFailed: _failed,
    store.StoreReady: _store_ready,
    store.StoreLost: _store_lost,
    store.StoreRefused: _store_refused,
    store.StoreWarning: _store_warning,
}


class Spans:
    """One trace per batch: from its arrival to its answer, with its steps as children.

    Every batch of a group gets the group's steps as children of its own: they are at most five, and a trace that only
    links to another one's append cannot be read alone. What happened before the answer waits for it; a commit may come
    after the answer, so the place in the trace is kept for it.
    """

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context

        self._provider = provider
        self._trace = trace
        self._root = Context()
        self._tracer = provider.get_tracer("idemproxy", __version__)
        self._steps: LRUCache[_Key, deque[events.StepDone]] = LRUCache(_BATCHES_MAX)
        self._uncommitted: LRUCache[_Key, tuple[Context, int]] = LRUCache(_BATCHES_MAX)

    def step_done(self, event: events.StepDone) -> None:
        """Take a step: it waits for the answer of its batch, unless it comes after it."""
        key = _key(event)
        if event.step == "commit":
            place = self._uncommitted.pop(key, None)
            if place is not None:
                self._child(event, *place)
        else:
            self._steps.setdefault(key, deque(maxlen=_STEPS_MAX)).append(event)

    def answered(self, event: events.BatchAnswered) -> None:
        """Make the span of a batch, and of the steps that led to its answer."""
        key = _key(event)
        clock_start_ns = time.time_ns() - round(event.answered_at * 1e9)
        steps = self._steps.pop(key, ())
        span = self._tracer.start_span(
            f"produce {event.topic}",
            self._root,
            self._trace.SpanKind.PRODUCER,
            _attributes(event),
            start_time=clock_start_ns + round(event.arrived_at * 1e9),
        )
        if not span.is_recording():  # sampled out: so are its children
            return
        if event.error_code:
            span.set_attribute("error.type", ErrorCode(event.error_code).name)
            span.set_status(self._trace.StatusCode.ERROR, event.message)
        place = self._trace.set_span_in_context(self._trace.NonRecordingSpan(span.get_span_context()), self._root)
        for step in steps:
            if step.began + step.seconds >= event.arrived_at:  # else of an earlier try that was given up
                self._child(step, place, clock_start_ns)
        if event.verdict == "appended":
            self._uncommitted[key] = (place, clock_start_ns)
        span.end(clock_start_ns + round(event.answered_at * 1e9))

    def close(self) -> None:
        """Send what is left, and wait for that a few seconds at most."""
        sending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(_FLUSH_SECONDS_MAX)

    def _child(self, step: events.StepDone, place: Context, clock_start_ns: int) -> None:
        began_ns = clock_start_ns + round(step.began * 1e9)
        attributes = {"idemproxy.detail": step.detail} if step.detail else None
        span = self._tracer.start_span(step.step, place, attributes=attributes, start_time=began_ns)
        span.end(began_ns + round(step.seconds * 1e9))


def _key(event: events.StepDone | events.BatchAnswered) -> _Key:
    return event.producer_id, event.producer_epoch, event.base_sequence, event.topic, event.partition


def _attributes(event: events.BatchAnswered) -> dict[str, str | int]:
    """Return the attributes of a batch's span: OpenTelemetry's messaging conventions, and our own."""
    attributes: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.name": "produce",
        "messaging.operation.type": "send",
        "messaging.destination.name": event.topic,
        "messaging.destination.partition.id": str(event.partition),
        "idemproxy.producer.id": event.producer_id,
        "idemproxy.producer.epoch": event.producer_epoch,
        "idemproxy.base_sequence": event.base_sequence,
        "idemproxy.verdict": event.verdict,
    }
    if event.base_offset >= 0:
        attributes["messaging.kafka.offset"] = event.base_offset
    return attributes


def wants_spans(environment: Mapping[str, str]) -> bool:
    """Do the standard variables name a place to send spans to, and not turn it off again?"""
    places = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = (environment.get("OTEL_TRACES_EXPORTER") or "otlp").lower().replace(" ", "").split(",")
    return any(environment.get(place) for place in places) and not disabled and "otlp" in exporters


def spans_from_environment() -> Spans | None:
    """Return what makes spans, or None: nobody asked for them, or they cannot be sent, which is said in one line."""
    if not wants_spans(os.environ):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        processor = BatchSpanProcessor(OTLPSpanExporter())
    except ImportError as error:
        _LOG.warning("no spans are sent: OTEL_* asks for them, but idemproxy[otlp] is not installed (%s)", error)
        return None
    except ValueError as error:
        _LOG.warning("no spans are sent: an OTEL_* variable cannot be used: %s", error)
        return None
    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "idemproxy"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return Spans(provider)
