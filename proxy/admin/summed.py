"""The answers of several workers as one: their JSON and their metrics added up. Pure.

A number is the sum of the workers' numbers, unless its meaning forbids that: the age of the oldest unknown outcome is
the highest of all, and the proxy is ready only if all workers are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from math import fsum
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from .. import limits
from ..telemetry import metric_names as names
from .views import ROWS_MAX, Json, times_of

_SUMMED_UP: Final[Mapping[str, Callable[[Iterable[float]], float]]] = {
    **{metric.prometheus_name: min for metric in names.LEAST_OF_WORKERS},
    **{metric.prometheus_name: max for metric in names.MOST_OF_WORKERS},
    "process_start_time_seconds": min,
    "target_info": max,
}
"""How a metric of several workers becomes one; those that are not here are added."""
_COUNTERS: Final = ("counter", "histogram")
"""Types of metrics that only grow."""

_CLIENT_COUNTS: Final = ("batches", "records", "bytes", "duplicates_prevented")
"""The numbers in a row of the list of clients that are added."""
_COUNTS: Final = ("count", "answered", "joined")
"""The numbers in a row of the list of duplicates."""


class WorkerAnswer(NamedTuple):
    """The answer of one worker. ``number``: from 1 on."""

    number: int
    answer: Any


def metrics(texts: Iterable[str], own: Iterable[Family] = ()) -> bytes:
    """Return the workers' metrics as one, in Prometheus' text format, followed by ``own``."""
    return _written([*_added_up(_read(texts)), *own])


def counters(texts: Iterable[str]) -> str:
    """Return the counters and histograms of these texts, added up, in Prometheus' text format."""
    return _written(_added_up(_read(texts, _COUNTERS))).decode()


def vanished(before: str, after: str) -> str:
    """Return the counters that are in ``before`` and not in ``after``, two texts of the same process: series of client
    ids and topics that made room for others. Empty: there are none."""
    had, has = ({line.rpartition(" ")[0] for line in text.split("\n") if "topic=" in line} for text in (before, after))
    if had <= has:
        return ""
    still = {key for _, samples in _read([after]).values() for key in samples}
    found = _read([before], _COUNTERS)
    for _, samples in found.values():
        for key in [key for key in samples if key in still]:
            del samples[key]
    return _written(_added_up(found)).decode()


def without_names(text: str, living: Iterable[str]) -> str:
    """Return ``text`` without the series of client ids and topics that none of the ``living`` texts has."""
    still = {name: {*map(_named, samples)} for name, (_, samples) in _read(living).items()}
    found = _read([text])
    for name, (_, samples) in found.items():
        known = still.get(name, set()) | {()}
        for key in [key for key in samples if _named(key) not in known]:
            del samples[key]
    return _written(_added_up(found)).decode()


def most_names(texts: Iterable[str]) -> int:
    """Return the highest number of pairs of client and topic, or of topics, that one metric has."""
    each = ({*map(_named, samples)} - {()} for _, samples in _read(texts).values())
    return max(map(len, each), default=0)


_Key = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels of a sample."""
_Families = dict[str, tuple[Family, dict[_Key, list[float]]]]
"""By name: the metric, and the workers' values of each of its samples."""


def _read(texts: Iterable[str], kinds: Collection[str] = ()) -> _Families:
    """Read texts in Prometheus' format. ``kinds``: only metrics of these types; empty: all."""
    found: _Families = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            if kinds and family.type not in kinds:
                continue
            empty = Family(family.name, family.documentation, family.type)
            _, samples = found.setdefault(family.name, (empty, {}))
            for sample in family.samples:
                samples.setdefault((sample.name, tuple(sample.labels.items())), []).append(sample.value)
    return found


def _added_up(found: _Families) -> list[Family]:
    """Return each metric with the workers' samples made one (``_SUMMED_UP``)."""
    for name, (family, samples) in found.items():
        # fsum rounds once, so a sum of numbers that only grow never falls, not even by its last bit.
        add = _SUMMED_UP.get(name, fsum)
        for (sample_name, labels), values in samples.items():
            family.add_sample(sample_name, dict(labels), add(values))
    return [family for family, _ in found.values()]


