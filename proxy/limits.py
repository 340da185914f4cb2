"""Every limit of the proxy, with its unit and its reason, and the relations between them. Only numbers."""

from __future__ import annotations

from typing import Final

from ..codecs import sasl
from ..codecs.steps import STEP_BYTES
from ..state import lease, quiescence

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Frames
REQUEST_BYTES_MAX: Final = 100 * MIB
"""Kafka's socket.request.max.bytes: what a broker takes, the proxy takes."""
RESPONSE_BYTES_MAX: Final = 256 * MIB
"""A fetch answer may exceed what was asked for by one message per partition."""
RECEIVE_BYTES: Final = 64 * KIB
"""One recv, and what a connection gets in one pass of the event loop: many small requests are work, too."""
RECEIVE_OF_ONE_BYTES_MAX: Final = 256 * KIB
"""The same where all of it belongs to one request or answer that has begun to arrive: each further pass and recv costs
as much as the copy of its 64 KiB. 256 connections that have so much are read in some 20 ms."""

NEW_TOPIC_PARTITIONS_MAX: Final = 10_000
"""The largest default for a topic that is created without a number of partitions (-1, KIP-464): old clusters of any
size stay far below."""

# One client connection
REQUESTS_IN_FLIGHT_MAX: Final = 16
"""Clients keep up to five in flight; what is above waits in the socket."""
REQUESTS_PER_TURN_MAX: Final = 5
"""Requests of one client that are handled before it is the others' turn, however many have arrived."""
FAILURES_NOTED_MAX: Final = 200_000
FAILURES_NOTED_OF_ONE_MAX: Final = 40_000
"""Notes of failed batches that clients are to send again, so that what comes after them is no gap (rule R11): of all
connections, and of those of one address; where addresses are not counted, of one connection. A note takes 0.4 KiB, 0.6
with the longest topic names: 16 and 80 MB. Above it the connection with the most notes is closed. 10,000 producers that
fail on 20 partitions each, and 500 of one host on 80 each, have fewer; those above connect again, as after any lost
connection."""
CLIENT_RESPONSE_BYTES_MAX: Final = 4 * MIB
"""Answers that a slow client has not taken; above this nothing more is read from it."""
STREAM_BYTES_MAX: Final = 256 * KIB
"""Where bytes pass through unread (``proxy/native``), for each direction of one connection: bytes that the receiver has
not taken yet. Above this the sender is not read until all of them have left."""
REWRITTEN_BYTES_MAX: Final = 4 * MIB
"""The part, up to its last broker address, of an answer that otherwise passes through unread: the list of all brokers,
or an answer to Produce, which has some dozens of bytes for each partition."""
SEARCHED_REQUEST_BYTES_MAX: Final = 8 * KIB
"""A native produce request of at most so many bytes is searched for what shows a conditional publish, some 0.4 us a
KiB. A larger one is walked through instead, some 7 us for each batch."""
CONDITIONAL_REFUSED_BYTES_MAX: Final = 2 * MIB
"""A native produce request with a conditional batch, and any request that is refused as Kafka 4 lacks its version, is
kept whole up to this size, for an answer that names all of its partitions. Clients send 1 MiB by default
(max.request.size); for a larger one the connection is closed."""
RAISED_REQUEST_BYTES_MAX: Final = 1 * MIB
"""A request of a version that Kafka 4 lacks is kept whole to be raised to a later one: some 30,000 partitions. A larger
one is refused."""
RAISED_ANSWER_BYTES_MAX: Final = 128 * MIB
"""The answer to it is kept whole as well. A Fetch asks for 50 MiB at most, and gets one larger batch."""
CONNECTIONS_MAX: Final = 10_000
DESCRIPTORS_PER_CLIENT: Final = 2
"""A client's own connection, and the one to a broker that belongs to it. With fewer an operator gets a warning."""
DESCRIPTORS_PER_OLD_CLIENT: Final = 4
"""An old producer's batches have a connection of their own, and for a moment one to another leader or to a group's
coordinator. The process takes as many for each client where the system allows: few are old, but nobody knows how many.
What is open counts at each new connection: where none is left, a set gets NOT_LEADER_OR_FOLLOWER."""
DESCRIPTORS_KEPT: Final = 64
"""File descriptors that clients do not get: for Redis, the admin port, files, look-ups of names, the start of a private
Redis."""
DESCRIPTORS_KEPT_PER_BROKER: Final = 4
"""For each broker, in addition to its produce connections: the control connection, the one that reads logs, and the
produce connections of slow partitions."""
DESCRIPTORS_KEPT_SHARE_MAX: Final = 0.5
"""The largest share of all descriptors that is kept back: where there are few, clients get half of them."""
CONNECTIONS_PER_IP_MAX: Final = 500
"""A host with many Spark executors keeps some dozens of connections to each broker. A whole IPv6 /64 counts as one
address."""
CONNECTION_CREATION_RATE_MAX: Final = 200
"""New connections a second; those above it wait in the kernel's queue. At this rate they take a few hundredths of the
CPU, with TLS a fifth."""
ACCEPTS_BURST_SECONDS: Final = 5.0
"""Seconds of that rate that are accepted at once after an idle time: all clients come back together when a proxy has
been restarted."""
TURNED_AWAY_SHARE: Final = 0.1
"""A connection that is closed at once uses up this share of what an accepted one does: it takes less time."""
IP_COST_PER_TURN: Final = 64
"""What all connections of one address together may cost before it is the others' turn: a request costs one, and one
more for each ``IP_COST_BYTES`` of it. A dozen connections stay below."""
IP_COST_BYTES: Final = 16 * KIB
IP_TURN_SECONDS: Final = 0.005
"""Once a pass has gone on for so long since the first request of that address, the rest of its requests wait for the
next pass: 64 usual requests take 5 ms, and some that have to be read as a whole take 20."""
REQUEST_BYTES_TOTAL_MAX: Final = 256 * MIB
"""Bytes of requests that wait anywhere in the proxy, with what they are converted to, and of those that have not
arrived completely. Above this nothing is read. Only if more than half of it is unfinished requests, whose memory would
not be released otherwise, a few requests are read to their end."""

