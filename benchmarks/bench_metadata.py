"""A broker dies in a large cluster: how long does a producer on another broker's partition wait?

``make bench``. Two scripted brokers (``slow_broker.py``) with 50,000 partitions in 1,000 topics; each leads half of
them. 700 producers, each with a topic of its own, have a record for the second one, which is killed. For some seconds
the first one still names it as the leader, then it says that there is none. Meanwhile one client asks for all topics
once a second. Prints the latencies of a witness, one record at a time to the first broker, and the longest step of
the event loop, by the clock and by its CPU (where the machine has other work only the latter says something), before /
after, and adds a line of JSON to ``benchmarks/results/metadata.jsonl``. ``--against COMMIT`` adds a proxy of that
commit's code."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import bench_stopped_follower as follower
from common import ROOT, extract, save
from loadgen import Connection, Load
from role import Role
from sides import PROXY_PORTS, Side, cpu_seconds
from slow_broker import HOST, SlowBroker

from idemproxy.codecs.headers import encode_request_header
from idemproxy.demo.ports import free_ports, neighbouring_ports
from testkit.real.store.redis_process import RedisProcess
from testkit.virtual import kafka_bytes as kafka

TOPICS = 1000
PARTITIONS = 50
PRODUCERS = 700
DEAD_PARTITION = 1
"""Of each topic. The witness sends to partition 0 of the first topic."""
RETRY_SECONDS = 0.1
STILL_NAMED_SECONDS = 8.0
NOTED_MS = 2.0
NAMES = [follower.TOPIC, *(f"topic-{number}" for number in range(1, TOPICS))]
_LONGEST = re.compile(r"^idemproxy_loop_step_longest_seconds ([0-9.e-]+)$", re.MULTILINE)


# ---------------------------------------------------------------------- in processes of their own
class LargeBroker(SlowBroker):
    """One of the two. SIGUSR1: the other one has left the cluster."""

    def __init__(self, ports: tuple[int, int], number: int) -> None:
        super().__init__(ports[number], PARTITIONS, 0.0)
        self._ports = ports
        self._pieces: dict[tuple[int, str], bytes] = {}
        self._alive: tuple[int, ...] = (0, 1)
        signal.signal(signal.SIGUSR1, lambda *_: self._leave())

    def _leave(self) -> None:
        self._alive = (0,)
        self._pieces.clear()

    def metadata(self, names: list[str] | None, version: int) -> bytes:
        """All topics, or some of them."""
        brokers = [(number, HOST, self._ports[number]) for number in self._alive]
        head = kafka.metadata_answer(version, brokers, "large", 0, [])[:-4]
        asked = NAMES if names is None else names
        return b"".join([head, struct.pack(">i", len(asked)), *(self._piece(version, name) for name in asked)])

    def _piece(self, version: int, name: str) -> bytes:
        piece = self._pieces.get((version, name))
        if piece is None:
            rows = []
            for index in range(PARTITIONS):
                leader = index % 2
                is_led = leader in self._alive
                rows.append((0 if is_led else 5, index, leader if is_led else -1, (0, 1), (0,)))
            empty = len(kafka.metadata_answer(version, [], "", 0, []))
            piece = kafka.metadata_answer(version, [], "", 0, [(0, name, rows)])[empty:]
            self._pieces[version, name] = piece
        return piece


def broker(number: int, first: int, second: int) -> None:
    """Serve until the end of the process."""
    one = LargeBroker((first, second), number)
    print("READY", flush=True)
    one.serve()


def witness(address: str) -> None:
    """Produce one record after the other; write when each was done, how long it took, and how many connections were
    lost meanwhile."""
    rows: list[tuple[float, float, int]] = []

    def end(*_: object) -> None:
        print(json.dumps(rows), flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    load = follower.load_to(address, 1, 0, 1)
    connection: Connection | None = Connection(load, 0)
    print("READY", flush=True)
    while True:
        begun, losses, is_done = time.perf_counter(), 0, False
        while not is_done:
            try:
                connection = connection or Connection(load, 0)
                connection.send()
                connection.socket.setblocking(True)
                while not (codes := connection.answers()):
                    pass
                is_done = codes[0] == 0
            except (OSError, AssertionError):
                is_done = False
            if not is_done:
                connection, losses = None, losses + 1
                time.sleep(RETRY_SECONDS)
        rows.append((time.time(), time.perf_counter() - begun, losses))
        time.sleep(follower.PAUSE_SECONDS)


class Others:
    """The producers: each sends a record again until it is taken, then the next one. And who asks for everything."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._place = host, int(port)
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, Connection, bool]] = []

    def begin(self, index: int, at: float) -> None:
        """One more producer."""
        load = Load(*self._place, NAMES[1 + index % (TOPICS - 1)], 1, True, first_partition=DEAD_PARTITION)
        connection = Connection(load, index)
        self._selector.register(connection.socket, selectors.EVENT_READ, (connection, index))
        self._due.append((at, connection, False))

    def run(self) -> None:
        """Until the end of the process."""
        begun = time.perf_counter()
        for index in range(PRODUCERS):
            self.begin(index, begun + 2 + index / PRODUCERS)
        asking = socket.create_connection(self._place)
        self._selector.register(asking, selectors.EVENT_READ)
        question = encode_request_header(kafka.METADATA, 1, 1, "everything") + struct.pack(">i", -1)
        print("READY", flush=True)
        next_question = 0.0
        while True:
            now = time.perf_counter()
            if now >= next_question:
                asking.sendall(struct.pack(">i", len(question)) + question)
                next_question = now + 1
            due, self._due = self._due, []
            for one in due:
                if one[0] > now:
                    self._due.append(one)
                else:
                    with suppress(OSError):  # it is lost: seen when its answer is read
                        one[1].send_again() if one[2] else one[1].send()
            for key, _ in self._selector.select(0.02):
                if key.data is None:
                    asking.recv(1 << 20)
                else:
                    self._take(*key.data)

    def _take(self, connection: Connection, index: int) -> None:
        now = time.perf_counter()
        try:
            for code in connection.answers():
                self._due.append((now + (RETRY_SECONDS if code else 1.0), connection, bool(code)))
        except OSError:
            self._selector.unregister(connection.socket)
            connection.socket.close()
            with suppress(OSError, AssertionError):
                self.begin(index, now + RETRY_SECONDS)


