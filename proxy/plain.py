"""Batches without a producer id, as an old broker takes them (rule R20). Pure: decides about one batch at a time."""

from __future__ import annotations

from ..codecs.compression import Codec
from ..codecs.convert import HeaderPolicy, HeaderRefused, to_message_set
from ..codecs.errors import WireError
from ..codecs.produce import PartitionRecords
from ..codecs.record_batch import magic_of, parse_single_batch
from ..reactor import Buffer
from . import answers, limits
from .batch import Answer


def old_format(item: PartitionRecords, policy: HeaderPolicy) -> Buffer | Answer:
    """Return the records as a message set, converted if need be; or what the client is answered instead."""
    records = item.records
    assert records is not None
    try:
        if magic_of(records) < 2:
            return records
        return to_message_set(
            records,
            codec=Codec(parse_single_batch(records).codec),
            magic=1,
            policy=policy,
            output_bytes_max=limits.DECOMPRESSED_BYTES_MAX,
        ).message_set
    except HeaderRefused as refused:
        return answers.header_refused(refused.header, item.topic)
    except WireError as error:
        return answers.unreadable(str(error))
