"""The trace that a batch belongs to: what is found in the headers of its records, whatever stands in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import propagate
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.codecs.steps import STEP_BYTES
from idemproxy.proxy import events, limits
from idemproxy.proxy.telemetry.reports import Telemetry
from idemproxy.proxy.telemetry.spans import Spans
from idemproxy.proxy.telemetry.trace_context import TraceContexts

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
W3C = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
B3 = ("b3", b"0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1")
B3_MULTI = (
    ("X-B3-TraceId", b"0af7651916cd43dd8448eb211c80319c"),
    ("X-B3-SpanId", b"b7ad6b7169203331"),
    ("X-B3-Sampled", b"1"),
)
Headers = tuple[tuple[str, bytes | None], ...]


def batch(all_headers: Sequence[Headers], codec: Codec = Codec.NONE) -> memoryview:
    records = [Record(number, 0, None, b"value", headers) for number, headers in enumerate(all_headers)]
    return memoryview(encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, codec=codec))


def numbered(number: int) -> Headers:
    return (("traceparent", b"00-%032x-%016x-01" % (number + 1, number + 1)),)


@pytest.mark.parametrize("headers", [(W3C,), (B3,), B3_MULTI, (("other", b"x"), W3C), (B3, W3C)])
@pytest.mark.parametrize("codec", list(Codec))
def test_w3c_and_b3_are_understood_in_every_codec(headers: Headers, codec: Codec) -> None:
    (found,) = TraceContexts().of_batch(batch([headers], codec))
    assert (found.trace_id, found.span_id, found.trace_flags.sampled) == (TRACE, SPAN, True)
    assert found.is_remote


def test_a_producer_that_has_not_sampled_says_so() -> None:
    (found,) = TraceContexts().of_batch(batch([(("traceparent", W3C[1][:-2] + b"00"),)]))
    assert not found.trace_flags.sampled


def test_each_trace_is_found_once_in_the_order_of_the_records() -> None:
    found = TraceContexts().of_batch(batch([numbered(3), (), numbered(1), numbered(3), numbered(2)]))
    assert [context.trace_id for context in found] == [4, 2, 3]


def test_only_the_first_records_of_a_large_batch_are_looked_into() -> None:
    found = TraceContexts().of_batch(batch([numbered(number) for number in range(5 * limits.TRACED_RECORDS_MAX)]))
    assert len(found) == limits.TRACED_RECORDS_MAX + 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_a_batch_that_takes_long_to_unpack_is_left_without_its_trace(codec: Codec) -> None:
    def found_with(value: bytes) -> int:
        record = Record(0, 0, None, value, (W3C,))
        data = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, codec=codec)
        return len(TraceContexts().of_batch(memoryview(data)))

    assert found_with(bytes(STEP_BYTES - 1_000)) == 1
    assert found_with(bytes(STEP_BYTES)) == 0


def test_records_with_very_many_headers_are_not_all_looked_into() -> None:
    many = (("colour", b"red"),) * (limits.TRACED_HEADERS_MAX // 2)
    found = TraceContexts().of_batch(batch([(*many, *numbered(number)) for number in range(9)]))
    assert [context.trace_id for context in found] == [1, 2]


def test_a_batch_without_a_trace_has_none() -> None:
    assert TraceContexts().of_batch(batch([(), (("colour", b"red"),)])) == []


@pytest.mark.parametrize(
    "headers",
    [
        (("traceparent", None),),
        (("traceparent", b""),),
        (("traceparent", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"),),
        (("traceparent", b"\xff\xfe"),),
        (("traceparent", W3C[1] + b"-more-than-that"),),
        (("b3", b"0"),),
        (("b3", b"-".join([b"x"] * 9)),),
        (("b3", b"zz-yy-1"),),
    ],
)
def test_what_is_no_context_is_none(headers: Headers) -> None:
    assert TraceContexts().of_batch(batch([headers])) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["traceparent", "tracestate", "b3", "X-B3-TraceId", "X-B3-SpanId", "X-B3-Flags", "é"]),
            st.none() | st.binary(max_size=80) | st.sampled_from([W3C[1], B3[1], b"a=b,c=d", b"," * 40]),
        ),
        max_size=6,
    )
)
def test_whatever_a_client_writes_is_read_or_left_aside(headers: list[tuple[str, bytes | None]]) -> None:
    assert len(TraceContexts().of_batch(batch([tuple(headers)]))) <= 1


def test_the_standard_variable_names_other_propagators(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.propagators.b3 import B3SingleFormat

    monkeypatch.setenv("OTEL_PROPAGATORS", "b3")
    monkeypatch.setattr(propagate, "propagator", B3SingleFormat(), raising=False)
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(B3SingleFormat())
    try:
        contexts = TraceContexts()
        assert contexts.of_batch(batch([(W3C,)])) == []
        assert len(contexts.of_batch(batch([(B3,)]))) == 1
    finally:
        propagate.set_global_textmap(before)


class Careless(TextMapPropagator):
    """A propagator of somebody else."""

    def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:
        raise IndexError("past the end")

    def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None: ...

    @property
    def fields(self) -> set[str]:
        return set()


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OTEL_PROPAGATORS", "careless")
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(Careless())
    yield
    propagate.set_global_textmap(before)


@pytest.mark.usefixtures("careless")
def test_a_failing_propagator_is_reported_once_a_batch_and_gives_no_trace() -> None:
    told: list[Exception] = []
    assert TraceContexts(told.append).of_batch(batch([(W3C,), (B3,)])) == []
    assert [repr(error) for error in told] == ["IndexError('past the end')"]
    assert TraceContexts().of_batch(batch([(W3C,)])) == [], "also when nobody listens"


@pytest.mark.usefixtures("careless")
def test_a_failing_propagator_has_limited_log_lines_and_every_batch_a_span(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(Spans(provider))
    telemetry.lines_per_minute_max = 3
    for _ in range(10):
        telemetry(events.BatchAnswered("appended", 7, 1, 30, "t", 2, 0, 4, None, 1.0, 2.0, batch([(W3C,)])))
    assert len(exporter.get_finished_spans()) == 10
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert "OTEL_PROPAGATORS failed: IndexError('past the end')" in lines[0]
    telemetry.close()
    assert any("7 more lines" in record.getMessage() for record in caplog.records)
