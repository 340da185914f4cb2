"""What the admin port tells as JSON: plain data made from a running proxy, nothing else. Looks, and changes nothing.

Called from other threads: what is iterated over is copied first. Producer ids are text: they have up to 63 bits, and a
browser's numbers 53."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any, Final

from ..broker.broker import BrokerStatistics
from ..broker.lane_pool import LaneStatistics
from ..producer.sequencer import ProducerStatistics
from ..settings.addresses import shown
from ..telemetry import metric_names as names
from .health import Watched, concerns, reasons_not_ready
from .rates import Durations, Rates, Taken, per_second

Json = dict[str, Any]
LIST_DEFAULT: Final = 100
NAMED_PARTITIONS_MAX: Final = 5
"""Partitions of each name in the list of names; the list of producers has all of them."""
LIST_MAX: Final = 1_000
"""Entries of one list."""


def totals(watched: Watched) -> dict[str, float]:
    """Return what is shown as numbers and rates."""
    metrics = watched.telemetry.metrics
    plain = {sample.metric: sample.value for sample in metrics.samples() if not sample.labels}
    return {
        "requests": sum(watched.engine.statistics().requests_by_key.values()),
        "batches": sum(list(metrics.verdicts.values())),
        "batches_appended": metrics.verdicts.get("appended", 0),
        "duplicates_prevented": metrics.duplicates_answered + metrics.retries_joined,
        "duplicates_answered": metrics.duplicates_answered,
        "retries_joined": metrics.retries_joined,
        "out_of_order_refused": plain[names.OUT_OF_ORDER_REFUSED],
        "doubts_opened": plain[names.DOUBTS_OPENED],
        "reforwards": plain[names.REFORWARDS],
        "duplicates_found": plain[names.DUPLICATES_FOUND],
        "invalid_requests": plain[names.INVALID_REQUESTS],
        "internal_errors": plain[names.INTERNAL_ERRORS],
        "redis_generations": plain[names.REDIS_GENERATIONS],
        "incarnations": plain[names.INCARNATIONS],
        "intents_taken_over": plain[names.INTENTS_TAKEN_OVER],
    }


def durations(watched: Watched) -> dict[str, Durations]:
    """Return every histogram as it stands, by the name of what it measures."""
    return {
        metric.name.removesuffix(".duration"): Durations(list(buckets.counts), buckets.total_seconds)
        for metric, buckets in watched.telemetry.metrics.histograms.items()
    }


def status(watched: Watched, rates: Rates) -> Json:
    """The proxy as a whole: ready or why not, its life, its totals, rates, and times of the last two minutes."""
    now = watched.engine.statistics()
    not_ready = reasons_not_ready(watched)
    memory = watched.telemetry.metrics.store_memory
    return {
        "version": watched.version,
        "at": watched.wall(),
        "uptime_seconds": round(watched.now() - watched.started_at, 1),
        "ready": not not_ready,
        "not_ready": not_ready,
        "concerns": concerns(watched),
        "draining": now.is_draining,
        "cluster": now.cluster,
        "idempotence": None if now.idempotence is None else now.idempotence.value,
        "incarnation": now.incarnation.hex(),
        "redis": {
            "connected": watched.is_store_up,
            "generation": now.generation.hex(),
            "lease_remaining_seconds": round(watched.lease_seconds, 1),
            "memory_used_bytes": None if memory is None else memory.used_bytes,
            "memory_limit_bytes": None if memory is None else memory.limit_bytes,
        },
        "clients": {"connections": now.connections, "limit": now.connections_max},
        "memory": {
            "request_bytes": now.memory.bytes_held,
            "request_bytes_limit": now.memory.bytes_max,
            "producers": now.entries,
            "producers_limit": now.entries_max,
        },
        "totals": totals(watched),
        "per_second": rates.per_second(),
        "verdicts": watched.telemetry.metrics.verdicts.copy(),
        "doubts": {
            "now": len(now.doubts),
            "oldest_seconds": round(now.oldest_doubt_seconds, 1),
            "resolved": watched.telemetry.metrics.doubts_resolved.copy(),
        },
        "times": {
            name: times_of(found.counts, found.total_seconds)
            for name, found in rates.lately(durations(watched)).items()
        },
    }


def history(rates: Rates) -> Json:
    """The last hour, a number for each step, oldest first. ``seconds_ago``: when a step ended; ``batches``: per second;
    ``..._p99_seconds``: null where nothing was measured, or it was above the last bound of the histogram."""
    steps = rates.hour()
    now = steps[-1][1].at if steps else 0.0
    found: Json = {
        "seconds_ago": [round(now - after.at, 1) for _, after in steps],
        "batches": [per_second(before, after, "batches") for before, after in steps],
    }
    for name in ("duplicates_prevented", "doubts_opened"):
        found[name] = [after.totals.get(name, 0) - before.totals.get(name, 0) for before, after in steps]
    for name in ("batch", "client_to_broker"):
        found[f"{name}_p99_seconds"] = [_p99_between(before, after, name) for before, after in steps]
    return found


def _p99_between(before: Taken, after: Taken, name: str) -> float | None:
    if name not in after.times:
        return None
    between = after.times[name].since(before.times.get(name))
    p99: float | None = times_of(between.counts, between.total_seconds)["p99_seconds"]
    return p99


def brokers(watched: Watched) -> list[Json]:
    """Every broker of the cluster and the connections to it, by id."""
    now = watched.engine.statistics()
    return [_broker(broker, now.lanes_of_clients(broker.id)) for broker in now.topology.brokers]


def producers(watched: Watched, producer_id: int | None, topic: str | None, count: int) -> Json:
    """Producers on partitions, as this process holds them, the one used last first."""
    engine = watched.engine
    listed = [_producer(one) for one in engine.producers(producer_id, topic, count)]
    return {"in_memory": engine.statistics().entries, "producers": listed}


def client_ids(watched: Watched, producer_ids: Collection[int]) -> Json:
    """The client id of each of these producers that this process has had a batch of, as its connection gave it."""
    found = watched.engine.producers_of(producer_ids, NAMED_PARTITIONS_MAX)
    told = {str(key): next((one.client for one in each if one.client), "") for key, each in found.items()}
    return {"client_ids": {key: client for key, client in told.items() if client}}


def doubts(watched: Watched) -> list[Json]:
    """What is in doubt now, the oldest first."""
    now = watched.engine.statistics()
    return [
        {
            "producer_id": str(doubt.opened.producer_id),
            "topic": doubt.opened.topic,
            "partition": doubt.opened.partition,
            # -1 where an entry is read from the log, before a batch of it is known.
            "base_sequence": doubt.opened.base_sequence if doubt.opened.base_sequence >= 0 else None,
            "reason": doubt.opened.reason,
            "age_seconds": round(max(0.0, now.at - doubt.since), 1),
        }
        for doubt in islice(sorted(now.doubts, key=lambda doubt: doubt.since), LIST_MAX)
    ]


def duplicates(watched: Watched) -> list[Json]:
    """Duplicates that were prevented by client and topic, most first. ``count``: those answered and those joined."""
    found = sorted(watched.telemetry.metrics.activities.duplicates(), key=lambda one: -one[1].prevented)
    return [
        {"client_id": client, "topic": topic, "count": one.prevented, "answered": one.answered, "joined": one.joined}
        for (client, topic), one in found
    ]


def clients(watched: Watched, count: int) -> list[Json]:
    """What each client did on each topic, the one that was active last first; batches with a producer id."""
    activities = watched.telemetry.metrics.activities
    now = activities.now()
    found = sorted(activities.items(), key=lambda one: -one[1].last_at)
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
        }
        for (client, topic), one in found[:count]
    ]


def named(watched: Watched, count: int) -> list[Json]:
    """Named producers that began at this process, the one that began last first. ``fenced``: how many earlier instances
    were replaced by those that began here. ``stopped``: the last sequence stored on each of the partitions that it used
    last, as far as they are in memory."""
    metrics = watched.telemetry.metrics
    now = metrics.activities.now()
    newest = metrics.named.newest_first()[:count]
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


def tombstones(watched: Watched, count: int) -> list[Json]:
    """Ranges of offsets that were named as second copies, the one changed last first; ``last_offset`` is included."""
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
        for place, one in watched.engine.tombstones.newest_first()[:count]
    ]


def lines(watched: Watched, count: int) -> list[Json]:
    """The last lines of the log, newest first."""
    newest = islice(reversed(watched.telemetry.recent.copy()), count)
    return [{"at": line.at_seconds, "level": line.level, "text": line.text} for line in newest]


def page(watched: Watched, rates: Rates) -> Json:
    """All that the status page shows, in one answer."""
    return {
        "status": status(watched, rates),
        "history": history(rates),
        "brokers": brokers(watched),
        "doubts": doubts(watched)[:50],
        "producers": producers(watched, None, None, 50),
        "duplicates": duplicates(watched)[:50],
        "clients": clients(watched, 50),
        "names": named(watched, 50),
        "tombstones": tombstones(watched, 50),
        "events": lines(watched, 50),
    }


def _broker(broker: BrokerStatistics, own: LaneStatistics) -> Json:
    return {
        "id": broker.id,
        "address": shown(broker.address),
        "version": broker.version,
        "ready": broker.is_ready,
        "held": broker.why_held,
        "lanes_busy": broker.lanes.busy,
        "lanes_idle": broker.lanes.idle,
        "own_lanes_busy": own.busy,
        "own_lanes_idle": own.idle,
        "appends_waiting": (broker.lanes + own).waiting_appends,
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
        "state": producer.state.value,
        "client_id": producer.client,
        "known": entry is not None,
    }
    if entry is not None:
        found |= {
            "epoch": entry.producer_epoch,
            "next_sequence": entry.next_sequence,
            "window": [
                {"base_sequence": one.base_sequence, "records": one.record_count, "base_offset": one.base_offset}
                for one in entry.window
            ],
            "open_intent": entry.has_open_intent,
        }
    return found


def times_of(counts: Sequence[int], total_seconds: float) -> Json:
    """Return count and quantiles of a histogram, and its buckets; a quantile is the upper bound of the bucket that it
    falls into."""
    total = sum(counts)
    found: Json = {"count": total, "mean_seconds": round(total_seconds / total, 6) if total else None}
    found |= {"total_seconds": total_seconds, "buckets": list(counts)}
    for name, share in (("p50_seconds", 0.5), ("p99_seconds", 0.99)):
        left = share * total
        found[name] = None
        for bound, count in zip(names.DURATION_BOUNDS_SECONDS, counts, strict=False):
            left -= count
            if total and left <= 0:
                found[name] = bound
                break
    return found
