"""One produce request: checked, split by partition, its answers gathered. Rules R11, R16, R18, R20, R23.

Every check that needs no state is made here, before a sequencer hears of the batch: what fails them moves no state
and is never forwarded. Batches with a producer id go to their sequencer, batches without one go on as they come
(``non_idempotent.py``)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from ...codecs.compression import Codec
from ...codecs.error_codes import name_of, named
from ...codecs.errors import ChecksumMismatch, LimitExceeded, WireError
from ...codecs.message_set import OVERHEAD_BYTES
from ...codecs.produce import PartitionAnswer, PartitionRecords, ProduceRequest, encode_response
from ...codecs.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    RECORD_BYTES_MIN,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    magic_of,
    parse_single_batch,
    says_it_follows,
    verify_crc,
)
from ...codecs.steps import Steps, at_once
from ...reactor import Reactor
from ...state.conditional import CONDITIONAL_EPOCH, sequence_of
from ...state.decide import BatchIdentity, Fenced
from ...state.entry import NO_PRINCIPAL
from ...state.producer_ids import CONDITIONAL_ID
from .. import limits
from ..admission.memory_budget import Held, MemoryBudget
from ..bridge.metadata import TOPIC_NAME
from ..broker.queued_append import Way
from ..events import ClientRefused
from ..producer import answers
from ..producer.batch import Answer, Batch
from ..producer.retry_notes import Link, RetryNotes
from .conditional_topics import ConditionalTopics, reading_expected_offset
from .sweeper import UNORDERED, Sweepable

if TYPE_CHECKING:
    from ..producer.sequencer import Sequencer

_NOT_SERVED_FLAGS = CONTROL_FLAG | TRANSACTIONAL_FLAG
_STEP_PARTITIONS = 300
"""Partitions of a request that are begun in one step: a few milliseconds."""
_MAGIC_2_SINCE = 3
_ZSTD_SINCE = 7


PlainPart = tuple[PartitionRecords, Callable[[Answer], None]]
"""A batch without a producer id, and the callback for its answer."""


class Outside(Protocol):
    """What a produce request needs of the engine."""

    def now(self) -> float: ...

    @property
    def memory(self) -> MemoryBudget: ...

    @property
    def conditional_topics(self) -> ConditionalTopics: ...

    def sequencer(self, producer_id: int, topic: str, partition: int) -> Sequencer | None: ...

    def has_partition(self, topic: str, partition: int) -> bool: ...

    def look_for_topic(self, topic: str, done: Callable[[], None]) -> None: ...

    def sweep(self, call: Sweepable, parts: Sequence[Part]) -> None: ...

    def swept(self, call: Sweepable) -> None: ...

    @property
    def reactor(self) -> Reactor: ...

    def report(self, event: object) -> None: ...

    @property
    def is_draining(self) -> bool: ...


class Client(Protocol):
    """What a produce request needs of its session."""

    is_idempotent: bool
    """Has it asked for a producer id, or used one?"""

    @property
    def retry_notes(self) -> RetryNotes: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...

    @property
    def principal(self) -> bytes: ...

    @property
    def way(self) -> Way | None: ...

    def rest(self, seconds: float) -> None:
        """Take nothing more of it for so long."""
        ...

    def abort(self, reason: str) -> None:
        """Close the connection: the only answer that acks=0 has."""
        ...

    def produce_plainly(self, acks: int, timeout_ms: int, parts: list[PlainPart]) -> None:
        """Send batches without a producer id on, in order."""
        ...


class Part:
    """One partition of one request: waits for the answer of its batch.

    It refers to its request, and so to the bytes, until it is answered. The request does not refer to its parts: such a
    cycle would keep the bytes of every request until the garbage collector runs."""

    __slots__ = ("_call", "_client", "_identity", "_index", "_key", "is_done", "link", "number", "numbers_itself")

    def __init__(self, call: ProduceCall, index: int) -> None:
        self._call: ProduceCall | None = call
        self._client = call.client
        self._index = index
        self._key: tuple[int, str, int] | None = None
        self._identity: BatchIdentity | None = None
        self.number = 0
        self.is_done = False
        self.link: Link | None = None
        """The place of a conditional batch in the pipeline of its connection (rule R23)."""
        self.numbers_itself = False
        """Is it published conditionally, by a client whose base sequences are not offsets (rule R23)? Then the offset
        is in a record header."""

    @property
    def is_named(self) -> bool:
        """Is its batch one with a producer id?"""
        return self._key is not None

    def names(self, topic: str, partition: int, header: BatchHeader, records: memoryview) -> BatchIdentity:
        """Return the identity of its batch, and keep it, so that a retriable failure of the batch is remembered (rule
        R11). What becomes of a conditional batch decides about those that its client has sent behind it (rule R23)."""
        self._key = (header.producer_id, topic, partition)
        self._identity = identity = BatchIdentity(header.producer_epoch, header.base_sequence, header.record_count)
        self.number = self._client.retry_notes.request_number()
        if header.producer_id == CONDITIONAL_ID:
            follows = says_it_follows(records)
            self.link = self._client.retry_notes.link(self._key, identity, says_it_follows=follows)
        return identity

    @property
    def is_gone(self) -> bool:
        """Is it answered, or the connection closed?"""
        return self.is_done or self._client.is_closed

    @property
    def connection(self) -> Client:
        """The client connection on which it came."""
        return self._client

    def answer(self, answer: Answer) -> None:
        """Take the answer."""
        call, self._call = self._call, None
        if call is not None:
            self.is_done = True
            if self.numbers_itself:
                answer = answers.conflict_by_header(answer)
            self.note(answer.error_code)
            call.part_answered(self._index, self, answer)

    def appended(self, base_offset: int, log_append_time_ms: int) -> None:
        """Its batch is in the log."""
        self.answer(answers.appended(base_offset, log_append_time_ms))

    def leave(self) -> None:
        """Its client has gone, or it is answered: it no longer holds its request."""
        self._call = None

    def hold(self) -> None:
        """Its batch waits for something: what comes behind it is no gap (rule R11)."""
        if self._key is not None and self._identity is not None:
            self._client.retry_notes.hold(self._key, self._identity)

    def let_go(self) -> None:
        """It no longer waits."""
        if self._key is not None and self._identity is not None:
            self._client.retry_notes.let_go(self._key, self._identity)

    def note(self, error_code: int) -> None:
        """Note what its client is answered."""
        if self._key is not None and self._identity is not None:
            has_failed = answers.is_failure(error_code)
            will_be_retried = has_failed and answers.will_be_retried(error_code, self._identity.record_count)
            self._client.retry_notes.note(self._key, self._identity, has_failed, will_be_retried, self.number)
            if self.link is not None:
                self._client.retry_notes.end_link(self._key, self.link, has_failed, will_be_retried)


Missing = dict[str, list[tuple[int, int, Part, Batch]]]
"""Partitions that are not known and are looked for, by topic: partition, producer id, and the part and batch that
wait."""


class ProduceCall:
    """One request. ``done`` gets the response body, or None when there is none to send (acks=0)."""

    denied: Mapping[str, int] = MappingProxyType({})
    """Topics that the client may not write to, with their error codes."""

    def __init__(
        self,
        outside: Outside,
        client: Client,
        request: ProduceRequest,
        api_version: int,
        done: Callable[[bytes | None], None],
    ) -> None:
        self.outside = outside
        self.client = client
        self.request = request
        self.answer_by = 0.0
        self.sweep_line = UNORDERED
        self._version = api_version
        self._done = done
        self._answers: list[Answer | None] = [None] * len(request.partitions)
        self._left = len(request.partitions)
        self.is_done = False
        """Has it been answered?"""
        self.held: Held | None = None
        """Counts the bytes of the request; kept by whoever keeps any of them."""
        self._has_refused = False
        self._is_named = False

    def start(self) -> None:
        """What ``starting`` does, at once."""
        at_once(self.starting())

    def starting(self) -> Steps[None]:
        """Check every partition and send its batch on its way, in steps where that takes long. To be run once only:
        nothing of it can be begun anew."""
        request = self.request
        now = self.outside.now()
        timeout_ms = max(request.timeout_ms, limits.PRODUCE_TIMEOUT_MS_MIN)
        self.answer_by = now + timeout_ms / 1000 * limits.ANSWER_SHARE
        if not request.partitions:
            self._finish()
            return
        is_large = len(request.partitions) > _STEP_PARTITIONS
        is_one_step = not is_large
        if is_large:
            yield  # to read it took long enough
        doubled = _doubled(request.partitions) if len(request.partitions) > 1 else frozenset()
        plain: list[PlainPart] = []
        missing: Missing = {}
        parts = [Part(self, index) for index in range(len(request.partitions))]
        if is_large:
            yield
        for index, (item, part) in enumerate(zip(request.partitions, parts, strict=True), 1):
            if (item.topic, item.partition) in doubled:
                self._refuse(part, item, answers.invalid("the partition is named twice in one request", self._version))
            elif item.topic in self.denied:
                self._deny(part, item)
            elif (header := self._start_part(item, part, timeout_ms, now, plain, missing)) is not None:
                is_one_step = False
                yield from self._start_expected(item, part, header, timeout_ms, now, missing)
                if index < len(parts):
                    yield  # its records were read, each may have taken nearly a step
            if is_large and not index % _STEP_PARTITIONS:
                yield
        for topic, routed in missing.items():
            self.outside.look_for_topic(topic, partial(self._route_found, topic, deque(routed)))
        if plain:
            self.client.produce_plainly(request.acks, timeout_ms, plain)
        if is_one_step:
            self.sweep_line = timeout_ms
        if self._is_named and not self.is_done:
            self.outside.sweep(self, [part for part in parts if part.is_named])

    # R18 lives here: what is not known in time is answered with a retriable code.
    def time_is_up(self, parts: Sequence[Part]) -> None:
        """Rule R18: answer now; a partition whose outcome is not known yet gets 7 (REQUEST_TIMED_OUT). The retry of a
        batch joins its first try (rule R13).

        ``parts``: those with a producer id. The others wait for the broker's own answer, however late (rule R20).
        """
        for part in parts:
            if not part.is_done:
                part.answer(answers.in_doubt("the outcome is not known yet"))

    # ------------------------------------------------------------------ one partition
    def _start_part(
        self,
        item: PartitionRecords,
        part: Part,
        timeout_ms: int,
        now: float,
        plain: list[PlainPart],
        missing: Missing,
    ) -> BatchHeader | None:
        """Check one partition, and refuse its batch or send it on. A batch without a producer id is added to ``plain``,
        one for a partition that is not known to ``missing``. Returns None; but for a conditional batch whose records
        have to be read for their offset (rule R23) its header, and nothing has been done with it then."""
        records = item.records
        topics = self.outside.conditional_topics
        is_conditional = topics.are_any and topics.has(item.topic)
        if self.request.transactional_id is not None:
            self._refuse(part, item, answers.transactional())
            return None
        if TOPIC_NAME.fullmatch(item.topic) is None:
            self._refuse(part, item, answers.impossible_topic())
            return None
        if records is None or not len(records):
            self._refuse(part, item, answers.invalid("the record set is null or empty", self._version))
            return None
        try:
            if self._version < _MAGIC_2_SINCE and magic_of(records) < 2:
                if is_conditional:
                    self._refuse(part, item, answers.not_conditional(item.topic))
                else:
                    plain.append((item, part.answer))
                return None
            header = parse_single_batch(records)
            refusal = self._judge(header)
            if refusal is None and is_conditional and header.producer_id != CONDITIONAL_ID:
                verify_crc(records, header)
                return header
            if refusal is None and header.producer_id == CONDITIONAL_ID:
                refusal = _judge_conditional(header, is_conditional)
            if refusal is None and header.producer_id >= 0 and self.request.acks not in (-1, 1):
                refusal = answers.invalid_acks(self.request.acks)
            if header.producer_id >= 0 and (refusal is None or is_conditional):
                identity = part.names(item.topic, item.partition, header, records)
                self._is_named = self.client.is_idempotent = True
            if refusal is None:
                verify_crc(records, header)
        except ChecksumMismatch as error:
            refusal = answers.corrupt(str(error))
        except WireError as error:
            refusal = answers.invalid(str(error), self._version)
        if refusal is not None:
            self._refuse(part, item, refusal)
        elif header.producer_id < 0:
            plain.append((item, partial(self._answer_plainly, part)))
        else:
            # R23: a shard belongs to all who may write to its topic.
            principal = NO_PRINCIPAL if header.producer_id == CONDITIONAL_ID else self.client.principal
            self._send_on(item, part, Batch(identity, records, header, timeout_ms, now, [part], principal), missing)
        return None

    def _start_expected(
        self, item: PartitionRecords, part: Part, header: BatchHeader, timeout_ms: int, now: float, missing: Missing
    ) -> Steps[None]:
        """Rule R23: start a batch of a client that numbers its batches itself, for a conditional topic: its records say
        at which offset they have to be."""
        records = item.records
        assert records is not None
        try:
            offset = yield from reading_expected_offset(records, header)
        except LimitExceeded as error:
            self._refuse(part, item, answers.unreadable(error))
            return
        except WireError as error:
            self._refuse(part, item, answers.invalid(str(error), self._version))
            return
        if offset is None:
            self._refuse(part, item, answers.not_conditional(item.topic))
            return
        if self.request.acks not in (-1, 1):
            self._refuse(part, item, answers.invalid_acks(self.request.acks))
            return
        header = header._replace(
            producer_id=CONDITIONAL_ID, producer_epoch=CONDITIONAL_EPOCH, base_sequence=sequence_of(offset)
        )
        identity = part.names(item.topic, item.partition, header, records)
        part.numbers_itself = True
        self._is_named = self.client.is_idempotent = True
        batch = Batch(identity, records, header, timeout_ms, now, [part], NO_PRINCIPAL)
        batch.expected_offset = offset
        self._send_on(item, part, batch, missing)

    def _send_on(self, item: PartitionRecords, part: Part, batch: Batch, missing: Missing) -> None:
        if self.outside.is_draining:
            part.answer(answers.held_back("the proxy is shutting down"))
            return
        if self.held is not None:
            self.held.grow(limits.BATCH_OBJECTS_BYTES)
        batch.held = self.held
        batch.ahead = Held(self.outside.memory.hold_bytes, wrapper_bytes(batch.header, len(batch.records)))
        self._route(item.topic, item.partition, batch.header.producer_id, part, batch, missing)

    def _answer_plainly(self, part: Part, answer: Answer) -> None:
        """Hand on what a batch of format v2 without a producer id is answered; its checksum was right."""
        part.answer(answers.refused_plainly(answer, self._version))

    def _deny(self, part: Part, item: PartitionRecords) -> None:
        """Refuse a batch for a topic that is closed to the client. One that may come again, and comes before others, is
        remembered (rule R11)."""
        with suppress(WireError):
            records = memoryview(b"") if item.records is None else item.records
            header = parse_single_batch(records)
            if header.producer_id >= 0:
                part.names(item.topic, item.partition, header, records)
        self._refuse(part, item, answers.denied(self.denied[item.topic]))

    def _judge(self, header: BatchHeader) -> Answer | None:
        """Return the refusal of a batch that no broker would take from an idempotent producer, None if there is
        none."""
        if header.attributes & _NOT_SERVED_FLAGS:
            return answers.invalid("control and transactional batches are not served", self._version)
        codec = header.attributes & CODEC_MASK
        if codec and (codec > Codec.ZSTD or (codec == Codec.ZSTD and self._version < _ZSTD_SINCE)):
            return answers.codec_not_served()
        if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
            return answers.invalid("a batch with a producer id needs a sequence and an epoch", self._version)
        return None

    def _route(
        self,
        topic: str,
        partition: int,
        producer_id: int,
        part: Part,
        batch: Batch,
        missing: Missing,
    ) -> None:
        if self.outside.has_partition(topic, partition):
            self._submit(topic, partition, producer_id, batch)
        elif partition >= 0:
            part.hold()
            missing.setdefault(topic, []).append((partition, producer_id, part, batch))
        else:
            part.answer(answers.unknown_partition())

    def _route_found(self, topic: str, routed: deque[tuple[int, int, Part, Batch]]) -> None:
        for _ in range(min(len(routed), _STEP_PARTITIONS)):
            partition, producer_id, part, batch = routed.popleft()
            part.let_go()
            if self.outside.has_partition(topic, partition):
                self._submit(topic, partition, producer_id, batch)
            else:
                part.answer(answers.unknown_partition())
        if routed:
            self.outside.reactor.later(0, partial(self._route_found, topic, routed))

    def _submit(self, topic: str, partition: int, producer_id: int, batch: Batch) -> None:
        sequencer = self.outside.sequencer(producer_id, topic, partition)
        if sequencer is not None:
            sequencer.submit(batch)
        else:
            batch.waiters[0].answer(answers.held_back("too many producers are at work"))

    def _refuse(self, part: Part, item: PartitionRecords, answer: Answer) -> None:
        """Bad input: said in the log, answered, and nothing else happens. One line for all of a request: it may name
        a hundred thousand partitions, and everybody waits while they are written down."""
        if not self._has_refused:
            self._has_refused = True
            where = f"{item.topic[:64]!r}-{item.partition}"
            code = f"{name_of(answer.error_code)} ({answer.error_code})"
            what = f"{where} of {len(self._answers)} partitions: {code}: {answer.message}"
            self.outside.report(ClientRefused(self.client.name, what))
        part.answer(answer)

    # ------------------------------------------------------------------ gathering
    def part_answered(self, index: int, part: Part, answer: Answer) -> None:
        """One partition is done; with the last one the response goes out."""
        self._answers[index] = answer
        self._left -= 1
        if self._left == 0:
            if len(self._answers) > _STEP_PARTITIONS:
                self.outside.reactor.later(0, self._finish)
            else:
                self._finish()

    def _finish(self) -> None:
        self.is_done = True
        self.outside.swept(self)
        if self.request.acks == 0:
            failed = next((a for a in self._answers if a is not None and a.error_code), None)
            if failed is not None:
                self.client.abort(f"a produce with acks=0 failed: {named(failed.error_code)}")
            self._done(None)
            return
        self._done(
            encode_response(
                self._version,
                [
                    PartitionAnswer(
                        item.topic,
                        item.partition,
                        answer.error_code,
                        answer.base_offset,
                        answer.log_append_time_ms,
                        0 if answer.error_code == 0 else answer.next_offset,
                        answer.message,
                    )
                    for item, answer in zip(self.request.partitions, self._answers, strict=True)
                    if answer is not None
                ],
            )
        )


def _judge_conditional(header: BatchHeader, is_conditional: bool) -> Answer | None:
    """Return the refusal of a batch with the producer id of conditional publish."""
    if not is_conditional:
        return answers.not_served_conditionally("this topic is not among topics.conditional")
    if header.producer_epoch != CONDITIONAL_EPOCH:
        return answers.fenced(Fenced(CONDITIONAL_EPOCH))
    return None


def wrapper_bytes(header: BatchHeader, size: int) -> int:
    """About how many bytes a batch of ``size`` bytes will take in the old format: a message has a larger overhead than
    a record, and gzip compresses less than zstd."""
    if header.attributes & CODEC_MASK:
        return size + size // 4
    return size + min(header.record_count, size // RECORD_BYTES_MIN) * (OVERHEAD_BYTES[1] - RECORD_BYTES_MIN)


def _doubled(items: Sequence[PartitionRecords]) -> frozenset[tuple[str, int]]:
    """Return partitions that are named more than once: a broker would silently take the last one."""
    named = Counter((item.topic, item.partition) for item in items)
    return frozenset(place for place, count in named.items() if count > 1)
