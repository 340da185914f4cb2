"""Makes OpenTelemetry spans of finished steps, with the times that the events carry. Loaded only where spans are
wanted; the SDK's own thread sends them. Decides nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode

from ... import __version__
from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...codecs.framing import SIZE_BYTES
from ...codecs.headers import parse_request_header
from ...codecs.record_batch import parse_single_batch
from ...reactor import Address
from .. import events, limits
from ..flow.observers import Trace
from .trace_context import TraceContexts

_Key = tuple[int, int, int, str, int]
"""Producer id, epoch, base sequence, topic, partition: one batch."""
_BATCHES_MAX: Final = 10_000
"""Batches for which steps or a commit are awaited; above it the oldest one loses them."""
_STEPS_MAX: Final = 64
"""Steps that are kept of one batch: one that cannot be sent makes new ones again and again until its client gives
up."""
_FLUSH_SECONDS_MAX: Final = 5.0
"""For so long the end of the process waits for a collector; the SDK alone would wait 30 s."""
_REDIS_STEPS: Final = ("reserve", "commit")
_REDIS_COMMAND: Final = "EVALSHA"
"""By which an entry is swapped."""
_FAILED: Final = {
    ("append", "InDoubt"): "in_doubt",
    ("append", "Refused"): "refused",
    ("append", "NotSent"): "not_sent",
    ("resolve", "unrecoverable"): "unrecoverable",
}
"""The ``error.type`` of a step that failed, by its name and detail; every other one succeeded."""
_PRODUCE: Final = 0
_CLIENT_ID_CHARACTERS_MAX: Final = 64
"""As in the metrics: clients choose it freely."""
_Step = tuple[events.StepDone, Address | None]
"""A step, and the broker that it involved if that is known."""


class _Ids(IdGenerator):
    """Makes ids. ``next_trace``: the id of the next trace, if ``begin_trace`` has chosen it already; None: make one."""

    def __init__(self, others: IdGenerator) -> None:
        self.next_trace: int | None = None
        self._others = others

    def generate_span_id(self) -> int:
        return self._others.generate_span_id()

    def generate_trace_id(self) -> int:
        trace_id, self.next_trace = self.next_trace, None
        return self._others.generate_trace_id() if trace_id is None else trace_id


class Spans:
    """A span per batch: from its arrival to its answer, with its steps as children. It is part of the trace of its
    first record that belongs to one, and linked to the traces of the others; without any it begins a trace.

    Every batch of a group gets the group's steps as children of its own: a group has at most five batches, and a trace
    that only links to another one's append cannot be read alone. Steps before the answer are kept until the span is
    made; a commit may come after the answer, so its place in the trace is kept for it.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._ids = _Ids(provider.id_generator)
        provider.id_generator = self._ids  # type: ignore[assignment]
        self.context_failed: Callable[[Exception], None] = lambda _error: None
        """Called when a propagator failed; the batch is handled without a context."""
        self.redis: Address | None = None
        """Where Redis is, once that is known."""
        self._contexts = TraceContexts(lambda error: self.context_failed(error))
        self._root = Context()
        self._tracer = provider.get_tracer("idemproxy", __version__)
        self._steps: dict[_Key, list[_Step]] = {}
        self._sent_to: dict[tuple[int, str, int], Address] = {}
        self._uncommitted: dict[_Key, tuple[Context, int]] = {}

    def begin_trace(self, topic: str) -> Trace:
        """Begin the trace of a batch whose records name none. The sampler is asked here, so that only the steps of a
        batch whose span is wanted are timed."""
        trace_id = self._ids.generate_trace_id()
        decided = self._provider.sampler.should_sample(self._root, trace_id, f"produce {topic}", SpanKind.PRODUCER)
        return Trace(trace_id, decided.decision is not Decision.DROP)

    def append_sent(self, event: events.AppendSent, address: Address | None) -> None:
        """Remember the broker of the append that a producer has in flight on a partition: there is one at a time."""
        if not event.identities:  # it belongs to no producer
            return
        key = event.identities[0].producer_id, event.topic, event.partition
        if address is None:
            self._sent_to.pop(key, None)
            return
        if key not in self._sent_to:
            _make_room(self._sent_to)
        self._sent_to[key] = address

    def step_done(self, event: events.StepDone) -> None:
        """Take a step: it waits for the answer of its batch, unless it comes after that."""
        key = _key(event)
        if event.step == "commit":
            place = self._uncommitted.pop(key, None)
            if place is not None:
                self._child((event, None), *place)
        else:
            step = event, self._broker_of(event)
            steps = self._steps.get(key)
            if steps is None:
                _make_room(self._steps)
                self._steps[key] = [step]
            else:
                steps.append(step)
                del steps[:-_STEPS_MAX]

    def was_in_doubt(self, event: events.BatchAnswered) -> bool:
        """Was the log read before this answer?"""
        return any(step.step == "resolve" for step, _ in self._steps.get(_key(event), ()))

    def answered(self, event: events.BatchAnswered) -> SpanContext:
        """Make the span of a batch, and those of the steps that led to its answer. Return its context (trace and span
        id)."""
        key = _key(event)
        reported = self._contexts.of_batch(event.records) if event.records is not None else []
        parent = self._below(reported[0]) if reported else self._root
        clock_start_ns = time.time_ns() - round(event.answered_at * 1e9)
        steps: Sequence[_Step] = self._steps.pop(key, ())
        self._ids.next_trace = None if reported else event.trace_id
        span = self._tracer.start_span(
            f"produce {event.topic}",
            parent,
            SpanKind.PRODUCER,
            links=[Link(context) for context in reported[1 : 1 + limits.SPAN_LINKS_MAX]] if reported else None,
            start_time=clock_start_ns + round(event.arrived_at * 1e9),
        )
        if not span.is_recording():  # not sampled: nor are its children
            return span.get_span_context()
        span.set_attributes(_attributes(event))
        span.set_attributes(_server(next((broker for _, broker in reversed(steps) if broker is not None), None)))
        if event.error_code:
            span.set_attribute("error.type", ErrorCode(event.error_code).name)
            span.set_status(StatusCode.ERROR, event.message)
        place = self._below(span.get_span_context())
        for step in steps:
            if _ended_at(step) >= event.arrived_at:  # else it is of an earlier try that was abandoned
                self._child(step, place, clock_start_ns)
        if event.verdict == "appended":
            _make_room(self._uncommitted)
            self._uncommitted[key] = (place, clock_start_ns)
        span.end(clock_start_ns + round(event.answered_at * 1e9))
        return span.get_span_context()

    def close(self) -> None:
        """Send what is left, and wait for that a few seconds at most."""
        sending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(_FLUSH_SECONDS_MAX)

    def _below(self, context: SpanContext) -> Context:
        return trace.set_span_in_context(trace.NonRecordingSpan(context), self._root)

    def _broker_of(self, step: events.StepDone) -> Address | None:
        if step.step != "append" or step.detail == "NotSent":
            return None
        return self._sent_to.get((step.producer_id, step.topic, step.partition))

    def _child(self, taken: _Step, place: Context, clock_start_ns: int) -> None:
        step, broker = taken
        began_ns = clock_start_ns + round(step.began * 1e9)
        attributes = {"messaging.system": "kafka", **_server(broker)}
        if step.detail:
            attributes["idemproxy.detail"] = step.detail
        if step.step in _REDIS_STEPS:
            attributes |= {"db.system.name": "redis", "db.operation.name": _REDIS_COMMAND, **_server(self.redis)}
        kind = SpanKind.INTERNAL if step.step == "resolve" else SpanKind.CLIENT
        span = self._tracer.start_span(step.step, place, kind, attributes, start_time=began_ns)
        failure = _FAILED.get((step.step, step.detail))
        if failure is not None:
            span.set_attribute("error.type", failure)
            span.set_status(StatusCode.ERROR)
        span.end(began_ns + round(step.seconds * 1e9))


