"""Where brokers truncated their replicas, as they print it themselves (``kafka.log.Log``, later ``UnifiedLog``). Reads
files only."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from .oracle import Place

_LINE = re.compile(
    r"^(\S+ \S+),(\d{3}) INFO kafka\.log\.\w+ "
    r"(?:Truncating log |\[(?:Unified)?Log partition=)(\S+)-(\d+)(?:, dir=\S+\] Truncating)? to offset (\d+)"
)
"""Up to 1.0, and since."""


class Truncation(NamedTuple):
    """A replica's log ends at ``offset`` from then on."""

    time_ms: int
    broker_id: int
    offset: int


class Truncations:
    """All of a run."""

    def __init__(self, outputs: Mapping[int, Path]) -> None:
        """``outputs``: the files with what each broker has printed, by its id."""
        self._found: dict[Place, list[Truncation]] = defaultdict(list)
        for broker_id, path in outputs.items():
            with path.open(errors="replace") as lines:
                self._take(broker_id, lines)

    def _take(self, broker_id: int, lines: Iterable[str]) -> None:
        for line in lines:
            if (said := _LINE.match(line)) is not None:
                moment, milliseconds, topic, partition, offset = said.groups()
                time_ms = int(datetime.fromisoformat(moment).timestamp()) * 1_000 + int(milliseconds)
                self._found[topic, int(partition)].append(Truncation(time_ms, broker_id, int(offset)))

    def below(self, place: Place, offset: int, since_ms: int) -> Truncation | None:
        """Return the first one, not before ``since_ms``, that cut off this offset; None: there is none."""
        cut = [one for one in self._found.get(place, ()) if one.offset <= offset and one.time_ms >= since_ms]
        return min(cut, default=None)
