"""How a proxy does: whether it can serve clients, and the numbers that are true only now. Looks, and changes nothing.

Everything here may be called from another thread, as OpenTelemetry does: it reads ``Statistics``, and copies what else
it iterates over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ...state.redis_store import RedisStore
from .. import limits
from ..engine.engine import Engine
from ..engine.snapshot import Statistics
from ..net.sockets import Traffic
from ..telemetry import metric_names as names
from ..telemetry.journal import Journal
from ..telemetry.journal_file import JournalFile
from ..telemetry.metrics import Sample
from ..telemetry.redis_hints import redis_reason
from ..telemetry.reports import Telemetry, some_places
from ..versions import ApiKey

CHECKS: Final = ("draining", "redis", "brokers", "listeners", "journal")
"""The conditions for serving clients, by the names that ``/readyz?exclude=`` takes. ``redis``: the store and the lease.
``journal``: only one that is required."""
_REASONS_SHOWN_MAX = 3
"""Brokers whose reason is shown; the log has the others."""
_API_NAMES = {int(key): key.name.lower() for key in ApiKey}


def api_name(key: int) -> str:
    """Return the name of an API as metrics have it; API keys that the proxy does not know share one name."""
    return _API_NAMES.get(key, names.OTHER)


class KeptJournal(Protocol):
    """The journal of a process, and its file."""

    @property
    def journal(self) -> Journal: ...

    @property
    def file(self) -> JournalFile: ...


@dataclass(frozen=True, slots=True)
class Watched:
    """One proxy, to look at. ``store``: None until it is made. ``now``: the reactor's clock; ``wall``: unix seconds.
    ``ports_taken``: why brokers have no port, a sentence each. ``ports_open``: by the listener's name.
    ``why_no_store``: why Redis could not be asked for what is stored, before there is a store; "": it could, or was not
    asked yet. ``host``: the machine. ``findings``: what ``idemproxy check`` says of this configuration, each with its
    sign (note, warning, problem), what it is about, and the text. ``journal``: None without one."""

    engine: Engine
    telemetry: Telemetry
    store: Callable[[], RedisStore | None]
    now: Callable[[], float]
    wall: Callable[[], float]
    is_listening: Callable[[], bool]
    ports_taken: Callable[[], Sequence[str]]
    started_at: float
    version: str
    ports_open: Callable[[], Mapping[str, int]] = dict
    why_no_store: Callable[[], str] = str
    host: str = ""
    findings: Callable[[], Sequence[tuple[str, str, str]]] = tuple
    journal: KeptJournal | None = None
    client_traffic: Traffic | None = None

    @property
    def lease_seconds(self) -> float:
        """For how many more seconds produce requests may be sent if the lease is not renewed; 0: none may be."""
        store = self.store()
        if store is None or not store.lease.is_held:
            return 0.0
        return max(0.0, store.lease.ends_at - limits.LEASE_MARGIN_SECONDS - self.now())

    @property
    def is_store_up(self) -> bool:
        """Is Redis connected and fit for use?"""
        store = self.store()
        return store is not None and store.data_generation is not None


def reasons_not_ready(watched: Watched, excluded: Collection[str] = ()) -> list[str]:
    """Return why clients cannot be served now, one sentence each; empty: they can. ``excluded``: of ``CHECKS``."""
    now = watched.engine.statistics()
    if now.is_draining and "draining" not in excluded:
        return [now.why_ending or "draining: the proxy is about to end and takes nothing new"]
    reasons = []
    if "redis" not in excluded and not now.passes_all:
        reasons += _without_store(watched)
    if "brokers" not in excluded:
        reasons += _without_brokers(watched)
    # Ports open once Redis and a broker have been there, so closed ports say nothing new while one of these is missing.
    # A probe that excludes checks still gets closed ports as a reason: a pod that has never had Redis is not ready.
    if "listeners" not in excluded and (excluded or not reasons) and not watched.is_listening():
        reasons.append("no port is open for clients")
    if "listeners" not in excluded:
        reasons += watched.ports_taken()
    if (
        watched.journal is not None
        and "journal" not in excluded
        and not now.passes_all
        and (why := watched.journal.journal.why_refusing)
    ):
        reasons.append(f"the journal is required and cannot be written: {why}")
    return reasons


def _without_brokers(watched: Watched) -> list[str]:
    """Why no client can be served now for want of a broker, with the errors of the connections to brokers."""
    topology = watched.engine.statistics().topology
    if topology.is_known and any(broker.is_ready for broker in topology.brokers):
        return []
    refused = [broker.why_refused for broker in topology.asked_first if broker.why_refused]
    if refused:
        return refused
    asked = watched.engine.topology.asked_first
    if watched.engine.statistics().idempotence is None and any(broker.judgement is not None for broker in asked):
        silent = [broker.name for broker in asked if broker.judgement is None]
        shown = ", ".join(silent[:_REASONS_SHOWN_MAX])
        return [f"{shown}: has not answered yet whether it has producer ids"] if silent else []  # else Redis is to tell
    text = "no broker can be reached" if topology.is_known else "no broker has answered yet"
    away = [f"{broker.name}: {broker.why_away}" for broker in asked if broker.why_away]
    return ["; ".join([text, *away[:_REASONS_SHOWN_MAX]])]


def _without_store(watched: Watched) -> list[str]:
    """Why idempotent producers cannot be served now."""
    if not watched.is_store_up:
        store = watched.store()
        why = watched.why_no_store() if store is None else store.why_away
        return [redis_reason(why) if why else "not connected to Redis yet"]
    if not watched.lease_seconds:
        return ["the lease is not held: nothing may be sent until it is renewed"]
    return []


def concerns(watched: Watched) -> list[str]:
    """Return what an operator should look at though clients are served, one sentence each."""
    now = watched.engine.statistics()
    found = [
        broker.why_refused or f"broker {broker.id} cannot be reached"
        for broker in now.topology.brokers
        if not broker.is_ready
    ]
    found += list(_overdue(now))
    seconds = now.oldest_unknown_outcome_seconds
    if seconds > limits.SCAN_SECONDS_MAX:
        found.append(f"an append has been in doubt for {seconds:.0f} s")
    memory = watched.telemetry.metrics.store_memory
    if memory is not None and memory.used_bytes > limits.REDIS_MEMORY_SHARE_MAX * memory.limit_bytes > 0:
        share = 100 * memory.used_bytes / memory.limit_bytes
        found.append(f"Redis uses {share:.0f} % of its maxmemory; when it is full, nothing can be produced")
    if watched.journal is not None and (why := watched.journal.journal.why_lost):
        found.append(f"the journal is not kept: {why}")
    counts = {sample.metric: sample.value for sample in watched.telemetry.metrics.samples() if not sample.labels}
    if copies := counts[names.DUPLICATES_FOUND]:
        found.append(f"{copies:.0f} batches are in the log twice; the log of this proxy says which")
    if failures := counts[names.INTERNAL_ERRORS]:
        found.append(f"{failures:.0f} errors of the proxy's own; its log says more")
    return found


def _overdue(now: Statistics) -> Iterator[str]:
    for broker in now.topology.brokers:
        produce_connections = broker.produce_connections + now.produce_connections_of_clients(broker.id)
        if produce_connections.overdue:
            seconds = f"{produce_connections.overdue_seconds:.0f} s"
            yield (
                f"broker {broker.id} has not answered a produce request for {seconds}: "
                f"{some_places(produce_connections.overdue)}"
            )


def samples(watched: Watched) -> Iterator[Sample]:
    """Every counter and gauge as it stands."""
    now = watched.engine.statistics()
    yield from watched.telemetry.metrics.samples()
    for key, count in _requests(now.requests_by_key):
        yield Sample(names.REQUESTS, (key,), count)
    for (api_key, version), count in watched.engine.old_clients.inventory.requests.copy().items():
        yield Sample(names.OLD_CLIENT_REQUESTS, (api_name(api_key), str(version)), count)
    yield Sample(names.OLD_CLIENT_HEADERS, (), watched.engine.old_clients.inventory.headers_dropped)
    yield Sample(names.CONNECTIONS_ACCEPTED, (), now.connections_accepted)
    yield Sample(names.READY, (), int(not reasons_not_ready(watched)))  # OTLP has no booleans
    yield Sample(names.DRAINING, (), int(now.is_draining))
    yield Sample(names.CONNECTIONS, (), now.connections)
    yield Sample(names.CONNECTIONS_LIMIT, (), now.connections_max)
    yield Sample(names.PORTS_TAKEN, (), len(watched.ports_taken()))
    for listener, count in watched.ports_open().items():
        yield Sample(names.PORTS_OPEN, (listener,), count)
    if watched.journal is not None:
        kept = watched.journal
        yield Sample(names.JOURNAL_WRITTEN, (), kept.file.written_bytes)
        yield Sample(names.JOURNAL_MISSING, (), kept.journal.missing_events)
        yield Sample(names.JOURNAL_UP, (), int(not kept.journal.why_lost))
        yield Sample(names.JOURNAL_UNSYNCED, (), kept.file.unsynced_seconds())
    if watched.client_traffic is not None:
        yield Sample(names.CLIENT_TRAFFIC, ("received",), watched.client_traffic.received_bytes)
        yield Sample(names.CLIENT_TRAFFIC, ("sent",), watched.client_traffic.sent_bytes)
    yield Sample(names.HELD_BYTES, (), now.memory.bytes_held)
    yield Sample(names.HELD_BYTES_LIMIT, (), now.memory.bytes_max)
    yield Sample(names.ENTRIES, (), now.entries)
    yield Sample(names.ENTRIES_LIMIT, (), now.entries_max)
    yield Sample(names.UNKNOWN_OUTCOMES, (), len(now.unknown_outcomes))
    yield Sample(names.UNKNOWN_OUTCOME_AGE, (), now.oldest_unknown_outcome_seconds)
    if now.idempotence is not None:
        yield Sample(names.IDEMPOTENCE, (now.idempotence.value,), 1)
    if not now.passes_all:
        yield Sample(names.REDIS_UP, (), int(watched.is_store_up))
        known = watched.engine.hidden_ranges
        for state, count in known.by_state().items():
            yield Sample(names.HIDDEN_RANGES, (state.value,), count)
        yield Sample(names.HIDDEN_RANGES_OFFSETS, (), known.records_left_out)
        yield Sample(names.HIDDEN_RANGES_APPLIED, (), known.applied)
        yield Sample(names.LEASE_REMAINING, (), watched.lease_seconds)
    for broker in now.topology.brokers:
        name, produce_connections, own = (
            (str(broker.id),),
            broker.produce_connections,
            now.produce_connections_of_clients(broker.id),
        )
        yield Sample(names.BROKER_UP, name, int(broker.is_ready))
        yield Sample(names.PRODUCE_CONNECTIONS, (*name, "busy"), produce_connections.busy)
        yield Sample(names.PRODUCE_CONNECTIONS, (*name, "idle"), produce_connections.idle)
        yield Sample(names.PRODUCE_CONNECTIONS, (*name, "own_busy"), own.busy)
        yield Sample(names.PRODUCE_CONNECTIONS, (*name, "own_idle"), own.idle)
        yield Sample(names.APPENDS_WAITING, name, (produce_connections + own).waiting_appends)


def _requests(counts: Mapping[int, int]) -> Iterator[tuple[str, int]]:
    """Requests by the name of their API; unknown API keys share one series."""
    others = 0
    for key, count in counts.items():
        if key in _API_NAMES:
            yield _API_NAMES[key], count
        else:
            others += count
    if others:
        yield names.OTHER, others