RESPONSE_BYTES_TOTAL_MAX: Final = 256 * MIB
"""Answers that clients have not read, of all of them. Above this the proxy reads nothing from clients that have more
than ``BACKLOG_BYTES`` waiting, and disconnects those that read nothing of it."""
BACKLOG_BYTES: Final = 64 * KIB
"""A client that has more answers waiting than this is watched."""
PAUSED_LOOK_SECONDS: Final = 0.1
"""How often it is checked whether a client that is not read from may be read from again, or whether a broker takes what
a client has sent it: nothing is called when bytes have left. 12 us each."""
REST_LOOK_SECONDS: Final = 0.5
"""The same for a connection that rests (``UNISSUED_REST_SECONDS``): one address may have 500."""
BACKLOG_LOOK_SECONDS: Final = 1.0
"""After an answer it is not checked for so long whether the client has read it: the kernel may not have sent it yet."""
UNTAKEN_SECONDS: Final = 30.0
"""A client that leaves its answers unread, so that nothing more is read from it, is disconnected if it reads none of
them for so long."""
UNTAKEN_SECONDS_SCARCE: Final = 5.0
"""The same while the unread answers of all clients are above ``RESPONSE_BYTES_TOTAL_MAX``."""
UNTAKEN_BYTES_PER_SECOND: Final = 16 * KIB
"""A client that reads less than this, while others wait for the memory of its answers, is treated as if it read
nothing."""
UNFINISHED_SECONDS: Final = 5.0
UNFINISHED_BYTES_PER_SECOND: Final = 16 * KIB
"""After the first seconds the rest of a request must arrive at least so fast, or the client is disconnected: unfinished
requests hold memory, and above ``REQUEST_BYTES_TOTAL_MAX`` they would make all clients wait."""
IDLE_SECONDS: Final = 600.0
"""Kafka's connections.max.idle.ms. A connection without a request for so long is closed."""
IDLE_LOOK_SECONDS: Final = 60.0
"""How often all connections are checked: 10,000 take four milliseconds."""
QUIET_SECONDS: Final = 5.0
"""Once there are ``CONNECTIONS_MAX``: a connection without a request for so long is closed to admit a new one. Members
of groups send something every three seconds."""
PRODUCER_QUIET_SECONDS: Final = 60.0
"""The same for a connection that has produced something; these are closed after all others."""
QUIET_LOOK_SECONDS: Final = 1.0
"""How often idle connections are looked for at most, which takes 20 ms for 10,000; less often where there are more than
``CONNECTIONS_MAX``."""

# TLS
TLS_HANDSHAKE_SECONDS: Final = 10.0
"""Handshakes wait for each other, one step in each pass, and a whole fleet may come at once."""
TLS_HANDSHAKES_MAX: Final = 1_000
"""Unfinished handshakes of clients at a time. Above it the oldest one is closed."""
STANDSTILL_LOOK_SECONDS: Final = 0.5
STANDSTILL_SECONDS: Final = 3.0
"""A process that ran that much later than it wanted to says so: above every step of the loop and every collection of
garbage, and below what ends a lease."""
RESOLVE_SECONDS_MAX: Final = 2.0
"""For the look whether advertised hosts have an address here: a silent name server holds up nobody for longer."""
HOSTS_RESOLVED_MAX: Final = 20
"""Advertised hosts that are looked up: one that is misspelt is so for all brokers."""
CERTIFICATE_LOOK_SECONDS: Final = 10.0
"""How often the files of certificates are checked."""
CERTIFICATE_WARN_DAYS: Final = 14
"""So many days before a certificate expires, and then once a day, a warning is logged."""

# SASL
SASL_SECONDS: Final = 10.0
"""From an open connection to an authenticated principal."""
SASL_FRAME_BYTES_MAX: Final = 64 * KIB
"""Before the client is authenticated; tokens with many claims take some KiB."""
SASL_HANDSHAKES_MAX: Final = 4
"""SaslHandshakes on one connection: each opens a connection to the broker, and clients that try another mechanism need
two."""
REQUESTS_BEFORE_AUTHENTICATION_MAX: Final = 32
"""Requests on one connection before its client is authenticated; clients need three."""
UNAUTHENTICATED_PER_IP_MAX: Final = 64
UNAUTHENTICATED_MAX: Final = 1_000
"""Connections that have not authenticated, where that is required. Above it the oldest one is closed: of that address,
or of all."""
LOGIN_REFUSAL_SECONDS: Final = 0.1
"""Delay of the answer to a failed login and of the close after it, as Kafka's
``connection.failed.authentication.delay.ms`` (KIP-306): a client that guesses passwords gets ten answers a second on
one connection after the other, and nobody else waits."""
SASL_BACKOFF_SECONDS_MIN: Final = 1.0
SASL_BACKOFF_SECONDS_MAX: Final = 10.0
"""After a broker has refused our principal, no login is tried there for so long: accounts are locked after some
tries."""
RIGHTS_SECONDS: Final = 10.0
"""How long a broker's yes to a client's right counts."""
DENIAL_SECONDS: Final = 1.0
"""How long its no counts: an operator who grants the right wants to see the effect."""
PASS_THROUGH_TOPICS_MAX: Final = 1_000
"""Topics of one client whose rights are remembered, some 400 KB, when no request of it waits for them."""
SCRAM_ITERATIONS_MIN: Final = sasl.SCRAM_ITERATIONS_MIN
SCRAM_ITERATIONS_MAX: Final = sasl.SCRAM_ITERATIONS_MAX
"""The client has the same ones: the reason is there."""

# Record batches
TOPIC_CHARACTERS_MAX: Final = 249
"""Of a topic's name: Kafka's own limit, from 0.10.0 on (``Topic.validate``)."""
UNPACKED_BYTES_MAX: Final = 256 * MIB
"""One batch with a producer id, in all. It is unpacked piece by piece, so this bounds the time for it alone: a second
or two, alternately with others. gzip reaches 1000:1, zstd 32,000:1, so the size of a frame bounds nothing. 256 times
the largest request that Java sends by default (max.request.size, 1 MiB); above it Java splits the batch."""
WRAPPER_UNPACKED_BYTES_MAX: Final = 16 * MIB
"""What is put into one wrapper; a larger batch is stored in several. Brokers of 0.10 and consumers of that time hold
all messages of a wrapper in memory, each as an object: 16 MiB of the smallest are half a million."""
PLANNED_BYTES_MAX: Final = 16 * MIB
"""Wrappers of one batch that are made before the first one is sent. Of a larger batch the others are made when these
are in the log: all of it is unpacked once more for that."""
DECOMPRESSED_BYTES_MAX: Final = 64 * MIB
"""What has to be unpacked as a whole: a conditional batch or one without a producer id, which go into one wrapper, and
a wrapper that is read from a log."""
GROUP_BYTES_MAX: Final = 128 * KIB
"""Old consumers stall on a wrapper that is larger than their fetch size, so batches go into one only up to this."""
QUEUED_BATCHES_MAX: Final = 32
"""Batches of one producer on one partition that wait; clients have five in flight, retries may double them."""
EPOCHS_AHEAD: Final = 2
"""Epochs after the newest known one whose beginning a rebuild looks for where the log may be of format v2: a client
begins a new one after a failure."""
TOO_LARGE_SECONDS: Final = 60.0
"""A size that a topic was seen to refuse counts for so long: then a larger batch is sent whole again, for its limit may
have been raised (``max.message.bytes``). Where it was not, that costs a few refused requests a minute."""

# Turns
TURN_SECONDS: Final = 0.002
"""Once a pass of the reactor has taken so long, batches that could be converted wait for the next one, so that those
that are ready leave. When 40 producers are answered together, and each batch takes 0.3 ms, the first one does not wait
for the last, nor do they come back together: with answers after 50 ms that gives 0.9 instead of 0.75 of the possible
throughput. Each pass has a cost of its own: half of this value gains little more."""
STEPS_SECONDS: Final = 0.01
"""Time in each pass of the reactor for work of many steps, such as the conversion of large batches: at least one step,
of a few milliseconds. Short work is done as well, in each pass."""
SHORT_WORK_STEPS_MAX: Final = 8
"""Steps after which a piece of work counts as long, and waits for the other long ones: 8 MiB, or 40,000 records. Four
times as many records as librdkafka puts into a batch."""
PASS_SECONDS: Final = 0.02
"""Once a pass has taken so long, further requests wait for the next one: in between the lease is renewed and others are
served."""
PASS_SECONDS_MAX: Final = 2.0
"""Once a pass has taken so long, the batches of a request that were not begun get a retriable code: the client sends
them again, and the work continues with them."""

