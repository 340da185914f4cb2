"""For a moment the system gives no more threads (pids.max of a container, the user's limit): what needs one fails and
is tried again, and the proxy continues."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio._core import _thread_cache

from idemproxy.proxy.net.event_loop import TrioReactor
from idemproxy.proxy.process.server import Server
from idemproxy.proxy.process.supervisor import Supervisor
from idemproxy.proxy.settings.addresses import Listener
from idemproxy.proxy.settings.config import Settings
from idemproxy.state.redis_server import EmbeddedRedis, EmbeddedRedisError


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system does it: threads that are there continue, none is started."""

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread_cache, "THREAD_CACHE", _thread_cache.ThreadCache())
    monkeypatch.setattr(threading.Thread, "start", start)


class Endpoint:
    def __init__(self) -> None:
        self.lost_for: list[str] = []
        self.is_lost = trio.Event()

    def connected(self, wire: Any) -> None:
        raise AssertionError

    def received(self, data: bytes) -> None:
        raise AssertionError

    def lost(self, reason: str) -> None:
        self.lost_for.append(reason)
        self.is_lost.set()


def test_a_broker_whose_name_lookup_gets_no_thread_is_away(no_threads: None) -> None:
    reactor = TrioReactor(lambda what, error: None)
    endpoint = Endpoint()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(reactor.run)
            reactor.connect(("broker.example", 9092), endpoint)
            with trio.fail_after(5):
                await endpoint.is_lost.wait()
            nursery.cancel_scope.cancel()

    trio.run(run)
    assert len(endpoint.lost_for) == 1


def a_server_settings(tmp_path: Path) -> Settings:
    return Settings((("127.0.0.1", 1),), (Listener("one", "127.0.0.1", 0, 0),), data_directory=tmp_path)


def a_server(tmp_path: Path, said: list[Any], load: Callable[[], Settings] | None = None) -> Server:
    settings = Settings((("127.0.0.1", 1),), (Listener("one", "127.0.0.1", 0, 0),), data_directory=tmp_path)
    return Server(settings, said.append, load=load)


def test_checkpoints_that_cannot_be_written_for_want_of_a_thread_end_nothing(no_threads: None, tmp_path: Path) -> None:
    said: list[Any] = []
    server = a_server(tmp_path, said)
    trio.run(server._checkpoints.write)
    assert said
    server._directory.close()


def test_nor_does_a_reload(no_threads: None, tmp_path: Path) -> None:
    said: list[Any] = []
    server = a_server(tmp_path, said, lambda: server._settings)
    trio.run(server._reload)
    assert said
    server._directory.close()


@pytest.mark.trio
async def test_a_private_redis_that_gets_no_thread_to_start_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has died, and for a moment there is no thread to start it."""
    said: list[Any] = []
    monkeypatch.setattr("idemproxy.proxy.process.server.limits.LEASE_RENEW_SECONDS", 0.01)
    server = a_server(tmp_path, said)
    tries = 0

    async def no_thread(*_: Any, **__: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            server._stop.set()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(trio.to_thread, "run_sync", no_thread)
    with trio.fail_after(5):
        await server._keep_redis()
    assert tries == 3
    server._directory.close()


def test_a_private_redis_whose_launch_hangs_is_an_error_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine pages, or its disk hangs: what has killed the server, too. Its caller tries again."""
    run = subprocess.run

    def hang(command: list[str], **options: Any) -> Any:
        if "pass_fds" in options:
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(EmbeddedRedisError):
        EmbeddedRedis(tmp_path / "redis", 0.1).start()


def test_nor_does_a_reload_of_all_workers(no_threads: None, tmp_path: Path) -> None:
    said: list[Any] = []
    supervisor = Supervisor(a_server_settings(tmp_path), 2, None, {}, said.append)
    trio.run(supervisor._reload)
    assert said
    supervisor._clean_up()
