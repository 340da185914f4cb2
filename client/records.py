"""What goes in and what comes out: records, producer ids, finished batches and their numbers. Pure: without a clock, so
the caller passes the time for records without a timestamp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from ..codecs import record_batch
from ..codecs.compression import Codec
from ..codecs.errors import WireError
from ..codecs.record_batch import BatchHeader
from ..values import value

SEQUENCE_MODULUS: Final = 2**31
"""Sequences count records from 0 to 2^31 - 1 and then begin anew; a batch may reach over the end."""

Compression = Literal["none", "gzip"]
Headers = tuple[tuple[str, bytes | None], ...]
_CODECS: Final[dict[str, Codec]] = {"none": Codec.NONE, "gzip": Codec.GZIP}
_PRODUCER_ID_LIMIT: Final = 2**63
_EPOCH_LIMIT: Final = 2**15


class Place(NamedTuple):
    """One partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@value(frozen=True, slots=True)
class ProducerId:
    """A producer id (``number``, 63 bits) and its ``epoch`` (15 bits), which are saved together."""

    number: int
    epoch: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.number < _PRODUCER_ID_LIMIT:
            raise ValueError(f"producer id {self.number}: it has 63 bits")
        if not 0 <= self.epoch < _EPOCH_LIMIT:
            raise ValueError(f"producer epoch {self.epoch}: it has 15 bits")


CONDITIONAL: Final = ProducerId(_PRODUCER_ID_LIMIT - 1)
"""The producer id of all who publish conditionally: the base sequence of their batches is the expected offset."""


@value(frozen=True, slots=True)
class Record:
    """One record to be sent. ``timestamp_ms`` None: the time of the call; a batch that is made again then differs."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@value(frozen=True, slots=True)
class StoredRecord:
    """One record out of a partition's log. ``timestamp_ms``: -1 in the oldest message format."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@value(frozen=True, slots=True)
class CommittedOffset:
    """What a group has stored for a partition: ``offset`` is that of the next record, ``metadata`` the committer's own
    text. Brokers take 4,096 bytes of it (``offset.metadata.max.bytes``)."""

    offset: int
    metadata: str = ""


@value(frozen=True, slots=True)
class Stopped:
    """Where a producer stopped on a partition. ``last_sequence``: of the last record that is stored, -1 if none of its
    epoch is. ``last_timestamp_ms``: of its last batch; -1: not known, as at a proxy. A broker tells what its own log
    has, also what its followers do not have yet; a proxy what was acknowledged by all of them."""

    producer_id: ProducerId
    last_sequence: int
    last_timestamp_ms: int = -1

    @property
    def next_sequence(self) -> int:
        """The base sequence of its next batch."""
        return sequence_after(self.last_sequence, 1)


@value(frozen=True, slots=True)
class Receipt:
    """A batch is in the log. Servers do not say whether this try or an earlier one has put it there. But with
    ``is_old_duplicate`` it was appended before the producer's last five batches (DUPLICATE_SEQUENCE_NUMBER), and its
    offset is not told (``base_offset`` is None)."""

    topic: str
    partition: int
    base_sequence: int
    record_count: int
    base_offset: int | None
    is_old_duplicate: bool = False


@dataclass(slots=True)
class NumberedBatch:
    """A finished batch that carries its numbers: the bytes that every try sends."""

    data: bytearray
    header: BatchHeader

    @property
    def next_sequence(self) -> int:
        """The base sequence of the batch behind this one."""
        return sequence_after(self.header.base_sequence, self.header.record_count)


def sequence_after(base_sequence: int, record_count: int) -> int:
    """Return the base sequence that follows a batch. Source: Kafka DefaultRecordBatch.incrementSequence."""
    return (base_sequence + record_count) % SEQUENCE_MODULUS


def finish(records: Sequence[Record], *, compression: Compression = "none", now_ms: int | None = None) -> bytes:
    """Return one batch of the records without a producer's numbers. It can be kept, and sent under numbers later.

    ``now_ms``: for records without a timestamp. Raises ValueError: no records, no such compression, no time.
    """
    if not records:
        raise ValueError("a batch has at least one record")
    if compression not in _CODECS:
        raise ValueError(f"compression {compression!r}: one of {', '.join(_CODECS)}")
    rows = []
    for index, record in enumerate(records):
        timestamp = now_ms if record.timestamp_ms is None else record.timestamp_ms
        if timestamp is None:
            raise ValueError(f"record {index} has no timestamp_ms")
        rows.append(record_batch.Record(index, timestamp, record.key, record.value, record.headers))
    return record_batch.encode_batch(rows, codec=_CODECS[compression])


def number(
    batch: bytes | bytearray | memoryview, producer_id: ProducerId, base_sequence: int, *, follows: bool = False
) -> NumberedBatch:
    """Return a copy of a finished batch under these numbers. ``follows``: a conditional batch says that the one before
    it has no outcome yet. Raises ValueError for what is no whole batch of format v2,
    or has a wrong checksum, or belongs to a transaction."""
    data = bytearray(batch)
    if not 0 <= base_sequence < SEQUENCE_MODULUS:
        raise ValueError(f"base sequence {base_sequence}: it has 31 bits")
    try:
        header = record_batch.stamp(data, producer_id.number, producer_id.epoch, base_sequence, follows=follows)
    except WireError as error:
        raise ValueError(f"this is no finished batch: {error}") from None
    if header.attributes & (record_batch.TRANSACTIONAL_FLAG | record_batch.CONTROL_FLAG):
        raise ValueError("batches of transactions cannot be sent")
    return NumberedBatch(data, header)
