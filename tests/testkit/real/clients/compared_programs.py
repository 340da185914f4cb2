"""Programs of produce requests, byte for byte the same to any server: a broker of Kafka ≥ 0.11, or the proxy in front
of Kafka 0.10.

Owns what is sent and how an answer is written down. Judges nothing, and no step depends on an earlier answer but by
the producer id that was handed out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.codecs.record_batch import CONTROL_FLAG

from .raw_client import RawClient, batch, resigned

NEVER_HANDED_OUT = (1 << 50) + 7
TRANSACTIONAL_FLAG = 0x10
_CRC_AT, _ATTRIBUTES_AT, _RECORD_COUNT_AT = 17, 21, 57
_KEPT = 5
ANSWER_SECONDS_MAX = 10.0
_ASKED_MAX = 300
_NOT_YET = (7, 14, 15)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a step was answered. ``step``: what was sent, in words; the same step may come many times."""

    step: str
    answer: str


@dataclass(slots=True)
class Recorder:
    """Sends to one topic of one server, and writes down what it says."""

    address: tuple[str, int]
    topic: str
    seen: list[Seen] = field(default_factory=list)
    _client: RawClient | None = None

    @property
    def client(self) -> RawClient:
        """The connection; a new one if the server has closed the last."""
        if self._client is None:
            self._client = RawClient(self.address, ANSWER_SECONDS_MAX)
        return self._client

    def close(self) -> None:
        """Hang up."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def new_id(self) -> int:
        """Return a producer id of the server's own. A broker that gets its block of them first says 14 meanwhile."""
        for _ in range(_ASKED_MAX):
            code, producer, _ = self.client.init_producer_id()
            if code == 0:
                return producer
            assert code in _NOT_YET, code
            time.sleep(0.1)
        raise AssertionError("it hands out no producer id")

    def send(self, step: str, records: bytes | None, *, partition: int = 0, topic: str = "", **options: Any) -> None:
        """Send a batch and write down the answer."""
        self.send_all(step, [(topic or self.topic, partition, records)], **options)

    def send_all(self, step: str, parts: Sequence[tuple[str, int, bytes | None]], **options: Any) -> None:
        """Send one request with these partitions and write down all answers, in order of partitions."""
        try:
            answers = self.client.produce(parts, **options)
        except ConnectionError:
            self.close()
            self.seen.append(Seen(step, "closes the connection"))
            return
        except TimeoutError:
            self.close()
            self.seen.append(Seen(step, "does not answer"))
            return
        self.seen.append(Seen(step, ", ".join(said(one) for one in sorted(answers, key=lambda one: one.partition))))

    def ask(self, step: str, question: Callable[[RawClient], str]) -> None:
        """Ask anything else, and write down what it came to."""
        try:
            answer = question(self.client)
        except ConnectionError:
            self.close()
            answer = "closes the connection"
        self.seen.append(Seen(step, answer))


def said(answer: PartitionAnswer) -> str:
    """An answer in words: the code, and the offset of a success."""
    if answer.error_code:
        return f"{answer.error_code}"
    return f"success at {answer.base_offset}" if answer.base_offset >= 0 else "success, without an offset"


Program = Callable[[Recorder], None]
_programs: dict[str, Program] = {}
PROGRAMS: Mapping[str, Program] = MappingProxyType(_programs)
"""By name, in the order of the page."""


def _program(program: Program) -> Program:
    _programs[program.__name__.strip("_").replace("_", " ")] = program
    return program


def _values(name: str, count: int = 2) -> list[bytes]:
    return [f"{name}:{number}".encode() for number in range(count)]


def _ten(to: Recorder) -> tuple[int, list[bytes]]:
    """Ten batches of two records, stored; returns the producer id and the batches."""
    producer = to.new_id()
    sent = [batch(_values(f"b{number}"), producer_id=producer, sequence=2 * number) for number in range(10)]
    for records in sent:
        to.send("the next batch", records)
    return producer, sent


