"""One sequencer on a stage of the test's own: a log, a store and a clock that stand still until the test moves them.

The shipped flows run; every effect is carried out here at once, or later where the test says so. What happens in
between (a new lease epoch, a client that leaves, a retry) the test does in ``before``, in the very step of an effect.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

from idemproxy.codecs.compression import Codec, compress, decompress
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_message, iterate_shallow
from idemproxy.codecs.record_batch import Record, encode_batch, parse_single_batch
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.admission.long_work import Done
from idemproxy.proxy.admission.memory_budget import MemoryBudget
from idemproxy.proxy.bridge.asks import EarliestOffset, FetchAnswer, FetchRecords, LatestOffset, OffsetAnswer
from idemproxy.proxy.broker.queued_append import QueuedAppend, Route
from idemproxy.proxy.broker.quiescence_watch import QuiescenceWatch
from idemproxy.proxy.events import InternalError
from idemproxy.proxy.flow.effects import (
    Append,
    Ask,
    Leader,
    MemberAlive,
    Now,
    Pause,
    QuiescenceCheck,
    Read,
    Replicas,
    Swap,
    Wait,
    Work,
)
from idemproxy.proxy.flow.form import Form
from idemproxy.proxy.flow.outcome import Appended, InDoubt, NotSent, Outcome, Refused
from idemproxy.proxy.flow.runner import FlowRunner, Resume
from idemproxy.proxy.limits import COMMIT_IDLE_SECONDS
from idemproxy.proxy.partition_log.log_chunk import ReadLog, taking_apart
from idemproxy.proxy.producer.answers import appended, is_failure, will_be_retried
from idemproxy.proxy.producer.batch import Answer, Batch
from idemproxy.proxy.producer.context import Context
from idemproxy.proxy.producer.outside import AppendTarget, Flushed
from idemproxy.proxy.producer.proxy_instance import ProxyInstance
from idemproxy.proxy.producer.retry_notes import Link, RetryNotes
from idemproxy.proxy.producer.sequencer import Sequencer
from idemproxy.proxy.producer.stream import Stream
from idemproxy.proxy.settings.config import Caps
from idemproxy.reactor import Reactor
from idemproxy.state.conditional import is_conditional
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.entry import Entry, pack, principal_of, unpack
from idemproxy.state.producer_ids import block_of, pack_block
from idemproxy.state.store import Conflict, NameCheck, StoreAway, Swapped, block_key, entry_key
from idemproxy.values import value
from testkit.virtual.log import PartitionLog

CLUSTER, TOPIC, PARTITION, PRODUCER_ID = "staged", "topic", 0, 7000
DATA_GENERATION, NEXT_DATA_GENERATION = bytes(range(16)), bytes(range(1, 17))
INSTANCE_ID, NEXT_INSTANCE_ID = b"first.in", b"second.i"
BLOCK_KEY = block_key(CLUSTER, block_of(PRODUCER_ID))
KEY = entry_key(CLUSTER, PRODUCER_ID, TOPIC, PARTITION)
START_SECONDS = 1000.0
NEVER = object()


class Client:
    """A connection. ``batch`` makes a request on it."""

    def __init__(self, principal: str | None = None) -> None:
        self.retry_notes = RetryNotes()
        self.name = "client"
        self.address = "10.0.0.1"
        self.route: Route | None = None
        self.is_closed = False
        self.principal, self.principal_name = principal_of(principal), principal or ""
        self.rested_seconds = 0.0

    def rest(self, seconds: float) -> None:
        """Nothing more is to be taken of it for so long."""
        self.rested_seconds += seconds


class Request:
    """One request's interest in one batch, as ``produce.Part`` keeps it."""

    def __init__(self, client: Client, identity: BatchIdentity) -> None:
        self.connection = client
        self.answers: list[Answer] = []
        self._identity = identity
        self.producer_id = PRODUCER_ID
        self.number = client.retry_notes.request_number()
        self.link: Link | None = None

    @property
    def is_done(self) -> bool:
        return bool(self.answers)

    @property
    def is_gone(self) -> bool:
        return self.is_done or self.connection.is_closed

    def appended(self, base_offset: int, log_append_time_ms: int) -> None:
        self.answer(appended(base_offset, log_append_time_ms))

    def answer(self, answer: Answer) -> None:
        if not self.answers:
            self.answers.append(answer)
            has_failed = is_failure(answer.error_code)
            retriable = has_failed and will_be_retried(answer.error_code, self._identity.record_count)
            key = (self.producer_id, TOPIC, PARTITION)
            self.connection.retry_notes.note(key, self._identity, has_failed, retriable, self.number)
            if self.link is not None:
                self.connection.retry_notes.end_link(key, self.link, has_failed, retriable)

    def leave(self) -> None:
        """It keeps nothing."""

    @property
    def code(self) -> int | None:
        """The error code of its answer, None as long as there is none."""
        return self.answers[0].error_code if self.answers else None

    @property
    def offset(self) -> int | None:
        return self.answers[0].base_offset if self.answers else None

    @property
    def message(self) -> str:
        """The sentence of its answer, empty if it has none."""
        return (self.answers[0].message or "") if self.answers else ""


