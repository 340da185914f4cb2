"""One ``idemproxy run`` as a child process over all its lives: started, killed, started again on the same data.

Owns its ports, its data directory and its private Redis. What it has done is read from its log (``proxy_log.py``).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from ..state.redis_server import EmbeddedRedis, EmbeddedRedisError
from .child_processes import ChildProcess, ChildProcesses
from .ports import HOST, neighbouring_ports

START_SECONDS_MAX = 120.0
"""A start takes more than a second of CPU: a minute on a machine that is busy with other work."""
STOP_SECONDS_MAX = 40.0
"""More than the proxy's own limit for its drain."""
_POLL_SECONDS = 0.05


class ProxyFailed(Exception):
    """The proxy did not start, or ended by itself; the message ends with what it printed last."""


class ProxyProcess:
    """A proxy in front of a cluster with one broker, id 0. A context manager: leaving ends it and its Redis."""

    def __init__(self, directory: Path, upstream: tuple[str, int]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.address = (HOST, neighbouring_ports(2))
        self.log = directory / "proxy.log"
        self.kills = 0
        self._directory = directory
        self._children = ChildProcesses()
        self._process: ChildProcess | None = None
        self._redis = EmbeddedRedis(directory / "data" / "redis")
        self._command = [
            *(sys.executable, "-m", "idemproxy", "run"),
            *("--upstream", f"{upstream[0]}:{upstream[1]}"),
            *("--listen", f"{HOST}:{self.address[1]}"),
            *("--data-directory", os.fspath(directory / "data")),
        ]

    def __enter__(self) -> ProxyProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self._process = None
        self._children.close()
        if self._redis.data_directory.exists():
            try:
                self._redis.stop()
            except EmbeddedRedisError as problem:
                raise ProxyFailed(str(problem)) from None

    def start(self) -> None:
        """Start the process; clients can connect a moment later."""
        assert self._process is None, "it runs"
        self._process = self._children.start("the proxy", self._command, self.log, directory=self._directory)

    def wait_until_ready(self) -> None:
        """Return when it listens. Raises ProxyFailed."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._is_listening():
            self.check()
            if time.monotonic() > deadline:
                raise ProxyFailed(f"the proxy does not listen after {START_SECONDS_MAX:.0f} s:\n{self._last_output()}")
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise ProxyFailed when it has ended by itself."""
        if self._process is not None and self._process.exit_code is not None:
            raise ProxyFailed(f"the proxy ended with code {self._process.exit_code}:\n{self._last_output()}")

    def kill_and_start(self) -> None:
        """SIGKILL, whatever it is doing, and the next life at once. Its Redis lives on and is found again."""
        assert self._process is not None
        self._process.kill()
        self._process = None
        self.kills += 1
        self.start()

    def stop(self) -> None:
        """SIGTERM, and wait for the end of its drain. Raises ProxyFailed unless it ends in order."""
        assert self._process is not None
        process, self._process = self._process, None
        process.signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise ProxyFailed(f"the proxy does not end on SIGTERM:\n{process.last_output()}") from None
        if code != 0:
            raise ProxyFailed(f"the proxy ended with code {code} on SIGTERM:\n{process.last_output()}")

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(self.address) == 0

    def _last_output(self) -> str:
        return "" if self._process is None else self._process.last_output()
