"""A small load generator: raw produce or fetch requests over plain sockets, so that what is measured is the other
side.

Through the proxy it speaks Produce 3 with producer id and sequences, and Fetch 4; at a legacy broker it speaks Produce
2 with the same records in message format v1, and Fetch 3. Run as a program it prints START after the warm-up and at the
end END with a line of JSON; ``closed_loop.c`` sends then, where it could be compiled, else ``run`` does."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import selectors
import socket
import struct
import time
from dataclasses import asdict, dataclass, field

from crc32c import crc32c

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.convert import HeaderPolicy, converting_one
from idemproxy.codecs.headers import encode_request_header
from idemproxy.codecs.primitives import Buffer
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.codecs.steps import at_once

_CORRELATION_ID_AT = 8
_CRC_AT, _CRC_FROM, _PRODUCER_ID_AT, _SEQUENCE_AT = 17, 21, 43, 53
_TIME_MS = 1_700_000_000_000
_FETCH_BYTES_MAX = 1 << 20
_COORDINATOR_LOADS = 14
_PRODUCER_ID_SECONDS_MAX = 30
_PATIENCE_SECONDS = 10
"""For the first answer, on a machine that has other things to do."""
_PLAN = struct.Struct("=IIIIdd")
_STREAM = struct.Struct("=iIII32II")
_VOCABULARY = [hashlib.sha256(bytes([i])).hexdigest()[: 3 + i % 7].encode() for i in range(256)]


@dataclass
class Load:
    """What to send. ``record_bytes`` and ``records_per_batch`` give the batch; ``in_flight`` requests per
    connection."""

    host: str
    port: int
    topic: str
    partitions: int
    is_idempotent: bool
    connections: int = 50
    in_flight: int = 1
    record_bytes: int = 100
    records_per_batch: int = 1
    codec: Codec = Codec.NONE
    warm_up_seconds: float = 1.0
    seconds: float = 4.0
    first_partition: int = 0
    is_text: bool = False
    """Values are words, which compress to a half; else bytes that compress to nothing."""
    fetch_version: int | None = None
    """Fetch what is there from offset 0 on, 1 MB each time, instead of producing."""


@dataclass
class Result:
    """Requests counted after the warm-up, and their latencies. ``bytes_in``: of the answers; ``cpu_seconds``: of the
    load itself."""

    requests: int = 0
    seconds: float = 0.0
    bytes_in: int = 0
    cpu_seconds: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    errors: int = 0
    first_error: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """A latency in milliseconds."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


