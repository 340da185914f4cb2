"""Every metric of the proxy: its name, kind, unit, labels and what it means. Only names; nothing is counted here.

Names are OpenTelemetry's. ``Metric.prometheus_name`` is what ``/metrics`` shows: dots become underscores, seconds and
bytes are part of the name, counters end in _total."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

PREFIX: Final = "idemproxy"
OTHER: Final = "other"
"""The label value of everything above a cap."""
UNKNOWN_OUTCOME_RESULTS: Final = ("found", "prefix", "not_found", "unrecoverable", "left_open")
"""Label values that exist from the start: an alert on the first one of its kind needs the zero before it."""
REFUSALS: Final = ("too_many", "address", "unauthenticated", "descriptors", "draining", "journal", "mode")
"""Why a connection was refused."""
_UNIT_WORDS: Final = {"s": "_seconds", "By": "_bytes"}


class Metric(NamedTuple):
    """``unit``: in UCUM; in braces it is only an annotation. ``labels``: the names of its labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """The name on ``/metrics``; a histogram's is followed by _bucket, _sum and _count."""
        name = f"{PREFIX}_{self.name.replace('.', '_')}{_UNIT_WORDS.get(self.unit, '')}"
        return f"{name}_total" if self.kind == "counter" else name


# What came in, and what became of it
REQUESTS: Final = Metric(
    "requests.received", "counter", "{request}", "Requests received from clients, by API.", ("api",)
)
OLD_CLIENT_REQUESTS: Final = Metric(
    "old_client.requests",
    "counter",
    "{request}",
    "Requests in a version that Kafka 4 lacks, by API and version. Begins with the first one; `idemproxy inspect "
    "old-clients` says whose.",
    ("api", "version"),
)
OLD_CLIENT_HEADERS: Final = Metric(
    "old_client.headers_dropped",
    "counter",
    "{record}",
    "Records that old clients got without their headers, which their message format lacks.",
)
CONNECTIONS_ACCEPTED: Final = Metric("connections.accepted", "counter", "{connection}", "Client connections accepted.")
CONNECTIONS_REFUSED: Final = Metric(
    "connections.refused",
    "counter",
    "{connection}",
    "Client connections that were closed at once, or to make room for another one. reason: too_many, "
    "address (too many from one), unauthenticated, descriptors (none is left), draining or journal "
    "(one that is required cannot be written).",
    ("reason",),
)
BATCHES_ANSWERED: Final = Metric(
    "batches.answered",
    "counter",
    "{batch}",
    "Record batches with a producer id that were answered, by what was decided: appended, a duplicate, refused, ...",
    ("verdict",),
)
DUPLICATES_PREVENTED: Final = Metric(
    "duplicates.prevented",
    "counter",
    "{batch}",
    "Retried batches that were not appended a second time: what the proxy is for. how: answered (they "
    "were in the log) or joined (to the first try, which was under way). Beyond 500 pairs client and "
    "topic are 'other'.",
    ("client_id", "topic", "how"),
)
GROUPS_PREPARED: Final = Metric(
    "groups.prepared",
    "counter",
    "{group}",
    "Groups of batches that were not appended at once, as something was not usual, by what that was.",
    ("reason",),
)
BATCHES_FAILED: Final = Metric(
    "batches.failed",
    "counter",
    "{batch}",
    "Batches with a producer id that were answered with an error, by the name of Kafka's error code.",
    ("error_code",),
)
TOPIC_BATCHES: Final = Metric(
    "topic.batches",
    "counter",
    "{batch}",
    "Batches with a producer id that were answered, by topic and verdict; counted while there is an admin"
    " port. Beyond 500 pairs of client and topic the topic is 'other'.",
    ("topic", "verdict"),
)
TOPIC_RECORDS: Final = Metric(
    "topic.records",
    "counter",
    "{record}",
    "Records in batches with a producer id that were appended, by topic.",
    ("topic",),
)
TOPIC_DATA: Final = Metric(
    "topic.data",
    "counter",
    "By",
    "Size of the batches with a producer id that were appended, as clients sent them, by topic.",
    ("topic",),
)
CLIENT_TRAFFIC: Final = Metric(
    "client.traffic",
    "counter",
    "By",
    "Bytes on client connections, received or sent; where TLS is used, as it encrypts them.",
    ("direction",),
)
OUT_OF_ORDER_REFUSED: Final = Metric(
    "out_of_order.refused",
    "counter",
    "{batch}",
    "Batches refused with OUT_OF_ORDER_SEQUENCE_NUMBER (45): one before them never came.",
)
INVALID_REQUESTS: Final = Metric(
    "invalid_requests",
    "counter",
    "{request}",
    "Requests and batches refused because they are malformed or ask for what is not served; the log says which.",
)
SLOW_CLIENTS_DISCONNECTED: Final = Metric(
    "slow_clients.disconnected",
    "counter",
    "{connection}",
    "Clients that were disconnected because they stopped within a request, or did not read their responses.",
)
TLS_FAILED: Final = Metric(
    "tls.handshakes.failed", "counter", "{connection}", "Client connections that ended in the TLS handshake."
)
PRODUCER_NAMES_BEGAN: Final = Metric(
    "producer_names.began",
    "counter",
    "{instance}",
    "Instances with a producer name that began at this process, or got a higher epoch.",
)
PRODUCER_NAMES_FENCED: Final = Metric(
    "producer_names.fenced",
    "counter",
    "{instance}",
    "Older instances that were fenced by these: whatever they still send gets INVALID_PRODUCER_EPOCH.",
)
PRODUCER_IDS_ISSUED: Final = Metric(
    "producer_ids.issued", "counter", "{producer}", "Producer ids issued (InitProducerId)."
)

