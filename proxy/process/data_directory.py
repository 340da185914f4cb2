"""The proxy's own directory on disk: which process uses it, which proxy instances it had, where logs ended. Files are
replaced as a whole; their contents are decided elsewhere."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from ...state.entry import NO_INSTANCE_ID
from ..settings.config import ConfigError

ROOM_BYTES = 4096
"""More than the proxy instances need; file systems allocate this much at once."""
ROOM_WITH_REDIS_BYTES = 256 * 1024
"""A private Redis needs some space for its log and its first writes; one that has none does not say why it ends."""


def _whose(path: Path) -> str:
    """Return whose the path is, for an error message, if it is not ours; by number, as a container has no user
    names."""
    try:
        owner = path.stat().st_uid
    except OSError:  # it is not there, or cannot even be looked at
        return ""
    return "" if owner == os.geteuid() else f" (it belongs to user {owner}, this process is user {os.geteuid()})"


def is_in_use(path: Path) -> bool:
    """Does a living process use this directory? Leaves no trace in it."""
    try:
        lock = os.open(path / "proxy.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # there is none, or it is not ours
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


class DataDirectory:
    """The proxy's own directory: one living process at a time, and its earlier proxy instances."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError when another process uses it, or it cannot be written."""
        self.path = path
        self.damage: str | None = None
        """Why the stored proxy instances cannot be read; None if they can."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / "proxy.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"the data directory {path} cannot be used: {error.strerror}{_whose(path)}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another idemproxy uses the data directory {path}: end it, or give this one another (--data-directory)"
            ) from None

    def earlier_instance_ids(self) -> list[bytes]:
        """Return the proxy instances that ended without giving their lease back. This process holds the lock, so they
        are certainly dead. Empty, with the reason in ``damage``, where the file is damaged: their leases end by
        themselves."""
        try:
            found = [bytes.fromhex(line) for line in (self.path / "instances").read_text("ascii").split()]
        except FileNotFoundError:
            return []
        except ValueError:  # also for bytes that are no text
            found = [b""]
        if all(len(one) == len(NO_INSTANCE_ID) for one in found):
            return found
        self.damage = "damaged; what they had open waits until their leases have ended"
        return []

    def remember(self, instance_ids: list[bytes]) -> None:
        """Store the proxy instances that are alive here. The file is replaced as a whole, so a power cut leaves the old
        one or the new one. Raises OSError."""
        new = self.path / "instances.new"
        with new.open("w") as file:
            file.write("".join(one.hex() + "\n" for one in instance_ids))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path / "instances")

    def try_to_write(self, instance_ids: list[bytes], room_bytes: int = ROOM_BYTES) -> None:
        """Check that there is space, by writing so many bytes; what is stored stays the same. Raises ConfigError:
        better now than after something was started."""
        new = self.path / "instances.new"
        try:
            new.write_bytes(bytes(room_bytes))
            self.remember(instance_ids)
        except OSError as error:
            new.unlink(missing_ok=True)  # it may be the last space that there was
            raise ConfigError(f"the data directory {self.path} cannot be written: {error.strerror}") from None

    def checkpoints(self) -> bytes | None:
        """Return the packed checkpoints of an earlier process; None if there are none."""
        try:
            return (self.path / "checkpoints").read_bytes()
        except FileNotFoundError:
            return None

    def remember_checkpoints(self, checkpoints: bytes) -> None:
        """Store the packed checkpoints; the file is replaced as a whole. Raises OSError."""
        new = self.path / "checkpoints.new"
        new.write_bytes(checkpoints)
        new.replace(self.path / "checkpoints")

    def forget_checkpoints(self) -> None:
        """Remove the stored checkpoints, if there are any and they can be removed."""
        with suppress(OSError):
            (self.path / "checkpoints").unlink()

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)
