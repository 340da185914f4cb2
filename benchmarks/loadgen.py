"""A small load generator: raw produce requests over plain sockets, so that what is measured is the other side.

Through the proxy it speaks Produce 3 with producer id and sequences; at a legacy broker it speaks Produce 2 with the
same records in the old format. Run as a program it prints one JSON line."""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import struct
import time
from dataclasses import dataclass, field

from crc32c import crc32c

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.convert import HeaderPolicy, to_message_set
from idemproxy.codecs.headers import encode_request_header
from idemproxy.codecs.record_batch import Record, encode_batch

_CRC_AT, _CRC_FROM, _PRODUCER_ID_AT, _SEQUENCE_AT = 17, 21, 43, 53
_TIME_MS = 1_700_000_000_000


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


@dataclass
class Result:
    """Requests counted after the warm-up, and their latencies."""

    requests: int = 0
    seconds: float = 0.0
    errors: dict[int, int] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """A latency in milliseconds."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


class Connection:
    """One producer: it sends the same records again and again, with the next sequence."""

    def __init__(self, load: Load, index: int) -> None:
        self.socket = socket.create_connection((load.host, load.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent_at: list[float] = []
        self._load = load
        self._sequence = 0
        self._buffer = b""
        value = bytes(range(256)) * (load.record_bytes // 256 + 1)
        records = [Record(i, _TIME_MS, None, value[: load.record_bytes]) for i in range(load.records_per_batch)]
        producer_id = self._init_producer_id() if load.is_idempotent else -1
        epoch = 0 if load.is_idempotent else -1
        batch = encode_batch(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=epoch, codec=load.codec
        )
        if load.is_idempotent:
            self._payload = bytearray(batch)
        else:
            self._payload = bytearray(
                to_message_set(
                    memoryview(batch),
                    codec=load.codec,
                    magic=1,
                    policy=HeaderPolicy(),
                    output_bytes_max=1 << 27,
                ).message_set
            )
        version = 3 if load.is_idempotent else 2
        name = load.topic.encode()
        start = encode_request_header(0, version, 1, "loadgen") + (b"\xff\xff" if load.is_idempotent else b"")
        start += struct.pack(">hiih", -1, 30_000, 1, len(name)) + name
        start += struct.pack(">iii", 1, load.first_partition + index % load.partitions, len(self._payload))
        self._start = struct.pack(">i", len(start) + len(self._payload)) + start
        self._error_at = 4 + 4 + 4 + 2 + len(name) + 4 + 4

    def send(self) -> None:
        """Send the next batch."""
        payload = self._payload
        if self._load.is_idempotent:
            struct.pack_into(">i", payload, _SEQUENCE_AT, self._sequence)
            struct.pack_into(">I", payload, _CRC_AT, crc32c(memoryview(payload)[_CRC_FROM:]))
            self._sequence = (self._sequence + self._load.records_per_batch) & 0x7FFFFFFF
        self.send_again()

    def send_again(self) -> None:
        """Send what was sent last, as after an error that may pass."""
        self.socket.setblocking(True)
        self.socket.sendall(self._start + self._payload)
        self.socket.setblocking(False)
        self.sent_at.append(time.perf_counter())

    def answers(self) -> list[int]:
        """Return the error codes of the answers that have come."""
        self._buffer += self.socket.recv(1 << 16)
        codes = []
        while len(self._buffer) >= 4:
            (size,) = struct.unpack_from(">i", self._buffer)
            if len(self._buffer) < 4 + size:
                break
            codes.append(struct.unpack_from(">h", self._buffer, self._error_at)[0])
            self._buffer = self._buffer[4 + size :]
        return codes

    def _init_producer_id(self) -> int:
        body = encode_request_header(22, 0, 1, "loadgen") + struct.pack(">hi", -1, 0)
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        answer = b""
        while len(answer) < 24:
            answer += self.socket.recv(24 - len(answer))
        error, producer_id = struct.unpack_from(">hq", answer, 12)
        assert error == 0, f"InitProducerId: code {error}"
        return int(producer_id)


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
    print("READY", flush=True)
    while (now := time.perf_counter()) < end:
        for key, _ in selector.select(0.1):
            connection = key.data
            for code in connection.answers():
                sent_at = connection.sent_at.pop(0)
                if now >= begin:
                    result.requests += 1
                    result.latencies_ms.append((time.perf_counter() - sent_at) * 1000)
                    if code:
                        result.errors[code] = result.errors.get(code, 0) + 1
                connection.send()
    result.seconds = time.perf_counter() - begin
    for connection in connections:
        connection.socket.close()
    return result


def main() -> None:
    """Read the load from the command line, run it, print the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--records", type=int, default=1)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args()
    host, port = options.address.rsplit(":", 1)
    load = Load(
        host,
        int(port),
        options.topic,
        options.partitions,
        options.idempotent,
        options.connections,
        options.in_flight,
        options.record_bytes,
        options.records,
        Codec[options.codec.upper()],
        seconds=options.seconds,
    )
    result = run(load)
    print(
        json.dumps(
            {
                "requests": result.requests,
                "seconds": round(result.seconds, 3),
                "errors": result.errors,
                "p50_ms": round(result.percentile(0.5), 3),
                "p99_ms": round(result.percentile(0.99), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
