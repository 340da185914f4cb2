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

from .decode import first_size

PIECE_BYTES: Final = 8 << 20
"""The size of a piece; an entry that is larger is a piece of its own."""
_FOLDER: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
_SEGMENT: Final = re.compile(r"(?P<base>\d{20})\.log")
_NO_ENTRY: Final = bytes(12)
"""A file that was made in its full length ends in zeros."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file. ``base``: the offset in its name."""

    topic: str
    partition: int
    base: int
    path: Path


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
    """Does the piece begin with an entry that seems to go on behind the end of the file?"""
    return first_size(piece) > len(piece)


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
