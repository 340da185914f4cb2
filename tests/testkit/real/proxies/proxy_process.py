"""One ``idemproxy run`` as a child process: started, waited for, stopped, killed, and what it wrote to log and Redis.

Owns the process, its ports and its private Redis. Looks at the stored entries on a line of its own, past the proxy.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from idemproxy.demo.child_processes import ChildProcess, ChildProcesses, stands_still
from idemproxy.demo.ports import HOST, neighbouring_ports
from idemproxy.state.entry import Entry, pack, unpack
from idemproxy.state.redis_server import EmbeddedRedis
from idemproxy.state.store import entry_key
from testkit.real.store.redis_process import converse

START_SECONDS_MAX = 90.0
QUIET_SECONDS_MAX = 60.0
PORTS_KEPT = 11
"""A bootstrap port and those of brokers 0 to 9, none of which may be given to an admin port."""
_POLL_SECONDS = 0.02
_ARRIVES_SECONDS = 0.05
_ENTRY_KEYS = "idem:*:{*"


def wait_until(condition: Callable[[], bool], what: str, seconds_max: float = QUIET_SECONDS_MAX) -> None:
    """Return when the condition holds; an AssertionError says what never came."""
    end = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < end, f"not within {seconds_max:.0f} s: {what}"
        time.sleep(_POLL_SECONDS)


class ProxyProcess:
    """One proxy over all its starts, on the same ports and data directory. A context manager: entering starts it."""

    def __init__(
        self,
        directory: Path,
        upstream: tuple[str, int],
        *,
        brokers: int = 1,
        options: tuple[str, ...] = (),
        settings: str = "",
        python: Path = Path(sys.executable),
        program: str | None = None,
    ) -> None:
        """``brokers``: how many listeners the cluster needs. ``directory`` is made when it is missing. ``settings``: in
        YAML. ``python``: what runs it. ``program``: the path of one in the place of ``idemproxy``, which takes the same
        arguments."""
        directory.mkdir(parents=True, exist_ok=True)
        if settings:
            config = directory / "idemproxy.yaml"
            config.write_text(settings)
            options += ("--config", os.fspath(config))
        self.data_directory = directory / "data"
        self.address = (HOST, neighbouring_ports(max(1 + brokers, PORTS_KEPT)))
        self._log = directory / "proxy.log"
        self._log_start = 0
        self._children = ChildProcesses()
        self._process: ChildProcess | None = None
        self._redis = EmbeddedRedis(self.data_directory / "redis")
        self._command = [
            *(os.fspath(python), "-P", *(("-m", "idemproxy") if program is None else (program,)), "run"),
            *("--upstream", f"{upstream[0]}:{upstream[1]}", "--listen", f"{HOST}:{self.address[1]}"),
            *("--data-directory", os.fspath(self.data_directory), *options),
        ]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._process = None
        self._children.close()
        if self._redis.data_directory.exists():
            self._redis.stop()

    # ------------------------------------------------------------------ starts and ends
    def start(self) -> None:
        """Start the process and wait until clients can connect."""
        self.launch()
        wait_until(self._is_listening, "the proxy listens", START_SECONDS_MAX)

    def launch(self) -> None:
        """Start the process, which may never come so far that clients can connect."""
        assert self._process is None, "it runs"
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        self._process = self._children.start("idemproxy", self._command, self._log)

    @property
    def workers(self) -> list[int]:
        """The process ids of the workers that run now, with ``--workers``."""
        found = []
        for child in self._children_now():
            try:
                command = Path(f"/proc/{child}/cmdline").read_bytes()
            except OSError:
                continue
            if b"idemproxy.proxy.process.worker_process" in command:
                found.append(int(child))
        return found

    def _children_now(self) -> list[str]:
        """A child belongs to the thread that started it, or to another one when that has ended: then look again."""
        while True:
            tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
            try:
                return [child for task in tasks for child in task.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue

    def kill(self) -> None:
        """End the process by SIGKILL; the private Redis lives on."""
        assert self._process is not None
        self._process.kill()
        self._process = None

    def stop(self, timeout_seconds: float = 90) -> int:
        """End the process by SIGTERM and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_seconds)

    def wait(self, timeout_seconds: float = 90) -> int:
        """Wait until it has ended by itself and return the exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        return process.wait(timeout_seconds)

    @property
    def pid(self) -> int:
        """Of the proxy that runs."""
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the proxy alone."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def pause(self) -> None:
        """SIGSTOP; return when it stands still. What it has sent to Redis before has been taken by then."""
        self.signal(signal.SIGSTOP)
        pid = self.pid
        wait_until(lambda: stands_still(pid), "it stands still")
        time.sleep(_ARRIVES_SECONDS)

    @property
    def log(self) -> str:
        """What this process has written so far."""
        with self._log.open("rb") as handle:
            handle.seek(self._log_start)
            return handle.read().decode(errors="replace")

    def wait_for_log(self, pattern: str, seconds_max: float = QUIET_SECONDS_MAX) -> str:
        """Return the first line of this process's log that the pattern is found in, as soon as it is there."""
        found: list[str] = []

        def look() -> bool:
            found[:] = [line for line in self.log.splitlines() if re.search(pattern, line)][:1]
            return bool(found)

        wait_until(look, f"{pattern!r} in the log:\n{self.log[-2000:]}", seconds_max)
        return found[0]

    def _is_listening(self) -> bool:
        assert self._process is not None
        assert self._process.exit_code is None, f"the proxy ended:\n{self._process.last_output()}"
        with socket.socket() as probe:
            return probe.connect_ex(self.address) == 0

    # ------------------------------------------------------------------ its Redis
    def redis(self, *parts: str | bytes | int) -> object:
        """The reply of the private Redis to one command."""
        path = (self.data_directory / "redis" / "redis.socket").read_text()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(path)
            return converse(connection, *parts)

    def kill_redis(self) -> None:
        """End the private Redis by SIGKILL; what it has written to its file is kept."""
        pid = int((self.data_directory / "redis" / "redis.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the private Redis is gone")

    def start_redis(self) -> None:
        """Start the private Redis again on the same data."""
        self._redis.start()

    def entries(self) -> Mapping[bytes, bytes]:
        """All stored entries, by key, as soon as nothing is reserved or waits to be committed."""
        found: dict[bytes, bytes] = {}

        def look() -> bool:
            found.clear()
            keys = self.redis("KEYS", _ENTRY_KEYS)
            assert isinstance(keys, list)
            for key in keys:
                value = self.redis("GET", key)
                if isinstance(value, bytes):
                    found[key] = value
            return all(unpack(value).intent is None for value in found.values())

        wait_until(look, "every intent is committed or released")
        return found

    def entry(self, producer_id: int, topic: str, partition: int, cluster: str = "default") -> Entry | None:
        """One stored entry, once it has no intent."""
        value = self.entries().get(entry_key(cluster, producer_id, topic, partition))
        return None if value is None else unpack(value)

    def store_entry(self, entry: Entry, producer_id: int, topic: str, partition: int, cluster: str = "default") -> None:
        """Write an entry behind the proxy's back."""
        assert self.redis("SET", entry_key(cluster, producer_id, topic, partition), pack(entry)) == b"OK"
