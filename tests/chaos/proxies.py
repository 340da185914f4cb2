"""The two proxies of a chaos run, each with an address for clients at the relay. While one is known to be away, new
connections to its address are led to the other one, as a load balancer does."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from idemproxy.demo.ports import HOST
from idemproxy.proxy.telemetry.journal_file import of_worker
from testkit.real.proxies.proxy_process import ProxyProcess

from .relay import Address, Relay

CLIENT_HOST = "127.0.0.2"
"""What the proxies tell clients: their ports, on another address of the loopback, where the relay listens."""
LINK = "client-proxy"


def send_all(processes: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those of them that are still there."""
    for one in processes:
        with suppress(ProcessLookupError):
            os.kill(one, number)


class _Process(ProxyProcess):
    def use_product(self, folder: Path) -> None:
        """Every life is of the package in this folder."""
        self._command = ["/usr/bin/env", f"PYTHONPATH={folder}", *self._command]

    @property
    def exit_code(self) -> int | None:
        """None while this instance runs, and when none is to run."""
        return None if self._process is None else self._process.exit_code

    def forget(self) -> int:
        """Take note of an end that nobody asked for; return the exit code."""
        return self.wait(1)


class Proxy:
    """One proxy over all its lives."""

    def __init__(
        self,
        name: str,
        directory: Path,
        upstream: Address,
        redis: Address,
        brokers: int,
        relay: Relay,
        product: Path,
        workers: int = 1,
        settings: str = "",
    ) -> None:
        """``product``: the folder with the package. ``workers``: processes. ``settings``: in
        YAML."""
        self.name = name
        journal = directory / "journal.jsonl"
        self.journals = [journal] if workers == 1 else [of_worker(journal, one + 1) for one in range(workers)]
        self.log_file = directory / "proxy.log"
        self.is_up = False
        """Is it thought to be able to take connections?"""
        self.is_shunned = False
        """Are new connections led to the other one although it is up?"""
        self.lives = 0
        self.other: Proxy | None = None
        self._brokers = brokers
        directory.mkdir(parents=True)
        self.process = _Process(
            directory,
            upstream,
            brokers=brokers,
            options=(
                *("--redis", f"redis://{redis[0]}:{redis[1]}"),
                *("--advertised-host", CLIENT_HOST, "--journal", os.fspath(journal)),
                *(() if workers == 1 else ("--workers", str(workers))),
            ),
            settings=settings,
        )
        self.process.use_product(product)
        first = self.process.address[1]
        for number in range(1 + brokers):
            relay.open(LINK, name, (CLIENT_HOST, first + number), lambda number=number: self._target(number))  # type: ignore[misc]

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{CLIENT_HOST}:{self.process.address[1]}"

    def start(self) -> None:
        """Start it and wait until it takes connections. AssertionError: it ended, or does not listen in time."""
        self.process.start()
        self.lives += 1
        self.is_up = True

    def kill(self, *, alone: bool = False) -> None:
        """SIGKILL. ``alone``: its workers live on, and learn of it."""
        self.is_up = False
        workers = [] if alone else self.process.workers
        self.process.kill()
        send_all(workers, signal.SIGKILL)

    def signal_all(self, number: signal.Signals) -> None:
        """Send this to the process and its workers."""
        self.process.signal(number)
        send_all(self.process.workers, number)

    def stop(self) -> int:
        """SIGTERM; return the exit code at the end of its drain. Where workers of an earlier life still serve, this one
        may not have come so far that it listens for signals: that it dies as any program does is in order (0)."""
        self.is_up = False
        if self.process.exit_code is None:
            self.process.signal(signal.SIGTERM)
        code = self.process.wait(40)
        return 0 if code == -signal.SIGTERM and not self._has_said_a_word() else code

    def _has_said_a_word(self) -> bool:
        """Has this life itself logged anything? Workers of an earlier one may have."""
        return re.search(r"^\d{4}-\d\d-\d\d \S+ [A-Z]+ (?!worker \d+: )", self.process.log, re.MULTILINE) is not None

    def _target(self, number: int) -> Address | None:
        for proxy in (self, self.other):
            if proxy is not None and proxy.is_up and not proxy.is_shunned:
                return HOST, proxy.process.address[1] + number
        return HOST, self.process.address[1] + number
