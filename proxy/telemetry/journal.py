"""The journal: what became of every batch, one JSON object a line, for audits and for telling whose loss a loss is.

It is written before the answer leaves, so what a client was told is in it also after a SIGKILL. Decides nothing, and
what cannot be written down stops the journal, never the proxy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from io import FileIO
from pathlib import Path
from typing import Any, Final

from .. import events

JOURNALED: Final[dict[type, str]] = {
    events.AppendSent: "sent",
    events.AppendEnded: "outcome",
    events.BatchAnswered: "answered",
    events.DoubtOpened: "doubt",
    events.DoubtResolved: "resolved",
    events.Reforwarded: "sent_again",
    events.LateWrite: "late_write",
    events.SecondCopy: "second_copy",
    events.TakenOver: "taken_over",
    events.GenerationChanged: "generation",
    events.IncarnationBegun: "incarnation",
    events.Said: "said",
}
"""The events that are written, by the name that a line has in ``event``. All of an event's fields follow; an identity
is [producer id, epoch, base sequence, record count]."""
_LEFT_OUT = ("arrived_at", "answered_at", "records")


class JournalFile:
    """The file of a journal. Every line is one write: what a client was told is in it, whatever ends this process."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when it cannot be opened."""
        self.path = path
        self._file = self.opened()

    def opened(self) -> FileIO:
        """Open what bears the name now: another file, when this one was moved away. Raises OSError."""
        return FileIO(self.path, "ab")

    def go_on_in(self, file: FileIO) -> None:
        """Write there from now on."""
        self._file.close()
        self._file = file

    def write(self, line: bytes) -> None:
        """Write one line. Raises OSError."""
        self._file.write(line)


class Journal:
    """Takes every event of one process, writes some."""

    def __init__(
        self, write: Callable[[bytes], object], wall_clock_ms: Callable[[], int], report: events.Report
    ) -> None:
        """``write``: takes a whole line at once, or raises OSError. ``report``: where events go on to."""
        self._write = write
        self._wall_clock_ms = wall_clock_ms
        self._report = report
        self._is_broken = False

    def __call__(self, event: Any) -> None:
        """Take one event."""
        name = JOURNALED.get(type(event))
        if name is not None and not self._is_broken:
            try:
                self._write(self._line(name, event))
            except OSError as error:
                self._is_broken = True
                self._report(events.Said("error", f"the journal ends here: {error.strerror}"))
        self._report(event)

    def _line(self, name: str, event: Any) -> bytes:
        values = {"time_ms": self._wall_clock_ms(), "event": name}
        for field in fields(event):
            if field.name not in _LEFT_OUT:
                values[field.name] = getattr(event, field.name)
        return json.dumps(values, separators=(",", ":"), default=bytes.hex).encode() + b"\n"