# Produce connections
PRODUCE_CONNECTIONS_PER_BROKER: Final = 16
"""By default, opened as they are needed. A broker answers one request per connection at a time: with answers after 50
ms, four produce connections of 128 KiB were a tenth of what 40 producers reach without the proxy."""
PRODUCE_CONNECTIONS_PER_BROKER_MAX: Final = 1_000
"""The largest setting: brokers limit connections of one address, too."""
PRODUCE_CONNECTION_IDLE_SECONDS: Final = 60.0
"""A produce connection that was idle for so long is closed, except the last one."""
PRODUCE_CONNECTION_REQUEST_BYTES: Final = 128 * KIB
PRODUCE_CONNECTION_REQUEST_BYTES_MAX: Final = 2 * MIB
"""Bytes of appends in one upstream request, while there are produce connections enough and when there are not. All
appends of a request are answered together, so in a small one fewer wait for each other. 16 produce connections hold 200
producers of 100 KB."""
DEMAND_AVERAGED: Final = 64
"""Over so many requests a peak in the number of appends is forgotten (an exponential average)."""
HOLD_SECONDS_MIN: Final = 0.001
"""While there are more appends than produce connections, two requests leave at least the time of an answer divided by
the number of produce connections apart, so that each carries more; a shorter gap than this is not kept. 200 producers
and answers after 100 ms: 0.94 of the possible throughput, instead of 0.62."""
SLOW_PRODUCE_CONNECTIONS_PER_BROKER: Final = 2
"""For all slow partitions together; no other partition waits for them (rule R19)."""
UPSTREAM_TIMEOUT_SECONDS_MAX: Final = 5.0
UPSTREAM_TIMEOUT_SECONDS_MIN: Final = 0.5
"""A broker is given half of the clients' own time, within these: one that has lost its followers says so only when the
time is up (rule R5)."""
PRODUCE_CONNECTION_ANSWER_SECONDS_MAX: Final = 10.0
"""Beyond the produce timeout: an answer later than this is taken for lost, unless the broker throttles."""
PRODUCE_CONNECTION_THROTTLED_ANSWER_SECONDS_MAX: Final = 300.0
"""Old brokers delay the answers of throttled clients, by up to minutes."""
PRODUCE_CONNECTION_LOOK_SECONDS: Final = 0.1
"""How often requests that are out too long are looked for; where a client has a produce connection of its own, once a
second."""
PASS_THROUGH_PRODUCE_CONNECTION_LOOK_SECONDS: Final = 1.0
LATE_SECONDS_MIN: Final = 0.2
LATE_TIMES: Final = 8
SLOW_APPEND_SECONDS: Final = 1.0
"""A request is late when it takes longer than so many times an average answer, within these bounds. From then on no
other partition waits for its partitions, and each of them is tried alone to find out whether it is slow (rule R19)."""
OVERDUE_SECONDS: Final = 3.0
"""A produce request without an answer for so long is reported to the operator: longer than a loaded disk or a
collection of garbage takes, and shorter than anything that a client sees. A broker that throttles is not reported."""
OVERDUE_SHOWN_MAX: Final = 100
"""Partitions of overdue requests that one broker is said to have."""
ANSWERS_AVERAGED: Final = 16
SLOW_PARTITION_SECONDS: Final = 30.0
"""After so long without an append, a slow partition is tried alone before it shares a request with others again."""
PACE_KEPT_SECONDS: Final = 600.0
"""After so long it is forgotten that a partition was slow: its leader may have moved."""
CONNECT_SECONDS_MAX: Final = 5.0
"""For one address. The kernel alone would try for two minutes, less and less often."""
CONNECT_BACKOFF_SECONDS_MIN: Final = 0.05
CONNECT_BACKOFF_SECONDS_MAX: Final = 1.0
"""Between two tries, doubled each time: a broker that comes back is used again within a second."""
REFUSED_BACKOFF_SECONDS_MIN: Final = 1.0
REFUSED_BACKOFF_SECONDS_MAX: Final = 10.0
"""Between two tries at a broker that answers and cannot be served: another one may take its place, but that is not
urgent."""
PROBE_KEPT_SECONDS: Final = 30 * 24 * 3600
"""How long what a probe has found out is kept for all proxies of a cluster name. A service may change what it does with
batches and not the versions that it lists: a start after that probes it again."""
PROBE_TRIES_MAX: Final = 3
"""Probes in a row where responses are missing, by which a broker that restarts is taken for one that fails."""
PROBE_REASONS_MAX: Final = 20
PROBE_REASON_LENGTH_MAX: Final = 300
PROBED_RANGES_MAX: Final = 32
"""Of what is kept of a probe: its reasons, the characters of each, and the kinds of brokers that it is about. With
these it has less than 20 KB."""
LEADER_AWAY_SECONDS: Final = 0.5
"""How often a batch whose leader is known and cannot be reached looks again."""
LEFT_LOOK_SECONDS: Final = 10.0
"""How often it is checked which brokers have left the cluster."""
ASK_SECONDS_MAX: Final = 5.0
"""If no byte of an answer comes over the control connection for so long while one is due, the connection is reset."""

