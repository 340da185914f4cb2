"""Counts events and keeps the times of the hot path: plain numbers, read by the exporters. Pure.

A batch pays for a few additions here and for nothing of OpenTelemetry (``metrics_export.py``)."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ...codecs.error_codes import name_of
from ...state import store
from .. import events, limits
from ..flow.observers import CountedBatch
from ..flow.outcome import Acknowledger
from . import metric_names as names
from .activity import Activities, Place
from .metric_names import Metric
from .producer_names import ProducerNameInstances

COUNTED: Final[dict[type, Metric]] = {
    events.UnknownOutcomeOpened: names.UNKNOWN_OUTCOMES_OPENED,
    events.AppendSentAgain: names.APPENDS_SENT_AGAIN,
    events.AppendAfterDeadline: names.APPENDS_AFTER_DEADLINE,
    events.DuplicateFound: names.DUPLICATES_FOUND,
    events.ConditionalPartitionFenced: names.CONDITIONAL_PARTITIONS_FENCED,
    events.BatchMarkerLost: names.TOPICS_WITHOUT_BATCH_MARKERS,
    events.NoRoomForBatchMarker: names.RECORDS_WITHOUT_BATCH_MARKERS,
    events.TakenOver: names.INTENTS_TAKEN_OVER,
    events.ProducerIdIssued: names.PRODUCER_IDS_ISSUED,
    events.EntryLoaded: names.ENTRIES_LOADED,
    events.EntryEvicted: names.ENTRIES_EVICTED,
    events.DataGenerationChanged: names.REDIS_DATA_GENERATIONS,
    events.ProxyInstanceBegun: names.PROXY_INSTANCES,
    events.ClientRefused: names.INVALID_REQUESTS,
    events.OldRequestRefused: names.INVALID_REQUESTS,
    events.SlowClient: names.SLOW_CLIENTS_DISCONNECTED,
    events.TlsRefused: names.TLS_FAILED,
    events.ProduceConnectionLost: names.PRODUCE_CONNECTIONS_LOST,
    events.InternalError: names.INTERNAL_ERRORS,
    store.StoreLost: names.REDIS_LOST,
    store.StoreEmptied: names.REDIS_EMPTIED,
}
"""Events that are counted one by one, without a label."""
USUAL_REFUSALS = ("duplicate_below_window", "conflict")
"""Refusals that are part of normal operation: a late retry of a batch that is stored (46), and a conditional publisher
that another one was faster than (rule R23)."""


class Sample(NamedTuple):
    """One number of a counter or gauge. ``labels``: the values of the metric's labels, in their order."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


class Buckets:
    """A histogram of seconds. ``counts``: one for each of ``DURATION_BOUNDS_SECONDS`` (not cumulative), and one for
    those above the last bound."""

    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(names.DURATION_BOUNDS_SECONDS) + 1)
        self.total_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(names.DURATION_BOUNDS_SECONDS, seconds)] += 1
        self.total_seconds += seconds


class Longest:
    """The longest of the durations in the last one to two windows of a clock."""

    __slots__ = ("_before", "_now", "_this", "_until", "_window_seconds")

    def __init__(self, now: Callable[[], float], window_seconds: float) -> None:
        self._now = now
        self._window_seconds = window_seconds
        self._until = now() + window_seconds
        self._this = self._before = 0.0

    def observe(self, seconds: float) -> None:
        """Note a duration that has just ended."""
        self._turn()
        if seconds > self._this:
            self._this = seconds

    @property
    def seconds(self) -> float:
        """The longest one; 0 if there was none."""
        self._turn()
        return max(self._this, self._before)

    def _turn(self) -> None:
        now = self._now()
        if now >= self._until:
            is_next = now < self._until + self._window_seconds
            self._before, self._this = self._this if is_next else 0.0, 0.0
            self._until = now + self._window_seconds