def _named(key: _Key) -> tuple[str, ...]:
    """The values of labels that clients choose (client id, topic); empty: there are none, or it is the series of all
    that is above the cap."""
    found = tuple(value for name, value in key[1] if name in ("client_id", "topic"))
    return () if set(found) == {names.OTHER} else found


def _written(families: Sequence[Family]) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Fixed(families))
    return generate_latest(registry)


class _Fixed(Collector):
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Family]:
        yield from self._families


def reasons(reported: Iterable[WorkerAnswer]) -> list[str]:
    """Return the sentences of all workers; one that all of them say is said once."""
    by_text: dict[str, list[int]] = {}
    all_numbers = []
    for number, sentences in reported:
        all_numbers.append(number)
        for sentence in sentences:
            by_text.setdefault(sentence, []).append(number)
    return [
        text if numbers == all_numbers and len(numbers) > 1 else f"worker {', '.join(map(str, numbers))}: {text}"
        for text, numbers in by_text.items()
    ]


def status(reported: Sequence[WorkerAnswer]) -> Json:
    """Return the status of all workers as one."""
    each = [one.answer for one in reported]
    first = each[0]
    not_ready = reasons(WorkerAnswer(one.number, one.answer["not_ready"]) for one in reported)
    return {
        "version": first["version"],
        "host": first["host"],
        "uptime_seconds": max(one["uptime_seconds"] for one in each),
        "ready": not not_ready,
        "not_ready": not_ready,
        "concerns": reasons(WorkerAnswer(one.number, one.answer["concerns"]) for one in reported),
        "draining": any(one["draining"] for one in each),
        "cluster": first["cluster"],
        "idempotence": first["idempotence"],
        "engine_topics": first["engine_topics"],
        "redis": {
            "connected": all(one["redis"]["connected"] for one in each),
            "lease_remaining_seconds": min(one["redis"]["lease_remaining_seconds"] for one in each),
        },
        "connections": sum(one["connections"] for one in each),
        "totals": _added(one["totals"] for one in each),
        **{name: _sum([one[name] or 0.0 for one in each]) for name in ("batches_per_second", "requests_per_second")},
        "client_bytes": _added(one["client_bytes"] for one in each),
        "unknown_outcomes": {
            "now": sum(one["unknown_outcomes"]["now"] for one in each),
            "oldest_seconds": max(one["unknown_outcomes"]["oldest_seconds"] for one in each),
        },
        "times": {name: _times([one["times"][name] for one in each]) for name in first["times"]},
    }


def history(reported: Sequence[WorkerAnswer]) -> Json:
    """Return the history of all, step by step, as far back as the worker with the longest history. Of quantiles
    and ages it has the highest, as quantiles cannot be added."""
    found: Json = {}
    for name in reported[0].answer:
        of_steps = zip_longest(*(reversed(one.answer[name]) for one in reported))
        add = _highest if name.endswith(("_seconds", "seconds_ago")) else _sum
        found[name] = [add([number for number in of_step if number is not None]) for of_step in of_steps][::-1]
    return found


def _sum(numbers: Sequence[float]) -> float:
    return round(sum(numbers), 2)


def _highest(numbers: Sequence[float]) -> float | None:
    return max(numbers, default=None)


def brokers(reported: Sequence[WorkerAnswer]) -> list[Json]:
    """Return the brokers of all: a broker is ready if it is for all that know it."""
    by_id: dict[int, list[Json]] = {}
    for one in reported:
        for broker in one.answer:
            by_id.setdefault(broker["id"], []).append(broker)
    found = []
    for _, same in sorted(by_id.items()):
        numbers = {
            name: sum(one[name] for one in same)
            for name in same[0]
            if name.startswith(("produce_connections", "own", "app"))
        }
        found.append({**same[0], "ready": all(one["ready"] for one in same), **numbers})
    return found