# The store
LEASE_SECONDS: Final = lease.LEASE_SECONDS
"""How long a lease lasts without renewal. So long other proxies wait for a proxy instance that has died, and a new
proxy instance for the leases that were granted before a loss (R1, R10)."""
NAME_MISSED_SECONDS: Final = 2 * LEASE_SECONDS
"""Two looks that find no record of a name in Redis are taken for one absence if they are no further apart. Only an
absence of ``LEASE_SECONDS`` counts."""
LEASE_RENEW_SECONDS: Final = lease.RENEW_SECONDS
LEASE_MARGIN_SECONDS: Final = lease.MARGIN_SECONDS
"""No byte of a produce leaves later than this before the lease ends (rule R4)."""
STORE_WAIT_SHARE: Final = 0.25
STORE_WAIT_SECONDS_MAX: Final = 8.0
"""A request waits for Redis for this share of its own timeout, and no longer than this; then it gets a retriable error
(rule R2)."""
COMMIT_IDLE_SECONDS: Final = 0.05
"""A commit rides on the next reserve; with none in this time it goes alone."""
COMMIT_LOOK_SECONDS: Final = COMMIT_IDLE_SECONDS / 2
"""How often commits that are held are checked for having waited so long."""
APPEND_RESERVATION_WRITE_SECONDS: Final = 0.05
"""How often what was appended under an append reservation is written to Redis; an append reservation that is idle for
so long is handed over."""
APPEND_RESERVATION_SECONDS_MAX: Final = 1.0
"""An append reservation whose last confirmed write is older is not used: Redis does not answer, and another proxy may
be about to take over. Less than what a lease leaves between two renewals."""
APPEND_RESERVATION_BYTES_MAX: Final = 64 * MIB
"""What the reservation's producer may append beyond its last confirmed write: a quarter of what one search may read
(``SCAN_BYTES_MAX``). What others append to the partition meanwhile is not counted, but a search reads it as well."""
APPEND_RESERVATION_ASKED_SECONDS: Final = 1.0
"""After an append reservation was handed over to a proxy that has asked for it, nothing of the producer is reserved
here for so long: that proxy reads the entry again (RESOLVE_WAIT_SECONDS_MAX)."""
BLANK_ENTRY_MS: Final = 1
"""How long an entry that says nothing stays in Redis where none was stored: the least that Redis has. Its swap confirms
that there is none, and clients can make one swap after another, each for another producer id."""
PRODUCER_EXPIRY_SECONDS: Final = 24 * 3600
"""The default, as Kafka's producer.id.expiration.ms: the state of an idle producer expires after a day, by the clock of
Redis."""
PRODUCER_EXPIRY_SECONDS_SAFE: Final = 900
"""Below this, a retry may come after its producer's state has expired, and be taken for a new batch."""
CLIENT_RETRY_SECONDS_MAX: Final = 600
"""No client retries a batch later than this after its first try: above every delivery.timeout.ms (rule R10)."""
CLIENT_RETRY_SECONDS_MAX_LEAST: Final = 120
"""The lowest setting: the default of the clients' delivery.timeout.ms."""
CHECKPOINTS_PER_HORIZON: Final = 10
"""Checkpoints of a partition within the client retry time: at most a tenth of that time is read in vain."""
CHECKPOINTS_PER_STEP: Final = 2_000
"""Taken in one step of the loop: 5 ms."""
CHECKPOINTED_PARTITIONS_MAX: Final = 100_000
"""600 bytes each. Partitions above this number get no checkpoint, so after a loss of Redis's data their logs are read
from the start."""
CHECKPOINTS_KEPT_HORIZONS: Final = 2
"""In client retry times. If there are too many partitions, one whose newest checkpoint is older than this makes room
for another one. A checkpoint is of use once it is one client retry time old, and at least as long from then on."""
CHECKPOINT_WRITE_SECONDS: Final = 60.0
"""How often the checkpoints are written to the data directory."""
EXPIRY_SLACK_SECONDS: Final = 60
"""An entry that is missing from Redis may have expired if it was to expire within so long by our clock: Redis's clock
may be ahead."""
EARLIER_INSTANCE_IDS_MAX: Final = 100
"""Earlier proxy instances that a process remembers. An open intent of a forgotten one is waited for like another
proxy's, a few seconds longer."""
LATE_WAITS_SECONDS: Final = 0.5
"""A conditional batch whose expected offset the log has passed waits so long for another proxy's intent to end, which
makes the end of the log certain. A writer that never pauses always has an intent open: then the conflict is reported
without waiting for that."""
RESOLVE_WAIT_SECONDS_MIN: Final = 0.1
RESOLVE_WAIT_SECONDS_MAX: Final = 1.0
RESOLVE_WAITS_COUNTED_MAX: Final = 10
"""An intent of another proxy is read again after this time, at first soon, then less often (rule R13)."""
HAND_OVER_SECONDS: Final = 10.0
"""An unknown outcome that has lasted so long, and that no request at this proxy waits for, is left to the proxy to
which the client sends its retry (R17)."""
GAP_SECONDS: Final = 120.0
"""A batch after a gap of which the log cannot tell whether it is there may be sent again for so long: Java's
delivery.timeout.ms, and twice the longest request timeout of others, after which lower batches have come again (rule
R11)."""
FAILED_PAUSE_SECONDS: Final = 1.0
"""After an internal error, before what it left open is resolved."""
NAMES_AT_WORK_MAX: Final = 1000
"""InitProducerId requests of producers with a name that wait for Redis at a time; more get 14
(COORDINATOR_LOAD_IN_PROGRESS), which is retriable."""
NAME_EXPIRY_SECONDS: Final = 30 * 24 * 3600
"""A producer name expires so long after its last use, and with it the record, the producer id and the entries of its
producer (rule R22); so do the ids of producers without a name. Far above every restart and repair, and each costs less
than a KiB of Redis for that time."""
NAME_STATE_SHARE: Final = 1.1
"""A name's entries and its producer id are kept for so many times as long as its record: they never expire first."""
NAME_RENEW_SECONDS: Final = 3600.0
"""How often a name, or a block of producer ids, that is in use is renewed by each process: two commands, and four for
each partition on which the name has an entry."""
NAME_RENEW_SHARE: Final = 1 / 20
"""The same, as a share of the expiry, where that is short."""
ISSUED_ID_SECONDS: Final = 3 * NAME_RENEW_SECONDS
"""How long Redis knows of a producer id that a broker has issued, unless it is in use: 100 bytes for each, and one
address has 10 a second noted. For one that has expired, and comes to a partition for the first time, the log is read
(rule R10)."""
IDS_IN_USE_LOOK_SECONDS: Final = 60.0
"""How often a process looks which producer ids have written something, and renews them: what it has not seen when it is
killed counts as not used."""
IDS_IN_USE_MAX: Final = 20_000
"""Blocks of producer ids, and names, of which a process remembers that it has renewed them, 2 MB. What is above is
renewed more often."""
NAMES_PER_PRINCIPAL_MAX: Final = 10_000
"""Names that one principal has in Redis, some 5 MB; all clients without a login are one principal. For one more the
proxy returns COORDINATOR_LOAD_IN_PROGRESS until names have expired or an operator forgets some."""
INIT_PRODUCER_IDS_PER_IP_RATE_MAX: Final = 10.0
INIT_PRODUCER_IDS_PER_IP_BURST_MAX: Final = 1_000
"""InitProducerId requests of one address, a second and after a quiet time, in each process: each may write to Redis. A
producer asks once, and ``CONNECTIONS_PER_IP_MAX`` producers may start twice at once; where ``connections_per_ip_max``
is higher, both numbers are as many times higher. More wait for their turn, and those that would wait too long get
COORDINATOR_LOAD_IN_PROGRESS, for which every client family asks again: Java, librdkafka and franz-go for as long as
they wait for anything, sarama 50 times, kafkajs five times, with longer and longer pauses."""
INIT_ADDRESSES_MAX: Final = 10_000
"""Addresses whose pace is remembered, some 3 MB. Above it the one that asked longest ago is forgotten."""
INIT_PRODUCER_ID_WAIT_SECONDS: Final = 10.0
"""The longest wait for such a turn. Every client waits longer for an answer. An answer is better than an error: sarama
up to 1.31 returns the response without a look at its error code (``InitProducerID`` in its client)."""
INIT_PRODUCER_ID_REFUSAL_SECONDS: Final = 1.0
"""Delay of that refusal: clients that count their tries wait for a minute (sarama) instead of five seconds."""
NAMES_SHOWN_MAX: Final = 500
"""Producers with a name that a process remembers for its status page: about 100 KB."""
NAMES_REMEMBERED_MAX: Final = 10_000
"""Names whose last record a process remembers, to notice that Redis has lost it: about 2 MB."""
PRINCIPALS_MAX: Final = 1_000
"""Principals with a block of producer ids in this process; of one that is forgotten the rest of a block is lost."""
UNISSUED_OUTCOMES_MAX: Final = 1_000
UNISSUED_OUTCOMES_OF_ONE_MAX: Final = 100
"""Unknown outcomes at a time of producer ids that nobody issued: in one process, and of one address or one principal.
For each of them a log is read, together with the others; it takes some 15 KB until then, and 2 ms of the loop's time
for a log of 45 MB: 500 at a time took a tenth of that time for as long as a client kept sending. Beyond it a batch gets
REQUEST_TIMED_OUT, and its client sends it again."""
UNISSUED_OUTCOMES_OF_ONE_AFTER_LOSS_MAX: Final = 500
RETURN_SECONDS: Final = 300.0
"""The same for one address or principal in the first minutes of a process, and of a data generation: if all
was lost, the ids of all producers are such ids, and many come at once. 2,000 of one address, on logs of 400 MB and two
cores at a load of 7, were served within 27 to 59 s; with 100 at a time, and rests of 2 s, only after 124 s, when Java
has dropped records. Half of what a process takes stays for others. Twice ``delivery.timeout.ms``, and some more."""
UNISSUED_REST_SECONDS: Final = 5.0
"""After a batch beyond it nothing more is taken of its connection for so long. Else a client that sends such batches as
fast as they are answered takes twice the loop's time of one that produces as many, in bursts. A refusal takes half a
millisecond: with rests of 2 s, those to 2,000 producers took a third of the loop's time. A search for another batch of
the same connection is kept for longer (``HAND_OVER_SECONDS``)."""
SEQUENCERS_MAX: Final = 100_000
"""Producers and partitions held in memory; idle ones beyond it are dropped and read again when they come back."""

