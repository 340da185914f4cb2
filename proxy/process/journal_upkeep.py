"""Keeps the journal: brings it to the disk in a thread, so that a slow one keeps no client waiting, tries again what
could not be written, and tells what goes wrong with its files."""

from __future__ import annotations

from io import FileIO

import trio

from .. import limits
from ..events import OperatorMessage, Report
from ..settings.config import JournalSettings
from ..telemetry.journal import Journal
from ..telemetry.journal_file import JournalFile


class JournalUpkeep:
    """Keeps the journal of one process."""

    def __init__(self, journal: Journal, file: JournalFile, report: Report) -> None:
        """``journal`` writes to ``file``."""
        self.journal, self.file = journal, file
        self._report = report
        self._thread = trio.CapacityLimiter(1)
        self._reported: set[str] = set()

    def go_on(self, settings: JournalSettings | None, file: FileIO) -> None:
        """Use these settings, and this file, from now on."""
        if settings is not None:
            self.file.settings = settings
            self.journal.is_required = settings.required
        self.file.go_on_in(file)

    def close(self) -> None:
        """Close its files, at the end of the process."""
        self.file.close()
        lost = "a file of the journal was closed with an error, lines that were not on the disk yet may be lost"
        self._tell_once(lost, self.file.why_not_closed)

    async def keep(self) -> None:
        """Sync and look until cancelled. Then what has been written is brought to the disk, for at most
        ``ASK_SECONDS_MAX``."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._sync)
                nursery.start_soon(self._look)
        finally:
            with trio.move_on_after(limits.ASK_SECONDS_MAX, shield=True):
                await self._sync_once()

    async def _sync(self) -> None:
        began = trio.current_time()
        while True:
            seconds = max(self.file.settings.fsync_seconds, limits.JOURNAL_FSYNC_PAUSE_SECONDS)
            await trio.sleep(min(seconds, limits.JOURNAL_AGAIN_SECONDS))  # the setting may change meanwhile
            if trio.current_time() - began >= seconds:
                began = trio.current_time()
                await self._sync_once()

    async def _sync_once(self) -> None:
        """Bring to the disk what is not there. At the end a thread that takes too long is abandoned, and finishes by
        itself."""
        file = self.file
        if not file.is_unsynced:
            return
        work = file.to_disk()
        try:
            await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._thread)
        except RuntimeError as error:  # no thread for it
            file.synced(OSError(str(error)))
            self.journal.not_synced(str(error))
        except OSError as error:
            file.synced(error)
            self.journal.not_synced(error.strerror or str(error))
        else:
            file.synced(None)
            self.journal.synced()

    async def _look(self) -> None:
        while True:
            await trio.sleep(limits.JOURNAL_AGAIN_SECONDS)
            self.journal.try_again()
            behind_seconds = self.file.unsynced_seconds() - self.file.settings.fsync_seconds
            if behind_seconds > limits.JOURNAL_BEHIND_SECONDS:
                self.journal.not_synced(f"it has taken the disk more than {limits.JOURNAL_BEHIND_SECONDS:.0f} s")
            self._tell_once("a new file of the journal cannot begin, and this one grows on", self.file.why_not_rotated)
            self._tell_once("old files of the journal cannot be deleted", self.file.why_not_deleted)
            closed = "a renamed file of the journal was closed with an error, all of its lines were on the disk before"
            self._tell_once(closed, self.file.why_not_closed)

    def _tell_once(self, what: str, reason: str) -> None:
        if not reason:
            self._reported.discard(what)
        elif what not in self._reported:
            self._reported.add(what)
            self._report(OperatorMessage("error", f"{what}: {reason}"))
