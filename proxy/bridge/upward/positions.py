"""What one connection's next fetches need of the last ones: where they have to begin, if that is not where their client
believes, and what is left of a batch.

A client asks for the offset after the last record that it got. What is there may be no record for it: a control batch,
or offsets whose records were compacted or aborted. A broker answers such a fetch at once, each time, as it has bytes.
So the place after them is kept, and the next fetch of the same offset begins there and waits for records.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

POSITIONS_MAX: Final = 5_000
"""Partitions of one connection, about 1 MB. A consumer reads fewer from one broker; above it the oldest ones are
forgotten, whose next fetch finds its place again by one more request to the broker."""

KEPT_BYTES_MAX: Final = 1 << 20
"""Of one batch, and one connection: brokers' default message.max.bytes is that much, and a client that takes it in many
pieces allows few bytes."""

POSITIONS_TOTAL_MAX: Final = 200_000
KEPT_BYTES_TOTAL_MAX: Final = 64 << 20
"""Of all connections: some 40 MB of positions, and as many batches as consumers read at the same moment."""

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


class PositionsBudget:
    """What the positions of all connections may take together. Above it those of the connections that have fetched
    longest ago are forgotten: their next fetch costs the broker one more request."""

    def __init__(self, positions_max: int = POSITIONS_TOTAL_MAX, kept_bytes_max: int = KEPT_BYTES_TOTAL_MAX) -> None:
        self._positions_max = positions_max
        self._kept_bytes_max = kept_bytes_max
        self._connections: OrderedDict[FetchPositions, None] = OrderedDict()
        """The last one has fetched last."""
        self.positions = 0
        self.kept_bytes = 0

    def count(self, connection: FetchPositions, positions: int, kept_bytes: int) -> None:
        """A connection has so many more of them, or (negative) fewer."""
        self.positions += positions
        self.kept_bytes += kept_bytes
        self._connections[connection] = None
        self._connections.move_to_end(connection)
        while self.positions > self._positions_max or self.kept_bytes > self._kept_bytes_max:
            oldest = next(iter(self._connections))
            if oldest is connection:
                return  # it is the only one
            oldest.clear()

    def cleared(self, connection: FetchPositions, positions: int, kept_bytes: int) -> None:
        """A connection had so many, and has none any more."""
        self.positions -= positions
        self.kept_bytes -= kept_bytes
        self._connections.pop(connection, None)


class FetchPositions:
    """Of the partitions that one connection reads. Any other offset than the one that was noted is read as asked, so a
    client that seeks sees no difference. A partition whose fetch failed is forgotten: its log may be another one."""

    __slots__ = ("_budget", "_by_partition", "_kept")

    def __init__(self, budget: PositionsBudget | None = None) -> None:
        """``budget``: that of all connections."""
        self._budget = budget or PositionsBudget()
        self._by_partition: dict[Partition, ReadPosition] = {}
        self._kept: KeptBatch | None = None

    def __len__(self) -> int:
        return len(self._by_partition)

    @property
    def kept(self) -> KeptBatch | None:
        """What is left of a batch; it may be dropped at any time."""
        return self._kept

    @kept.setter
    def kept(self, kept: KeptBatch | None) -> None:
        before = 0 if self._kept is None else len(self._kept.batch)
        self._kept = kept
        self._budget.count(self, 0, (0 if kept is None else len(kept.batch)) - before)

    def of(self, partition: Partition, asked: int) -> ReadPosition:
        """Return where a fetch of this offset begins."""
        found = self._by_partition.get(partition)
        return ReadPosition(asked, asked) if found is None or found.asked != asked else found

    def note(self, partition: Partition, position: ReadPosition) -> None:
        """Keep it for the next fetch, if that has to begin elsewhere or with more; else forget the partition."""
        before = len(self._by_partition)
        self._by_partition.pop(partition, None)
        if position != ReadPosition(position.asked, position.asked):
            self._by_partition[partition] = position
            if len(self._by_partition) > POSITIONS_MAX:
                del self._by_partition[next(iter(self._by_partition))]
        if before or self._by_partition:
            self._budget.count(self, len(self._by_partition) - before, 0)

    def forget(self, partition: Partition) -> None:
        """Read it as asked the next time."""
        if self._by_partition.pop(partition, None) is not None:
            self._budget.count(self, -1, 0)

    def clear(self) -> None:
        """Forget all of them; the connection may have ended."""
        kept_bytes = 0 if self._kept is None else len(self._kept.batch)
        self._budget.cleared(self, len(self._by_partition), kept_bytes)
        self._by_partition.clear()
        self._kept = None
