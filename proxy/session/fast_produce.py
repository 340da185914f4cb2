"""A usual produce request in straight lines: one partition, one batch of a producer that is at work already, and an
answer that is wanted. Rules R11, R16, R17, R18.

Everything in it but its correlation id and the batch was in an earlier request of this connection, which was read as a
whole (``produce.py``): it is looked up by its bytes. Whatever is not usual is left to ``produce.py`` before anything
has happened; no request is refused here. What becomes of the batch is up to its sequencer."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol

from ...codecs.compression import Codec
from ...codecs.errors import ChecksumMismatch
from ...codecs.framing import Frame
from ...codecs.headers import RequestHeader, encode_response_header
from ...codecs.produce import (
    API_KEY,
    FLEXIBLE_VERSION,
    PartitionAnswer,
    ProduceRequest,
    encode_response,
)
from ...codecs.record_batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER,
    MAGIC,
    SIZE_FIELDS_BYTES,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    verify_crc,
)
from ...reactor import Buffer
from ...state.decide import BatchIdentity
from ...state.producer_ids import CONDITIONAL_ID
from .. import limits
from ..admission.memory_budget import Held, MemoryBudget
from ..producer import answers
from ..producer.batch import Answer, Batch
from ..producer.retry_notes import Key
from ..producer.sequencer import Sequencer
from .conditional_topics import ConditionalTopics
from .produce import Client, wrapper_bytes
from .sweeper import Sweeper

_NOT_SERVED_FLAGS: Final = CONTROL_FLAG | TRANSACTIONAL_FLAG
_CLASSIC_FROM: Final = 3
"""The first version whose batches have producer ids; up to the flexible one all are laid out alike."""
_SIZE: Final = Struct(">i")
_SIZE_AND_HEADER: Final = Struct(">i" + HEADER.format[1:])
_HEADER_AT: Final = 8
"""Of a request: behind API key, version and correlation id."""
_TOPIC_AT: Final = 12
"""Of a body: behind transactional id (null), acks, timeout and the number of topics."""
_BEHIND_TOPIC: Final = 8
"""The number of partitions, and the partition."""
_ANSWER: Final = Struct(">hqq")
_ANSWER_V5: Final = Struct(">hqqq")
_new_tuple: Final = tuple.__new__


class Host(Protocol):
    """What is needed of the engine."""

    def now(self) -> float: ...

    @property
    def memory(self) -> MemoryBudget: ...

    @property
    def known_sequencer(self) -> Callable[[Key], Sequencer | None]: ...

    @property
    def conditional_topics(self) -> ConditionalTopics:
        """They are the same for as long as the process lives."""
        ...

    def has_partition(self, topic: str, partition: int) -> bool: ...

    @property
    def is_draining(self) -> bool: ...

    @property
    def sweeper(self) -> Sweeper: ...

    @property
    def requests_by_key(self) -> dict[int, int]: ...


class FastClient(Client, Protocol):
    """What is needed of the session."""

    name: str

    def answer_is_ready(self) -> None:
        """One of the answers may leave, if those before it have left."""
        ...


class _Shape:
    """What requests have in common that begin with the same bytes, but for the correlation id. ``answer_start``,
    ``answer_end``: what is around the result in an answer without error."""

    __slots__ = (
        "answer_end",
        "answer_size",
        "answer_start",
        "name",
        "partition",
        "start",
        "timeout_ms",
        "topic",
        "version",
    )

    def __init__(self, frame: bytes, header: RequestHeader, request: ProduceRequest) -> None:
        (item,) = request.partitions
        self.start = frame[:4]
        self.name = header.client_id[:64] if header.client_id else ""
        self.topic = item.topic
        self.partition = item.partition
        self.version = header.api_version
        self.timeout_ms = max(request.timeout_ms, limits.PRODUCE_TIMEOUT_MS_MIN)
        empty = encode_response(self.version, [PartitionAnswer(item.topic, item.partition, 0, 0, 0, 0)])
        at = _BEHIND_TOPIC + 2 + len(item.topic.encode()) + 4
        result = _ANSWER_V5 if self.version >= 5 else _ANSWER
        self.answer_start, self.answer_end = empty[:at], empty[at + result.size :]
        self.answer_size = _SIZE.pack(_SIZE.size + len(empty))


class FastRequest:
    """The place of its answer in the order of the requests, and what waits for its batch."""

    __slots__ = (
        "_correlation_id",
        "_identity",
        "_key",
        "_shape",
        "_sweeper",
        "answer_by",
        "chunks",
        "client",
        "connection",
        "held",
        "is_done",
        "number",
    )

    header = RequestHeader(API_KEY, _CLASSIC_FROM, 0, None, 0)
    """The same for all: those who look at it need only the API key."""

    def __init__(
        self,
        host: Host,
        client: FastClient,
        shape: _Shape,
        correlation_id: bytes,
        key: Key,
        identity: BatchIdentity,
        answer_by: float,
    ) -> None:
        self._sweeper = host.sweeper
        self._shape = shape
        self._correlation_id = correlation_id
        self._key = key
        self._identity = identity
        notes = client.retry_notes
        notes.requests = self.number = notes.requests + 1
        self.connection = self.client = client
        self.answer_by = answer_by
        self.chunks: tuple[Buffer, ...] | None = None
        self.held = None
        self.is_done = False

    link = None
    """It is not a conditional one (rule R23)."""

    @property
    def is_gone(self) -> bool:
        """Is the request answered, or the connection closed?"""
        return self.is_done or self.connection.is_closed

    @property
    def sweep_line(self) -> int:
        """The line in which it waits for its answer: its timeout in ms."""
        return self._shape.timeout_ms

    def leave(self) -> None:
        """It keeps nothing of its request."""

    # R18: what is not known in time is answered with a retriable code.
    def time_is_up(self, _parts: object) -> None:
        """Answer now: the retry joins."""
        self.answer(answers.in_doubt("the outcome is not known yet"))

    def answer(self, answer: Answer) -> None:
        """Take the answer; ignored when there was one."""
        code = answer.error_code
        if not code:
            self.appended(answer.base_offset, answer.log_append_time_ms)
        elif not self.is_done:
            self.is_done = True
            self._sweeper.remove(self)
            has_failed = answers.is_failure(code)
            will_be_retried = has_failed and answers.will_be_retried(code, self._identity.record_count)
            notes = self.connection.retry_notes
            notes.note(self._key, self._identity, has_failed, will_be_retried, self.number)  # R11
            self.chunks = self._refusal(answer)
            self.connection.answer_is_ready()

    def appended(self, base_offset: int, log_append_time_ms: int) -> None:
        """Its batch is in the log; ignored when there was an answer."""
        if self.is_done:
            return
        shape = self._shape
        if shape.version >= 5:
            result = _ANSWER_V5.pack(0, base_offset, log_append_time_ms, 0)
        else:
            result = _ANSWER.pack(0, base_offset, log_append_time_ms)
        self.chunks = (shape.answer_size + self._correlation_id + shape.answer_start + result + shape.answer_end,)
        self.is_done = True
        lines, client = self._sweeper.lines, self.connection
        if shape.timeout_ms in lines and self in lines[shape.timeout_ms]:  # else its connection was seen to be closed
            del lines[shape.timeout_ms][self]
        if not client.retry_notes.is_empty:  # R11
            client.retry_notes.note(self._key, self._identity, False, False, self.number)
        client.answer_is_ready()

    def _refusal(self, answer: Answer) -> tuple[Buffer, ...]:
        shape = self._shape
        told = PartitionAnswer(
            shape.topic,
            shape.partition,
            answer.error_code,
            answer.base_offset,
            answer.log_append_time_ms,
            message=answer.message,
        )
        start = encode_response_header(API_KEY, shape.version, int.from_bytes(self._correlation_id, "big", signed=True))
        body = encode_response(shape.version, [told])
        return (_SIZE.pack(len(start) + len(body)), start, body)


class FastProduce:
    """The usual requests of one connection. ``shapes``: what is known of them; empty: none was there yet."""

    __slots__ = ("_host", "_topic_at", "shapes")

    def __init__(self, host: Host) -> None:
        self._host = host
        self.shapes: dict[bytes, _Shape] = {}
        self._topic_at = 0

    def learn(self, frame: Frame, header: RequestHeader, request: ProduceRequest) -> None:
        """Remember a request that was read: others may follow that differ only in correlation id and batch."""
        if (
            type(frame) is not bytes
            or not _CLASSIC_FROM <= header.api_version < FLEXIBLE_VERSION
            or request.transactional_id is not None
            or request.acks not in (-1, 1)  # R16
            or len(request.partitions) != 1
        ):
            return
        records = request.partitions[0].records
        if records is None or len(frame) - len(records) > limits.REQUEST_SHAPE_BYTES_MAX:
            return
        self._topic_at = header.body_offset + _TOPIC_AT
        begin = frame[_HEADER_AT : -len(records) - _SIZE.size]
        known = self.shapes.get(begin)
        if known is not None and known.version == header.api_version:
            return
        topics = self._host.conditional_topics
        if topics.are_any and topics.has(request.partitions[0].topic):  # R23: each batch there is judged at the door
            return
        if len(self.shapes) >= limits.REQUEST_SHAPES_MAX:
            self.shapes.clear()
        self.shapes[begin] = _Shape(frame, header, request)

    def take(self, client: FastClient, frame: Frame, start: int, size: int) -> FastRequest | None:
        """Take a usual request: its batch is on its way then. ``start``: where it begins in ``frame`` (its API key);
        ``size``: of ``frame``, which ends with it. None: it is no usual one, and nothing has happened."""
        at = start + self._topic_at
        if not self._topic_at or size <= at + 1 or type(frame) is not bytes:
            return None
        end = at + 2 + (frame[at] << 8 | frame[at + 1]) + _BEHIND_TOPIC
        begin = frame[start + _HEADER_AT : end]
        if begin not in self.shapes:
            return None
        shape = self.shapes[begin]
        if frame[start : start + 4] != shape.start or size < end + _SIZE_AND_HEADER.size:
            return None
        fields = _SIZE_AND_HEADER.unpack_from(frame, end)
        size_bytes, base_offset, length, _, magic, crc, attributes, last, _, _, producer_id, epoch, sequence, count = (
            fields
        )
        if (
            size_bytes != size - end - _SIZE.size
            or base_offset
            or magic != MAGIC
            or length + SIZE_FIELDS_BYTES != size_bytes
            or count != last + 1
            or count <= 0
            or attributes & _NOT_SERVED_FLAGS
            or attributes & CODEC_MASK >= Codec.ZSTD
            or producer_id < 0
            or producer_id == CONDITIONAL_ID  # R23
            or epoch < 0
            or sequence < 0
        ):
            return None
        host, key = self._host, (producer_id, shape.topic, shape.partition)
        sequencer = host.known_sequencer(key)
        if sequencer is None:
            return None
        records = memoryview(frame)[end + _SIZE.size :]
        header = _new_tuple(BatchHeader, (size_bytes, crc, attributes, *fields[7:]))
        try:
            verify_crc(records, header)
        except ChecksumMismatch:
            return None
        now = host.now()
        identity = BatchIdentity(epoch, sequence, count)
        answer_by = now + shape.timeout_ms / 1000 * limits.ANSWER_SHARE
        request = FastRequest(host, client, shape, frame[start + 4 : start + 8], key, identity, answer_by)
        batch = Batch(identity, records, header, shape.timeout_ms, now, [request], client.principal)
        request_bytes = size - start + limits.USUAL_REQUEST_OBJECTS_BYTES
        if not sequencer.goes_at_once(batch, request_bytes):
            if host.is_draining or not host.has_partition(shape.topic, shape.partition):  # R15
                return None
            batch.held = Held(host.memory.hold_bytes, request_bytes)
            sequencer.enqueue(batch)
            queue = sequencer.stream.queue
            if queue and queue[-1] is batch:
                batch.ahead = Held(host.memory.hold_bytes, wrapper_bytes(header, size_bytes))
        client.is_idempotent = True
        if shape.name:
            client.name = shape.name
        if not request.is_done:
            sweeper = host.sweeper
            if shape.timeout_ms in sweeper.lines:
                sweeper.lines[shape.timeout_ms][request] = ()  # R18
                if not sweeper.is_planned:
                    sweeper.plan()
            else:
                sweeper.add(request, ())
        host.requests_by_key[API_KEY] += 1
        return request
