"""What the status page shows, as plain data made from a running proxy. Looks, and changes nothing.

Called from other threads: what is iterated over is copied first. Producer ids are text: they have up to 63 bits, and a
browser's numbers 53."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Any, Final

from .. import limits
from ..broker.broker import BrokerStatistics
from ..broker.produce_connection_pool import ProduceConnectionStatistics
from ..producer.sequencer import ProducerStatistics
from ..settings.addresses import shown
from ..telemetry import metric_names as names
from ..telemetry.activity import Activity
from ..telemetry.reports import Line
from ..versions import api_title
from .health import Watched, api_name, concerns, reasons_not_ready
from .rates import Counts, Rates, Taken, per_second, since

Json = dict[str, Any]
ROWS_MAX: Final = 50
"""Rows of one list."""
NAMED_PARTITIONS_MAX: Final = 5
"""Partitions of each name in the list of names; the list of producers has all of them."""
_TIMES: Final = (names.CLIENT_TO_BROKER, names.BROKER, names.BROKER_TO_CLIENT, names.BATCH)
"""The histograms of which the page shows something."""


_SIGNS: Final = ("problem", "warning", "note")
"""Of findings, the worst first."""
_TROUBLES: Final = ("warning", "error")
"""Levels of lines that stand by themselves."""


def totals(watched: Watched) -> dict[str, float]:
    """Return what is shown as numbers and rates."""
    metrics = watched.telemetry.metrics
    plain = {sample.metric: sample.value for sample in metrics.samples() if not sample.labels}
    return {
        "batches": sum(list(metrics.verdicts.values())),
        "duplicates_prevented": metrics.duplicates_answered + metrics.retries_joined,
        "out_of_order_refused": plain[names.OUT_OF_ORDER_REFUSED],
        "unknown_outcomes_opened": plain[names.UNKNOWN_OUTCOMES_OPENED],
        "duplicates_found": plain[names.DUPLICATES_FOUND],
        "requests": sum(watched.engine.statistics().requests_by_key.values()),
    }


def durations(watched: Watched) -> dict[str, Counts]:
    """Return the histograms that are shown as they stand, by the name of what they measure."""
    histograms = watched.telemetry.metrics.histograms
    return {metric.name.removesuffix(".duration"): list(histograms[metric].counts) for metric in _TIMES}


def status(watched: Watched, rates: Rates) -> Json:
    """The proxy as a whole: ready or why not, its totals, rates, and times of the last two minutes."""
    now = watched.engine.statistics()
    not_ready = reasons_not_ready(watched)
    return {
        "version": watched.version,
        "host": watched.host,
        "uptime_seconds": round(watched.now() - watched.started_at, 1),
        "ready": not not_ready,
        "not_ready": not_ready,
        "concerns": concerns(watched),
        "draining": now.is_draining,
        "cluster": now.cluster,
        "idempotence": None if now.idempotence is None else now.idempotence.value,
        "engine_topics": list(now.engine_topics),
        "redis": {
            "connected": watched.is_store_up,
            "lease_remaining_seconds": round(watched.lease_seconds, 1),
        },
        "connections": now.connections,
        "totals": totals(watched),
        "batches_per_second": rates.per_second("batches"),
        "requests_per_second": rates.per_second("requests"),
        "client_bytes": _client_bytes(watched),
        "unknown_outcomes": {
            "now": len(now.unknown_outcomes),
            "oldest_seconds": round(now.oldest_unknown_outcome_seconds, 1),
        },
        "times": {name: times_of(counts) for name, counts in rates.lately(durations(watched)).items()},
    }


def history(rates: Rates) -> Json:
    """The last hour, a number for each step, oldest first. ``seconds_ago``: when a step ended; ``batches``,
    ``requests``: per second; ``batch_p99_seconds``: null where nothing was measured, or it was above the last bound of
    the histogram."""
    steps = rates.hour()
    now = steps[-1][1].at if steps else 0.0
    found: Json = {
        "seconds_ago": [round(now - after.at, 1) for _, after in steps],
        **{name: [per_second(before, after, name) for before, after in steps] for name in ("batches", "requests")},
    }
    for name in ("duplicates_prevented", "unknown_outcomes_opened"):
        found[name] = [after.totals.get(name, 0) - before.totals.get(name, 0) for before, after in steps]
    found["batch_p99_seconds"] = [_p99_between(before, after, "batch") for before, after in steps]
    return found


def _p99_between(before: Taken, after: Taken, name: str) -> float | None:
    if name not in after.times:
        return None
    p99: float | None = times_of(since(after.times[name], before.times.get(name)))["p99_seconds"]
    return p99


def brokers(watched: Watched) -> list[Json]:
    """Every broker of the cluster and the connections to it, by id."""
    now = watched.engine.statistics()
    return [_broker(broker, now.produce_connections_of_clients(broker.id)) for broker in now.topology.brokers]


def producers(watched: Watched, producer_id: int | None, topic: str | None) -> Json:
    """Producers on partitions, as this process holds them, the one used last first."""
    engine = watched.engine
    listed = [_producer(one) for one in engine.producers(producer_id, topic, ROWS_MAX)]
    return {"in_memory": engine.statistics().entries, "producers": listed}


def client_ids(watched: Watched, producer_ids: Collection[int]) -> Json:
    """The client id of each of these producers that this process has had a batch of, as its connection gave it."""
    found = watched.engine.producers_of(producer_ids, NAMED_PARTITIONS_MAX)
    reported = {str(key): next((one.client for one in each if one.client), "") for key, each in found.items()}
    return {"client_ids": {key: client for key, client in reported.items() if client}}


def unknown_outcomes(watched: Watched) -> list[Json]:
    """What is in doubt now, the oldest first."""
    now = watched.engine.statistics()
    return [
        {
            "producer_id": str(unknown_outcome.opened.producer_id),
            "topic": unknown_outcome.opened.topic,
            "partition": unknown_outcome.opened.partition,
            # -1 where an entry is read from the log, before a batch of it is known.
            "base_sequence": unknown_outcome.opened.base_sequence
            if unknown_outcome.opened.base_sequence >= 0
            else None,
            "reason": unknown_outcome.opened.reason,
            "age_seconds": round(max(0.0, now.at - unknown_outcome.since), 1),
        }
        for unknown_outcome in islice(
            sorted(now.unknown_outcomes, key=lambda unknown_outcome: unknown_outcome.since), ROWS_MAX
        )
    ]


def duplicates(watched: Watched) -> list[Json]:
    """Duplicates that were prevented by client and topic, most first. ``count``: those answered and those joined."""
    found = sorted(watched.telemetry.metrics.activities.duplicates(), key=lambda one: -one[1].prevented)
    return [
        {"client_id": client, "topic": topic, "count": one.prevented, "answered": one.answered, "joined": one.joined}
        for (client, topic), one in found[:ROWS_MAX]
    ]


def clients(watched: Watched) -> list[Json]:
    """What each client did on each topic, those that fail now first, then the one that was active last; batches with a
    producer id."""
    activities = watched.telemetry.metrics.activities
    now = activities.now()

    def is_failing(one: Activity) -> bool:
        return now - one.failed_at < limits.CLIENT_FAILING_SECONDS

    found = sorted(activities.items(), key=lambda one: (not is_failing(one[1]), -one[1].last_at))
    return [
        {
            "client_id": client,
            "topic": topic,
            "batches": one.appended + sum(one.verdicts.values()),
            "records": one.records,
            "bytes": one.record_bytes,
            "duplicates_prevented": one.prevented,
            "verdicts": {"appended": one.appended, **one.verdicts},
            "idle_seconds": round(max(0.0, now - one.last_at), 1),
            "failing": is_failing(one),
        }
        for (client, topic), one in found[:ROWS_MAX]
    ]


def named(watched: Watched) -> list[Json]:
    """Producers with a name that began at this process, the one that began last first. ``fenced``: how many earlier
    instances were replaced by those that began here. ``stopped``: the last sequence stored on each of the partitions
    that it used last, as far as they are in memory."""
    metrics = watched.telemetry.metrics
    now = metrics.activities.now()
    newest = metrics.named.newest_first()[:ROWS_MAX]
    in_memory = watched.engine.producers_of({one.producer_id for _, one in newest}, NAMED_PARTITIONS_MAX)
    return [
        {
            "name": name,
            "producer_id": str(one.producer_id),
            "epoch": one.producer_epoch,
            "instances": one.instances,
            "fenced": one.fenced,
            "age_seconds": round(max(0.0, now - one.began_at), 1),
            "stopped": [
                {
                    "topic": producer.topic,
                    "partition": producer.partition,
                    "epoch": producer.entry.producer_epoch,
                    "last_sequence": producer.entry.last_sequence,
                }
                for producer in in_memory.get(one.producer_id, ())
                if producer.entry is not None
            ],
        }
        for name, one in newest
    ]


def hidden_ranges(watched: Watched) -> list[Json]:
    """Hidden ranges, the one changed last first; ``last_offset`` is included."""
    now_ms = watched.wall() * 1000
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "first_offset": place.first,
            "last_offset": place.end - 1,
            "state": one.state.value,
            "age_seconds": round(max(0.0, now_ms - one.at_ms) / 1000, 1),
            "reason": one.reason,
            "refusal": one.refusal,
        }
        for place, one in watched.engine.hidden_ranges.newest_first()[:ROWS_MAX]
    ]


def old_clients(watched: Watched) -> Json:
    """Every client that has sent a version which Kafka 4 lacks, the one seen last first. ``forgotten``: how many times
    one made room for another one. ``requests``: by API and version, the APIs as Kafka's documentation names them."""
    inventory, now = watched.engine.old_clients.inventory, watched.wall()
    return {
        "uptime_seconds": round(watched.now() - watched.started_at, 1),
        "forgotten": inventory.forgotten,
        "clients": [
            {
                "client_id": seen.client.name,
                "address": seen.client.address,
                "software": seen.client.software,
                "principal": seen.client.principal,
                "requests": [
                    {"api": api_title(key), "version": version, "requests": count}
                    for (key, version), count in sorted(seen.requests.items())
                ],
                "refused": seen.refused,
                "first_seen": seen.first_at,
                "last_seen": seen.last_at,
                "idle_seconds": round(max(0.0, now - seen.last_at), 1),
            }
            for seen in inventory.newest_first()
        ],
    }


