"""The files of a journal: the current one, which is renamed when it is large, and the renamed ones, of which the oldest
are deleted. Knows no event.

Every line is one write, so every answer that a client got is in the file, however this process ends; after a power cut
it is there if it was brought to the disk before (fsync). That may take long, so it is done by a thread (``to_disk``),
as is closing and deleting files that are not written any more."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Final

from .. import limits
from ..settings.config import JournalSettings

_TIME: Final = "%Y%m%dT%H%M%S"
_RENAMED: Final = re.compile(r"\.\d{8}T\d{6}\.\d{3}Z(?:-\d{3})?")
"""What is appended to the name of a file when it is renamed."""
_LOOK_BYTES: Final = 64 * 1024
"""Read at once of what may be a line that was cut off."""


def of_worker(path: Path, number: int) -> Path:
    """Return the path of the journal of one of several workers. ``number``: from 1 on."""
    return path.with_name(f"{path.name}.{number}")


def renamed(path: Path) -> list[Path]:
    """Return the renamed files of a journal, oldest first. Raises OSError."""
    found = [one for one in path.parent.iterdir() if one.name.startswith(path.name)]
    return sorted(one for one in found if _RENAMED.fullmatch(one.name, len(path.name)))


class JournalFile:
    """The journal's files of one process. ``settings`` may be replaced at any time."""

    def __init__(self, settings: JournalSettings, wall_clock_ms: Callable[[], int], now: Callable[[], float]) -> None:
        """``now``: seconds of a clock that never jumps back. Raises OSError when the file cannot be opened."""
        self.settings = settings
        self.path = settings.path
        self.written_bytes = 0
        """By this process."""
        self.header: Callable[[], bytes] = bytes
        """Makes the first line of a file, and of what this process adds to an existing one."""
        self.why_not_rotated = ""
        """Why no new file could begin, in the system's words; empty: all is well."""
        self.why_not_deleted = ""
        """The same for deleting the oldest files."""
        self.why_not_closed = ""
        """The same for closing a file that is not written any more. Its descriptor is released all the same."""
        self._wall_clock_ms = wall_clock_ms
        self._now = now
        self._replaced: list[FileIO] = []
        """Files that are not written any more, and not closed yet."""
        self._size = 0
        self._renamed_ms = 0
        """Milliseconds since 1970 in the name of the last renamed file."""
        self._rotate_at = 0.0
        """No rotation is tried before this time."""
        self._unsynced_since: float | None = None
        self._syncing_since: float | None = None
        """When the oldest line was written that no fsync covers yet, and the oldest that the present fsync covers."""
        self._is_directory_changed = True
        self._file = self.opened()
        self._is_regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        if self._is_regular:
            _end_at_a_line(self.path)
        self._take(self._file)
        self._needs_header = True

    # ------------------------------------------------------------------ writing
    def write(self, line: bytes) -> None:
        """Write one line, all of it or nothing. Raises OSError."""
        if self._needs_header:
            line = self.header() + line
        written = self._file.write(line)
        if written < len(line):  # the disk is full
            os.ftruncate(self._file.fileno(), self._file.tell() - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._needs_header = False
        self.written_bytes += written
        self._size += written
        if self._unsynced_since is None:
            self._unsynced_since = self._now()
        if 0 < self.settings.rotate_bytes < self._size and self._now() >= self._rotate_at:
            self._rotate()

    def opened(self) -> FileIO:
        """Open the file that has the name now: another one, if this one was moved away. Raises OSError."""
        return FileIO(self.path, "ab")

    def go_on_in(self, file: FileIO) -> None:
        """Write to this file from now on."""
        self._replaced.append(self._file)
        self._take(file)

    def close(self) -> None:
        """Close all files. What is not on the disk yet will be, if the machine keeps running."""
        self.why_not_closed = _closed([*self._replaced, self._file])
        self._replaced.clear()

    def _take(self, file: FileIO) -> None:
        found = os.fstat(file.fileno())
        self._file = file
        self._is_regular = stat.S_ISREG(found.st_mode)
        self._size = found.st_size
        self._needs_header = self._size == 0
        self._is_directory_changed = True

    def _rotate(self) -> None:
        """Give the file another name, and begin the next one: two calls of the system. What cannot be done now is tried
        again later, and the file grows on."""
        if not self._is_regular:
            return
        if len(self._replaced) >= limits.JOURNAL_REPLACED_FILES_MAX:
            self._rotate_at = self._now() + limits.JOURNAL_AGAIN_SECONDS
            return
        path = Path(os.path.realpath(self.path))
        try:
            if _is_same(path, self._file):
                target = self._free_name(path)
                path.rename(target)
                try:
                    file = self.opened()
                except OSError:
                    target.rename(path)
                    raise
            else:  # somebody has moved it away already
                file = self.opened()
        except OSError as error:
            self.why_not_rotated = error.strerror or str(error)
            self._rotate_at = self._now() + limits.JOURNAL_AGAIN_SECONDS
        else:
            self.why_not_rotated = ""
            self.go_on_in(file)

    def _free_name(self, path: Path) -> Path:
        """Return a name that no file has, and that sorts after those of all files which this process has renamed."""
        self._renamed_ms = max(self._wall_clock_ms(), self._renamed_ms)
        seconds, ms = divmod(self._renamed_ms, 1000)
        at = datetime.fromtimestamp(seconds, UTC).strftime(_TIME)
        first = path.with_name(f"{path.name}.{at}.{ms:03}Z")
        names = (first, *(first.with_name(f"{first.name}-{number:03}") for number in range(1, 1000)))
        for name in names:
            if not os.path.lexists(name):
                return name
        raise FileExistsError(errno.EEXIST, "a thousand files have been renamed in this millisecond")

    # ------------------------------------------------------------------ to the disk
    def unsynced_seconds(self) -> float:
        """Return the age of the oldest line that is not known to be on the disk; 0: all are. For any thread."""
        times = [one for one in (self._syncing_since, self._unsynced_since) if one is not None]
        return max(0.0, self._now() - min(times)) if times else 0.0

    @property
    def is_unsynced(self) -> bool:
        """Is there anything for ``to_disk`` to do?"""
        return self._unsynced_since is not None or bool(self._replaced)

    def to_disk(self) -> Callable[[], None]:
        """Return a function that brings to the disk all that was written so far, to be called in a thread, one at a
        time; it raises OSError. Call ``synced`` when it has ended."""
        file, replaced, is_changed = self._file, tuple(self._replaced), self._is_directory_changed
        path, keep_files = Path(os.path.realpath(self.path)), self.settings.keep_files
        is_regular = self._is_regular
        self._is_directory_changed = False
        self._syncing_since, self._unsynced_since = self._unsynced_since, None

        def work() -> None:
            due = [one for one in replaced if not one.closed]  # a thread that was abandoned may have closed some
            for one in (*due, file) if is_regular else due:
                if stat.S_ISREG(os.fstat(one.fileno()).st_mode):
                    os.fdatasync(one.fileno())
            if is_changed and is_regular:
                _sync_directory(path.parent)
                self.why_not_deleted = _delete_oldest(path, keep_files)
            if due:
                self.why_not_closed = _closed(due)

        return work

    def synced(self, error: OSError | None) -> None:
        """The thread has done its work, or has failed: then all of it is due again."""
        self._replaced = [one for one in self._replaced if not one.closed]
        if error is not None:
            if self._syncing_since is not None:
                self._unsynced_since = self._syncing_since
            self._is_directory_changed = True
        self._syncing_since = None


def _closed(files: Iterable[FileIO]) -> str:
    """Close all of them; return what the system said of one, "" if nothing."""
    reason = ""
    for file in files:
        try:
            file.close()
        except OSError as error:  # it has no descriptor any more
            reason = error.strerror or str(error)
    return reason


def _is_same(path: Path, file: FileIO) -> bool:
    """Is this file the one at the path?"""
    try:
        named, ours = path.stat(), os.fstat(file.fileno())
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)


def _end_at_a_line(path: Path) -> None:
    """Take away the start of a line that a power cut has left at the end of a file: what is added has to begin a line.
    Raises OSError."""
    with path.open("r+b", buffering=0) as file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - _LOOK_BYTES)
            file.seek(begin)
            at = file.read(end - begin).rfind(b"\n")
            if at >= 0:
                end = begin + at + 1
                break
            end = begin
        if end < size:
            file.truncate(end)


def _sync_directory(path: Path) -> None:
    """Bring a directory's entries to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system without fsync of directories
            raise
    finally:
        os.close(descriptor)


def _delete_oldest(path: Path, keep_files: int) -> str:
    """Keep the newest ``keep_files`` renamed files and delete the others; 0: keep all. Return what went wrong, "" if
    nothing."""
    try:
        if keep_files:
            for one in renamed(path)[:-keep_files]:
                one.unlink(missing_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return ""
