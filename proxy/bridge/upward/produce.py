"""Produce requests of one client connection, written as an idempotent producer in Produce 3 and above: of clients that
speak versions 0 to 2, or have no idempotence. Sans-IO: learns what arrived, and returns what to do
(``produce_effects``).

One request at a time, in the order in which they came, as a broker does. What it has for a partition, a set, becomes
batches (``produce_formats``) under a producer id that is lent for the request (``producer_ids``); where earlier batches
of the client may still arrive under several ids, under one after the other. The core of an idempotent producer
(``producing/``) says what is sent again, where, and what an answer means. One batch of a partition is out at a time: so
one that is refused leaves no gap before others, and the next one takes its sequence.

What the client gets, at three quarters of its request's timeout at the latest:

- success, once all batches of a set are in the log: also after answers that were lost, and after errors that pass;
- the broker's own error where nothing of the set was appended, as a code that it knows (``error_codes``). That another
  broker leads is such an error: the client asks who, and sends again;
- REQUEST_TIMED_OUT where something of the set is, or may be, in the log.

What is or may be in the log is not left to the client, which would send all of the set again: it follows the leader.
A client that has gone gets nothing; what it has out still gets an outcome, for its next connection to wait for
(``departed_clients``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from struct import Struct
from typing import Any, Final

from ....codecs.error_codes import ErrorCode
from ....codecs.errors import WireError
from ....codecs.old_formats.raising import MISSING_TIMESTAMP, RefusedSet
from ....codecs.produce import IDEMPOTENT_VERSION_MIN, PartitionAnswer, ProduceRequest
from ....codecs.steps import STEP_BYTES, Steps
from ....producing.backoff import backoff_seconds
from ....producing.cluster import Cluster
from ....producing.errors import (
    BehindFailed,
    Fenced,
    NotDelivered,
    OutOfOrder,
    ProduceError,
    Refused,
    Undeterminable,
    UnknownProducer,
    shown_code,
)
from ....producing.numbered_batch import NumberedBatch, Place, ProducerId, Receipt, numbering
from ....producing.partition_queue import Outcome, QueuedBatch
from ....producing.producer_core import ProducerCore, Request, Timing
from ....producing.reactions import reaction_to
from ....reactor import Buffer
from ....values import value
from .departed_clients import ClientIdentity, DepartedClients
from .produce_effects import (
    AnswerClient,
    AskLeaders,
    AskProducerId,
    CloseClient,
    DisconnectBroker,
    Effect,
    RunSteps,
    SendProduce,
)
from .produce_formats import ACKS, MESSAGE_SETS, PARTITIONS_MAX, format_of
from .producer_ids import LentId, ProducerIdPools
from .raised_sets import SetBatches, raised_bytes_max, splitting_all
from .topic_limits import TopicLimits

TIMEOUT_SECONDS_MIN: Final = 1.0
TIMEOUT_SECONDS_MAX: Final = 120.0
"""What a request's timeout is taken for at least and at most. Where acks is not -1 brokers do not look at it, so a
client may have set it to anything."""
TIMEOUT_SHARE: Final = 0.75
"""Of its timeout after which a request is answered (rule R18): clients that wait for as long give up then."""
BROKER_SHARE: Final = 2 / 3
"""Of the time that is left, for the broker to wait for its replicas: so that its answer comes in time."""
SILENCE_SHARE: Final = 5 / 6
"""Of the time that is left, after which a connection is closed that has brought no answer: the batch is sent again over
another one."""
SETS_AT_ONCE: Final = 200
BYTES_AT_ONCE: Final = 4 << 20
"""Sets of a request that are under way at a time, and the bytes of their batches, unless one has more: to give them
their producer id takes 3 ms. The others follow as these get their outcomes."""
RENEWALS_MAX: Final = 3
"""Times that the rest of a request continues under another epoch or id. Each is a proof that the batch is absent, so
more of them say that the brokers change leaders all the time, or that the ids are used elsewhere."""

_INIT_PRODUCER_ID_VERSION: Final = 0
_INIT_PRODUCER_ID: Final = b"\xff\xff" + Struct(">i").pack(60_000)  # no transactional id, so the timeout has no effect
_GIVEN_ID: Final = Struct(">ihqh")
"""Throttle time, error code, producer id, epoch."""
_ABSENT_NOW: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""By which a client reads that nothing was appended, and that it may be later."""


