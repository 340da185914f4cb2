"""Telemetry: the spans that events become, in the SDK's own in-memory exporter, and the steps that the shipped flows
report on a virtual network."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBasedTraceIdRatio
from opentelemetry.trace import SpanKind, StatusCode

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.proxy import events, limits
from idemproxy.proxy.flow.observers import Trace
from idemproxy.proxy.producer.usual import Unusual
from idemproxy.proxy.telemetry.reports import Telemetry
from idemproxy.proxy.telemetry.spans import Spans
from testkit.real.machine.kernel_build import current
from testkit.stage.kernel_cases import with_kernel
from testkit.stage.span_trees import APPEND, APPENDED, COMMIT, RESERVE, spans_of, traces
from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.world import TOPIC, World, WorldSettings


def details(children: Iterable[ReadableSpan]) -> list[tuple[str, object]]:
    return [(child.name, (child.attributes or {}).get("idemproxy.detail")) for child in children]


# ---------------------------------------------------------------------- spans
def test_a_batch_is_a_span_from_arrival_to_answer_with_child_steps() -> None:
    before = time.time_ns()
    ((root, children),) = traces(spans_of([RESERVE, APPEND, APPENDED, COMMIT]))
    assert (root.name, root.kind) == ("produce orders", SpanKind.PRODUCER)
    assert root.status.status_code is StatusCode.UNSET
    assert dict(root.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "produce",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "2",
        "messaging.kafka.offset": 400,
        "idemproxy.producer.id": 7,
        "idemproxy.producer.epoch": 1,
        "idemproxy.base_sequence": 30,
        "idemproxy.verdict": "appended",
    }
    assert root.start_time is not None
    assert root.end_time is not None
    assert before <= root.end_time <= time.time_ns(), "the answer is now, on the wall clock"
    times = [
        tuple(round(((at or 0) - root.start_time) / 1e6) for at in (span.start_time, span.end_time))
        for span in (root, *children)
    ]
    assert times == [(0, 500), (100, 200), (200, 450), (520, 530)]
    assert details(children) == [("reserve", None), ("append", "Appended"), ("commit", "alone")]


def test_every_batch_of_a_group_has_the_groups_steps_in_its_trace() -> None:
    sequences = (30, 33, 36)
    steps = [replace(step, base_sequence=sequence) for step in (RESERVE, APPEND) for sequence in sequences]
    answers = [replace(APPENDED, base_sequence=sequence) for sequence in sequences]
    commits = [replace(COMMIT, base_sequence=sequence) for sequence in sequences]
    found = traces(spans_of([*steps, *answers, *commits]))
    assert [(root.attributes or {})["idemproxy.base_sequence"] for root, _ in found] == [30, 33, 36]
    assert len({root.context.trace_id for root, _ in found}) == 3
    assert all([child.name for child in children] == ["reserve", "append", "commit"] for _, children in found)


def test_a_commit_belongs_to_the_append_also_when_a_duplicate_was_answered_before_it() -> None:
    again = replace(APPENDED, verdict="duplicate", arrived_at=100.505, answered_at=100.51)
    (_, first), (duplicate, second) = traces(spans_of([RESERVE, APPEND, APPENDED, again, COMMIT]))
    assert [child.name for child in first] == ["reserve", "append", "commit"]
    assert (duplicate.attributes or {})["idemproxy.verdict"] == "duplicate"
    assert second == []


def test_steps_of_an_abandoned_try_are_not_those_of_the_next_one() -> None:
    given_up = [replace(RESERVE, began=40.0), replace(APPEND, began=41.0, detail="NotSent")]
    ((_, children),) = traces(spans_of([*given_up, RESERVE, APPEND, APPENDED]))
    assert details(children) == [("reserve", None), ("append", "Appended")]


def test_steps_without_an_answer_are_bounded() -> None:
    ((_, children),) = traces(spans_of([APPEND] * 1000 + [APPENDED]))
    assert len(children) == 64


def test_a_refused_batch_is_an_error_with_the_name_of_its_code() -> None:
    refused = replace(APPENDED, verdict="out_of_order", error_code=45, base_offset=-1, message="a gap")
    ((root, _),) = traces(spans_of([refused]))
    assert (root.status.status_code, root.status.description) == (StatusCode.ERROR, "a gap")
    attributes = root.attributes or {}
    assert attributes["error.type"] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name
    assert "messaging.kafka.offset" not in attributes


def test_a_commit_that_nobody_waits_for_makes_no_span() -> None:
    assert spans_of([COMMIT]) == []
    ((_, children),) = traces(spans_of([APPENDED, COMMIT, COMMIT]))
    assert [child.name for child in children] == ["commit"]


def test_what_is_sampled_out_makes_no_span() -> None:
    assert spans_of([RESERVE, APPEND, APPENDED, COMMIT], sampler=ALWAYS_OFF) == []


# ---------------------------------------------------------------------- what the flows report
def run_until_served(world: World) -> None:
    """Until the broker takes batches: one that comes before waits for it, and those that come meanwhile join it."""
    context = world.proxies[0].engine.context
    assert world.network.run(60, lambda: context.is_reachable(1))


def reported_by_flows(
    batches: int,
    *,
    gap: float = 0.0,
    fault: BrokerFault = BrokerFault.NONE,
    at: int = 1,
    crash: bool = False,
    wants: bool = True,
) -> list[object]:
    """What a proxy on a virtual network reports while one client sends so many batches, ``gap`` seconds apart.

    ``fault`` happens to the produce request with number ``at``; ``crash``: the proxy dies at the first one.
    """
    world = World(1, WorldSettings(brokers=1))
    world.start()
    run_until_served(world)
    (proxy,), (client,) = world.proxies, world.clients
    seen: list[ProduceSeen] = []

    def want_spans() -> None:
        observers, ids = proxy.engine.context.observers, count(1)
        observers.step_begins, observers.begin_trace = proxy.host.now, lambda _topic: Trace(next(ids), is_sampled=True)

    def die() -> None:
        proxy.crash(down_seconds=0.5)
        world.network.schedule(0.5, want_spans)

    def choose(one: ProduceSeen) -> BrokerFault:
        seen.append(one)
        if crash and len(seen) == 1:
            world.network.schedule(0, die)
        return fault if len(seen) == at else BrokerFault.NONE

    world.cluster.choose_fault = choose
    if wants:
        want_spans()

    def send() -> None:
        client.send(TOPIC, 0, 2)

    for number in range(batches):
        world.network.schedule(number * gap, send)
    assert world.network.run(60, lambda: len(client.batches) == batches and client.is_done)
    world.network.run(1)
    assert world.errors() == []
    return [event for _, _, event in proxy.events]


def children_by_sequence(reported: Iterable[object]) -> Mapping[object, list[tuple[str, object]]]:
    return {
        (root.attributes or {})["idemproxy.base_sequence"]: details(children)
        for root, children in traces(spans_of(reported))
    }


def test_a_batch_is_reserved_appended_and_committed_alone_after_its_answer() -> None:
    reported = reported_by_flows(1)
    assert children_by_sequence(reported) == {0: [("reserve", None), ("append", "Appended"), ("commit", "alone")]}
    ((root, (reserve, append, commit)),) = traces(spans_of(reported))
    moments = [root.start_time, reserve.start_time, reserve.end_time, append.start_time, append.end_time, root.end_time]
    moments += [commit.start_time, commit.end_time]
    assert moments == sorted(moment or 0 for moment in moments)


def test_the_commit_of_a_group_is_carried_by_the_reserve_of_the_next_one() -> None:
    found = children_by_sequence(reported_by_flows(2, gap=0.03))
    steps = [("reserve", None), ("append", "Appended")]
    assert found == {
        0: [*steps, ("commit", "carried by the next reserve")],
        2: [*steps, ("commit", "alone")],
    }


def test_a_commit_is_reported_once_also_when_the_next_group_is_reserved_again() -> None:
    reported = reported_by_flows(2, gap=0.03, fault=BrokerFault.LOST_REQUEST, at=2)
    assert any(isinstance(event, events.AppendSentAgain) for event in reported)
    steps = [event for event in reported if isinstance(event, events.StepDone)]
    assert [event.base_sequence for event in steps if event.step == "commit"] == [0, 2]


def test_batches_that_arrive_together_share_the_steps_of_one_group() -> None:
    reported = reported_by_flows(3)
    sent = [event for event in reported if isinstance(event, events.AppendSent)]
    assert [len(event.identities) for event in sent] == [3]
    steps = [("reserve", None), ("append", "Appended"), ("commit", "alone")]
    assert children_by_sequence(reported) == {0: steps, 2: steps, 4: steps}


def test_a_lost_answer_is_resolved_from_the_log_before_the_answer() -> None:
    found = children_by_sequence(reported_by_flows(1, fault=BrokerFault.LOST_ANSWER))
    assert found == {0: [("reserve", None), ("append", "InDoubt"), ("resolve", "found"), ("commit", "alone")]}


def test_a_lost_request_is_resolved_and_appended_again() -> None:
    found = children_by_sequence(reported_by_flows(1, fault=BrokerFault.LOST_REQUEST))
    steps = [("reserve", None), ("append", "InDoubt"), ("resolve", "not_found"), ("append", "Appended")]
    assert found == {0: [*steps, ("commit", "alone")]}


def test_a_batch_that_waits_for_what_an_earlier_life_left_open_shows_the_resolve() -> None:
    reported = reported_by_flows(1, crash=True)
    ((root, children),) = traces(spans_of(reported))
    assert (root.attributes or {})["idemproxy.verdict"] == "duplicate"
    assert ("resolve", "found") in details(children)


def test_nothing_is_made_and_no_clock_is_read_when_nobody_wants_spans() -> None:
    reported = reported_by_flows(3, wants=False)
    assert not any(isinstance(event, events.StepDone) for event in reported)
    answers = [event for event in reported if isinstance(event, events.BatchAnswered)]
    assert [answer.answered_at for answer in answers] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_only_batches_whose_span_is_wanted_are_prepared_by_flows(share: float) -> None:
    """And each of these has its span, with all steps; also where its commit rides on the reserve of one that has
    none."""
    batches = 60
    world = World(1, WorldSettings(brokers=1))
    world.start()
    run_until_served(world)
    (proxy,), (client,) = world.proxies, world.clients
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBasedTraceIdRatio(share), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = Spans(provider)
    telemetry, observers = Telemetry(spans), proxy.engine.context.observers
    observers.step_begins, observers.begin_trace = proxy.host.now, spans.begin_trace
    observers.counts = telemetry.metrics
    proxy.on_event.append(lambda _proxy, event: telemetry(event))
    kernel = current()

    def send() -> None:
        client.send(TOPIC, 0, 2)

    with with_kernel(kernel):
        for number in range(batches):
            world.network.schedule(number * 0.03, send)
        assert world.network.run(60, lambda: len(client.batches) == batches and client.is_done)
        world.network.run(1)
    assert world.errors() == []
    assert telemetry.metrics.verdicts["appended"] == batches
    assert telemetry.metrics.appends_sent == batches
    found = traces(exporter.get_finished_spans())
    assert all([child.name for child in children] == ["reserve", "append", "commit"] for _, children in found)
    by_flows = [event for _, _, event in proxy.events if isinstance(event, events.BatchAnswered)]
    sampled = {(root.attributes or {})["idemproxy.base_sequence"] for root, _ in found}
    assert sampled <= {event.base_sequence for event in by_flows}
    assert share * batches / 2 <= len(found) <= share * batches * 1.5
    if kernel is None:
        assert len(by_flows) == batches, "its headers may name a trace"
    else:
        reasons = Counter(event.reason for _, _, event in proxy.events if isinstance(event, events.GroupPrepared))
        assert reasons.pop(Unusual.TRACED.label, 0) <= len(found)
        # The first batch, the one until whose append was read back, and two that came while a flow was at work.
        labels = {Unusual.NOT_KNOWN.label: 1, Unusual.NOT_PROBED.label: 1, Unusual.FLOW_AT_WORK.label: 2}
        assert reasons <= Counter(labels)
        assert len(by_flows) <= len(found) + reasons.total()


# ---------------------------------------------------------------------- whose trace it is
def traced(number: int) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a record that belongs to the trace with this number."""
    return (("traceparent", b"00-%032x-%016x-01" % (number, number)),)