# ------------------------------------------------------------------ sequences
@_program
def _batches_again(to: Recorder) -> None:
    _, sent = _ten(to)
    for number in range(9, 9 - _KEPT, -1):
        to.send("one of the last five batches again", sent[number])
    to.send("the sixth last batch again", sent[4])
    to.send("the first of ten batches again", sent[0])


@_program
def _gaps(to: Recorder) -> None:
    producer = to.new_id()
    first, second, third = (batch(_values(f"g{n}"), producer_id=producer, sequence=2 * n) for n in range(3))
    to.send("the next batch", first)
    to.send("a batch behind one that is missing", third)
    to.send("the missing batch", second)
    to.send("the batch behind it, again", third)
    to.send("a batch behind one that is missing", batch(_values("far"), producer_id=producer, sequence=1000))


@_program
def _overlaps(to: Recorder) -> None:
    producer = to.new_id()
    to.send("the next batch", batch(_values("o", 4), producer_id=producer, sequence=0))
    to.send(
        "a batch that begins within the last one and ends with it",
        batch(_values("p"), producer_id=producer, sequence=2),
    )
    to.send(
        "a batch that begins within the last one and ends behind it",
        batch(_values("q", 4), producer_id=producer, sequence=2),
    )
    to.send("the first records of the last batch, as a batch", batch(_values("o"), producer_id=producer, sequence=0))
    to.send("the next batch", batch(_values("r"), producer_id=producer, sequence=4))


@_program
def _other_content(to: Recorder) -> None:
    producer = to.new_id()
    to.send("the next batch", batch(_values("one"), producer_id=producer, sequence=0))
    to.send("the numbers of the last batch with other records", batch(_values("two"), producer_id=producer, sequence=0))
    to.send(
        "the records of the last batch compressed in another way",
        batch(_values("one"), producer_id=producer, sequence=0, codec=Codec.GZIP),
    )


@_program
def _beginnings(to: Recorder) -> None:
    to.send("a fresh producer id that does not begin at 0", batch(_values("late"), producer_id=to.new_id(), sequence=5))
    own = batch(_values("own"), producer_id=NEVER_HANDED_OUT, sequence=0)
    to.send("a producer id that nobody handed out, at 0", own, partition=1)
    other = batch(_values("other"), producer_id=NEVER_HANDED_OUT + 1, sequence=5)
    to.send("a producer id that nobody handed out, not at 0", other, partition=2)


@_program
def _partitions_have_sequences_of_their_own(to: Recorder) -> None:
    producer = to.new_id()
    records = batch(_values("p"), producer_id=producer, sequence=0)
    to.send_all("one batch for each of three partitions", [(to.topic, number, records) for number in range(3)])
    to.send("one of the last five batches again", records, partition=1)


# ------------------------------------------------------------------ epochs
@_program
def _epochs(to: Recorder) -> None:
    producer = to.new_id()
    to.send("the next batch", batch(_values("e0"), producer_id=producer, sequence=0))
    to.send("a higher epoch that does not begin at 0", batch(_values("no"), producer_id=producer, epoch=1, sequence=2))
    to.send("a higher epoch that begins at 0", batch(_values("e1"), producer_id=producer, epoch=1, sequence=0))
    to.send("an older epoch", batch(_values("old"), producer_id=producer, epoch=0, sequence=2))
    to.send("a batch of an older epoch again", batch(_values("e0"), producer_id=producer, sequence=0))
    to.send("an epoch that skips some", batch(_values("e5"), producer_id=producer, epoch=5, sequence=0))
    to.send("the next batch", batch(_values("e5b"), producer_id=producer, epoch=5, sequence=2))