def batch_of(
    values: Sequence[bytes],
    sequence: int,
    epoch: int = 0,
    headers: Sequence[Any] = (),
    last_headers: Sequence[Any] | None = None,
    codec: Codec = Codec.NONE,
    timestamp: int = 1_700_000_000_000,
    producer_id: int = PRODUCER_ID,
) -> memoryview:
    """One record batch with these values. ``last_headers``: of the last record, if they are others."""
    records = [Record(index, timestamp, None, value, tuple(headers)) for index, value in enumerate(values)]
    if last_headers is not None:
        records[-1] = records[-1]._replace(headers=tuple(last_headers))
    whose = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return memoryview(encode_batch(records, **whose, codec=codec))


def recompressed(data: bytes, codec: Codec | None) -> bytes:
    """What a 0.10 broker stores of a wrapper: itself, or what it makes of it where the topic has another codec."""
    (wrapper,) = iterate_shallow(data)
    if codec is None or wrapper.codec == codec:
        return data
    assert wrapper.value is not None
    inner = bytes(decompress(Codec(wrapper.codec), wrapper.value, 1 << 20, magic=1))
    if codec is Codec.NONE:
        return inner
    packed = compress(codec, inner, magic=1)
    return encode_message(None, packed, magic=1, offset=wrapper.offset, timestamp=wrapper.timestamp, codec=codec)


class ProduceConnection:
    """What a duplicate is looked up by."""

    def __init__(self) -> None:
        self.is_open = True
        self.sent_at = 0.0
        self.answered_at = 0.0


@value(frozen=True, slots=True)
class StagedAppend(Append):
    """An append as it leaves. ``route``: the client's own connection over which it goes."""

    route: Route | None = None


