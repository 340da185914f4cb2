"""An engine on a reactor that is run by hand: a store, a broker and clients that answer in the next pass, as cheaply
as possible, so that what is measured is the proxy's own code.

No sockets and no clock. Everything that a client sends is made before the time is taken."""

from __future__ import annotations

import heapq
import inspect
import itertools
import os
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_request_header, parse_request_header
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.proxy.engine.engine import Engine
from idemproxy.proxy.events import Report
from idemproxy.proxy.telemetry.reports import Telemetry
from idemproxy.proxy.versions import KNOWN
from idemproxy.reactor import Address, Buffer
from idemproxy.state.lease import Lease
from idemproxy.state.producer_ids import block_of, pack_block
from idemproxy.state.store import Conflict, Swapped, block_key

PARTITIONS = 6
TIMEOUT_MS = 30_000
_DATA_GENERATION = b"g" * 16
_SECONDS_PER_PASS = 0.0005
_TIME_MS = 1_700_000_000_000
_ENGINE_OPTIONS = inspect.signature(Engine.__init__).parameters
_TWO_INT32 = struct.Struct(">ii")
_ANSWER = struct.Struct(">ihqq")
_BATCH_VERSION = 3


class BenchReactor:
    """Runs passes by hand; connections lead to the broker below."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.timers: list[tuple[float, int, list[Any]]] = []
        self.flushes: list[Callable[[], None]] = []
        self.next_pass: list[Callable[[], None]] = []
        self.pass_ended: Callable[[], None] = lambda: None
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
        self.time += _SECONDS_PER_PASS
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
        self.pass_ended()


class _Timer:
    def __init__(self, cell: list[Any]) -> None:
        self._cell = cell

    def cancel(self) -> None:
        self._cell[0] = None


class BrokerWire:
    """A broker that answers Metadata, ApiVersions and ListOffsets with next to nothing, and Produce with offsets."""

    local_host = "127.0.0.1"
    unsent = 0
    offset = 0

    def __init__(self, reactor: BenchReactor, endpoint: Any) -> None:
        self._reactor = reactor
        self._endpoint = endpoint

    def send(self, *chunks: Buffer) -> None:
        data = b"".join(chunks)
        answer = _append(data) if data[4:6] == b"\0\0" else _answer(data[4:])
        self._reactor.next_pass.append(lambda: self._endpoint.received(answer))

    def hand_over(self, endpoint: Any) -> None:
        self._endpoint = endpoint

    def fence(self, may_send: Callable[[], bool]) -> None:
        assert may_send()

    def before_reading(self, look: Callable[[], None]) -> None: ...

    def after_writing(self, look: Callable[[], None]) -> None: ...

    def expect(self, missing_bytes: int) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...


def _append(data: bytes) -> bytes:
    """Answer Produce 2 or 3 for the only topic, t."""
    position = 14 + struct.unpack_from(">h", data, 12)[0] + 2 + 4 + 4
    if data[7] == _BATCH_VERSION:
        position += 2  # no transactional id
    assert data[position : position + 3] == b"\0\1t"
    (count,) = struct.unpack_from(">i", data, position + 3)
    position += 7
    answers = [data[8:12], b"\0\0\0\1\0\1t", count.to_bytes(4, "big")]
    for _ in range(count):
        partition, size = _TWO_INT32.unpack_from(data, position)
        position += 8 + size
        BrokerWire.offset += 100
        answers.append(_ANSWER.pack(partition, 0, BrokerWire.offset, -1))
    assert position == len(data)
    answers.append(b"\0\0\0\0")
    return frame(*answers)


def _answer(data: bytes) -> bytes:
    header = parse_request_header(data)
    body = _body(header.api_key, header.api_version, data, header.body_offset)
    return frame(struct.pack(">i", header.correlation_id), body)


def _body(api_key: int, version: int, data: bytes, body_offset: int) -> bytes:
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

    data_generation = _DATA_GENERATION

    def __init__(self, reactor: BenchReactor, instance_id: bytes) -> None:
        self.lease = Lease(instance_id)
        self.lease.renewed(reactor.now() + 1e9)
        self.values: dict[bytes, bytes] = {}
        self.swaps = 0
        self._reactor = reactor

    def read(self, key: bytes, done: Callable[[Any], None]) -> None:
        value = self.values.get(key)
        self._reactor.next_pass.append(lambda: done(value))

    def swap(self, key: bytes, expected: int, value: bytes, ttl_ms: int, done: Callable[[Any], None]) -> None:
        self.swaps += 1
        present = self.values.get(key)
        found = int.from_bytes(present[1:9], "big") if present else 0
        result: Any = Conflict(present)
        if found == expected:
            self.values[key] = value
            result = Swapped()
        self._reactor.next_pass.append(lambda: done(result))


class _ClientWire(BrokerWire):
    """Lets the client send its next batch for every answer."""

    def send(self, *chunks: Buffer) -> None:
        self._reactor.next_pass.append(self._endpoint)

    def before_end(self, look: Callable[[], bool]) -> None:
        """No client hangs up."""


def _request(partition: int, batch: Buffer) -> bytes:
    start = encode_request_header(0, 3, 1, "bench") + struct.pack(">hhiih", -1, -1, TIMEOUT_MS, 1, 1) + b"t"
    return frame(start, struct.pack(">iii", 1, partition, len(batch)), batch)


class Client:
    """One idempotent producer with one request in flight."""

    answered = 0

    def __init__(self, engine: Engine, index: int, producer_id: int, records: list[Record]) -> None:
        session = _accept(engine)
        assert session is not None
        self._received = session.received
        session.connected(_ClientWire(engine.reactor, self.send))  # type: ignore[arg-type]
        self._payload = bytearray(encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0))
        self._start = _request(index % PARTITIONS, self._payload)[: -len(self._payload)]
        self._records = len(records)
        self._sequence = 0
        self._prepared: deque[bytes] = deque()

    def prepare(self, requests: int) -> None:
        """Have so many requests ready."""
        while len(self._prepared) < requests:
            struct.pack_into(">i", self._payload, 53, self._sequence)
            struct.pack_into(">I", self._payload, 17, crc32c(memoryview(self._payload)[21:]))
            self._sequence += self._records
            self._prepared.append(self._start + self._payload)

    def send(self) -> None:
        """Send the next request."""
        Client.answered += 1
        self._received(self._prepared.popleft())


def _engine(reactor: BenchReactor, report: Report) -> Engine:
    """An engine of this commit, or of an older one that it is compared with."""
    options: dict[str, Any] = {"cluster": "bench", "report": report, "random_bytes": os.urandom}
    upstream: Any = [("h", 9092)]
    if "port_of" in _ENGINE_OPTIONS:
        options["port_of"] = lambda broker_id: 9093 + broker_id
        (upstream,) = upstream
    return Engine(reactor, upstream, wall_clock_ms=lambda: 0, **options)


def _accept(engine: Engine) -> Any:
    more: tuple[Any, ...] = () if "port_of" in _ENGINE_OPTIONS else (lambda _broker_id, host: (host, 9093),)
    return engine.accept(0, *more)


class World:
    """An engine in a steady state with so many producers, each with one request in flight."""

    def __init__(
        self,
        connections: int,
        records: int = 1,
        record_bytes: int = 100,
        begin: Callable[[World], None] | None = None,
        reporting: Callable[[World], Report] | None = None,
        form: str | None = None,
    ) -> None:
        """``begin`` is called once the engine is there: for what else a process would set up. ``reporting``: makes what
        events are reported to; None: its telemetry alone. ``form``: in which the broker stores batches, by its name in
        the code; None: of 0.10."""
        self._visited = 0
        self.reactor = BenchReactor()
        self.telemetry = Telemetry()
        self.engine = _engine(self.reactor, self.telemetry if reporting is None else reporting(self))
        if hasattr(self.engine.context.observers, "counts"):  # as a process sets it up; older commits do not have it
            self.engine.context.observers.counts = self.telemetry.metrics
        if begin is not None:
            begin(self)
        self.store = BenchStore(self.reactor, self.engine.context.instance.instance_id)
        self.engine.start(self.store)  # type: ignore[arg-type]
        self.engine.new_data_generation(_DATA_GENERATION)
        self.engine.context.instance.grace_until = 0.0
        self.engine.context.batch_marker_probe.probed.update(("t", partition) for partition in range(PARTITIONS))
        for _ in range(200):
            self.reactor.run_pass()
        if form is not None:
            (broker,) = self.engine.topology.brokers
            broker.form, broker.pool.batch_version = type(broker.form)[form], _BATCH_VERSION
        value = os.urandom(record_bytes)
        batch = [Record(index, _TIME_MS, None, value) for index in range(records)]
        ids = [1000 * (index + 1) for index in range(connections)]
        for producer_id in ids:
            self.store.values[block_key("bench", block_of(producer_id))] = pack_block(_DATA_GENERATION, 0)
        self.clients = [Client(self.engine, index, producer_id, batch) for index, producer_id in enumerate(ids)]
        self.prepare(200)
        for client in self.clients:
            client.send()
        self.run(200)
        self._look_right()

    def prepare(self, passes: int) -> None:
        """Have the clients' requests ready for so many passes."""
        for client in self.clients:
            client.prepare(passes + 1)

    def visit(self, producers: int, batches: int) -> None:
        """Have so many more producers send some batches each, one after the other, until all is written."""
        wire = BrokerWire(self.reactor, None)
        wire.send = lambda *chunks: None  # type: ignore[method-assign]
        session = _accept(self.engine)
        assert session is not None
        session.connected(wire)
        record = [Record(0, _TIME_MS, None, b"v")]
        for _ in range(producers):
            self._visited += 1
            producer_id = 1_000_000_000 + 1000 * self._visited
            self.store.values[block_key("bench", block_of(producer_id))] = pack_block(_DATA_GENERATION, 0)
            for sequence in range(batches):
                batch = encode_batch(record, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
                session.received(_request(producer_id // 1000 % PARTITIONS, batch))
                for _ in range(4):
                    self.reactor.run_pass()
        for _ in range(400):
            self.reactor.run_pass()

    def run(self, passes: int) -> int:
        """Run so many passes; return how many requests were answered."""
        answered = Client.answered
        for _ in range(passes):
            self.reactor.run_pass()
        return Client.answered - answered

    def _look_right(self) -> None:
        trouble = (
            "failures",
            "bad_input",
            "unknown_outcomes",
            "appends_sent_again",
            "produce_connections_lost",
            "store_lost",
        )
        counts = self.telemetry.counts
        assert counts["batches_answered_total{verdict=appended}"] >= len(self.clients), counts
        assert not [name for name in counts if name.startswith(trouble)], counts