def producers(reported: Sequence[WorkerAnswer]) -> Json:
    """Return ``/api/v1/producers`` of all, each with its ``worker``. A producer whose client has connected to another
    worker is listed for both for a time."""
    each = ([{**one, "worker": number} for one in answer["producers"]] for number, answer in reported)
    mixed = (one for together in zip_longest(*each) for one in together if one is not None)
    return {"in_memory": sum(one.answer["in_memory"] for one in reported), "producers": list(islice(mixed, ROWS_MAX))}


def client_ids(reported: Sequence[WorkerAnswer]) -> Json:
    """Return ``/api/v1/client_ids`` of all: a producer that is in memory at several workers has the same one at
    each."""
    return {"client_ids": {key: client for one in reported for key, client in one.answer["client_ids"].items()}}


def unknown_outcomes(reported: Sequence[WorkerAnswer]) -> list[Json]:
    """Return the unknown outcomes of all, the oldest first."""
    each = ({**unknown_outcome, "worker": one.number} for one in reported for unknown_outcome in one.answer)
    return sorted(each, key=lambda unknown_outcome: -float(unknown_outcome["age_seconds"]))[:ROWS_MAX]


def duplicates(reported: Sequence[WorkerAnswer]) -> list[Json]:
    """Return the prevented duplicates of all, most first."""
    found: dict[tuple[str, str], Json] = {}
    for one in reported:
        for row in one.answer:
            before = found.get((row["client_id"], row["topic"]))
            added = {} if before is None else {name: row[name] + before[name] for name in _COUNTS}
            found[row["client_id"], row["topic"]] = {**row, **added}
    return sorted(found.values(), key=lambda row: -int(row["count"]))[:ROWS_MAX]


def clients(reported: Sequence[WorkerAnswer]) -> list[Json]:
    """Return the clients of all, those that fail first, then the one that was active last."""
    found: dict[tuple[str, str], Json] = {}
    for one in reported:
        for row in one.answer:
            place = row["client_id"], row["topic"]
            before = found.get(place)
            if before is None:
                found[place] = row
                continue
            added = {name: row[name] + before[name] for name in _CLIENT_COUNTS}
            idle = min(row["idle_seconds"], before["idle_seconds"])
            verdicts = _added((row["verdicts"], before["verdicts"]))
            failing = row["failing"] or before["failing"]
            found[place] = {**row, **added, "verdicts": verdicts, "idle_seconds": idle, "failing": failing}
    return sorted(found.values(), key=lambda row: (not row["failing"], float(row["idle_seconds"])))[:ROWS_MAX]


def named(reported: Sequence[WorkerAnswer]) -> list[Json]:
    """Return the names of all, the one that began last first. Of each name it has the newest instance."""
    found: dict[str, Json] = {}
    for one in reported:
        for row in one.answer:
            before = found.get(row["name"])
            if before is not None:
                newest = min((row, before), key=lambda each: float(each["age_seconds"]))
                counts = {name: row[name] + before[name] for name in ("instances", "fenced")}
                row = {**newest, **counts, "stopped": _furthest([*row["stopped"], *before["stopped"]])}
            found[row["name"]] = row
    return sorted(found.values(), key=lambda row: float(row["age_seconds"]))[:ROWS_MAX]


def _furthest(stopped: Sequence[Json]) -> list[Json]:
    """Return the furthest row of each partition: a worker that has not written there for a while has an older state."""
    found: dict[tuple[str, int], Json] = {}
    for row in stopped:
        place = row["topic"], row["partition"]
        found[place] = max(row, found.get(place, row), key=lambda each: (each["epoch"], each["last_sequence"]))
    return list(found.values())


def hidden_ranges(reported: Sequence[WorkerAnswer]) -> list[Json]:
    """Return the hidden ranges of all. They share one list, so of each range the newest state counts."""
    found: dict[tuple[Any, ...], Json] = {}
    for one in reported:
        for row in one.answer:
            place = tuple(row[name] for name in ("topic", "partition", "first_offset", "last_offset"))
            found[place] = min((row, found.get(place, row)), key=lambda each: float(each["age_seconds"]))
    return sorted(found.values(), key=lambda row: float(row["age_seconds"]))[:ROWS_MAX]