@_program
def _a_higher_epoch_is_asked_for(to: Recorder) -> None:
    producer = to.new_id()
    to.send("the next batch", batch(_values("a"), producer_id=producer, sequence=0))
    asked: list[tuple[int, int, int]] = []

    def ask(client: RawClient) -> str:
        asked.append(client.init_producer_id(3, None, producer, 0))
        code, given, epoch = asked[-1]
        return f"{code}" if code else f"{'the same id' if given == producer else 'another id'}, epoch {epoch}"

    to.ask("InitProducerId with an id and its epoch, without a transactional id", ask)
    if asked and asked[-1][0] == 0:
        to.send(
            "the first batch with what it was given",
            batch(_values("b"), producer_id=asked[-1][1], epoch=asked[-1][2], sequence=0),
        )


# ------------------------------------------------------------------ batches that are not right
@_program
def _broken_batches(to: Recorder) -> None:
    producer = to.new_id()
    good = batch(_values("x"), producer_id=producer, sequence=0)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    to.send("a batch with a wrong checksum", bytes(flipped))
    to.send("a batch that is cut off", good[:-3])
    to.send("a batch that tells a wrong count of records", resigned(good, _RECORD_COUNT_AT, (7).to_bytes(4, "big")))
    to.send("no records", b"")
    to.send("no records at all (null)", None)
    to.send("two batches of a producer for one partition", good + batch(_values("y"), producer_id=producer, sequence=2))
    to.send("the next batch", good)


@_program
def _bits_of_transactions(to: Recorder) -> None:
    producer = to.new_id()
    to.send("a control batch", batch(_values("c", 1), producer_id=producer, sequence=0, attributes=CONTROL_FLAG))
    to.send(
        "a transactional batch outside of a transaction",
        batch(_values("t", 1), producer_id=producer, sequence=0, attributes=TRANSACTIONAL_FLAG),
    )
    to.send("the next batch", batch(_values("n"), producer_id=producer, sequence=0))


@_program
def _sizes(to: Recorder) -> None:
    noise = Random(0).randbytes(1_100_000)
    to.send("a record above max.message.bytes", batch([noise], producer_id=to.new_id(), sequence=0))
    to.send(
        "a record above max.message.bytes that compression makes smaller",
        batch([b"z" * 1_100_000], producer_id=to.new_id(), sequence=0),
        partition=1,
    )
    to.send("a record with an empty value", batch([b""], producer_id=to.new_id(), sequence=0, key=b"k"), partition=2)


# ------------------------------------------------------------------ requests
@_program
def _acks(to: Recorder) -> None:
    producer = to.new_id()
    to.send("acks 1 with a producer id", batch(_values("one"), producer_id=producer, sequence=0), acks=1)
    to.send("acks 2", batch(_values("two"), producer_id=producer, sequence=2), acks=2)
    to.send("the next batch", batch(_values("three"), producer_id=producer, sequence=2))
    to.send("without a producer id", batch(_values("none")), acks=1)


@_program
def _places(to: Recorder) -> None:
    producer = to.new_id()
    records = batch(_values("p"), producer_id=producer, sequence=0)
    to.send("a partition that the topic does not have", records, partition=99)
    to.send("a topic that does not exist", records, topic="there-is-no-such-topic")
    to.send("a topic name that is not allowed", records, topic="a topic/with spaces")
    to.send_all("the same partition twice in a request", [(to.topic, 0, records), (to.topic, 0, records)])


@_program
def _codecs(to: Recorder) -> None:
    producer = to.new_id()
    known = {Codec.GZIP: "gzip", Codec.SNAPPY: "snappy", Codec.LZ4: "lz4"}
    for number, (codec, name) in enumerate(known.items()):
        to.send(f"a batch in {name}", batch(_values("c", 20), producer_id=producer, sequence=20 * number, codec=codec))
    zstd = batch(_values("z", 20), producer_id=producer, sequence=60, codec=Codec.ZSTD)
    to.send("a batch in zstd with Produce 3", zstd)
    to.send("a batch in zstd with Produce 7", zstd, version=7)


