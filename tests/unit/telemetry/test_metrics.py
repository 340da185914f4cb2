"""What is counted and measured: by events, by the hot path, and as OpenTelemetry's readers show it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import (
    Histogram,
    HistogramDataPoint,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    Sum,
)
from prometheus_client.parser import text_string_to_metric_families

from idemproxy.proxy import events, limits
from idemproxy.proxy.telemetry import metric_names as names
from idemproxy.proxy.telemetry.metric_names import METRICS, OTHER, SUPERVISOR_METRICS
from idemproxy.proxy.telemetry.metrics import COUNTED, Buckets, Metrics, Sample
from idemproxy.proxy.telemetry.metrics_export import MetricExport
from idemproxy.proxy.telemetry.otel import resource
from idemproxy.proxy.telemetry.reports import Telemetry

APPENDED = events.BatchAnswered("appended", 7, 1, 30, "orders", 2, 0, 400, None, 100.0)


@dataclass
class ProduceConnection:
    """A produce connection that has just brought an answer."""

    sent_at: float
    answered_at: float
    is_open: bool = True


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(sample.metric.name, sample.labels): sample.value for sample in metrics.samples()}


def counted(buckets: Buckets) -> dict[float, int]:
    """Counts by the upper bound of their bucket."""
    bounds = (*names.DURATION_BOUNDS_SECONDS, float("inf"))
    return {bound: count for bound, count in zip(bounds, buckets.counts, strict=True) if count}


# ---------------------------------------------------------------------- names
def test_every_metric_has_a_name_of_its_own_a_sentence_and_a_unit() -> None:
    assert len({metric.prometheus_name for metric in METRICS}) == len(METRICS) > 40
    for metric in METRICS:
        assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)*", metric.name)
        assert metric.help.endswith(".")
        assert metric.help.count("\n") == 0
        assert metric.unit in {"s", "By", "1"} or re.fullmatch(r"\{[a-z]+\}", metric.unit)
        assert (metric.kind == "counter") == metric.prometheus_name.endswith("_total")


def test_no_name_is_the_namespace_of_another_one() -> None:
    found = [metric.name for metric in (*METRICS, *SUPERVISOR_METRICS)]
    assert [(one, other) for one in found for other in found if other.startswith(f"{one}.")] == []


# ---------------------------------------------------------------------- counting
def test_every_plain_counter_counts_its_event_and_no_other() -> None:
    for kind, metric in COUNTED.items():
        metrics = Metrics()
        before = samples(metrics)
        metrics.takers()[kind](object())
        changed = {place: value for place, value in samples(metrics).items() if before[place] != value}
        assert changed == {(metric.name, ()): 1}


def test_duplicates_are_counted_by_client_and_topic_up_to_a_cap() -> None:
    telemetry = Telemetry()
    for number in range(limits.CLIENT_TOPIC_SERIES_MAX + 20):
        telemetry(events.DuplicateAnswered(f"client-{number}", "orders"))
        telemetry(events.DuplicateAnswered("client-0", "orders"))
    found = telemetry.metrics.duplicates
    assert found[("client-0", "orders")] == limits.CLIENT_TOPIC_SERIES_MAX + 21
    assert found[("client-1", "orders")] == 1
    assert found[(OTHER, OTHER)] == 20
    assert len(found) == limits.CLIENT_TOPIC_SERIES_MAX + 1
    assert telemetry.metrics.duplicates_answered == 2 * limits.CLIENT_TOPIC_SERIES_MAX + 40


def test_the_longest_idle_client_and_topic_pair_makes_room_after_an_hour() -> None:
    now = [0.0]
    metrics = Metrics(lambda: now[0])

    def count(client: str) -> None:
        metrics.takers()[events.DuplicateAnswered](events.DuplicateAnswered(client, "t"))

    for number in range(limits.CLIENT_TOPIC_SERIES_MAX):
        count(f"random-{number}")
    now[0] = 1.0
    count("random-0")
    count("orders")
    assert metrics.duplicates[(OTHER, OTHER)] == 1
    now[0] = limits.CLIENT_TOPIC_IDLE_SECONDS
    count("orders")
    count("orders")
    assert metrics.duplicates[("orders", "t")] == 2
    assert metrics.duplicates[("random-0", "t")] == 2, "it was counted later than the others"
    assert ("random-1", "t") not in metrics.duplicates
    assert ("random-2", "t") in metrics.duplicates, "one for one"
    count("random-1")
    assert metrics.duplicates[("random-1", "t")] == 1, "it begins again"
    assert ("random-2", "t") not in metrics.duplicates
    for _ in range(2):
        metrics.takers()[events.DuplicateAnswered](events.DuplicateAnswered(OTHER, OTHER))
    assert metrics.duplicates[(OTHER, OTHER)] == 3, "it stays, and never goes back"
    assert len(metrics.duplicates) == limits.CLIENT_TOPIC_SERIES_MAX + 1
    assert metrics.duplicates_answered == limits.CLIENT_TOPIC_SERIES_MAX + 7, "none of them is lost here"


def test_every_way_an_unknown_outcome_can_end_is_a_series_from_the_start() -> None:
    metrics = Metrics()
    assert {labels for name, labels in samples(metrics) if name == names.UNKNOWN_OUTCOMES_RESOLVED.name} == {
        (result,) for result in names.UNKNOWN_OUTCOME_RESULTS
    }
    metrics.takers()[events.UnknownOutcomeResolved](
        events.UnknownOutcomeResolved(7, "t", 0, 0, "unrecoverable", 0, 30.0)
    )
    assert samples(metrics)[(names.UNKNOWN_OUTCOMES_RESOLVED.name, ("unrecoverable",))] == 1


def test_a_certificate_shows_when_it_ends() -> None:
    telemetry = Telemetry()
    telemetry(events.CertificateLoaded("upstream.tls", "CN=one", 1_000.0))
    telemetry(events.CertificateLoaded("upstream.tls", "CN=two", 2_000.0))
    assert samples(telemetry.metrics)[(names.CERTIFICATE_EXPIRY.name, ("upstream.tls",))] == 2_000.0
    assert telemetry.counts == {}, "no count"


@dataclass
class OneBatch:
    """A usual batch, as far as it is counted."""

    client: str
    record_count: int
    record_bytes: int
    arrived_at: float = 0.0


def test_batches_records_and_bytes_are_counted_by_topic_whichever_way_a_batch_goes() -> None:
    telemetry = Telemetry()
    telemetry.metrics.measure_passes(lambda: 0.0)
    for client in ("a", "b"):
        telemetry.metrics.appended_at_once(OneBatch(client, 10, 1000), "orders")
    sent = replace(APPENDED, client="a", record_count=5, records=memoryview(bytes(70)))
    telemetry(sent)
    telemetry(replace(sent, verdict="refused", error_code=10))
    found = samples(telemetry.metrics)
    assert found[(names.TOPIC_BATCHES.name, ("orders", "appended"))] == 3
    assert found[(names.TOPIC_BATCHES.name, ("orders", "refused"))] == 1
    assert found[(names.TOPIC_RECORDS.name, ("orders",))] == 25
    assert found[(names.TOPIC_DATA.name, ("orders",))] == 2070
    assert found[(names.BATCHES_FAILED.name, ("MESSAGE_TOO_LARGE",))] == 1


def test_a_topic_counts_on_when_an_idle_client_of_it_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_TOPIC_SERIES_MAX", 2)
    now = [0.0]
    metrics = Metrics(lambda: now[0])
    metrics.measure_passes(lambda: now[0])
    refused = replace(APPENDED, client="idle", verdict="refused", error_code=10)
    for _ in range(3):
        metrics.appended_at_once(OneBatch("idle", 10, 1000), "orders")
        metrics.takers()[events.BatchAnswered](refused)
    for client in ("busy", "new", "newer"):
        now[0] += limits.CLIENT_TOPIC_IDLE_SECONDS
        metrics.appended_at_once(OneBatch(client, 1, 100), "orders")
    found = samples(metrics)
    assert found[(names.TOPIC_BATCHES.name, ("orders", "appended"))] == 6
    assert found[(names.TOPIC_BATCHES.name, ("orders", "refused"))] == 3
    assert found[(names.TOPIC_RECORDS.name, ("orders",))] == 33
    assert found[(names.TOPIC_DATA.name, ("orders",))] == 3300
    assert [client for (client, _), _ in metrics.activities.items()] == ["new", "newer"]
    metrics.appended_at_once(OneBatch("idle", 1, 100), "orders")
    assert samples(metrics)[(names.TOPIC_RECORDS.name, ("orders",))] == 34


def test_there_are_never_more_topics_than_pairs_and_those_that_nobody_uses_end_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "CLIENT_TOPIC_SERIES_MAX", 3)
    now, seen = [0.0], dict[str, float]()
    metrics = Metrics(lambda: now[0])
    metrics.measure_passes(lambda: now[0])

    def topics() -> dict[str, float]:
        return {labels[0]: count for (name, labels), count in samples(metrics).items() if name == "topic.records"}

    for number in range(20):
        now[0] += limits.CLIENT_TOPIC_IDLE_SECONDS
        metrics.appended_at_once(OneBatch(f"client-{number}", 1, 1), "alive")
        metrics.appended_at_once(OneBatch("a", 1, 1), f"topic-{number}")
        assert seen.get("alive", 0) < topics()["alive"] == number + 1
        seen = topics()
        assert len(seen) <= 3
    assert seen == {"alive": 20, "topic-18": 1, "topic-19": 1}
    for client in "bcd":
        metrics.appended_at_once(OneBatch(client, 1, 1), "beyond")
    assert topics() == {"alive": 20, "topic-19": 1, "beyond": 1, OTHER: 2}, "one was idle for long enough"


def test_without_an_admin_port_nothing_is_counted_by_topic_and_duplicates_all_the_same() -> None:
    telemetry = Telemetry()
    telemetry.metrics.appended_at_once(OneBatch("a", 10, 1000), "orders")
    assert telemetry.metrics.activities.items() == []
    telemetry(events.DuplicateAnswered("a", "orders"))
    assert telemetry.metrics.duplicates == {("a", "orders"): 1}


# ---------------------------------------------------------------------- times
@pytest.mark.promise("compared-18")
def test_a_batch_shows_how_long_it_was_here_and_how_long_at_the_broker() -> None:
    telemetry, now = Telemetry(), [0.0]
    metrics = telemetry.metrics
    metrics.measure_passes(lambda: now[0])
    metrics.appended(100.0, ProduceConnection(sent_at=100.0006, answered_at=100.02))
    telemetry(APPENDED)
    assert counted(metrics.histograms[names.BROKER_TO_CLIENT]) == {}, "it has not left before the pass ends"
    now[0] = 100.0202
    metrics.pass_ended()
    assert counted(metrics.histograms[names.CLIENT_TO_BROKER]) == {0.001: 1}
    assert counted(metrics.histograms[names.BROKER]) == {0.025: 1}
    assert counted(metrics.histograms[names.BROKER_TO_CLIENT]) == {0.00025: 1}
    assert counted(metrics.histograms[names.BATCH]) == {0.025: 1}
    assert metrics.histograms[names.BATCH].total_seconds == pytest.approx(0.0202)
    now[0] = 200.0
    metrics.pass_ended()
    assert counted(metrics.histograms[names.BATCH]) == {0.025: 1}, "once"


def test_a_retry_that_took_the_first_tries_place_after_its_send_measures_nothing() -> None:
    metrics = Metrics()
    metrics.measure_passes(lambda: 0.0)
    metrics.appended(100.5, ProduceConnection(sent_at=100.0, answered_at=101.0))
    assert counted(metrics.histograms[names.CLIENT_TO_BROKER]) == {}
    assert metrics.histograms[names.CLIENT_TO_BROKER].total_seconds == 0


def test_the_longest_step_of_the_loop_is_shown_for_one_to_two_windows() -> None:
    now = [100.0]
    metrics = Metrics()
    assert names.LOOP_STEP_LONGEST not in {sample.metric for sample in metrics.samples()}
    metrics.measure_passes(lambda: now[0])

    def shown() -> float:
        (sample,) = [sample for sample in metrics.samples() if sample.metric is names.LOOP_STEP_LONGEST]
        return sample.value

    assert shown() == 0
    for seconds in (0.001, 0.4, 0.002):
        metrics.step_took(seconds)
    assert shown() == 0.4
    now[0] += limits.LOOP_STEP_WINDOW_SECONDS
    metrics.step_took(0.1)
    assert shown() == 0.4, "it was in the window before"
    now[0] += limits.LOOP_STEP_WINDOW_SECONDS
    assert shown() == 0.1
    now[0] += 2 * limits.LOOP_STEP_WINDOW_SECONDS
    assert shown() == 0, "nothing has happened for longer than that"


def test_nothing_is_kept_where_nobody_measures() -> None:
    telemetry = Telemetry()
    for _ in range(3):
        telemetry(APPENDED)
        telemetry.metrics.appended(100.0, ProduceConnection(100.1, 100.2))
    telemetry.metrics.pass_ended()
    assert all(counted(buckets) == {} for buckets in telemetry.metrics.histograms.values())
    assert telemetry.metrics.verdicts == {"appended": 3}


@pytest.mark.parametrize(
    ("seconds", "bound"), [(0.0, 0.0001), (0.0001, 0.0001), (0.00011, 0.00025), (30.0, 30.0), (31.0, float("inf"))]
)
def test_a_bucket_holds_what_is_not_above_its_bound(seconds: float, bound: float) -> None:
    buckets = Buckets()
    buckets.observe(seconds)
    assert counted(buckets) == {bound: 1}


# ---------------------------------------------------------------------- export
def test_prometheus_reads_what_was_counted_and_every_time_again() -> None:
    telemetry = Telemetry()
    export = MetricExport(telemetry.metrics.samples, telemetry.metrics.histograms, resource())
    telemetry(events.DuplicateAnswered('client "one"\n', "orders"))
    for seconds in (0.2, 0.2, 99.0):
        telemetry(events.UnknownOutcomeResolved(7, "t", 0, 0, "found", 100, seconds))
    try:
        families = {family.name: family for family in text_string_to_metric_families(export.text().decode())}
        telemetry(events.DuplicateFound(7, 0, 0, "t", 0, (1, 2)))
        again = {family.name: family for family in text_string_to_metric_families(export.text().decode())}
    finally:
        export.close()
    (duplicate,) = families["idemproxy_duplicates_prevented"].samples
    assert (duplicate.labels, duplicate.value) == (
        {"client_id": 'client "one"\n', "topic": "orders", "how": "answered"},
        1,
    )
    found = {(one.name.rpartition("_")[2], one.labels.get("le")): one.value
             for one in families["idemproxy_unknown_outcome_duration_seconds"].samples}  # fmt: skip
    assert found[("count", None)] == found[("bucket", "+Inf")] == 3
    assert (found[("bucket", "0.1")], found[("bucket", "0.25")], found[("bucket", "30.0")]) == (0, 2, 2)
    assert found[("sum", None)] == pytest.approx(99.4)
    assert families["idemproxy_duplicates_found"].samples[0].value == 0
    assert again["idemproxy_duplicates_found"].samples[0].value == 1
    assert families["idemproxy_duplicates_found"].documentation == names.DUPLICATES_FOUND.help
    (target,) = families["target_info"].samples
    assert target.labels["service_name"] == "idemproxy"


def test_how_long_requests_took_is_shown_by_api() -> None:
    metrics = Metrics()
    export = MetricExport(metrics.samples, metrics.histograms, resource(), requests=metrics.requests)
    metrics.request_answered("fetch", 0.2)
    metrics.request_answered("fetch", 0.3)
    metrics.request_answered("metadata", 0.001)
    try:
        families = {family.name: family for family in text_string_to_metric_families(export.text().decode())}
    finally:
        export.close()
    counts = {
        one.labels["api"]: one.value
        for one in families["idemproxy_request_duration_seconds"].samples
        if one.name.endswith("_count")
    }
    assert counts == {"fetch": 2, "metadata": 1}


class Sent(MetricExporter):
    """A collector in memory: the values of duplicates by client, one dict for each time it was sent them."""

    def __init__(self) -> None:
        super().__init__()
        self.duplicates: list[dict[object, object]] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        (scope,) = (scope for group in metrics_data.resource_metrics for scope in group.scope_metrics)
        (found,) = (one for one in scope.metrics if one.name == "idemproxy.duplicates.prevented")
        assert isinstance(found.data, Sum)
        assert found.data.is_monotonic
        self.duplicates.append({(one.attributes or {})["client_id"]: one.value for one in found.data.data_points})
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None: ...


def test_a_series_that_has_made_room_is_gone_for_every_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_TOPIC_SERIES_MAX", 1)
    now, sent = [0.0], Sent()
    metrics = Metrics(lambda: now[0])
    export = MetricExport(metrics.samples, metrics.histograms, resource(), sent)
    try:
        for client in ("random", "random", "orders"):
            metrics.takers()[events.DuplicateAnswered](events.DuplicateAnswered(client, "t"))
            now[0] += limits.CLIENT_TOPIC_IDLE_SECONDS
        text = export.text().decode()
    finally:
        export.close()
    assert re.findall(r"^idemproxy_duplicates_prevented_total\{.*$", text, re.MULTILINE) == [
        'idemproxy_duplicates_prevented_total{client_id="orders",how="answered",topic="t"} 1.0'
    ]
    assert sent.duplicates == [{"orders": 1}]


class Times(MetricExporter):
    """A collector in memory: the points of the histograms that it was sent, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.points: dict[str, HistogramDataPoint] = {}

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        for group in metrics_data.resource_metrics:
            for metric in (metric for scope in group.scope_metrics for metric in scope.metrics):
                if isinstance(metric.data, Histogram):
                    (self.points[metric.name],) = metric.data.data_points
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None: ...


