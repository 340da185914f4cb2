"""What a piece of the log takes in memory: while it is taken apart, while somebody uses it, and afterwards."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from weakref import ReferenceType, ref

import pytest
from mutants.scenes import foreign

from idemproxy.codecs.batch_digest import digesting_stored
from idemproxy.codecs.batch_marker import Identity, content_digest, encode_batch_marker
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set, iterate_shallow
from idemproxy.codecs.steps import STEP_RECORDS, at_once
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import FetchAnswer, FetchRecords
from idemproxy.proxy.flow.effects import Unanswered
from idemproxy.proxy.partition_log.log_chunk import LogChunk, ReadLog, has_content, taking_apart
from idemproxy.proxy.partition_log.log_reader import LogReader
from idemproxy.proxy.partition_log.recognised import Recogniser
from testkit.stage.sequencer import Client, Stage
from testkit.stage.step_sizes import MessagesRead
from testkit.virtual.network import Network

BASE = 1_000_000
"""An offset as logs have it: a small number takes no memory."""


def wrapper(first: int, *values: bytes, key: bytes | None = None) -> bytes:
    packed = compress(Codec.GZIP, encode_set([(None, value, 0) for value in values], magic=1))
    return encode_message(key, packed, magic=1, offset=first + len(values) - 1, codec=Codec.GZIP)


def chunk_of(data: bytes, start: int = 0) -> LogChunk:
    return at_once(taking_apart(start, FetchAnswer(0, 1 << 40, memoryview(bytearray(data)))))


# ---------------------------------------------------------------------- one chunk
def test_a_chunk_ends_when_it_has_unpacked_so_much() -> None:
    bombs = [wrapper(number, bytes(12 * limits.MIB)) for number in range(5)]
    assert sum(map(len, bombs)) < limits.FETCH_BYTES / 8
    chunk = chunk_of(b"".join(bombs))
    assert (chunk.end, chunk.unreadable, chunk.gaps) == (3, None, [])
    chunk = chunk_of(b"".join(bombs[chunk.end :]), chunk.end)
    assert chunk.end == 5


def test_a_wrapper_that_unpacks_beyond_the_chunk_limit_is_its_own_chunk() -> None:
    value = bytes(limits.CHUNK_MEMORY_BYTES_MAX + 1)
    chunk = chunk_of(wrapper(0, value) + wrapper(1, b"a"))
    assert (chunk.end, chunk.unreadable) == (1, None)
    assert list(chunk.offsets_of(content_digest(None, value))) == [0]


def test_a_chunk_of_many_small_appends_of_ours_ends_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHUNK_MEMORY_BYTES_MAX", 8 * limits.KIB)
    data = b"".join(wrapper(number, b"v", key=encode_batch_marker([Identity(7, 0, number, 1)])) for number in range(20))
    chunk = chunk_of(data)
    assert 1 < chunk.end < 20
    assert len(at_once(chunk.pieces_from(Recogniser(7), 0))) == chunk.end


def ours(count: int) -> bytes:
    return b"".join(
        wrapper(BASE + number, b"v", key=encode_batch_marker([Identity(BASE + number, 0, BASE, 1)]))
        for number in range(count)
    )


def merged(count: int) -> bytes:
    batch_marker = encode_batch_marker([Identity(BASE + number, 0, BASE, 1) for number in range(100)])
    values = [b"v"] * 100
    return b"".join(wrapper(BASE + first, *values, key=batch_marker) for first in range(0, count, 100))


def unmarked(count: int) -> bytes:
    values = [b"%d" % number * 20 for number in range(count)]
    return b"".join(wrapper(BASE + first, *values[first : first + 100]) for first in range(0, count, 100))


def plain(count: int) -> bytes:
    return encode_set([(b"k", b"%d" % number, BASE) for number in range(count)], magic=1, first_offset=BASE)


def bomb(count: int) -> bytes:
    return wrapper(BASE, bytes(20 * limits.MIB))


def one_wrapper(count: int) -> bytes:
    return wrapper(BASE, *(b"%d" % number for number in range(count)))


@pytest.mark.parametrize("data_of", [one_wrapper, merged, unmarked, plain])
def test_a_chunk_is_taken_apart_in_steps(data_of: Callable[[int], bytes], messages_read: MessagesRead) -> None:
    answer = FetchAnswer(0, 1 << 40, memoryview(bytearray(data_of(4 * STEP_RECORDS))))
    assert messages_read.largest_step(taking_apart(BASE, answer)) <= 1.5 * STEP_RECORDS


def test_a_search_in_a_wrapper_of_many_records_is_made_in_steps(messages_read: MessagesRead) -> None:
    count = 10 * STEP_RECORDS
    (message,) = iterate_shallow(one_wrapper(count))
    assert messages_read.largest_step(has_content(message, BASE, b"nothing!")) <= STEP_RECORDS + 1
    for number in (0, count - 1):
        content = content_digest(None, b"%d" % number)
        assert at_once(has_content(message, BASE + number, content))
        assert not at_once(has_content(message, BASE + 7, content))
    stored = partial(digesting_stored, message, limits.DECOMPRESSED_BYTES_MAX)
    assert messages_read.largest_step(stored(1, count - 1)) <= STEP_RECORDS + 1
    assert at_once(stored(3, 2)) == at_once(stored(4, 1, at_once(stored(3, 1))))


@pytest.mark.parametrize("name_count", [1, 40])
def test_an_audit_looks_at_a_busy_producers_batches_once_and_in_steps(
    name_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHUNK_STEP_RECORDS", 10)
    data = b"".join(wrapper(number, b"v", key=encode_batch_marker([Identity(7, 0, number, 1)])) for number in range(50))
    names = [Identity(7, 0, 20 + number, 1) for number in range(name_count)]
    steps = chunk_of(data).copies_from(names, 10)
    assert len(list(steps)) == 4
    assert [one for one, _ in at_once(chunk_of(data).copies_from(names, 10))] == names[:30]
    assert at_once(chunk_of(data).copies_from(names, 30)) == [(name, name.base_sequence) for name in names[10:30]]


def test_equal_records_are_found_wherever_they_are() -> None:
    chunk = chunk_of(plain(1_000) + wrapper(BASE + 1_000, b"a", b"b", b"a") + wrapper(BASE + 1_003, b"a"), BASE)
    assert list(chunk.offsets_of(content_digest(None, b"a"))) == [BASE + 1_000, BASE + 1_002, BASE + 1_003]
    assert list(chunk.offsets_of(content_digest(b"k", b"17"))) == [BASE + 17]
    assert list(chunk.offsets_of(content_digest(None, b"c"))) == []


@pytest.mark.parametrize("data_of", [ours, merged, unmarked, plain, bomb])
def test_a_chunk_knows_how_much_memory_it_takes(data_of: Callable[[int], bytes]) -> None:
    data = data_of(2_000)
    tracemalloc.start()
    try:
        chunk = chunk_of(data, BASE)
        at_once(chunk.pieces_from(Recogniser(7), 0))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken / 1.5 < chunk.held_bytes < taken * 2


def test_a_search_finds_everything_in_a_log_whose_chunks_are_full_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHUNK_MEMORY_BYTES_MAX", 1)
    stage, client = Stage(), Client()
    for sequence in range(3):
        foreign(stage, *(b"%d" % number for number in range(4)))
        stage.send(client, sequence)
        stage.run(1)
    stage.values.clear()
    stage.die()
    stage.asked.clear()
    client = Client()
    retries = [stage.send(client, sequence) for sequence in range(3)]
    stage.run(60)
    assert [(retry.code, retry.offset) for retry in retries] == [(0, 4), (0, 9), (0, 14)]
    scanned = {question.offset for _, question in stage.asked if isinstance(question, FetchRecords)}
    assert set(range(15)) <= scanned, "each read has gone on where the one before it ended"


# ---------------------------------------------------------------------- what is kept
class Reading:
    """A reader whose broker answers at once, always the same."""

    def __init__(self, data: bytes) -> None:
        self.network = Network(1)
        self.fetched = 0
        self.seen: list[ReferenceType[LogChunk]] = []
        self._data = data
        self._reader = LogReader(
            self.network.host("proxy"), self._fetch, lambda start, _topic, done: done(at_once(start()))
        )

    def _fetch(
        self, question: ReadLog, leaves: Callable[[], None], done: Callable[[LogChunk | Unanswered], None]
    ) -> None:
        self.fetched += 1
        leaves()
        answer = FetchAnswer(0, 1, memoryview(bytearray(self._data)))
        done(at_once(taking_apart(question.offset, answer)))

    def _take(self, chunk: LogChunk | Unanswered) -> None:
        assert isinstance(chunk, LogChunk)
        self.seen.append(ref(chunk))

    def read(self, partition: int) -> None:
        self._reader.read(ReadLog("t", partition, 0), self._take)
        self.network.run(0.01)

    @property
    def alive(self) -> list[int]:
        """Which of those that were given are still in memory."""
        gc.collect()
        return [index for index, chunk in enumerate(self.seen) if chunk() is not None]


def test_what_was_read_is_let_go_when_nobody_asks_any_more() -> None:
    reading = Reading(plain(1))
    for partition in range(3):
        reading.read(partition)
    assert reading.alive == [0, 1, 2]
    reading.network.run(limits.CHUNK_KEPT_SECONDS)
    assert (len(reading.seen), reading.alive) == (3, [])


def test_what_is_kept_counts_by_the_memory_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = unmarked(100)
    held = chunk_of(data).held_bytes
    assert held > 5 * len(data), "it is not the size of what was fetched"
    monkeypatch.setattr(limits, "CHUNKS_KEPT_BYTES_MAX", 3 * held)
    reading = Reading(data)
    for partition in range(5):
        reading.read(partition)
    assert reading.alive == [2, 3, 4]
    assert reading.fetched == 5


def test_what_is_too_large_to_be_kept_is_given_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = unmarked(100)
    monkeypatch.setattr(limits, "CHUNKS_KEPT_BYTES_MAX", chunk_of(data).held_bytes - 1)
    reading = Reading(data)
    reading.read(0)
    assert (len(reading.seen), reading.alive) == (1, [])
