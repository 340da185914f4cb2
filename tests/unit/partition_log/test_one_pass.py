"""All searches of a partition share one pass through its log: where they join it, what each of them reads, and that a
rebuild finds the same wherever it joins (rules R6, R10)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from idemproxy.codecs.batch_marker import Identity, content_digest, encode_batch_marker
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.steps import Steps, at_once
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import EarliestOffset, FetchAnswer, LatestOffset, OffsetAnswer
from idemproxy.proxy.flow.effects import Ask, Leader, Now, QuiescenceCheck, Replicas, Unanswered
from idemproxy.proxy.partition_log.log_chunk import LogChunk, Reach, ReadLog, taking_apart
from idemproxy.proxy.partition_log.log_offsets import Later, Position
from idemproxy.proxy.partition_log.log_reader import LogReader
from idemproxy.proxy.partition_log.log_search import LogSearch, Searched, Undecidable, Wanted
from idemproxy.state.commit import fresh
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.entry import NO_ANCHOR, NO_PRINCIPAL
from idemproxy.state.rebuilding import completed
from testkit.virtual.log import PartitionLog
from testkit.virtual.network import Network

MESSAGES = 400
FETCH_BYTES = 1000
"""Some 25 of these messages."""
Fetched = Callable[[LogChunk | Unanswered], None]


def plain(number: int) -> bytes:
    return encode_message(None, b"%03d" % number, magic=1)


class Broker:
    """Answers each fetch after a hundredth of a second, from a log of plain messages."""

    def __init__(self) -> None:
        self.network = Network(1)
        self.host = self.network.host("proxy")
        self.log = PartitionLog()
        for number in range(MESSAGES):
            self.log.append(plain(number), 0.0)
        self.log.advance(MESSAGES)
        self.fetched: list[ReadLog] = []
        self.bytes = 0
        self.reader = LogReader(self.host, self._fetch, self._take_apart)

    def _fetch(self, question: ReadLog, leaves: Callable[[], None], done: Fetched) -> None:
        leaves()
        self.fetched.append(question)
        data = self.log.read(question.offset, question.bytes_max, whole_first=True, up_to=MESSAGES)
        self.bytes += len(data)
        answer = FetchAnswer(0, MESSAGES, memoryview(data))
        self.host.later(0.01, lambda: done(at_once(taking_apart(question.offset, answer))))

    def _take_apart(self, start: Callable[[], Steps[LogChunk]], _topic: str, done: Fetched) -> None:
        self.host.later(0, lambda: done(at_once(start())))


class Search:
    """Reads from an offset to the end of the log; one that joins reads what comes before that place last."""

    def __init__(self, broker: Broker, offset: int = 0, *, joins: bool = True, reach: Reach = Reach.WHOLE_LOG) -> None:
        self._broker = broker
        self._joins = joins
        self._reach = reach
        self.begun_at = self._next = offset
        self._stop = MESSAGES
        self.seen: set[int] = set()
        self.is_wanted = True
        self.ended_at: float | None = None
        self.told: Unanswered | None = None
        self._ask()

    def _ask(self) -> None:
        question = ReadLog(
            *("t", 0, self._next), reach=self._reach, joins=self._joins, is_wanted=lambda: self.is_wanted
        )
        self._broker.reader.read(question, self._take)

    def _take(self, chunk: LogChunk | Unanswered) -> None:
        if isinstance(chunk, Unanswered):
            self.told = chunk
            return
        if self._joins and chunk.start > self._next:
            self._stop = -chunk.start
            self._next = chunk.start
        self._joins = False
        self.seen |= {message.offset for _, message in chunk.messages if message.offset >= self._next}
        self._next = chunk.end
        if self._next >= abs(self._stop) and self._stop < 0 and self._next >= MESSAGES:
            self._next, self._stop = self.begun_at, -self._stop
        if self._stop > 0 and self._next >= self._stop:
            self.ended_at = self._broker.network.now
        else:
            self._ask()


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(limits, "FETCH_BYTES", FETCH_BYTES)
    monkeypatch.setattr(limits, "CHUNK_KEPT_SECONDS", 0.05)
    return Broker()


def one_reading() -> int:
    """Fetches that one search needs."""
    alone = Broker()
    Search(alone)
    alone.network.run(60)
    return len(alone.fetched)


@pytest.mark.parametrize("joins", [True, False])
def test_searches_that_begin_one_after_the_other_cost_two_readings_at_most(broker: Broker, joins: bool) -> None:
    """Before, each of them had a reading of its own."""
    searches = [Search(broker)]
    for _ in range(50):
        broker.network.run(0.003)
        searches.append(Search(broker, joins=joins))
    broker.network.run(60)
    assert all(search.seen == set(range(MESSAGES)) for search in searches)
    assert len(broker.fetched) <= 2 * one_reading() + 2
    assert broker.bytes <= 2 * len(b"".join(map(plain, range(MESSAGES)))) + 4 * FETCH_BYTES


def test_who_joins_a_pass_is_done_one_reading_later(broker: Broker) -> None:
    Search(broker)
    broker.network.run(0.06)
    begun, late = broker.network.now, Search(broker)
    broker.network.run(60)
    assert late.ended_at is not None
    assert late.ended_at - begun <= (one_reading() + 2) * 0.0125


def test_a_short_search_takes_turns_with_a_long_one(broker: Broker) -> None:
    Search(broker)
    broker.network.run(0.015)
    fetched = len(broker.fetched)
    short = Search(broker, MESSAGES - 5, joins=False, reach=Reach.NEAR_END)
    broker.network.run(0.05)
    assert short.ended_at is not None
    assert len(broker.fetched) <= fetched + 5


def test_a_search_that_is_a_little_late_stays_in_the_pass(broker: Broker) -> None:
    """It took longer than the others over a chunk; the pass goes back for it, and it does not wait for the next."""
    Search(broker)
    broker.network.run(0.1)
    at = broker.fetched[-4].offset
    late = Search(broker, at, joins=False)
    broker.network.run(0.03)
    assert at in late.seen


def test_nothing_is_read_for_a_search_that_nobody_waits_for(broker: Broker) -> None:
    search = Search(broker)
    broker.network.run(0.05)
    search.is_wanted = False
    fetched = len(broker.fetched)
    broker.network.run(10)
    assert len(broker.fetched) <= fetched + 1
    assert search.told == Unanswered("nobody waits for it any more")


def test_the_rest_of_a_fetch_is_not_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk has 20,000 foreign records at most; what else the fetch brought is the next chunk."""
    monkeypatch.setattr(limits, "CHUNK_RECORDS_MAX", 7)
    broker = Broker()
    search = Search(broker)
    broker.network.run(10)
    assert search.seen == set(range(MESSAGES))
    assert [question.offset for question in broker.fetched] == [0]