def _make_room(known: dict[Any, Any]) -> None:
    """Drop the entry that has waited longest."""
    if len(known) >= _BATCHES_MAX:
        del known[next(iter(known))]


def _key(event: events.StepDone | events.BatchAnswered) -> _Key:
    return event.producer_id, event.producer_epoch, event.base_sequence, event.topic, event.partition


def _ended_at(step: _Step) -> float:
    return step[0].began + step[0].seconds


def _server(address: Address | None) -> dict[str, str | int]:
    """Return the attributes that name a broker; none if it is not known."""
    if address is None:
        return {}
    if isinstance(address, str):
        return {"server.address": address}
    return {"server.address": address[0], "server.port": address[1]}


def _client_id(records: memoryview) -> str:
    """Return the client id of the request that these records came in, "" if it is not known. The records are a view
    into the whole request, whose header has the id."""
    whole = records.obj
    if not isinstance(whole, bytes):
        return ""
    frame = memoryview(whole)
    if int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES:  # its size is in front of it
        frame = frame[SIZE_BYTES:]
    try:
        header = parse_request_header(frame)
    except WireError:
        return ""
    if header.api_key != _PRODUCE or header.body_offset + len(records) > len(frame):
        return ""  # it is no request
    return (header.client_id or "")[:_CLIENT_ID_CHARACTERS_MAX]


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
    if event.records is not None:
        attributes["messaging.batch.message_count"] = parse_single_batch(event.records).record_count
        if client_id := _client_id(event.records):
            attributes["messaging.client.id"] = client_id
    if event.base_offset >= 0:
        attributes["messaging.kafka.offset"] = event.base_offset
    return attributes
