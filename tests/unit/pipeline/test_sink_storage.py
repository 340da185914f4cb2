"""What the sink's files rest on: one creates, all read the same, and what was not finished is not there."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

from idemproxy.pipeline.sink.problems import SinkProblem
from idemproxy.pipeline.sink.storage import LocalStorage, ObjectStorage, Storage, storage_at


@pytest.fixture(params=["path", "file", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    name = f"{tmp_path}/a folder/sink"
    places = {"path": name, "file": f"file://{name.replace(' ', '%20')}", "memory": f"memory:/{tmp_path}/sink"}
    return storage_at(places[request.param])


def test_a_file_is_created_once_and_keeps_what_it_got_first(storage: Storage) -> None:
    assert storage.read("7.json") is None
    assert storage.size("7.json") is None
    assert storage.create("7.json", b"first")
    assert not storage.create("7.json", b"second")
    assert (storage.read("7.json"), storage.size("7.json")) == (b"first", 5)
    assert storage.names("") == ["7.json"]
    storage.check()
    assert storage.names("") == ["7.json"]


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


class Overwriting(MemoryFileSystem):  # type: ignore[misc]
    """A store without conditional writes, as many drivers are: ``mode`` is not looked at."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: object) -> None:
        super().pipe_file(path, value)


class Unable(AbstractFileSystem):  # type: ignore[misc]
    """A store whose driver says so."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: object) -> None:
        raise NotImplementedError("exclusive writes")

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        raise FileNotFoundError(path)


@pytest.mark.parametrize("driver", [Overwriting, Unable])
def test_a_store_that_cannot_create_only_once_is_refused(driver: type[AbstractFileSystem]) -> None:
    with pytest.raises(SinkProblem, match="s3a://bucket/chk/sink: this store cannot create a file only where"):
        ObjectStorage(driver(), "bucket/chk/sink", "s3a://bucket/chk/sink").check()


def test_a_store_without_a_driver_is_refused() -> None:
    with pytest.raises(SinkProblem, match=r"hopefully://x/y: no driver for hopefully://"):
        storage_at("hopefully://x/y")
