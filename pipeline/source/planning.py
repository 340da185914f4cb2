"""How much a trigger takes, and which task reads what. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ..reading.broker import Access, Address, TopicPartition
from .offsets import Offsets
from .options import Rows


class Range(NamedTuple):
    """Offsets of one partition that one task reads, the last one not included."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class ReadTask:
    """All that a task needs; it is pickled."""

    bootstrap: tuple[Address, ...]
    access: Access
    range: Range
    rows: Rows
    with_headers: bool
    fails_on_data_loss: bool
    fetch_bytes: int


def ranges_between(starts: Offsets, ends: Offsets) -> list[Range]:
    """Return one range for each partition that has something to read."""
    return [Range(*place, starts[place], end) for place, end in sorted(ends.items()) if starts[place] < end]


def split(ranges: Sequence[Range], partitions_min: int | None = None, records_max: int | None = None) -> list[Range]:
    """Cut ranges so that there are at least so many, and none is longer than ``records_max`` offsets. Large ranges are
    cut into more pieces than small ones, each into equal ones; fewer come out only where there are fewer offsets."""
    total = sum(one.end - one.start for one in ranges)
    pieces = []
    for one in ranges:
        size = one.end - one.start
        count = 1
        if partitions_min is not None and partitions_min > len(ranges):
            count = -(-size * partitions_min // total)
        if records_max is not None:
            count = max(count, -(-size // records_max))
        count = min(count, size)
        borders = [one.start + size * number // count for number in range(count + 1)]
        pieces += [one._replace(start=start, end=end) for start, end in pairwise(borders)]
    return pieces


def limited(starts: Offsets, ends: Offsets, rows_max: int) -> dict[TopicPartition, int]:
    """Return ends that are no more than ``rows_max`` offsets after the starts, in all.

    Each partition gets a share as large as its part of what waits, so that all come to their ends at about the same
    time; but at least one offset, as long as that is possible, so that a small one does not wait for large ones.
    """
    waiting = {place: end - starts[place] for place, end in ends.items() if end > starts[place]}
    if sum(waiting.values()) <= rows_max:
        return dict(ends)
    largest_first = sorted(waiting, key=lambda place: (-waiting[place], place))
    shares = dict.fromkeys(largest_first[:rows_max], 1)
    spare, rest = rows_max - len(shares), sum(waiting.values()) - len(waiting)
    if spare > 0:
        for place in shares:
            shares[place] += spare * (waiting[place] - 1) // rest
        for place in largest_first[: rows_max - sum(shares.values())]:
            shares[place] += 1
    return {place: starts[place] + shares.get(place, 0) if place in waiting else end for place, end in ends.items()}
