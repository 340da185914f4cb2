"""What the small client programs have in common: their one argument (JSON), the file of acknowledgements, the end.

The last line has the form of the Java programs' next to it: ``{"acked": ..., "final": true}``. Speaks no Kafka.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ERRORS_SHOWN_MAX = 20


def arguments() -> dict[str, Any]:
    """Return the program's argument."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found


def finish(outcome: dict[str, object], *, ok: bool) -> None:
    """Print the last line; the exit status says whether all went well."""
    print(json.dumps({**outcome, "final": True}), flush=True)
    sys.exit(0 if ok else 1)


class Told:
    """Counts what became of numbered records and writes down the offset of each that was acknowledged. Thread-safe."""

    def __init__(self, partitions: int, path: str, pace: Mapping[str, Any] | None = None) -> None:
        """``pace``: ``records_per_second``, and ``until_file``, whose appearance ends the records."""
        self.partitions = partitions
        self._pace = pace or {}
        self._path = Path(path)
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._last_offset = [-1] * partitions
        self._sent = self._acked = self._failed = 0
        self._errors: list[str] = []
        self._known = self._in_order = True

    def records(self, name: str, records: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield (partition, number, value) of each record to send, the partitions in turn."""
        self._begun = time.monotonic()
        for index in range(records):
            if (until := self._pace.get("until_file")) and Path(until).exists():
                return
            partition, number = index % self.partitions, index // self.partitions
            self._sent += 1
            yield partition, number, f"{name}:{partition}:{number}".encode()

    @property
    def ahead_seconds(self) -> float:
        """How long the next record has to wait for the pace."""
        if not (pace := self._pace.get("records_per_second")):
            return 0.0
        return max(0.0, self._begun + self._sent / float(pace) - time.monotonic())

    def acknowledged(self, partition: int, number: int, offset: int) -> None:
        """The client got the acknowledgement of this record."""
        with self._lock:
            self._acked += 1
            self._known &= offset >= 0
            self._in_order &= offset > self._last_offset[partition]
            self._last_offset[partition] = offset
            self._lines.append(f"{partition} {number} {offset}\n")

    def failed(self, what: object) -> None:
        """An error reached the user."""
        with self._lock:
            self._failed += 1
            if len(self._errors) < ERRORS_SHOWN_MAX:
                self._errors.append(str(what))

    def finish(self, **more: object) -> None:
        """End the program with what was counted."""
        self._path.write_text("".join(self._lines))
        outcome: dict[str, object] = {"sent": self._sent, "acked": self._acked, "failed": self._failed, **more}
        outcome |= {"offsets_known": self._known, "offsets_in_order": self._in_order, "errors": self._errors}
        finish(outcome, ok=self._failed == 0 and self._acked == self._sent)


class Read:
    """Writes down what a consumer got, as ``partition offset value`` lines, and says how long it runs."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """``until_file`` in place of ``records``: as soon as it is there, its text is how many different values there
        are to read. ``commit_every_seconds``: 0 for never before the end. ``lives_through_errors``: what reaches the
        user is noted."""
        self.records = 0
        self._path = Path(given["records_file"])
        self._wanted = given["records"]
        self._until = Path(given["until_file"]) if given.get("until_file") else None
        self._deadline = time.monotonic() + given["seconds_max"]
        self._commit_every_seconds = given.get("commit_every_seconds", 0)
        self._committed_at, self._committed_records = time.monotonic(), 0
        self._lives_through_errors = bool(given.get("lives_through_errors"))
        self._notices: list[str] = []
        self._values: set[bytes] = set()
        self._lines: list[bytes] = []

    def record(self, partition: int, offset: int, value: bytes | None) -> None:
        """One record, in the order it came."""
        self.records += 1
        self._values.add(value or b"")
        self._lines.append(b"%d %d %s\n" % (partition, offset, value or b""))

    @property
    def goes_on(self) -> bool:
        """Is there more to read, and time?"""
        return time.monotonic() < self._deadline and not self._is_enough

    @property
    def commit_is_due(self) -> bool:
        """Shall the reader commit now? Not if there is nothing new: librdkafka takes that for an error."""
        waited = time.monotonic() - self._committed_at
        if due := 0 < self._commit_every_seconds < waited and self.records > self._committed_records:
            self._committed_at, self._committed_records = time.monotonic(), self.records
        return due

    def commit_failed(self, error: Exception) -> None:
        """Note it: the next one commits that, too. Raises the error if the group has nothing to live through."""
        if self._until is None or time.monotonic() > self._deadline:
            raise error
        self._notices.append(repr(error))

    def told_of(self, error: object) -> None:
        """An error reached the user. Ends the program, unless errors are only to be noted."""
        if not self._lives_through_errors:
            raise SystemExit(f"an error reached the user: {error}")
        self._notices.append(str(error))

    def finish(self, **more: object) -> None:
        """End the program with what was counted."""
        self._path.write_bytes(b"".join(self._lines))
        more |= {"notices": self._notices} if self._until else {}
        finish({"records": self.records, **more}, ok=self._is_enough)

    @property
    def _is_enough(self) -> bool:
        if self._until is None:
            return bool(self.records >= self._wanted)
        text = self._until.read_text() if self._until.exists() else ""
        return bool(text) and len(self._values) >= int(text)
