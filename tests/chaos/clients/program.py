"""What the Python producers of a chaos run have in common: their argument (JSON), the pace, the file of the answers
that they got, the end. They send until a file tells them to stop. Speaks no Kafka."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from chaos.payload import encode

FLUSH_SECONDS_MAX = 150.0
ERRORS_SHOWN_MAX = 20
_TURN_SECONDS = 0.02
_BURST = 16
"""Records for one partition before the next one is chosen."""


class Program:
    """One producer: ``send`` is called for every record, from one thread, and ``turn`` between bursts.

    Lines of the file: ``a partition number offset time_ms`` for an acknowledged record, ``f partition number time_ms
    error`` for one that failed. Safe for callbacks from another thread.
    """

    def __init__(self) -> None:
        given: dict[str, Any] = json.loads(sys.argv[1])
        self.given = given
        self.name: str = given["name"]
        self.topic: str = given["topic"]
        self._partitions: int = given["partitions"]
        self._outstanding_max: int = given["outstanding_max"]
        self._random = Random(f"{given['seed']} {self.name}")
        self._stop_file = Path(given["stop_file"])
        self._told = open(given["told_file"], "a", buffering=1 << 16)  # noqa: SIM115 - for the whole life
        self._lock = threading.Lock()
        self._sent = [0] * self._partitions
        self._done = [0] * self._partitions
        self._written_at = time.monotonic()
        self._acked = self._failed = 0
        self._errors: list[str] = []
        self.is_broken = False
        """Set when the client itself says that it will never send again."""

    def run(self, send: Callable[[int, int, bytes], None], turn: Callable[[], None]) -> None:
        """Send at the wanted pace until it is time to stop, or the client is broken."""
        rate: float = self.given["records_per_second"]
        credit, last = 0.0, time.monotonic()
        while not self.is_broken and not self._stop_file.exists():
            now = time.monotonic()
            credit = min(credit + (now - last) * rate, rate)
            last = now
            while not self.is_broken and credit >= 1 and (partition := self._free_partition()) is not None:
                for _ in range(min(int(credit), _BURST)):
                    if self.is_broken:
                        break
                    number = self._sent[partition]
                    self._sent[partition] += 1
                    send(partition, number, encode(self.name, partition, number, self._random.getrandbits(32)))
                    credit -= 1
            turn()
            self._write_soon()
            time.sleep(max(0.0, _TURN_SECONDS - (time.monotonic() - now)))

    def acknowledged(self, partition: int, number: int, offset: int) -> None:
        """The client reported this record as stored."""
        with self._lock:
            self._acked += 1
            self._done[partition] += 1
            self._told.write(f"a {partition} {number} {offset} {time.time_ns() // 1_000_000}\n")

    def failed(self, partition: int, number: int, error: object) -> None:
        """The client reported this record as failed."""
        with self._lock:
            self._failed += 1
            self._done[partition] += 1
            self._told.write(f"f {partition} {number} {time.time_ns() // 1_000_000} {str(error)[:200]!r}\n")
        self.noticed(error)

    def noticed(self, error: object) -> None:
        """An error that reached the user."""
        with self._lock:
            if len(self._errors) < ERRORS_SHOWN_MAX:
                self._errors.append(f"{time.strftime('%H:%M:%S')} {error}"[:300])

    def finish(self, **more: object) -> None:
        """Print the last line and end the process, whatever threads the client still has."""
        with self._lock:
            self._told.close()
            outcome = {"sent": sum(self._sent), "acked": self._acked, "failed": self._failed, **more}
            print(json.dumps({**outcome, "errors": self._errors, "final": True}), flush=True)
        sys.exit(0 if not self._failed and self._acked == sum(self._sent) else 1)

    def _free_partition(self) -> int | None:
        """The partition with the fewest records under way, if it may have more: one that is away stops no other."""
        under_way = [sent - done for sent, done in zip(self._sent, self._done, strict=True)]
        least = min(under_way)
        return under_way.index(least) if least < self._outstanding_max else None

    def _write_soon(self) -> None:
        now = time.monotonic()
        if now - self._written_at > 1:
            self._written_at = now
            with self._lock:
                self._told.flush()