def _shown_old_clients(watched: Watched) -> Json:
    found = old_clients(watched)
    return {**found, "clients": found["clients"][:ROWS_MAX]}


def findings(watched: Watched) -> list[Json]:
    """What ``idemproxy check`` says of this configuration, problems first."""
    found = sorted(watched.findings(), key=lambda one: _SIGNS.index(one[0]))
    return [{"sign": sign, "what": what, "text": text} for sign, what, text in found[:ROWS_MAX]]


def passing(watched: Watched) -> list[Json]:
    """The requests that came, by API, most first."""
    now = watched.engine.statistics()
    found: dict[str, int] = {}
    for key, count in now.requests_by_key.items():
        found[api_name(key)] = found.get(api_name(key), 0) + count
    return [{"api": api, "requests": count} for api, count in sorted(found.items(), key=lambda one: -one[1])]


def _client_bytes(watched: Watched) -> Json:
    traffic = watched.client_traffic
    received, sent = (0, 0) if traffic is None else (traffic.received_bytes, traffic.sent_bytes)
    return {"received": received, "sent": sent}


def troubles(watched: Watched) -> list[Json]:
    """The last warnings and errors of the log, newest first."""
    return [_line(line) for line in islice(reversed(watched.telemetry.recent_troubles.copy()), ROWS_MAX)]


