"""Where the sink keeps its files: a local file system (or one that is mounted like one), or an object store.

What it promises: a file that was written or created is there after a crash, whole; if several create the same name,
one succeeds. The second cannot be seen from outside: a store that looks first and writes then lets two drivers win, but
rarely. So only stores are taken whose driver's code is known to leave it to the store itself (``_DRIVERS``), and all
others are refused by name. Never interprets what is in a file."""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote, urlsplit

from .problems import SinkProblem

_SAME_STORE: Final = {"s3a": "s3", "s3n": "s3", "wasbs": "abfs", "abfss": "abfs"}
"""Hadoop's names of stores, as Python's drivers call them."""
_DRIVERS: Final[Mapping[str, str]] = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
"""The drivers of fsspec that hand ``pipe_file(mode="create")`` to their store as one conditional request, and take
only its refusal for "there is one already":

- s3fs: PutObject with ``If-None-Match: *``; 412 (s3fs/core.py ``_pipe_file``, errors.py ``translate_boto_error``);
- gcsfs: an upload with ``ifGenerationMatch=0``; 412 (core.py ``simple_upload``, retry.py ``validate_response``). Not
  in zonal buckets, where it overwrites: ``check`` notices that;
- adlfs: Put Blob with ``If-None-Match: *``, as ``overwrite=False`` (spec.py ``_pipe_file``,
  azure/storage/blob/_upload_helpers.py); 409.

The generic ``AbstractFileSystem.pipe_file`` asks ``exists`` and writes then. It is what HDFS (pyarrow can only create
with overwrite, and its move replaces a file that is there), WebHDFS, DBFS, SMB, SFTP, FTP and all others have."""
_PROBE: Final = "created-once"


class Storage(ABC):
    """A folder. Names are relative to it, with slashes; folders come and go with their files."""

    @abstractmethod
    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """Write a file whose name nobody else has. It is durable when the block ends, and gone if that raises."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Create a file with this content, durably, unless there is one; return whether it was this call."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return a file's content; None: there is no such file."""

    @abstractmethod
    def read_range(self, name: str, position: int, size: int) -> bytes:
        """Return some bytes of a file. Raises FileNotFoundError."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the bytes of a file; None: there is no such file."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, of files and folders; none where there is no folder."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file or a folder with all that is in it; nothing happens where there is none."""

    @abstractmethod
    def check(self) -> None:
        """Raise SinkProblem if the store cannot create a file only where there is none."""


def storage_at(location: str) -> Storage:
    """Return the storage for a path or an address like ``s3a://bucket/path``. Raises SinkProblem."""
    parts = urlsplit(location)
    before, is_address, _ = location.partition("://")
    given = before if is_address else parts.scheme  # some names of stores are no schemes to urlsplit: arrow_hdfs
    if given in ("", "file"):
        return LocalStorage(Path(unquote(parts.path) if given else location))
    scheme = _SAME_STORE.get(given, given)
    if scheme not in _DRIVERS:
        raise SinkProblem(
            f"{location}: {given}:// cannot be used: {_NOT_ONCE}. A path that all machines have mounted can be, "
            f"if it has hard links (NFS), and so can s3a://, gs:// and abfss://"
        )
    try:
        from fsspec import filesystem
    except ImportError:
        raise SinkProblem(
            f"{location}: for other than local paths the package fsspec and its driver of {scheme}:// are needed: pip "
            f"install {_DRIVERS[scheme]}"
        ) from None
    try:
        driver = filesystem(scheme)
    except (ImportError, ValueError) as error:
        raise SinkProblem(f"{location}: no driver for {scheme}://: {error}") from None
    return ObjectStorage(driver, f"{parts.netloc}{parts.path}".rstrip("/"), location)


