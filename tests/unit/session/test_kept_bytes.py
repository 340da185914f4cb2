"""What is kept of requests is what is counted: no unpacked form of what is on its way, and nothing of what was answered
or left, however long a broker hangs."""

from __future__ import annotations

import tracemalloc

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.produce import PartitionRecords
from idemproxy.codecs.record_batch import Record, encode_batch, parse_single_batch
from idemproxy.proxy import limits
from idemproxy.proxy.admission.memory_budget import Held
from idemproxy.proxy.producer.batch import Batch
from idemproxy.proxy.session.non_idempotent import NonIdempotentBatches
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.decide import BatchIdentity
from testkit.real.clients.raw_client import RawClient, batch
from testkit.stage.sequencer import PRODUCER_ID, Client, Request, Stage
from testkit.virtual.line import Line, request
from testkit.virtual.world import TOPIC, World, WorldSettings

UNPACKED_BYTES = 8_000_000
RECORD_BYTES = 100_000
TIMEOUT_MS = 3_000


def test_what_is_held_is_counted_until_nobody_holds_it() -> None:
    counted: list[int] = []
    held = Held(counted.append, 100)
    other = held
    held.resize(30)
    del held
    assert sum(counted) == 30
    del other
    assert sum(counted) == 0


@pytest.mark.parametrize("batches", [1, 3])
def test_a_batch_on_its_way_is_not_kept_unpacked(batches: int) -> None:
    """It is out, and its broker does not answer."""
    first = Stage()
    first.send(Client(), 0)
    first.run(1)  # whatever is made once has been made
    values = [bytes(RECORD_BYTES)] * (UNPACKED_BYTES // RECORD_BYTES // batches)
    stage = Stage()
    stage.outcomes.append(stage.never_answers)
    client = Client()
    tracemalloc.start()
    try:
        for number in range(batches):
            records = [Record(index, 1_700_000_000_000, None, value) for index, value in enumerate(values)]
            data = encode_batch(
                records,
                producer_id=PRODUCER_ID,
                producer_epoch=0,
                base_sequence=number * len(values),
                codec=Codec.GZIP,
            )
            header = parse_single_batch(memoryview(data))
            identity = BatchIdentity(0, number * len(values), len(values))
            waiter = Request(client, identity)
            stage.stream.queue.append(Batch(identity, memoryview(data), header, 30_000, stage.now, [waiter]))
        before = tracemalloc.get_traced_memory()[0]
        stage.sequencer.wake()
        stage.run(1)
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    (sent,) = stage.sent
    assert len(sent.identities) == batches
    assert stage.context.memory.bytes_held == len(sent.message_set)
    assert kept < UNPACKED_BYTES // 20


class Scene:
    """A broker that hangs from the start, and one client with a batch."""

    def __init__(self, timeout_ms: int = TIMEOUT_MS, hang_seconds: float = 1_000) -> None:
        self.world = World(1, WorldSettings(brokers=1, clients=0))
        self.world.start()
        (self.proxy,) = self.world.proxies
        self.engine = self.proxy.engine
        self.run(20)  # leases of an earlier life have ended
        self.line = self.connect()
        self.send(self.line, batch([b"first"], producer_id=1_000))
        assert self.world.network.run(20, lambda: bool(self.line.answers))
        self.run(0.5)
        (broker,) = self.world.cluster.brokers.values()
        broker.host.pause(hang_seconds)
        self.records = batch([bytes(range(250)) * 400], producer_id=1_000, sequence=1)
        self.send(self.line, self.records, timeout_ms)
        self.run(1)

    def connect(self) -> Line:
        line = Line()
        self.world.network.host("client").connect(self.proxy.addresses[0], line)
        assert self.world.network.run(5, lambda: line.wire is not None)
        return line

    def send(self, line: Line, records: bytes, timeout_ms: int = TIMEOUT_MS) -> None:
        body = RawClient.produce_body([(TOPIC, 0, records)], version=3, timeout_ms=timeout_ms)
        assert line.wire is not None
        line.wire.send(request(len(line.answers) + 1, ApiKey.PRODUCE, 3, body))

    def run(self, seconds: float) -> None:
        self.world.network.run(seconds)

    @property
    def is_at_work(self) -> bool:
        """Is the batch still being worked on?"""
        return any(not producer.is_idle for producer in self.engine.producers(None, None, 1000))


def test_a_batch_that_is_out_counts_with_its_wrapper_after_its_timeout() -> None:
    scene = Scene()
    both = scene.engine.memory.bytes_held
    assert both > 2 * len(scene.records)
    scene.run(3)
    assert len(scene.line.answers) == 2
    assert scene.engine.memory.bytes_held == both, "the append is still out"
    scene.send(scene.line, scene.records)
    scene.run(1)
    assert scene.engine.memory.bytes_held == both, "a retry has joined it, and none of its bytes is needed"


def test_a_batch_that_waits_counts_with_what_it_will_be_converted_to() -> None:
    """It comes after one that is out, and is not looked at before that one is answered. Its records are so small that
    messages in format v1 are twice as large."""
    scene = Scene(timeout_ms=100_000)
    before = scene.engine.memory.bytes_held
    records = batch([b"0123456789"] * 2_000, producer_id=1_000, sequence=2)
    scene.send(scene.line, records, 100_000)
    scene.run(0.5)
    assert scene.engine.memory.bytes_held > before + 3 * len(records)


@pytest.mark.parametrize("is_gone", [False, True])
def test_of_an_unknown_outcome_that_nobody_waits_for_no_byte_is_kept(is_gone: bool) -> None:
    """The client got REQUEST_TIMED_OUT or left; the broker hangs. What is looked for in the log needs names only."""
    scene = Scene(timeout_ms=TIMEOUT_MS if not is_gone else 100_000)
    if is_gone:
        assert scene.line.wire is not None
        scene.line.wire.reset()
    assert scene.world.network.run(20, lambda: scene.engine.memory.bytes_held == 0)
    scene.run(1)
    assert scene.is_at_work


def test_a_retry_brings_the_records_again_that_were_let_go_of() -> None:
    scene = Scene(hang_seconds=50)
    assert scene.world.network.run(30, lambda: scene.engine.memory.bytes_held == 0)
    again = scene.connect()
    scene.send(again, scene.records, 100_000)
    scene.run(1)
    assert scene.engine.memory.bytes_held > len(scene.records)
    scene.run(60)
    assert again.answers == [1]
    stored = [value for one in scene.world.cluster.log(TOPIC, 0).messages for value in one.message.records]
    assert len(stored) == 2
    assert scene.engine.memory.bytes_held == 0
    assert scene.world.errors() == []


@pytest.mark.parametrize("producer_id", [-1, 1_000])
def test_many_small_batches_count_with_the_memory_of_their_objects(producer_id: int) -> None:
    scene = Scene(timeout_ms=100_000)
    before = scene.engine.memory.bytes_held
    records = batch([b"x"], producer_id=producer_id, sequence=2)
    parts = [(TOPIC, partition, records) for partition in range(3)]
    body = RawClient.produce_body(parts, version=3, timeout_ms=100_000)
    for _ in range(10):
        line = scene.connect()
        assert line.wire is not None
        line.wire.send(request(1, ApiKey.PRODUCE, 3, body))
    scene.run(1)
    objects_bytes = 10 * limits.REQUEST_OBJECTS_BYTES + 30 * limits.PARTITION_OBJECTS_BYTES
    assert scene.engine.memory.bytes_held > before + objects_bytes


def test_batches_without_a_producer_id_count_with_their_converted_form() -> None:
    scene = Scene()
    line = scene.connect()
    before = scene.engine.memory.bytes_held
    records = batch([bytes(RECORD_BYTES)])
    scene.send(line, records)
    scene.run(0.5)
    assert scene.engine.memory.bytes_held > before + 2 * len(records)
    assert line.wire is not None
    line.wire.reset()
    scene.run(1)
    assert scene.engine.memory.bytes_held <= before


def test_batches_without_a_producer_id_that_wait_to_be_converted_count_with_that_form() -> None:
    scene = Scene()
    before = scene.engine.memory.bytes_held
    item = PartitionRecords(TOPIC, 0, memoryview(batch([bytes(RECORD_BYTES)])))
    request_held = Held(lambda _: None, RECORD_BYTES)
    batches = NonIdempotentBatches([(item, lambda _: None)], request_held, scene.engine, "somebody", lambda _: None)
    assert scene.engine.memory.bytes_held > before + RECORD_BYTES
    del batches
    assert scene.engine.memory.bytes_held == before


def test_batches_of_a_gone_client_without_producer_id_count_until_sent() -> None:
    scene = Scene(hang_seconds=20)
    line = scene.connect()
    before = scene.engine.memory.bytes_held
    for _ in range(10):
        scene.send(line, batch([bytes(RECORD_BYTES)]))
    scene.run(0.5)
    assert line.wire is not None
    line.wire.reset()
    scene.run(0.5)
    assert scene.engine.memory.bytes_held > before + 5 * RECORD_BYTES, "the rest lies with the broker's kernel"
    assert scene.world.network.run(60, lambda: scene.engine.memory.bytes_held == 0)
    scene.run(1)
    assert scene.world.errors() == []
