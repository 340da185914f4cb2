"""The journal: the outcome of every batch, one JSON object a line, for audits and for finding the cause of a loss.

A line is written before the answer leaves, so every answer that a client got is in it also after a SIGKILL. A line that
cannot be written leaves a gap in the journal, which states its size; it never stops the proxy, unless the journal is
*required*: then ``lost`` is called in the same step, before the answer leaves. Decides nothing of a batch.

docs/reference/journal-format.md has the format for those who read it; ``pipeline/journal/files.py`` reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

from .. import events, limits

FORMAT: Final = 2
"""The version of the lines. 1 was without a first line, and without ``record_count``, ``crc`` and ``seconds`` of an
answer."""
JOURNALED: Final[dict[type, str]] = {
    events.AppendSent: "sent",
    events.AppendEnded: "outcome",
    events.BatchAnswered: "answered",
    events.UnknownOutcomeOpened: "unknown_outcome",
    events.UnknownOutcomeResolved: "resolved",
    events.AppendSentAgain: "sent_again",
    events.AppendAfterDeadline: "append_after_deadline",
    events.DuplicateFound: "duplicate_found",
    events.TakenOver: "taken_over",
    events.DataGenerationChanged: "data_generation",
    events.ProxyInstanceBegun: "proxy_instance",
    events.OperatorMessage: "message",
}
"""The events that are written, by the name that a line has in ``event``. All of an event's fields follow; an identity
is [producer id, epoch, base sequence, record count]."""
_LEFT_OUT = ("arrived_at", "answered_at", "records", "client", "address", "principal")
_FIELDS: Final = {kind: tuple(one.name for one in fields(kind) if one.name not in _LEFT_OUT) for kind in JOURNALED}
_encode: Final = json.JSONEncoder(separators=(",", ":"), default=bytes.hex).encode


def _nobody_to_tell(_reason: str) -> None:
    """No client depends on it."""


def _no_clock() -> float:
    """Nothing is timed."""
    return 0.0


class Journal:
    """Takes every event of one process, and writes those in ``JOURNALED``."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        wall_clock_ms: Callable[[], int],
        report: events.Report,
        *,
        now: Callable[[], float] = _no_clock,
        about: dict[str, Any] | None = None,
    ) -> None:
        """``write``: takes a whole line at once, or raises OSError. ``report``: called with every event after that.
        ``now``: the reactor's clock. ``about``: what a file's first line says of this process."""
        self._write = write
        self._wall_clock_ms = wall_clock_ms
        self._report = report
        self._now = now
        self._about = about or {}
        self._instance_id = ""
        self.is_required = False
        """May no client be answered unless its line was written (``journal.required``)?"""
        self.lost: Callable[[str], None] = _nobody_to_tell
        """Called when a line of a required journal could not be written, in the same step."""
        self.missing_events = 0
        """Events that this process could not write."""
        self._missing = 0
        """Of these, those since the last line that was written."""
        self._again_ms = 0
        """After a failed write nothing is tried before this time."""
        self._why_not_written = ""
        self._why_not_synced = ""
        self._not_synced_since_ms = 0

    def __call__(self, event: Any) -> None:
        """Take one event."""
        name = JOURNALED.get(type(event))
        if name is not None:
            now_ms = self._wall_clock_ms()
            if type(event) is events.ProxyInstanceBegun:
                self._instance_id = event.instance_id.hex()
            if self._missing == 0 or now_ms >= self._again_ms:
                self._try(name, event, now_ms)
            else:
                self._is_missing()
        self._report(event)

    def header(self) -> bytes:
        """Return the first line of a file, which is also the first line that a process adds to an existing file."""
        now_ms = self._wall_clock_ms()
        whose = {"instance_id": self._instance_id} if self._instance_id else {}
        return _line({"journal": FORMAT, "time_ms": now_ms, "event": "journal", **self._about, **whose})

    # ------------------------------------------------------------------ how it is
    @property
    def why_lost(self) -> str:
        """Why it cannot be written, or does not get to the disk; empty: all is well. For any thread."""
        return self._why_not_written or self._why_not_synced

    @property
    def why_refusing(self) -> str:
        """Why no client may get an answer; empty: they may. For any thread."""
        return self.why_lost if self.is_required else ""

    def try_again(self) -> None:
        """Write the line that counts the missing events, if there are any and the pause is over. While clients are
        refused no event comes with which writing would be tried again."""
        now_ms = self._wall_clock_ms()
        if self._missing and now_ms >= self._again_ms:
            self._guarded(now_ms, self._write_missing)

    def not_synced(self, reason: str) -> None:
        """What was written does not get to the disk. May be called again while that lasts; it is reported once."""
        if not self._why_not_synced:
            self._why_not_synced = f"it does not get to the disk: {reason}"
            self._not_synced_since_ms = self._wall_clock_ms()
            self._tell(f"what is written to the journal does not get to the disk: {reason}", "a power cut may lose it")
        if self.is_required:
            self.lost(self.why_lost)

    def synced(self) -> None:
        """What was written has got to the disk."""
        if self._why_not_synced:
            now_ms, since_ms, reason = self._wall_clock_ms(), self._not_synced_since_ms, self._why_not_synced
            self._why_not_synced = ""
            said = {"time_ms": now_ms, "event": "not_synced", "since_ms": since_ms, "reason": reason}
            if not self._guarded(now_ms, lambda: self._write(_line(said))):
                self._is_missing()  # without it nobody would try again, and the reason would stay
                return
            text = f"the journal gets to the disk again{self._admitted}"
            self._report(events.OperatorMessage("warning", text))

    # ------------------------------------------------------------------ inside
    def _try(self, name: str, event: Any, now_ms: int) -> None:
        def write() -> None:
            if self._missing:
                self._write_missing()
            self._write(self._line(name, event, now_ms))

        if not self._guarded(now_ms, write):
            self._is_missing()

    def _guarded(self, now_ms: int, write: Callable[[], object]) -> bool:
        """Write; return whether that could be done."""
        try:
            write()
        except OSError as error:
            reason = error.strerror or str(error)
            if not self._why_not_written:
                self._why_not_written = reason
                again = f"tried again every {limits.JOURNAL_AGAIN_SECONDS:.0f} s, and what is missing is counted"
                self._tell(f"the journal cannot be written: {reason}", again)
            self._again_ms = now_ms + int(limits.JOURNAL_AGAIN_SECONDS * 1000)
            return False
        return True

    def _write_missing(self) -> None:
        missing = self._missing
        self._write(_line({"time_ms": self._wall_clock_ms(), "event": "missing", "events": missing}))
        self._missing = 0
        self._why_not_written = ""
        text = f"the journal is written again: {missing} events are missing in it{self._admitted}"
        self._report(events.OperatorMessage("warning", text))

    @property
    def _admitted(self) -> str:
        return "; clients are admitted again" if self.is_required and not self.why_lost else ""

    def _is_missing(self) -> None:
        self._missing += 1
        self.missing_events += 1
        if self.is_required:
            self.lost(self.why_lost)

    def _tell(self, problem: str, effect: str) -> None:
        if self.is_required:
            effect = (
                "clients are disconnected and refused until it can (journal.required): make room or fix the disk, or "
                "say journal.required: false and send SIGHUP"
            )
        self._report(events.OperatorMessage("error", f"{problem}; {effect}"))

    def _line(self, name: str, event: Any, now_ms: int) -> bytes:
        kind = type(event)
        values = {"time_ms": now_ms, "event": name}
        for field in _FIELDS[kind]:
            values[field] = getattr(event, field)
        if kind is events.BatchAnswered and event.arrived_at:
            values["seconds"] = round(self._now() - event.arrived_at, 6)
        return _line(values)


def _line(values: dict[str, Any]) -> bytes:
    return _encode(values).encode() + b"\n"
