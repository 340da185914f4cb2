"""Stands for a 0.10.2 broker whose answers to Produce take a given time, as with replicas that are far away. Keeps next
to nothing and costs next to nothing.

Like a broker it works on one request per connection at a time: an answer counts from when the one before it has left.
Run as a program: ``slow_broker.py PORT PARTITIONS ANSWER_MS``; it has one topic."""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import struct
import sys
import time
from collections import defaultdict, deque
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from testkit.virtual import kafka_bytes as kafka

HOST, TOPIC = "127.0.0.1", "bench"
PRODUCE_VERSION = 2
MESSAGES_KEPT = 20
_TWO_INT32 = struct.Struct(">ii")
_OFFSET = struct.Struct(">q")


class Partition:
    """Where its log ends, and the last messages of it: the proxy reads its first one back."""

    def __init__(self) -> None:
        self.end = 0
        self.last: deque[tuple[int, bytes]] = deque(maxlen=MESSAGES_KEPT)

    def append(self, message: memoryview) -> int:
        """Take one wrapper; returns its base offset."""
        base = self.end
        self.end += _OFFSET.unpack_from(message)[0] + 1
        self.last.append((self.end - 1, _OFFSET.pack(self.end - 1) + bytes(message[8:])))
        return base

    def read(self, offset: int) -> bytes:
        """The message that ends at an offset, or later."""
        return next((data for last, data in self.last if last >= offset), b"")


class Connection:
    """One client. Requests wait for each other."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.frames: deque[bytes] = deque()
        self.is_busy = False
        self._buffer = bytearray()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setblocking(False)

    def receive(self) -> bool:
        """Take what is there; False: the client has gone."""
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return True
        except OSError:
            return False
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= 4:
            end = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
            if len(buffer) < end:
                break
            self.frames.append(bytes(memoryview(buffer)[at + 4 : end]))
            at = end
        if at:
            del buffer[:at]
        return bool(data)


class SlowBroker:
    """The broker."""

    def __init__(self, port: int, partitions: int, answer_seconds: float) -> None:
        self._port = port
        self._partition_count = partitions
        self._partitions: defaultdict[tuple[str, int], Partition] = defaultdict(Partition)
        self._answer_seconds = answer_seconds
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Connection, bytes]] = []
        self._order = itertools.count()
        listener = socket.create_server((HOST, port), backlog=1024)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, listener)

    def serve(self) -> None:
        """Until the process ends."""
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            for key, _ in self._selector.select(wait):
                if isinstance(key.data, Connection):
                    if not key.data.receive():
                        self._selector.unregister(key.data.socket)
                        key.data.socket.close()
                    self._work(key.data)
                else:
                    accepted, _ = key.data.accept()
                    self._selector.register(accepted, selectors.EVENT_READ, Connection(accepted))
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                _, _, connection, answer = heapq.heappop(self._due)
                connection.is_busy = False
                self._send(connection, answer)
                self._work(connection)

    def _work(self, connection: Connection) -> None:
        while connection.frames and not connection.is_busy:
            frame = connection.frames.popleft()
            key, _version, correlation_id = struct.unpack_from(">hhi", frame)
            if key == kafka.PRODUCE:
                connection.is_busy = True
                answer = kafka.frame(correlation_id, self._produce(frame))
                due = time.monotonic() + self._answer_seconds
                heapq.heappush(self._due, (due, next(self._order), connection, answer))
            else:
                self._send(connection, kafka.frame(correlation_id, self._answer(frame)))

    def _send(self, connection: Connection, answer: bytes) -> None:
        try:
            connection.socket.setblocking(True)
            connection.socket.sendall(answer)
            connection.socket.setblocking(False)
        except OSError:
            connection.frames.clear()

    def _produce(self, frame: bytes) -> bytes:
        rows = []
        view = memoryview(frame)
        at = 10 + max(0, struct.unpack_from(">h", frame, 8)[0]) + 2 + 4
        topics, at = int.from_bytes(view[at : at + 4], "big"), at + 4
        for _ in range(topics):
            size = struct.unpack_from(">h", frame, at)[0]
            topic, at = frame[at + 2 : at + 2 + size].decode(), at + 2 + size
            count, at = int.from_bytes(view[at : at + 4], "big"), at + 4
            for _ in range(count):
                partition, size = _TWO_INT32.unpack_from(frame, at)
                base = self._partitions[topic, partition].append(view[at + 8 : at + 8 + size])
                rows.append((topic, partition, 0, base))
                at += 8 + size
        return kafka.produce_answer(PRODUCE_VERSION, rows)

    def metadata(self, _names: list[str] | None, version: int) -> bytes:
        """What it answers of the cluster: this broker and its topic."""
        partitions = [(0, number, 0, (0,), (0,)) for number in range(self._partition_count)]
        return kafka.metadata_answer(version, [(0, HOST, self._port)], "slow", 0, [(0, TOPIC, partitions)])

    def _answer(self, frame: bytes) -> bytes:
        request = kafka.parse_request(frame)
        version = request.api_version
        if request.api_key == kafka.METADATA:
            return self.metadata(kafka.parse_metadata(request.body, version), version)
        if request.api_key == kafka.FETCH:
            asked = kafka.parse_fetch(request.body, version).partitions
            found = []
            for topic, number, offset, *_ in asked:
                log = self._partitions[topic, number]
                found.append((topic, number, 0, log.end, log.read(offset)))
            return kafka.fetch_answer(version, found)
        if request.api_key == kafka.LIST_OFFSETS:
            listed = kafka.parse_list_offsets(request.body, version).partitions
            ends = [(topic, number, 0, self._partitions[topic, number].end) for topic, number, *_ in listed]
            return kafka.list_offsets_answer(version, ends)
        return kafka.api_versions_answer()


def main() -> None:
    """Serve until the end of the process."""
    port, partitions, milliseconds = map(int, sys.argv[1:])
    broker = SlowBroker(port, partitions, milliseconds / 1000)
    print("READY", flush=True)
    broker.serve()


if __name__ == "__main__":
    main()
