"""The files of a journal as one: the current file, those that were renamed before it, and those of workers, in the
order in which they were written. journal-format.md has the format; ``proxy/telemetry/journal_file.py`` writes it.

Files may be renamed and deleted while they are read: what was begun is read to its end, and then what came after it."""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

FORMATS: Final = (1, 2)
"""The known formats of lines, as the first line of a file names them; a file without such a line has format 1."""
_RENAMED: Final = re.compile(r"\.(\d{8}T\d{6})\.(\d{3})Z(?:-\d{3})?")
_WORKER: Final = re.compile(r"\.[1-9]\d?")
_CUT: Final = "the last line is cut off, and left out"


class JournalProblem(Exception):
    """The file is no journal, or one that cannot be read here; the message is a sentence for a person."""


class Line(NamedTuple):
    """``raw``: as it stands in the file, with its end. ``journal``: the path of the current file."""

    time_ms: int
    raw: bytes
    said: dict[str, Any]
    journal: Path


def journals(paths: Iterable[Path]) -> list[Path]:
    """Return the current file of each process's journal: of the paths themselves, and of their workers. A path that is
    a renamed file of another of these journals is left out. Raises OSError, and FileNotFoundError for a path without
    any file."""
    found: dict[Path, list[Path]] = {}
    for path in paths:
        mine = [path] if os.path.lexists(path) or renamed(path) else []
        mine += _workers(path)
        if not mine:
            raise FileNotFoundError(2, os.strerror(2), os.fspath(path))
        found |= {one: [older.resolve() for older in renamed(one)] for one in mine}
    below = {older for files in found.values() for older in files}
    return list({one.resolve(): one for one in found if one.resolve() not in below}.values())


def renamed(path: Path) -> list[Path]:
    """Return the renamed files of a journal, oldest first. Raises OSError."""
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        return []
    names = (one for one in path.parent.iterdir() if one.name.startswith(path.name))
    return sorted(one for one in names if _RENAMED.fullmatch(one.name, len(path.name)))


def _workers(path: Path) -> list[Path]:
    """Return the current files of workers, by their numbers; also of those that have only renamed ones left."""
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        return []
    found = {}
    for one in path.parent.iterdir():
        match = _WORKER.match(one.name, len(path.name)) if one.name.startswith(path.name) else None
        if match and (match.end() == len(one.name) or _RENAMED.fullmatch(one.name, match.end())):
            found[int(match[0][1:])] = path.with_name(one.name[: match.end()])
    return [found[number] for number in sorted(found)]


class Reader:
    """Reads one process's journal, from its oldest file on. ``unreadable``: lines that were left out as they are none
    of a journal."""

    def __init__(self, path: Path, note: Callable[[str], None], since_ms: int = 0, *, is_strict: bool = False) -> None:
        """``path``: the current file. ``note``: called with what is left out. ``since_ms``: files that were renamed
        before it are not read. ``is_strict``: any line that is none of a journal ends the reading, but a last one that
        is cut off."""
        self.path = path
        self.unreadable = 0
        self._note = note
        self._since_ms = since_ms
        self._is_strict = is_strict
        self._file: BinaryIO | None = None
        self._name = path
        self._number = 0
        self._rest = b""

    def lines(self) -> Iterator[Line]:
        """Yield what is there now, and was not yielded before. Raises OSError and JournalProblem."""
        while self._file is not None or self._open(self._next()):
            yield from self._lines_of_file()
            name = self._next()
            if name is None:
                return
            yield from self._lines_of_file()  # lines that were added before it was renamed
            if not self._open(name):
                return

    def look(self) -> None:
        """Read the first line, to see whether this is a journal. Raises OSError and JournalProblem."""
        next(self.lines(), None)
        self.end()

    def end(self) -> None:
        """Nothing more is read."""
        if self._rest:
            self._note(f"{self._name}: {_CUT}")
        if self._file is not None:
            self._file.close()

    # ------------------------------------------------------------------ inside
    def _lines_of_file(self) -> Iterator[Line]:
        assert self._file is not None
        for raw in iter(self._file.readline, b""):
            raw, self._rest = self._rest + raw, b""
            if not raw.endswith(b"\n"):
                self._rest = raw  # it is being written
                return
            self._number += 1
            line = self._parsed(raw)
            if line is not None:
                yield line

    def _parsed(self, raw: bytes) -> Line | None:
        try:
            said = json.loads(raw)
            line = Line(int(said["time_ms"]), raw, said, self.path)
            name = said["event"]
        except (ValueError, KeyError, TypeError, RecursionError):
            where = f"{self._name}: line {self._number} is not one of a journal"
            if self._number == 1 or self._is_strict:
                raise JournalProblem(where) from None
            self.unreadable += 1
            self._note(f"{where}, and left out")
            return None
        if name == "journal" and said.get("journal") not in FORMATS:
            raise JournalProblem(
                f"{self._name}: line {self._number}: format {said.get('journal')!r}, written by idemproxy "
                f"{said.get('proxy')}; known are {' and '.join(map(str, FORMATS))}: read it with that version or a "
                "later one"
            )
        return line

    def _open(self, name: Path | None) -> bool:
        """Continue in this file, or in the one after it, if it was deleted meanwhile. False: there is none yet."""
        while name is not None:
            try:
                opened = name.open("rb")
            except FileNotFoundError:
                if name == self.path:
                    return False
                name = self._next()
                continue
            self.end()
            self._file, self._name, self._number, self._rest = opened, name, 0, b""
            return True
        return False

    def _next(self) -> Path | None:
        """Return the file after this one; None: this is the current one."""
        files = renamed(self.path)
        if self._file is None:
            return next((one for one in files if _renamed_ms(one) >= self._since_ms), self.path)
        ours = os.fstat(self._file.fileno())
        for place, one in enumerate(files):
            if _is(one, ours):
                return files[place + 1] if place + 1 < len(files) else self.path
        if _is(self.path, ours) or not os.path.lexists(self.path):
            return None
        later = [one for one in files if self._name != self.path and one.name > self._name.name]  # ours was deleted
        return later[0] if later else self.path


def merged(readers: Sequence[Reader]) -> Iterator[Line]:
    """Yield what all of them have now, in the order of time. Raises OSError and JournalProblem."""
    return heapq.merge(*(reader.lines() for reader in readers), key=lambda line: line.time_ms)


def _renamed_ms(path: Path) -> int:
    """Return when a file was renamed, in milliseconds since 1970."""
    match = _RENAMED.search(path.name)
    assert match is not None
    return int(datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp()) * 1000 + int(match[2])


def _is(path: Path, ours: os.stat_result) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)
