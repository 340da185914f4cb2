"""What a proxy keeps: its memory after the start, after loads of several kinds, and a minute after each.

Adds a line of JSON to ``benchmarks/results/idle_memory.jsonl``. Every side is one real proxy in front of one real
broker (for the large cluster: in front of one that only answers Metadata), which goes through all loads in turn; the
figures are the resident memory (VmRSS) in MB, which counts the files of Python and of libraries that are mapped.
``--against COMMIT`` adds a proxy of that commit's code, for before and after in one run."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from common import ROOT, extract, save
from loads import PARTITIONS, Case, measure
from redis import Redis
from sides import Side, cpu_seconds, proxy

from idemproxy.codecs import messages
from idemproxy.codecs.headers import encode_request_header, parse_request_header
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.process_memory import resident_bytes

TARGET_IDLE_MB, TARGET_RETURN_MB = 60, 20
_METADATA, _API_VERSIONS = 3, 18
_QUIESCENCE_SECONDS = 15.0
_FOUND: dict[int, tuple[int, int]] = {0: (0, 2), 1: (0, 3), 2: (0, 1), _METADATA: (0, 2), _API_VERSIONS: (0, 0)}
_TOPICS, _PARTITIONS_EACH = 1_000, 50

MEGABYTE_BATCHES = Case("1 MB batches, 8 connections", 8, 1, 1000, 950)
SMALL_BATCHES = Case("one record, 50 connections", 50, 1, 100, 1)
COMPRESSED = Case("gzip of 32 MB in a batch, 6 connections", 6, 1, 32 << 20, 1, "gzip")
MANY = Case("2,000 producers, each on a connection", 2_000, 1, 100, 1)
FLUSHED = "20 producers go on after Redis was emptied"


def memory_mb(process_id: int) -> float:
    """Resident memory of a process."""
    return round(resident_bytes(process_id) / 2**20, 1)


@dataclass
class Measured:
    """One proxy. ``rows``: of each load the memory at its end, and later."""

    side: Side
    data_directory: Path
    start_cpu_seconds: float
    start_mb: float = 0.0
    rows: dict[str, list[float]] = field(default_factory=dict)


def load(case: Case, seconds: float = 5) -> Callable[[Side], None]:
    """Return what runs this load against a side."""

    def run(side: Side) -> None:
        answer = measure(case, side, seconds)
        print("   ", case.name, side.name, answer, flush=True)

    return run


def go_on_without_state(measured: Sequence[Measured]) -> Callable[[Side], None]:
    """Return what has 20 producers send batches, empties the private Redis of the side, and has them continue: what
    they had sent is looked for in the logs."""
    directories = {one.side.name: one.data_directory for one in measured}

    def run(side: Side) -> None:
        host, port = side.address.split(":")
        wait = threading.Barrier(20)

        def produce(number: int) -> int:
            client = RawClient((host, int(port)))
            producer_id = client.new_producer_id()
            reconnects = 0
            for sequence in range(0, 320, 16):
                if sequence == 160 and wait.wait() == 0:
                    Redis(unix_socket_path=(directories[side.name] / "redis" / "redis.socket").read_text()).flushall()
                values = [b"v" * 1024] * 16
                records = batch(values, producer_id=producer_id, sequence=sequence)
                while True:
                    try:
                        answer = client.produce_one("bench", number % PARTITIONS, records)
                    except OSError:
                        reconnects += 1
                        time.sleep(0.2)
                        client = RawClient((host, int(port)))
                        continue
                    if answer.error_code == 0:
                        break
                    time.sleep(0.2)
            client.close()
            return reconnects

        with ThreadPoolExecutor(20) as producers:
            print("   ", FLUSHED, side.name, "connected again", sum(producers.map(produce, range(20))), flush=True)

    return run


def ask_for_all(side: Side, connections: int, times: int) -> None:
    """Ask for the whole cluster on many connections that are open at once, several times on each."""
    host, port = side.address.split(":")
    body = messages.encode_request(_METADATA, 1, topics=None)
    request = encode_request_header(_METADATA, 1, 1, "bench") + body
    clients = [socket.create_connection((host, int(port)), 60) for _ in range(connections)]
    received = 0
    for _ in range(times):
        for client in clients:
            client.sendall(len(request).to_bytes(4, "big") + request)
        for client in clients:
            with client.makefile("rb") as answers:
                received += len(answers.read(int.from_bytes(answers.read(4), "big")))
    for client in clients:
        client.close()
    print("    metadata", side.name, received, "bytes", flush=True)


@contextmanager
def large_cluster() -> Iterator[str]:
    """Return the address of a broker that leads 50,000 partitions and answers nothing but questions about them."""
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        listening.listen(16)
        port = listening.getsockname()[1]
        topics = [
            {
                "error_code": 0, "name": f"topic-{number:04}", "is_internal": False, "partitions": [
                    {"error_code": 0, "partition_index": index, "leader_id": 0, "replica_nodes": [0], "isr_nodes": [0]}
                    for index in range(_PARTITIONS_EACH)
                ],
            }
            for number in range(_TOPICS)
        ]  # fmt: skip
        broker = {"node_id": 0, "host": HOST, "port": port, "rack": None}
        all_of_them = {
            version: messages.encode_response(
                _METADATA, version, brokers=[broker], cluster_id="large", controller_id=0, topics=topics
            )
            for version in range(3)
        }
        apis = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in _FOUND.items()]
        versions = messages.encode_response(_API_VERSIONS, 0, error_code=0, api_keys=apis)

        def serve(connection: socket.socket) -> None:
            with connection, connection.makefile("rb") as requests:
                while size := requests.read(4):
                    header = parse_request_header(requests.read(int.from_bytes(size, "big")))
                    answer = versions if header.api_key == _API_VERSIONS else all_of_them[header.api_version]
                    payload = header.correlation_id.to_bytes(4, "big") + answer
                    connection.sendall(len(payload).to_bytes(4, "big") + payload)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"{HOST}:{port}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)


def start(
    stack: ExitStack, trees: dict[str, Path], upstream: str, directory: Path, options: tuple[str, ...] = ()
) -> list[Measured]:
    """Start a proxy of every tree, and measure it once it is quiet."""
    directory.mkdir()
    measured = []
    for name, tree in trees.items():
        side = stack.enter_context(proxy(name, tree, upstream, directory, options))
        measured.append(Measured(side, directory / name, round(cpu_seconds(side.process_id), 2)))
    time.sleep(_QUIESCENCE_SECONDS)
    for one in measured:
        one.start_mb = memory_mb(one.side.process_id)
        print(one.side.name, options, "start", one.start_mb, "MB,", one.start_cpu_seconds, "s of CPU", flush=True)
    return measured


def go_through(measured: Sequence[Measured], name: str, run: Callable[[Side], None], pause: float) -> None:
    """Put one load on every proxy, wait for all of them together, and note what they hold."""
    ends = {}
    for one in measured:
        run(one.side)
        ends[one.side.name] = memory_mb(one.side.process_id)
    time.sleep(pause)
    for one in measured:
        one.rows[name] = [ends[one.side.name], memory_mb(one.side.process_id)]
        print(f"{name}: {one.side.name}: {one.rows[name]}", flush=True)


def main() -> None:
    """Start the brokers and the proxies, put all loads on them, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pause", type=float, default=60, help="seconds between a load and the second look")
    parser.add_argument("--against", metavar="COMMIT", help="a proxy of this commit's code as well")
    parser.add_argument("--load", action="append", type=int, help="only these")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    options = parser.parse_args()
    os.environ["IDEMPROXY_LIMITS__CONNECTIONS_PER_IP_MAX"] = str(2 * MANY.connections)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trees = {"proxied": ROOT}
        if options.against:
            trees["before"] = extract(options.against, directory / "before")
        cluster = stack.enter_context(LegacyCluster(directory / "kafka"))
        cluster.create_topic("bench", PARTITIONS, 1)
        plain = start(stack, trees, cluster.bootstrap, directory / "plain")
        with ExitStack() as with_admin:
            shown = []
            for name, tree in trees.items():
                admin = ("--admin-bind", f"{HOST}:{free_ports(1)[0]}")
                shown += start(with_admin, {name: tree}, cluster.bootstrap, directory / f"admin-{name}", admin)
        asked = partial(ask_for_all, connections=MANY.connections, times=2)
        go_through(plain, "2,000 connections that ask for metadata", asked, options.pause)
        cases = (SMALL_BATCHES, MEGABYTE_BATCHES, COMPRESSED, MANY)
        for case in [cases[number] for number in options.load or range(len(cases))]:
            go_through(plain, case.name, load(case), options.pause)
        go_through(plain, FLUSHED, go_on_without_state(plain), options.pause)
        large = start(stack, trees, stack.enter_context(large_cluster()), directory / "large")
        go_through(
            large,
            "all of 50,000 partitions, asked for 250 times",
            partial(ask_for_all, connections=50, times=5),
            options.pause,
        )
    figures = {
        one.side.name: {
            "start_mb": one.start_mb,
            "start_cpu_seconds": one.start_cpu_seconds,
            "with_admin_start_mb": with_it.start_mb,
            "with_admin_start_cpu_seconds": with_it.start_cpu_seconds,
            "after_load_and_later_mb": one.rows,
            "large_cluster": {"start_mb": huge.start_mb, "after_load_and_later_mb": huge.rows},
        }
        for one, with_it, huge in zip(plain, shown, large, strict=True)
    }
    print(json.dumps(figures, indent=2))
    if not options.dry:
        python = ".".join(map(str, sys.version_info[:3]))
        save("idle_memory", {"python": python, "pause_seconds": options.pause, "before": options.against, **figures})
    own = figures["proxied"]
    print("goal: idle", own["start_mb"], "<=", TARGET_IDLE_MB, "and later", "<=", TARGET_RETURN_MB, "above it")


if __name__ == "__main__":
    main()