def watched_proxy(report: str, arguments: list[str]) -> None:
    """A proxy that writes down which steps of its event loop took much CPU: when, and how many ms."""
    transport = importlib.import_module("idemproxy.proxy.net.event_loop")
    shipped, begun = transport.TrioReactor.end_pass, time.thread_time()

    def end_pass(reactor: object) -> None:
        nonlocal begun
        shipped(reactor)
        took_ms, begun = 1000 * (time.thread_time() - begun), time.thread_time()
        if took_ms >= NOTED_MS:
            with Path(report).open("a") as file:
                file.write(f"{time.time()} {took_ms}\n")

    def first_end_pass(reactor: object) -> None:
        """What was done before the loop began does not count."""
        nonlocal begun
        shipped(reactor)
        begun, transport.TrioReactor.end_pass = time.thread_time(), end_pass

    transport.TrioReactor.end_pass = first_end_pass
    sys.argv = ["idemproxy", "run", *arguments]
    runpy.run_module("idemproxy", run_name="__main__")


# ---------------------------------------------------------------------- the bench
@contextmanager
def proxy(name: str, tree: Path, directory: Path, arguments: list[str]) -> Iterator[Side]:
    """A proxy that runs the code below ``tree``, watched."""
    port = neighbouring_ports(PROXY_PORTS)
    command = [sys.executable, __file__, "--role", "proxy", str(directory / "steps"), "--listen", f"{HOST}:{port}"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    with (directory / "log").open("w+") as log, RedisProcess(directory, port=free_ports(1)[0]) as redis:
        command += ["--data-directory", str(directory / "data"), "--redis", f"redis://{HOST}:{redis.port}", *arguments]
        with subprocess.Popen(command, stderr=log, env=environment) as process:
            try:
                while "point clients at" not in Path(log.name).read_text():
                    assert process.poll() is None, Path(log.name).read_text()
                    time.sleep(0.05)
                yield Side(name, f"{HOST}:{port}", process.pid, True)
            finally:
                process.kill()


def longest_step_ms(admin: str) -> float:
    """In the last one to two minutes."""
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=30) as answer:
        found = _LONGEST.search(answer.read().decode())
    return round(1000 * float(found[1]), 1) if found else -1.0


def longest_cpu_ms(steps_file: Path, begun: float, ended: float) -> float:
    """The CPU of the longest step between two times; 0 where all were short."""
    rows = (
        [list(map(float, line.split())) for line in steps_file.read_text().splitlines()] if steps_file.exists() else []
    )
    return round(max((took_ms for at, took_ms in rows if begun <= at < ended), default=0.0), 1)


