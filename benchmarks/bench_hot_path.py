"""The proxy's own code per one-record produce, without sockets: 50 sessions, a store and a broker that answer in the
next pass.

What is left out is the kernel (about one recv and one send per request, and what Redis and the broker share). The
lowest of many rounds is printed, so a busy machine matters little. ``--profile`` shows where the time goes."""

from __future__ import annotations

import argparse
import cProfile
import heapq
import itertools
import json
import os
import pstats
import struct
import time
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_request_header, parse_request_header
from idemproxy.codecs.produce import PartitionAnswer, encode_response, parse_request
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.proxy.engine import Engine
from idemproxy.proxy.main import _tune_memory
from idemproxy.proxy.telemetry import Telemetry
from idemproxy.proxy.versions import KNOWN
from idemproxy.reactor import Address, Buffer
from idemproxy.state.lease import Lease
from idemproxy.state.producer_ids import block_of, pack_block
from idemproxy.state.store import Conflict, Swapped, block_key

PARTITIONS = 6
GENERATION = b"g" * 16


class BenchReactor:
    """Runs passes by hand; connections lead to the broker below."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.timers: list[tuple[float, int, list[Any]]] = []
        self.flushes: list[Callable[[], None]] = []
        self.next_pass: list[Callable[[], None]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self.time

    def later(self, seconds: float, callback: Callable[[], None]) -> Any:
        cell: list[Any] = [callback]
        heapq.heappush(self.timers, (self.time + seconds, next(self._order), cell))
        return _Timer(cell)

    def at_flush(self, callback: Callable[[], None]) -> None:
        self.flushes.append(callback)

    def connect(self, address: Address, endpoint: Any) -> None:
        self.next_pass.append(lambda: endpoint.connected(BrokerWire(self, endpoint)))

    def run_pass(self) -> None:
        self.time += 0.0005
        todo, self.next_pass = self.next_pass, []
        for callback in todo:
            callback()
        while self.timers and self.timers[0][0] <= self.time:
            cell = heapq.heappop(self.timers)[2]
            if cell[0] is not None:
                cell[0]()
        while self.flushes:
            flushes, self.flushes = self.flushes, []
            for callback in flushes:
                callback()


class _Timer:
    def __init__(self, cell: list[Any]) -> None:
        self._cell = cell

    def cancel(self) -> None:
        self._cell[0] = None


class BrokerWire:
    """A broker that answers Metadata, ApiVersions, ListOffsets and Fetch with next to nothing, and Produce with
    offsets."""

    local_host = "127.0.0.1"
    unsent = 0
    offset = 0

    def __init__(self, reactor: BenchReactor, endpoint: Any) -> None:
        self._reactor = reactor
        self._endpoint = endpoint

    def send(self, *chunks: Buffer) -> None:
        data = b"".join(chunks)[4:]
        header = parse_request_header(data)
        body = _answer(header.api_key, header.api_version, data, header.body_offset)
        answer = frame(struct.pack(">i", header.correlation_id), body)
        self._reactor.next_pass.append(lambda: self._endpoint.received(answer))

    def fence(self, may_send: Callable[[], bool]) -> None:
        assert may_send()

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...


def _answer(api_key: int, version: int, data: bytes, body_offset: int) -> bytes:
    if api_key == 0:
        answers = []
        for item in parse_request(data, body_offset, version).partitions:
            BrokerWire.offset += 1
            answers.append(PartitionAnswer(item.topic, item.partition, 0, BrokerWire.offset))
        return encode_response(version, answers)
    if api_key == 3:
        partitions = b"".join(struct.pack(">hiiiiii", 0, i, 0, 1, 0, 1, 0) for i in range(PARTITIONS))
        topic = struct.pack(">hh", 0, 1) + b"t" + b"\0" + struct.pack(">i", PARTITIONS) + partitions
        broker = struct.pack(">iih", 1, 0, 1) + b"h" + struct.pack(">ih", 9092, -1)
        cluster = struct.pack(">h", -1) if version >= 2 else b""
        return broker + cluster + struct.pack(">ii", 0, 1) + topic
    if api_key == 18:
        ranges = KNOWN["0.10.2"]
        return struct.pack(">hi", 0, len(ranges)) + b"".join(struct.pack(">hhh", k, *v) for k, v in ranges.items())
    assert api_key == 2, api_key
    name_and_partition = data[body_offset + 8 : body_offset + 8 + 3 + 4 + 4]
    return struct.pack(">i", 1) + name_and_partition + struct.pack(">hqq", 0, -1, 0)


class BenchStore:
    """Swaps in memory, answered in the next pass."""

    generation = GENERATION

    def __init__(self, reactor: BenchReactor, incarnation: bytes) -> None:
        self.lease = Lease(incarnation)
        self.lease.renewed(reactor.now() + 1e9)
        self.values: dict[bytes, bytes] = {}
        self._reactor = reactor

    def read(self, key: bytes, done: Callable[[Any], None]) -> None:
        value = self.values.get(key)
        self._reactor.next_pass.append(lambda: done(value))

    def swap(self, key: bytes, expected: int, value: bytes, ttl_ms: int, done: Callable[[Any], None]) -> None:
        present = self.values.get(key)
        found = int.from_bytes(present[1:9], "big") if present else 0
        result: Any = Conflict(present)
        if found == expected:
            self.values[key] = value
            result = Swapped()
        self._reactor.next_pass.append(lambda: done(result))


class ClientWire(BrokerWire):
    """Counts answers, and lets the client send its next batch."""

    def send(self, *chunks: Buffer) -> None:
        self._reactor.next_pass.append(self._endpoint_send)

    def _endpoint_send(self) -> None:
        self.client.send()

    client: Client


class Client:
    """One synchronous idempotent producer."""

    answered = 0

    def __init__(self, engine: Engine, index: int, producer_id: int) -> None:
        self.session = engine.accept(0)
        assert self.session is not None
        wire = ClientWire(engine.reactor, self.session)  # type: ignore[arg-type]
        wire.client = self
        self.session.connected(wire)
        record = Record(0, 1_700_000_000_000, None, bytes(100))
        self._payload = bytearray(encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0))
        start = encode_request_header(0, 3, 1, "bench") + struct.pack(">hhiih", -1, -1, 30_000, 1, 1) + b"t"
        start += struct.pack(">iii", 1, index % PARTITIONS, len(self._payload))
        self._start = struct.pack(">i", len(start) + len(self._payload)) + start
        self._sequence = 0

    def send(self) -> None:
        Client.answered += 1
        struct.pack_into(">i", self._payload, 53, self._sequence)
        struct.pack_into(">I", self._payload, 17, crc32c(memoryview(self._payload)[21:]))
        self._sequence += 1
        assert self.session is not None
        self.session.received(self._start + self._payload)


def build(connections: int) -> tuple[BenchReactor, list[Client]]:
    """An engine in a steady state with so many producers."""
    reactor = BenchReactor()
    telemetry = Telemetry()
    engine = Engine(
        reactor, ("h", 9092), cluster="bench", report=telemetry, random_bytes=os.urandom,
        wall_clock_ms=lambda: 0, port_of=lambda broker_id: 9093 + broker_id,
    )  # fmt: skip
    store = BenchStore(reactor, engine.shared.incarnation)
    engine.start(store)  # type: ignore[arg-type]
    engine.new_generation(GENERATION)
    for _ in range(200):
        reactor.run_pass()
    ids = [1000 * (i + 1) for i in range(connections)]
    for producer_id in ids:
        store.values[block_key("bench", block_of(producer_id))] = pack_block(GENERATION, 0)
    clients = [Client(engine, index, producer_id) for index, producer_id in enumerate(ids)]
    for client in clients:
        client.send()
    for _ in range(200):
        reactor.run_pass()
    assert set(telemetry.counts) <= {
        "appends_sent_total",
        "batches_answered_total{verdict=appended}",
        "store_generations_total",
    }, telemetry.counts
    return reactor, clients


def main() -> None:
    """Print the lowest CPU time per request over all rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    _tune_memory()
    reactor, _clients = build(options.connections)
    profile = cProfile.Profile() if options.profile else None
    if profile is not None:
        profile.enable()
    best = float("inf")
    for _ in range(options.rounds):
        answered, began = Client.answered, time.process_time()
        for _ in range(40):
            reactor.run_pass()
        best = min(best, (time.process_time() - began) / max(Client.answered - answered, 1))
    if profile is not None:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    print(json.dumps({"connections": options.connections, "cpu_us_per_request": round(best * 1e6, 1)}))


if __name__ == "__main__":
    main()