# Answers
ANSWER_SHARE: Final = 0.75
"""A produce is answered after this share of its own timeout (rule R18)."""
ANSWER_SWEEP_SECONDS: Final = 0.1
"""How often expired requests are looked for: one timer for all of them."""
ANSWERED_PER_STEP: Final = 300
"""Requests, or partitions of them, whose time is up and that are answered in one step: 1 ms, and a few to send it."""
SWEPT_PER_STEP: Final = 5_000
"""Requests that are looked at in one step, after a client has gone: 1 ms."""
SWEPT_LINES_EMPTY_MAX: Final = 100
"""Requests are watched in one line for each timeout, which clients choose freely. When more lines than this are empty,
the empty ones are dropped."""
PRODUCE_TIMEOUT_MS_MIN: Final = 1_000
"""A client that asks for less is treated as if it had asked for this."""

# Who gives idempotence
NATIVE_LOOK_SECONDS: Final = 10.0
"""How often a proxy before brokers that could all give idempotence looks whether a producer has an entry left. Each
look walks all keys of Redis, until it finds one. Longer than a heartbeat, which notices that Redis has lost all."""

# Unknown outcomes
QUIESCENCE_SECONDS: Final = quiescence.QUIESCENCE_SECONDS
"""A broker that has passed the quiescence check for so long has executed whatever it had read before (rule R6)."""
PROBE_SECONDS: Final = quiescence.PROBE_SECONDS
"""How often it is asked meanwhile."""
PROBE_LATE_SECONDS: Final = quiescence.PROBE_LATE_SECONDS
"""If an answer comes so much later than they usually do, the broker may have been paused: its second begins again."""
QUIESCENCE_WAIT_SECONDS: Final = 5.0
"""While a broker is not seen to be quiescent, those that wait for it look so often whether another one leads, or give
up."""
QUIESCENCE_GATHER_SECONDS: Final = 0.02
"""The first probe of a broker waits so long, so that unknown outcomes which arise together are recovered together, and
the log is read once for all of them."""
LISTENERS_PER_STEP: Final = 2000
"""Waiting callers that get the same news in one step of the loop, some microseconds each: a broker that comes back may
have tens of thousands of batches in doubt."""
LEADER_GONE_SECONDS: Final = 10.0
"""A broker that cannot be connected to for this long, while another one leads, has lost its ZooKeeper session."""
SEARCH_LEFT_SECONDS: Final = 600.0
"""For so long a retry of an old batch continues the search that an earlier try began: each try may take a minute and a
half, and five others may be looked for in between."""
SCAN_BYTES_MAX: Final = 256 * MIB
SCAN_SECONDS_MAX: Final = 30.0
"""Of one try to find a batch in the log. After it the waiting requests are answered, and the next try continues where
this one ended."""
FETCH_BYTES: Final = 1 * MIB
"""For reading through a log: what a follower of that time fetches."""
FETCH_ONE_BYTES: Final = 64 * KIB
"""Where only one message is wanted."""
CHUNK_RECORDS_MAX: Final = 20_000
"""Records of other producers in one fetch. Once so many were taken apart (60 ms, in steps), the rest of the fetch is
not."""
NEAR_END_OFFSETS: Final = 100_000
"""What is searched from so near the end of a log on does not wait for a pass through all of it: what a partition takes
in ``BOUND_AGE_SECONDS`` at 10,000 records a second, so usual unknown outcomes."""
READERS_PER_STEP: Final = 30
"""Searches that get the same chunk of a log in one step of the loop: 30 to 50 us each."""
CHUNK_STEP_RECORDS: Final = 500
"""Records of a log that are taken apart in one step, 1 to 2 ms, one step in a pass of the loop: a client can make the
proxy read a whole log, and a produce of anybody else waits for three passes."""
PASS_WAITS_CHUNKS: Final = 8
"""A search that takes so many chunks longer than the others over one of them still stays in their pass."""
CHUNKS_KEPT: Final = 32
CHUNK_KEPT_BYTES_MAX: Final = 2 * MIB
CHUNK_KEPT_SECONDS: Final = 2.0
"""For so long what was read of a log serves other unknown outcomes that had begun to read: a thousand unknown outcomes
about a partition come together."""
CHUNKS_KEPT_BYTES_MAX: Final = CHUNKS_KEPT * CHUNK_KEPT_BYTES_MAX
"""Fetched pieces of one broker's logs, as they lie in memory: a fetch of 1 MiB takes 2 to 20 MiB there, as each message
in it is noted."""
CHUNK_MEMORY_BYTES_MAX: Final = 32 * MIB
"""Unpacked bytes of one fetch, and of the notes about it. Above it no further message of the fetch is taken apart, as
gzip reaches 1000:1. Usual records stay below; the last wrapper may exceed it (``DECOMPRESSED_BYTES_MAX``)."""
FETCHES_AT_A_TIME: Final = 4
"""Fetches from one broker that are out, for all unknown outcomes together: the answers come one after the other over
one connection."""
FETCH_BYTES_MAX: Final = 64 * MIB
"""Fetch v2 returns a message only whole; the size asked for grows up to this."""
FORWARDS_MAX: Final = 3
"""The first time, and twice more after the log was searched (rule R6)."""
AUDIT_BYTES_MAX: Final = 32 * MIB
"""Read by one piece of a duplicate audit: it only reports, and must not delay anything."""
DUPLICATE_AUDIT_PIECES_MAX: Final = 32
"""Of one duplicate audit, with turns for other audits in between: together 1 GiB, which is ten minutes of 1.7 MB/s.
Where the search begins at the start of the log, as after a truncation, not all of the log is read."""
DUPLICATE_AUDITS_SECONDS: Final = (60.0, 540.0)
"""After a batch was sent again, the audit looks for a duplicate one minute and ten minutes later (rule R14)."""
UNDECIDED_MAX: Final = 4
"""So many tries to resolve an unknown outcome may end undecidable; the next one that does ends the unknown outcome as
*unknown* (code 87)."""
DESCRIBE_SECONDS: Final = 10.0
"""For so long a DescribeProducers waits for open intents to be resolved: Kafka's admin clients wait 30 to 60 s."""
DESCRIBE_LOOK_SECONDS: Final = 0.05
DESCRIBES_AT_WORK_MAX: Final = 4
"""DescribeProducers requests at a time: each may have logs read for all producers of its partitions."""
DESCRIBED_PRODUCERS_MAX: Final = 10_000
"""In one answer, which is encoded in one step of some 20 ms."""
TOPIC_IDS_KNOWN_MAX: Final = 10_000
"""Topics whose names are remembered for clients that name them by their ids: about 2 MB."""
TOPIC_ID_SECONDS: Final = 60.0
"""How long: a topic may be deleted meanwhile, and another one may have its name. So long a batch for the old one may be
appended to the new one, as one that names the topic is."""

