"""What goes in and what comes out: records, finished batches without numbers, and what servers tell. Pure: without a
clock, so the caller passes the time for records without a timestamp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from ..codecs import record_batch
from ..codecs.compression import Codec
from ..producing.numbered_batch import ProducerId, sequence_after
from ..values import value

Compression = Literal["none", "gzip"]
Headers = tuple[tuple[str, bytes | None], ...]
_CODECS: Final[dict[str, Codec]] = {"none": Codec.NONE, "gzip": Codec.GZIP}


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


def finish(records: Sequence[Record], *, compression: Compression = "none", now_ms: int | None = None) -> bytes:
    """Return one batch of the records without producer id, epoch and sequence. It can be kept, and get them later.

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
