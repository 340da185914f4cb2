"""Segment files of a broker that may be dead: which there are, and their bytes in pieces. Reads only.

They also have what consumers never saw, as it is above the high watermark, and what a follower would have truncated.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ...codecs.record_batch import MAGIC as NEW_FORMAT
from .container import ENTRY_BYTES_MIN, MAGIC_AT, SIZE_AT, SIZE_FIELDS, Broken
from .contents import integers
from .decode import containers, first_size

PIECE_BYTES: Final = 8 << 20
"""The size of a piece; an entry that is larger is a piece of its own."""
_FOLDER: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
_SEGMENT: Final = re.compile(r"(?P<base>\d{20})\.log")
_CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
"""How far each partition was compacted (kafka.log.LogCleanerManager). Brokers whose cleaner runs have it, 0.9.0.1 and
later by default; a partition that is not in it was never compacted."""
_SCANNED_BYTES: Final = 1 << 20
_OFFSETS_AHEAD_MAX: Final = 1 << 31
"""Entries that follow in the same file have offsets that are no further ahead: its index holds 31 bits."""
_CHECKED_TIMES_MAX: Final = 16
"""What looks like an entry is read to see whether it is one: so many times the bytes of the piece. Where more looks so,
it is taken for entries."""
_NO_ENTRY: Final = bytes(12)
"""A file that was made in its full length ends in zeros."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file. ``base``: the offset in its name."""

    topic: str
    partition: int
    base: int
    path: Path


def compacted_partitions(folder: Path) -> set[tuple[str, int]] | None:
    """Return the partitions of a data directory that the broker has compacted so far; None: it does not say. Raises
    OSError."""
    try:
        lines = (folder / _CLEANER_CHECKPOINT).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    found = set()
    for line in lines[2:]:  # after the version and the count
        topic, *numbers = line.split(" ")
        if len(numbers) == 2 and numbers[0].isdecimal():
            found.add((topic, int(numbers[0])))
    return found


def find_segments(folders: Sequence[Path]) -> list[Segment]:
    """Return all segments below a broker's data directories, in order. Raises OSError."""
    found = []
    for folder in folders:
        for place in sorted(folder.iterdir()):
            named = _FOLDER.fullmatch(place.name)
            if named is None or not place.is_dir():
                continue
            for path in place.iterdir():
                segment = _SEGMENT.fullmatch(path.name)
                if segment is not None:
                    found.append(Segment(named["topic"], int(named["partition"]), int(segment["base"]), path))
    return sorted(found, key=lambda one: (one.topic, one.partition, one.base))


def partitions_without_segments(folders: Sequence[Path]) -> list[tuple[str, int]]:
    """Return the partitions whose folder has no segment file at all; a broker always leaves one. Raises OSError."""
    there = {(one.topic, one.partition) for one in find_segments(folders)}
    named = [_FOLDER.fullmatch(place.name) for folder in folders for place in folder.iterdir() if place.is_dir()]
    found = {(one["topic"], int(one["partition"])) for one in named if one is not None}
    return sorted(found - there)


def pieces(path: Path) -> Iterator[memoryview]:
    """Yield the file in pieces of whole entries; the last one may end in a part of one. Raises OSError."""
    size = path.stat().st_size
    if not size:
        return
    with path.open("rb") as file, closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as mapped:
        position = 0
        while position < size:
            if mapped[position : position + len(_NO_ENTRY)] == _NO_ENTRY and _is_empty(mapped, position, size):
                return
            end = _end_of_whole(mapped, position, size)
            yield memoryview(mapped[position : end or size])  # a copy: nothing may hold the map when it is closed
            if not end:
                return
            position = end


def is_cut(piece: memoryview) -> bool:
    """Does the piece begin with an entry that seems to continue after the end of the file?"""
    return len(piece) < SIZE_FIELDS or first_size(piece) > len(piece)


def hides_entries(piece: memoryview, position: int) -> bool:
    """Does a damaged length make the first entry of this piece continue after the end of the file? Then the piece is
    one whole entry, or others follow within it, with offsets above its own; what a crash has cut off has none.
    ``position``: the offset after what was read before."""
    if len(piece) < SIZE_FIELDS + ENTRY_BYTES_MIN:
        return False
    size = (len(piece) - SIZE_FIELDS).to_bytes(4, "big")
    if _is_readable(memoryview(b"".join((piece[:SIZE_AT], size, piece[SIZE_FIELDS:])))):
        return True
    (own,) = integers(piece, np.zeros(1, np.int64), ">i8").tolist()
    # Messages inside of a wrapper that is not compressed look the same, with offsets up to that of the wrapper.
    floor = own if position <= own < position + _OFFSETS_AHEAD_MAX else position - 1
    checked_bytes = 0
    octets = np.frombuffer(piece, np.uint8)
    for begin in range(0, len(piece) - SIZE_FIELDS - ENTRY_BYTES_MIN, _SCANNED_BYTES):
        magics = octets[begin + MAGIC_AT : begin + MAGIC_AT + _SCANNED_BYTES]
        at = begin + np.flatnonzero(magics <= NEW_FORMAT)
        offsets, sizes = integers(piece, at, ">i8"), integers(piece, at + SIZE_AT, ">i4")
        fits = (offsets > floor) & (offsets <= floor + _OFFSETS_AHEAD_MAX) & (sizes >= ENTRY_BYTES_MIN)
        ends = at + SIZE_FIELDS + sizes
        fits &= ends <= len(piece)
        for start, end in zip(at[fits].tolist(), ends[fits].tolist(), strict=True):
            checked_bytes += end - start
            if checked_bytes > _CHECKED_TIMES_MAX * len(piece) or _is_readable(piece[start:end]):
                return True
    return False


def _is_readable(entry: memoryview) -> bool:
    try:
        return all(not one.unreadable for one in containers(entry))
    except Broken:
        return False


def _is_empty(mapped: mmap.mmap, position: int, size: int) -> bool:
    """Are there zeros only, as where a file was made in its full length?"""
    zeros = bytes(PIECE_BYTES)
    for at in range(position, size, PIECE_BYTES):
        end = min(at + PIECE_BYTES, size)
        if mapped[at:end] != zeros[: end - at]:
            return False
    return True


def _end_of_whole(mapped: mmap.mmap, position: int, size: int) -> int:
    """Return where the last whole entry of the piece from there on ends; 0 if there is none, or none can be found."""
    begin = position
    while size - position >= len(_NO_ENTRY):
        entry = first_size(mapped[position : position + len(_NO_ENTRY)])
        is_next = len(_NO_ENTRY) < entry <= size - position
        if not is_next or (position > begin and position + entry - begin > PIECE_BYTES):
            return position if position > begin else 0
        position += entry
    return position if position > begin else 0