class Connection:
    """One client: it sends the same records again and again, with the next sequence, or the same fetch."""

    def __init__(self, load: Load, index: int) -> None:
        self.socket = socket.create_connection((load.host, load.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent_at: list[float] = []
        self.bytes_in = 0
        self._load = load
        self._sequence = 0
        self._correlation_id = 0
        self._buffer = b""
        partition = load.first_partition + index % load.partitions
        name = struct.pack(">h", len(load.topic)) + load.topic.encode()
        if load.fetch_version is None:
            payload = self._payload()
            version = 3 if load.is_idempotent else 2
            start = encode_request_header(0, version, 1, "loadgen") + (b"\xff\xff" if load.is_idempotent else b"")
            start += struct.pack(">hii", -1, 30_000, 1) + name + struct.pack(">iii", 1, partition, len(payload))
        else:
            payload = bytearray()
            start = encode_request_header(1, load.fetch_version, 1, "loadgen")
            start += struct.pack(">iiii", -1, 500, 1, _FETCH_BYTES_MAX) + b"\0" * (load.fetch_version >= 4)
            start += struct.pack(">i", 1) + name + struct.pack(">iiqi", 1, partition, 0, _FETCH_BYTES_MAX)
        self._frame = bytearray(struct.pack(">i", len(start) + len(payload)) + start + payload)
        self._batch_at = len(self._frame) - len(payload)
        self.error_at = 8 + (4 if load.fetch_version is not None else 0) + 4 + len(name) + 4 + 4

    def send(self) -> None:
        """Send the next batch."""
        if self._load.is_idempotent and self._load.fetch_version is None:
            self._number(self._sequence)
            self._sequence = (self._sequence + self._load.records_per_batch) & 0x7FFFFFFF
        self._correlation_id += 1
        struct.pack_into(">I", self._frame, _CORRELATION_ID_AT, self._correlation_id & 0xFFFFFFFF)
        self.send_again()

    def send_again(self) -> None:
        """Send what was sent last, as after an error that may pass."""
        self.socket.setblocking(True)
        self.socket.sendall(self._frame)
        self.socket.setblocking(False)
        self.sent_at.append(time.perf_counter())

    def answers(self) -> list[int]:
        """Return the error codes of the answers that have come."""
        received = self.socket.recv(1 << 18)
        self.bytes_in += len(received)
        self._buffer += received
        codes = []
        while len(self._buffer) >= 4:
            (size,) = struct.unpack_from(">i", self._buffer)
            if len(self._buffer) < 4 + size:
                break
            codes.append(struct.unpack_from(">h", self._buffer, self.error_at)[0])
            self._buffer = self._buffer[4 + size :]
        return codes

    def plan(self) -> bytes:
        """Return what ``closed_loop.c`` has to know of this connection: a ``stream`` and its frame."""
        batch_at, crc, of_bits = 0, 0, [0] * 32
        if self._load.is_idempotent and self._load.fetch_version is None:
            batch_at, crc = self._batch_at, self._number(0)
            of_bits[:31] = [self._number(1 << bit) ^ crc for bit in range(31)]
        descriptor, size = self.socket.fileno(), len(self._frame)
        stream = _STREAM.pack(descriptor, self._load.records_per_batch, batch_at, crc, *of_bits, size)
        return stream + self._frame + bytes(-size % 8)

    def _number(self, sequence: int) -> int:
        """Give the batch a sequence, sign it, and return the checksum."""
        batch = memoryview(self._frame)[self._batch_at :]
        struct.pack_into(">i", batch, _SEQUENCE_AT, sequence)
        crc: int = crc32c(batch[_CRC_FROM:])
        struct.pack_into(">I", batch, _CRC_AT, crc)
        return crc

    def _payload(self) -> Buffer:
        load = self._load
        size = load.record_bytes
        ramp = (bytes(range(256)) * (size // 256 + 1))[:size]
        values = (_words(index, size) if load.is_text else ramp for index in range(load.records_per_batch))
        records = [Record(index, _TIME_MS, None, value) for index, value in enumerate(values)]
        producer_id = self._init_producer_id() if load.is_idempotent else -1
        epoch = 0 if load.is_idempotent else -1
        batch = encode_batch(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=epoch, codec=load.codec
        )
        if load.is_idempotent:
            return batch
        view = memoryview(batch)
        steps = converting_one(view, codec=load.codec, magic=1, policy=HeaderPolicy(), output_bytes_max=1 << 27)
        return at_once(steps).message_set

    def _init_producer_id(self) -> int:
        """Ask again while a broker that has just started has none to give."""
        end = time.monotonic() + _PRODUCER_ID_SECONDS_MAX
        while True:
            error, producer_id = self._ask_for_producer_id()
            if error != _COORDINATOR_LOADS or time.monotonic() > end:
                assert error == 0, f"InitProducerId: code {error}"
                return producer_id
            time.sleep(0.1)

    def _ask_for_producer_id(self) -> tuple[int, int]:
        body = encode_request_header(22, 0, 1, "loadgen") + struct.pack(">hi", -1, 0)
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        answer = b""
        while len(answer) < 24:
            more = self.socket.recv(24 - len(answer))
            assert more, "hung up on before InitProducerId was answered"
            answer += more
        error, producer_id = struct.unpack_from(">hq", answer, 12)
        return int(error), int(producer_id)


def _words(seed: int, size: int) -> bytes:
    """Return so many bytes of text, the same for the same seed."""
    chosen = random.Random(seed).choices(_VOCABULARY, k=size)
    return b" ".join(chosen)[:size]


def run(load: Load) -> Result:
    """Keep ``in_flight`` requests out on every connection until the time is over."""
    selector = selectors.DefaultSelector()
    connections = [Connection(load, index) for index in range(load.connections)]
    result = Result()
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
        for _ in range(load.in_flight):
            connection.send()
    begin = time.perf_counter() + load.warm_up_seconds
    end = begin + load.seconds
    is_measuring = False
    while (now := time.perf_counter()) < end + (0 if result.requests else _PATIENCE_SECONDS):
        if not is_measuring and now >= begin:
            is_measuring, begin, cpu = True, now, time.process_time()
            bytes_before = sum(connection.bytes_in for connection in connections)
            print("START", flush=True)
        for key, _ in selector.select(0.01):
            connection = key.data
            for code in connection.answers():
                sent_at = connection.sent_at.pop(0)
                if code:
                    result.first_error = result.first_error or code
                    result.errors += 1
                if is_measuring:
                    result.requests += 1
                    result.latencies_ms.append((time.perf_counter() - sent_at) * 1000)
                connection.send()
    result.seconds = time.perf_counter() - begin
    result.cpu_seconds = time.process_time() - cpu
    result.bytes_in = sum(connection.bytes_in for connection in connections) - bytes_before
    result.p50_ms, result.p99_ms = result.percentile(0.5), result.percentile(0.99)
    for connection in connections:
        connection.socket.close()
    return result


def become(program: str, load: Load) -> None:
    """Open the connections and let the compiled program continue with them in this process."""
    connections = [Connection(load, index) for index in range(load.connections)]
    error_at = connections[0].error_at
    plan = _PLAN.pack(load.connections, load.in_flight, error_at, 0, load.warm_up_seconds, load.seconds)
    file = os.memfd_create("plan", 0)
    for part in (plan, *(connection.plan() for connection in connections)):
        view = memoryview(part)
        while view:
            view = view[os.write(file, view) :]
    for connection in connections:
        connection.socket.setblocking(False)
        connection.socket.set_inheritable(True)
    os.execv(program, [program, str(file)])


def main() -> None:
    """Read the load from the command line, run it, print the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("load", type=json.loads, help="the fields of Load")
    parser.add_argument("--closed-loop", metavar="PROGRAM", help="closed_loop.c, compiled")
    options = parser.parse_args()
    load = Load(**{**options.load, "codec": Codec[options.load["codec"].upper()]})
    if options.closed_loop:
        become(options.closed_loop, load)
    figures = asdict(run(load))
    figures.pop("latencies_ms")
    print("END", json.dumps(figures))


if __name__ == "__main__":
    main()
