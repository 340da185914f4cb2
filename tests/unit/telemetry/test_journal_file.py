"""The files of a journal: whole lines, a new one when it is large, none overwritten, the oldest deleted, all of it
brought to the disk. On real files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.pipeline.journal import files
from idemproxy.proxy import limits
from idemproxy.proxy.settings.config import JournalSettings
from idemproxy.proxy.telemetry.journal_file import JournalFile, of_worker, renamed

START_MS = 1_795_669_200_000  # 2026-11-26T05:00:00Z


class Clock:
    """Both clocks of a process, which stand still."""

    def __init__(self) -> None:
        self.ms = START_MS
        self.seconds = 100.0


_open: list[JournalFile] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _open:
        _open.pop().close()


def opened(path: Path, rotate_bytes: int = 0, keep_files: int = 0, clock: Clock | None = None) -> JournalFile:
    """A journal whose first line is "first"."""
    clock = clock or Clock()
    file = JournalFile(JournalSettings(path, rotate_bytes, keep_files), lambda: clock.ms, lambda: clock.seconds)
    file.header = lambda: b"first\n"
    _open.append(file)
    return file


def open_below(path: Path) -> int:
    """Descriptors of this process for files of a directory."""
    found = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum(os.path.realpath(one).startswith(f"{path}/") for one in found)


def sync(file: JournalFile) -> None:
    file.to_disk()()
    file.synced(None)


def texts(path: Path) -> dict[str, str]:
    """All files of the directory."""
    return {one.name: one.read_text() for one in sorted(path.iterdir())}


def test_a_file_begins_with_its_first_line_and_a_restart_adds_to_it(tmp_path: Path) -> None:
    path = tmp_path / "j"
    for line in (b"a\n", b"b\n"):
        file = opened(path)
        file.write(line)
        file.close()
    assert texts(tmp_path) == {"j": "first\na\nfirst\nb\n"}


def test_a_large_file_is_renamed_with_the_time_and_another_begins(tmp_path: Path) -> None:
    clock = Clock()
    file = opened(tmp_path / "j", rotate_bytes=9, clock=clock)
    file.write(b"aaa\n")
    assert [*texts(tmp_path)] == ["j", "j.20261126T050000.000Z"]
    clock.ms += 1_234
    file.write(b"b\n")
    assert texts(tmp_path)["j"] == "first\nb\n"
    file.write(b"c\n")
    assert texts(tmp_path) == {
        "j": "",
        "j.20261126T050000.000Z": "first\naaa\n",
        "j.20261126T050001.234Z": "first\nb\nc\n",
    }
    assert renamed(tmp_path / "j") == files.renamed(tmp_path / "j") == [*sorted(tmp_path.glob("j.*"))]


def test_none_is_overwritten_also_where_the_clock_stands_or_goes_back(tmp_path: Path) -> None:
    clock = Clock()
    file = opened(tmp_path / "j", rotate_bytes=1, clock=clock)
    for letter in "abcde":
        file.write(letter.encode() + b"\n")
        sync(file)
        clock.ms -= 60_000
    found = [one.read_text() for one in renamed(tmp_path / "j")]
    assert found == [f"first\n{letter}\n" for letter in "abcde"], "in the order in which they were written"


def test_the_oldest_are_deleted_and_no_other_file_is(tmp_path: Path) -> None:
    clock = Clock()
    for name in ("j.1", "j.txt", "j.20261126T050000.000Z.gz", "other.20261126T050000.000Z"):
        (tmp_path / name).write_text("kept")
    file = opened(tmp_path / "j", rotate_bytes=1, keep_files=2, clock=clock)
    for letter in "abcd":
        clock.ms += 1000
        file.write(letter.encode() + b"\n")
    sync(file)
    assert [one.read_text() for one in renamed(tmp_path / "j")] == ["first\nc\n", "first\nd\n"]
    assert sum(text == "kept" for text in texts(tmp_path).values()) == 4
    file.settings = JournalSettings(tmp_path / "j", 1, 1)
    file.write(b"e\n")
    sync(file)
    assert len(renamed(tmp_path / "j")) == 1


def test_a_journal_without_a_limit_is_never_renamed(tmp_path: Path) -> None:
    file = opened(tmp_path / "j", rotate_bytes=0)
    for _ in range(1000):
        file.write(b"x" * 999 + b"\n")
    assert [*texts(tmp_path)] == ["j"]


def test_a_moved_file_is_not_renamed_and_the_next_gets_its_name(tmp_path: Path) -> None:
    file = opened(tmp_path / "j", rotate_bytes=20)
    file.write(b"a\n")
    (tmp_path / "j").rename(tmp_path / "moved")
    file.write(b"b" * 20 + b"\n")
    file.write(b"c\n")
    assert texts(tmp_path) == {"j": "first\nc\n", "moved": "first\na\n" + "b" * 20 + "\n"}
    (tmp_path / "j").rename(tmp_path / "moved-too")
    (tmp_path / "j").write_text("of somebody\n")
    file.write(b"d" * 20 + b"\n")
    file.write(b"e\n")
    assert texts(tmp_path)["j"] == "of somebody\ne\n"


def test_a_link_stays_and_the_renamed_file_is_next_to_its_target(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "j").symlink_to("disk/real")
    file = opened(tmp_path / "j", rotate_bytes=1)
    file.write(b"a\n")
    file.write(b"b\n")
    assert (tmp_path / "j").is_symlink()
    assert [one.parent.name for one in renamed((tmp_path / "j").resolve())] == ["disk", "disk"]
    assert files.renamed(tmp_path / "j") == renamed((tmp_path / "j").resolve())


def test_the_old_file_stays_in_use_until_a_new_one_can_begin(tmp_path: Path) -> None:
    clock = Clock()
    folder = tmp_path / "folder"
    folder.mkdir()
    file = opened(folder / "j", rotate_bytes=1, clock=clock)
    folder.rename(tmp_path / "elsewhere")
    file.write(b"a\n")
    assert file.why_not_rotated == "No such file or directory"
    (tmp_path / "elsewhere").rename(folder)
    file.write(b"b\n")
    assert file.why_not_rotated, "not tried again at once"
    clock.seconds += limits.JOURNAL_AGAIN_SECONDS
    file.write(b"c\n")
    assert file.why_not_rotated == ""
    assert [one.read_text() for one in renamed(folder / "j")] == ["first\na\nb\nc\n"]


def test_while_the_disk_stands_still_files_grow_on_rather_than_descriptors(tmp_path: Path) -> None:
    clock = Clock()
    file = opened(tmp_path / "j", rotate_bytes=1, clock=clock)
    for _ in range(50):
        clock.ms += 1
        clock.seconds += limits.JOURNAL_AGAIN_SECONDS
        file.write(b"a\n")
    assert open_below(tmp_path) == limits.JOURNAL_REPLACED_FILES_MAX + 1
    sync(file)
    assert open_below(tmp_path) == 1
    clock.seconds += limits.JOURNAL_AGAIN_SECONDS
    file.write(b"a\n")
    assert sum(one.read_text().count("a\n") for one in tmp_path.iterdir()) == 51
    assert len(renamed(tmp_path / "j")) == limits.JOURNAL_REPLACED_FILES_MAX + 1


@pytest.mark.parametrize("size", [0, 5, 100_000])
def test_the_start_of_a_line_that_a_power_cut_has_left_is_taken_away(tmp_path: Path, size: int) -> None:
    path = tmp_path / "j"
    path.write_bytes(b"first\na\n" + b"x" * size)
    file = opened(path)
    file.write(b"b\n")
    assert path.read_text() == "first\na\nfirst\nb\n"
    path.write_bytes(b"\0" * size)
    opened(path).write(b"c\n")
    assert path.read_text() == "first\nc\n"


def test_the_age_of_the_oldest_line_not_on_the_disk_is_reported(tmp_path: Path) -> None:
    clock = Clock()
    file = opened(tmp_path / "j", clock=clock)
    assert (file.is_unsynced, file.unsynced_seconds()) == (False, 0)
    file.write(b"a\n")
    clock.seconds += 3
    file.write(b"b\n")
    work = file.to_disk()
    assert not file.is_unsynced, "it is on its way"
    clock.seconds += 4
    file.write(b"c\n")
    assert file.unsynced_seconds() == 7
    file.synced(OSError(5, "Input/output error"))
    assert (file.is_unsynced, file.unsynced_seconds()) == (True, 7)
    work()
    sync(file)
    assert (file.is_unsynced, file.unsynced_seconds()) == (False, 0)
    assert file.written_bytes == len(b"first\na\nb\nc\n")


def test_what_is_no_file_is_written_and_neither_renamed_nor_brought_anywhere(tmp_path: Path) -> None:
    (tmp_path / "j").symlink_to("/dev/null")
    file = opened(tmp_path / "j", rotate_bytes=1, keep_files=1)
    file.write(b"a\n")
    file.write(b"b\n")
    sync(file)
    assert [one.name for one in tmp_path.iterdir()] == ["j"]
    assert file.why_not_rotated == file.why_not_deleted == ""


def test_of_a_line_that_the_disk_takes_only_in_part_nothing_stays(tmp_path: Path) -> None:
    program = f"""
import resource
from idemproxy.proxy.settings.config import JournalSettings
from idemproxy.proxy.telemetry.journal_file import JournalFile
from pathlib import Path
file = JournalFile(JournalSettings(Path({str(tmp_path / "journal")!r})), lambda: 0, lambda: 0.0)
file.write(b"a" * 50 + b"\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (80, 80))
try:
    file.write(b"b" * 50 + b"\\n")
except OSError as error:
    print(error.strerror)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert said.stdout == "No space left on device\n"
    assert (tmp_path / "journal").read_bytes() == b"a" * 50 + b"\n"


def test_a_worker_has_a_file_of_its_own() -> None:
    assert of_worker(Path("/a/journal.jsonl"), 3) == Path("/a/journal.jsonl.3")
