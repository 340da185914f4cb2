"""A producer's id and epoch, the finished batches that carry them with a base sequence, and the receipts of these.
Pure."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from ..codecs import record_batch
from ..codecs.errors import WireError
from ..codecs.record_batch import BatchHeader
from ..codecs.steps import STEP_BYTES, Steps
from ..values import value

SEQUENCE_MODULUS: Final = 2**31
"""Sequences count records from 0 to 2^31 - 1 and then begin again; a batch may reach over the end."""

_CRC_AT: Final = 17
_CRC: Final = Struct(">I")
_ATTRIBUTES_AT: Final = 21
_PRODUCER_AT: Final = 43
_PRODUCER: Final = Struct(">qhi")
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
class Receipt:
    """A batch is in the log. Servers do not say whether this try or an earlier one has put it there. But with
    ``is_old_duplicate`` it was appended before the producer's last five batches (DUPLICATE_SEQUENCE_NUMBER), and its
    offset is unknown (``base_offset`` is None)."""

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
        """The base sequence of the batch after this one."""
        return sequence_after(self.header.base_sequence, self.header.record_count)


def sequence_after(base_sequence: int, record_count: int) -> int:
    """Return the base sequence that follows a batch. Source: Kafka DefaultRecordBatch.incrementSequence."""
    return (base_sequence + record_count) % SEQUENCE_MODULUS


def number(
    batch: bytes | bytearray | memoryview, producer_id: ProducerId, base_sequence: int, *, follows: bool = False
) -> NumberedBatch:
    """Return a copy of a finished batch under these numbers. ``follows``: a conditional batch says that the one before
    it has no outcome yet. Raises ValueError for what is no whole batch of format v2, or has
    a wrong checksum, or belongs to a transaction."""
    data = bytearray(batch)
    _check_sequence(base_sequence)
    try:
        header = record_batch.stamp(data, producer_id.number, producer_id.epoch, base_sequence, follows=follows)
    except WireError as error:
        raise ValueError(f"this is no finished batch: {error}") from None
    if header.attributes & (record_batch.TRANSACTIONAL_FLAG | record_batch.CONTROL_FLAG):
        raise ValueError("batches of transactions cannot be sent")
    return NumberedBatch(data, header)


def numbering(
    batch: bytes | bytearray | memoryview, producer_id: ProducerId, base_sequence: int
) -> Steps[NumberedBatch]:
    """Return what ``number`` does, in steps, for a large batch. Its checksum is not verified."""
    _check_sequence(base_sequence)
    view, data = memoryview(batch), bytearray()
    for start in range(0, len(view), STEP_BYTES):
        data += view[start : start + STEP_BYTES]
        yield
    _PRODUCER.pack_into(data, _PRODUCER_AT, producer_id.number, producer_id.epoch, base_sequence)
    crc = 0
    for start in range(_ATTRIBUTES_AT, len(data), STEP_BYTES):
        crc = crc32c(memoryview(data)[start : start + STEP_BYTES], crc)
        yield
    _CRC.pack_into(data, _CRC_AT, crc)
    return NumberedBatch(data, record_batch.parse_single_batch(memoryview(data)))


def _check_sequence(base_sequence: int) -> None:
    if not 0 <= base_sequence < SEQUENCE_MODULUS:
        raise ValueError(f"base sequence {base_sequence}: it has 31 bits")
