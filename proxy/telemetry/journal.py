"""The journal: the outcome of every batch, one JSON object a line, for audits and for finding the cause of a loss.

A line is written before the answer leaves, so what a client was told is in it also after a SIGKILL. Decides nothing. A
line that cannot be written leaves a gap in the journal, which states its size; it never stops the proxy."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import fields
from io import FileIO
from pathlib import Path
from typing import Any, Final

from .. import events, limits

JOURNALED: Final[dict[type, str]] = {
    events.AppendSent: "sent",
    events.AppendEnded: "outcome",
    events.BatchAnswered: "answered",
    events.DoubtOpened: "doubt",
    events.DoubtResolved: "resolved",
    events.Reforwarded: "sent_again",
    events.AppendAfterDeadline: "late_write",
    events.DuplicateFound: "second_copy",
    events.TakenOver: "taken_over",
    events.GenerationChanged: "generation",
    events.IncarnationBegun: "incarnation",
    events.OperatorMessage: "said",
}
"""The events that are written, by the name that a line has in ``event``. All of an event's fields follow; an identity
is [producer id, epoch, base sequence, record count]."""
_LEFT_OUT = ("arrived_at", "answered_at", "records", "client", "record_count", "crc")


class JournalFile:
    """The file of a journal. Every line is one write, so what a client was told is in it, however this process ends."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when it cannot be opened."""
        self.path = path
        self._file = self.opened()
        self._is_written = True

    def opened(self) -> FileIO:
        """Open the file that has the name now: another one, if this one was moved away. Raises OSError."""
        return FileIO(self.path, "ab")

    def go_on_in(self, file: FileIO) -> None:
        """Write to this file from now on."""
        self._file.close()
        self._file = file

    def write(self, line: bytes) -> None:
        """Write one line, all of it or nothing. Raises OSError."""
        self._is_written = False
        written = self._file.write(line)
        if written < len(line):  # the disk is full
            os.ftruncate(self._file.fileno(), self._file.tell() - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._is_written = True

    def is_written(self) -> bool:
        """Did the last line reach the file? May be called from another thread."""
        return self._is_written


class Journal:
    """Takes every event of one process, and writes those in ``JOURNALED``."""

    def __init__(
        self, write: Callable[[bytes], object], wall_clock_ms: Callable[[], int], report: events.Report
    ) -> None:
        """``write``: takes a whole line at once, or raises OSError. ``report``: called with every event after that."""
        self._write = write
        self._wall_clock_ms = wall_clock_ms
        self._report = report
        self._missing = 0
        """Events that could not be written since the last one that was."""
        self._again_ms = 0
        """After a failed write nothing is tried before this time."""

    def __call__(self, event: Any) -> None:
        """Take one event."""
        name = JOURNALED.get(type(event))
        if name is not None:
            now_ms = self._wall_clock_ms()
            if self._missing == 0 or now_ms >= self._again_ms:
                self._try(name, event, now_ms)
            else:
                self._missing += 1
        self._report(event)

    def _try(self, name: str, event: Any, now_ms: int) -> None:
        missing = self._missing
        try:
            if missing:
                self._write(_encoded({"time_ms": now_ms, "event": "missing", "events": missing}))
                self._missing = 0
                self._report(
                    events.OperatorMessage(
                        "warning", f"the journal is written again: {missing} events are missing in it"
                    )
                )
            self._write(self._line(name, event))
        except OSError as error:
            if not missing:
                again = f"tried again every {limits.JOURNAL_AGAIN_SECONDS:.0f} s, and what is missing is counted"
                self._report(
                    events.OperatorMessage("error", f"the journal cannot be written: {error.strerror}; {again}")
                )
            self._missing += 1
            self._again_ms = now_ms + int(limits.JOURNAL_AGAIN_SECONDS * 1000)

    def _line(self, name: str, event: Any) -> bytes:
        values = {"time_ms": self._wall_clock_ms(), "event": name}
        for field in fields(event):
            if field.name not in _LEFT_OUT:
                values[field.name] = getattr(event, field.name)
        return _encoded(values)


def _encoded(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":"), default=bytes.hex).encode() + b"\n"
