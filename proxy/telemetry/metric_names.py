"""Every metric of the proxy: its name, kind, unit, labels and what it means. Only names; nothing is counted here.

Names are OpenTelemetry's. ``Metric.prometheus_name`` is what ``/metrics`` shows: dots become underscores, seconds and
bytes are said in the name, counters end in _total."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

PREFIX: Final = "idemproxy"
OTHER: Final = "other"
"""The label value of everything above a cap."""
DOUBT_RESULTS: Final = ("found", "prefix", "not_found", "unknown", "left_open")
"""Label values that exist from the start: an alert on the first one of its kind needs the zero before it."""
REFUSALS: Final = ("too_many", "address", "unauthenticated", "failed_logins", "descriptors", "draining")
"""Why a connection was refused."""
_UNIT_WORDS: Final = {"s": "_seconds", "By": "_bytes"}


class Metric(NamedTuple):
    """``unit``: as UCUM writes it; in braces it is only a word. ``labels``: what tells its series apart."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """The name on ``/metrics``; a histogram's has _bucket, _sum and _count behind it."""
        name = f"{PREFIX}_{self.name.replace('.', '_')}{_UNIT_WORDS.get(self.unit, '')}"
        return f"{name}_total" if self.kind == "counter" else name


# What came in, and what became of it
REQUESTS: Final = Metric("requests.received", "counter", "{request}", "Requests of clients.", ("api",))
CONNECTIONS_ACCEPTED: Final = Metric("connections.accepted", "counter", "{connection}", "Client connections taken.")
CONNECTIONS_REFUSED: Final = Metric(
    "connections.refused",
    "counter",
    "{connection}",
    "Client connections closed at once, or to make room: too many in all, from one address or without a login, an "
    "address with failed logins, no file descriptor for it, or the proxy is ending.",
    ("reason",),
)
BATCHES_ANSWERED: Final = Metric(
    "batches.answered", "counter", "{batch}", "Record batches with a producer id that were answered.", ("verdict",)
)
DUPLICATES_PREVENTED: Final = Metric(
    "duplicates.prevented",
    "counter",
    "{batch}",
    "Batches that clients sent again and that were not appended a second time: what the proxy is for. how: answered, "
    "as they are in the log, or joined to their first try, which was under way. Beyond a cap, client and topic are "
    "'other'.",
    ("client_id", "topic", "how"),
)
BATCHES_FAILED: Final = Metric(
    "batches.failed",
    "counter",
    "{batch}",
    "Of these, batches that were answered with an error, by the name of Kafka's code.",
    ("error_code",),
)
TOPIC_BATCHES: Final = Metric(
    "topic.batches",
    "counter",
    "{batch}",
    "Batches with a producer id that were answered, by topic and verdict; counted while there is an admin port. Beyond "
    "a cap, the topic is 'other'.",
    ("topic", "verdict"),
)
TOPIC_RECORDS: Final = Metric(
    "topic.records", "counter", "{record}", "Records in those of them that were appended.", ("topic",)
)
TOPIC_DATA: Final = Metric("topic.data", "counter", "By", "Their size as clients sent them.", ("topic",))
CLIENT_TRAFFIC: Final = Metric(
    "client.traffic",
    "counter",
    "By",
    "Bytes on the connections of clients, with TLS as it encrypts them: received from them, or sent to them.",
    ("direction",),
)
OUT_OF_ORDER_REFUSED: Final = Metric(
    "out_of_order.refused", "counter", "{batch}", "Batches refused because one before them never came (code 45)."
)
INVALID_REQUESTS: Final = Metric(
    "invalid_requests", "counter", "{request}", "Requests or batches refused because of what is in them."
)
SLOW_CLIENTS_DISCONNECTED: Final = Metric(
    "slow_clients.disconnected",
    "counter",
    "{connection}",
    "Clients disconnected: they stopped sending within a request, or did not read their responses.",
)
TLS_FAILED: Final = Metric("tls.handshakes.failed", "counter", "{connection}", "Client connections that TLS refused.")
PRODUCER_IDS_ISSUED: Final = Metric("producer_ids.issued", "counter", "{producer}", "Producer ids handed out.")