# Appends and unknown outcome
APPENDS_SENT: Final = Metric(
    "appends.sent", "counter", "{append}", "Appends sent to brokers; one carries one to five batches of a producer."
)
UNKNOWN_OUTCOMES_OPENED: Final = Metric(
    "unknown_outcomes.opened", "counter", "{append}", "Appends whose response was lost, so that the log had to be read."
)
UNKNOWN_OUTCOMES_RESOLVED: Final = Metric(
    "unknown_outcomes.resolved",
    "counter",
    "{append}",
    "Unknown outcomes that ended, by what the log said: found, not_found, prefix (the first part is there), "
    "unrecoverable"
    " (the log cannot tell), or left_open to another proxy.",
    ("result",),
)
APPENDS_SENT_AGAIN: Final = Metric(
    "appends.sent_again", "counter", "{append}", "Appends that were sent again because the log did not have them."
)
APPENDS_AFTER_DEADLINE: Final = Metric(
    "appends.after_deadline",
    "counter",
    "{append}",
    "Appends sent after the lease's deadline because the process was paused. Each is looked for in the "
    "log after one and after ten minutes.",
)
DUPLICATES_FOUND: Final = Metric(
    "duplicates.found",
    "counter",
    "{batch}",
    "Batches that are in the log twice. Has to stay 0; the log of the proxy says where.",
)
CONDITIONAL_PARTITIONS_FENCED: Final = Metric(
    "conditional_partitions.fenced",
    "counter",
    "{partition}",
    "Times that the log of a conditional partition was seen to have what nobody published conditionally, or to have "
    "lost records. The partition is fenced.",
)
TOPICS_WITHOUT_BATCH_MARKERS: Final = Metric(
    "topics.without_batch_markers",
    "counter",
    "{topic}",
    "Topics that are stored without the proxy's batch markers, as their settings make the broker rewrite batches.",
)
RECORDS_WITHOUT_BATCH_MARKERS: Final = Metric(
    "records.without_batch_markers",
    "counter",
    "{record}",
    "Records stored without a batch marker because the topic's max.message.bytes leaves no room for one.",
)
INTENTS_TAKEN_OVER: Final = Metric(
    "intents.taken_over",
    "counter",
    "{append}",
    "Appends left open by a proxy that is gone, and taken over by this one.",
)
PRODUCE_CONNECTIONS_LOST: Final = Metric(
    "produce_connections.lost", "counter", "{connection}", "Connections for produce that were lost to brokers."
)
INTERNAL_ERRORS: Final = Metric(
    "internal_errors",
    "counter",
    "{error}",
    "Internal errors of the proxy; its log has each with a traceback. Has to stay 0.",
)

# Redis and the data generation
REDIS_LOST: Final = Metric("redis.lost", "counter", "{connection}", "Times that the connection to Redis was lost.")
REDIS_RESTARTS: Final = Metric(
    "redis.restarts",
    "counter",
    "{start}",
    "Starts of the private Redis after one that had died; 0 without one. Of several workers these are the "
    "supervisor's.",
)
REDIS_DATA_GENERATIONS: Final = Metric(
    "redis.data_generations",
    "counter",
    "{generation}",
    "Data generations of Redis that were seen, the first one included: one more after each restart, failover or flush.",
)
REDIS_EMPTIED: Final = Metric(
    "redis.emptied",
    "counter",
    "{loss}",
    "Losses of Redis's data without a restart of Redis: FLUSHALL, FLUSHDB, or deleted keys.",
)
PROXY_INSTANCES: Final = Metric(
    "proxy_instances",
    "counter",
    "{instance}",
    "Leases that this process has held under a name of its own. More than 1: a lease was lost and its appends stopped.",
)
ENTRIES_LOADED: Final = Metric(
    "entries.loaded",
    "counter",
    "{entry}",
    "Producers on partitions that were taken into memory. Less those evicted, it is how many are there.",
)
ENTRIES_EVICTED: Final = Metric(
    "entries.evicted",
    "counter",
    "{entry}",
    "Producers on partitions that were dropped from memory while idle, to make room. Redis still has them.",
)

