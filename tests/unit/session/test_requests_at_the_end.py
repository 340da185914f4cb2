"""What a client had sent before its end: all of it is served after a FIN or in front of garbage, but nothing of a
producer with an id (rule R17); after a reset only what has no answer (rule R16), in steps."""

from __future__ import annotations

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.proxy import limits
from idemproxy.proxy.admission.memory_budget import WAITING_COUNTS
from idemproxy.proxy.session.session import Session
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.virtual import client_bytes
from testkit.virtual.line import Line, request
from testkit.virtual.wire import VirtualWire
from testkit.virtual.world import TOPIC, World, WorldSettings

MANY = 2000


def produce(value: bytes, acks: int, version: int = 3, producer_id: int = -1, sequence: int = 0) -> bytes:
    """One request, without its size."""
    records = batch([value], producer_id=producer_id, sequence=sequence)
    body = RawClient.produce_body([(TOPIC, 0, records)], version=version, acks=acks, timeout_ms=60_000)
    return request(1, ApiKey.PRODUCE, version, body)[4:]


class Scene:
    def __init__(self) -> None:
        self.world = World(1, WorldSettings(brokers=1))
        self.world.start()
        (self.proxy,) = self.world.proxies
        self.engine = self.proxy.engine
        self.line = self.client()
        (self.connection,) = self.engine.sessions
        assert isinstance(self.connection.handler, Session)
        self.session = self.connection.handler

    def client(self) -> Line:
        line = Line()
        self.world.network.host("client").connect(self.proxy.address, line)
        assert self.world.network.run(1, lambda: line.wire is not None)
        self.world.network.run(0.1)
        return line

    def leave(self, *waiting: bytes) -> None:
        """The client resets the connection, and so much of it was not taken yet."""
        self.session._waiting.extend(waiting)
        self.engine.memory.hold_bytes(WAITING_COUNTS * sum(map(len, waiting)))
        assert self.line.wire is not None
        self.line.wire.reset()
        assert self.world.network.run(1, lambda: self.connection not in self.engine.sessions)

    def run(self, seconds: float) -> None:
        self.world.network.run(seconds)

    @property
    def stored(self) -> int:
        """Records in the log."""
        return self.world.cluster.log(TOPIC, 0).end_offset


def test_after_a_reset_only_acks_zero_batches_of_any_version_are_stored() -> None:
    scene = Scene()
    others = [produce(b"a", -1), produce(b"b", 1), request(1, ApiKey.METADATA, 1, b"\0\0\0\0")[4:]]
    scene.leave(*others, produce(b"c", 0), produce(b"d", 0, version=9), *others, produce(b"e", 0, version=2))
    scene.run(5)
    assert scene.stored == 3
    assert scene.engine.memory.bytes_held == 0
    assert scene.proxy.errors == []


def test_nothing_is_taken_from_a_batch_with_a_producer_id_on() -> None:
    scene = Scene()
    scene.leave(produce(b"plain", 0), produce(b"named", 0, producer_id=8), *[produce(b"behind", 0)] * 20)
    scene.run(30)
    assert scene.stored == 1
    assert scene.engine.memory.bytes_held == 0
    assert scene.proxy.errors == []


def test_thousands_of_them_hold_nobody_up() -> None:
    scene = Scene()
    behaving = scene.client()
    assert behaving.wire is not None
    scene.leave(*[produce(b"x", 0)] * MANY)
    behaving.wire.send(request(1, ApiKey.API_VERSIONS, 0))
    assert scene.world.network.run(1, lambda: bool(behaving.answers))
    assert scene.stored < MANY / 2
    scene.run(10)
    assert scene.stored == MANY
    assert scene.engine.memory.bytes_held == 0
    assert scene.proxy.errors == []


def test_nothing_is_taken_after_one_that_cannot_be_read() -> None:
    scene = Scene()
    scene.leave(produce(b"a", 0), request(1, ApiKey.PRODUCE, 3, b"\xff")[4:], *[produce(b"b", 0)] * 20)
    scene.run(5)
    assert scene.stored == 1
    assert scene.engine.memory.bytes_held == 0
    assert scene.proxy.errors == []


