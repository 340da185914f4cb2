"""A small Kafka client for producers that choose their numbers: producer id, epoch and base sequence. What was sent
before a crash is sent again under the same numbers, and is in the log once.

``Client`` blocks; ``trio_client.TrioClient`` is the same on trio. resume-a-producer.md shows how it is used,
wire-protocol.md what it says to a server, byte for byte."""

from ..producing.errors import (
    BehindFailed,
    ClientError,
    Conflict,
    Displaced,
    Fenced,
    NotAppended,
    NotDelivered,
    OutOfOrder,
    ProduceError,
    Refused,
    Undecided,
    Undeterminable,
    UnknownProducer,
)
from ..producing.numbered_batch import CONDITIONAL, ProducerId, Receipt, sequence_after
from .blocking import Client, Producer, Reader, finish
from .errors import (
    AuthenticationFailed,
    ConnectionFailed,
    OffsetOutOfRange,
    RequestRefused,
    UnreadableLog,
    UnsupportedServer,
)
from .progress import PlannedBatch, Progress
from .records import CommittedOffset, Record, Stopped, StoredRecord
from .security import Sasl, tls_context

__all__ = [
    "CONDITIONAL",
    "AuthenticationFailed",
    "BehindFailed",
    "Client",
    "ClientError",
    "CommittedOffset",
    "Conflict",
    "ConnectionFailed",
    "Displaced",
    "Fenced",
    "NotAppended",
    "NotDelivered",
    "OffsetOutOfRange",
    "OutOfOrder",
    "PlannedBatch",
    "ProduceError",
    "Producer",
    "ProducerId",
    "Progress",
    "Reader",
    "Receipt",
    "Record",
    "Refused",
    "RequestRefused",
    "Sasl",
    "Stopped",
    "StoredRecord",
    "Undecided",
    "Undeterminable",
    "UnknownProducer",
    "UnreadableLog",
    "UnsupportedServer",
    "finish",
    "sequence_after",
    "tls_context",
]