def lines(watched: Watched) -> list[Json]:
    """The last other lines of the log, newest first."""
    others = (line for line in reversed(watched.telemetry.recent.copy()) if line.level not in _TROUBLES)
    return [_line(line) for line in islice(others, ROWS_MAX)]


def _line(line: Line) -> Json:
    return {"at": line.at_seconds, "level": line.level, "text": line.text}


def page(watched: Watched, rates: Rates) -> Json:
    """All that the status page shows, in one answer."""
    return {
        "status": status(watched, rates),
        "history": history(rates),
        "findings": findings(watched),
        "passing": passing(watched),
        "brokers": brokers(watched),
        "unknown_outcomes": unknown_outcomes(watched),
        "producers": producers(watched, None, None),
        "duplicates": duplicates(watched),
        "clients": clients(watched),
        "names": named(watched),
        "hidden_ranges": hidden_ranges(watched),
        "old_clients": _shown_old_clients(watched),
        "troubles": troubles(watched),
        "events": lines(watched),
    }


def _broker(broker: BrokerStatistics, own: ProduceConnectionStatistics) -> Json:
    return {
        "id": broker.id,
        "address": shown(broker.address),
        "version": broker.version,
        "ready": broker.is_ready,
        "produce_connections_busy": broker.produce_connections.busy,
        "produce_connections_idle": broker.produce_connections.idle,
        "own_produce_connections_busy": own.busy,
        "own_produce_connections_idle": own.idle,
        "appends_waiting": (broker.produce_connections + own).waiting_appends,
    }


def _producer(producer: ProducerStatistics) -> Json:
    entry = producer.entry
    found: Json = {
        "producer_id": str(producer.producer_id),
        "topic": producer.topic,
        "partition": producer.partition,
        "queued": producer.queued,
        "under_way": producer.under_way,
        "idle": producer.is_idle,
        "client_id": producer.client,
        "known": entry is not None,
    }
    if entry is not None:
        found |= {
            "epoch": entry.producer_epoch,
            "next_sequence": entry.next_sequence,
            "window": [{"base_sequence": one.base_sequence, "base_offset": one.base_offset} for one in entry.window],
            "open_intent": entry.has_open_intent,
        }
    return found


def times_of(counts: Counts) -> Json:
    """Return how many a histogram has, its buckets, and the p99: the upper bound of the bucket that it falls into; None
    where nothing was measured, or it is above the last bound."""
    total = sum(counts)
    found: Json = {"count": total, "p99_seconds": None, "buckets": list(counts)}
    left = 0.99 * total
    for bound, count in zip(names.DURATION_BOUNDS_SECONDS, counts, strict=False):
        left -= count
        if total and left <= 0:
            found["p99_seconds"] = bound
            break
    return found
