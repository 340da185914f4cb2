"""A private Redis that cannot be looked at for a moment is an error with a sentence: who keeps it tries again, and does
not end the proxy."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from idemproxy.proxy.process.supervisor import Supervisor
from idemproxy.proxy.settings.addresses import Listener
from idemproxy.proxy.settings.config import Settings
from idemproxy.state.redis_server import EmbeddedRedis, EmbeddedRedisError


def held(directory: Path) -> int:
    """The lock, as a server has it."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory / "redis.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (directory / "redis.socket").write_bytes(os.fsencode(directory / "redis.sock"))
    return lock


def broken(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def fail(*_args: Any, **_more: Any) -> Any:
        raise OSError(errno.EIO if what == "file" else errno.ENFILE, os.strerror(errno.ENFILE))

    if what == "file":
        monkeypatch.setattr(Path, "read_bytes", fail)
    else:
        monkeypatch.setattr(socket, "socket", fail)


@pytest.mark.parametrize("what", ["file", "socket"])
def test_what_cannot_be_read_for_a_moment_is_an_error_with_a_sentence(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = held(tmp_path / "redis")
    redis = EmbeddedRedis(tmp_path / "redis", 0.2)
    broken(monkeypatch, what)
    with pytest.raises(EmbeddedRedisError):
        redis.start()
    os.close(lock)


@pytest.mark.parametrize("what", ["file", "socket"])
def test_it_ends_no_supervisor(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    monkeypatch.setattr("idemproxy.proxy.process.supervisor.limits.LEASE_RENEW_SECONDS", 0.01)
    settings = Settings((("127.0.0.1", 1),), (Listener("one", "127.0.0.1", 0, 0),), data_directory=tmp_path)
    supervisor = Supervisor(settings, 2, None, {}, said.append)
    supervisor._embedded = EmbeddedRedis(tmp_path / "redis", 0.05)
    lock = held(tmp_path / "redis")

    async def run() -> None:
        broken(monkeypatch, what)
        with trio.move_on_after(0.5):
            await supervisor._keep_redis()
        monkeypatch.undo()

    trio.run(run)
    assert said
    os.close(lock)
