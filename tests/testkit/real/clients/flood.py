"""Clients that send all that they are let, without mercy, and what a process takes of memory meanwhile.

Every batch of a flood with producer ids is another producer's first one, so that nothing holds it back. A client whose
connection is closed connects again. Frames are written by hand; judges nothing."""

from __future__ import annotations

import random
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from crc32c import crc32c

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.headers import encode_request_header
from idemproxy.codecs.record_batch import Record, encode_batch
from testkit.real.machine.process_memory import resident_bytes

TIMEOUT_MS = 10_000
_PRODUCE_VERSION = {Codec.ZSTD: 7}
_CRC_AT, _CRC_FROM, _PRODUCER_ID_AT = 17, 21, 43
_PRODUCER_IDS = 4_000


@dataclass
class Watch:
    """What a process takes, looked at twenty times a second."""

    process_id: int
    seen: list[int] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[Watch]:
        """Look until the end of the block."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.05):
                self.seen.append(resident_bytes(self.process_id))

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()


@dataclass(frozen=True)
class Kind:
    """What is sent. ``ratio``: what a batch unpacks to, about: 1, 10 or 1,000 times its size. ``is_named``: with
    producer ids. ``in_flight``: requests of each connection."""

    codec: Codec
    ratio: int
    is_named: bool = True
    connections: int = 100
    in_flight: int = 4

    @property
    def name(self) -> str:
        """In short."""
        who = "idempotent" if self.is_named else "plain"
        return f"{self.codec.name.lower()} {self.ratio}:1, {who}, {self.connections} connections"


def flood_batch(kind: Kind) -> bytes:
    """One record batch: 100 KB of noise, 1 MB of text, or 60 MB of nothing, before it is packed."""
    chosen = random.Random(1)
    if kind.ratio == 1:
        values = [chosen.randbytes(1_000) for _ in range(100)]
    elif kind.ratio <= 10:
        words = [bytes(chosen.choices(b"abcdefgh", k=12)) for _ in range(40)]
        values = [b" ".join(chosen.choices(words, k=75)) for _ in range(1_000)]
    else:
        values = [bytes(100_000)] * 600
    records = [Record(index, 1_700_000_000_000, None, value) for index, value in enumerate(values)]
    names = (0, 0, 0) if kind.is_named else (-1, -1, -1)
    return encode_batch(
        records, producer_id=names[0], producer_epoch=names[1], base_sequence=names[2], codec=kind.codec
    )


class _Sender:
    """One client."""

    def __init__(self, flood: Flood, number: int) -> None:
        self.flood = flood
        self.number = number
        self.out = 0
        self.unsent = memoryview(b"")
        self._buffer = b""
        self.socket = socket.create_connection(flood.address)
        self.socket.setblocking(False)

    def fill(self) -> None:
        """Send as much as there may be in flight."""
        while self.out < self.flood.kind.in_flight and not self.unsent:
            self.unsent = memoryview(self.flood.request(self.number))
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
            self.flood.answers += 1


class Flood:
    """All clients of one kind."""

    def __init__(self, address: tuple[str, int], topic: str, partitions: int, kind: Kind) -> None:
        self.address = address
        self.kind = kind
        self.requests = self.answers = self.hung_up_on = 0
        self._topic = topic.encode()
        self._partitions = partitions
        self._batch = bytearray(flood_batch(kind))
        self._ids = self._producer_ids() if kind.is_named else []

    @property
    def batch_bytes(self) -> int:
        """Of one, as it is sent."""
        return len(self._batch)

    def request(self, number: int) -> bytes:
        """The next one: the first batch of the next producer."""
        self.requests += 1
        batch = self._batch
        if self._ids:
            struct.pack_into(">q", batch, _PRODUCER_ID_AT, self._ids[self.requests % len(self._ids)])
            struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[_CRC_FROM:]))
        version = _PRODUCE_VERSION.get(self.kind.codec, 3)
        head = encode_request_header(0, version, self.requests, "flood")
        head += b"\xff\xff" + struct.pack(">hiih", -1, TIMEOUT_MS, 1, len(self._topic)) + self._topic
        head += struct.pack(">iii", 1, (number + self.requests) % self._partitions, len(batch))
        return struct.pack(">i", len(head) + len(batch)) + head + batch

    def run(self, seconds: float, process_id: int, stop_at_bytes: int) -> None:
        """Send for so long, or until the process has taken so much memory: it is left alone then."""
        with selectors.DefaultSelector() as selector:
            for number in range(self.kind.connections):
                sender = _Sender(self, number)
                selector.register(sender.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, sender)
            try:
                end = time.monotonic() + seconds
                while time.monotonic() < end and resident_bytes(process_id) < stop_at_bytes:
                    for key, events in selector.select(0.05):
                        self._serve(selector, key, events)
            finally:
                for key in list(selector.get_map().values()):
                    key.data.socket.close()

    def _serve(self, selector: selectors.BaseSelector, key: selectors.SelectorKey, events: int) -> None:
        sender: _Sender = key.data
        try:
            if events & selectors.EVENT_READ:
                sender.read()
            sender.write()
            sender.fill()
        except ConnectionError:
            self.hung_up_on += 1
            selector.unregister(sender.socket)
            sender.socket.close()
            again = _Sender(self, sender.number)
            selector.register(again.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, again)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if sender.unsent else 0)
        if key.events != wanted:
            selector.modify(sender.socket, wanted, sender)

    def _producer_ids(self) -> list[int]:
        with socket.create_connection(self.address) as asking:
            body = encode_request_header(22, 0, 1, "flood") + struct.pack(">hi", -1, 0)
            ids = []
            for _ in range(_PRODUCER_IDS):
                asking.sendall(struct.pack(">i", len(body)) + body)
                answer = b""
                while len(answer) < 24:
                    answer += asking.recv(24 - len(answer))
                ids.append(int(struct.unpack_from(">q", answer, 14)[0]))
        return ids
