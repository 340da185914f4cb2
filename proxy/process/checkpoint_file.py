"""Keeps the offset checkpoints in the data directory: read at the start, written every minute (rule R10).

Owns when they are written, and what is logged when they cannot be. ``offset_checkpoints.py`` says what a checkpoint is,
``data_directory.py`` owns the file.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from .. import limits
from ..events import OperatorMessage, Report
from ..partition_log.offset_checkpoints import CheckpointFormatError, OffsetCheckpoints
from .data_directory import DataDirectory


class CheckpointFile:
    """The checkpoint file of one process."""

    def __init__(
        self,
        directory: DataDirectory,
        checkpoints: OffsetCheckpoints,
        now: Callable[[], float],
        wall_clock_ms: Callable[[], int],
        report: Report,
    ) -> None:
        """``now``: the reactor's clock, in seconds."""
        self._directory = directory
        self._checkpoints = checkpoints
        self._now = now
        self._wall_clock_ms = wall_clock_ms
        self._report = report
        self._are_kept = True

    async def read(self) -> None:
        """Take over what an earlier process knew of where the logs ended, and when. To be called before any is noted:
        those of 100,000 partitions take a second, in a thread."""
        data, problem = self._directory.checkpoints(), "there are none"
        try:
            if data is not None:
                now, wall_ms = self._now(), self._wall_clock_ms()
                await trio.to_thread.run_sync(self._checkpoints.unpack, data, now, wall_ms)
                return
        except CheckpointFormatError as error:
            problem = str(error)
        consequence = (
            f"a loss of Redis's data in the next {self._checkpoints.horizon_seconds:.0f} s makes it read whole logs"
        )
        self._report(
            OperatorMessage(
                "debug" if data is None else "warning", f"checkpoints in the data directory: {problem}; {consequence}"
            )
        )

    async def keep(self) -> None:
        """Write the checkpoints every ``CHECKPOINT_WRITE_SECONDS``, until cancelled."""
        while True:
            await trio.sleep(limits.CHECKPOINT_WRITE_SECONDS)
            await self.write()

    async def write(self) -> None:
        """Write what is known now."""
        checkpoints, now, wall_ms = self._checkpoints.copied(), self._now(), self._wall_clock_ms()
        try:
            await trio.to_thread.run_sync(lambda: self._directory.remember_checkpoints(checkpoints.pack(now, wall_ms)))
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread for it
            if self._are_kept:
                why = error.strerror if isinstance(error, OSError) else str(error)
                what = f"the checkpoints cannot be written to the data directory: {why}"
                self._report(OperatorMessage("warning", what))
            self._are_kept = False
        else:
            self._are_kept = True

    def remove(self) -> None:
        """Remove the file: the brokers give idempotence now, and nobody will ask where logs ended."""
        self._directory.forget_checkpoints()
