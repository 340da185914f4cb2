"""The proxy instances in the data directory: what the next life knows of those before it, and what a power cut
leaves."""

import os
import resource
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from idemproxy.proxy.process.data_directory import ROOM_BYTES, ROOM_WITH_REDIS_BYTES, DataDirectory
from idemproxy.proxy.settings.config import ConfigError

ONE, OTHER = b"eightone", b"eighttwo"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    with closing(DataDirectory(tmp_path)) as one:
        yield one


def test_who_lived_here_is_known_to_the_next_life(directory: DataDirectory) -> None:
    assert (directory.earlier_instance_ids(), directory.damage) == ([], None)
    for lived in ([ONE, OTHER], []):
        directory.remember(lived)
        assert (directory.earlier_instance_ids(), directory.damage) == (lived, None)


def test_a_directory_of_another_user_is_refused_with_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proxy.lock").mkdir()  # what nobody can open for writing, root neither
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match=rf"cannot be used: .* \(it belongs to user {owner}, this .* {owner + 1}\)$"):
        DataDirectory(tmp_path)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"cannot be used: Is a directory$"):
        DataDirectory(tmp_path)


@pytest.mark.parametrize(
    "left",
    [bytes(17), b"\xff\xfe\xff", ONE.hex().encode()[:-1], ONE.hex().encode()[:-2], f"{ONE.hex()}\nno hex\n".encode()],
    ids=["zeros", "no text", "half a byte", "too short", "one of two"],
)
def test_a_damaged_file_is_none_and_that_is_known(directory: DataDirectory, left: bytes) -> None:
    (directory.path / "instances").write_bytes(left)
    assert directory.earlier_instance_ids() == []
    assert directory.damage is not None
    directory.remember([OTHER])
    assert directory.earlier_instance_ids() == [OTHER]


def test_too_little_room_is_one_sentence_and_what_was_tried_takes_none_of_it(directory: DataDirectory) -> None:
    directory.remember([ONE])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, hard))
    try:
        directory.try_to_write([ONE])
        with pytest.raises(ConfigError, match=f"the data directory {directory.path} cannot be written: File too large"):
            directory.try_to_write([ONE], ROOM_WITH_REDIS_BYTES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(path.name for path in directory.path.iterdir()) == ["instances", "proxy.lock"]
    assert directory.earlier_instance_ids() == [ONE]


def test_a_power_cut_leaves_the_old_file_or_the_new_one(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.remember([ONE])
    on_disk: list[tuple[str, str]] = []
    shipped = os.fsync

    def fsync(descriptor: int) -> None:
        shipped(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        on_disk.append((path.read_text(), (directory.path / "instances").read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    directory.remember([ONE, OTHER])
    assert on_disk == [(f"{ONE.hex()}\n{OTHER.hex()}\n", f"{ONE.hex()}\n")], (
        "all of it before it takes the old one's place"
    )
    assert directory.earlier_instance_ids() == [ONE, OTHER]