# Hidden ranges
HIDDEN_RANGES_APPLIED: Final = Metric(
    "hidden_ranges.applied",
    "counter",
    "{answer}",
    "Partitions in Fetch responses from which the proxy left out records of a hidden range.",
)

# The journal
JOURNAL_WRITTEN: Final = Metric(
    "journal.written", "counter", "By", "Bytes written to the journal. Not there without a journal."
)
JOURNAL_MISSING: Final = Metric(
    "journal.missing",
    "counter",
    "{event}",
    "Events that could not be written to the journal. Not there without a journal.",
)

# As it is now
HIDDEN_RANGES: Final = Metric(
    "hidden_ranges.known",
    "gauge",
    "{range}",
    "Hidden ranges: offsets that people named as duplicates. state: asked, no proxy has read the log yet; active, "
    "fetches leave them out; refused, the log does not have them as a whole. The same at every proxy.",
    ("state",),
)
HIDDEN_RANGES_OFFSETS: Final = Metric(
    "hidden_ranges.offsets",
    "gauge",
    "{offset}",
    "Offsets in active hidden ranges; consumers never get these.",
)
READY: Final = Metric("ready", "gauge", "1", "1 if clients can be served now, else 0; /readyz says why.")
DRAINING: Final = Metric("draining", "gauge", "1", "1 while the proxy drains after SIGTERM, else 0.")
CONNECTIONS: Final = Metric("connections.open", "gauge", "{connection}", "Client connections that are open.")
CONNECTIONS_LIMIT: Final = Metric(
    "connections.limit", "gauge", "{connection}", "Client connections that may be open (limits.connections_max)."
)
PORTS_OPEN: Final = Metric(
    "ports.open",
    "gauge",
    "{port}",
    "Ports of a listener that are open. 0: nobody can connect.",
    ("listener",),
)
PORTS_TAKEN: Final = Metric(
    "ports.taken",
    "gauge",
    "{port}",
    "Ports of brokers that another process uses. Clients see that the broker's partitions have no leader.",
)
JOURNAL_UP: Final = Metric(
    "journal.up",
    "gauge",
    "1",
    "1 while the journal is written and gets to the disk; 0: it does not. Not there without a journal.",
)
JOURNAL_UNSYNCED: Final = Metric(
    "journal.unsynced",
    "gauge",
    "s",
    "Age of the oldest line of the journal that is not known to be on the disk: a power cut may lose what is younger. "
    "0: all are. Not there without a journal.",
)
HELD_BYTES: Final = Metric("request_memory.used", "gauge", "By", "Memory taken by requests of clients.")
HELD_BYTES_LIMIT: Final = Metric(
    "request_memory.limit", "gauge", "By", "Above this no new request is read (limits.request_bytes_total_max)."
)
ENTRIES: Final = Metric("entries.in_memory", "gauge", "{entry}", "Producers on partitions in memory.")
ENTRIES_LIMIT: Final = Metric(
    "entries.limit", "gauge", "{entry}", "Above this idle producers are dropped from memory (limits.producers_max)."
)
UNKNOWN_OUTCOMES: Final = Metric(
    "unknown_outcomes.open",
    "gauge",
    "{append}",
    "Appends in doubt: their response was lost, and the log is being read.",
)
UNKNOWN_OUTCOME_AGE: Final = Metric(
    "unknown_outcome.age", "gauge", "s", "Age of the oldest append in doubt; 0 if there is none."
)
BROKER_UP: Final = Metric("broker.up", "gauge", "1", "1 if the broker can be reached, else 0.", ("broker",))
PRODUCE_CONNECTIONS: Final = Metric(
    "produce_connections.open",
    "gauge",
    "{connection}",
    "Produce connections to a broker. state: busy, idle, or own_busy, own_idle for those that"
    " belong to one client each (pass_through).",
    ("broker", "state"),
)
APPENDS_WAITING: Final = Metric(
    "appends.waiting", "gauge", "{append}", "Appends that wait for a free connection to their broker.", ("broker",)
)
IDEMPOTENCE: Final = Metric(
    "upstream.idempotence",
    "gauge",
    "{process}",
    "1 by who gives idempotence: proxy or native (the brokers). Not there before that is "
    "known; of several workers their number.",
    ("by",),
)
REDIS_UP: Final = Metric(
    "redis.up",
    "gauge",
    "1",
    "1 if Redis is connected and can be used, else 0. Not there where the brokers give idempotence.",
)
REDIS_MEMORY_USED: Final = Metric(
    "redis.memory.used", "gauge", "By", "Memory that Redis uses. Not there while Redis is away or does not tell."
)
REDIS_MEMORY_LIMIT: Final = Metric(
    "redis.memory.limit", "gauge", "By", "Redis's maxmemory, above which it takes no writes. 0: it has no limit."
)
LOOP_STEP_LONGEST: Final = Metric(
    "loop.step.longest",
    "gauge",
    "s",
    "The longest step of the event loop in the last one to two minutes; everybody waits for so long.",
)
LEASE_REMAINING: Final = Metric(
    "lease.remaining",
    "gauge",
    "s",
    "Time until the lease ends, after which nothing may be sent; renewed every 2 s. Not there where the "
    "brokers give idempotence.",
)
CERTIFICATE_EXPIRY: Final = Metric(
    "certificate.expiry.timestamp",
    "gauge",
    "s",
    "Unix time at which a certificate that is in use expires, by its place in the configuration.",
    ("place",),
)

