"""What one connection's next fetches need of the last ones: where they have to begin, if that is not where their client
believes, and what is left of a batch.

A client asks for the offset after the last record that it got. What is there may be no record for it: a control batch,
or offsets whose records were compacted or aborted. A broker answers such a fetch at once, each time, as it has bytes.
So the place after them is kept, and the next fetch of the same offset begins there and waits for records.
"""

from __future__ import annotations

from typing import Final, NamedTuple

POSITIONS_MAX: Final = 5_000
"""Partitions of one connection, about 1 MB. A consumer reads fewer from one broker; above it the oldest ones are
forgotten, whose next fetch finds its place again by one more request to the broker."""

KEPT_BYTES_MAX: Final = 1 << 20
"""Of one batch, and one connection: brokers' default message.max.bytes is that much, and a client that takes it in many
pieces allows few bytes."""

Partition = tuple[bytes, int]
"""A topic's name as it stands in a request, with its length, and the partition's number."""


class ReadPosition(NamedTuple):
    """Of one partition, for fetches of the offset ``asked``."""

    asked: int
    next_offset: int
    """Where the broker is asked to begin."""
    bytes_min: int = 0
    """The least limit that the broker is asked with: it has sent a part of a batch that has so many bytes."""
    is_first: bool = False
    """The broker is asked for it first: it had something that the others left no room for. A batch above the limit of
    its partition is sent for the first one of a request alone (KIP-74)."""


class KeptBatch(NamedTuple):
    """A batch of which the client has the first messages. Brokers send it whole with each fetch: to a client that takes
    32 KiB at a time, 32 times."""

    partition: Partition
    offset: int
    """Of the next message."""
    batch: bytes
    high_watermark: int
    last_stable_offset: int


class FetchPositions:
    """Of the partitions that one connection reads. Any other offset than the one that was noted is read as asked, so a
    client that seeks sees no difference. A partition whose fetch failed is forgotten: its log may be another one."""

    __slots__ = ("_by_partition", "kept")

    def __init__(self) -> None:
        self._by_partition: dict[Partition, ReadPosition] = {}
        self.kept: KeptBatch | None = None
        """May be dropped at any time."""

    def __len__(self) -> int:
        return len(self._by_partition)

    def of(self, partition: Partition, asked: int) -> ReadPosition:
        """Return where a fetch of this offset begins."""
        found = self._by_partition.get(partition)
        return ReadPosition(asked, asked) if found is None or found.asked != asked else found

    def note(self, partition: Partition, position: ReadPosition) -> None:
        """Keep it for the next fetch, if that has to begin elsewhere or with more; else forget the partition."""
        self._by_partition.pop(partition, None)
        if position == ReadPosition(position.asked, position.asked):
            return
        self._by_partition[partition] = position
        if len(self._by_partition) > POSITIONS_MAX:
            del self._by_partition[next(iter(self._by_partition))]

    def forget(self, partition: Partition) -> None:
        """Read it as asked the next time."""
        self._by_partition.pop(partition, None)
