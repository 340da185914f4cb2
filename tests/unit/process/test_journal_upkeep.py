"""How a journal gets to the disk: by a thread, so that a disk that is slow or broken keeps nobody waiting, and what is
said of it. On a real file; the calls of the system that bring it to the disk are slow, or fail."""

from __future__ import annotations

import json
import os
import threading
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
import trio

from idemproxy.proxy import limits
from idemproxy.proxy.events import OperatorMessage, TakenOver
from idemproxy.proxy.process.journal_upkeep import JournalUpkeep
from idemproxy.proxy.settings.config import JournalSettings
from idemproxy.proxy.telemetry import journal_file
from idemproxy.proxy.telemetry.journal import Journal
from idemproxy.proxy.telemetry.journal_file import JournalFile, renamed

EVENT = TakenOver(7, "orders", 2, bytes(8))


class Kept:
    """A journal with its upkeep, what it has said, and why clients were disconnected."""

    def __init__(self, path: Path, *, rotate_bytes: int = 0, keep_files: int = 0, fsync_seconds: float = 0.0) -> None:
        settings = JournalSettings(path, rotate_bytes, keep_files, fsync_seconds)
        self.file = JournalFile(settings, lambda: 0, trio.current_time)
        self.said: list[Any] = []
        self.lost: list[str] = []
        self.journal = Journal(self.file.write, lambda: int(trio.current_time() * 1000), self.said.append)
        self.journal.is_required = True
        self.journal.lost = self.lost.append
        self.upkeep = JournalUpkeep(self.journal, self.file, self.said.append)

    @property
    def messages(self) -> list[str]:
        return [one.what for one in self.said if isinstance(one, OperatorMessage)]

    def lines(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.file.path.read_text().splitlines()]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which something was brought to the disk."""
    found: list[str] = []
    fdatasync = os.fdatasync

    def counting(descriptor: int) -> None:
        found.append(threading.current_thread().name)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", counting)
    return found


def open_below(path: Path) -> int:
    """Descriptors of this process for files of a directory."""
    found = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum(os.path.realpath(one).startswith(f"{path}/") for one in found)


async def until(condition: Any) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110 - looks only
            await trio.sleep(0.005)


@pytest.mark.trio
async def test_a_thread_brings_written_lines_to_the_disk_and_only_when_needed(tmp_path: Path, calls: list[str]) -> None:
    kept = Kept(tmp_path / "j")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.upkeep.keep)
        for number in range(1, 4):
            kept.journal(EVENT)
            await until(lambda: not kept.file.unsynced_seconds())
            assert len(calls) == number
        await trio.sleep(10 * limits.JOURNAL_FSYNC_PAUSE_SECONDS)
        assert len(calls) == 3
        nursery.cancel_scope.cancel()
    assert threading.main_thread().name not in calls
    kept.file.close()


@pytest.mark.trio
async def test_the_end_brings_the_rest_to_the_disk(tmp_path: Path, calls: list[str]) -> None:
    kept = Kept(tmp_path / "j", fsync_seconds=3600)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.upkeep.keep)
        kept.journal(EVENT)
        await trio.sleep(0.05)
        assert calls == []
        nursery.cancel_scope.cancel()
    assert len(calls) == 1
    assert not kept.file.is_unsynced
    kept.file.close()


@pytest.mark.trio
async def test_files_that_were_renamed_are_closed_and_the_oldest_deleted(tmp_path: Path, calls: list[str]) -> None:
    kept = Kept(tmp_path / "j", rotate_bytes=1, keep_files=2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.upkeep.keep)
        for _ in range(5):
            kept.journal(EVENT)
        assert len(renamed(kept.file.path)) == 5
        await until(lambda: len(renamed(kept.file.path)) == 2)
        await until(lambda: not kept.file.is_unsynced)
        nursery.cancel_scope.cancel()
    assert len(calls) >= 6
    assert open_below(tmp_path) == 1
    kept.file.close()


@pytest.mark.trio
async def test_a_disk_that_stands_still_stops_nobody_until_it_has_stood_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, at_once = threading.Event(), [0]

    def stands(_descriptor: int) -> None:
        at_once[0] += 1
        assert at_once[0] == 1, "one at a time"
        goes_on.wait(60)
        at_once[0] -= 1

    monkeypatch.setattr(os, "fdatasync", stands)
    monkeypatch.setattr(limits, "JOURNAL_BEHIND_SECONDS", 3.0)
    monkeypatch.setattr(limits, "JOURNAL_AGAIN_SECONDS", 0.05)
    kept = Kept(tmp_path / "j")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.upkeep.keep)
        for _ in range(20):
            kept.journal(EVENT)
            began = trio.current_time()
            await trio.sleep(0.01)
            assert trio.current_time() - began < 2.5, "the loop goes on"
        assert kept.journal.why_refusing == ""
        assert kept.lines() == ["taken_over"] * 20
        await until(lambda: kept.journal.why_refusing)
        assert kept.file.unsynced_seconds() > 3.0
        assert kept.lost
        (said,) = kept.messages
        assert said.startswith(
            "what is written to the journal does not get to the disk: it has taken the disk more than"
        )
        goes_on.set()
        await until(lambda: not kept.journal.why_refusing)
        nursery.cancel_scope.cancel()
    assert kept.lines()[-1] == "not_synced"
    assert kept.messages[1:] == ["the journal gets to the disk again; clients are admitted again"]
    kept.file.close()


@pytest.mark.trio
async def test_a_disk_that_fails_is_reported_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, is_broken = [0], [True]

    def fails(_descriptor: int) -> None:
        tries[0] += 1
        if is_broken[0]:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fails)
    kept = Kept(tmp_path / "j")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.upkeep.keep)
        kept.journal(EVENT)
        await until(lambda: tries[0] > 3)
        assert kept.journal.why_refusing == "it does not get to the disk: Input/output error"
        assert len(kept.messages) == 1
        is_broken[0] = False
        await until(lambda: not kept.journal.why_refusing)
        nursery.cancel_scope.cancel()
    assert kept.lines() == ["taken_over", "not_synced"]
    kept.file.close()


class ClosesWithError(FileIO):
    """A file of a file system that fails in close, after which the descriptor is gone all the same."""

    def close(self) -> None:
        was_open = not self.closed
        super().close()
        if was_open:
            raise OSError(5, "Input/output error")


@pytest.mark.trio
async def test_a_renamed_file_closed_with_an_error_is_reported_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "JOURNAL_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(journal_file, "FileIO", ClosesWithError)
    kept = Kept(tmp_path / "j", rotate_bytes=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.upkeep.keep)
        for _ in range(3):
            kept.journal(EVENT)
        await until(lambda: kept.messages)
        kept.journal(EVENT)
        await until(lambda: not kept.file.is_unsynced)
        nursery.cancel_scope.cancel()
    assert kept.messages == [
        "a renamed file of the journal was closed with an error, all of its lines were on the disk before: "
        "Input/output error"
    ]
    assert (kept.journal.why_lost, kept.lost) == ("", []), "the lines are on the disk"
    assert open_below(tmp_path) == 1
    kept.said.clear()
    kept.upkeep.close()
    assert kept.messages == [
        "a file of the journal was closed with an error, lines that were not on the disk yet may be lost: "
        "Input/output error"
    ]
    assert open_below(tmp_path) == 0


@pytest.mark.trio
async def test_the_end_waits_for_a_thread_that_closes_renamed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def stands(_descriptor: int) -> None:
        begun.set()
        goes_on.wait(60)

    monkeypatch.setattr(os, "fdatasync", stands)
    kept = Kept(tmp_path / "j", rotate_bytes=1)
    kept.journal(EVENT)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.upkeep.keep)
        await until(begun.is_set)
        threading.Timer(0.2, goes_on.set).start()
        nursery.cancel_scope.cancel()
    assert not kept.file.is_unsynced
    assert open_below(tmp_path) == 1
    kept.upkeep.close()


@pytest.mark.trio
async def test_a_failed_deletion_of_old_files_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOURNAL_AGAIN_SECONDS", 0.01)
    kept = Kept(tmp_path / "j", rotate_bytes=1, keep_files=1)
    (tmp_path / "j.20000101T000000.000Z").mkdir()
    (tmp_path / "j.20000101T000000.001Z").mkdir()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.upkeep.keep)
        kept.journal(EVENT)
        await until(lambda: kept.messages)
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert kept.messages == ["old files of the journal cannot be deleted: Is a directory"]
    assert kept.journal.why_refusing == "", "that loses no line"
    kept.file.close()


def test_settings_that_are_reloaded_hold_from_then_on(tmp_path: Path) -> None:
    async def reload() -> None:
        kept = Kept(tmp_path / "j")
        kept.journal(EVENT)
        new = JournalSettings(tmp_path / "j", rotate_bytes=1, fsync_seconds=5, required=False)
        kept.upkeep.go_on(new, kept.file.opened())
        assert kept.file.settings == new
        assert not kept.journal.is_required
        kept.journal(EVENT)
        assert len(renamed(tmp_path / "j")) == 1
        await kept.upkeep._sync_once()
        kept.file.close()

    trio.run(reload)