# Time
CLIENT_TO_BROKER: Final = Metric(
    "client_to_broker.duration",
    "histogram",
    "s",
    "From the arrival of a batch to its append being sent: the proxy's own time, with the reserve in Redis.",
)
BROKER: Final = Metric(
    "broker.duration", "histogram", "s", "From an append being sent to the broker's response: the broker's time."
)
BROKER_TO_CLIENT: Final = Metric(
    "broker_to_client.duration",
    "histogram",
    "s",
    "From the broker's response to the answer being given to the client's socket: the proxy's own time.",
)
BATCH: Final = Metric(
    "batch.duration",
    "histogram",
    "s",
    "From the arrival of a batch with a producer id to its answer, whatever the answer is.",
)
REDIS_ROUND_TRIP: Final = Metric(
    "redis.round_trip.duration", "histogram", "s", "From a write to Redis to the last reply to what was in it."
)
REQUEST: Final = Metric(
    "request.duration",
    "histogram",
    "s",
    "From the arrival of a request to its answer, by API; where the brokers give idempotence, to the "
    "answer's first bytes. Produce is there only then: else batch.duration has it.",
    ("api",),
)
UNKNOWN_OUTCOME: Final = Metric(
    "unknown_outcome.duration",
    "histogram",
    "s",
    "From the loss of a response to the recovery of the outcome, or until it is unrecoverable.",
)

LEAST_OF_WORKERS: Final = (READY, REDIS_UP, BROKER_UP, LEASE_REMAINING, CERTIFICATE_EXPIRY, JOURNAL_UP, PORTS_OPEN)
MOST_OF_WORKERS: Final = (
    *(
        DRAINING,
        UNKNOWN_OUTCOME_AGE,
        PORTS_TAKEN,
        REDIS_MEMORY_USED,
        REDIS_MEMORY_LIMIT,
        LOOP_STEP_LONGEST,
    ),
    *(HIDDEN_RANGES, HIDDEN_RANGES_OFFSETS, JOURNAL_UNSYNCED),
)
"""Gauges for which several workers together show the lowest, or the highest, value of any of them. All else is
added."""
OF_JOURNAL: Final = (JOURNAL_WRITTEN, JOURNAL_MISSING, JOURNAL_UP, JOURNAL_UNSYNCED)
"""Without a journal they have no series."""
METRICS: Final = tuple(one for one in list(globals().values()) if isinstance(one, Metric))
"""All metrics, in this order."""
WORKERS: Final = Metric("workers", "gauge", "{process}", "Worker processes that run, where there are several.")
WORKER_RESTARTS: Final = Metric("worker.restarts", "counter", "{process}", "Workers that died and were started again.")
WORKER_HANGS: Final = Metric(
    "worker.hangs", "counter", "{process}", "Workers that did not answer for the time of a lease and were killed."
)
SUPERVISOR_METRICS: Final = (WORKERS, WORKER_RESTARTS, WORKER_HANGS)
"""What the admin port of several workers has in addition to their metrics."""
DURATION_BOUNDS_SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of the buckets of every histogram."""
