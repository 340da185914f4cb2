"""What a proxy's log says of its work: unknown outcomes by their end, duplicates answered, errors.

Reads what was added since it last looked, and counts. Never writes.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

_LINE = re.compile(
    r"^\S+ \S+ (?P<level>[A-Z]+) "
    r"(?:resolved as (?P<result>[a-z_]+): producer \d|(?P<duplicate>duplicate: producer \d.* answered with offset \d))?"
)

UNKNOWN_OUTCOME_RESULTS = ("found", "prefix", "not_found", "unrecoverable")
"""How an unknown outcome ends: in the log as a whole, in part, not at all, or it cannot be decided."""


def kind_of(line: str) -> str | None:
    """Return what a line counts as: one of UNKNOWN_OUTCOME_RESULTS, ``duplicate``, ``error``; None for all others."""
    match = _LINE.match(line)
    if match is None:
        return None
    if match["result"] in UNKNOWN_OUTCOME_RESULTS:
        return match["result"]
    if match["duplicate"]:
        return "duplicate"
    return "error" if match["level"] in ("ERROR", "CRITICAL") else None


class ProxyLog:
    """The log of one proxy over all its lives, read bit by bit. ``counts``: see ``kind_of``."""

    def __init__(self, path: Path) -> None:
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        """The lines that tell of an error, in order."""
        self._path = path
        self._position = 0

    def read(self) -> Counter[str]:
        """Take in what was added, whole lines only; return all counts so far."""
        try:
            with self._path.open("rb") as log:
                log.seek(self._position)
                added = log.read()
        except FileNotFoundError:
            return self.counts
        whole = added[: added.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            kind = kind_of(line)
            if kind is not None:
                self.counts[kind] += 1
                if kind in ("error", "unrecoverable"):
                    self.errors.append(line)
        return self.counts
