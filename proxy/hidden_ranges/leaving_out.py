"""Leaves named records out of the partitions of one answer, in one step of the event loop.

What would take longer is cut off at the border of a message, as a broker does at a limit of bytes: the client asks for
it with its next fetch. The first message that is looked at in an answer is always taken, so every fetch brings its
client on. Which bytes are left out is decided in ``codecs.without_ranges``; this module decides how many are compared
in one answer.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from ...codecs.without_ranges import entry_at, without_ranges
from ...reactor import Buffer
from .. import limits
from .known import LogRanges


class LeavingOut:
    """Of one answer, with the work that was done for it so far."""

    __slots__ = ("_looked_bytes", "_part_records", "_parts")

    def __init__(self) -> None:
        self._looked_bytes = 0
        """Bytes of the messages that were compared so far, counted once for each log that they were compared with."""
        self._parts = self._part_records = 0
        """Wrappers that were taken apart, as only a part of each is left out, and the offsets that they have."""

    def of(self, records: memoryview, logs: Sequence[LogRanges]) -> tuple[memoryview, memoryview]:
        """Return the part of ``records``, from the first one on, that this answer covers, and what is left of that
        part. If both are the same object, nothing is left out."""
        last_offset = max(log.last_offset for log in logs)
        noted: Container[int] = logs[0].messages if len(logs) == 1 else {at for log in logs for at in log.messages}
        room_bytes = (limits.HIDDEN_RANGES_FETCH_BYTES_MAX - self._looked_bytes) // len(logs)
        pieces = _Pieces(records, logs)
        position = 0
        while (entry := entry_at(records, position)) is not None:
            offset, end, crc = entry
            if offset > last_offset or end > len(records):
                break
            is_taken = end <= room_bytes or not (position or self._looked_bytes)
            part_records = max(log.part_records(offset, crc) for log in logs) if offset in noted else 0
            if is_taken and part_records:
                is_taken = self._take_part(pieces, position, end, part_records)
            if not is_taken:
                records = records[:position]
                break
            position = end
        self._looked_bytes += position * len(logs)
        return records, pieces.joined(position, records)

    def _take_part(self, pieces: _Pieces, start: int, end: int, part_records: int) -> bool:
        """Take a wrapper apart. Returns False if it has to wait for the next fetch."""
        is_first = not self._parts
        self._parts += 1
        self._part_records += part_records
        if is_first:
            return pieces.take_part(start, end, limits.HIDDEN_RANGES_UNPACKED_BYTES_MAX, may_stay=True)
        if self._parts > limits.HIDDEN_RANGES_PARTS_MAX or self._part_records > limits.HIDDEN_RANGES_PART_RECORDS_MAX:
            return False
        return pieces.take_part(start, end, limits.HIDDEN_RANGES_MORE_UNPACKED_BYTES_MAX, may_stay=False)


class _Pieces:
    """What is left of the records of one partition."""

    __slots__ = ("_begun", "_is_same", "_left", "_logs", "_records")

    def __init__(self, records: memoryview, logs: Sequence[LogRanges]) -> None:
        self._records = records
        self._logs = logs
        self._left: list[Buffer] = []
        self._is_same = True
        self._begun = 0
        """Up to there messages were compared."""

    def take_part(self, start: int, end: int, bytes_max: int, *, may_stay: bool) -> bool:
        """Compare the messages up to ``start``, and the wrapper from ``start`` to ``end``, of which a part is left out.
        If it has more than ``bytes_max`` unpacked bytes or cannot be read, it stays as it is with ``may_stay``;
        without, it is not taken, and False is returned."""
        self._compare(start, limits.HIDDEN_RANGES_UNPACKED_BYTES_MAX)
        if self._compare(end, bytes_max) or may_stay:
            return True
        self._left.pop()
        self._begun = start
        return False

    def joined(self, end: int, records: memoryview) -> memoryview:
        """Compare the messages up to ``end``. Return what is left of ``records``; the same object if that is all."""
        self._compare(end, limits.HIDDEN_RANGES_UNPACKED_BYTES_MAX)
        return records if self._is_same else memoryview(b"".join((*self._left, records[end:])))

    def _compare(self, end: int, bytes_max: int) -> bool:
        """Return whether something is left out of the next messages."""
        taken = left = self._records[self._begun : end]
        for log in self._logs:
            pieces = without_ranges(left, log, bytes_max).records
            if not (len(pieces) == 1 and pieces[0] is left):
                left = memoryview(b"".join(pieces))
        self._left.append(left)
        self._begun = end
        self._is_same &= left is taken
        return left is not taken
