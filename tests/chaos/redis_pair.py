"""A Redis master with one replica, and a fail-over that is driven by hand: REPLICAOF NO ONE on the replica, and the
address that proxies use leads to it. Owns both processes. Writes that the replica does not have are lost then."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from idemproxy.demo.child_processes import ChildProcess, ChildProcesses
from idemproxy.demo.ports import HOST, free_ports
from testkit.real.store.redis_process import converse, server_binary

READY_SECONDS_MAX = 20.0
_POLL_SECONDS = 0.05


class RedisNode:
    """One of the two servers over all its lives, on one port and one directory."""

    def __init__(self, children: ChildProcesses, directory: Path) -> None:
        directory.mkdir(parents=True)
        (port,) = free_ports(1)
        self.address = (HOST, port)
        self._children = children
        self._directory = directory
        self._process: ChildProcess | None = None

    @property
    def runs(self) -> bool:
        """Was it started, and not killed since?"""
        return self._process is not None

    def start(self, master: tuple[str, int] | None = None) -> None:
        """Start the server and wait until it has its data; ``master``: as the replica of who is there."""
        options = ["--port", self.address[1], "--bind", HOST, "--dir", self._directory, "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "everysec", "--repl-diskless-sync-delay", "0"]
        if master is not None:
            options += ["--replicaof", f"{master[0]} {master[1]}"]
        command: list[str | Path] = [server_binary(), *(str(option) for option in options)]
        self._process = self._children.start("redis-server", command, self._directory / "server.log")
        self._until(
            lambda: self.call("PING") == b"PONG" and b"loading:0" in self.call("INFO", "persistence"), "answers"
        )

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process = None

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP or SIGCONT."""
        assert self._process is not None
        self._process.signal(number)

    def call(self, *parts: str | bytes | int) -> Any:
        """The reply to one command, past the relay. Raises OSError."""
        with socket.create_connection(self.address, 5) as connection:
            reply = converse(connection, *parts)
        return reply.encode() if isinstance(reply, str) else reply

    def wait_in_sync(self) -> None:
        """Return when it follows its master."""
        self._until(lambda: b"master_link_status:up" in self.call("INFO", "replication"), "is in sync")

    def _until(self, condition: Any, what: str) -> None:
        end = time.monotonic() + READY_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError, AssertionError):
                if condition():
                    return
            assert time.monotonic() < end, f"redis-server on {self.address}: never {what}"
            time.sleep(_POLL_SECONDS)


class RedisPair:
    """``master`` is who proxies are led to."""

    def __init__(
        self, children: ChildProcesses, directory: Path, replication_address: Callable[[], tuple[str, int]]
    ) -> None:
        """``replication_address``: where a replica reaches the master of the moment."""
        self._replication_address = replication_address
        self.master = RedisNode(children, directory / "redis-0")
        self.replica = RedisNode(children, directory / "redis-1")

    def start(self) -> None:
        """Start both, the one following the other."""
        self.master.start()
        self.replica.start(self._replication_address())
        self.replica.wait_in_sync()

    def address(self) -> tuple[str, int]:
        """Where the master is now."""
        return self.master.address

    def promote(self) -> None:
        """The replica is the master from now on; the old one must not be reached by proxies any more."""
        assert self.replica.call("REPLICAOF", "NO", "ONE") == b"OK"
        self.master, self.replica = self.replica, self.master

    def switch_over(self, late_seconds: float) -> None:
        """Both live: they change their roles. The address follows later, meanwhile it leads to a replica."""
        assert self.replica.call("REPLICAOF", "NO", "ONE") == b"OK"
        self.master.call("REPLICAOF", *map(str, self.replica.address))
        time.sleep(late_seconds)
        self.master, self.replica = self.replica, self.master

    def rejoin(self) -> None:
        """The old master, dead or awake again, follows the new one."""
        if self.replica.runs:
            self.replica.call("REPLICAOF", *map(str, self._replication_address()))
        else:
            self.replica.start(self._replication_address())
        self.replica.wait_in_sync()