@_program
def _headers(to: Recorder) -> None:
    headers: tuple[tuple[str, bytes | None], ...] = (("source", b"1"),)
    to.send("a record with a header", batch(_values("h"), producer_id=to.new_id(), sequence=0, headers=headers))
    traced: tuple[tuple[str, bytes | None], ...] = (("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"),)
    records = batch(_values("t"), producer_id=to.new_id(), sequence=0, headers=traced)
    to.send("a record with a tracing header", records, partition=1)


@_program
def _transactional_produce(to: Recorder) -> None:
    records = batch(_values("t"), producer_id=to.new_id(), sequence=0)
    to.send("a produce with a transactional id", records, transactional_id="bank")


# ------------------------------------------------------------------ random ones
def random_program(seed: int, steps: int = 60) -> Program:
    """A program of two producers on one partition, of what the programs above send: which comes next is random. What
    is refused on both sides leaves no trace, so that no step depends on an answer."""

    def program(to: Recorder) -> None:
        random = Random(seed)
        ids = [to.new_id(), to.new_id()]
        due, epoch = [0, 0], [0, 0]
        sent: list[list[bytes]] = [[], []]
        for number in range(steps):
            who = random.randrange(2)

            def made(sequence: int, in_epoch: int, who: int = who, number: int = number) -> bytes:
                values = _values(f"s{number}", random.randrange(1, 4))
                codec = random.choice((Codec.NONE, Codec.GZIP, Codec.LZ4))
                return batch(values, producer_id=ids[who], epoch=in_epoch, sequence=sequence, codec=codec)

            choice = random.random()
            if choice < 0.55 or not sent[who]:
                records = made(due[who], epoch[who])
                to.send("the next batch", records)
                sent[who].append(records)
                due[who] += int.from_bytes(records[_RECORD_COUNT_AT : _RECORD_COUNT_AT + 4], "big")
            elif choice < 0.8:
                again = random.choice(sent[who][-_KEPT:])
                to.send("one of the last five batches again", again)
            elif choice < 0.87:
                to.send("a batch behind one that is missing", made(due[who] + 1 + random.randrange(5), epoch[who]))
            elif choice < 0.92 and epoch[who]:
                to.send("an older epoch", made(0, epoch[who] - 1))
            elif choice < 0.96:
                to.send("a higher epoch that does not begin at 0", made(1 + random.randrange(9), epoch[who] + 1))
            else:
                epoch[who] += 1
                records = made(0, epoch[who])
                to.send("a higher epoch that begins at 0", records)
                sent[who], due[who] = [records], int.from_bytes(records[_RECORD_COUNT_AT : _RECORD_COUNT_AT + 4], "big")

    return program


# ------------------------------------------------------------------ with faults in front of the server
def resent_until_answered(seed: int, batches: int = 30, in_flight: int = 5) -> Program:
    """A program that behaves as a client library does where connections break: batches in order, so many in flight,
    and all that was not answered again, in order, over a new connection. Only final answers are written down."""

    def program(to: Recorder) -> None:
        producer, sequence = to.new_id(), 0
        random = Random(seed)
        todo: list[bytes] = []
        for number in range(batches):
            values = _values(f"f{number}", random.randrange(1, 5))
            todo.append(batch(values, producer_id=producer, sequence=sequence))
            sequence += len(values)
        tries = 0
        while todo:
            tries += 1
            assert tries < 20 * batches, "it gets no answer"
            try:
                for records in todo[:in_flight]:
                    to.client.send_produce([(to.topic, 0, records)])
                for _ in range(min(in_flight, len(todo))):
                    (answer,) = to.client.produce_answer()
                    if answer.error_code not in _DONE:
                        break  # a client sends it again, and all after it
                    how = "it is stored" if answer.error_code in _STORED else f"{answer.error_code}"
                    to.seen.append(Seen("a batch whose answers and connections are lost", how))
                    todo.pop(0)
                else:
                    continue
                to.close()
            except ConnectionError:
                to.close()

    return program


_STORED = (0, 46)
_DONE = (*_STORED, 47, 59, 87)
"""What is not retriable. 45 is met where the batch before it was cut off."""
