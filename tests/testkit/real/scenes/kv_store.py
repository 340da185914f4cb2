"""examples/kv_store.py under fire: nodes as processes, clients as threads, the answers of each as a history, and an
existing checker (porcupine, built with Go) that says whether it is linearizable."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

from kafka import KafkaProducer

from idemproxy.demo.jars import cache_lock
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from testkit.real.proxies.proxy_process import wait_until

ROOT = Path(__file__).resolve().parents[4]
_EXAMPLE = ROOT / "examples" / "kv_store.py"
_CHECKER = ROOT / "tests" / "linearizability"
_BUILD_SECONDS_MAX = 300
_ANSWER_SECONDS_MAX = 8.0


def checker_program() -> Path:
    """Return the checker's path; it is built at the first call."""
    files = sorted(one for one in _CHECKER.iterdir() if one.suffix in (".go", ".mod", ".sum"))
    identity = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    program = ROOT / ".cache" / "linearizability" / identity / "linearizability"
    with cache_lock("linearizability"):
        if not program.exists():
            go = shutil.which("go")
            assert go is not None, "Go builds the checker of histories"
            fresh = program.with_suffix(".new")
            command = [go, "build", "-trimpath", "-o", os.fspath(fresh), "."]
            subprocess.run(command, cwd=_CHECKER, check=True, timeout=_BUILD_SECONDS_MAX)
            fresh.rename(program)
    return program


def check(history: Path, seconds: int) -> str:
    """Return what the checker says of a history; raises AssertionError if that is anything but linearizable."""
    command = [os.fspath(checker_program()), os.fspath(history), str(seconds), os.fspath(history.with_suffix(".html"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout.strip()


class Nodes:
    """Processes of the example. A context manager."""

    def __init__(self, directory: Path, bootstrap: str, topic: str, shards: int, count: int) -> None:
        self.ports = free_ports(count)
        self._directory = directory
        self._arguments = (bootstrap, topic, str(shards))
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Nodes:
        self._running = [self._start(index) for index in range(len(self.ports))]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def _start(self, index: int) -> subprocess.Popen[bytes]:
        listen = f"{HOST}:{self.ports[index]}"
        with (self._directory / f"node-{index}.log").open("ab") as log:
            command = [sys.executable, os.fspath(_EXAMPLE), f"node-{index}", *self._arguments, listen]
            return subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, index: int) -> None:
        """As if its machine had lost its power."""
        self._running[index].kill()
        self._running[index].wait()

    def start(self, index: int) -> None:
        """It begins again, with nothing but the log."""
        self._running[index] = self._start(index)

    def stop(self, index: int) -> None:
        """It stands still, and takes itself for the leader when it resumes."""
        self._running[index].send_signal(signal.SIGSTOP)

    def go_on(self, index: int) -> None:
        self._running[index].send_signal(signal.SIGCONT)


@dataclass(slots=True)
class Told:
    """One operation in the history, as the checker reads it. Times in ns."""

    client: int
    op: str
    key: str
    value: str
    expected: str | None
    call_ns: int
    return_ns: int = 0
    result: str | None = None
    done: bool = False
    unknown: bool = True


class Users:
    """Threads that put, get and compare and swap a few keys, and note the answers. ``led_by``: by conditional
    partition, the node that last did something."""

    def __init__(self, nodes: Nodes, shards: int, count: int, keys: int, seed: int) -> None:
        self.history: list[Told] = []
        self.led_by = [0] * shards
        self._nodes = nodes
        self._keys = [f"key-{number}" for number in range(keys)]
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(number, Random(seed + number)), daemon=True)
            for number in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Let each end what it is at."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(60.0)
            assert not thread.is_alive()

    def write(self, path: Path) -> None:
        lines = [json.dumps({name: getattr(one, name) for name in Told.__slots__}) for one in self.history]
        path.write_text("".join(f"{line}\n" for line in lines))

    @property
    def told(self) -> int:
        return sum(not one.unknown for one in self.history)

    # ------------------------------------------------------------------ one of them
    def _work(self, number: int, random: Random) -> None:
        lines: dict[int, socket.socket] = {}
        values: dict[str, str | None] = {}
        count = 0
        while not self._is_over.is_set():
            count += 1
            key = random.choice(self._keys)
            op = random.choice(("put", "get", "cas"))
            told = Told(number, op, key, f"{number}/{count}", values.get(key) if op == "cas" else None, time.time_ns())
            self._ask(told, lines, random)
            values[key] = told.value if told.done and op != "get" else told.result
        for line in lines.values():
            line.close()

    def _ask(self, told: Told, lines: dict[int, socket.socket], random: Random) -> None:
        """One operation at one node after the other, until it has an outcome, or may have one."""
        shard = zlib.crc32(told.key.encode()) % len(self.led_by)
        node, leads = self.led_by[shard], random.random() < 0.02
        if leads:
            node = random.randrange(len(self._nodes.ports))  # there are two leaders for a moment
        operation: dict[str, Any] = {"op": told.op, "key": told.key, "value": told.value, "expected": told.expected}
        while not self._is_over.is_set():
            sent = False
            try:
                line = lines.get(node)
                if line is None:
                    line = lines[node] = socket.create_connection((HOST, self._nodes.ports[node]), 1.0)
                    line.settimeout(_ANSWER_SECONDS_MAX)
                sent = True
                line.sendall(json.dumps({**operation, "lead": leads}).encode() + b"\n")
                answer = json.loads(line.makefile("rb").readline())
            except (OSError, ValueError):
                if (broken := lines.pop(node, None)) is not None:
                    broken.close()
                node, leads = random.randrange(len(self._nodes.ports)), True
                if sent:
                    self.history.append(told)  # nobody knows
                    return
                self._is_over.wait(0.1)
                continue
            if "done" in answer:
                told.return_ns = time.time_ns()
                told.done, told.result, told.unknown = answer["done"], answer.get("result"), False
                if told.op != "get":
                    told.result = None
                self.led_by[shard] = node
                self.history.append(told)
                return
            leader = answer.get("leader")
            if leader is not None:
                node, leads = int(leader.removeprefix("node-")), False
            self._is_over.wait(0.05)


def wait_until_served(users: Users, seconds: float) -> None:
    """Until operations are done again."""
    before = users.told
    wait_until(lambda: users.told > before, "an operation is done", seconds)


def kill_leaders(nodes: Nodes, users: Users, random: Random, *, seconds: float, every: float) -> tuple[int, int]:
    """For so long kill the node that leads a conditional partition, or let it stand still for a moment. Return how
    often each was done."""
    kills = stops = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        leader = random.choice(users.led_by)
        if random.random() < 0.3:
            nodes.stop(leader)
            time.sleep(every * 0.6)
            nodes.go_on(leader)
            stops += 1
        else:
            nodes.kill(leader)
            time.sleep(every * 0.3)
            nodes.start(leader)
            kills += 1
        time.sleep(every * random.uniform(0.3, 0.6))
    return kills, stops


def write_past(cluster: LegacyCluster, place: tuple[str, int], *values: bytes) -> None:
    """Write to the broker itself."""
    producer = KafkaProducer(bootstrap_servers="{}:{}".format(*cluster.address(0)), enable_idempotence=False)
    for value in values:
        producer.send(place[0], value, partition=place[1]).get(30)
    producer.close()
