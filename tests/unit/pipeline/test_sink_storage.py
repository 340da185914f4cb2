"""What the sink's files rest on: one creates, all read the same, and what was not finished is not there."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow.fs
import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import known_implementations
from fsspec.spec import AbstractFileSystem

from idemproxy.pipeline.sink.problems import SinkProblem
from idemproxy.pipeline.sink.storage import LocalStorage, ObjectStorage, Storage, storage_at

TAKEN = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "wasbs", "az")


@pytest.fixture(params=["path", "file", "driver"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    name = f"{tmp_path}/a folder/sink"
    if request.param == "driver":
        return ObjectStorage(MemoryFileSystem(), f"{tmp_path}/sink", "s3a://of/this/test")
    return storage_at({"path": name, "file": f"file://{name.replace(' ', '%20')}"}[request.param])


def test_a_file_is_created_once_and_keeps_what_it_got_first(storage: Storage) -> None:
    assert storage.read("7.json") is None
    assert storage.size("7.json") is None
    assert storage.create("7.json", b"first")
    assert not storage.create("7.json", b"second")
    assert (storage.read("7.json"), storage.size("7.json")) == (b"first", 5)
    assert storage.names("") == ["7.json"]


def test_the_check_of_a_folder_leaves_no_files(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "sink")
    storage.check()
    assert storage.names("") == []


def test_of_many_that_create_one_name_one_succeeds(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)
    created: list[int] = []

    def create(number: int) -> None:
        storage = LocalStorage(tmp_path / "sink")
        barrier.wait()
        if storage.create("0.json", b"%d" % number):
            created.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = created
    assert LocalStorage(tmp_path / "sink").read("0.json") == b"%d" % winner
    assert LocalStorage(tmp_path / "sink").names("") == ["0.json"]


def test_a_stage_file_is_read_in_ranges_and_goes_with_its_folder(storage: Storage) -> None:
    with storage.writing("stage/3/one") as file:
        assert file.write(b"0123456789") == 10
    with storage.writing("stage/4/two"):
        pass
    assert storage.read_range("stage/3/one", 4, 3) == b"456"
    assert storage.size("stage/3/one") == 10
    assert storage.names("stage") == ["3", "4"]
    storage.remove("stage/3")
    storage.remove("stage/3")
    assert storage.names("stage") == ["4"]
    assert storage.names("nothing") == []
    with pytest.raises(FileNotFoundError):
        storage.read_range("stage/3/one", 0, 1)


def test_a_file_whose_writing_failed_is_not_there(storage: Storage) -> None:
    with suppress(RuntimeError), storage.writing("stage/3/one") as file:
        file.write(b"0123456789")
        raise RuntimeError
    assert storage.size("stage/3/one") is None


async def _of_s3fs() -> None:
    """Stands for the method of the driver, by which the driver is known."""


_of_s3fs.__module__ = "s3fs.core"


class Overwriting(MemoryFileSystem):  # type: ignore[misc]
    """The driver of S3 in a version that does not look at ``mode``, or before a store that does not."""

    _pipe_file = _of_s3fs

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: object) -> None:
        super().pipe_file(path, value)


class Unable(AbstractFileSystem):  # type: ignore[misc]
    """Its store refuses conditional writes."""

    _pipe_file = _of_s3fs

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: object) -> None:
        raise OSError(22, "A header you provided implies functionality that is not implemented")

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        raise FileNotFoundError(path)


@pytest.mark.parametrize("driver", [Overwriting, Unable])
def test_a_store_that_cannot_create_only_once_is_refused(driver: type[AbstractFileSystem]) -> None:
    with pytest.raises(SinkProblem, match="s3a://bucket/chk/sink: two drivers could both create the file"):
        ObjectStorage(driver(), "bucket/chk/sink", "s3a://bucket/chk/sink").check()


@pytest.mark.parametrize("kind", ["hdfs", "memory"])
def test_a_driver_that_looks_first_and_writes_then_is_refused(tmp_path: Path, kind: str) -> None:
    """Alone it creates once; two at once both won 181 of 300 times."""
    hdfs = ArrowFSWrapper(fs=pyarrow.fs.LocalFileSystem())  # the base of fsspec's driver of HDFS
    driver = {"hdfs": hdfs, "memory": MemoryFileSystem()}[kind]
    with pytest.raises(SinkProblem, match="nothing shows that this store creates a file only where there is none"):
        ObjectStorage(driver, f"{tmp_path}", f"{kind}://nn/checkpoint").check()


@pytest.mark.parametrize("scheme", sorted({*known_implementations, "hopefully"} - {"file", *TAKEN}))
def test_every_store_but_those_that_are_known_to_create_once_is_refused_by_name(scheme: str) -> None:
    """All that fsspec knows, and what it does not."""
    with pytest.raises(SinkProblem, match=f"{re.escape(scheme)}://x/y: {re.escape(scheme)}:// cannot be used: two dri"):
        storage_at(f"{scheme}://x/y")


@pytest.mark.parametrize("scheme", TAKEN)
def test_a_store_whose_driver_is_not_installed_says_which_one_it_needs(scheme: str) -> None:
    with pytest.raises(SinkProblem, match=f"{scheme}://x/y: no driver for "):
        storage_at(f"{scheme}://x/y")
