"""InitProducerId v0 to v6, both bodies. The proxy answers it; who gets which id is not decided here.

Source: KIP-98, KIP-360, KIP-939, InitProducerIdRequest and -Response (flexible from v2 on, producer_id and epoch in the
request from v3 on, two-phase commit from v6 on).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from ...codecs.errors import Truncated, UnsupportedVersion
from ...reactor import Buffer
from ..versions import ApiKey
from .fields import NO_TAGS, Reader

VERSION_MAX = 6
FLEXIBLE_FROM = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FENCED_SINCE = 4
"""From this version on clients know PRODUCER_FENCED (KIP-588); in earlier ones a fenced producer gets
INVALID_PRODUCER_EPOCH."""
_ANSWER = Struct(">ihqh")
_TWO_PHASE_SINCE = 6
_TWO_PHASE = Struct(">bb")
"""Enable two-phase commit; keep the prepared transaction."""
_NO_TRANSACTION = Struct(">qh").pack(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
"""None is ongoing."""


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """``transactional_id`` None: an idempotent producer. Id and epoch are -1 where the version has none."""

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def is_transactional(self) -> bool:
        """Where brokers have transactions: is it for these? A broker refuses a timeout of 0 (Kafka
        TransactionCoordinator.handleInitProducerId), so a client that sends it asks for a producer name."""
        return self.transactional_id is not None and self.transaction_timeout_ms > 0


def issued_id(body: Buffer) -> tuple[int, int]:
    """Return error code and producer id of an answer, v0 to v6. Raises Truncated."""
    if len(body) < _ANSWER.size:
        raise Truncated(f"InitProducerId: an answer of {len(body)} bytes")
    _, error_code, producer_id, _ = _ANSWER.unpack_from(body)
    return error_code, producer_id


def parse_init_producer_id(body: Buffer, version: int) -> InitProducerIdRequest:
    """Return a client's request, v0 to v6."""
    if not 0 <= version <= VERSION_MAX:
        raise UnsupportedVersion(ApiKey.INIT_PRODUCER_ID, version)
    reader = Reader(body)
    flexible = version >= FLEXIBLE_FROM
    read_name = reader.compact_nullable_string if flexible else reader.nullable_string
    transactional_id = read_name("transactional_id")
    timeout_ms = reader.int32("transaction_timeout_ms")
    producer_id, producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    if version >= 3:
        producer_id, producer_epoch = reader.int64("producer_id"), reader.int16("producer_epoch")
    if version >= _TWO_PHASE_SINCE:
        reader.unpack(_TWO_PHASE, "enable_2pc")
    if flexible:
        reader.skip_tags()
    reader.finish()
    return InitProducerIdRequest(transactional_id, timeout_ms, producer_id, producer_epoch)


def encode_init_producer_id(
    version: int, error_code: int, producer_id: int, producer_epoch: int, throttle_ms: int = 0
) -> bytes:
    """Return the answer's body, v0 to v6. With an error, id and epoch are -1."""
    assert 0 <= version <= VERSION_MAX
    if error_code:
        producer_id, producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    body = _ANSWER.pack(throttle_ms, error_code, producer_id, producer_epoch)
    if version >= _TWO_PHASE_SINCE:
        body += _NO_TRANSACTION
    return body + NO_TAGS if version >= FLEXIBLE_FROM else body