HIDDEN_RANGES_LOOK_SECONDS: Final = 2.0
"""How often the stored hidden ranges, one key, are read: so long it may take until a change is seen."""
HIDDEN_RANGES_FIRST_LOOK_SECONDS: Final = 0.1
"""How often the list is asked for until it was read for the first time: no client is served before."""
HIDDEN_RANGES_CHANGES_TOLD_MAX: Final = 20
"""Lines of the log for one change of the list, which may have thousands of ranges: each takes 50 us."""
HIDDEN_RANGES_UNPACKED_BYTES_MAX: Final = 8 * MIB
"""A wrapper of which only a part is left out of fetches, unpacked: it is taken apart in one step, of some 20 ms."""
HIDDEN_RANGES_PART_RECORDS_MAX: Final = 10_000
"""Records in all such wrappers of one answer: they are as much work as the bytes, another 20 ms."""
HIDDEN_RANGES_PARTS_MAX: Final = 8
HIDDEN_RANGES_MORE_UNPACKED_BYTES_MAX: Final = 512 * KIB
"""Such wrappers in one answer, and the unpacked bytes of each but the first: ten more ms. The answer is cut off after
them, and the client fetches the rest next."""
HIDDEN_RANGES_FETCH_BYTES_MAX: Final = MIB
"""Bytes of all partitions with hidden ranges in one answer: their messages are walked over one by one, in one step."""
HIDDEN_RANGES_FETCH_SHARE_BYTES_MIN: Final = 64 * KIB
"""Bytes of one such partition, where many are fetched at once: what does not fit into the answer is fetched again."""
HIDDEN_RANGES_FETCH_REQUEST_BYTES_MAX: Final = 512 * KIB
"""The largest Fetch request while there are hidden ranges: 20,000 partitions are looked up in one step, some 20 ms."""
HIDDEN_RANGES_LOGS_MAX: Final = 8
"""Logs that one partition has had, with named messages at the same offsets: an answer is walked over once for each."""
HIDDEN_RANGES_SKIPS_MAX: Final = 10_000
"""Partitions of one client at whose position everything that comes next is left out; one that is forgotten costs the
client one more fetch."""
HIDDEN_RANGES_SKIP_SECONDS: Final = 60.0
"""How long such a skip is remembered, so that the log is not read again for the same position."""
HIDDEN_RANGES_TOPIC_TURN_LOOKS: Final = 3
"""The proxy that has put a hidden range into Redis writes it to the compacted topic at once. The others write it only
if it is not there so many looks later (``HIDDEN_RANGES_LOOK_SECONDS``): then its writer may be gone."""
HIDDEN_RANGES_TOPIC_PATIENCE_LOOKS: Final = 5
"""For so many looks, ten seconds, the topic may be away, or have more than Redis, before that is logged: brokers
restart, and another proxy may be about to write it into Redis."""
HIDDEN_RANGES_TOPIC_SKIPS_MAX: Final = 32
"""For so many looks, a minute, nothing is appended after several failures: each of them may have left a record."""
HIDDEN_RANGES_TOPIC_REREAD_LOOKS: Final = 300
"""Every ten minutes it is read from its start: a topic that is recreated, or loses records, is noticed by then."""
HIDDEN_RANGES_TOPIC_RANGES_MAX: Final = 50_000
"""Kept in memory, some 20 MB; Redis has room for some thousand."""
HIDDEN_RANGES_TOPIC_STEP_BYTES: Final = 128 * KIB
"""Records that are read in one step, of some 10 ms."""
HIDDEN_RANGES_TOPIC_UNPACKED_BYTES_MAX: Final = 512 * KIB
"""A wrapper in the compacted topic, unpacked: a broker that compresses puts what came in one request into one, below
256 KiB."""
HIDDEN_RANGES_TOPIC_REQUEST_BYTES: Final = 128 * KIB
"""A produce request to the compacted topic is sent once it has so many bytes; one record has 2,000 messages at most,
110 KB."""
HIDDEN_RANGES_TOPIC_TIMEOUT_MS: Final = 10_000
"""For the replicas to have it; it is looked for, and written again, in any case."""
BATCH_MARKER_PROBE_SECONDS: Final = 600.0
"""How often an append of a partition is read back, to see whether the broker keeps the batch marker: a message format
or a codec may be changed at any time, and one small fetch per partition in ten minutes costs its broker nothing."""
BOUND_AGE_SECONDS: Final = 10.0
"""A lower bound older than this is read again before a reserve, so that an unknown outcome later costs a short scan
(rule R8)."""
BOUND_KEPT_SECONDS: Final = 60.0
"""For so long an older bound is used where the leader cannot be asked, as during an election; then it is forgotten, as
topics come and go."""

# Telemetry
LOOP_STEP_WINDOW_SECONDS: Final = 60.0
"""The longest step of the event loop is shown for one to two of these: longer than the interval at which metrics are
collected."""
REDIS_MEMORY_LOOK_SECONDS: Final = 10.0
"""How often Redis is asked for its memory: more often than most collectors ask the proxy."""
REDIS_MEMORY_SHARE_MAX: Final = 0.8
"""The share of Redis's maxmemory above which the status page warns: when Redis is full, nothing can be reserved, so no
idempotent batch is accepted."""
CLIENT_TOPIC_SERIES_MAX: Final = 500
"""Pairs of client id and topic that are counted separately, and topics: clients choose these names freely."""
CLIENT_TOPIC_IDLE_SECONDS: Final = 3600.0
"""A pair that was idle for so long may be replaced by another one: longer than rates usually look back."""
LINES_PER_MINUTE_MAX: Final = 20
"""Log lines of one kind that clients can cause at will: then one line says how many more there were."""
DUPLICATE_LINES_PER_MINUTE_MAX: Final = 6_000
"""The same for duplicates, which an operator wants to read one by one, but not ten thousand a second."""
CLIENT_FAILING_SECONDS: Final = 600.0
"""For so long after an error to a batch of it a client is shown as failing, before all others."""
RECENT_LINES_MAX: Final = 200
"""Lines of the log that the status page can show."""
TRACED_RECORDS_MAX: Final = 100
TRACED_HEADERS_MAX: Final = 2_000
"""Records and headers of one batch that are read to find the traces that its records belong to. A batch that is larger
than one step may read (``STEP_BYTES``) is not looked into."""
SPAN_LINKS_MAX: Final = 32
"""Traces of a batch's records that are linked to its span."""

