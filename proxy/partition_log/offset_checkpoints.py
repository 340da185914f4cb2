"""Checkpoints: where the logs of partitions ended at what time. With them, what was appended lately is found without
reading a whole log (rule R10). ListOffsets by time would not do: an old broker answers with the start of a segment.

Owns the checkpoints of this process and their packed form in the data directory. Pure: never asks a broker or a clock;
whether a log still has the record of a checkpoint is checked where the log is read (``log_search.py``)."""

from __future__ import annotations

import struct
import zlib
from collections import OrderedDict, deque
from collections.abc import Mapping

from ...reactor import Buffer
from ...state.entry import NO_ANCHOR
from ...values import value
from .. import limits
from .log_offsets import Position

Place = tuple[str, int]
"""Topic and partition."""

_FORMAT = 1
_HEAD = struct.Struct(">BI")
_PLACE = struct.Struct(">HiH")
_MARK = struct.Struct(">qq8s")


class CheckpointFormatError(Exception):
    """The stored checkpoints cannot be read."""


@value(frozen=True, slots=True)
class OffsetCheckpoint:
    """``time``: reactor seconds. Whatever was appended later lies at ``position`` or above it."""

    time: float
    position: Position


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
        self._of: OrderedDict[Place, deque[OffsetCheckpoint]] = OrderedDict()
        """By partition; the one whose newest checkpoint is the oldest comes first."""
        self._taken_at = float("-inf")

    def take(self, now: float, bounds: Mapping[Place, tuple[float, Position]]) -> None:
        """Take a checkpoint of every partition at its newest bound, if it is time to. ``now``: not before any of the
        bounds was learned."""
        if bounds and now - self._taken_at >= self.horizon_seconds / limits.CHECKPOINTS_PER_HORIZON:
            self.take_all(now, bounds)

    def take_all(self, now: float, bounds: Mapping[Place, tuple[float, Position]]) -> None:
        """Take a checkpoint of every partition now."""
        self._taken_at = now
        for place, (_, position) in bounds.items():
            self.note(now, place, position)

    def note(self, now: float, place: Place, position: Position) -> None:
        """Take one checkpoint. One without an anchor is dropped, as a log that was truncated and grew again would not
        be noticed; only the start of a log needs none."""
        if position.offset > 0 and position.anchor == NO_ANCHOR:
            return
        checkpoints = self._of.setdefault(place, deque())
        # Of two times for the same position the older one says more.
        if not checkpoints or checkpoints[-1].position != position:
            checkpoints.append(OffsetCheckpoint(now, position))
            self._of.move_to_end(place)
        while len(checkpoints) > 1 and self._is_old(checkpoints[1], now):
            checkpoints.popleft()
        while len(self._of) > self._partitions_max:
            self._of.popitem(last=False)

    def before_horizon(self, place: Place, now: float) -> Position | None:
        """Return where to begin a search for all that may be retried at ``now``; None if no checkpoint is old
        enough."""
        old = [checkpoint.position for checkpoint in self._of.get(place, ()) if self._is_old(checkpoint, now)]
        return old[-1] if old else None

    def forget(self, place: Place) -> None:
        """Drop the checkpoints of a partition whose log may have been truncated below them."""
        self._of.pop(place, None)

    def __len__(self) -> int:
        """Number of partitions that have checkpoints."""
        return len(self._of)

    def _is_old(self, checkpoint: OffsetCheckpoint, now: float) -> bool:
        return now - checkpoint.time > self.horizon_seconds

    # ------------------------------------------------------------------ packed
    def copied(self) -> OffsetCheckpoints:
        """Return a copy, for a thread that packs it."""
        copy = OffsetCheckpoints(self.horizon_seconds, self._partitions_max)
        copy._of = OrderedDict((place, checkpoints.copy()) for place, checkpoints in self._of.items())
        return copy

    def pack(self, now: float, wall_ms: int) -> bytes:
        """Return all checkpoints as bytes, with times of the wall clock: format, CRC-32 of the rest, then partition by
        partition."""
        body = bytearray()
        for (topic, partition), checkpoints in self._of.items():
            name = topic.encode()
            body += _PLACE.pack(len(name), partition, len(checkpoints)) + name
            for checkpoint in checkpoints:
                then_ms = wall_ms - round((now - checkpoint.time) * 1000)
                body += _MARK.pack(then_ms, checkpoint.position.offset, checkpoint.position.anchor)
        return _HEAD.pack(_FORMAT, zlib.crc32(body)) + bytes(body)

    def unpack(self, data: Buffer, now: float, wall_ms: int) -> None:
        """Take over the checkpoints that an earlier process has packed; those from the future are dropped. Raises
        CheckpointFormatError, and then takes over nothing."""
        found = _unpacked(bytes(data))
        for place, checkpoints in found:
            for then_ms, position in checkpoints:
                if then_ms <= wall_ms:
                    self.note(now - (wall_ms - then_ms) / 1000, place, position)


def _unpacked(data: bytes) -> list[tuple[Place, list[tuple[int, Position]]]]:
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
            checkpoints = []
            for _ in range(count):
                then_ms, offset, anchor = _MARK.unpack_from(data, at)
                checkpoints.append((then_ms, Position(offset, anchor)))
                at += _MARK.size
            found.append(((topic, partition), checkpoints))
    except (struct.error, UnicodeDecodeError) as error:
        raise CheckpointFormatError(f"it ends too early, or is damaged: {error}") from None
    return found
