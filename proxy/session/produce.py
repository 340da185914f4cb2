"""One produce request: parsed, checked, split by partition, its answers gathered. Rules R11, R16, R18, R20, R23.

Each request takes the same way. What its client has sent before, all but correlation id and records, is not parsed
again: it is looked up by its bytes (``ProducePrefix``). Every check that needs no state is made here, before a
sequencer hears of the batch: what fails them moves no state and is never forwarded. Batches with a producer id go to
their sequencer, batches without one are forwarded, converted at most (``non_idempotent.py``)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from struct import Struct
from types import MappingProxyType
from typing import Any, Final, Protocol

from ...codecs.compression import Codec
from ...codecs.error_codes import name_of, named
from ...codecs.errors import ChecksumMismatch, LimitExceeded, WireError
from ...codecs.framing import Frame
from ...codecs.headers import RequestHeader, encode_response_header
from ...codecs.message_set import OVERHEAD_BYTES
from ...codecs.produce import (
    API_KEY,
    CLIENT_VERSION_MAX,
    FLEXIBLE_VERSION,
    PartitionAnswer,
    PartitionRecords,
    ProduceRequest,
    encode_response,
    parse_request,
)
from ...codecs.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    MAGIC,
    RECORD_BYTES_MIN,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    magic_of,
    parse_single_batch,
    says_it_follows,
    verify_crc,
)
from ...codecs.steps import Steps
from ...reactor import Buffer
from ...state.conditional import CONDITIONAL_EPOCH, sequence_of
from ...state.decide import BatchIdentity, Fenced
from ...state.entry import NO_PRINCIPAL
from ...state.producer_ids import CONDITIONAL_ID
from .. import limits
from ..admission.memory_budget import Held
from ..bridge.metadata import TOPIC_NAME
from ..broker.queued_append import Route
from ..events import ClientRefused
from ..producer import answers
from ..producer.batch import Answer, Batch
from ..producer.retry_notes import Key, Link, RetryNotes
from .conditional_topics import reading_expected_offset
from .host import ProduceHost
from .routing import BatchKind, Way
from .sweeper import UNORDERED

_NOT_SERVED_FLAGS: Final = CONTROL_FLAG | TRANSACTIONAL_FLAG
_STEP_PARTITIONS: Final = 300
"""Partitions of a request that are begun in one step: a few milliseconds."""
_MAGIC_2_SINCE: Final = 3
_ZSTD_SINCE: Final = 7
_ZSTD: Final = int(Codec.ZSTD)

_SIZE: Final = Struct(">i")
_TRANSACTIONAL_SINCE: Final = 3
"""From this version to the flexible one all requests are laid out alike."""
_CORRELATION_AT: Final = 4
_CLIENT_AT: Final = 8
"""Of a request: after API key, version and correlation id."""
_TOPIC_AT: Final = 12
"""Of a body: after transactional id (null), acks, timeout and the number of topics."""
_AFTER_TOPIC: Final = 8
"""The number of partitions, and the partition."""
_ANSWER: Final = Struct(">hqq")
_ANSWER_V5: Final = Struct(">hqqq")
_OBJECTS_BYTES: Final = limits.REQUEST_OBJECTS_BYTES + limits.PARTITION_OBJECTS_BYTES

PlainPart = tuple[PartitionRecords, Callable[[Answer], None]]
"""A batch without a producer id, and the callback for its answer."""


class ProduceClient(Protocol):
    """What a produce request needs of its session."""

    name: str
    is_idempotent: bool
    """Has it asked for a producer id, or used one?"""

    @property
    def retry_notes(self) -> RetryNotes: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def address(self) -> str: ...

    @property
    def principal(self) -> bytes: ...

    @property
    def principal_name(self) -> str: ...

    @property
    def route(self) -> Route | None: ...

    def rest(self, seconds: float) -> None:
        """Take nothing more of it for so long."""
        ...

    def abort(self, reason: str) -> None:
        """Close the connection: the only answer that acks=0 has."""
        ...

    def produce_plainly(self, acks: int, timeout_ms: int, parts: list[PlainPart], held: Held) -> None:
        """Send batches without a producer id on, in order. ``held``: counts the bytes of their request."""
        ...

    @property
    def is_at_work(self) -> bool:
        """Is a request taken in steps?"""
        ...

    def take_in_turns(self, steps: Steps[None]) -> None:
        """Take a request in steps: one now, each other one in a later pass."""
        ...

    def part_if_gone(self) -> None:
        """A request has begun: end the connection if its client has left, and is a producer with an id."""
        ...

    def answer_is_ready(self) -> None:
        """One of the answers may leave, if those before it have left."""
        ...


class ProducePrefix:
    """A produce request without its correlation id and its records. ``places``: topic and partition of each batch, in
    wire order. ``answer_seconds``: after so many seconds its client is answered, whatever is known (rule R18).
    ``is_usual``: it has one batch, for a topic with a possible name that takes what comes.

    ``answer_size``, ``answer_start``, ``answer_end``: what is around the result in an answer without an error, if it
    is kept for the requests that follow; else None."""

    __slots__ = (
        "acks",
        "answer_end",
        "answer_seconds",
        "answer_size",
        "answer_start",
        "client_id",
        "is_transactional",
        "is_usual",
        "places",
        "timeout_ms",
        "version",
    )

    def __init__(
        self,
        host: ProduceHost,
        header: RequestHeader,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        places: Sequence[tuple[str, int]],
    ) -> None:
        self.version = header.api_version
        self.client_id = header.client_id[:64] if header.client_id else ""
        self.is_transactional = transactional_id is not None
        self.acks = acks
        self.timeout_ms = max(timeout_ms, limits.PRODUCE_TIMEOUT_MS_MIN)
        self.answer_seconds = self.timeout_ms / 1000 * limits.ANSWER_SHARE
        self.places = places
        self.is_usual = (
            len(places) == 1
            and transactional_id is None
            and TOPIC_NAME.fullmatch(places[0][0]) is not None
            and not host.conditional_topics.has(places[0][0])
        )
        self.answer_size: bytes | None = None
        self.answer_start = self.answer_end = b""

    def keep_answer(self) -> None:
        """Prepare the answer without an error, of which only correlation id and result are missing."""
        ((topic, partition),) = self.places
        empty = encode_response(self.version, [PartitionAnswer(topic, partition, 0, 0, 0, 0)])
        at = _AFTER_TOPIC + 2 + len(topic.encode()) + 4
        end = at + (_ANSWER_V5 if self.version >= 5 else _ANSWER).size
        self.answer_start, self.answer_end = empty[:at], empty[end:]
        self.answer_size = _SIZE.pack(_SIZE.size + len(empty))


class Part:
    """One partition of one request: waits for the answer of its batch. ``key``: of the producer of its batch; None: the
    batch has no producer id, or was not looked at. ``number``: of the request, among those of its connection. ``link``:
    the place of a conditional batch in the pipeline of its connection (rule R23). ``numbers_itself``: it is published
    conditionally, by a client whose base sequences are not offsets: the offset is in a record header.

    It refers to its request until it is answered. The request does not refer to its parts: such a cycle would keep the
    bytes of every request until the garbage collector runs."""

    __slots__ = ("_call", "connection", "identity", "index", "is_done", "key", "link", "number", "numbers_itself")
    identity: BatchIdentity
    number: int

    def __init__(self, call: ProduceCall, index: int) -> None:
        self._call: ProduceCall | None = call
        self.connection = call.client
        self.index = index
        self.key: Key | None = None
        self.is_done = self.numbers_itself = False
        self.link: Link | None = None

    @property
    def is_gone(self) -> bool:
        """Is it answered, or the connection closed?"""
        return self.is_done or self.connection.is_closed

    def answer(self, answer: Answer) -> None:
        """Take the answer; ignored when there was one."""
        call, self._call = self._call, None
        if call is not None:
            call.part_answered(self, self.noted(answer))

    def noted(self, answer: Answer) -> Answer:
        """Note that it is answered, and return the answer that its client gets."""
        self.is_done = True
        if self.numbers_itself:
            answer = answers.conflict_by_header(answer)
        self.note(answer.error_code)
        return answer

    def appended(self, base_offset: int, log_append_time_ms: int) -> None:
        """Its batch is in the log."""
        self.answer(answers.appended(base_offset, log_append_time_ms))

    def leave(self) -> None:
        """Its client has gone, or it is answered: it no longer holds its request."""
        self._call = None

    def hold(self) -> None:
        """Its batch waits for something: what comes after it is no gap (rule R11)."""
        if self.key is not None:
            self.connection.retry_notes.hold(self.key, self.identity)

    def let_go(self) -> None:
        """It no longer waits."""
        if self.key is not None:
            self.connection.retry_notes.let_go(self.key, self.identity)

    def note(self, error_code: int) -> None:
        """Note what its client is answered."""
        if self.key is not None:
            has_failed = answers.is_failure(error_code)
            will_be_retried = has_failed and answers.will_be_retried(error_code, self.identity.record_count)
            notes = self.connection.retry_notes
            notes.note(self.key, self.identity, has_failed, will_be_retried, self.number)
            if self.link is not None:
                notes.end_link(self.key, self.link, has_failed, will_be_retried)


class Gathered:
    """What is begun once all partitions of a request were looked at. ``plain``: batches without a producer id;
    ``missing``: those for partitions that are not known and are looked for, by topic."""

    __slots__ = ("missing", "plain")

    def __init__(self) -> None:
        self.plain: list[PlainPart] = []
        self.missing: dict[str, list[tuple[Part, Batch]]] = {}


class ProduceCall(Part):
    """One request in flight, and the place of its answer in the order of the requests. Nearly all have one partition:
    then it is its own only part; else each partition has one.

    ``records``: of each partition, until they are begun. ``request_bytes``: what the request takes in memory while it
    is at work. ``held``: counts them, once anything of it waits. ``chunks``: its answer; None: it has none yet, empty:
    none is sent (acks=0)."""

    __slots__ = (
        "_answers",
        "_correlation_id",
        "_has_refused",
        "_left",
        "answer_by",
        "chunks",
        "client",
        "held",
        "host",
        "prefix",
        "records",
        "request_bytes",
        "sweep_line",
    )
    denied: Mapping[str, int] = MappingProxyType({})
    """Topics that the client may not write to, with their error codes."""
    _answers: list[Answer | None]
    _left: int
    answer_by: float

    def __init__(
        self,
        host: ProduceHost,
        client: ProduceClient,
        prefix: ProducePrefix,
        correlation_id: bytes,
        records: Sequence[memoryview | None],
        request_bytes: int,
    ) -> None:
        self.host = host
        self.connection = self.client = client
        self.prefix = prefix
        self._correlation_id = correlation_id
        self.records = records
        self.request_bytes = request_bytes
        self.sweep_line = prefix.timeout_ms
        self.held: Held | None = None
        self.chunks: Sequence[Buffer] | None = None
        self.index, self.key, self.link = 0, None, None
        self._has_refused = self.is_done = self.numbers_itself = False

    def counted(self) -> Held:
        """Count its bytes in the memory budget, as long as anything keeps what is returned."""
        held = self.held
        if held is None:
            held = self.held = Held(self.host.memory.hold_bytes, self.request_bytes)
        return held

    def begin(self) -> None:
        """Check every partition and send its batch on its way, in steps where that takes long. To be called once."""
        prefix = self.prefix
        if not prefix.is_usual:
            self.begin_in_turns()
            return
        now, records, self.records = self.host.now(), self.records[0], ()
        self.answer_by = now + prefix.answer_seconds
        self._start_part(self, records, now)
        if self.key is not None and self.chunks is None:
            self.host.sweep(self, (self,))

    def begin_in_turns(self) -> None:
        """Do the same for any request."""
        now, records, self.records = self.host.now(), self.records, ()
        self.answer_by = now + self.prefix.answer_seconds
        self.counted()
        self.client.take_in_turns(self._beginning(records, now))

    def _beginning(self, records: Sequence[memoryview | None], now: float) -> Steps[None]:
        prefix, places = self.prefix, self.prefix.places
        if not places:
            self._finish(())
            return
        is_large = len(places) > _STEP_PARTITIONS
        is_one_step = not is_large
        if is_large:
            yield  # to parse it took long enough
        doubled = _doubled(places) if len(places) > 1 else frozenset()
        gathered = Gathered()
        parts: Sequence[Part] = (self,)
        if len(places) > 1:
            parts = [Part(self, index) for index in range(len(places))]
            self._answers, self._left = [None] * len(places), len(places)
        if is_large:
            yield
        for part, place, of_part in zip(parts, places, records, strict=True):
            topic, index = place[0], part.index + 1
            if place in doubled:
                self._refuse(part, answers.invalid("the partition is named twice in one request", prefix.version))
            elif topic in self.denied:
                self._start_part(part, of_part, now, denied=answers.denied(self.denied[topic]))
            elif isinstance(way := self._way_of(topic, part.index), Answer):
                self._refuse(part, way)
            elif way is Way.PASSES:
                self._go_plainly((PartitionRecords(topic, place[1], of_part), part.answer), gathered)
            elif TOPIC_NAME.fullmatch(topic) is None:
                self._refuse(part, answers.impossible_topic())
            else:
                is_conditional = self.host.conditional_topics.has(topic)
                header = self._start_part(part, of_part, now, gathered, is_conditional)
                if header is not None and of_part is not None:
                    is_one_step = False
                    yield from self._start_expected(part, of_part, header, now, gathered)
                    if index < len(parts):
                        yield  # its records were read, each may have taken nearly a step
            if is_large and not index % _STEP_PARTITIONS:
                yield
        if not is_one_step:
            self.sweep_line = UNORDERED
        for topic, waiting in gathered.missing.items():
            self._look_for(topic, waiting)
        if gathered.plain:
            self._produce_plainly(gathered.plain)
        if self.chunks is None and (named := [part for part in parts if part.key is not None]):
            self.host.sweep(self, named)

    def _way_of(self, topic: str, _index: int) -> Way | Answer:
        """Return where a batch of the request goes, or its refusal. One without a producer id is taken for one with,
        as the engine passes it on itself."""
        kind = BatchKind.TRANSACTIONAL if self.prefix.is_transactional else BatchKind.IDEMPOTENT
        return self.host.way_of(topic, kind)

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
        part: Part,
        records: memoryview | None,
        now: float,
        gathered: Gathered | None = None,
        is_conditional: bool = False,
        denied: Answer | None = None,
        offset: int | None = None,
    ) -> BatchHeader | None:
        """Check one partition, and refuse its batch or send it on. ``gathered``: gets what waits for the other
        partitions of the request; None: there are no others. ``denied``: its refusal, whatever it is. ``offset``: where
        it has to be, as its records say. Returns None; but for a conditional batch whose records have to be read for
        their offset (rule R23) its header, and nothing has been done with it then."""
        host, client, prefix = self.host, self.client, self.prefix
        held = self.held if gathered is None else self.counted()  # its client may have gone between two steps
        topic, partition = prefix.places[part.index]
        if not records:
            self._refuse(part, denied or answers.invalid("the record set is null or empty", prefix.version))
            return None
        try:
            if prefix.version < _MAGIC_2_SINCE and magic_of(records) < MAGIC:
                if denied or is_conditional:
                    self._refuse(part, denied or answers.not_conditional(topic))
                else:
                    self._go_plainly((PartitionRecords(topic, partition, records), part.answer), gathered)
                return None
            header = parse_single_batch(records)
            if offset is not None:
                header = header._replace(
                    producer_id=CONDITIONAL_ID, producer_epoch=CONDITIONAL_EPOCH, base_sequence=sequence_of(offset)
                )
            _, _, attributes, _, _, _, producer_id, producer_epoch, base_sequence, record_count = header
            refusal = denied or self._refusal_of(attributes, producer_id, producer_epoch, base_sequence, is_conditional)
            if is_conditional and refusal is None and producer_id != CONDITIONAL_ID:
                verify_crc(records, header)
                return header
            if producer_id >= 0 and (refusal is None or is_conditional or denied):
                # R11: a retriable failure of the batch is remembered.
                part.key = key = (producer_id, topic, partition)
                part.identity = identity = BatchIdentity(producer_epoch, base_sequence, record_count)
                notes = client.retry_notes
                notes.requests = part.number = notes.requests + 1
                client.is_idempotent = True
                if producer_id == CONDITIONAL_ID:
                    # R23: what becomes of it decides about those that its client has sent after it.
                    part.link = notes.link(key, identity, says_it_follows=says_it_follows(records))
            if refusal is None:
                verify_crc(records, header)
        except ChecksumMismatch as error:
            refusal = answers.corrupt(str(error))
        except WireError as error:
            refusal = denied or answers.invalid(str(error), prefix.version)
        if refusal is not None:
            self._refuse(part, refusal)
        elif producer_id < 0:
            item = PartitionRecords(topic, partition, records)
            self._go_plainly((item, partial(self._answer_plainly, part)), gathered)
        else:
            # R23: a conditional partition belongs to all who may write to its topic.
            principal = NO_PRINCIPAL if is_conditional else client.principal
            batch = Batch(identity, records, header, prefix.timeout_ms, now, [part], principal)
            if held is None:
                uncounted_bytes = self.request_bytes + limits.BATCH_OBJECTS_BYTES
            else:
                batch.held, batch.expected_offset, uncounted_bytes = held, offset, 0
            sequencer = host.known_sequencer(key)
            if sequencer is None or not sequencer.goes_at_once(batch, uncounted_bytes):
                self._wait(key, part, batch, gathered)
        return None

    def _refusal_of(
        self, attributes: int, producer_id: int, producer_epoch: int, base_sequence: int, is_conditional: bool
    ) -> Answer | None:
        """Return the refusal of a batch that no broker would take from an idempotent producer, or that is not
        conditional where all have to be; None if there is none."""
        if attributes & _NOT_SERVED_FLAGS:
            return answers.invalid("control and transactional batches are not served", self.prefix.version)
        codec = attributes & CODEC_MASK
        if codec >= _ZSTD and (codec > _ZSTD or self.prefix.version < _ZSTD_SINCE):
            return answers.codec_not_served()
        if producer_id < 0:
            return self._refusal_without_id(producer_epoch)
        if base_sequence < 0 or producer_epoch < 0:
            return answers.invalid("a batch with a producer id needs a sequence and an epoch", self.prefix.version)
        if producer_id == CONDITIONAL_ID:
            if not is_conditional:
                return answers.not_served_conditionally("this topic is not among topics.conditional")
            if producer_epoch != CONDITIONAL_EPOCH:
                return answers.fenced(Fenced(CONDITIONAL_EPOCH))
        elif is_conditional:
            return None  # its records have to say where it is to be (R23); nothing else of it is looked at before
        return None if self.prefix.acks in (-1, 1) else answers.invalid_acks(self.prefix.acks)

    def _refusal_without_id(self, _producer_epoch: int) -> Answer | None:
        """Return the refusal of a batch without a producer id; None if there is none."""
        return None

    def _start_expected(
        self, part: Part, records: memoryview, header: BatchHeader, now: float, gathered: Gathered
    ) -> Steps[None]:
        """Rule R23: start a batch of a client that numbers its batches itself, for a conditional topic: its records say
        at which offset they have to be."""
        prefix, place = self.prefix, self.prefix.places[part.index]
        try:
            offset = yield from reading_expected_offset(records, header)
        except LimitExceeded as error:
            self._refuse(part, answers.unreadable(error))
            return
        except WireError as error:
            self._refuse(part, answers.invalid(str(error), prefix.version))
            return
        if offset is None:
            self._refuse(part, answers.not_conditional(place[0]))
            return
        part.numbers_itself = True
        self._start_part(part, records, now, gathered, is_conditional=True, offset=offset)

    def _go_plainly(self, item: PlainPart, gathered: Gathered | None) -> None:
        if gathered is None:
            self._produce_plainly([item])
        else:
            gathered.plain.append(item)

    def _produce_plainly(self, items: list[PlainPart]) -> None:
        """Rule R20: these are forwarded, converted at most."""
        self.client.produce_plainly(self.prefix.acks, self.prefix.timeout_ms, items, self.counted())

    def _wait(self, key: Key, part: Part, batch: Batch, gathered: Gathered | None) -> None:
        """The batch is not appended at once: something is not usual about it (``producer/usual.py``), or it is the turn
        of another one."""
        host, held = self.host, self.held
        if host.is_draining:
            part.answer(answers.held_back("the proxy is shutting down"))
            return
        if held is None:
            batch.held = Held(host.memory.hold_bytes, self.request_bytes + limits.BATCH_OBJECTS_BYTES)
        else:
            held.grow(limits.BATCH_OBJECTS_BYTES)
        batch.ahead = Held(host.memory.hold_bytes, wrapper_bytes(batch.header, len(batch.records)))
        _, topic, partition = key
        if host.has_partition(topic, partition):
            self._enqueue(part, batch)
        elif partition >= 0:
            part.hold()
            if gathered is None:
                self._look_for(topic, [(part, batch)])
            else:
                gathered.missing.setdefault(topic, []).append((part, batch))
        else:
            part.answer(answers.unknown_partition())

    def _look_for(self, topic: str, waiting: list[tuple[Part, Batch]]) -> None:
        self.host.look_for_topic(topic, partial(self._route_found, topic, deque(waiting)))

    def _route_found(self, topic: str, waiting: deque[tuple[Part, Batch]]) -> None:
        for _ in range(min(len(waiting), _STEP_PARTITIONS)):
            part, batch = waiting.popleft()
            part.let_go()
            if self.host.has_partition(topic, self.prefix.places[part.index][1]):
                self._enqueue(part, batch)
            else:
                part.answer(answers.unknown_partition())
        if waiting:
            self.host.reactor.later(0, partial(self._route_found, topic, waiting))

    def _enqueue(self, part: Part, batch: Batch) -> None:
        assert part.key is not None
        sequencer = self.host.sequencer(*part.key)
        if sequencer is not None:
            sequencer.enqueue(batch)
        else:
            part.answer(answers.held_back("too many producers are at work"))

    def _answer_plainly(self, part: Part, answer: Answer) -> None:
        """Hand on what a batch of format v2 without a producer id is answered; its checksum was right."""
        part.answer(answers.refused_plainly(answer, self.prefix.version))

    def _refuse(self, part: Part, answer: Answer) -> None:
        """Bad input: said in the log, answered, and nothing else happens. One line for all of a request: it may name
        a hundred thousand partitions, and everybody waits while they are written down."""
        if not self._has_refused:
            self._has_refused = True
            topic, partition = self.prefix.places[part.index]
            code = f"{name_of(answer.error_code)} ({answer.error_code})"
            what = f"{topic[:64]!r}-{partition} of {len(self.prefix.places)} partitions: {code}: {answer.message}"
            self.host.report(ClientRefused(self.client.name, what))
        part.answer(answer)

    # ------------------------------------------------------------------ gathering
    def part_answered(self, part: Part, answer: Answer) -> None:
        """One partition is done; with the last one the response goes out."""
        if part is self:
            self._finish((answer,))
            return
        self._answers[part.index] = answer
        self._left -= 1
        if self._left == 0:
            if len(self._answers) > _STEP_PARTITIONS:
                self.host.reactor.later(0, partial(self._finish, self._answers))
            else:
                self._finish(self._answers)

    def answer(self, answer: Answer) -> None:
        """Take the answer of its only partition; ignored when there was one."""
        if self.is_done:
            return
        if answer.error_code or self.prefix.answer_size is None or not self.client.retry_notes.is_empty:
            self.part_answered(self, self.noted(answer))
        else:
            self.appended(answer.base_offset, answer.log_append_time_ms)

    def appended(self, base_offset: int, log_append_time_ms: int) -> None:
        """The batch of its only partition is in the log. Where the answer is prepared, it is all that is left to do."""
        prefix, notes = self.prefix, self.client.retry_notes
        if prefix.answer_size is None or not notes.is_empty:
            self.answer(answers.appended(base_offset, log_append_time_ms))
        elif not self.is_done:
            self.is_done = True
            if prefix.version >= 5:
                result = _ANSWER_V5.pack(0, base_offset, log_append_time_ms, 0)
            else:
                result = _ANSWER.pack(0, base_offset, log_append_time_ms)
            start = prefix.answer_size + self._correlation_id + prefix.answer_start
            self.chunks = (start + result + prefix.answer_end,)
            lines, line = self.host.sweeper.lines, self.sweep_line
            if line in lines and self in lines[line]:  # as ``swept``, without its calls
                del lines[line][self]
            self.client.answer_is_ready()

    def leave(self) -> None:
        """It keeps nothing of its request."""

    def _finish(self, found: Sequence[Answer | None]) -> None:
        prefix = self.prefix
        if prefix.acks == 0:
            failed = next((answer for answer in found if answer is not None and answer.error_code), None)
            if failed is not None:
                self.client.abort(f"a produce with acks=0 failed: {named(failed.error_code)}")
            self.chunks = ()
        else:
            self.chunks = self._encoded(found)
        self.host.swept(self)
        self.client.answer_is_ready()

    def _encoded(self, found: Sequence[Answer | None]) -> Sequence[Buffer]:
        prefix = self.prefix
        body = self._encoded_body(
            [
                PartitionAnswer(
                    *place,
                    answer.error_code,
                    answer.base_offset,
                    answer.log_append_time_ms,
                    0 if answer.error_code == 0 else answer.next_offset,
                    answer.message,
                )
                for place, answer in zip(prefix.places, found, strict=True)
                if answer is not None
            ]
        )
        correlation_id = int.from_bytes(self._correlation_id, "big", signed=True)
        start = encode_response_header(API_KEY, prefix.version, correlation_id)
        return _SIZE.pack(len(start) + len(body)), start, body

    def _encoded_body(self, found: Sequence[PartitionAnswer]) -> bytes:
        return encode_response(min(self.prefix.version, CLIENT_VERSION_MAX), found)


class ProduceRequests:
    """The produce requests of one connection: their only parser. ``prefixes``: those that were parsed before, by their
    bytes. ``calls``: the class of what is made of them; ``begin``: begins one, now or once it may begin."""

    __slots__ = ("_begin", "_calls", "_host", "_slots", "_topic_at", "prefixes")

    def __init__(
        self,
        host: ProduceHost,
        calls: type[ProduceCall],
        begin: Callable[[ProduceCall], None],
        slots: deque[Any],
    ) -> None:
        """``slots``: where a request gets its place in the order of the answers."""
        self._host = host
        self._calls = calls
        self._begin = begin
        self._slots = slots
        self._topic_at = 0
        self.prefixes: dict[bytes, ProducePrefix] = {}

    def take_known(self, client: ProduceClient, frame: Frame, start: int, size: int) -> bool:
        """Take a request whose prefix was parsed before. ``start``: where it begins in ``frame`` (its API key);
        ``size``: of ``frame``, which ends with it. False: it has no such prefix, and nothing has happened."""
        topic_at, prefixes = self._topic_at, self.prefixes
        at = start + topic_at
        if not topic_at or size <= at + 1 or type(frame) is not bytes:
            return False
        end = at + 2 + (frame[at] << 8 | frame[at + 1]) + _AFTER_TOPIC
        known = frame[start : start + _CORRELATION_AT] + frame[start + _CLIENT_AT : end]
        records_at = end + _SIZE.size
        if known not in prefixes or size < records_at or _SIZE.unpack_from(frame, end)[0] != size - records_at:
            return False
        prefix, correlation_id = prefixes[known], frame[start + _CORRELATION_AT : start + _CLIENT_AT]
        records = (memoryview(frame)[records_at:],)
        call = self._calls(self._host, client, prefix, correlation_id, records, size - start + _OBJECTS_BYTES)
        if prefix.client_id:
            client.name = prefix.client_id
        self._host.requests_by_key[API_KEY] += 1
        self._slots += (call,)
        self._begin(call)
        return True

    def take(self, client: ProduceClient, frame: Frame, header: RequestHeader) -> None:
        """Take any request. Raises WireError if it cannot be parsed."""
        call = self.parse(client, frame, header)
        self._slots.append(call)
        self._begin(call)

    def parse(self, client: ProduceClient, frame: Frame, header: RequestHeader) -> ProduceCall:
        """Parse any request. Raises WireError."""
        return self.made_of(client, frame, header, parse_produce(frame, header))

    def made_of(
        self, client: ProduceClient, frame: Frame, header: RequestHeader, request: ProduceRequest
    ) -> ProduceCall:
        """Return what is made of a request that was parsed."""
        places, records = [], []
        for item in request.partitions:
            places.append((item.topic, item.partition))
            records.append(item.records)
        whose = request.transactional_id, request.acks, request.timeout_ms
        prefix = ProducePrefix(self._host, header, *whose, places)
        if prefix.is_usual and records[0] is not None:
            self._keep(frame, header, prefix, len(frame) - len(records[0]) - _SIZE.size)
        request_bytes = len(frame) + limits.REQUEST_OBJECTS_BYTES + len(places) * limits.PARTITION_OBJECTS_BYTES
        correlation_id = bytes(frame[_CORRELATION_AT:_CLIENT_AT])
        return self._calls(self._host, client, prefix, correlation_id, records, request_bytes)

    def _keep(self, frame: Frame, header: RequestHeader, prefix: ProducePrefix, prefix_bytes: int) -> None:
        """Keep a prefix: requests may follow that differ only in correlation id and records."""
        if (
            type(frame) is not bytes
            or not _TRANSACTIONAL_SINCE <= header.api_version < FLEXIBLE_VERSION
            or prefix_bytes > limits.REQUEST_PREFIX_BYTES_MAX
        ):
            return
        self._topic_at = header.body_offset + _TOPIC_AT
        if len(self.prefixes) >= limits.REQUEST_PREFIXES_MAX:
            self.prefixes.clear()
        if prefix.acks:  # with acks=0 no answer is sent
            prefix.keep_answer()
        self.prefixes[frame[:_CORRELATION_AT] + frame[_CLIENT_AT:prefix_bytes]] = prefix


def parse_produce(frame: Frame, header: RequestHeader) -> ProduceRequest:
    """Return a request that names its topics, in any version. Versions 10 to 12 are laid out as 9 is. Raises
    WireError."""
    return parse_request(frame, header.body_offset, min(header.api_version, CLIENT_VERSION_MAX))


def wrapper_bytes(header: BatchHeader, size: int) -> int:
    """About how many bytes a batch of ``size`` bytes will take in message format v1: a message has a larger overhead
    than a record, and gzip compresses less than zstd."""
    if header.attributes & CODEC_MASK:
        return size + size // 4
    return size + min(header.record_count, size // RECORD_BYTES_MIN) * (OVERHEAD_BYTES[1] - RECORD_BYTES_MIN)


def _doubled(places: Sequence[tuple[str, int]]) -> frozenset[tuple[str, int]]:
    """Return partitions that are named more than once: a broker would silently take the last one."""
    return frozenset(place for place, count in Counter(places).items() if count > 1)