class LocalStorage(Storage):
    """A folder of a file system. Creating goes through a hard link, which exists once also over NFS."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        self._sync_folders(path.parent)

    def create(self, name: str, data: bytes) -> bool:
        path = self._root / name
        if path.exists():  # mostly a replay: nothing is written then
            self._sync_folders(path.parent)  # the process that made it may have died before this
            return False
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        draft.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, path)
            except FileExistsError:
                return False
            return True
        finally:
            draft.unlink(missing_ok=True)
            self._sync_folders(path.parent)

    def read(self, name: str) -> bytes | None:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    def read_range(self, name: str, position: int, size: int) -> bytes:
        descriptor = os.open(f"{self._root}/{name}", os.O_RDONLY | os.O_CLOEXEC)  # a Path costs as much as the bytes
        try:
            return os.pread(descriptor, size, position)
        finally:
            os.close(descriptor)

    def size(self, name: str) -> int | None:
        try:
            return (self._root / name).stat().st_size
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / folder))
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        path = self._root / name
        if not path.is_dir():
            path.unlink(missing_ok=True)
            return
        for inside in self.names(name):
            self.remove(f"{name}/{inside}")
        with suppress(OSError):  # a zombie task has begun a file in it: it goes the next time
            path.rmdir()

    def check(self) -> None:
        probe = f".{_PROBE}.{uuid.uuid4().hex}"
        try:
            both = self.create(probe, b""), self.create(probe, b"")
        except OSError as error:
            raise SinkProblem(f"{self._root}: hard links are needed, for creating a file only once: {error}") from None
        finally:
            self.remove(probe)
        if both != (True, False):
            raise SinkProblem(f"{self._root}: {_NOT_ONCE}")

    def _sync_folders(self, folder: Path) -> None:
        """Make the entries durable, up to the folder above ours."""
        for one in (folder, *folder.parents):
            descriptor = os.open(one, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if one == self._root.parent:
                break


class ObjectStorage(Storage):
    """A folder of an object store, through its driver for fsspec, whose ``pipe_file(mode="create")`` is the store's own
    conditional write."""

    def __init__(self, driver: Any, root: str, shown: str) -> None:
        self._driver = driver
        self._root = root
        self._shown = shown

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        file = self._driver.open(self._path(name), "wb")
        try:
            yield file
        except BaseException:
            file.discard()
            self.remove(name)
            raise
        file.close()  # the upload is complete, and so it is durable

    def create(self, name: str, data: bytes) -> bool:
        try:
            self._driver.pipe_file(self._path(name), data, mode="create")
        except FileExistsError:
            return False
        return True

    def read(self, name: str) -> bytes | None:
        try:
            return bytes(self._driver.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def read_range(self, name: str, position: int, size: int) -> bytes:
        return bytes(self._driver.cat_file(self._path(name), start=position, end=position + size))

    def size(self, name: str) -> int | None:
        try:
            return int(self._driver.size(self._path(name)))
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        self._driver.invalidate_cache()
        try:
            found = self._driver.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._driver.rm(self._path(name), recursive=True)

    def check(self) -> None:
        """Also a known driver may be too old to ask for the condition, or its store too old to heed it."""
        kind = type(self._driver)
        package = getattr(kind, "_pipe_file", kind).__module__.partition(".")[0]
        if package not in _DRIVERS.values():
            raise SinkProblem(f"{self._shown}: {_NOT_ONCE} (its driver is {kind.__module__}.{kind.__name__})")
        probe = f"{_PROBE}-{uuid.uuid4().hex}"
        try:
            both = self.create(probe, b"1"), self.create(probe, b"2")
        except (NotImplementedError, TypeError, ValueError, OSError) as error:
            raise SinkProblem(f"{self._shown}: {_NOT_ONCE} ({type(error).__name__}: {error})") from None
        finally:
            self.remove(probe)
        if both != (True, False):
            raise SinkProblem(f"{self._shown}: {_NOT_ONCE}")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


_NOT_ONCE: Final = (
    "two drivers could both create the file that decides what a batch is, as nothing shows that this store creates a "
    "file only where there is none; nothing was written to the topic"
)