@value(frozen=True, slots=True)
class RaisedProduceSettings:
    """``broker``: the id of the one that the client has connected to. ``produce_version_max``: of that one.
    ``keeps_missing_timestamps``: messages of format v0 get no timestamp, as with Kafka 0.10 to 3.9, in the place of the
    time of arrival. ``unpacked_bytes_max``: of one message set, decompressed. ``refusal_of``: with which error code a
    topic takes no message sets; 0: it takes them."""

    broker: int
    produce_version_max: int
    unpacked_bytes_max: int
    keeps_missing_timestamps: bool = False
    refusal_of: Callable[[str], int] = lambda _topic: 0


@dataclass(slots=True, eq=False)
class _Set:
    """What a request has for one partition."""

    place: Place
    message_sets: list[memoryview]
    batches: SetBatches = field(default_factory=SetBatches)
    submitted: Buffer | None = None
    """The one that was submitted, before it got its producer id."""
    sent: QueuedBatch | None = None
    """The same as it was sent; None: not yet."""
    code: int | None = None
    """What the client gets; None: not known yet."""
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    """What the broker says of the refusal."""
    is_appended: bool = False
    """Is some of it in the log?"""


class RaisedProduce:
    """One client connection. Every method returns what to do now; after it, the shell looks at ``wakes_at`` and
    ``is_idle``. Times are seconds of the shell's clock."""

    def __init__(
        self,
        settings: RaisedProduceSettings,
        client: ClientIdentity,
        pools: ProducerIdPools,
        departed: DepartedClients,
        limits: TopicLimits,
        wake: Callable[[], None],
        spread: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """``pools``, ``departed``, ``limits``: one each for all connections. ``wake``: called in a method of another
        connection; it plans a call of ``woken``, and does not make it. ``spread``: as of ``ProducerCore``."""
        assert settings.produce_version_max >= IDEMPOTENT_VERSION_MIN
        self._settings = settings
        self._client = client
        self._pools = pools
        self._departed = departed
        self._limits = limits
        self._wake = wake
        self._spread = spread
        self._sent: dict[int, tuple[int, Request]] = {}
        """By number, what is out: the broker and the core's own request."""
        self._numbers = 0
        self._preferred: int | None = None
        """The producer id of the last request."""
        self._has_left = self._leaves_more = False
        self._request: ProduceRequest | None = None
        self._reset()

    def _reset(self) -> None:
        self._request = None
        self.wakes_at: float | None = None
        """When ``woken`` is to be called; it changes with every call. None: no more."""
        self._client_version = self._version = 0
        """Of the request, and that in which brokers are asked."""
        self._format = MESSAGE_SETS
        self._pool = self._pools.by_name
        self._sets: dict[Place, _Set] = {}
        self._round: Sequence[_Set] = ()
        """Sets that are written under the id that is lent now; mostly all."""
        self._to_begin: deque[_Set] = deque()
        """Those of them of which nothing is under way."""
        self._under_way: dict[Place, int] = {}
        """The bytes of the batch that is under way, by partition."""
        self._body_bytes = self._kept_bytes = 0
        """Of the request's body, and of what is in memory of it once it was read: all, where any batch is a part."""
        self._arrived_ms = 0
        self._deadline = 0.0
        self._throttle_ms = 0
        self._lent: LentId | None = None
        self._core: ProducerCore | None = None
        self._departed_count: int | None = None
        """What it was when the request began to wait for them: connections that end later are not waited for."""
        self._is_asking_id = False
        self._waits_for_id = False
        self._id_failures = 0
        self._ask_id_at = 0.0
        self._works: deque[tuple[Callable[[], Steps[Any]], Callable[[Any, float], None]]] = deque()
        """What takes steps, and what is done with what they return; one after the other."""
        self._working: int | None = None
        """The number of the steps that are under way."""
        self._renews = False
        self._is_fenced = False
        self._renewals = 0
        self._unfinished: list[Place] = []
        """Where a batch may still arrive."""

    @property
    def is_idle(self) -> bool:
        """May the next request be begun?"""
        return self._request is None

    @property
    def buffered_bytes(self) -> int:
        """What is in memory of the request, but for the steps that are under way and the body that ``begin`` was given:
        that one is needed until ``worked`` was called."""
        sent = 0 if self._core is None else self._core.buffered_bytes
        if self._format.keeps_body:
            return self._kept_bytes + sent
        batches = sum(one.batches.size_bytes for one in self._sets.values())
        submitted = sum(len(one.submitted) for one in self._sets.values() if one.submitted is not None)
        return batches + submitted + sent

    # ------------------------------------------------------------------ the client
    def begin(self, body: Buffer, api_version: int, now: float, arrived_ms: int) -> list[Effect]:
        """Take a request of version 0 to 2, or one that ``is_written``; it is kept until it is answered.
        ``arrived_ms``: the wall clock."""
        assert self._request is None
        self._format = format_of(api_version)
        try:
            request = self._format.parse_request(body, api_version)
        except WireError as error:
            return [CloseClient(str(error))]
        if len(request.partitions) > PARTITIONS_MAX:
            return [CloseClient(f"{len(request.partitions)} partitions in a produce request, limit {PARTITIONS_MAX}")]
        self._request, self._client_version, self._body_bytes = request, api_version, len(body)
        self._version = self._format.broker_version(api_version, self._settings.produce_version_max)
        self._pool = self._pools.by_topic_id if self._format.names_topics_by_id else self._pools.by_name
        timeout_seconds = min(max(request.timeout_ms / 1000, TIMEOUT_SECONDS_MIN), TIMEOUT_SECONDS_MAX)
        self._deadline = now + timeout_seconds * TIMEOUT_SHARE
        self._arrived_ms = MISSING_TIMESTAMP if self._settings.keeps_missing_timestamps else arrived_ms
        for one in request.partitions:
            place = Place(one.topic, one.partition)
            of_place = self._sets.setdefault(place, _Set(place, []))
            if one.records is None:
                of_place.code = ErrorCode.CORRUPT_MESSAGE
            elif code := self._settings.refusal_of(one.topic):
                of_place.code = code
            else:
                of_place.message_sets.append(one.records)
        if request.acks not in ACKS:
            self._end_all(ErrorCode.INVALID_REQUIRED_ACKS)
            return self._ended(now)
        raised = partial(
            self._format.batches_of,
            {one.place: (one.message_sets, self._limits.batch_bytes_max(one.place.topic)) for one in self._open_sets()},
            self._arrived_ms,
            self._settings.unpacked_bytes_max,
            raised_bytes_max(len(body)),
        )
        self._works.append((raised, self._take_raised))
        return self._continue(now)

    def left(self, now: float, *, leaves_more: bool = False) -> list[Effect]:
        """The client has closed its connection. A request without acks is finished: its client may end right after it.
        Of any other one nothing more is begun; what is out gets an outcome. ``leaves_more``: further requests without
        acks will be begun, and ``leaves_no_more`` is owed; until then a new connection of the client waits. There are
        no answers from now on."""
        self._has_left, self._leaves_more = True, leaves_more
        if self._request is not None or leaves_more:
            self._departed.depart(self._client, self)
        if self._request is None or self._request.acks == 0:
            return []
        for one in self._open_sets():
            one.batches = SetBatches()
            self._leave_to_client(one.place, now)
        return self._continue(now)

    @property
    def _is_abandoned(self) -> bool:
        """Has its client left, and is nothing more of the request begun?"""
        return self._has_left and self._request is not None and self._request.acks != 0

    def leaves_no_more(self) -> None:
        """Nothing else of a client that has left is begun."""
        self._leaves_more = False
        if self._request is None:
            self._departed.end(self._client, self)

    # ------------------------------------------------------------------ the shell
    def worked(self, number: int, result: Any, now: float) -> list[Effect]:
        """These steps have come to their end. Those of a request that has ended are ignored."""
        if number != self._working:
            return []
        self._working = None
        _, done = self._works.popleft()
        done(result, now)
        return self._continue(now)

    def answered(self, number: int, body: Buffer, now: float) -> list[Effect]:
        """The body of the answer to a ``SendProduce``. One that nobody waits for any more is ignored."""
        found = self._sent.pop(number, None)
        if found is None or self._core is None:
            return []
        broker, request = found
        try:
            answers, throttle_ms = self._format.parse_response(body, self._version)
        except WireError:
            self._sent[number] = found
            return [DisconnectBroker(broker), *self.lost(broker, now)]
        self._throttle_ms = max(self._throttle_ms, throttle_ms)
        # Before version 6 the broker has waited already (KIP-219).
        throttle_seconds = throttle_ms / 1000 if self._version >= 6 else 0.0
        doubtful = {place for place, queued in request.batches.items() if queued.in_doubt}
        by_place = {Place(one.topic, one.partition): one for one in answers}
        outcomes = self._core.answered(broker, request, answers, throttle_seconds, now)
        for outcome in outcomes:
            self._take(outcome, by_place.get(outcome.batch.place), outcome.batch.place in doubtful, now)
        for place in request.batches:
            answer = by_place.get(place)
            if answer is not None and (self._is_abandoned or reaction_to(answer.error_code).moves):
                self._leave_to_client(place, now)
        return self._continue(now)

    def lost(self, broker: int, now: float, *, was_sent: bool = True) -> list[Effect]:
        """The connection to a broker has ended. ``was_sent``: False if it could not be opened, so that nothing that is
        out can have left."""
        places = self._drop_sent(broker)
        if self._core is not None:
            for outcome in self._core.lost(broker, now, was_sent=was_sent):
                self._take(outcome, None, True, now)
            if not was_sent:
                for place in places:
                    self._leave_to_client(place, now)
        if self._is_asking_id and broker == self._settings.broker:
            self._not_given(now)
            if not was_sent:
                self._end_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._continue(now)

    def answered_id(self, body: Buffer, now: float) -> list[Effect]:
        """The body of the answer to ``AskProducerId``."""
        if not self._is_asking_id:
            return []
        if len(body) < _GIVEN_ID.size:
            return [DisconnectBroker(self._settings.broker), *self.lost(self._settings.broker, now)]
        _, code, number, epoch = _GIVEN_ID.unpack_from(body)
        if code == ErrorCode.NONE and min(number, epoch) < 0:
            code = ErrorCode.UNKNOWN_SERVER_ERROR  # some servers list the API, and have no ids
        if code != ErrorCode.NONE:
            self._not_given(now)
            known_code = self._format.client_code(code, False)
            if known_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._end_all(known_code)
            return self._continue(now)
        self._is_asking_id = False
        self._lent = self._pool.take_new(ProducerId(number, epoch), self._client)
        return self._continue(now)

    def learned(self, topics: Sequence[str], found: Cluster, now: float) -> list[Effect]:
        """The answer to ``AskLeaders``."""
        if self._core is not None:
            self._core.learned(topics, found, now)
        return self._continue(now)

    def not_learned(self, now: float) -> list[Effect]:
        """No broker answers it."""
        if self._core is not None:
            self._core.not_learned(now)
        return self._continue(now)

    def woken(self, now: float) -> list[Effect]:
        """The time ``wakes_at`` has come, or ``wake`` was called."""
        return self._continue(now)

    # ------------------------------------------------------------------ from one step to the next
    def _continue(self, now: float) -> list[Effect]:
        if self._request is None:
            return []
        if now >= self._deadline:
            return self._give_up(now)
        if not self._open_sets():
            return self._ended(now)
        effects: list[Effect] = []
        if self._works:
            self.wakes_at = self._deadline
            if self._working is None:
                self._numbers += 1
                self._working = self._numbers
                effects.append(RunSteps(self._working, self._works[0][0]))
            return effects
        if self._core is not None:
            self._lose_silent(self._core, effects, now)
            if self._is_round_over:
                self._give_back()
        if self._core is None or self._renews:
            self._find_id(effects, now)
        if self._core is not None:
            self._begin_more(now)
            self._send(self._core, effects, now)
        if self._works:
            return effects + self._continue(now)
        if not self._open_sets():
            return effects + self._ended(now)
        self._set_alarm(now)
        return effects

    @property
    def _is_round_over(self) -> bool:
        """Have all sets of this round their outcomes, while others wait for another id?"""
        return self._core is not None and not (self._renews or self._to_begin or self._sent) and self._core.is_idle

    def _give_back(self) -> None:
        """Leave the id to others."""
        if self._lent is not None:
            written = [one.place for one in self._round if one.is_appended and one.code == ErrorCode.NONE]
            self._pool.give_back(self._lent, written, self._unfinished)
        self._core = self._lent = None
        self._unfinished, self._round = [], ()

    def _set_alarm(self, now: float) -> None:
        times = [self._deadline]
        if self._ask_id_at > now:
            times.append(self._ask_id_at)
        if self._core is not None:
            times += [at for at in (self._core.wakes_at(now),) if at is not None]
            times += [at for one in self._core.brokers() if (at := self._core.broker_wakes_at(one, now)) is not None]
        self.wakes_at = min(times)

    def _find_id(self, effects: list[Effect], now: float) -> None:
        """Get a producer id and begin to send under it, if nothing is to be waited for."""
        if not self._open_sets() or self._is_asking_id:
            return
        count = self._departed.count if self._departed_count is None else self._departed_count
        if self._core is None and self._departed.has_open_before(self._client, self, count):
            self._departed_count = count
            self._wait_no_more()  # an id that it was woken for is another's meanwhile
            self._departed.wait(self._client, self, self._wake)
            return
        if self._core is not None:
            if not self._core.is_idle or self._sent:
                return  # what is out under the old epoch gets its outcome first
            self._renew()
        if self._lent is not None and not any(self._may_write(self._lent)):
            self._give_back()  # a batch of another connection of the client may arrive there under another id by now
        if self._lent is None:
            places = [one.place for one in self._open_sets()]
            self._lent = self._pool.lend(self._client, places, self._preferred)
        if self._lent is None:
            if now < self._ask_id_at:
                return
            places = [one.place for one in self._open_sets()]
            if not self._pool.ask_or_wait(self._client, places, self, self._wake):
                self._waits_for_id = True
                return
            self._is_asking_id = True
            effects.append(AskProducerId(self._settings.broker, _INIT_PRODUCER_ID_VERSION, _INIT_PRODUCER_ID))
            return
        self._wait_no_more()
        self._begin_core(self._lent, now)

    def _renew(self) -> None:
        """Nothing is out: leave the sequences that a broker does not take, for the next epoch or another id."""
        lent, self._core, self._renews = self._lent, None, False
        if lent is None:
            return
        if self._is_fenced:
            self._is_fenced = False
            self._pool.drop(lent)
            self._lent = None
        elif not self._pool.begin_next_epoch(lent):
            self._lent = None

    def _begin_core(self, lent: LentId, now: float) -> None:
        left = self._deadline - now
        sets = list(self._may_write(lent))
        self._round = [*(one for one in self._round if one.code is not None), *sets]
        self._core = ProducerCore(lent.producer_id, {}, Timing(left, left), self._spread)
        self._core.cluster = Cluster({}, dict.fromkeys((one.place for one in sets), self._settings.broker), {}, {})
        self._preferred = lent.number
        self._to_begin = deque(sets)
        self._under_way.clear()

    def _may_write(self, lent: LentId) -> Iterator[_Set]:
        return (one for one in self._open_sets() if self._pool.may_write(lent, one.place))

    def _begin_more(self, now: float) -> None:
        """Begin with further sets, as far as there is room for them."""
        assert self._core is not None
        assert self._lent is not None
        while self._to_begin and len(self._under_way) < SETS_AT_ONCE and not self._renews:
            assert self._core.fenced is None
            one = self._to_begin[0]
            if one.code is None:
                if self._under_way and sum(self._under_way.values()) + len(one.batches.first) > BYTES_AT_ONCE:
                    return
                self._core.start_at(one.place, self._lent.next_sequences.get(one.place, 0), was_used=False)
                self._submit_next(one, now)
            self._to_begin.popleft()

    def _submit_next(self, one: _Set, now: float) -> None:
        """Submit the set's next batch; without one, it is all in the log."""
        if not one.batches:
            one.code = ErrorCode.NONE
            return
        if self._renews or self._core is None or self._core.fenced is not None:
            return
        one.submitted, one.sent = one.batches.pop_first(), None
        self._under_way[one.place] = len(one.submitted)
        if len(one.submitted) > STEP_BYTES:
            sequence = self._core.next_sequence(one.place)
            numbered = partial(numbering, one.submitted, self._core.producer_id, sequence)
            self._works.append((numbered, partial(self._submit_numbered, one)))
            return
        self._core.submit(one.place, one.submitted, now, one)

    def _submit_numbered(self, one: _Set, numbered: NumberedBatch, now: float) -> None:
        """A large batch has its producer id and sequence by now."""
        assert one.submitted is not None
        if one.code is not None:
            return
        if self._core is None or self._renews or self._core.fenced is not None:
            one.batches.put_back(one.submitted)
            one.submitted = None
        else:
            self._core.submit(one.place, numbered, now, one)

    def _lose_silent(self, core: ProducerCore, effects: list[Effect], now: float) -> None:
        for broker in core.brokers():
            if core.is_overdue(broker, now):
                effects.append(DisconnectBroker(broker))
                self._drop_sent(broker)
                for outcome in core.lost(broker, now):
                    self._take(outcome, None, True, now)

    def _send(self, core: ProducerCore, effects: list[Effect], now: float) -> None:
        assert self._request is not None
        left = self._deadline - now
        core.timing = Timing(left, left * SILENCE_SHARE)
        timeout_ms = max(1, int(left * BROKER_SHARE * 1000))
        for broker in core.brokers():
            while (request := core.take_request(broker, now)) is not None:
                self._numbers += 1
                self._sent[self._numbers] = broker, request
                for queued in request.batches.values():
                    _set_of(queued).sent = queued
                acks = self._request.acks or 1
                body = self._format.encode_request(self._version, acks, timeout_ms, request.parts())
                effects.append(SendProduce(self._numbers, broker, self._version, tuple(body)))
        topics = core.topics_to_ask_for(now)
        if topics:
            effects.append(AskLeaders(tuple(topics), self._format.names_topics_by_id))

    # ------------------------------------------------------------------ outcomes
    def _take(self, outcome: Outcome, answer: PartitionAnswer | None, was_doubtful: bool, now: float) -> None:
        """A batch has an outcome. ``was_doubtful``: it may have been in the log before the answer."""
        one = _set_of(outcome.batch)
        result = outcome.result
        self._under_way.pop(one.place, None)
        if one.code is not None:
            return
        if isinstance(result, Receipt):
            self._stored(one, outcome, answer, now)
        elif isinstance(result, OutOfOrder | UnknownProducer | Fenced | BehindFailed):
            self._renew_later(one, result, was_doubtful=was_doubtful)
        elif isinstance(result, Refused) or (isinstance(result, Undeterminable) and not was_doubtful):
            self._refused(one, result, now)
        elif isinstance(result, NotDelivered):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if result.code is None else result.code
            self._end(one, code)
        else:
            self._unfinished.append(one.place)
            self._end(one, ErrorCode.REQUEST_TIMED_OUT, is_outcome_unknown=True)

    def _stored(self, one: _Set, outcome: Outcome, answer: PartitionAnswer | None, now: float) -> None:
        assert isinstance(outcome.result, Receipt)
        assert self._lent is not None
        if not one.is_appended:
            base_offset = outcome.result.base_offset
            one.base_offset = -1 if base_offset is None else base_offset
            if answer is not None:
                one.log_append_time_ms, one.log_start_offset = answer.log_append_time_ms, answer.log_start_offset
        one.is_appended = True
        one.submitted = None
        self._lent.next_sequences[one.place] = outcome.batch.batch.next_sequence
        self._submit_next(one, now)

    def _refused(self, one: _Set, error: ProduceError, now: float) -> None:
        """The batch is not in the log, and no broker takes it as it is. Its sequence is free."""
        assert one.submitted is not None
        if self._core is not None and self._core.fenced is None:
            self._core.start_at(one.place, error.base_sequence, was_used=False)
        size_bytes = len(one.submitted)
        one.sent = None
        is_split = self._format.splits and error.record_count > 1 and not self._is_abandoned
        if error.code == ErrorCode.MESSAGE_TOO_LARGE and is_split:
            self._limits.refused(one.place.topic, size_bytes)
            self._split(one)
            return
        one.message = error.message
        self._end(one, ErrorCode.UNKNOWN_SERVER_ERROR if error.code is None else error.code)

    def _renew_later(self, one: _Set, error: ProduceError, *, was_doubtful: bool) -> None:
        """A broker does not take the sequence: batches that were acknowledged are gone from its log (with acks 1 an
        election may lose some), or it has forgotten the producer id. So this one, which comes after them, is not in its
        log either, and continues in another epoch from sequence 0; or under another id, if somebody uses this one. That
        says nothing about an earlier try of this batch.

        Absence is an outcome: without its client it ends here, or the client's own retry would be there as well."""
        assert one.submitted is not None
        self._is_fenced = self._is_fenced or isinstance(error, Fenced)
        if not self._renews:
            self._renews = True
            self._renewals += 1
        if was_doubtful and isinstance(error, Fenced):
            self._end(one, ErrorCode.REQUEST_TIMED_OUT, is_outcome_unknown=True)
            return
        if self._renewals > RENEWALS_MAX or self._is_abandoned:
            self._end(one, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        one.batches.put_back(one.submitted)
        one.submitted = one.sent = None

    def _leave_to_client(self, place: Place, now: float) -> None:
        """Another broker leads the partition, or this one is not there: unless something of the set may be in the log,
        the client asks who leads, and sends it again."""
        one = self._sets[place]
        is_out = any(place in request.batches for _, request in self._sent.values())
        if one.code is not None or one.is_appended or is_out or (one.sent is not None and one.sent.in_doubt):
            return
        if self._core is not None:
            for outcome in self._core.give_up("another broker leads the partition", place):
                self._take(outcome, None, False, now)
        if one.code is None:
            self._end(one, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _end(self, one: _Set, code: int, *, is_outcome_unknown: bool = False) -> None:
        """``is_outcome_unknown``: of the batch. If a set is in the log in part, the client gets no code by which it
        would read that nothing is; but one that says that the rest is never taken, or it would not stop. Nor one that
        it retries though the rest is never taken: each time the first part would be there once more."""
        one.code = self._format.client_code(code, is_outcome_unknown)
        if one.is_appended and one.code in _ABSENT_NOW:
            one.code = ErrorCode.REQUEST_TIMED_OUT
        elif one.is_appended and one.code == ErrorCode.CORRUPT_MESSAGE:
            one.code = ErrorCode.UNKNOWN_SERVER_ERROR
        one.batches = SetBatches()
        one.submitted = None

    def _end_all(self, code: int) -> None:
        for one in self._open_sets():
            self._end(one, code)

    def _open_sets(self) -> list[_Set]:
        return [one for one in self._sets.values() if one.code is None]

    # ------------------------------------------------------------------ the end of a request
    def _give_up(self, now: float) -> list[Effect]:
        """Its time is over."""
        effects: list[Effect] = []
        if self._core is not None:
            for outcome in self._core.give_up("the time for the request is over"):
                self._take(outcome, None, True, now)
        silent = {broker for broker, _ in self._sent.values()}
        if self._is_asking_id:
            silent.add(self._settings.broker)
        effects += [DisconnectBroker(broker) for broker in sorted(silent)]
        self._sent.clear()
        self._end_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return effects + self._ended(now)

    def _ended(self, now: float) -> list[Effect]:
        """All sets have their codes."""
        assert self._request is not None
        assert not self._sent
        if self._is_asking_id:
            self._not_given(now)
        self._wait_no_more()
        self._departed.wait_no_more(self._client, self)
        if self._renews:
            self._renew()
        self._give_back()
        if self._has_left and not self._leaves_more:
            self._departed.end(self._client, self)
        effect = self._answer(self._request)
        self._reset()
        if effect is None or (self._has_left and isinstance(effect, AnswerClient)):
            return []
        return [effect]

    def _answer(self, request: ProduceRequest) -> Effect | None:
        if request.acks == 0:
            bad = next((one for one in self._sets.values() if one.code != ErrorCode.NONE), None)
            if bad is None:
                return None
            return CloseClient(f"{bad.place}: {shown_code(bad.code or 0)}, and the request wants no answer")
        answers = [
            PartitionAnswer(*one.place, 0, one.base_offset, one.log_append_time_ms, one.log_start_offset)
            if one.code == ErrorCode.NONE
            else PartitionAnswer(*one.place, one.code or 0, -1, message=one.message)
            for one in self._sets.values()
        ]
        return AnswerClient(self._format.encode_response(self._client_version, answers, self._throttle_ms))

    def _wait_no_more(self) -> None:
        if self._waits_for_id:
            self._waits_for_id = False
            self._pool.wait_no_more(self._client, self)

    def _not_given(self, now: float) -> None:
        self._is_asking_id = False
        self._id_failures += 1
        self._ask_id_at = now + backoff_seconds(self._id_failures) * self._spread()
        self._pool.not_given(self._client)

    def _drop_sent(self, broker: int) -> list[Place]:
        """Forget what is out at a broker; return its partitions."""
        out = [number for number, (where, _) in self._sent.items() if where == broker]
        return [place for number in out for place in self._sent.pop(number)[1].batches]

    # ------------------------------------------------------------------ steps
    def _take_raised(self, raised: Mapping[Place, list[Buffer] | RefusedSet], now: float) -> None:
        assert self._request is not None
        self._request.partitions.clear()  # nothing but batches refers to the request's bytes any more
        self._kept_bytes = self._body_bytes if self._format.keeps_body else 0
        for place, found in raised.items():
            one = self._sets[place]
            one.message_sets.clear()
            if one.code is not None:
                continue
            if isinstance(found, RefusedSet):
                one.code, one.message = found.code, found.reason
            elif found:
                one.batches = SetBatches(found)
            else:
                one.code = ErrorCode.NONE  # an empty set: nothing is appended, at no offset, as by Kafka

    def _split(self, one: _Set) -> None:
        """Make smaller batches of the one that was refused, and of those after it."""
        assert one.submitted is not None
        bytes_max = self._limits.batch_bytes_max(one.place.topic)
        batches = [one.submitted, *one.batches]
        split = partial(splitting_all, batches, bytes_max, self._settings.unpacked_bytes_max)
        self._works.append((split, partial(self._take_split, one)))

    def _take_split(self, one: _Set, pieces: Sequence[Buffer] | RefusedSet, now: float) -> None:
        if one.code is not None:
            return
        if isinstance(pieces, RefusedSet):
            self._end(one, pieces.code)
        else:
            one.batches, one.submitted = SetBatches(pieces), None
            self._submit_next(one, now)


def _set_of(queued: QueuedBatch) -> _Set:
    assert isinstance(queued.token, _Set)
    return queued.token