# Appends and doubt
APPENDS_SENT: Final = Metric("appends.sent", "counter", "{append}", "Groups of batches that left for a broker.")
APPENDS_MERGED: Final = Metric(
    "appends.merged", "counter", "{append}", "Of these, groups in a wrapper with other producers' batches."
)
DOUBTS_OPENED: Final = Metric("doubts.opened", "counter", "{append}", "Appends whose outcome was unknown.")
DOUBTS_RESOLVED: Final = Metric(
    "doubts.resolved", "counter", "{append}", "Doubts that ended, after the log was read.", ("result",)
)
REFORWARDS: Final = Metric("reforwards", "counter", "{append}", "Groups sent once more: the log did not have them.")
APPENDS_AFTER_DEADLINE: Final = Metric(
    "appends.after_deadline", "counter", "{append}", "Appends sent after the lease deadline: the process was paused."
)
DUPLICATES_FOUND: Final = Metric(
    "duplicates.found", "counter", "{batch}", "Batches found twice in the log: the hard limit was met."
)
TOPICS_WITHOUT_MARKERS: Final = Metric(
    "topics.without_markers", "counter", "{topic}", "Topics found to be stored without the proxy's markers."
)
RECORDS_WITHOUT_MARKERS: Final = Metric(
    "records.without_markers",
    "counter",
    "{record}",
    "Records stored without a marker: their topic's size limit has no room.",
)
INTENTS_TAKEN_OVER: Final = Metric(
    "intents.taken_over", "counter", "{append}", "Open intents of proxies that are gone, taken over."
)
PRODUCE_CONNECTIONS_LOST: Final = Metric(
    "produce_connections.lost", "counter", "{connection}", "Connections to brokers for produce that ended."
)
INTERNAL_ERRORS: Final = Metric("internal_errors", "counter", "{error}", "Internal errors of the proxy.")

# Redis and the life of its data
REDIS_LOST: Final = Metric("redis.lost", "counter", "{connection}", "Losses of the connection to Redis.")
REDIS_RESTARTS: Final = Metric(
    "redis.restarts", "counter", "{start}", "Starts of the private Redis after one that had died; 0 without one."
)
REDIS_GENERATIONS: Final = Metric(
    "redis.generations", "counter", "{life}", "Lives of the Redis data that were seen; the first one counts."
)
INCARNATIONS: Final = Metric(
    "incarnations", "counter", "{life}", "Names under which this process held a lease; each one after the first: lost."
)
ENTRIES_LOADED: Final = Metric(
    "entries.loaded", "counter", "{entry}", "Producers and partitions taken into memory; those there: met less dropped."
)
ENTRIES_EVICTED: Final = Metric(
    "entries.evicted", "counter", "{entry}", "Idle ones of these dropped from memory again: there are many."
)