class Metrics:
    """What one process has counted."""

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        """``now``: seconds of a clock that keeps running, for what is idle."""
        self.verdicts: dict[str, int] = defaultdict(int)
        """Batches answered, by verdict."""
        self.appends_sent = 0
        self.activities = Activities(now)
        """What each client did on each topic."""
        self.named = ProducerNameInstances()
        self.duplicates_answered = 0
        self.retries_joined = 0
        """All duplicates that were prevented, of any client: answered from the log, or joined to their first try."""
        self.unknown_outcomes_resolved: dict[str, int] = dict.fromkeys(names.UNKNOWN_OUTCOME_RESULTS, 0)
        self.histograms: dict[Metric, Buckets] = {
            metric: Buckets() for metric in names.METRICS if metric.kind == "histogram" and not metric.labels
        }
        self.requests: dict[str, Buckets] = {}
        """How long requests took, by the name of their API."""
        self.codes: dict[int, int] = defaultdict(int)
        """Batches that failed, by Kafka's code."""
        self.prepared: dict[str, int] = defaultdict(int)
        """Groups of batches that were not usual, by the reason."""
        self.redis_restarts = 0
        self.refusals: dict[str, int] = dict.fromkeys(names.REFUSALS, 0)
        """Connections refused, by the reason."""
        self.certificates: dict[str, float] = {}
        """When the certificates in use expire, unix seconds, by their place in the configuration."""
        self.store_memory: events.RedisMemoryMeasured | None = None
        """The last memory figures of Redis; None while it cannot be reached."""
        self._plain: dict[Metric, int] = dict.fromkeys(COUNTED.values(), 0)
        self._client_to_broker = self.histograms[names.CLIENT_TO_BROKER]
        self._broker = self.histograms[names.BROKER]
        self._broker_to_client = self.histograms[names.BROKER_TO_CLIENT]
        self._batch = self.histograms[names.BATCH]
        self._unknown_outcome = self.histograms[names.UNKNOWN_OUTCOME]
        self._now: Callable[[], float] | None = None
        self._longest_step: Longest | None = None
        self._arrived: list[float] = []
        self._acknowledged: list[float] = []

    # ------------------------------------------------------------------ events
    def takers(self) -> Mapping[type, Callable[[Any], None]]:
        """The function that takes an event, by the event's type."""
        found: dict[type, Callable[[Any], None]] = {kind: self._counter(metric) for kind, metric in COUNTED.items()}
        found[events.BatchAnswered] = self._answered
        found[events.AppendSent] = self._append_sent
        found[events.UnknownOutcomeResolved] = self._unknown_outcome_resolved
        found[events.GroupPrepared] = self._prepared
        found[events.InstanceBegan] = self._instance_began
        found[events.DuplicateAnswered] = self._duplicate
        found[events.RetryJoined] = self._joined
        found[events.CertificateLoaded] = self._certificate
        found[events.ConnectionRefused] = self._connection_refused
        found[events.RedisMemoryMeasured] = self._store_memory_told
        found[store.StoreLost] = self._store_lost
        found[store.StoreRefused] = self._store_refused
        return found

    def _counter(self, metric: Metric) -> Callable[[Any], None]:
        plain = self._plain

        def count(_event: Any) -> None:
            plain[metric] += 1

        return count

    def _prepared(self, event: events.GroupPrepared) -> None:
        self.prepared[event.reason] += 1

    def _append_sent(self, _event: events.AppendSent) -> None:
        self.appends_sent += 1

    def _answered(self, event: events.BatchAnswered) -> None:
        self.verdicts[event.verdict] += 1
        if event.error_code:
            self.codes[event.error_code] += 1
        if self._now is None:
            return
        self._arrived.append(event.arrived_at)
        one = self.activities.of(event.client, event.topic)
        if event.verdict == "appended":
            one.count_appended(event.record_count, 0 if event.records is None else len(event.records))
        else:
            one.verdicts[event.verdict] = one.verdicts.get(event.verdict, 0) + 1
            if event.error_code and event.verdict not in USUAL_REFUSALS:
                one.failed_at = one.last_at

    def appended_at_once(self, batch: CountedBatch, topic: str) -> None:
        """Count a batch that was appended in the usual case, for which there is no event."""
        self.verdicts["appended"] += 1
        if self._now is not None:
            self._arrived.append(batch.arrived_at)
            self.activities.of(batch.client, topic).count_appended(batch.record_count, batch.record_bytes)

    def request_answered(self, api: str, seconds: float) -> None:
        """A request was answered so many seconds after it came. Produce requests only where the brokers give
        idempotence."""
        found = self.requests.get(api)
        if found is None:
            found = self.requests[api] = Buckets()
        found.observe(seconds)

    def _unknown_outcome_resolved(self, event: events.UnknownOutcomeResolved) -> None:
        self.unknown_outcomes_resolved[event.result] = self.unknown_outcomes_resolved.get(event.result, 0) + 1
        self._unknown_outcome.observe(event.seconds)

    def _instance_began(self, event: events.InstanceBegan) -> None:
        self.named.note_instance(event, self.activities.now())

    def _certificate(self, event: events.CertificateLoaded) -> None:
        self.certificates[event.place] = event.expires_at

    def _connection_refused(self, event: events.ConnectionRefused) -> None:
        self.refusals[event.reason] = self.refusals.get(event.reason, 0) + 1

    def _store_memory_told(self, event: events.RedisMemoryMeasured) -> None:
        self.store_memory = event

    def _store_lost(self, _event: store.StoreLost) -> None:
        self._plain[names.REDIS_LOST] += 1
        self.store_memory = None

    def _store_refused(self, _event: store.StoreRefused) -> None:
        self.store_memory = None

    def _duplicate(self, event: events.DuplicateAnswered) -> None:
        self.duplicates_answered += 1
        self.activities.of(event.client, event.topic).answered += 1

    def _joined(self, event: events.RetryJoined) -> None:
        self.retries_joined += 1
        self.activities.of(event.client, event.topic).joined += 1

    @property
    def duplicates(self) -> dict[Place, int]:
        """Duplicates prevented, by client id and topic; all above a cap under ("other", "other")."""
        return {place: one.prevented for place, one in self.activities.duplicates()}

    # ------------------------------------------------------------------ times
    def measure_passes(self, now: Callable[[], float]) -> None:
        """Measure durations from now on. The caller calls ``pass_ended`` after each pass of the reactor, as answers
        leave only then, and ``step_took`` after each step."""
        self._now = now
        self._longest_step = Longest(now, limits.LOOP_STEP_WINDOW_SECONDS)

    def step_took(self, seconds: float) -> None:
        """A step of the event loop has ended."""
        if self._longest_step is not None:
            self._longest_step.observe(seconds)

    def appended(self, arrived_at: float, produce_connection: Acknowledger) -> None:
        """A batch was appended; the produce connection has just brought the broker's answer. Times are seconds of one
        clock."""
        sent_at, answered_at = produce_connection.sent_at, produce_connection.answered_at
        if self._now is not None and arrived_at <= sent_at:  # else a retry has replaced the first try since
            self._client_to_broker.observe(sent_at - arrived_at)
            self._broker.observe(answered_at - sent_at)
            self._acknowledged.append(answered_at)

    def pass_ended(self) -> None:
        """The answers of this pass have been given to the sockets."""
        if not self._arrived or self._now is None:
            return
        now = self._now()
        observe = self._batch.observe
        for moment in self._arrived:
            observe(now - moment)
        self._arrived.clear()
        observe = self._broker_to_client.observe
        for moment in self._acknowledged:
            observe(now - moment)
        self._acknowledged.clear()

    # ------------------------------------------------------------------ reading
    def samples(self) -> Iterator[Sample]:
        """Yield every counter as it is now, and what events have set. May be called from another thread."""
        yield Sample(names.APPENDS_SENT, (), self.appends_sent)
        for metric, count in self._plain.items():
            yield Sample(metric, (), count)
        for verdict, count in list(self.verdicts.items()):
            yield Sample(names.BATCHES_ANSWERED, (verdict,), count)
        for result, count in list(self.unknown_outcomes_resolved.items()):
            yield Sample(names.UNKNOWN_OUTCOMES_RESOLVED, (result,), count)
        for reason, count in list(self.prepared.items()):
            yield Sample(names.GROUPS_PREPARED, (reason,), count)
        for reason, count in list(self.refusals.items()):
            yield Sample(names.CONNECTIONS_REFUSED, (reason,), count)
        for code, count in list(self.codes.items()):
            yield Sample(names.BATCHES_FAILED, (name_of(code),), count)
        yield Sample(names.REDIS_RESTARTS, (), self.redis_restarts)
        yield Sample(names.PRODUCER_NAMES_BEGAN, (), self.named.began)
        yield Sample(names.PRODUCER_NAMES_FENCED, (), self.named.fenced)
        yield from self._by_topic()
        for place, one in self.activities.duplicates():
            for how, count in (("answered", one.answered), ("joined", one.joined)):
                if count:
                    yield Sample(names.DUPLICATES_PREVENTED, (*place, how), count)
        for where, expires_at in list(self.certificates.items()):
            yield Sample(names.CERTIFICATE_EXPIRY, (where,), expires_at)
        if self._longest_step is not None:
            yield Sample(names.LOOP_STEP_LONGEST, (), self._longest_step.seconds)
        memory = self.store_memory
        if memory is not None:
            yield Sample(names.REDIS_MEMORY_USED, (), memory.used_bytes)
            yield Sample(names.REDIS_MEMORY_LIMIT, (), memory.limit_bytes)
        yield Sample(names.OUT_OF_ORDER_REFUSED, (), self.verdicts.get("out_of_order", 0))

    def _by_topic(self) -> Iterator[Sample]:
        batches: dict[tuple[str, str], int] = defaultdict(int)
        records: dict[str, int] = defaultdict(int)
        sizes: dict[str, int] = defaultdict(int)
        for topic, one in self.activities.by_topic():
            if one.appended or one.verdicts:
                batches[topic, "appended"] += one.appended
                records[topic] += one.records
                sizes[topic] += one.record_bytes
            for verdict, count in list(one.verdicts.items()):
                batches[topic, verdict] += count
        for place, count in batches.items():
            yield Sample(names.TOPIC_BATCHES, place, count)
        for topic, count in records.items():
            yield Sample(names.TOPIC_RECORDS, (topic,), count)
            yield Sample(names.TOPIC_DATA, (topic,), sizes[topic])
