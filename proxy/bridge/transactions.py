"""APIs of transactions (24 to 28), before they became flexible: refused in their own layout, so that no client waits.

Source: KIP-98, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit v0 to v2.
"""

from __future__ import annotations

from ...codecs.error_codes import ErrorCode
from ...reactor import Buffer
from ..versions import ApiKey
from .base import THROTTLE_NONE
from .fields import INT16, INT32, Reader, string

VERSION_MAX = 2
_CODE = INT16.pack(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_TOPIC_BYTES_MIN = 6


def refusal(api_key: int, api_version: int, body: Buffer) -> bytes | None:
    """Return an answer body with 53 (fatal to all clients: none tries again) everywhere; None: not known here."""
    if not 0 <= api_version <= VERSION_MAX:
        return None
    if api_key in (ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN):
        return THROTTLE_NONE + _CODE
    reader = Reader(body)
    reader.string("transactional_id")
    if api_key == ApiKey.TXN_OFFSET_COMMIT:
        reader.string("group_id")
    elif api_key != ApiKey.ADD_PARTITIONS_TO_TXN:
        return None
    reader.int64("producer_id")
    reader.int16("producer_epoch")
    parts = [THROTTLE_NONE]
    count = reader.count("topics", _TOPIC_BYTES_MIN)
    parts.append(INT32.pack(count))
    for _ in range(count):
        parts.append(string(reader.string("topic name")))
        if api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
            partitions = reader.int32_array("partitions")
        else:
            partitions = _read_committed(reader, with_leader_epoch=api_version >= 2)
        parts.append(INT32.pack(len(partitions)))
        parts += [INT32.pack(partition) + _CODE for partition in partitions]
    reader.finish()
    return b"".join(parts)


def _read_committed(reader: Reader, *, with_leader_epoch: bool) -> tuple[int, ...]:
    partitions = []
    for _ in range(reader.count("partitions", 18 if with_leader_epoch else 14)):
        partitions.append(reader.int32("partition"))
        reader.int64("offset")
        if with_leader_epoch:
            reader.int32("leader_epoch")
        reader.nullable_string("metadata")
    return tuple(partitions)