def records_of(*headers: tuple[tuple[str, bytes | None], ...]) -> memoryview:
    batch = [Record(offset, 0, None, b"v", one) for offset, one in enumerate(headers)]
    return memoryview(encode_batch(batch, producer_id=7, producer_epoch=1, base_sequence=30))


def test_a_batch_continues_its_first_records_trace_and_links_to_the_others() -> None:
    records = records_of((), traced(5), traced(6), traced(5))
    root, *children = sorted(
        spans_of([RESERVE, APPEND, replace(APPENDED, records=records), COMMIT]),
        key=lambda span: span.name != "produce orders",
    )
    assert root.parent is not None
    assert (root.context.trace_id, root.parent.span_id, root.parent.is_remote) == (5, 5, True)
    assert [(link.context.trace_id, link.context.span_id) for link in root.links] == [(6, 6)]
    assert (root.attributes or {})["messaging.batch.message_count"] == 4
    assert [child.name for child in children] == ["reserve", "append", "commit"]
    assert all(child.parent == root.context and child.context.trace_id == 5 for child in children)


def test_a_trace_that_its_producer_has_not_sampled_is_not_recorded() -> None:
    records = records_of((("traceparent", traced(5)[0][1][:-2] + b"00"),))  # type: ignore[index]
    sampler = ParentBasedTraceIdRatio(1.0)
    assert spans_of([RESERVE, APPEND, replace(APPENDED, records=records), COMMIT], sampler=sampler) == []
    assert len(spans_of([RESERVE, APPEND, APPENDED, COMMIT], sampler=sampler)) == 4