def test_a_collector_gets_durations_in_seconds_by_their_bounds() -> None:
    metrics, sent = Metrics(), Times()
    export = MetricExport(metrics.samples, metrics.histograms, resource(), sent)
    for seconds in (0.2, 0.3, 7.0):
        metrics.histograms[names.BROKER].observe(seconds)
    metrics.histograms[names.BATCH].observe(99.0)
    export.close()
    broker, batch, none = (
        sent.points[f"idemproxy.{one.name}"] for one in (names.BROKER, names.BATCH, names.UNKNOWN_OUTCOME)
    )
    assert (broker.count, broker.sum, broker.min, broker.max) == (3, 7.5, 0.1, 10.0)
    assert tuple(broker.explicit_bounds) == names.DURATION_BOUNDS_SECONDS
    assert [bound for bound, count in zip(broker.explicit_bounds, broker.bucket_counts, strict=False) if count] == [
        *(0.25, 0.5, 10.0)
    ]
    assert (batch.count, batch.min, batch.bucket_counts[-1]) == (1, 30.0, 1)
    assert (none.count, none.sum) == (0, 0.0)


def test_every_instrument_is_read_from_one_look_at_the_proxy() -> None:
    looks: list[None] = []

    def look() -> list[Sample]:
        looks.append(None)
        return [
            Sample(metric, tuple("x" for _ in metric.labels), 1) for metric in METRICS if metric.kind != "histogram"
        ]

    export = MetricExport(look, {}, resource())
    try:
        text = export.text().decode()
    finally:
        export.close()
    assert len(looks) == 1
    assert text.count("# HELP idemproxy_") == len([metric for metric in METRICS if metric.kind != "histogram"])