def test_nothing_is_taken_after_a_refused_one_as_brokers_disconnect_there() -> None:
    scene = Scene()
    damaged = batch([b"a"])[:-1] + b"\xff"
    refused = request(1, ApiKey.PRODUCE, 3, RawClient.produce_body([(TOPIC, 0, damaged)], acks=0))[4:]
    scene.leave(produce(b"a", 0), refused, *[produce(b"b", 0)] * 20)
    scene.run(5)
    assert scene.stored == 1
    assert scene.engine.memory.bytes_held == 0
    assert scene.proxy.errors == []


# ---------------------------------------------------------------------- a FIN, or garbage
GARBAGE = b"\xff\xff\xff\xff garbage"
METADATA = request(3, ApiKey.METADATA, 1, b"\0\0\0\0")
UNKNOWN = request(7, 127, 3)
UNREADABLE = request(8, ApiKey.METADATA, 1, b"\0")


def framed(one: bytes) -> bytes:
    return len(one).to_bytes(4, "big") + one


def many(count: int) -> bytes:
    """More requests than are taken in one turn."""
    return b"".join(framed(produce(b"%d" % number, -1)) for number in range(count))


@pytest.mark.promise("complete-requests")
@pytest.mark.parametrize(
    "end", [b"", GARBAGE, UNKNOWN, UNREADABLE], ids=["FIN", "garbage", "unknown API", "unreadable"]
)
def test_complete_requests_before_the_end_are_served_and_answered(end: bytes) -> None:
    scene = Scene()
    wire = scene.line.wire
    assert isinstance(wire, VirtualWire)
    wire.send(many(40) + METADATA + end)
    if not end:
        scene.run(0)
        wire.write()
        wire.half_close()
    assert scene.world.network.run(10, lambda: scene.line.is_lost)
    assert scene.line.answers == [1] * 40 + [3]
    assert scene.stored == 40
    assert scene.connection not in scene.engine.sessions
    assert scene.engine.memory.bytes_held == 0
    assert scene.proxy.errors == []


def test_what_comes_after_garbage_is_no_request() -> None:
    scene = Scene()
    wire = scene.line.wire
    assert wire is not None
    wire.send(many(3) + UNREADABLE + many(20))
    assert scene.world.network.run(10, lambda: scene.line.is_lost)
    assert scene.line.answers == [1] * 3
    assert scene.stored == 3


@pytest.mark.parametrize("count", [0, 3, 6, 11])
def test_what_waits_after_a_request_that_cannot_be_read_is_dropped(count: int) -> None:
    """It waits for its turn, as do those after it."""
    scene = Scene()
    wire = scene.line.wire
    assert wire is not None
    wire.send(many(count) + UNREADABLE + many(20))
    assert scene.world.network.run(10, lambda: scene.line.is_lost)
    scene.run(5)
    assert (scene.line.answers, scene.stored) == ([1] * count, count)
    assert scene.engine.memory.bytes_held == 0
    assert scene.proxy.errors == []


def test_the_unfinished_request_before_a_fin_is_dropped() -> None:
    scene = Scene()
    wire = scene.line.wire
    assert isinstance(wire, VirtualWire)
    wire.send(many(3) + METADATA[:-1])
    wire.write()
    wire.half_close()
    assert scene.world.network.run(10, lambda: scene.line.is_lost)
    assert (scene.line.answers, scene.stored) == ([1] * 3, 3)
    assert scene.engine.memory.bytes_held == 0


def test_a_client_that_closes_without_reading_is_served_and_leaves_nothing() -> None:
    scene = Scene()
    wire = scene.line.wire
    assert wire is not None
    wire.send(many(40))
    wire.close()
    assert scene.world.network.run(10, lambda: scene.connection not in scene.engine.sessions)
    scene.run(5)
    assert scene.stored >= 1, "as at a broker, until an answer shows that nobody reads"
    assert scene.engine.memory.bytes_held == 0
    assert scene.proxy.errors == []


def test_nothing_is_begun_after_a_fin_for_a_producer_with_an_id() -> None:
    """It may have sent its records elsewhere under a new epoch (rule R17)."""
    scene = Scene()
    wire = scene.line.wire
    assert isinstance(wire, VirtualWire)
    wire.send(many(8) + framed(produce(b"named", -1, producer_id=8)) + many(8))
    wire.write()
    wire.half_close()
    assert scene.world.network.run(10, lambda: scene.connection not in scene.engine.sessions)
    scene.run(30)
    assert scene.stored <= 8, "it is not there, and nothing behind it"
    assert scene.engine.memory.bytes_held == 0
    assert scene.line.is_lost


