"""The oldest Python that is supported: the wheel is installed there by itself and serves a real producer in front of a
real broker, and some of the tests run there. ``make smoke``; a minute or two.

The interpreter is the oldest one of this machine that ``requires-python`` admits. Which one that is gets printed, and a
machine without one of the oldest minor version gets an error message and fails: nothing is passed over in silence."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from confluent_kafka import Producer

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.segments import read_partition
from testkit.real.proxies.proxy_process import ProxyProcess

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 2_000
TESTS = (
    "tests/unit/repository/test_packaging.py",
    "tests/unit/commands/test_main.py",
    "tests/unit/commands/test_check.py",
    "tests/unit/codecs/test_packages.py",
    "tests/unit/codecs/test_messages.py",
    "tests/unit/codecs/test_convert.py",
    "tests/unit/telemetry/test_reports.py",
    "tests/integration/store/test_redis_server.py",
    "tests/integration/store/test_redis_store.py",
)
"""Where the interpreter and what comes with it matter: imports, archives, processes, compiled modules, TLS, files."""
_COMMAND_SECONDS_MAX = 300.0
_NAMES = re.compile(r"python3?(\.\d+)?$")

Version = tuple[int, int, int]


def bound(pyproject: Path = ROOT / "pyproject.toml") -> Version:
    """Return the oldest version that ``requires-python`` admits."""
    said = tomllib.loads(pyproject.read_text())["project"]["requires-python"]
    found = re.fullmatch(r">=(\d+)\.(\d+)\.(\d+)", said)
    assert found is not None, f"a bound with three numbers is wanted, so that it can be tried, not {said}"
    return int(found[1]), int(found[2]), int(found[3])


def interpreters(folders: Iterable[str]) -> Mapping[Path, Version]:
    """Return the Pythons in these folders, each program once, with their versions."""
    found: dict[Path, Version] = {}
    for folder in folders:
        for path in sorted(Path(folder).glob("python*")):
            if _NAMES.match(path.name) and (version := _version_of(path)) is not None:
                found.setdefault(path.resolve(), version)
    return found


def _version_of(path: Path) -> Version | None:
    program = "import sys; print(*sys.version_info[:3])"
    try:
        said = subprocess.run([path, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    major, minor, micro = map(int, said.stdout.split())
    return major, minor, micro


def choose(found: Mapping[Path, Version], least: Version) -> tuple[Path | None, str]:
    """Return the oldest one that is supported, and a sentence about it; None where its minor version is not there."""
    wanted = ".".join(map(str, least))
    supported = sorted((version, path) for path, version in found.items() if version >= least)
    if not supported or supported[0][0][:2] != least[:2]:
        shown = ", ".join(f"{path} ({'.'.join(map(str, version))})" for path, version in found.items()) or "none"
        minor = ".".join(map(str, least[:2]))
        return (
            None,
            f"no Python {minor} from {wanted} on is here to try; there are: {shown}. SMOKE_PYTHON=... names one",
        )
    version, path = supported[0]
    shown = f"Python {'.'.join(map(str, version))} ({path})"
    if version == least:
        return path, f"the oldest supported one is tried: {shown}"
    return path, f"NOT the oldest supported one ({wanted}), which this machine does not have, but {shown} is tried"


def _run(*command: str | Path, environment: Mapping[str, str] = os.environ) -> str:
    """Return what a command says. Raises AssertionError with all of it when it fails."""
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_COMMAND_SECONDS_MAX
    )
    assert ended.returncode == 0, f"{command}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def _plain_environment() -> dict[str, str]:
    """What a user has: nothing of the tools' own environment leads to other packages."""
    ours = ("PYTHON", "UV_", "VIRTUAL_ENV", "IDEMPROXY")
    kept = {"UV_CACHE_DIR", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_OFFLINE"}
    return {name: value for name, value in os.environ.items() if name in kept or not name.startswith(ours)}


def install(uv: str, python: Path, folder: Path) -> Path:
    """Install the wheel with the locked versions of what it needs; return the environment's interpreter."""
    environment = _plain_environment()
    _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    (wheel,) = folder.glob("*.whl")
    constraints = folder / "constraints.txt"
    shown = ("--no-dev", "--no-emit-project", "--no-hashes", "--quiet", "--output-file", constraints)
    _run(uv, "export", "--frozen", *shown, environment=environment)
    home = folder / "environment"
    _run(uv, "venv", "--quiet", "--no-project", "--python", python, home, environment=environment)
    there = home / "bin" / "python"
    _run(uv, "pip", "install", "--quiet", "--python", there, "-c", constraints, wheel, environment=environment)
    return there


def serve(python: Path, folder: Path) -> None:
    """The command answers, and a proxy of this interpreter serves an idempotent producer. Raises AssertionError."""
    command = python.parent / "idemproxy"
    print(_run(command, "--version", environment=_plain_environment()).strip(), flush=True)
    _run(command, "check", environment=_plain_environment() | {"IDEMPROXY_UPSTREAM__BOOTSTRAP": "kafka:9092"})
    with LegacyCluster(folder / "kafka") as cluster:
        cluster.create_topic("smoke", 1)
        with ProxyProcess(folder / "proxy", cluster.address(0), python=python) as proxy:
            failed: list[str] = []
            host, port = proxy.address
            settings = {
                "bootstrap.servers": f"{host}:{port}",
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 3,
            }
            producer = Producer(settings)
            for number in range(RECORDS):
                producer.produce(
                    "smoke", b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None
                )
                producer.poll(0)
            assert (producer.flush(60), failed) == (0, []), proxy.log
            assert proxy.stop() == 0, proxy.log
        stored = [record.value for record in read_partition(cluster.log_directories[0], "smoke", 0)]
    assert stored == [b"%d" % number for number in range(RECORDS)]
    print(f"{RECORDS} records of an idempotent producer are in the log, once and in order", flush=True)


def main() -> int:
    """Return 0 when all of it works."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", nargs="?", help="the interpreter (default: the oldest supported one of this machine)")
    named = parser.parse_args().python
    begun = time.monotonic()
    if named:
        version = _version_of(Path(named))
        found = {Path(named): version} if version is not None else {}
    else:
        found = dict(interpreters([*os.get_exec_path(), "/usr/local/bin", "/usr/bin"]))
    python, sentence = choose(found, bound())
    print(f"smoke test: {sentence}", flush=True)
    if python is None:
        return 1
    uv = os.environ.get("UV", "uv")
    with tempfile.TemporaryDirectory(prefix="smoke-") as name:
        serve(install(uv, python, Path(name)), Path(name))
    environment = _plain_environment() | {"UV_PROJECT_ENVIRONMENT": os.fspath(ROOT / ".cache" / "oldest")}
    tests = [uv, "run", "--frozen", "--python", os.fspath(python), "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    status = subprocess.run(tests, cwd=ROOT, env=environment).returncode
    print(
        f"smoke test: {'passed' if status == 0 else 'FAILED'} on {python} after {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    return status


if __name__ == "__main__":
    raise SystemExit(main())
