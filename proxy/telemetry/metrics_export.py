"""Exports the counters to OpenTelemetry with a MeterProvider that reads them when it is asked.

Counters and gauges are observable instruments. Histograms are kept as arrays on the way of the batches
(``metrics.py``), because a call of the SDK for each would cost more than the rest of a batch's accounting; the readers
add them to what they collect, and likewise the counters whose series come and go. Counts nothing itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    MetricExporter,
    MetricReader,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as ExportedMetric
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest

from ... import __version__
from .metric_names import (
    DUPLICATES_PREVENTED,
    DURATION_BOUNDS_SECONDS,
    METRICS,
    PREFIX,
    REQUEST,
    TOPIC_BATCHES,
    TOPIC_DATA,
    TOPIC_RECORDS,
    Metric,
)
from .metrics import Buckets, Sample

_CLOSE_MILLISECONDS: Final = 5_000
_PASSING: Final = (DUPLICATES_PREVENTED, TOPIC_BATCHES, TOPIC_RECORDS, TOPIC_DATA)
"""Counters whose series come and go: an instrument of the SDK would keep every series that it has ever seen."""
Histograms = Mapping[Metric, Buckets]
Own = Callable[[], list[ExportedMetric]]
"""Returns the metrics that are added to those that the SDK has collected."""


class MetricExport:
    """The metrics of one process for its exporters. ``close`` sends what is left."""

    def __init__(
        self,
        samples: Callable[[], Iterable[Sample]],
        histograms: Histograms,
        resource: Resource,
        exporter: MetricExporter | None = None,
        requests: Mapping[str, Buckets] | None = None,
    ) -> None:
        """``samples``: every counter and gauge as it is now, called from any thread. ``exporter``: gets them at
        intervals too. ``requests``: how long requests took, by API."""
        self._samples = samples
        self._collection = _Collection()
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._histograms = histograms
        self._requests = {} if requests is None else requests
        self._begun_ns = time.time_ns()
        readers: list[MetricReader] = [_PrometheusReader(self._own, self._registry)]
        if exporter is not None:
            readers.append(_PeriodicReader(self._own, exporter))
        self._provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        self._create_instruments()

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def close(self) -> None:
        """Send what is left. Blocks, at most some seconds."""
        self._provider.shutdown(_CLOSE_MILLISECONDS)

    def _create_instruments(self) -> None:
        meter = self._provider.get_meter("idemproxy", __version__)
        for metric in METRICS:
            create: Any = {"counter": meter.create_observable_counter, "gauge": meter.create_observable_gauge}.get(
                metric.kind
            )
            if create is not None and metric not in _PASSING:
                create(f"{PREFIX}.{metric.name}", [self._reading(metric)], metric.unit, metric.help)

    def _reading(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _options: self._observed(metric)

    def _observed(self, metric: Metric) -> list[Observation]:
        """The first instrument that is asked begins a collection; ``_own`` ends it."""
        if self._collection.samples is None:
            self._collection.samples = _by_metric(self._samples())
        return self._collection.samples.get(metric, [])

    def _own(self) -> list[ExportedMetric]:
        times = self._begun_ns, time.time_ns()
        found = [_exported(metric, [({}, buckets)], *times) for metric, buckets in self._histograms.items()]
        if self._requests:
            by_api = [({"api": api}, buckets) for api, buckets in list(self._requests.items())]
            found.append(_exported(REQUEST, by_api, *times))
        for metric in _PASSING:
            points = [NumberDataPoint(one.attributes, *times, one.value) for one in self._observed(metric)]
            if points:
                data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
                found.append(ExportedMetric(f"{PREFIX}.{metric.name}", metric.help, metric.unit, data))
        self._collection.samples = None
        return found


def _by_metric(samples: Iterable[Sample]) -> dict[Metric, list[Observation]]:
    found: dict[Metric, list[Observation]] = {}
    for metric, labels, number in samples:
        attributes = dict(zip(metric.labels, labels, strict=True))
        found.setdefault(metric, []).append(Observation(number, attributes))
    return found


class _Collection(threading.local):
    """The samples of one collection, read once for all instruments, so that numbers which belong together agree. Each
    thread has its own: the exporters collect from threads of theirs."""

    samples: dict[Metric, list[Observation]] | None = None


class _PrometheusReader(PrometheusMetricReader):
    def __init__(self, own: Own, registry: CollectorRegistry) -> None:
        super().__init__(scope_info_enabled=False, registry=registry)
        self._own = own

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        super()._receive_metrics(_together(metrics_data, self._own()), timeout_millis)


class _PeriodicReader(PeriodicExportingMetricReader):
    def __init__(self, own: Own, exporter: MetricExporter) -> None:
        self._own = own
        super().__init__(exporter)

    def _receive_metrics(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any) -> None:
        super()._receive_metrics(_together(metrics_data, self._own()), timeout_millis)


def _together(collected: MetricsData, own: list[ExportedMetric]) -> MetricsData:
    """Return what was collected, with our own metrics in the same scope: an exporter takes each scope once."""
    groups = []
    for group in collected.resource_metrics:
        first, *others = group.scope_metrics
        whole = ScopeMetrics(first.scope, [*first.metrics, *own], first.schema_url)
        groups.append(ResourceMetrics(group.resource, [whole, *others], group.schema_url))
    return MetricsData(groups)


def _exported(
    metric: Metric, series: Sequence[tuple[dict[str, str], Buckets]], begun_ns: int, now_ns: int
) -> ExportedMetric:
    """Return a histogram. ``series``: labels, and what was measured."""
    points = [_point(labels, buckets, begun_ns, now_ns) for labels, buckets in series]
    data = Histogram(points, AggregationTemporality.CUMULATIVE)
    return ExportedMetric(f"{PREFIX}.{metric.name}", metric.help, metric.unit, data)


def _point(labels: dict[str, str], buckets: Buckets, begun_ns: int, now_ns: int) -> HistogramDataPoint:
    counts = list(buckets.counts)
    bounds = (0.0, *DURATION_BOUNDS_SECONDS, DURATION_BOUNDS_SECONDS[-1])
    filled = [index for index, count in enumerate(counts) if count] or [0]
    return HistogramDataPoint(
        attributes=labels,
        start_time_unix_nano=begun_ns,
        time_unix_nano=now_ns,
        count=sum(counts),
        sum=buckets.total_seconds,
        bucket_counts=counts,
        explicit_bounds=DURATION_BOUNDS_SECONDS,
        min=bounds[filled[0]],  # the bound of its bucket, as no exact minimum is kept
        max=bounds[filled[-1] + 1],
    )
