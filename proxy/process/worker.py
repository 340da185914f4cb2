"""One of several processes that serve the same ports: what it gets at its start, and when it ends. Started by
``supervisor.py``.

It is an ``idemproxy run`` like any other, with a proxy instance and a directory of its own. Its standard input is one
end of a socket pair. Its event loop sends a byte there every second: a supervisor that hears none replaces it. It
drains as after SIGTERM when the other end is closed: its supervisor has gone."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import trio

from ...state.redis_facts import RedisAddress
from .. import limits
from ..settings.config import Settings
from ..telemetry.journal_file import of_worker

COULD_NOT_START = 2
"""Exit status of a worker that never served, as of any proxy whose start ends with a sentence."""
ENDED_WHILE_SERVING = 3
"""Exit status of a worker that served clients, and has found what ends the proxy."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which of the workers this is, and what the supervisor has for it. ``number``: from 1 on. ``admin``: the path of
    its admin socket, None: there is no admin port. ``private_redis``: the socket of the supervisor's private Redis,
    None: Redis is external."""

    number: int
    admin: str | None = None
    private_redis: str | None = None

    def settings_of(self, settings: Settings) -> Settings:
        """Return the worker's own settings, made from those of the whole."""
        journal = settings.journal
        return replace(
            settings,
            data_directory=settings.data_directory / f"worker-{self.number}",
            redis=settings.redis if self.private_redis is None else RedisAddress(self.private_redis),
            admin=self.admin,
            journal=None if journal is None else replace(journal, path=of_worker(journal.path, self.number)),
        )


@dataclass(frozen=True, slots=True)
class Order:
    """All that a worker gets at its start. ``config`` and ``options``: what the settings are read from again."""

    place: Place
    settings: Settings
    config: Path | None
    options: Mapping[str, Any]

    def load(self) -> Settings:
        """Read the settings again. Raises ConfigError."""
        from ..settings.load import load  # not at the top: what reads them takes 14 MB, and a reload is seldom

        return self.place.settings_of(load(self.config, self.options))


def command() -> list[str]:
    """Return the command line of a worker. Its order follows on standard input (``give``)."""
    return [sys.executable, "-P", "-m", f"{__package__}.worker_process"]


def give(order: Order) -> bytes:
    """Return the bytes that go to a worker's standard input, which stays open."""
    return pickle.dumps((sys.path, order))


async def until_alone() -> None:
    """Return when the supervisor has gone."""
    while True:
        await trio.lowlevel.wait_readable(sys.stdin.fileno())
        try:
            if not os.read(sys.stdin.fileno(), 1):
                return
        except ConnectionResetError:  # it was killed before it had read all beats (unix(7))
            return


async def beat() -> None:
    """Tell the supervisor, until cancelled, that the event loop runs. Never waits: a supervisor that stands still does
    not read, and needs no more beats than fit."""
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as towards_supervisor:
        while True:
            with suppress(OSError):  # full, or the supervisor has gone (``until_alone``)
                towards_supervisor.send(b".", socket.MSG_DONTWAIT)
            await trio.sleep(limits.WORKER_BEAT_SECONDS)
