"""Where the logs of partitions ended at what time: so what was appended lately is found without reading a whole log
(rule R10).

Owns the marks of this process and their packed form in the data directory. Pure: never asks a broker or a clock;
whether a log still has what a mark says is seen where it is read (``log_search.py``)."""

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
    """What is stored of marks cannot be read."""


@value(frozen=True, slots=True)
class OffsetCheckpoint:
    """``time``: reactor seconds; whatever is appended later lies at ``position`` or above it."""

    time: float
    position: Position


class OffsetCheckpoints:
    """Of each partition the marks of one horizon, and the newest one that is older."""

    def __init__(
        self,
        horizon_seconds: float = limits.CLIENT_RETRY_SECONDS_MAX,
        partitions_max: int = limits.MARKED_PARTITIONS_MAX,
    ) -> None:
        self.horizon_seconds = horizon_seconds
        """Nobody retries a batch later than this after its first try."""
        self._partitions_max = partitions_max
        self._of: OrderedDict[Place, deque[OffsetCheckpoint]] = OrderedDict()
        """The one whose newest mark is the oldest first."""
        self._taken_at = float("-inf")

    def take(self, now: float, bounds: Mapping[Place, tuple[float, Position]]) -> None:
        """Note the newest bounds of all partitions, when it is time to. ``now``: not before any of them was learned."""
        if bounds and now - self._taken_at >= self.horizon_seconds / limits.MARKS_PER_HORIZON:
            self.take_all(now, bounds)

    def take_all(self, now: float, bounds: Mapping[Place, tuple[float, Position]]) -> None:
        """Note them now."""
        self._taken_at = now
        for place, (_, position) in bounds.items():
            self.note(now, place, position)

    def note(self, now: float, place: Place, position: Position) -> None:
        """Note one. Without an anchor a log that was cut and grew again would not be noticed: only its start needs
        none."""
        if position.offset > 0 and position.anchor == NO_ANCHOR:
            return
        checkpoints = self._of.setdefault(place, deque())
        if not checkpoints or checkpoints[-1].position != position:  # the older time says more
            checkpoints.append(OffsetCheckpoint(now, position))
            self._of.move_to_end(place)
        while len(checkpoints) > 1 and self._is_old(checkpoints[1], now):
            checkpoints.popleft()
        while len(self._of) > self._partitions_max:
            self._of.popitem(last=False)

    def before_horizon(self, place: Place, now: float) -> Position | None:
        """Return where the search for all that may be retried at ``now`` can begin; None: nothing so old is known."""
        old = [checkpoint.position for checkpoint in self._of.get(place, ()) if self._is_old(checkpoint, now)]
        return old[-1] if old else None

    def forget(self, place: Place) -> None:
        """The log may have been cut off below."""
        self._of.pop(place, None)

    def __len__(self) -> int:
        """Partitions that have marks."""
        return len(self._of)

    def _is_old(self, checkpoint: OffsetCheckpoint, now: float) -> bool:
        return now - checkpoint.time > self.horizon_seconds

    # ------------------------------------------------------------------ packed
    def copied(self) -> OffsetCheckpoints:
        """Return what is known now, for a thread that packs it meanwhile."""
        copy = OffsetCheckpoints(self.horizon_seconds, self._partitions_max)
        copy._of = OrderedDict((place, checkpoints.copy()) for place, checkpoints in self._of.items())
        return copy

    def pack(self, now: float, wall_ms: int) -> bytes:
        """Return all marks, with the wall clock's times. Format, CRC-32 of the rest, then partition by partition."""
        body = bytearray()
        for (topic, partition), checkpoints in self._of.items():
            name = topic.encode()
            body += _PLACE.pack(len(name), partition, len(checkpoints)) + name
            for checkpoint in checkpoints:
                then_ms = wall_ms - round((now - checkpoint.time) * 1000)
                body += _MARK.pack(then_ms, checkpoint.position.offset, checkpoint.position.anchor)
        return _HEAD.pack(_FORMAT, zlib.crc32(body)) + bytes(body)

    def unpack(self, data: Buffer, now: float, wall_ms: int) -> None:
        """Know what was packed in an earlier life; a mark from the future is dropped. Raises MarksFormatError, and then
        nothing of it is known."""
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
