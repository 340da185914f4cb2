"""Memory of a proxy that is sent much: batches of 1 MB with 8 in flight, and whatever comes while its broker hangs.

Prints every figure and adds a line of JSON to ``benchmarks/results/memory.jsonl``. RSS is that of the proxy's own
process. In the second part ``limits.bytes_in_flight_max`` is set small, and a hundred clients send as fast as they are
let, every batch by another producer, and come again when they are hung up on. ``--against COMMIT`` does the same to a
proxy of that commit's code, which is left alone once it has taken ``STOP_AT_MB``."""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench_produce import proxy
from common import ROOT, extract, save
from crc32c import crc32c

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.headers import encode_request_header
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.demo.legacy_cluster import LegacyCluster

PARTITIONS = 12
LIMIT_MIB = 64
STOP_AT_MB = 2_000
CLIENTS = 100
IN_FLIGHT = 4
TIMEOUT_MS = 10_000
_CRC_AT, _CRC_FROM, _PRODUCER_ID_AT = 17, 21, 43
_MB = 1e6


def rss_mb(process_id: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024 / _MB
    raise AssertionError("no such line")


@dataclass
class Watch:
    """What a process takes, looked at twenty times a second."""

    process_id: int
    seen: list[float] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[Watch]:
        """Look until the end of the block."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.05):
                self.seen.append(rss_mb(self.process_id))

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()


def one_batch(ratio: int) -> bytes:
    """A record batch of gzip that unpacks to about so many times its size: 1 MB of text, or 60 MB of nothing."""
    if ratio < 100:
        chosen = random.Random(1)
        words = [bytes(chosen.choices(b"abcdefgh", k=12)) for _ in range(40)]
        values = [b" ".join(chosen.choices(words, k=75)) for _ in range(1_000)]
    else:
        values = [bytes(100_000)] * 600
    records = [Record(index, 1_700_000_000_000, None, value) for index, value in enumerate(values)]
    return encode_batch(records, producer_id=0, producer_epoch=0, base_sequence=0, codec=Codec.GZIP)


class Sender:
    """One client. Every request is a batch of another producer."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self.crowd = crowd
        self.number = number
        self.out = 0
        self.unsent = b""
        self._buffer = b""
        self.socket = socket.create_connection(crowd.address)
        self.socket.setblocking(False)

    def fill(self) -> None:
        """Send as much as there may be in flight."""
        while self.out < IN_FLIGHT and not self.unsent:
            self.unsent = self.crowd.request(self.number)
            self.out += 1
            self.write()

    def write(self) -> None:
        """Give the kernel what it takes."""
        with suppress(BlockingIOError):
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]

    def read(self) -> None:
        """Count answers."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionResetError
        self._buffer += data
        while len(self._buffer) >= 4 and len(self._buffer) >= 4 + (size := int.from_bytes(self._buffer[:4], "big")):
            self._buffer = self._buffer[4 + size :]
            self.out -= 1
            self.crowd.answers += 1


class Crowd:
    """Clients that send without mercy."""

    def __init__(self, address: str, topic: str, ratio: int, stop_at_mb: float, process_id: int) -> None:
        host, port = address.split(":")
        self.address = (host, int(port))
        self.requests = self.answers = self.hung_up_on = 0
        self._topic = topic.encode()
        self._batch = bytearray(one_batch(ratio))
        self._ids = self._producer_ids(4_000)
        self._stop_at_mb = stop_at_mb
        self._process_id = process_id

    @property
    def batch_bytes(self) -> int:
        """Of one, as it is sent."""
        return len(self._batch)

    def request(self, number: int) -> bytes:
        """The first batch of the next producer."""
        self.requests += 1
        batch = self._batch
        struct.pack_into(">q", batch, _PRODUCER_ID_AT, self._ids[self.requests % len(self._ids)])
        struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[_CRC_FROM:]))
        body = b"\xff\xff" + struct.pack(">hiih", -1, TIMEOUT_MS, 1, len(self._topic)) + self._topic
        body += struct.pack(">iii", 1, (number + self.requests) % PARTITIONS, len(batch)) + batch
        frame = encode_request_header(0, 3, self.requests, "bench") + body
        return struct.pack(">i", len(frame)) + frame

    def run(self, seconds: float) -> None:
        """Send for so long."""
        with selectors.DefaultSelector() as selector:
            senders = [Sender(self, number) for number in range(CLIENTS)]
            for sender in senders:
                selector.register(sender.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, sender)
            end = time.monotonic() + seconds
            while time.monotonic() < end and rss_mb(self._process_id) < self._stop_at_mb:
                for key, events in selector.select(0.05):
                    sender = key.data
                    try:
                        if events & selectors.EVENT_READ:
                            sender.read()
                        sender.write()
                        sender.fill()
                    except ConnectionError:
                        self.hung_up_on += 1
                        selector.unregister(sender.socket)
                        sender.socket.close()
                        again = Sender(self, sender.number)
                        selector.register(again.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, again)
                        continue
                    wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if sender.unsent else 0)
                    if key.events != wanted:
                        selector.modify(sender.socket, wanted, sender)
            for key in list(selector.get_map().values()):
                key.data.socket.close()

    def _producer_ids(self, count: int) -> list[int]:
        with socket.create_connection(self.address) as asking:
            body = encode_request_header(22, 0, 1, "bench") + struct.pack(">hi", -1, 0)
            ids = []
            for _ in range(count):
                asking.sendall(struct.pack(">i", len(body)) + body)
                answer = b""
                while len(answer) < 24:
                    answer += asking.recv(24 - len(answer))
                ids.append(int(struct.unpack_from(">q", answer, 14)[0]))
        return ids


def load(address: str, seconds: float, connections: int, in_flight: int, records: int) -> dict[str, float]:
    """Run the ordinary load: batches of records of 1,000 bytes."""
    command = [
        sys.executable, str(Path(__file__).with_name("loadgen.py")), address, "bench", "--partitions", str(PARTITIONS),
        "--connections", str(connections), "--in-flight", str(in_flight), "--record-bytes", "1000", "--records",
        str(records), "--seconds", str(seconds), "--idempotent",
    ]  # fmt: skip
    answer = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()[-1])
    assert not answer["errors"], answer
    return {"requests_per_second": answer["requests"] / answer["seconds"]}


def large_batches(tree: Path, cluster: LegacyCluster, directory: Path, seconds: float) -> dict[str, object]:
    """1 MB batches, 8 in flight."""
    with proxy("large", tree, cluster.bootstrap, directory) as side:
        time.sleep(2)
        base = rss_mb(side.process_id)
        with Watch(side.process_id).running() as watch:
            figures = load(side.address, seconds, 4, 2, 990)
        return {
            "base_mb": round(base, 1),
            "median_mb": round(statistics.median(watch.seen), 1),
            "highest_mb": round(max(watch.seen), 1),
            "requests_per_second": round(figures["requests_per_second"], 1),
        }


def paused(tree: Path, cluster: LegacyCluster, directory: Path, ratio: int, seconds: float) -> dict[str, object]:
    """Everything that comes while the broker hangs. ``ratio``: what a batch unpacks to."""
    name = f"paused-{ratio}"
    os.environ["IDEMPROXY_LIMITS__BYTES_IN_FLIGHT_MAX"] = str(LIMIT_MIB << 20)
    os.environ["IDEMPROXY_LIMITS__UNANSWERED_BYTES_MAX"] = str(LIMIT_MIB << 20)
    try:
        with proxy(name, tree, cluster.bootstrap, directory) as side:
            load(side.address, 2, PARTITIONS, 1, 10)  # every partition has been produced to
            crowd = Crowd(side.address, "bench", ratio, STOP_AT_MB, side.process_id)
            time.sleep(2)
            base = rss_mb(side.process_id)
            cluster.pause_broker(0)
            try:
                with Watch(side.process_id).running() as watch:
                    crowd.run(seconds)
            finally:
                cluster.resume_broker(0)
            above = max(watch.seen) - base
            return {
                "batch_bytes": crowd.batch_bytes,
                "base_mb": round(base, 1),
                "highest_mb": round(max(watch.seen), 1),
                "above_base_to_limit": round(above / (LIMIT_MIB * (1 << 20) / _MB), 2),
                "requests": crowd.requests,
                "answers": crowd.answers,
                "hung_up_on": crowd.hung_up_on,
                "was_stopped": max(watch.seen) >= STOP_AT_MB,
            }
    finally:
        del os.environ["IDEMPROXY_LIMITS__BYTES_IN_FLIGHT_MAX"], os.environ["IDEMPROXY_LIMITS__UNANSWERED_BYTES_MAX"]


def main() -> None:
    """Start a broker, do everything to a proxy of each tree, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--against", metavar="COMMIT", help="a proxy of this commit's code as well")
    parser.add_argument("--only", choices=("large", "10", "1000"), action="append", help="only these parts")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    options = parser.parse_args()
    parts = options.only or ["large", "10", "1000"]
    found: dict[str, dict[str, object]] = {}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trees = {"now": ROOT}
        if options.against:
            trees = {"before": extract(options.against, directory / "tree"), **trees}
        for name, tree in trees.items():
            found[name] = {}
            for part in parts:
                place = directory / f"{name}-{part}"
                place.mkdir()
                with LegacyCluster(place / "kafka") as cluster:
                    cluster.create_topic("bench", PARTITIONS, 1)
                    if part == "large":
                        figures = large_batches(tree, cluster, place, options.seconds)
                    else:
                        figures = paused(tree, cluster, place, int(part), options.seconds)
                found[name][part] = figures
                print(name, part, figures, flush=True)
    if not options.dry:
        save("memory", {"against": options.against, "limit_mib": LIMIT_MIB, "figures": found})


if __name__ == "__main__":
    main()
