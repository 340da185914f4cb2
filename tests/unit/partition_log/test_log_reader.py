"""One scan of a partition for all who look for something in it (rule R6): what is read, how often, and what is found in
a chunk of the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from mutants.scenes import foreign

from idemproxy.codecs.batch_marker import Identity, encode_batch_marker
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set, iterate_shallow
from idemproxy.codecs.steps import STEP_RECORDS, Steps, at_once
from idemproxy.proxy import limits
from idemproxy.proxy.admission.long_work import LongWork
from idemproxy.proxy.bridge.asks import FetchAnswer, FetchRecords
from idemproxy.proxy.events import UnknownOutcomeResolved
from idemproxy.proxy.flow.effects import Unanswered
from idemproxy.proxy.partition_log.log_chunk import LogChunk, ReadLog, taking_apart
from idemproxy.proxy.partition_log.log_reader import LogReader
from idemproxy.proxy.partition_log.recognised import Recogniser
from idemproxy.state.commit import Stored
from testkit.stage.sequencer import Client, Stage
from testkit.stage.step_sizes import MessagesRead
from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.log import PartitionLog
from testkit.virtual.network import Network, NetworkSettings
from testkit.virtual.world import TOPIC, World, WorldSettings

CALM = NetworkSettings(
    latency=(0.001, 0.001),
    pass_duration=(0.0001, 0.0001),
    split_chance=0,
    partial_write_chance=0,
    truncation_chance=0,
)
"""Everything takes the same time, so what leaves together arrives together."""
Fetched = Callable[[LogChunk | Unanswered], None]


def marked(*identities: Identity, value: bytes = b"v") -> bytes:
    """A wrapper as the proxy makes it."""
    records = sum(identity.record_count for identity in identities)
    inner = encode_set([(None, value, 0)] * records, magic=1)
    packed = compress(Codec.GZIP, inner, magic=1)
    return encode_message(encode_batch_marker(identities), packed, magic=1, offset=records - 1, codec=Codec.GZIP)


def a_log(*message_sets: bytes) -> PartitionLog:
    log = PartitionLog()
    for data in message_sets:
        log.append(data, 0.0)
    log.advance(log.end_offset)
    return log


def plain(value: bytes) -> bytes:
    return encode_message(None, value, magic=1)


class Broker:
    """Answers fetches when the test says so."""

    def __init__(self, log: PartitionLog) -> None:
        self.network = Network(1)
        self.log = log
        self.fetches: list[FetchRecords] = []
        self.waits = False
        """Do fetches wait for others, until the test says that they leave?"""
        self.leave: list[Callable[[], None]] = []
        self.taken_apart = 0
        """Chunks that came of what an earlier fetch had brought."""
        self._due: list[tuple[ReadLog, Fetched]] = []
        self.reader = LogReader(self.network.host("proxy"), self._fetch, self._take_apart)
        self.given: list[tuple[int, LogChunk | Unanswered]] = []

    def _fetch(self, question: ReadLog, leaves: Callable[[], None], done: Fetched) -> None:
        self.fetches.append(question.fetch())
        self._due.append((question, done))
        self.leave.append(leaves)
        if not self.waits:
            leaves()

    def _take_apart(self, start: Callable[[], Steps[LogChunk]], _topic: str, done: Fetched) -> None:
        self.taken_apart += 1
        self.network.host("proxy").later(0, lambda: done(at_once(start())))

    def ask(self, *offsets: int, partition: int = 0, since: float = 0.0) -> None:
        for offset in offsets:
            self.reader.read(ReadLog("t", partition, offset, since=since), partial(self._take, offset))

    def _take(self, offset: int, chunk: LogChunk | Unanswered) -> None:
        self.given.append((offset, chunk))

    def run(self, seconds: float = 0.01) -> None:
        self.network.run(seconds)

    def answer(self, instead: FetchAnswer | Unanswered | None = None) -> None:
        question, done = self._due.pop(0)
        data = self.log.read(question.offset, question.bytes_max, whole_first=False, up_to=self.log.high_watermark)
        answer = instead or FetchAnswer(0, self.log.high_watermark, memoryview(data))
        done(answer if isinstance(answer, Unanswered) else at_once(taking_apart(question.offset, answer)))
        self.run()

    @property
    def offsets(self) -> list[int]:
        return [question.offset for question in self.fetches]


@pytest.fixture
def broker() -> Broker:
    return Broker(a_log(*(plain(b"%d" % number) for number in range(10))))


# ---------------------------------------------------------------------- sharing
def test_who_asks_at_one_time_is_served_by_one_fetch_from_the_lowest_offset(broker: Broker) -> None:
    broker.ask(5, 3, 9)
    broker.run()
    assert broker.offsets == [3]
    assert broker.given == []
    broker.answer()
    assert sorted(offset for offset, _ in broker.given) == [3, 5, 9]
    assert len({id(chunk) for _, chunk in broker.given}) == 1


def test_what_was_taken_apart_while_the_connection_was_lost_is_read_again(broker: Broker) -> None:
    broker.ask(3)
    broker.run()
    broker.reader.forget()
    broker.ask(4)
    broker.answer()
    assert (broker.given, broker.offsets) == ([], [3, 3])
    broker.answer()
    assert sorted(offset for offset, _ in broker.given) == [3, 4]


def test_each_partition_is_read_by_one_fetch_at_a_time_independently(broker: Broker) -> None:
    broker.ask(5)
    broker.run()
    broker.ask(3)
    broker.ask(2, partition=1)
    broker.run()
    assert broker.offsets == [5, 2]
    broker.answer()
    assert broker.offsets == [5, 2, 3]


def test_recently_read_chunks_are_not_read_again_and_older_ones_are(broker: Broker) -> None:
    broker.ask(3)
    broker.run()
    broker.answer()
    broker.ask(7)
    broker.run()
    assert broker.offsets == [3]
    assert len(broker.given) == 2
    broker.run(limits.CHUNK_KEPT_SECONDS + 0.1)
    broker.ask(7)
    broker.run()
    assert broker.offsets == [3, 7]
    broker.answer()
    broker.reader.forget()
    broker.ask(7)
    broker.run()
    assert broker.offsets == [3, 7, 7]


def test_a_fetch_that_left_before_a_search_began_to_read_does_not_serve_it(broker: Broker) -> None:
    """The log may have been truncated, or its topic recreated, in between."""
    broker.ask(3)
    broker.run()
    broker.answer()
    broker.ask(7, since=broker.network.now)
    broker.run()
    assert broker.offsets == [3, 7], "a kept reading"
    broker.run(0.1)
    broker.ask(8, since=broker.network.now)
    broker.answer()
    assert (broker.offsets, len(broker.given)) == ([3, 7, 8], 2), "a fetch that is out"
    broker.ask(9, since=broker.network.now - 0.05)
    broker.answer()
    assert (broker.offsets, len(broker.given)) == ([3, 7, 8], 4)


def test_nobody_waits_for_the_long_scan_of_another_one(broker: Broker) -> None:
    broker.ask(0)
    broker.run()
    broker.ask(9)
    broker.run(1)
    data = bytes(broker.log.read(0, 1 << 20, whole_first=True, up_to=2))
    broker.answer(FetchAnswer(0, 10, memoryview(data)))
    broker.ask(2)
    broker.run()
    assert broker.offsets == [0, 9]


def test_a_message_larger_than_the_fetch_is_fetched_with_a_larger_one() -> None:
    log = PartitionLog(message_bytes_max=4 * limits.FETCH_BYTES)
    log.append(plain(b"x" * 3 * limits.FETCH_BYTES), 0.0)
    log.advance(1)
    broker = Broker(log)
    broker.ask(0)
    broker.run()
    broker.answer()
    assert [question.bytes_max for question in broker.fetches] == [limits.FETCH_BYTES, 8 * limits.FETCH_BYTES]
    broker.answer()
    ((_, chunk),) = broker.given
    assert isinstance(chunk, LogChunk)
    assert chunk.end == 1


def test_a_lost_connection_and_a_refusal_are_reported(broker: Broker) -> None:
    broker.ask(3, 5)
    broker.run()
    broker.answer(Unanswered("gone"))
    assert broker.given == [(3, Unanswered("gone")), (5, Unanswered("gone"))]
    broker.given.clear()
    broker.ask(5, 3)
    broker.run()
    broker.answer(FetchAnswer(1, -1, memoryview(b"")))
    broker.answer()
    codes = {offset: chunk.error_code for offset, chunk in broker.given if isinstance(chunk, LogChunk)}
    assert codes == {3: 1, 5: 0}, "an offset that is out of range is so for him who asked for it"


# ---------------------------------------------------------------------- slow answers
def test_after_a_slow_answer_less_is_asked_for_and_later_more_again(broker: Broker) -> None:
    """A quota holds answers back by their bytes, for longer than the proxy waits."""

    def read(seconds: float, instead: Unanswered | None = None) -> int:
        broker.run(2 * limits.CHUNK_KEPT_SECONDS)
        broker.ask(3)
        broker.run(seconds)
        broker.answer(instead)
        return broker.fetches[-1].bytes_max

    full, late = limits.FETCH_BYTES, Unanswered("no answer in time")
    assert [read(0.1), read(limits.ASK_SECONDS_MAX, late), read(0.6 * limits.ASK_SECONDS_MAX)] == [
        full,
        full,
        full // 4,
    ]
    assert [read(0.2 * limits.ASK_SECONDS_MAX), read(0.1, Unanswered("reset")), read(0.1)] == [full // 16] * 3
    assert [read(0.1) for _ in range(5)] == [full // 8, full // 4, full // 2, full, full]
    for _ in range(9):
        read(limits.ASK_SECONDS_MAX, late)
    assert read(0.1) == limits.FETCH_ONE_BYTES


def test_a_fetch_that_waits_for_those_of_other_partitions_is_not_slow(broker: Broker) -> None:
    broker.waits = True
    for instead in (None, Unanswered("reset while it waits"), None):
        broker.run(2 * limits.CHUNK_KEPT_SECONDS)
        broker.ask(3)
        broker.run(limits.ASK_SECONDS_MAX)
        if instead is None:
            broker.leave[-1]()
        broker.run(0.1)
        broker.answer(instead)
    assert [question.bytes_max for question in broker.fetches] == [limits.FETCH_BYTES] * 3


def test_what_was_read_counts_from_when_its_fetch_has_left(broker: Broker) -> None:
    broker.waits = True
    broker.ask(3)
    broker.run(2 * limits.CHUNK_KEPT_SECONDS)
    broker.leave[-1]()
    broker.answer()
    broker.ask(4)
    broker.run()
    assert [offset for offset, _ in broker.given] == [3, 4]
    assert broker.offsets == [3]


# ---------------------------------------------------------------------- a chunk
def chunk_of(log: PartitionLog, start: int) -> LogChunk:
    data = log.read(start, 1 << 20, whole_first=True, up_to=log.high_watermark)
    return at_once(taking_apart(start, FetchAnswer(0, log.high_watermark, memoryview(bytes(data)))))


def test_a_chunk_has_the_pieces_of_every_producer_with_their_offsets() -> None:
    log = a_log(plain(b"a"), marked(Identity(7, 0, 0, 2), Identity(8, 3, 5, 1)), marked(Identity(7, 0, 2, 1)))
    chunk = chunk_of(log, 0)
    found = {number: at_once(chunk.pieces_from(Recogniser(number), 0)) for number in (7, 8)}
    assert [piece for piece, _ in found[7]] == [Stored(0, 0, 2, 1), Stored(0, 2, 1, 4)]
    assert [piece for piece, _ in found[8]] == [Stored(3, 5, 1, 3)]
    assert at_once(chunk.pieces_from(Recogniser(9), 0)) == []
    assert (chunk.start, chunk.end, chunk.gaps) == (0, 5, [])


def test_a_chunk_tells_where_offsets_are_missing_and_which_message_has_an_offset() -> None:
    log = a_log(plain(b"a"), marked(Identity(7, 0, 0, 2)), plain(b"b"), marked(Identity(7, 0, 2, 2)))
    del log.messages[1:3]
    chunk = chunk_of(log, 0)
    assert chunk.gaps == [(1, 4)]
    found = {offset: chunk.message_at(offset) for offset in range(7)}
    assert [offset for offset, message in found.items() if message is not None] == [0, 4, 5]


def test_a_wrapper_from_which_compaction_took_a_record_has_a_gap() -> None:
    log = a_log(marked(Identity(7, 0, 0, 3)), plain(b"b"))
    assert log.compact(0, (1,))
    chunk = chunk_of(log, 0)
    assert at_once(chunk.pieces_from(Recogniser(7), 0)) == []
    assert chunk.gaps == [(0, 3)]


def test_a_chunk_knows_the_contents_of_what_has_no_batch_marker() -> None:
    from idemproxy.codecs.convert import content_of_message

    log = a_log(plain(b"a"), plain(b"b"), plain(b"a"), marked(Identity(7, 0, 0, 1), value=b"a"))
    (message,) = iterate_shallow(plain(b"a"))
    assert list(chunk_of(log, 0).offsets_of(content_of_message(message))) == [0, 2]


def test_a_chunk_ends_before_what_cannot_be_read() -> None:
    data = plain(b"a") + encode_message(None, b"no lz4 at all", magic=1, offset=3, codec=Codec.LZ4)
    chunk = at_once(taking_apart(0, FetchAnswer(0, 4, memoryview(data))))
    assert chunk.end == 1
    assert chunk.unreadable is not None
    assert chunk.message_at(3) is not None, "it is there all the same"
    assert chunk.message_at(2) is None, "nobody knows where it begins"


def test_a_chunk_of_many_records_ends_early_and_what_follows_is_read_next(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHUNK_RECORDS_MAX", 4)
    broker.ask(0, 9)
    broker.run()
    broker.answer()
    assert broker.offsets == [0, 9]
    broker.answer()
    assert [(offset, chunk.end) for offset, chunk in broker.given if isinstance(chunk, LogChunk)] == [(0, 4), (9, 10)]


def test_a_search_finds_everything_in_a_log_that_takes_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHUNK_RECORDS_MAX", 4)
    stage, client = Stage(), Client()
    for sequence in range(3):
        foreign(stage, *(b"%d" % number for number in range(10)))
        stage.send(client, sequence)
        stage.run(1)
    stage.outcomes.append(stage.loses_answer)
    lost = stage.send(client, 3)
    stage.run(10)
    assert (lost.code, lost.offset) == (0, 33)
    stage.values.clear()
    stage.die()
    stage.asked.clear()
    client = Client()
    retries = [stage.send(client, sequence) for sequence in range(4)]
    stage.run(60)
    assert [(retry.code, retry.offset) for retry in retries] == [(0, 10), (0, 21), (0, 32), (0, 33)]
    scanned = {question.offset for _, question in stage.asked if isinstance(question, FetchRecords)}
    assert {0, 4, 8, 13, 17, 21, 26} <= scanned, "each read has gone on where the one before it ended"


# ---------------------------------------------------------------------- all together
@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[FetchRecords]:
    """Every fetch that a proxy sends."""
    found: list[FetchRecords] = []
    encode = FetchRecords.encode

    def seen(question: FetchRecords, version: int) -> bytes:
        found.append(question)
        return encode(question, version)

    monkeypatch.setattr(FetchRecords, "encode", seen)
    return found


@pytest.mark.promise("one-reading")
def test_in_a_new_data_generation_one_read_serves_a_partitions_producers(
    fetched: list[FetchRecords],
) -> None:
    clients = 200
    world = World(1, WorldSettings(brokers=1, clients=clients))
    world.start()
    for _ in range(2):
        for client in world.clients:
            client.send(TOPIC, 0)
        assert world.network.run(60, lambda: all(client.is_done for client in world.clients))
    world.network.run(1)
    world.redis.restart()
    world.network.run(3)
    fetched.clear()
    for client in world.clients:
        client.send(TOPIC, 0)
    assert world.network.run(60, lambda: all(client.is_done for client in world.clients))
    assert len(fetched) == 1
    values = [record.value for stored in world.cluster.log(TOPIC, 0).messages for record in stored.message.records]
    assert len(values) == len(set(values)) == sum(len(b.values) for c in world.clients for b in c.batches)
    assert world.errors() == []


@pytest.mark.promise("one-reading")
def test_unknown_outcomes_of_one_partition_that_open_together_share_one_reading(fetched: list[FetchRecords]) -> None:
    world = World(1, WorldSettings(brokers=1, clients=100, network=CALM))
    world.start()
    for _ in range(2):
        for client in world.clients:
            client.send(TOPIC, 0)
        assert world.network.run(60, lambda: all(client.is_done for client in world.clients))
    lost: list[ProduceSeen] = []

    def choose(seen: ProduceSeen) -> BrokerFault:
        lost.append(seen)
        return BrokerFault.LOST_ANSWER if len(lost) <= limits.PRODUCE_CONNECTIONS_PER_BROKER else BrokerFault.NONE

    world.cluster.choose_fault = choose
    fetched.clear()
    for client in world.clients:
        client.send(TOPIC, 0)
    assert world.network.run(60, lambda: all(client.is_done for client in world.clients))
    events = [event for _, _, event in world.proxies[0].events if isinstance(event, UnknownOutcomeResolved)]
    assert [event.result for event in events] == ["found"] * limits.PRODUCE_CONNECTIONS_PER_BROKER
    assert len(fetched) == 1
    assert world.errors() == []


def test_a_wrapper_of_very_many_records_is_never_taken_apart_at_once(
    monkeypatch: pytest.MonkeyPatch, messages_read: MessagesRead
) -> None:
    count = 200_000
    world = World(1, WorldSettings(brokers=1, clients=1))
    world.start()
    (client,) = world.clients
    client.send(TOPIC, 0)
    assert world.network.run(60, lambda: client.is_done)
    log = world.cluster.log(TOPIC, 0)
    packed = compress(Codec.GZIP, encode_set([(None, b"", 0)] * count, magic=1))
    log.append(encode_message(None, packed, magic=1, offset=count - 1, codec=Codec.GZIP), 0.0)
    log.advance(log.end_offset)
    step = vars(LongWork)["_step"]

    def counted(work: LongWork, line: Any) -> None:
        messages_read.end_step()
        step(work, line)
        messages_read.end_step()

    monkeypatch.setattr(LongWork, "_step", counted)
    world.redis.restart()
    world.network.run(3)
    messages_read.count = messages_read.largest = 0
    client.send(TOPIC, 0)
    assert world.network.run(60, lambda: client.is_done)
    messages_read.end_step()
    assert STEP_RECORDS <= messages_read.largest <= 1.5 * STEP_RECORDS
    assert world.errors() == []