# Memory
REQUEST_OBJECTS_BYTES: Final = 1 * KIB
PARTITION_OBJECTS_BYTES: Final = 2 * KIB
BATCH_OBJECTS_BYTES: Final = 4 * KIB
"""What a request, each partition in it, and each batch with a producer id take in memory in addition to their bytes,
while they are at work: 16,000 requests of one small batch took 50 MB, and with producer ids 160 MB, 40 MB of it for
good."""
REQUEST_PREFIXES_MAX: Final = 32
REQUEST_PREFIX_BYTES_MAX: Final = KIB // 2
"""Prefixes of produce requests (header, topic and partition) that one connection keeps, so that further requests are
not parsed again, and the bytes of one prefix. About as many as a producer has partitions at one broker; at most 40 KB
for a connection."""
MEMORY_LOOK_SECONDS: Final = 10.0
"""How often it is checked whether free memory can be given back to the kernel."""
MEMORY_GROWN_BYTES: Final = 8 * MIB
"""Memory is given back if it has grown by so much since the last time."""
MEMORY_STEP_BYTES: Final = 4 * MIB
"""Given back in one step; between two steps requests are served."""
QUIET_CPU_SHARE: Final = 0.1
"""CPU use since the last check, of one core. Giving back takes 0.1 ms for each MB, and taking it again twice that: a
process with more to do keeps its memory."""

# Topology
METADATA_FRESH_SECONDS: Final = 1.0
"""Metadata that is younger than this is given to clients without asking again: after a restart all of them ask at
once."""
METADATA_PAUSE_SECONDS: Final = 0.05
METADATA_PAUSE_SHARE: Final = 0.25
"""The pauses between Metadata requests for a topic that a client wants and that does not exist, or has no leader yet:
at first this time, then this share of the time since it was first asked for, at most ``METADATA_FRESH_SECONDS``."""
METADATA_LOOKED_FOR_SECONDS: Final = 2.0
METADATA_LOOKED_FOR_MAX: Final = 10_000
"""Topics that are looked for, some 5 MB; above it the one whose last look is the longest ago is forgotten."""
METADATA_ASKED_FOR_MAX: Final = 20_000
"""Topics of which it is known when brokers reported them by name: as many as are asked for while such an answer is
fresh (``METADATA_FRESH_SECONDS``), some 10 MB. One that is forgotten, the oldest, costs one more question."""
METADATA_SPREAD_SECONDS: Final = 0.5
"""Brokers learn one after the other that a topic was created or deleted: answers within this time after it are checked
again."""
NEW_TOPIC_SECONDS: Final = 5.0
"""For so long the proxy reports a topic to clients as one without a leader, if a broker says that it has created it and
the broker that was asked for metadata does not know it yet: brokers on busy machines learn of it within a second."""
NEW_TOPICS_MAX: Final = 10_000
"""New topics that are remembered for that; above it the oldest is forgotten."""
CREATE_TOPICS_NUMBERS_BYTES_MAX: Final = 48 * KIB
"""The largest CreateTopics in which -1 is replaced by our defaults: a thousand topics with long names. It is read in
one step, of 15 ms for 12,000 empty settings. A larger one is forwarded unchanged, and the broker refuses each -1 in it
(INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR)."""
CREATE_TOPICS_BYTES_MAX: Final = 64 * KIB
"""The largest CreateTopics to brokers of 0.10.1, which have version 0 only: the answer, hardly longer than the request,
is translated in one step. Some thousand topics."""
DELETED_TOPICS_MAX: Final = 10_000
"""In one DeleteTopics: its names are read in one step, of 10 ms."""
METADATA_PARTITION_SECONDS: Final = 0.000_02
"""Seconds between two Metadata requests, for each partition that they are about. Reading an answer takes a twentieth of
that in CPU time where all partitions have changed, and much less where none has."""
METADATA_WAIT_SECONDS: Final = 1.0
"""A client that waits for a newer answer gets what is known by then: clients are answered while brokers are away,
too."""
METADATA_AGE_SECONDS: Final = 30.0
"""How often the whole cluster is asked for at least: brokers do not announce new brokers and topics."""
METADATA_ROWS_PER_STEP: Final = 2_000
"""Topics and partitions that are read, or written, in one step of the loop: 2 ms. Clusters have a hundred thousand."""
METADATA_QUESTIONS_PER_SECOND_MAX: Final = 20
"""Topics that are wanted in between are asked for together: when a broker dies, all its producers ask at once."""
METADATA_TOPICS_PER_QUESTION_MAX: Final = 1_000
"""Topics that are named in one question: 250 KB at most."""
METADATA_TOLD_PER_STEP: Final = 100
"""Waiting callers that are called in one step of the loop: each may then work on a batch."""
METADATA_TOPICS_ASKED_MAX: Final = 20_000
METADATA_REQUEST_BYTES_MAX: Final = 5 * MIB
"""The most topics that one Metadata request may name, and the most bytes of it, which is their size with the longest
names: it is read, looked up and begun to be answered in one step of some 20 ms. Clients of more topics ask for all."""
METADATA_FEW_TOPICS: Final = 10
"""A client that names more topics waits for those that name fewer: one client can ask for all topics by name."""
PEER_LOOK_SECONDS: Final = 1.0
"""For each of two questions to an address that does not answer as it should: what listens there?"""
LISTEN_AGAIN_SECONDS: Final = 5.0
"""How often a listener tries again to open a broker's port that another process has."""
LISTEN_TOLD_SECONDS: Final = 60.0
LISTEN_TOLD_SECONDS_MAX: Final = 3600.0
"""A port that is still taken is logged again after so long, then each time after twice as long, up to the second
value."""
JOURNAL_AGAIN_SECONDS: Final = 1.0
"""How often a journal that cannot be written is tried again: on a full disk each try takes time."""
JOURNAL_ROTATE_BYTES: Final = 128 * MIB
"""Above this a file of the journal is renamed and the next one begins: some 200,000 batches, as much as tools open."""
JOURNAL_KEEP_FILES: Final = 16
"""Renamed files that are kept. With ``JOURNAL_ROTATE_BYTES`` each that is 2 GiB, so a forgotten journal fills no
disk."""
JOURNAL_FSYNC_SECONDS: Final = 1.0
"""How often what was written is brought to the disk (fsync): what a power cut may lose."""
JOURNAL_FSYNC_PAUSE_SECONDS: Final = 0.01
"""The least time between two fsyncs, also with ``fsync_seconds: 0``: an idle proxy wakes up no more often for it."""
JOURNAL_BEHIND_SECONDS: Final = 10.0
"""It is an error if a line is not on the disk so long after it is due: the disk stands still, or is overloaded."""
JOURNAL_REPLACED_FILES_MAX: Final = 8
"""Renamed files that are still open, as they were not brought to the disk yet. With so many, the current file grows on
instead of being renamed: each is a descriptor."""
ANSWERS_KEPT_MAX: Final = 1_000
ANSWERS_KEPT_BYTES_MAX: Final = 8 * MIB
"""Encoded answers to Metadata, as long as nothing newer is known of the cluster."""
DRAIN_SECONDS: Final = 25.0
"""After SIGTERM. Giving the lease back to Redis comes on top (``ASK_SECONDS_MAX``)."""