def test_what_was_fetched_two_seconds_ago_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log may be another one by now."""
    monkeypatch.setattr(limits, "CHUNK_RECORDS_MAX", 7)
    broker = Broker()
    broker.reader.read(ReadLog("t", 0, 0), lambda _chunk: None)
    broker.network.run(limits.CHUNK_KEPT_SECONDS + 1)
    broker.reader.read(ReadLog("t", 0, 7), lambda _chunk: None)
    broker.network.run(1)
    assert [question.offset for question in broker.fetched] == [0, 7]


def test_many_searches_get_a_chunk_in_several_steps(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "READERS_PER_STEP", 10)
    at: list[float] = []
    for _ in range(35):
        broker.reader.read(ReadLog("t", 0, 0), lambda _chunk: at.append(broker.network.now))
    broker.network.run(1)
    assert [at.count(now) for now in sorted(set(at))] == [10, 10, 10, 5]


# ---------------------------------------------------------------------- the same wherever it joins
ME, OTHER = 7, 8
WANTED = b"wanted"


def random_log(random: Random) -> PartitionLog:
    """Batches of one producer among others', with and without batch markers; compaction and retention may have been
    here."""
    log = PartitionLog()
    epoch = sequence = 0
    for _ in range(random.randrange(1, 60)):
        kind = random.random()
        if kind < 0.3:
            count = random.randrange(1, 4)
            if random.random() < 0.1:
                epoch, sequence = epoch + 1, 0
            elif random.random() < 0.1:
                sequence += 2  # what is between is stored without a batch marker, or nowhere
            identities = [Identity(ME, epoch, sequence, count)]
            sequence += count
            if random.random() < 0.3:
                identities.insert(random.randrange(2), Identity(OTHER, 0, 0, 1))
            records = sum(one.record_count for one in identities)
            inner = compress(Codec.GZIP, encode_set([(None, b"v", 0)] * records, magic=1), magic=1)
            batch_marker = encode_batch_marker(tuple(identities))
            log.append(encode_message(batch_marker, inner, magic=1, offset=records - 1, codec=Codec.GZIP), 0.0)
        else:
            log.append(encode_message(None, WANTED if kind > 0.97 else b"x", magic=1), 0.0)
    log.advance(log.end_offset)
    if random.random() < 0.3:
        log.retain(random.randrange(log.end_offset))
    if random.random() < 0.4:
        for _ in range(random.randrange(1, 4)):
            if len(log.messages) > 2:
                del log.messages[random.randrange(len(log.messages) - 1)]
    return log


def a_rebuild() -> LogSearch:
    wanted: dict[bytes, tuple[BatchIdentity, ...]] = {content_digest(None, WANTED): ()}
    return LogSearch(Wanted("t", 0, ME, Position(0, NO_ANCHOR), None, frozenset(), contents=wanted))


def searched(log: PartitionLog, fetch_bytes: int, join: Callable[[int], int | None]) -> Searched | Undecidable:
    """What a rebuild concludes. ``join``: where the pass is that a question from this offset on joins; None: at it."""
    result = tried(a_rebuild(), log, fetch_bytes, join)
    assert isinstance(result, Searched | Undecidable), result
    return result


def tried(
    search: LogSearch, log: PartitionLog, fetch_bytes: int, join: Callable[[int], int | None]
) -> Searched | Later | Undecidable:
    """The result of one try."""
    flow = search.run()
    answer: Any = None
    while True:
        try:
            effect: Any = flow.send(answer)
        except StopIteration as end:
            result: Searched | Later | Undecidable = end.value
            return result
        match effect:
            case Leader():
                answer = 1
            case Now():
                answer = 0.0
            case QuiescenceCheck():
                answer = True
            case Replicas():
                answer = (1,)
            case Ask(_, EarliestOffset()):
                answer = OffsetAnswer(0, log.start_offset)
            case Ask(_, LatestOffset()):
                answer = OffsetAnswer(0, log.end_offset)
            case Ask(_, ReadLog() as question):
                at = join(question.offset) if question.joins else None
                start = question.offset if at is None else at
                error = 0 if start >= log.start_offset else ErrorCode.OFFSET_OUT_OF_RANGE
                data = b"" if error else log.read(start, fetch_bytes, whole_first=True, up_to=log.end_offset)
                answer = at_once(taking_apart(start, FetchAnswer(error, log.end_offset, memoryview(data))))
            case _:
                raise AssertionError(effect)


@pytest.mark.parametrize("block", range(10))
def test_a_rebuild_concludes_the_same_wherever_it_joins_a_pass(block: int) -> None:
    joined = 0
    for seed in range(block * 100, block * 100 + 100):
        random = Random(seed)
        log = random_log(random)
        fetch_bytes = random.choice((150, 400, 1 << 20))
        straight = searched(log, fetch_bytes, lambda _offset: None)
        starts = [stored.first_offset for stored in log.messages]
        places = [random.choice(starts), random.randrange(log.start_offset, log.end_offset + 1)]
        for place in places:
            found = searched(log, fetch_bytes, lambda offset, place=place: place if place > offset else None)  # type: ignore[misc]
            joined += place > log.start_offset
            assert type(found) is type(straight), (seed, place)
            if isinstance(found, Searched) and isinstance(straight, Searched):
                entries = [
                    completed(fresh(bytes(16), NO_PRINCIPAL, 0, 0), one, bytes(16), None, is_since_checkpoint=False)
                    for one in (found, straight)
                ]
                assert entries[0] == entries[1], (seed, place)
                assert (found.is_cut, found.has_unmarked) == (straight.is_cut, straight.has_unmarked), (seed, place)
    assert joined > 100


@pytest.mark.parametrize("block", range(4))
def test_what_retention_deletes_meanwhile_does_not_make_a_rebuild_begin_again(block: int) -> None:
    """It has joined a pass, and the beginning of the log is deleted before it comes there: each reading may take longer
    than retention needs for that, so that it would never end."""
    was_any = False
    for seed in range(block * 50, block * 50 + 50):
        random = Random(seed)
        log = random_log(random)
        starts = [stored.first_offset for stored in log.messages]
        place = random.choice(starts)
        kept = random.choice([start for start in starts if start <= place])
        search, joined = a_rebuild(), 0

        def join(offset: int, place: int = place, kept: int = kept, log: PartitionLog = log) -> int | None:
            nonlocal joined
            if place <= offset:
                return None
            joined += 1
            log.retain(kept)
            return place

        results: list[Searched | Later | Undecidable] = []
        while not results or isinstance(results[-1], Later):
            results.append(tried(search, log, 400, join))
            assert len(results) < 4
        assert joined <= 1, (seed, place, kept)
        was_any = was_any or (joined == 1 and len(results) == 2)
        straight = searched(log, 400, lambda _offset: None)
        assert type(results[-1]) is type(straight), seed
        if isinstance(straight, Searched) and isinstance(results[-1], Searched):
            assert results[-1].pieces == straight.pieces, seed
            assert results[-1].is_cut == straight.is_cut, seed
    assert was_any