class StagedOutside:
    """What appends ask for, on a stage: carried out in the step of the call; answered in the same step or, where the
    stage answers later, in a later one."""

    def __init__(self, stage: Stage) -> None:
        self.leader = StagedBroker(1, True)
        self._stage = stage
        self._cluster: tuple[int | None] = (None,)
        self._flush_at = 0.0

    # ------------------------------------------------------------------ leaders
    @property
    def leaders(self) -> StagedOutside:
        return self

    @property
    def cluster(self) -> object:
        if self._cluster != (self._stage.leader,):
            self._cluster = (self._stage.leader,)
        return self._cluster

    def leader_of(self, _topic: str, _partition: int) -> int | None:
        return self._stage.leader

    def broker(self, broker_id: int) -> StagedBroker:
        self.leader.id = broker_id
        return self.leader

    # ------------------------------------------------------------------ calls
    def swap(
        self,
        key: bytes,
        version: int,
        value: bytes,
        ttl_ms: int,
        done: Callable[[Any], None],
        name: NameCheck | None = None,
    ) -> None:
        result = self._stage.perform(Swap(key, version, value, ttl_ms, name))
        if self._stage.swap_seconds:
            self._stage.later(self._stage.swap_seconds, lambda: done(result))
        else:
            self._soon(lambda: done(result))

    def queue_append(self, broker: AppendTarget, append: QueuedAppend) -> None:
        """Of a batch that has just come it leaves in a later step, as with produce connections."""
        self._leave(broker.id, append, None)

    def queue_append_by(self, route: Route, broker_id: int, append: QueuedAppend) -> None:
        self._leave(broker_id, append, route)

    def _leave(self, broker_id: int, append: QueuedAppend, route: Route | None) -> None:
        if self._stage.is_sending:
            self._soon(lambda: self._push(broker_id, append, route))
        else:
            self._push(broker_id, append, route)

    def _push(self, broker_id: int, append: QueuedAppend, route: Route | None) -> None:
        records, timeout_ms, names = append.message_set, append.timeout_ms, append.identities
        where = broker_id, append.topic, append.partition
        effect = StagedAppend(*where, records, timeout_ms, append.may_send, names, append.sender, append.form, route)
        outcome = self._stage.perform(effect)
        if outcome is not NEVER:
            self._soon(lambda: self._end(broker_id, append, outcome))

    def _end(self, broker_id: int, append: QueuedAppend, outcome: Outcome) -> None:
        self._stage.produce_connection.answered_at = self._stage.now
        if not isinstance(outcome, NotSent):
            append.has_left(self._stage.events.append, broker_id)
        if isinstance(outcome, Appended):
            told = outcome.error_code, outcome.base_offset, outcome.log_append_time_ms
            append.answered(*told, outcome.produce_connection or self._stage.produce_connection, broker_id)
        elif isinstance(outcome, Refused):
            append.answered(outcome.error_code, -1, -1, self._stage.produce_connection, broker_id)
        else:
            append.done(outcome)

    def look_at(self, topic: str, outcome: Outcome) -> None:
        """Topics are not deleted here."""

    def flush_soon(self, sequencer: Flushed) -> None:
        self._flush_at = self._stage.now + COMMIT_IDLE_SECONDS  # of the last one that is held
        self._stage.later(COMMIT_IDLE_SECONDS, lambda: self._look(sequencer))

    def _look(self, sequencer: Flushed) -> None:
        assert isinstance(sequencer, Sequencer)
        if sequencer.stream.held.append_reservation is None:
            if self._stage.now >= self._flush_at:
                sequencer.flush()
        elif not sequencer.look(self._stage.now):
            self.flush_soon(sequencer)

    def in_turn(self, go_on: Callable[[None], None]) -> None:
        """As in a pass that has done enough; that all is done at once the random worlds see."""
        self._soon(lambda: go_on(None))

    def _soon(self, call: Callable[[], None]) -> None:
        if self._stage.answers_later:
            self._stage.later(0, call)
        else:
            call()