def test_after_a_fin_no_producer_id_is_returned_and_nothing_later_begins() -> None:
    scene = Scene()
    wire = scene.line.wire
    assert isinstance(wire, VirtualWire)
    wire.send(many(8) + client_bytes.init_producer_id(2, "raw") + many(8))
    wire.write()
    wire.half_close()
    assert scene.world.network.run(10, lambda: scene.connection not in scene.engine.sessions)
    scene.run(5)
    assert 2 not in scene.line.answers
    assert scene.stored <= 8
    assert scene.engine.memory.bytes_held == 0
    assert scene.line.is_lost


@pytest.mark.parametrize("topic", [TOPIC, "unknown"])
def test_a_request_whose_client_leaves_between_two_steps_is_counted_once(topic: str) -> None:
    """Each of its batches waits, the last ones for a client that has gone: together they keep the bytes of one
    request."""
    scene = Scene()
    counted = [0]
    count, held = scene.engine.memory.hold_bytes, scene.engine.memory

    def hold_bytes(more: int) -> None:
        count(more)
        counted.append(held.bytes_held)

    held.hold_bytes = hold_bytes
    rows = [(topic, number, batch([b"value"], producer_id=8)) for number in range(900)]
    wire = scene.line.wire
    assert isinstance(wire, VirtualWire)
    wire.send(request(1, ApiKey.PRODUCE, 3, RawClient.produce_body(rows, timeout_ms=60_000)))
    assert scene.world.network.run(1, lambda: scene.session.is_at_work)
    counted.clear()
    scene.connection.lost("reset")
    scene.run(30)
    one_each = 900 * (limits.PARTITION_OBJECTS_BYTES + 2 * limits.BATCH_OBJECTS_BYTES)
    assert 0 < max(counted) < one_each
    assert held.bytes_held == 0


def test_what_is_still_converted_for_a_client_that_has_gone_stays_counted() -> None:
    scene = Scene()
    memory, wire = scene.engine.memory, scene.line.wire
    assert isinstance(wire, VirtualWire)
    records = batch([b"%d" % number * 20 for number in range(20_000)], codec=Codec.GZIP)
    wire.send(request(1, ApiKey.PRODUCE, 3, RawClient.produce_body([(TOPIC, 0, records)], timeout_ms=60_000)))
    assert scene.world.network.run(1, lambda: scene.session.is_at_work)
    counted = memory.bytes_held
    scene.connection.lost("reset")
    assert scene.session.is_at_work
    assert memory.bytes_held == counted
    scene.run(30)
    assert memory.bytes_held == 0


@pytest.mark.parametrize("partitions", [1, 700], ids=["at once", "in steps"])
def test_after_a_fin_nothing_continues_of_a_producer_at_work_elsewhere(partitions: int) -> None:
    """Its state is in memory, so that nothing has to be asked for before its batch could be reserved. A request for
    many partitions is taken in steps, and its producer id is not known before the second one."""
    scene = Scene()
    raw = scene.client()
    assert raw.wire is not None
    raw.wire.send(client_bytes.init_producer_id(1, "raw"))
    assert scene.world.network.run(5, lambda: len(raw.answers) == 1)
    _, producer_id, _ = client_bytes.parse_init_producer_id(bytes(raw.data[8:]))
    raw.wire.send(b"".join([framed(produce(b"named", -1, producer_id=producer_id, sequence=one)) for one in range(5)]))
    assert scene.world.network.run(5, lambda: len(raw.answers) == 6)
    assert scene.stored == 5
    wire = scene.line.wire
    assert isinstance(wire, VirtualWire)
    empty = [(TOPIC, number, None) for number in range(1, partitions)]
    records = batch([b"named"], producer_id=producer_id, sequence=5)
    body = RawClient.produce_body([(TOPIC, 0, records), *empty], timeout_ms=60_000)
    wire.send(many(8) + request(2, ApiKey.PRODUCE, 3, body))
    wire.write()
    wire.half_close()
    assert scene.world.network.run(10, lambda: scene.connection not in scene.engine.sessions)
    scene.run(30)
    values = [record.value for one in scene.world.cluster.log(TOPIC, 0).messages for record in one.message.records]
    assert values.count(b"named") == 5
    assert scene.line.is_lost
