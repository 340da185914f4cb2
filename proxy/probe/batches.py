"""The batches that a probe sends: each record says of which batch it is, so that it is found in the log wherever it
went. Pure; bytes by ``codecs/``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...codecs.compression import Codec, compress
from ...codecs.message_set import encode_message, encode_set
from ...codecs.record_batch import Record, encode_batch

RECORDS_EACH: Final = 3
"""Records of one batch: a batch of one has no borders that could be lost."""
MARKERS: Final = ((0x1234, 0x12345678), (-(2**15), -(2**31)), (2**15 - 1, 2**31 - 1), (0x1234, 0x12345678))
"""Epochs (16 bits) and base sequences (32 bits) of batches without producer id: any, both ends, and one pair twice."""
FIRST_OF_UNKNOWN: Final = 17
"""The base sequence of a producer id that has written nothing yet. Any but 0 would do."""
GAP: Final = 7
"""Sequences that are left out."""
NO_PRODUCER: Final = (-1, -1, -1)
HEADERS: Final = (("probe", b"1"), ("probe", None), ("other", b"\0\xff"))
"""Record headers: a name twice, and a null value."""
CODECS: Final = (Codec.GZIP, Codec.ZSTD)
ZSTD_PRODUCE, ZSTD_FETCH = 7, 10
"""From these versions on a broker takes zstd, and gives it back (KIP-110)."""
_TIMES_MS: Final = (0, 7, 3)
"""Of the records, added to the run's: the highest is neither the first nor the last."""


class ProbeBatch(NamedTuple):
    """One batch as it is sent. ``producer``: id, epoch, base sequence. ``marker``: the wrapper's key, of message format
    v1."""

    name: str
    data: bytes
    records: tuple[Record, ...]
    producer: tuple[int, int, int] = NO_PRODUCER
    codec: Codec = Codec.NONE
    marker: bytes | None = None


class Maker(NamedTuple):
    """Makes the batches of one run. ``run``: a text that no other run has; ``now_ms``: of the wall clock, as brokers
    refuse times that are far from theirs."""

    run: str
    now_ms: int

    def batch(
        self,
        name: str,
        producer: tuple[int, int, int] = NO_PRODUCER,
        *,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        codec: Codec = Codec.NONE,
    ) -> ProbeBatch:
        """Return one batch of message format v2."""
        records = self._records(name, headers)
        number, epoch, sequence = producer
        data = encode_batch(records, producer_id=number, producer_epoch=epoch, base_sequence=sequence, codec=codec)
        return ProbeBatch(name, data, tuple(records), producer, codec)

    def wrapper(self, name: str) -> ProbeBatch:
        """Return one compressed message of format v1 with a key, as the proxy stores a batch (batch marker). Its offset
        is that of the last record inside, which are relative (KIP-31)."""
        records = self._records(name, ())
        inside = encode_set([(one.key, one.value, one.timestamp) for one in records], magic=1)
        marker = f"{self.run}:{name}".encode()
        data = encode_message(
            marker,
            compress(Codec.GZIP, inside, magic=1),
            magic=1,
            offset=len(records) - 1,
            timestamp=max(one.timestamp for one in records),
            codec=Codec.GZIP,
        )
        return ProbeBatch(name, data, tuple(records), NO_PRODUCER, Codec.GZIP, marker)

    def _records(self, name: str, headers: tuple[tuple[str, bytes | None], ...]) -> Sequence[Record]:
        # Each with a key of its own: compaction, if that is the cluster's default, leaves them all.
        names = [f"{name}:{index}" for index in range(RECORDS_EACH)]
        return [
            Record(index, self.now_ms + later, one.encode(), f"{self.run}:{one}".encode(), headers)
            for index, (one, later) in enumerate(zip(names, _TIMES_MS, strict=True))
        ]