def measure(side: Side, admin: str, steps_file: Path, brokers: list[Role], options: argparse.Namespace) -> object:
    """Quiet, then with one broker dead."""
    with ExitStack() as stack:
        Role(stack, __file__, "others", side.address)
        witness = Role(stack, __file__, "witness", side.address)
        longest_step_ms(admin)  # the first answer of the admin port takes longer
        time.sleep(4.0)
        begun, cpu_begun = time.time(), cpu_seconds(side.process_id)
        time.sleep(options.quiet)
        died_at, cpu_died = time.time(), cpu_seconds(side.process_id)
        steps = [longest_step_ms(admin)]
        brokers[1].process.kill()
        time.sleep(STILL_NAMED_SECONDS)
        brokers[0].process.send_signal(signal.SIGUSR1)
        time.sleep(options.dead - STILL_NAMED_SECONDS)
        ended, cpu_ended = time.time(), cpu_seconds(side.process_id)
        steps.append(longest_step_ms(admin))
        rows = witness.rows()
    quiet = [1000 * seconds for at, seconds, _ in rows if begun <= at - seconds and at < died_at]
    beside = [1000 * seconds for at, seconds, _ in rows if died_at <= at and at - seconds < ended]
    return {
        "quiet_count": len(quiet),
        "quiet_p50_ms": follower.share(quiet, 0.5),
        "quiet_p99_ms": follower.share(quiet, 0.99),
        "quiet_longest_step_ms": steps[0],
        "quiet_longest_step_cpu_ms": longest_cpu_ms(steps_file, begun, died_at),
        "quiet_cores": round((cpu_died - cpu_begun) / (died_at - begun), 2),
        "dead_count": len(beside),
        "dead_p50_ms": follower.share(beside, 0.5),
        "dead_p99_ms": follower.share(beside, 0.99),
        "dead_longest_ms": [round(one) for one in sorted(beside, reverse=True)[: follower.LONGEST_COUNT]],
        "dead_connections_lost": sum(losses for at, _, losses in rows if died_at <= at),
        "dead_longest_step_ms": steps[1],
        "dead_longest_step_cpu_ms": longest_cpu_ms(steps_file, died_at, ended),
        "start_longest_step_cpu_ms": longest_cpu_ms(steps_file, 0, begun),
        "dead_cores": round((cpu_ended - cpu_died) / (ended - died_at), 2),
        "p99_ratio": round(follower.share(beside, 0.99) / follower.share(quiet, 0.99), 2),
    }


def main() -> None:
    """Run on all sides in turn, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quiet", type=float, default=10)
    parser.add_argument("--dead", type=float, default=30)
    parser.add_argument("--against", metavar="COMMIT", help="a proxy of this commit's code as well")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    parser.add_argument("--role", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        what, *rest = options.role
        if what == "broker":
            broker(*map(int, rest))
        elif what == "proxy":
            watched_proxy(rest[0], rest[1:])
        else:
            witness(rest[0]) if what == "witness" else Others(rest[0]).run()
        return
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        trees = {"after": ROOT}
        if options.against:
            trees["before"] = extract(options.against, Path(directory) / "code")
        for number in range(options.rounds):
            for name, tree in trees.items():
                first, second, admin = free_ports(3)
                with ExitStack() as stack:
                    brokers = [Role(stack, __file__, "broker", str(one), str(first), str(second)) for one in (0, 1)]
                    where = Path(directory) / f"{name}-{number}"
                    where.mkdir()
                    config = where / "config.yaml"
                    config.write_text("limits: {connections_per_ip_max: 0}\n")
                    words = [
                        "--config",
                        str(config),
                        "--admin-bind",
                        f"{HOST}:{admin}",
                        "--upstream",
                        f"{HOST}:{first}",
                    ]
                    side = stack.enter_context(proxy(name, tree, where, words))
                    found = measure(side, f"{HOST}:{admin}", where / "steps", brokers, options)
                assert isinstance(found, dict)
                rows.append({"side": name, **found})
                print(json.dumps(rows[-1]), flush=True)
    if not options.dry:
        sizes = {"topics": TOPICS, "partitions": TOPICS * PARTITIONS, "producers": PRODUCERS}
        save("metadata", {"before": options.against, **sizes, "rows": rows})


if __name__ == "__main__":
    main()