# As it is now
READY: Final = Metric("ready", "gauge", "1", "1 if clients can be served now; /readyz says why not.")
DRAINING: Final = Metric("draining", "gauge", "1", "1 while draining after SIGTERM.")
CONNECTIONS: Final = Metric("connections.open", "gauge", "{connection}", "Client connections now.")
CONNECTIONS_LIMIT: Final = Metric("connections.limit", "gauge", "{connection}", "Client connections at most.")
PORTS_OPEN: Final = Metric(
    "ports.open",
    "gauge",
    "{port}",
    "Ports of a listener that are open for clients; 0: nobody can connect.",
    ("listener",),
)
PORTS_TAKEN: Final = Metric(
    "ports.taken", "gauge", "{port}", "Brokers' ports that another process has: clients are told no leader instead."
)
JOURNAL_UP: Final = Metric(
    "journal.up",
    "gauge",
    "1",
    "1 while the journal is written; 0: its lines are missing, as it cannot be. None without.",
)
HELD_BYTES: Final = Metric("request_memory.used", "gauge", "By", "Requests that are in memory now.")
HELD_BYTES_LIMIT: Final = Metric("request_memory.limit", "gauge", "By", "Above it no new request is read.")
ENTRIES: Final = Metric("entries.in_memory", "gauge", "{entry}", "Producers and partitions in memory now.")
ENTRIES_LIMIT: Final = Metric("entries.limit", "gauge", "{entry}", "Above it idle ones are dropped.")
DOUBTS: Final = Metric("doubts.open", "gauge", "{append}", "Appends in doubt now.")
DOUBT_AGE: Final = Metric("doubt.age", "gauge", "s", "Age of the oldest doubt; 0 without one.")
BROKER_UP: Final = Metric("broker.up", "gauge", "1", "1 if the broker can be asked and produced to.", ("broker",))
LANES: Final = Metric(
    "lanes",
    "gauge",
    "{connection}",
    "Connections for produce now, busy or idle. own_busy, own_idle: those that belong to one client each "
    "(pass_through).",
    ("broker", "state"),
)
APPENDS_WAITING: Final = Metric(
    "appends.waiting", "gauge", "{append}", "Groups that wait for a connection to their broker.", ("broker",)
)
IDEMPOTENCE: Final = Metric(
    "upstream.idempotence",
    "gauge",
    "{process}",
    "Processes by who gives idempotence: proxy, native: the brokers, or handing_over. None before that is known.",
    ("by",),
)
REDIS_UP: Final = Metric(
    "redis.up", "gauge", "1", "1 if Redis is connected and fit for use; none where the brokers give idempotence."
)
REDIS_MEMORY_USED: Final = Metric(
    "redis.memory.used", "gauge", "By", "Memory that Redis uses; none while it is away or does not tell."
)
REDIS_MEMORY_LIMIT: Final = Metric(
    "redis.memory.limit", "gauge", "By", "Redis's maxmemory, above which it takes no writes; 0: it has none."
)
LOOP_STEP_LONGEST: Final = Metric(
    "loop.step.longest", "gauge", "s", "The longest step of the event loop within the last one to two minutes."
)
LEASE_REMAINING: Final = Metric(
    "lease.remaining",
    "gauge",
    "s",
    "Until nothing may be sent any more; it is renewed every 2 s. 0: nothing may be. None where the brokers give "
    "idempotence.",
)
CERTIFICATE_EXPIRY: Final = Metric(
    "certificate.expiry.timestamp", "gauge", "s", "Unix time at which a certificate in use ends.", ("place",)
)

# Time
CLIENT_TO_BROKER: Final = Metric(
    "client_to_broker.duration",
    "histogram",
    "s",
    "From the arrival of a batch to its send to the broker: the proxy's own time, with the reserve in Redis.",
)
BROKER: Final = Metric("broker.duration", "histogram", "s", "From that send to the broker's answer: the broker's time.")
BROKER_TO_CLIENT: Final = Metric(
    "broker_to_client.duration",
    "histogram",
    "s",
    "From the broker's answer to the moment when the answer was given to the client's socket: the proxy's own time.",
)
BATCH: Final = Metric(
    "batch.duration",
    "histogram",
    "s",
    "From the arrival of a batch with a producer id to its answer, whatever that is.",
)
REDIS_ROUND_TRIP: Final = Metric(
    "redis.round_trip.duration", "histogram", "s", "From a write to Redis to the reply to all that was in it."
)
REQUEST: Final = Metric(
    "request.duration",
    "histogram",
    "s",
    "From the arrival of a request to its answer, by API; without produce, for which there is batch.duration, and "
    "without native brokers.",
    ("api",),
)
DOUBT: Final = Metric("doubt.duration", "histogram", "s", "From the begin of a doubt to its end.")

LEAST_OF_WORKERS: Final = (READY, REDIS_UP, BROKER_UP, LEASE_REMAINING, CERTIFICATE_EXPIRY, JOURNAL_UP, PORTS_OPEN)
MOST_OF_WORKERS: Final = (DRAINING, DOUBT_AGE, PORTS_TAKEN, REDIS_MEMORY_USED, REDIS_MEMORY_LIMIT, LOOP_STEP_LONGEST)
"""Gauges of which several workers together have the least, or the most, that one of them has. All else is added."""
METRICS: Final = tuple(one for one in list(globals().values()) if isinstance(one, Metric))
"""All metrics, in this order."""
WORKERS: Final = Metric("workers", "gauge", "{process}", "Worker processes that run now, where there are several.")
WORKER_RESTARTS: Final = Metric("worker.restarts", "counter", "{process}", "Workers that died and were replaced.")
SUPERVISOR_METRICS: Final = (WORKERS, WORKER_RESTARTS)
"""What the admin port of several workers has beside theirs."""
DURATION_BOUNDS_SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of the buckets of every histogram."""
