"""Checkpoints: where the log of each partition ended at some time. With them, what was appended lately is found without
reading a whole log (rule R10). ListOffsets by time would not do: an old broker answers with the start of a segment.

Owns the checkpoints of this process and their packed form in the data directory. Pure: never asks a broker or a clock;
whether a log still has the record of a checkpoint is checked where the log is read (``log_search.py``)."""

from __future__ import annotations

import struct
import zlib
from itertools import islice, takewhile

from ...reactor import Buffer
from ...state.entry import NO_ANCHOR
from .. import limits
from .log_offsets import Position

Place = tuple[str, int]
"""Topic and partition."""

_FORMAT = 1
_HEAD = struct.Struct(">BI")
_PLACE = struct.Struct(">HiH")
_MARK = struct.Struct(">qq8s")
_KEPT = struct.Struct(">dq8s")
"""A checkpoint in memory: reactor seconds, offset, anchor. Whatever was appended later than that lies at the offset or
above it. Packed, as a million of them would be objects that the collector looks at again and again."""


class CheckpointFormatError(Exception):
    """The stored checkpoints cannot be read."""


class OffsetCheckpoints:
    """The checkpoints of each partition: those of the last ``horizon_seconds``, and the newest of the older ones."""

    def __init__(
        self,
        horizon_seconds: float = limits.CLIENT_RETRY_SECONDS_MAX,
        partitions_max: int = limits.CHECKPOINTED_PARTITIONS_MAX,
    ) -> None:
        self.horizon_seconds = horizon_seconds
        """No client retries a batch later than this after its first try."""
        self._partitions_max = partitions_max
        self._of: dict[Place, bytes] = {}
        """By partition, oldest first; the one whose newest checkpoint is the oldest comes first."""
        self._is_full_until = float("-inf")
        """No partition gives way to another one before this time."""

    def note(self, now: float, place: Place, position: Position) -> None:
        """Keep a checkpoint. One without an anchor is dropped, as it would not show that the log was truncated and grew
        again; only offset 0 needs none. One of a new partition is dropped, too, if there are too many partitions."""
        self._note(now, place, position.offset, position.anchor)

    def _note(self, now: float, place: Place, offset: int, anchor: bytes) -> None:
        if offset > 0 and anchor == NO_ANCHOR:
            return
        kept = self._of.get(place, b"")
        if not kept and len(self._of) >= self._partitions_max and not self._made_room(now):
            return
        # The log has not grown: the older time says more, as all that was appended later lies above.
        if not kept or _KEPT.unpack_from(kept, len(kept) - _KEPT.size)[1:] != (offset, anchor):
            kept += _KEPT.pack(now, offset, anchor)
            self._of.pop(place, None)  # so that it moves to the end
            self._of[place] = kept
        at = 0
        while at + _KEPT.size < len(kept) and self._is_old(_KEPT.unpack_from(kept, at + _KEPT.size)[0], now):
            at += _KEPT.size
        if at:  # of the old ones only the newest is needed
            self._of[place] = kept[at:]

    def before_horizon(self, place: Place, now: float) -> Position | None:
        """Return where to begin a search for all that may be retried at ``now``; None if no checkpoint is old
        enough."""
        found = None
        for then, offset, anchor in _KEPT.iter_unpack(self._of.get(place, b"")):
            if self._is_old(then, now):
                found = Position(offset, anchor)
        return found

    def forget(self, place: Place) -> None:
        """Drop the checkpoints of a partition whose log may have been truncated below them."""
        self._of.pop(place, None)

    def __len__(self) -> int:
        """Number of partitions that have checkpoints."""
        return len(self._of)

    def _made_room(self, now: float) -> bool:
        """Drop the partitions that were idle for longest, but only those that are idle for so long that no search needs
        their checkpoints. Where more partitions are at work than are kept, those that have checkpoints keep them: else
        none would ever have one that is old enough."""
        if now <= self._is_full_until:
            return False
        kept_seconds = limits.CHECKPOINTS_KEPT_HORIZONS * self.horizon_seconds
        some = islice(self._of, 1 + self._partitions_max // 256)  # the first costs most: deleted ones are walked over
        idle = list(takewhile(lambda place: now - self._newest(place) > kept_seconds, some))
        for place in idle:
            del self._of[place]
        if self._of and not idle:
            self._is_full_until = self._newest(next(iter(self._of))) + kept_seconds
        return bool(idle)

    def _newest(self, place: Place) -> float:
        """Return the time of its newest checkpoint."""
        kept = self._of[place]
        newest: float = _KEPT.unpack_from(kept, len(kept) - _KEPT.size)[0]
        return newest

    def _is_old(self, then: float, now: float) -> bool:
        return now - then > self.horizon_seconds

    # ------------------------------------------------------------------ packed
    def copied(self) -> OffsetCheckpoints:
        """Return a copy that another thread may pack."""
        copy = OffsetCheckpoints(self.horizon_seconds, self._partitions_max)
        copy._of = self._of.copy()
        return copy

    def pack(self, now: float, wall_ms: int) -> bytes:
        """Return all checkpoints as bytes, with times of the wall clock: format, CRC-32 of the rest, then partition by
        partition."""
        body = bytearray()
        for (topic, partition), kept in self._of.items():
            name = topic.encode()
            body += _PLACE.pack(len(name), partition, len(kept) // _KEPT.size) + name
            for then, offset, anchor in _KEPT.iter_unpack(kept):
                body += _MARK.pack(wall_ms - round((now - then) * 1000), offset, anchor)
        return _HEAD.pack(_FORMAT, zlib.crc32(body)) + bytes(body)

    def unpack(self, data: Buffer, now: float, wall_ms: int) -> None:
        """Take over the checkpoints that an earlier process has packed; those from the future are dropped. Raises
        CheckpointFormatError, and then takes over nothing."""
        found = _unpacked(bytes(data))
        for place, checkpoints in found:
            for then_ms, offset, anchor in checkpoints:
                if then_ms <= wall_ms:
                    self._note(now - (wall_ms - then_ms) / 1000, place, offset, anchor)


def _unpacked(data: bytes) -> list[tuple[Place, list[tuple[int, int, bytes]]]]:
    """Return the checkpoints of each partition: milliseconds of the wall clock, offset, anchor."""
    try:
        found_format, checksum = _HEAD.unpack_from(data)
        if found_format != _FORMAT:
            raise CheckpointFormatError(f"format {found_format} is unknown")
        if checksum != zlib.crc32(data[_HEAD.size :]):
            raise CheckpointFormatError("the checksum is wrong")
        at, found = _HEAD.size, []
        while at < len(data):
            name_bytes, partition, count = _PLACE.unpack_from(data, at)
            at += _PLACE.size
            topic = data[at : at + name_bytes].decode()
            at += name_bytes
            end = at + count * _MARK.size
            if end > len(data):
                raise CheckpointFormatError("it ends too early")
            checkpoints = list(_MARK.iter_unpack(data[at:end]))
            at = end
            found.append(((topic, partition), checkpoints))
    except (struct.error, UnicodeDecodeError) as error:
        raise CheckpointFormatError(f"it ends too early, or is damaged: {error}") from None
    return found