def test_a_batch_with_thousands_of_traces_has_a_bounded_number_of_links() -> None:
    records = records_of(*(traced(number + 1) for number in range(3_000)))
    (root,) = spans_of([replace(APPENDED, records=records)])
    assert len(root.links) == limits.SPAN_LINKS_MAX


def test_what_waits_for_an_answer_or_a_commit_is_bounded() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = Spans(provider)
    for sequence in range(25_000):
        spans.step_done(replace(RESERVE, base_sequence=sequence))
    spans.answered(replace(APPENDED, base_sequence=24_999))
    spans.answered(replace(APPENDED, base_sequence=0))
    spans.close()
    assert [span.name for span in exporter.get_finished_spans()] == ["reserve", "produce orders", "produce orders"]


def test_a_batch_that_was_in_doubt_is_a_line_that_names_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry(Spans(TracerProvider(shutdown_on_exit=False)))
    resolve = replace(APPEND, step="resolve", detail="found")
    with caplog.at_level("INFO", "idemproxy"):
        for event in (
            RESERVE,
            APPEND,
            APPENDED,
            RESERVE,
            resolve,
            replace(APPENDED, records=records_of(traced(0xABC))),
        ):
            telemetry(event)
    (line,) = caplog.records
    assert line.getMessage() == (
        "answered after an unknown outcome: producer 7 epoch 1 sequence 30 on orders-2 has offset 400"
    )
    assert line.__dict__["trace_id"] == f"{0xABC:032x}"


def test_a_line_about_a_batch_names_its_span(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry(Spans(TracerProvider(shutdown_on_exit=False)))
    with caplog.at_level("INFO", "idemproxy"):
        telemetry(replace(APPENDED, verdict="duplicate", records=records_of(traced(0xABC))))
        telemetry(events.OperatorMessage("info", "nothing of a batch"))
    about, other = caplog.records
    assert about.__dict__["trace_id"] == f"{0xABC:032x}"
    assert len(about.__dict__["span_id"]) == 16
    assert "trace_id" not in other.__dict__
