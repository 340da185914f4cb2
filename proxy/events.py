"""What happens, as plain data: flows, produce connections and sessions report events; only ``telemetry/`` turns them
into spans, counters and lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..codecs.batch_marker import Identity
from ..values import value

Report = Callable[[Any], None]


@value(frozen=True, slots=True)
class AppendSent:
    """A batch, or a group of them, left for the broker."""

    broker_id: int
    topic: str
    partition: int
    identities: tuple[Identity, ...]


@value(frozen=True, slots=True)
class AppendEnded:
    """The outcome of an append: appended, refused, not_sent or in_doubt. Made only for a journal."""

    broker_id: int
    topic: str
    partition: int
    identities: tuple[Identity, ...]
    outcome: str
    base_offset: int
    error_code: int
    reason: str


@value(frozen=True, slots=True)
class ProduceConnectionLost:
    """A connection to a broker ended. ``was_busy``: a produce request on it was unanswered."""

    broker_id: int
    reason: str
    was_busy: bool


@value(frozen=True, slots=True)
class ProduceOverdue:
    """A broker has not answered produce requests for some seconds, and does not throttle. ``places``: topic and
    partition of what is in them."""

    broker_id: int
    seconds: float
    places: tuple[tuple[str, int], ...]


@value(frozen=True, slots=True)
class StepDone:
    """One step of one batch: reserve, append, resolve or commit. A step of a group is reported for each of its batches.
    Made only when spans are wanted; ``began``: reactor seconds."""

    step: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    topic: str
    partition: int
    began: float
    seconds: float
    detail: str = ""


@value(frozen=True, slots=True)
class BatchAnswered:
    """A batch got its answer. ``verdict``: appended, duplicate, duplicate_below_window, out_of_order, fenced, refused,
    retry, ... ``arrived_at``, ``answered_at``: reactor seconds; the second is 0 when no spans are wanted. ``records``:
    the record batch as the client sent it, a view into its whole request. ``trace_id``: of the trace that begins with
    the batch, if it was chosen on arrival. ``client``: the client id, ``address``: from where its newest request came;
    "" if the client has gone. ``crc``: the CRC-32C in the batch's header, as the client sent it. ``principal``: of the
    client; "" if it does not authenticate."""

    verdict: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    topic: str
    partition: int
    error_code: int
    base_offset: int
    message: str | None = None
    arrived_at: float = 0.0
    answered_at: float = 0.0
    records: memoryview | None = None
    trace_id: int | None = None
    client: str = ""
    record_count: int = 0
    crc: int = 0
    address: str = ""
    principal: str = ""


@value(frozen=True, slots=True)
class DuplicateAnswered:
    """A batch that is in the log was sent again: it was answered, and not appended a second time."""

    client: str
    topic: str


@value(frozen=True, slots=True)
class RetryJoined:
    """A batch was sent again while its first try was in flight: it gets the same answer."""

    client: str
    topic: str


@value(frozen=True, slots=True)
class UnknownOutcomeOpened:
    """The outcome of an append is unknown."""

    producer_id: int
    topic: str
    partition: int
    base_sequence: int
    reason: str


@value(frozen=True, slots=True)
class UnknownOutcomeResolved:
    """An unknown outcome has ended. ``result``: one of ``metric_names.UNKNOWN_OUTCOME_RESULTS``: found, prefix,
    not_found, unknown, or left_open to another proxy. ``bytes_read``: of the log. ``seconds``: since the unknown
    outcome was opened."""

    producer_id: int
    topic: str
    partition: int
    base_sequence: int
    result: str
    bytes_read: int
    seconds: float
    detail: str = ""


@value(frozen=True, slots=True)
class GroupPrepared:
    """A flow has prepared a group of batches to be appended. ``reason``: what was not usual about it, one of
    ``producer/usual.py``."""

    topic: str
    reason: str


@value(frozen=True, slots=True)
class AppendSentAgain:
    """A batch that was not found in the log goes to the broker once more."""

    producer_id: int
    topic: str
    partition: int
    base_sequence: int
    attempt: int


@value(frozen=True, slots=True)
class AppendAfterDeadline:
    """Bytes of these batches left when the lease was about to end, or later: the process, or its machine, was paused
    between the last check of the lease and the write (rule R4)."""

    producer_id: int
    producer_epoch: int
    base_sequences: tuple[int, ...]
    topic: str
    partition: int


@value(frozen=True, slots=True)
class DuplicateFound:
    """A batch that was sent a second time, because the log did not have it, is in the log twice (rule R14)."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    topic: str
    partition: int
    offsets: tuple[int, ...]


@value(frozen=True, slots=True)
class BatchMarkerLost:
    """The broker stores our wrappers without their key, the batch marker, so an unknown outcome on this topic may end
    as unknown. ``stored_as``: what the broker stores instead, in words."""

    topic: str
    partition: int
    stored_as: str