# Workers
WORKERS_MAX: Final = 64
"""Processes that share the ports. Each has its own connections to the brokers and to Redis."""
WORKER_RESTART_SECONDS_MIN: Final = 0.1
WORKER_RESTART_SECONDS_MAX: Final = 10.0
"""Pause before a worker that has died is replaced: at first next to none, doubled each time it soon dies again."""
WORKER_STEADY_SECONDS: Final = 60.0
"""If a worker that has lived for so long dies, the cause is taken for a new one, and the next pause is the shortest."""
WORKER_BEAT_SECONDS: Final = 1.0
"""Between two beats that a worker's event loop sends to the supervisor."""
WORKER_LOOK_SECONDS: Final = 1.0
"""Between two looks of the supervisor at the beats."""
WORKER_SILENT_SECONDS_MAX: Final = LEASE_SECONDS
"""A worker that has been silent for so long hangs, and its lease has ended (R4): it is killed and started again."""
WORKER_SILENT_SECONDS_SHOWN: Final = 3.0
"""A worker that has been silent for so long is named by ``/livez`` and the status page."""
WORKER_START_SECONDS_MAX: Final = 60.0
"""From a worker's start to its first beat. It has no port open until then, so no client waits for it."""
SUPERVISOR_LATE_SECONDS: Final = 1.0
"""A supervisor whose look comes later than this stood still itself (SIGSTOP, a suspended machine): it kills nobody for
what it has not heard meanwhile."""
WORKER_ASKED_SECONDS_MAX: Final = 2.0
"""For one question of the supervisor's admin port to a worker: one that stands still does not hold up the others'
numbers."""

# Old clients
OLD_CLIENTS_MAX: Final = 1_000
"""Clients in the inventory, each a client id at an address: at most 3.5 KB each, and more than one reads through. The
one seen the longest ago makes room."""
OLD_CLIENT_TEXT_MAX: Final = 64
"""Characters of a client id, or of another text that a client chooses; client ids are cut to as many elsewhere."""
OLD_CLIENT_LINE_SECONDS: Final = 86_400.0
"""One line for each client and day: often enough to be found in any day's log, and not each second of a retry loop."""
OLD_CLIENTS_ANSWER_BYTES_MAX: Final = 4 * MIB
"""A thousand clients, each with 4 texts of 64 characters written as escapes, and all 27 versions."""

COORDINATOR_TRIES: Final = 40
COORDINATOR_LOOK_SECONDS: Final = 0.25
"""How often a group's coordinator is asked for, for a client that asks any broker, and the time in between. The first
group of a cluster makes its brokers create the topic of offsets: 1 to 5 s."""
OLD_PRODUCER_IDS_MAX: Final = 5_000
"""Producer ids under which a process writes what old producers send; more requests wait for each other. There are as
many as requests are under way at once: with requests of 10 ms 10 ids do for 1,000 a second. But a broker that says
nothing holds those of all requests to it until their time is over, and requests to the others need some meanwhile. Each
id may cost every partition's leader an entry of some 200 bytes for a day."""
OLD_PRODUCER_IDS_PER_IP_MAX: Final = 1_000
"""Of these, for requests of one address at a time: one for each of ``CONNECTIONS_PER_IP_MAX``, and one for what each of
them has left. More wait, and get NOT_LEADER_OR_FOLLOWER at the end of their time: the code at which all old clients
that retry do. Not where ``connections_per_ip_max`` is 0: as behind a load balancer, all may have one address."""
LEFT_REQUESTS_SECONDS_MAX: Final = 30.0
"""Old requests that want no answer, of a client that has gone, are begun for so long: as long as clients wait for their
own brokers by default. A broker appends what it has read of them."""

# Client ids that inspect asks for
CLIENT_IDS_ASKED_MAX: Final = 500
"""Producer ids in one question to an admin port: 20 bytes each, in a request line of at most 16 KiB."""
ADMIN_ASKED_SECONDS_MAX: Final = 5.0
"""For one admin port, from the look-up of its name to the last byte: more than it takes where a worker stands still."""
ADMIN_ANSWER_BYTES_MAX: Final = MIB
"""Five hundred client ids of 64 characters, written as escapes, take less than half of it."""
ADMIN_PORTS_ASKED_MAX: Final = 100
"""Asked side by side, with a thread each."""

assert LEASE_RENEW_SECONDS * 2 < LEASE_SECONDS - LEASE_MARGIN_SECONDS, "two renewals fit into a lease"
assert STEP_BYTES < WRAPPER_UNPACKED_BYTES_MAX <= DECOMPRESSED_BYTES_MAX <= UNPACKED_BYTES_MAX
assert GROUP_BYTES_MAX <= PRODUCE_CONNECTION_REQUEST_BYTES < PRODUCE_CONNECTION_REQUEST_BYTES_MAX < REQUEST_BYTES_MAX
assert PRODUCE_CONNECTION_LOOK_SECONDS < LATE_SECONDS_MIN < UPSTREAM_TIMEOUT_SECONDS_MIN, (
    "late is said before the broker gives up"
)
assert UPSTREAM_TIMEOUT_SECONDS_MIN < UPSTREAM_TIMEOUT_SECONDS_MAX < PRODUCE_CONNECTION_ANSWER_SECONDS_MAX
assert NATIVE_LOOK_SECONDS > 2 * LEASE_RENEW_SECONDS, "a loss is noticed between two looks"
assert STEPS_SECONDS < PASS_SECONDS < PASS_SECONDS_MAX < LEASE_SECONDS - LEASE_RENEW_SECONDS, (
    "a lease outlives a long pass"
)
assert NAME_EXPIRY_SECONDS * (NAME_STATE_SHARE - 1) > 24 * NAME_RENEW_SECONDS > 24 * IDS_IN_USE_LOOK_SECONDS
assert FETCH_BYTES <= FETCH_BYTES_MAX <= SCAN_BYTES_MAX
assert (
    APPEND_RESERVATION_WRITE_SECONDS
    < APPEND_RESERVATION_SECONDS_MAX
    < LEASE_SECONDS - LEASE_RENEW_SECONDS - LEASE_MARGIN_SECONDS
)
assert APPEND_RESERVATION_BYTES_MAX <= SCAN_BYTES_MAX // 4
assert APPEND_RESERVATION_ASKED_SECONDS >= RESOLVE_WAIT_SECONDS_MAX
assert WORKER_BEAT_SECONDS + WORKER_LOOK_SECONDS < WORKER_SILENT_SECONDS_SHOWN < WORKER_SILENT_SECONDS_MAX
assert UNISSUED_REST_SECONDS <= HAND_OVER_SECONDS / 2, "who has to rest can come again"
assert PROBE_SECONDS < PROBE_LATE_SECONDS < QUIESCENCE_SECONDS
assert METADATA_ASKED_FOR_MAX >= METADATA_QUESTIONS_PER_SECOND_MAX * METADATA_TOPICS_PER_QUESTION_MAX * (
    METADATA_FRESH_SECONDS
), "what is fresh is not forgotten"