class StagedClock:
    """The clock of a stage, as a reactor has it: an internal error is reported, and stops nothing else."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def now(self) -> float:
        return self._stage.now

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        def call() -> None:
            try:
                callback()
            except Exception as error:
                self._stage.events.append(InternalError("a timer", error))

        self._stage.later(seconds, call)


@dataclass
class StagedBroker:
    """The leader."""

    id: int
    takes_batches: bool
    form: Form = Form.WRAPPER_V1
    may_hold_batches: bool = False


class Stage:
    """A proxy process that works for one producer on one partition."""

    def __init__(
        self,
        *,
        keeps_batch_markers: bool = True,
        topic_codec: Codec | None = None,
        answers_later: bool = False,
        owns: bool = False,
        producer_id: int = PRODUCER_ID,
    ) -> None:
        """``topic_codec``: the topic's compression.type; None: that of the producer. ``answers_later``: swaps and
        appends are carried out at once and answered in a later step, so that what is sent together meets. ``owns``: the
        proxy takes append reservations."""
        self._owns = owns
        self.answers_later = answers_later
        self.is_sending = False
        """A client is just sending a batch."""
        self.producer_id = producer_id
        self.key = entry_key(CLUSTER, producer_id, TOPIC, PARTITION)
        self.topic_codec = topic_codec
        self.outside = StagedOutside(self)
        self.now = START_SECONDS
        self.log = PartitionLog(keeps_wrapper_keys=keeps_batch_markers)
        self.earliest = 0
        self.leader: int | None = 1
        self.replicas: Collection[int] = (1, 2)
        self.values: dict[bytes, bytes] = {BLOCK_KEY: pack_block(DATA_GENERATION, 0)}
        self.alive: set[bytes] = set()
        self.is_registered = True
        """Whether the store has our own lease."""
        self.store_away = False
        self.replica: dict[bytes, bytes] | None = None
        """What is read while the server that we are connected to is a replica, which takes no writes."""
        self.produce_connection = ProduceConnection()
        self.outcomes: deque[Callable[[Append], Outcome]] = deque()
        """What becomes of the next appends; when it is empty they succeed."""
        self.sent: list[StagedAppend] = []
        self.asked: list[tuple[int, Any]] = []
        self.swapped: list[Entry] = []
        self.events: list[Any] = []
        self.on_append: Callable[[Append], object] = lambda _effect: None
        """Called when an append is carried out."""
        self.before: dict[type, Callable[[Any], object]] = {}
        """Called in the step of an effect of this type, before it is carried out."""
        self.reply: Callable[[int, Any], Any] = lambda _broker_id, _question: None
        """What a broker answers instead of the truth; None: the truth."""
        self.log_seconds = 0.0
        """How long one reading of the log takes."""
        self.swap_seconds = 0.0
        """How long the answer to a swap takes, which is carried out at once."""
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.context = self.new_context()
        self.sequencer = self.new_sequencer()

    # ------------------------------------------------------------------ lives
    def new_context(self) -> Context:
        instance = ProxyInstance(CLUSTER, instance_id=INSTANCE_ID, data_generation=DATA_GENERATION, lease_epoch=1)
        memory = MemoryBudget(Caps())
        context = Context(instance, self.events.append, memory, leader_of=lambda _topic, _partition: self.leader)
        context.time.now = self.now
        context.outside, context.takes_append_reservations = self.outside, self._owns
        return context

    def new_sequencer(self) -> Sequencer:
        self.runner = FlowRunner(self._handlers())
        return Sequencer(self.context, self.runner, self.producer_id, TOPIC, PARTITION)

    @property
    def stream(self) -> Stream:
        """The state that the sequencer works on."""
        return self.sequencer.stream

    def begin_lease_epoch(self, data_generation: bytes = NEXT_DATA_GENERATION) -> None:
        """What the engine does when the store begins a new data generation, or the lease is lost."""
        self.context.instance.begin_lease_epoch(NEXT_INSTANCE_ID)
        self.context.instance.data_generation = data_generation
        self.context.instance.grace_until = self.now + 7.0

    def die(self) -> None:
        """The process ends, and another one begins on the same store."""
        self._timers.clear()
        self.outcomes.clear()
        self.produce_connection = ProduceConnection()
        self.context = self.new_context()
        self.context.instance.instance_id = NEXT_INSTANCE_ID
        self.sequencer = self.new_sequencer()

    # ------------------------------------------------------------------ what a test does
    def send(
        self,
        client: Client,
        sequence: int,
        *values: bytes,
        epoch: int = 0,
        follows: bool = False,
        count: int | None = None,
        **more: Any,
    ) -> Request:
        """One batch of a client; by default one record of its own. ``follows``: as a conditional batch may say.
        ``count``: how many records its header says that it has; None: so many as it has."""
        made = values or (b"value %d" % sequence,)
        records = batch_of(made, sequence, epoch, producer_id=self.producer_id, **more)
        header = parse_single_batch(records)
        if count is not None:
            header = header._replace(record_count=count, last_offset_delta=count - 1)
        identity = BatchIdentity(epoch, sequence, header.record_count)
        request = Request(client, identity)
        self.is_sending = True
        request.producer_id = self.producer_id
        if is_conditional(self.producer_id):
            key = (self.producer_id, TOPIC, PARTITION)
            request.link = client.retry_notes.link(key, identity, says_it_follows=follows)
        self.sequencer.submit(Batch(identity, records, header, 30_000, self.now, [request], client.principal))
        self.is_sending = False
        return request

    def run(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end and not until():
            self.now, _, callback = heapq.heappop(self._timers)
            self.context.time.now = self.now
            callback()
        if not until():
            self.now = end
            self.context.time.now = end

    def entry(self) -> Entry:
        """What is stored."""
        return unpack(self.values[self.key])

    def put(self, entry: Entry) -> None:
        self.values[self.key] = pack(entry)

    def store_v2(self) -> None:
        """From now on the leader stores format v2."""
        self.outside.leader.form, self.outside.leader.may_hold_batches = Form.MARKED_V2, True

    def stored_values(self) -> list[bytes | None]:
        """Every record of the log, in order."""
        return [record.value for stored in self.log.messages for record in stored.message.records]

    def failures(self) -> list[Exception]:
        """Errors of the proxy's own: there may be none."""
        return [event.error for event in self.events if hasattr(event, "error")]

    # ------------------------------------------------------------------ outcomes of appends
    def take(self, effect: Append) -> int:
        """Append, as the leader does."""
        data, is_v2 = bytes(effect.message_set), effect.form.is_v2
        stored = data if is_v2 else recompressed(data, self.topic_codec)
        base_offset = self.log.append(stored, self.now, stores=2 if is_v2 else 1)
        self.log.advance(self.log.end_offset)
        return base_offset

    def succeeds(self, effect: Append) -> Outcome:
        return Appended(self.take(effect), 0, -1, self.produce_connection)

    def loses_answer(self, effect: Append) -> Outcome:
        self.take(effect)
        return InDoubt("the answer is lost", effect.broker_id)

    def loses_request(self, effect: Append) -> Outcome:
        return InDoubt("the request is lost", effect.broker_id)

    def never_answers(self, _effect: Append) -> Outcome:
        """For a process that dies meanwhile."""
        return cast(Outcome, NEVER)

    def refuses(self, code: int) -> Callable[[Append], Outcome]:
        return lambda _effect: Refused(code)

    # ------------------------------------------------------------------ effects
    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back when so much time has passed."""
        heapq.heappush(self._timers, (self.now + seconds, next(self._order), callback))

    def perform(self, effect: Any) -> Any:
        """Carry out a swap or an append, as for a flow; NEVER: it is never answered."""
        if self.runner.on_effect is not None:
            self.runner.on_effect(effect)
        self._look(effect)
        return self._swap(effect) if isinstance(effect, Swap) else self._append(effect)

    def _handlers(self) -> dict[type, Any]:
        performed: dict[type, Callable[[Any], Any]] = {
            Read: self._read,
            Swap: self._swap,
            MemberAlive: lambda effect: (
                effect.instance_id in self.alive
                or (self.is_registered and effect.instance_id == self.context.instance.instance_id)
            ),
            Ask: self._ask,
            Leader: lambda _effect: self.leader,
            Replicas: lambda _effect: self.replicas,
            Now: lambda _effect: self.now,
        }

        def at_once(perform: Callable[[Any], Any]) -> Callable[[Any, Resume], None]:
            def handle(effect: Any, resume: Resume) -> None:
                self._look(effect)
                result = perform(effect)
                if result is NEVER:
                    return
                if self.swap_seconds and isinstance(effect, Swap):
                    self.later(self.swap_seconds, lambda: resume(result))
                elif self.answers_later and isinstance(effect, Swap):
                    self.later(0, lambda: resume(result))
                elif self.log_seconds and isinstance(getattr(effect, "question", None), ReadLog | FetchRecords):
                    self.later(self.log_seconds, lambda: resume(result))
                else:
                    resume(result)

            return handle

        handlers: dict[type, Any] = {kind: at_once(perform) for kind, perform in performed.items()}
        handlers[Wait] = self._wait
        handlers[Work] = self._work
        handlers[Pause] = self._pause
        awake = QuiescenceWatch(cast(Reactor, StagedClock(self)), self._ask_broker)

        def see_awake(effect: QuiescenceCheck, resume: Resume) -> None:
            self._look(effect)
            awake.when_quiescent(effect.broker_id, effect.topic, effect.partition, resume)

        handlers[QuiescenceCheck] = see_awake
        return handlers

    def _look(self, effect: Any) -> None:
        watch = self.before.get(Append if isinstance(effect, Append) else type(effect))
        if watch is not None:
            watch(effect)

    def _read(self, effect: Read) -> bytes | StoreAway | None:
        if self.store_away:
            return StoreAway("away")
        return (self.values if self.replica is None else self.replica).get(effect.key)

    def _swap(self, effect: Swap) -> Swapped | Conflict | StoreAway:
        if self.store_away or self.replica is not None:
            return StoreAway("away")
        there = self.values.get(effect.key)
        version = int.from_bytes(there[1:9], "big") if there else 0
        if there == effect.value:
            return Swapped()
        if version != effect.expected_version:
            return Conflict(there)
        self.values[effect.key] = effect.value
        self.swapped.append(unpack(effect.value))
        if 0 < effect.ttl_ms < 1000:  # what expires later, a test deletes
            self.later(effect.ttl_ms / 1000, lambda: self._expire(effect))
        return Swapped()

    def _expire(self, effect: Swap) -> None:
        if self.values.get(effect.key) is effect.value:
            del self.values[effect.key]

    def _append(self, effect: StagedAppend) -> Outcome:
        reason = effect.may_send()
        if reason is not None:
            return NotSent(reason)
        self.on_append(effect)
        self.sent.append(effect)
        return (self.outcomes.popleft() if self.outcomes else self.succeeds)(effect)

    def _ask(self, effect: Ask[Any]) -> Any:
        question = effect.question
        if isinstance(question, ReadLog):
            answer = self._ask(Ask(effect.broker_id, question.fetch()))
            return at_once(taking_apart(question.offset, answer)) if isinstance(answer, FetchAnswer) else answer
        self.asked.append((effect.broker_id, question))
        instead = self.reply(effect.broker_id, question)
        if instead is not None:
            return instead
        if isinstance(question, EarliestOffset):
            return OffsetAnswer(0, self.earliest)
        if isinstance(question, LatestOffset):
            if question.replica_id != -1 and effect.broker_id != self.leader:  # only the leader tells its log's end
                return OffsetAnswer(int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1)
            return OffsetAnswer(0, self.log.high_watermark if question.replica_id == -1 else self.log.end_offset)
        assert isinstance(question, FetchRecords)
        if not self.earliest <= question.offset <= self.log.end_offset:
            return FetchAnswer(1, -1, memoryview(b""))
        up_to = self.log.high_watermark
        data = self.log.read(question.offset, question.bytes_max, whole_first=True, up_to=up_to)
        return FetchAnswer(0, up_to, memoryview(data))

    def _ask_broker(self, broker_id: int, question: Any, done: Callable[[Any], None]) -> None:
        done(self._ask(Ask(broker_id, question)))

    def _wait(self, effect: Wait, resume: Resume) -> None:
        self._look(effect)
        heapq.heappush(self._timers, (self.now + effect.seconds, next(self._order), lambda: resume(None)))

    def _work(self, effect: Work[Any], resume: Resume) -> None:
        self._look(effect)

        def work() -> None:
            try:
                done = Done[Any](at_once(effect.start()))
            except Exception as error:
                done = Done[Any](error=error)
            resume(done)

        heapq.heappush(self._timers, (self.now, next(self._order), work))

    def _pause(self, effect: Pause, resume: Resume) -> None:
        self._look(effect)
        bell = effect.bell
        if bell.rung:
            bell.rung = False
            resume(True)
            return
        is_over = False

        def end(rung: bool) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                bell.listener = None
                resume(rung)

        bell.listener = lambda: end(True)
        heapq.heappush(self._timers, (self.now + effect.seconds, next(self._order), lambda: end(False)))