@value(frozen=True, slots=True)
class NoRoomForBatchMarker:
    """A record was stored without a batch marker: with it, it is larger than the broker takes. An unknown outcome about
    it may end as unknown. ``size_bytes``: as it was sent."""

    topic: str
    partition: int
    size_bytes: int


@value(frozen=True, slots=True)
class TakenOver:
    """An intent of a proxy instance that is gone was taken over (rule R1)."""

    producer_id: int
    topic: str
    partition: int
    owner: bytes


@value(frozen=True, slots=True)
class ConditionalPartitionFenced:
    """A log ends elsewhere than what was published conditionally: somebody writes to the partition past the rules, or
    the log has lost records. Nothing more is appended there (rule R23)."""

    topic: str
    partition: int
    expected_end: int
    end_offset: int


@value(frozen=True, slots=True)
class ConditionalPartitionBegan:
    """Where the log of a conditional partition ends was read from it, as Redis does not say it (rule R23)."""

    topic: str
    partition: int
    next_offset: int


@value(frozen=True, slots=True)
class InstanceBegan:
    """An instance of a producer with a name has begun, or has got a higher epoch; all older ones are fenced (rule R22).
    ``before``: producer id and epoch of the previous instance; None: there was none."""

    name: str
    producer_id: int
    producer_epoch: int
    before: tuple[int, int] | None


@value(frozen=True, slots=True)
class ProducerIdIssued:
    """InitProducerId was answered."""

    producer_id: int


@value(frozen=True, slots=True)
class EntryLoaded:
    """A producer on a partition was loaded into memory. How many are there: those loaded minus those evicted."""

    producer_id: int
    topic: str
    partition: int


@value(frozen=True, slots=True)
class EntryEvicted:
    """An idle producer on a partition was evicted from memory to make room. Its state is read from Redis again when it
    comes back."""

    producer_id: int
    topic: str
    partition: int


@value(frozen=True, slots=True)
class ProxyInstanceBegun:
    """This process reserves under a new proxy instance from now on (rule R1)."""

    instance_id: bytes


@value(frozen=True, slots=True)
class DataGenerationChanged:
    """The Redis data generation is a new one: every entry is unverified (rule R10)."""

    data_generation: bytes


@value(frozen=True, slots=True)
class RedisMemoryMeasured:
    """Redis has reported its memory, in bytes. ``limit_bytes``: its maxmemory; 0: it has none."""

    used_bytes: int
    limit_bytes: int


@value(frozen=True, slots=True)
class ClientRefused:
    """Bad input from a client. ``what``: one sentence."""

    client: str
    what: str


@value(frozen=True, slots=True)
class OldClientSeen:
    """A client sends a version of an API that Kafka 4 lacks. Reported once for each client and day, see
    ``old_clients/inventory.py``. ``software``, ``principal``: "" where they are not known. ``is_refused``: its broker
    does not serve that version either. ``is_raised``: the proxy rewrites it to one that the broker serves."""

    client: str
    address: str
    software: str
    principal: str
    api_key: int
    api_version: int
    is_refused: bool
    is_raised: bool = False


@value(frozen=True, slots=True)
class RecordsNotLowered:
    """A fetch of an old client got an error for a partition: what is stored from ``offset`` on cannot be rewritten for
    it. ``reason``: for people."""

    client: str
    topic: str
    partition: int
    offset: int
    reason: str


@value(frozen=True, slots=True)
class OldRequestRefused:
    """A request was refused because Kafka 4 lacks its version. Reported for each, and so only counted."""

    api_key: int
    api_version: int


@value(frozen=True, slots=True)
class ConnectionRefused:
    """A connection was closed before anything was read from it, before it was authenticated, or so that another one
    could be admitted. ``reason``: one of ``metric_names.REFUSALS``; ``what``: one sentence."""

    address: str
    reason: str
    what: str


@value(frozen=True, slots=True)
class SmallFetch:
    """A consumer asks in an old version for fewer bytes than one stored batch may have. Reported once per
    connection."""

    client: str
    version: int
    bytes_max: int


@value(frozen=True, slots=True)
class SlowClient:
    """A client was disconnected because it did not finish sending a request, or did not read its answers. ``what``: one
    sentence."""

    client: str
    what: str


@value(frozen=True, slots=True)
class TlsRefused:
    """A client's TLS handshake failed, or took too long. ``client``: its address; ``what``: one sentence."""

    client: str
    what: str


@value(frozen=True, slots=True)
class CertificateLoaded:
    """A certificate of ours is used from now on. ``place``: where it is configured; ``expires_at``: unix seconds."""

    place: str
    subject: str
    expires_at: float


@value(frozen=True, slots=True)
class OperatorMessage:
    """Something an operator should read once. ``level``: debug, info, warning or error."""

    level: str
    what: str


@value(frozen=True, slots=True)
class InternalError:
    """An internal error ended a flow or a connection."""

    where: str
    error: Exception
