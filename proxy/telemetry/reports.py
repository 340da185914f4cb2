"""Takes every event of one process: counts it, makes a span of it, writes a line where an operator needs one. Decides
nothing.

Counting is done in ``metrics.py``, spans in ``spans.py``; here are the lines."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...codecs.error_codes import name_of
from ...reactor import Address
from ...state import store
from ...state.entry import NO_OFFSET
from ...state.producer_ids import CONDITIONAL_ID
from .. import events, limits
from ..settings.addresses import shown
from ..versions import api_title
from .log_rate_limit import LogRateLimit
from .metric_names import PREFIX
from .metrics import USUAL_REFUSALS, Metrics
from .redis_hints import NEW_LEASE, redis_reason

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from .spans import Spans

_LOG = logging.getLogger("idemproxy")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_BATCH = "producer %d epoch %d sequence %d on %s-%d"
_PLACES_SHOWN_MAX = 3
_PRINCIPAL_SHOWN = 256
"""Characters of a principal in a line: a certificate may have a subject of any length."""
_FIELDS = {
    "producer_id": "producer_id",
    "producer_epoch": "producer_epoch",
    "base_sequence": "base_sequence",
    "base_sequences": "base_sequences",
    "topic": "topic",
    "partition": "partition",
    "base_offset": "offset",
    "offsets": "offsets",
    "client": "client_id",
    "address": "client_address",
    "principal": "principal",
    "verdict": "verdict",
    "result": "result",
    "bytes_read": "bytes_read",
    "seconds": "seconds",
}
"""Fields of events that a JSON line has, and their names there."""
Taker = Callable[[Any], None]
Later = Callable[[float, Callable[[], None]], object]


class Placed(Protocol):
    """A broker that has an address."""

    @property
    def address(self) -> Address:
        """Its address."""
        ...


class Line(NamedTuple):
    """A line of the log, kept for the status page. ``at_seconds``: unix time."""

    at_seconds: float
    level: str
    text: str


class Telemetry:
    """Takes every event of one process."""

    def __init__(self, spans: Spans | None = None) -> None:
        self.metrics = Metrics(lambda: self._now())
        self.spans = spans
        self.recent: deque[Line] = deque(maxlen=limits.RECENT_LINES_MAX)
        """The last lines, oldest first."""
        self.recent_troubles: deque[Line] = deque(maxlen=limits.RECENT_LINES_MAX)
        """The last lines that are warnings or errors: a stream of others does not push them out."""
        self.lines_per_minute_max = limits.LINES_PER_MINUTE_MAX
        """For each kind of line that clients can cause at will; 0: no limit."""
        self.later: Later | None = None
        """Calls back after so many seconds, if there is a clock: for the lines that sum up others."""
        self.broker: Callable[[int], Placed | None] = lambda _broker_id: None
        """The broker with this id, if there is one: for the spans and the lines."""
        self.leader_of: Callable[[str, int], int | None] = lambda _topic, _partition: None
        """The id of the broker that leads a partition, as far as it is known: for the lines."""
        self.has_data_generation = False
        """Was a data generation of Redis's data seen? Each one after the first is worth a warning."""
        self._now = time.monotonic
        self._rate_limit = LogRateLimit()
        self._is_sum_planned = False
        self._takers = self._all_takers()
        if spans is not None:
            spans.context_failed = self._context_failed

    def __call__(self, event: Any) -> None:
        """Take one event."""
        taker = self._takers.get(type(event))
        if taker is not None:
            taker(event)

    @property
    def counts(self) -> Counter[str]:
        """Everything that was counted: series -> count, as in ``unknown_outcomes_resolved_total{result=found}``."""
        found: Counter[str] = Counter()
        for metric, labels, count in self.metrics.samples():
            if count and metric.kind == "counter":
                pairs = ",".join(f"{name}={label}" for name, label in zip(metric.labels, labels, strict=True))
                name = metric.prometheus_name.removeprefix(f"{PREFIX}_")
                found[f"{name}{{{pairs}}}" if pairs else name] = int(count)
        return found

    def log(
        self, level: int, text: str, *values: object, span: SpanContext | None = None, about: object = None
    ) -> None:
        """Write one line. ``span``: that of the batch which the line is about. ``about``: an event whose fields a JSON
        line has in addition to the text."""
        fields = {} if about is None else fields_of(about)
        if span is not None:
            fields |= {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
        _LOG.log(level, text, *values, extra=fields)
        if level > logging.DEBUG:
            self.keep(level, text % values)

    def keep(self, level: int, text: str) -> None:
        """Keep a line for the status page."""
        line = Line(time.time(), logging.getLevelName(level).lower(), text)
        self.recent.append(line)
        if level >= logging.WARNING:
            self.recent_troubles.append(line)

    def may_write(self, kind: str, least: int = 0) -> bool:
        """May a line of this kind, which clients can cause at will, be written? Lines that are left out are summed up
        later. ``least``: at least so many of this kind a minute, whatever is configured."""
        if not self.lines_per_minute_max:
            return True
        most, now = max(least, self.lines_per_minute_max), self._now()
        self._sum_up(now)
        if self._rate_limit.admits(kind, most, now):
            return True
        ends_at = self._rate_limit.next_end
        if self.later is not None and not self._is_sum_planned and ends_at is not None:
            self._is_sum_planned = True
            self.later(ends_at - now, self._sum_up_planned)
        return False

    def _sum_up_planned(self) -> None:
        self._is_sum_planned = False
        now = self._now()
        self._sum_up(now)
        ends_at = self._rate_limit.next_end
        if self.later is not None and ends_at is not None:
            self._is_sum_planned = True
            self.later(max(ends_at - now, 0.1), self._sum_up_planned)

    def _sum_up(self, now: float, is_the_end: bool = False) -> None:
        for kind, count in self._rate_limit.ended(now, is_the_end):
            self.log(logging.WARNING, "%s: %d more lines like these in a minute were left out", kind, count)

    def close(self) -> None:
        """Log the counters and send the spans that are left. Blocks, at most a few seconds."""
        self._sum_up(self._now(), is_the_end=True)
        counts = self.counts
        if counts:
            self.log(logging.INFO, "counters: %s", json.dumps(counts, sort_keys=True))
        if self.spans is not None:
            self.spans.close()

    def _context_failed(self, error: Exception) -> None:
        if self.may_write("trace contexts"):
            self.log(logging.WARNING, "a batch has no trace: a propagator of OTEL_PROPAGATORS failed: %.200r", error)

    def _all_takers(self) -> dict[type, Taker]:
        """One function for each kind of event: most events are only counted, and cost nothing else."""
        takers = dict(self.metrics.takers())
        for kind, handler in _HANDLERS.items():
            takers[kind] = self._both(takers.get(kind), handler)
        return takers

    def _both(self, count: Taker | None, handler: Callable[[Telemetry, Any], None]) -> Taker:
        def take(event: Any) -> None:
            if count is not None:
                count(event)
            handler(self, event)

        return take


def fields_of(event: object) -> dict[str, object]:
    """Return what a JSON line has of an event, under the same names whichever event it is. Producer ids are text: they
    have up to 63 bits, and many readers of JSON keep 53."""
    found: dict[str, object] = {}
    for name, key in _FIELDS.items():
        value = getattr(event, name, None)
        if value is not None and value != "" and not (name == "base_offset" and value == NO_OFFSET):
            found[key] = str(value) if key == "producer_id" else list(value) if isinstance(value, tuple) else value
    code = getattr(event, "error_code", 0)
    if code:
        found["error_code"] = name_of(code)
    return found


def _said(telemetry: Telemetry, event: events.OperatorMessage) -> None:
    telemetry.log(_LEVELS[event.level], "%s", event.what)


def _answered(telemetry: Telemetry, event: events.BatchAnswered) -> None:
    """Write a line if an operator needs one; most batches need none."""
    is_appended = event.verdict == "appended"
    if is_appended and telemetry.spans is None:
        return
    span, was_in_doubt = None, False
    if telemetry.spans is not None:
        was_in_doubt = telemetry.spans.was_in_doubt(event)
        span = telemetry.spans.answered(event)
    if is_appended:
        if was_in_doubt:  # the lines of an unknown outcome itself cannot name a trace: it begins with the answer
            text = f"answered after an unknown outcome: {_BATCH} has offset %d"
            telemetry.log(logging.INFO, text, *_named(event), event.base_offset, span=span, about=event)
    elif event.verdict == "duplicate":
        if telemetry.may_write("duplicate", limits.DUPLICATE_LINES_PER_MINUTE_MAX):
            text = f"duplicate: {_BATCH}%s answered with offset %d"
            whose = *_named(event), _whose(event)
            telemetry.log(logging.INFO, text, *whose, event.base_offset, span=span, about=event)
    elif telemetry.may_write(event.verdict):
        is_trouble = event.error_code and event.verdict not in USUAL_REFUSALS
        telemetry.log(
            logging.WARNING if is_trouble else logging.INFO,
            f"%s: {_BATCH}%s: %s (%d): %s",
            event.verdict,
            *_named(event),
            _whose(event),
            name_of(event.error_code),
            event.error_code,
            event.message,
            span=span,
            about=event,
        )


def _named(event: events.BatchAnswered) -> tuple[int, int, int, str, int]:
    """The fields that ``_BATCH`` wants."""
    return event.producer_id, event.producer_epoch, event.base_sequence, event.topic, event.partition


def _whose(event: events.BatchAnswered) -> str:
    """Return whose batch it is, for people; nothing of a client that has gone."""
    client = f" of client {event.client!r}" if event.client else ""
    where = f" at {event.address}" if event.address else ""
    principal = f", principal {event.principal[:_PRINCIPAL_SHOWN]!r}" if event.principal else ""
    return f"{client}{where}{principal}"


def _append_sent(telemetry: Telemetry, event: events.AppendSent) -> None:
    if telemetry.spans is not None:
        broker = telemetry.broker(event.broker_id)
        telemetry.spans.append_sent(event, None if broker is None else broker.address)


def _overdue(telemetry: Telemetry, event: events.ProduceOverdue) -> None:
    if telemetry.may_write("overdue produce requests"):
        broker = telemetry.broker(event.broker_id)
        telemetry.log(
            logging.WARNING,
            "broker %d%s has not answered a produce request for %.0f s: %s. It stands still or is overloaded, or the "
            "followers of these partitions are. Their batches wait, and producers get retriable errors; look at the "
            "broker's log, CPU and disks",
            event.broker_id,
            "" if broker is None else f" at {shown(broker.address)}",
            event.seconds,
            some_places(event.places),
            about=event,
        )


def some_places(places: Sequence[tuple[str, int]]) -> str:
    """Return the first of these partitions, and how many more there are."""
    more = len(places) - _PLACES_SHOWN_MAX
    first = ", ".join(f"{topic}-{partition}" for topic, partition in places[:_PLACES_SHOWN_MAX])
    return f"{first} and {more} more" if more > 0 else first


def _step_done(telemetry: Telemetry, event: events.StepDone) -> None:
    if telemetry.spans is not None:
        telemetry.spans.step_done(event)


_REASONS = {"unverified": "what Redis has of it is of an earlier data generation, or nothing: its log is read"}
"""What the log says where the metrics and the journal have one word."""


def _which(event: events.UnknownOutcomeOpened | events.UnknownOutcomeResolved) -> str:
    """Which of a producer's batches is in doubt. A base sequence below 0: the whole entry is read from the log."""
    return f" sequence {event.base_sequence}" if event.base_sequence >= 0 else ""


def _led_by(telemetry: Telemetry, event: events.UnknownOutcomeOpened | events.UnknownOutcomeResolved, how: str) -> str:
    """Return the broker that leads the partition now, which is where the log is read."""
    broker_id = telemetry.leader_of(event.topic, event.partition)
    broker = None if broker_id is None else telemetry.broker(broker_id)
    return "" if broker is None else f"{how} broker {broker_id} at {shown(broker.address)}"


def _unknown_outcome_opened(telemetry: Telemetry, event: events.UnknownOutcomeOpened) -> None:
    telemetry.log(
        logging.INFO,
        "in doubt: producer %d%s on %s-%d%s: %s",
        event.producer_id,
        _which(event),
        event.topic,
        event.partition,
        _led_by(telemetry, event, ", led by"),
        _REASONS.get(event.reason, event.reason),
        about=event,
    )


def _unknown_outcome_resolved(telemetry: Telemetry, event: events.UnknownOutcomeResolved) -> None:
    telemetry.log(
        logging.INFO if event.result != "unrecoverable" else logging.ERROR,
        "resolved as %s: producer %d%s on %s-%d, %d bytes read in %.1f s%s%s",
        event.result,
        event.producer_id,
        _which(event),
        event.topic,
        event.partition,
        event.bytes_read,
        event.seconds,
        _led_by(telemetry, event, " from"),
        f": {event.detail}" if event.detail else "",
        about=event,
    )


def _duplicate_found(telemetry: Telemetry, event: events.DuplicateFound) -> None:
    telemetry.log(
        logging.ERROR,
        "DUPLICATE: producer %d epoch %d sequence %d is in %s-%d at the offsets %s: a broker, or a proxy in the middle "
        "of a send, was paused for so long that the first try was appended after all",
        event.producer_id,
        event.producer_epoch,
        event.base_sequence,
        event.topic,
        event.partition,
        ", ".join(map(str, event.offsets)),
        about=event,
    )


def _late_write(telemetry: Telemetry, event: events.AppendAfterDeadline) -> None:
    telemetry.log(
        logging.ERROR,
        "LATE: producer %d epoch %d sequence %s was appended to %s-%d after the lease deadline because the process was "
        "paused in the middle of a send; checking for duplicates in 1 and 10 minutes",
        event.producer_id,
        event.producer_epoch,
        ", ".join(map(str, event.base_sequences)),
        event.topic,
        event.partition,
        about=event,
    )


def _batch_marker_lost(telemetry: Telemetry, event: events.BatchMarkerLost) -> None:
    telemetry.log(
        logging.WARNING,
        "topic %s keeps no batch markers: batches are stored in %s-%d as %s. One whose answer is lost may fail with "
        "INVALID_RECORD, as it cannot be determined whether it is in the log. compression.type=producer, "
        "message.format.version=0.10 keep them",
        event.topic,
        event.topic,
        event.partition,
        event.stored_as,
        about=event,
    )


def _no_room_for_batch_marker(telemetry: Telemetry, event: events.NoRoomForBatchMarker) -> None:
    if telemetry.may_write("records without a batch marker"):
        telemetry.log(
            logging.WARNING,
            "a record of %d bytes is stored in %s-%d without a batch marker: with it, it is larger than the topic "
            "takes. If its answer is lost, it may fail with INVALID_RECORD, as it cannot be determined whether it is "
            "in the log. A max.message.bytes that is 1 KiB larger has room for the batch marker",
            event.size_bytes,
            event.topic,
            event.partition,
            about=event,
        )


def _data_generation(telemetry: Telemetry, event: events.DataGenerationChanged) -> None:
    if telemetry.has_data_generation:
        telemetry.log(
            logging.WARNING,
            "Redis has data generation %s, a new one (a restart, a failover): what is known of producers is "
            "read from the logs as they come back",
            event.data_generation.hex(),
        )
    else:
        telemetry.log(logging.DEBUG, "Redis has data generation %s", event.data_generation.hex())
    telemetry.has_data_generation = True


def _instance_began(telemetry: Telemetry, event: events.InstanceBegan) -> None:
    if not telemetry.may_write("producer names"):
        return
    text = "producer name %r has a new instance: producer id %d, epoch %d"
    now = event.name, event.producer_id, event.producer_epoch
    if event.before is None:
        telemetry.log(logging.INFO, text, *now)
    else:
        telemetry.log(logging.INFO, f"{text}; fenced: producer id %d, epoch %d", *now, *event.before)


def _partition_fenced(telemetry: Telemetry, event: events.ConditionalPartitionFenced) -> None:
    telemetry.log(
        logging.ERROR,
        "%s-%d is fenced: by what was published conditionally it ended at offset %d, and it was seen to end at %d. "
        "Somebody writes to it past the rules, or the log has lost records. Nothing more is appended there. Find the "
        "writer, then run: idemproxy forget producer %d --topic %s --partition %d",
        event.topic,
        event.partition,
        event.expected_end,
        event.end_offset,
        CONDITIONAL_ID,
        event.topic,
        event.partition,
    )


def _conditional_partition_began(telemetry: Telemetry, event: events.ConditionalPartitionBegan) -> None:
    if telemetry.may_write("conditional partitions"):
        telemetry.log(
            logging.INFO,
            "conditional partition %s-%d: Redis did not say where its log ends, so it was read: the next batch is "
            "expected at offset %d",
            event.topic,
            event.partition,
            event.next_offset,
        )


def _refused(telemetry: Telemetry, event: events.ClientRefused) -> None:
    if telemetry.may_write("refused from clients"):
        telemetry.log(logging.WARNING, "refused from %r: %s", event.client, event.what, about=event)


def _old_client(telemetry: Telemetry, event: events.OldClientSeen) -> None:
    if telemetry.may_write("old clients"):
        software = f", software {event.software!r}" if event.software else ""
        principal = f", principal {event.principal!r}" if event.principal else ""
        what = f"{api_title(event.api_key)} {event.api_version}"
        telemetry.log(
            logging.WARNING if event.is_refused else logging.INFO,
            "old client %r at %s%s%s sends %s, which %s",
            event.client,
            event.address,
            software,
            principal,
            what,
            _what_becomes_of(event),
            about=event,
        )


def _not_lowered(telemetry: Telemetry, event: events.RecordsNotLowered) -> None:
    if telemetry.may_write("records for old clients"):
        telemetry.log(
            logging.WARNING,
            "%s-%d: the records from offset %d on cannot be rewritten for old client %r, which gets an error: %s",
            event.topic,
            event.partition,
            event.offset,
            event.client,
            event.reason,
            about=event,
        )


def _what_becomes_of(event: events.OldClientSeen) -> str:
    if event.is_refused:
        return "Kafka 4 dropped and its broker does not serve: the proxy refuses it; upgrade the client"
    if event.is_raised:
        return "Kafka 4 dropped: the proxy rewrites it"
    return "Kafka 4 dropped: upgrade the client before the brokers"


def _connection_refused(telemetry: Telemetry, event: events.ConnectionRefused) -> None:
    if telemetry.may_write(f"no connection ({event.reason})"):
        telemetry.log(logging.WARNING, "no connection for %s: %s", event.address, event.what, about=event)


def _small_fetch(telemetry: Telemetry, event: events.SmallFetch) -> None:
    if telemetry.may_write("small fetches"):
        telemetry.log(
            logging.WARNING,
            "%r fetches at most %d bytes of a partition with Fetch %d: a stored batch that is larger is never read, "
            "and the consumer stands still; raise its fetch size to max.message.bytes of its topics",
            event.client,
            event.bytes_max,
            event.version,
            about=event,
        )


def _slow(telemetry: Telemetry, event: events.SlowClient) -> None:
    if telemetry.may_write("disconnected clients"):
        telemetry.log(logging.WARNING, "disconnected %r: %s", event.client, event.what, about=event)


def _tls_refused(telemetry: Telemetry, event: events.TlsRefused) -> None:
    if telemetry.may_write("TLS with clients"):
        telemetry.log(logging.WARNING, "TLS with %s: %s", event.client, event.what, about=event)


def _certificate(telemetry: Telemetry, event: events.CertificateLoaded) -> None:
    ends = time.strftime("%Y-%m-%d", time.gmtime(event.expires_at))
    telemetry.log(logging.INFO, "%s: the certificate of %s is in use, until %s", event.place, event.subject, ends)


def _failed(telemetry: Telemetry, event: events.InternalError) -> None:
    _LOG.error("internal error in %s", event.where, exc_info=event.error)
    telemetry.keep(logging.ERROR, f"internal error in {event.where}: {event.error}")


def _store_ready(telemetry: Telemetry, event: store.StoreReady) -> None:
    telemetry.log(logging.INFO, "Redis is ready")


def _store_lost(telemetry: Telemetry, event: store.StoreLost) -> None:
    if event.reason == NEW_LEASE:
        telemetry.log(logging.INFO, "Redis: %s", event.reason)
        return
    text = "Redis is away: %s; batches with a producer id get retriable errors until it is back"
    telemetry.log(logging.WARNING, text, redis_reason(event.reason))


def _store_refused(telemetry: Telemetry, event: store.StoreRefused) -> None:
    telemetry.log(logging.ERROR, "Redis cannot be used: %s", redis_reason(event.reason))


def _store_warning(telemetry: Telemetry, event: store.StoreWarning) -> None:
    telemetry.log(logging.WARNING, "Redis: %s", event.text)


def _store_emptied(telemetry: Telemetry, event: store.StoreEmptied) -> None:
    telemetry.log(
        logging.ERROR,
        "Redis lost its data and did not restart: somebody ran FLUSHALL or FLUSHDB, or deleted keys. The proxy "
        "rebuilds the state of each producer from the logs when its next batch arrives; give the proxies a Redis of "
        "their own",
    )


_HANDLERS: dict[type, Any] = {
    events.OperatorMessage: _said,
    events.BatchAnswered: _answered,
    events.AppendSent: _append_sent,
    events.ProduceOverdue: _overdue,
    events.StepDone: _step_done,
    events.UnknownOutcomeOpened: _unknown_outcome_opened,
    events.UnknownOutcomeResolved: _unknown_outcome_resolved,
    events.DataGenerationChanged: _data_generation,
    events.InstanceBegan: _instance_began,
    events.ConditionalPartitionFenced: _partition_fenced,
    events.ConditionalPartitionBegan: _conditional_partition_began,
    events.BatchMarkerLost: _batch_marker_lost,
    events.NoRoomForBatchMarker: _no_room_for_batch_marker,
    events.AppendAfterDeadline: _late_write,
    events.DuplicateFound: _duplicate_found,
    events.ClientRefused: _refused,
    events.OldClientSeen: _old_client,
    events.RecordsNotLowered: _not_lowered,
    events.ConnectionRefused: _connection_refused,
    events.SlowClient: _slow,
    events.SmallFetch: _small_fetch,
    events.TlsRefused: _tls_refused,
    events.CertificateLoaded: _certificate,
    events.InternalError: _failed,
    store.StoreReady: _store_ready,
    store.StoreLost: _store_lost,
    store.StoreRefused: _store_refused,
    store.StoreWarning: _store_warning,
    store.StoreEmptied: _store_emptied,
}
