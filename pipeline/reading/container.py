"""What stands in a log as one entry, taken apart: its offsets, times, contents, and whose records they are. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from ...codecs import message_set
from ...codecs.batch_marker import Identity
from ...codecs.errors import Malformed
from ...codecs.primitives import Buffer
from .contents import NO_CONTENTS, Array, Contents

LOG_APPEND_TIME: Final = 1
"""In ``flags``: the timestamp is the broker's, not the one at which the record was made."""
UNPACKED_BYTES_MAX: Final = 256 << 20
"""One wrapper or batch, unpacked: four times what the proxy takes. gzip reaches 1000:1, so the stored size bounds
nothing."""
ENTRY_BYTES_MIN: Final = 14
"""The least value of an entry's size field: checksum, magic, attributes and two lengths of a message."""
SIZE_AT: Final = 8
SIZE_FIELDS: Final = message_set.OFFSET_AND_SIZE_BYTES
MAGIC_AT: Final = 16
NO_OFFSETS: Final = np.empty(0, np.int64)
_int32_at: Final = Struct(">i").unpack_from


class Piece(NamedTuple):
    """Consecutive records of one producer. ``first``: the offset of the first one."""

    identity: Identity
    first: int


@dataclass(frozen=True, slots=True)
class Container:
    """A wrapper, a batch, or consecutive plain messages. It covers the offsets ``first`` to ``last``, and has records
    at ``offsets``, which increase. ``timestamps``: in ms, -1 where the format has none. ``contents``: see
    ``contents.py``. ``pieces``: its batches with a known producer. ``unreadable``: why there are no records.
    ``is_control``: no records, but transaction markers. ``is_plain``: plain messages, each of which can be taken
    without the others. ``marker``: the batch marker in the header of a batch, which names no producer."""

    first: int
    last: int
    offsets: Array
    timestamps: Array
    contents: Contents
    pieces: tuple[Piece, ...] = ()
    flags: int = 0
    unreadable: str = ""
    is_control: bool = False
    is_plain: bool = False
    marker: int | None = None

    def between(self, start: int, end: int) -> Container | None:
        """Return plain messages without those below ``start`` and those from ``end`` on; None if no one is left."""
        assert self.is_plain
        if start <= self.first and self.last < end:
            return self
        if self.unreadable:
            return replace(self, first=max(self.first, start), last=min(self.last, end - 1))
        begin, behind = np.searchsorted(self.offsets, (start, end)).tolist()
        offsets = self.offsets[begin:behind]
        if not len(offsets):
            return None
        return replace(
            self,
            first=int(offsets[0]),
            last=int(offsets[-1]),
            offsets=offsets,
            timestamps=self.timestamps[begin:behind],
            contents=self.contents[begin:behind],
        )


class Broken(Exception):
    """No entry can be found any more from this place on. ``position``: in the bytes."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


def entries(data: Buffer) -> tuple[Array, int]:
    """Return where the whole entries begin, and where the last one ends. Raises Broken at a size that cannot be."""
    positions: list[int] = []
    append = positions.append
    position, end = 0, len(data)
    while position + SIZE_FIELDS <= end:
        (size,) = _int32_at(data, position + SIZE_AT)
        if size < ENTRY_BYTES_MIN:
            raise Broken(position, f"an entry of size {size}")
        following = position + SIZE_FIELDS + size
        if following > end:
            break
        append(position)
        position = following
    return np.array(positions, np.int64), position


def check_order(offsets: Array) -> None:
    """Raise Malformed unless offsets increase, from 0 on at least."""
    if (offsets < 0).any() or (np.diff(offsets) <= 0).any():
        raise Malformed("offsets do not increase")


def pieces_of(identities: Sequence[Identity] | None, last: int) -> tuple[Piece, ...]:
    """Return where each batch of a batch marker begins: the last one ends at the wrapper's own offset."""
    if not identities:
        return ()
    first = last + 1 - sum(identity.record_count for identity in identities)
    if first < 0:
        return ()  # no wrapper of ours
    pieces = []
    for identity in identities:
        pieces.append(Piece(identity, first))
        first += identity.record_count
    return tuple(pieces)


def unreadable(first: int, last: int, reason: str) -> Container:
    """Return a container that has no records, and why."""
    return Container(first, max(first, last), NO_OFFSETS, NO_OFFSETS, NO_CONTENTS, unreadable=reason)
