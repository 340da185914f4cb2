"""The batch marker of message format v2: which batch of which producer a stored batch is, in 48 bits of its header.

A batch without a producer id (-1) may have any producer epoch and base sequence: Kafka 0.11 to 4.3 check neither, and
keep both through replication, recompression, compaction and recovery (measured on real brokers). So these two fields
carry a hash of the batch's identity. It is a fingerprint: with an identity one can tell whether a batch may be that
one, and nobody can read the identity from it. Where it decides something, the records are compared as well.

Not kept: by Fetch 0 to 3, which converts down, and on topics of an older ``message.format.version``."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final

from .batch_marker import Identity
from .record_batch import PRODUCER, PRODUCER_AT, BatchHeader, sign
from .steps import STEP_BYTES, Steps

HEADER_MARKER_BYTES: Final = 6
NO_PRODUCER_ID: Final = -1
_PLAIN_EPOCHS: Final = (-1, 0)
"""What producers without idempotence send (KafkaJS 0, the others -1, with either as base sequence): no marker."""
_OTHER_EPOCH: Final = 1 << 46
"""Makes an epoch of a marker of these two."""
_IDENTITY: Final = Struct(">qhii")
_FIELDS: Final = Struct(">hi")
_HASH: Final = blake2b(digest_size=8, person=b"header")


def header_marker_of(identity: Identity) -> int:
    """Return the 48 bits that stand for a batch: the first ones of BLAKE2b over producer id, epoch, base sequence and
    record count."""
    made = _HASH.copy()
    made.update(_IDENTITY.pack(*identity))
    digest = made.digest()[:HEADER_MARKER_BYTES]
    marker = int.from_bytes(digest, "big")
    return marker if may_be_marker(_FIELDS.unpack(digest)[0]) else marker ^ _OTHER_EPOCH


def may_be_marker(producer_epoch: int) -> bool:
    """Could a batch without a producer id be one with a marker, by its epoch?"""
    return producer_epoch not in _PLAIN_EPOCHS


def read_header_marker(header: BatchHeader) -> int | None:
    """Return the marker in a stored batch's header; None: it has a producer id, or is a plain batch."""
    if header.producer_id != NO_PRODUCER_ID or not may_be_marker(header.producer_epoch):
        return None
    return int.from_bytes(_FIELDS.pack(header.producer_epoch, header.base_sequence), "big")


def marking_batch(batch: memoryview, marker: int) -> Steps[bytearray]:
    """Return a client's batch, whose CRC was verified, with this marker in the place of its producer, and signed
    again. Its records stay as they are."""
    # Grown step by step: to make room for 100 MiB takes as long as to fill it. The CRC of as much takes 20 ms.
    marked = bytearray(batch[:STEP_BYTES])
    fields = _FIELDS.unpack(marker.to_bytes(HEADER_MARKER_BYTES, "big"))
    PRODUCER.pack_into(marked, PRODUCER_AT, NO_PRODUCER_ID, *fields)
    for start in range(STEP_BYTES, batch.nbytes, STEP_BYTES):
        yield
        marked += batch[start : start + STEP_BYTES]
    sign(marked)
    return marked
