"""Those who take requests in the benchmarks: a proxy of this code or of another commit's, a relay that only passes
bytes, a broker that costs nothing. Each is a process of its own, ended at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compiled import compiled

from idemproxy.demo.ports import HOST, free_ports, neighbouring_ports

_HERE = Path(__file__).parent
PROXY_PORTS = 3
"""The bootstrap port, and one for each of up to two brokers."""


def cpu_seconds(process_id: int) -> float:
    """User and system time of a process and its threads."""
    threads = Path(f"/proc/{process_id}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


@dataclass(frozen=True)
class Side:
    """Somebody who takes requests. ``is_proxied``: speaks Produce 3 with producer ids."""

    name: str
    address: str
    process_id: int
    is_proxied: bool
    redis_process_id: int = 0
    """The one that a proxy has started for itself."""


@contextmanager
def proxy(
    name: str,
    tree: Path,
    upstream: str,
    directory: Path,
    options: tuple[str, ...] = (),
    program: tuple[str, ...] = ("-m", "idemproxy"),
) -> Iterator[Side]:
    """A proxy that runs the code below ``tree``, with a data directory of its own."""
    port = neighbouring_ports(PROXY_PORTS)
    command = [
        sys.executable, *program, "run", "--upstream", upstream, "--listen", f"127.0.0.1:{port}",
        "--data-directory", str(directory / name), *options,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    with (
        (directory / f"{name}.log").open("w+") as log,
        subprocess.Popen(command, stderr=log, env=environment) as process,
    ):
        try:
            while "point clients at" not in Path(log.name).read_text():
                assert process.poll() is None, Path(log.name).read_text()
                time.sleep(0.05)
            started = directory / name / "redis" / "redis.pid"
            redis = int(started.read_text()) if started.exists() else 0
            yield Side(name, f"127.0.0.1:{port}", process.pid, True, redis)
        finally:
            process.terminate()


@contextmanager
def tick(upstream: str) -> Iterator[Side]:
    """What trio and Python cost at least: bytes from one socket to the other."""
    port = free_ports(1)[0]
    with _ready(sys.executable, str(_HERE / "tick.py"), str(port), upstream) as process_id:
        yield Side("tick", f"{HOST}:{port}", process_id, False)


@contextmanager
def sink(partitions: int) -> Iterator[Side]:
    """A broker that costs next to nothing: ``sink.c``, where it can be compiled."""
    port = free_ports(1)[0]
    program = compiled("sink")
    if program is not None:
        command = [str(program), str(port), str(partitions)]
    else:
        command = [sys.executable, str(_HERE / "slow_broker.py"), str(port), str(partitions), "0"]
    with _ready(*command) as process_id:
        yield Side("direct", f"{HOST}:{port}", process_id, False)


@contextmanager
def neighbours() -> Iterator[None]:
    """A program on each core that spins when nobody else wants it: else a machine that sleeps between two requests is
    measured."""
    spin = "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@contextmanager
def _ready(*command: str) -> Iterator[int]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "READY\n"
            yield process.pid
        finally:
            process.kill()