def old_clients(reported: Sequence[WorkerAnswer]) -> Json:
    """Return ``/api/v1/old_clients`` of all: a client whose connections are at several workers is one."""
    found: dict[tuple[str, ...], Json] = {}
    for one in reported:
        for row in one.answer["clients"]:
            place = tuple(row[name] for name in ("client_id", "address", "software", "principal"))
            if (before := found.get(place)) is not None:
                row = {
                    **row,
                    "requests": _requests_of([*before["requests"], *row["requests"]]),
                    "refused": before["refused"] + row["refused"],
                    "first_seen": min(before["first_seen"], row["first_seen"]),
                    "last_seen": max(before["last_seen"], row["last_seen"]),
                    "idle_seconds": min(before["idle_seconds"], row["idle_seconds"]),
                }
            found[place] = row
    newest = sorted(found.values(), key=lambda row: -float(row["last_seen"]))
    return {
        "uptime_seconds": max(one.answer["uptime_seconds"] for one in reported),
        "forgotten": sum(one.answer["forgotten"] for one in reported) + len(newest[limits.OLD_CLIENTS_MAX :]),
        "clients": newest[: limits.OLD_CLIENTS_MAX],
    }


def _requests_of(rows: Iterable[Json]) -> list[Json]:
    found: dict[tuple[str, int], int] = {}
    for row in rows:
        place = row["api"], row["version"]
        found[place] = found.get(place, 0) + row["requests"]
    return [{"api": api, "version": version, "requests": count} for (api, version), count in sorted(found.items())]


def findings(reported: Sequence[WorkerAnswer]) -> list[Json]:
    """Return what is said of the configuration, once: all workers have the same."""
    found = {tuple(row.values()): row for one in reported for row in one.answer}
    return list(found.values())


def passing(reported: Sequence[WorkerAnswer]) -> list[Json]:
    """Return the requests of all by API, most first."""
    found = _added({row["api"]: row["requests"] for row in one.answer} for one in reported)
    return [{"api": api, "requests": count} for api, count in sorted(found.items(), key=lambda one: -one[1])]


def lines(reported: Sequence[WorkerAnswer]) -> list[Json]:
    """Return the log lines of all, newest first."""
    each = ({**line, "text": f"worker {one.number}: {line['text']}"} for one in reported for line in one.answer)
    return sorted(each, key=lambda line: -float(line["at"]))[:ROWS_MAX]


def page(reported: Sequence[WorkerAnswer]) -> Json:
    """Return ``/api/v1/page`` of all."""
    return {
        name: add([WorkerAnswer(one.number, one.answer[name]) for one in reported]) for name, add in _OF_PAGE.items()
    }


def _added(each: Iterable[Mapping[str, float]]) -> Json:
    found: dict[str, float] = {}
    for one in each:
        for name, number in one.items():
            found[name] = found.get(name, 0) + number
    return found


def _times(each: Sequence[Json]) -> Json:
    return times_of([sum(column) for column in zip(*(one["buckets"] for one in each), strict=True)])


Add = Callable[[Sequence[WorkerAnswer]], Any]
VIEWS: Final[Mapping[str, Add]] = {
    "page": page,
    "producers": producers,
    "client_ids": client_ids,
    "old_clients": old_clients,
}
"""What the admin port tells as JSON, by the end of its path, and how that of several workers becomes one."""
_OF_PAGE: Final[Mapping[str, Add]] = {
    "status": status,
    "history": history,
    "findings": findings,
    "passing": passing,
    "brokers": brokers,
    "unknown_outcomes": unknown_outcomes,
    "producers": producers,
    "duplicates": duplicates,
    "clients": clients,
    "names": named,
    "hidden_ranges": hidden_ranges,
    "old_clients": old_clients,
    "troubles": lines,
    "events": lines,
}
"""How each part of the page becomes one."""
