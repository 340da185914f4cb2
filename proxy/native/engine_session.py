"""One client of brokers that store format v2, in front of which the proxy gives idempotence, sans-IO: what it produces,
its requests for a producer id, and its questions where producers stopped go to the engine, and all else passes as bytes
(``session.py``).

A request for the engine is collected whole. Its answer has its place among those of the broker, which wait for it
there. What passes does not wait for what the engine has at work, as each request of a client may be answered by another
broker in a cluster. Transactions are the brokers' own: on topics of the engine their batches are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from ...codecs import produce_topic_ids
from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...codecs.frame_stream import PASSES, STOPS, Cut
from ...codecs.framing import SIZE_BYTES, Frame, FrameSplitter, frame
from ...codecs.headers import (
    RequestHeader,
    encode_request_header,
    encode_response_header,
    parse_request_header,
    parse_response_header,
)
from ...codecs.produce import (
    CONDITIONAL_PUBLISH,
    SENT_VERSION_MAX,
    ProduceRequest,
    encode_request,
    parse_response,
)
from ...codecs.produce_acks import START_BYTES_MAX, acks_of
from ...codecs.produce_walk import only_topic
from ...codecs.steps import Steps
from ...reactor import Buffer, Reactor, Wire
from .. import limits
from ..admission.memory_budget import WAITING_COUNTS, Held
from ..bridge.describe_producers import encode_describe_producers, parse_describe_producers
from ..bridge.init_producer_id import encode_init_producer_id, issued_id, parse_init_producer_id
from ..connection.handler import Handler
from ..connection.shell import ConnectionShell
from ..producer.batch import Answer
from ..producer.retry_notes import RetryNotes
from ..session.produce import PlainPart, ProduceCall, ProduceRequests, parse_produce
from ..session.routing import BatchKind, Way
from ..session.session import Session
from ..versions import NATIVE_MAX, OWN_RANGES, ApiKey, BrokerRanges, is_dropped
from .batches_call import BatchesCall, is_plain
from .conditional import walk_through
from .host import NativeHost
from .session import HEAD, NativeSession, Stage, TakenAnswer

_PRODUCE: Final = int(ApiKey.PRODUCE)
_INIT_PRODUCER_ID: Final = int(ApiKey.INIT_PRODUCER_ID)
_DESCRIBE_PRODUCERS: Final = int(ApiKey.DESCRIBE_PRODUCERS)
_FETCH: Final = int(ApiKey.FETCH)
_OWN_KEYS: Final = (_PRODUCE, _INIT_PRODUCER_ID, _DESCRIBE_PRODUCERS)
_CHANGES_TOPICS: Final = (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)
_AFTER_HEAD: Final = HEAD.size
"""Of a request: after API key, version and correlation id."""
_IS_OVER: Final = object()
_MANY_ANSWERS: Final = "the broker's answer leaves a partition out"


class _EngineAnswer:
    """The place of the engine's answer to a request that is no produce request."""

    __slots__ = ("api_key", "arrived_at", "chunks")

    def __init__(self, api_key: int, arrived_at: float) -> None:
        self.api_key, self.arrived_at = api_key, arrived_at
        self.chunks: Sequence[Buffer] | None = None


class EngineSession(NativeSession):
    """The handler of the client's connection. See ``NativeSession``; the client is known to the proxy, or nobody asks
    who it is."""

    route = None
    """Its batches go over the produce connections that all clients share."""

    def __init__(
        self,
        upstream: Reactor,
        make_stage: Callable[[NativeSession, NativeHost, ConnectionShell, bytes], Stage],
        host: NativeHost,
        shell: ConnectionShell,
    ) -> None:
        super().__init__(upstream, False, make_stage, host, shell)
        self._is_produce_for_stage = False
        self._keeps_client = self._may_do_without_broker
        self.retry_notes = RetryNotes()
        self._noted = 0
        """How many notes the host knows of."""
        self.principal, self.principal_name, self.address = shell.principal, shell.principal_name, shell.address
        self._produce = ProduceRequests(host, BatchesCall, BatchesCall.begin, self._asked)
        self._splitter = FrameSplitter(host.caps.request_bytes_max)
        self._is_engines = False
        """Has the stream of requests stopped at one for the engine?"""
        self._missing_bytes = 0
        """Of the request that is being collected; 0: none is."""
        self._begins = False
        """Has that one begun with the last bytes?"""
        self._ready: Frame | None = None
        """A request for the engine that is whole, and whose turn has not come."""
        self._kept = b""
        """What comes after it, or after one that is taken in steps."""
        self._held_kept = 0
        self._taken = 0
        """Requests for the engine in this turn."""
        self._is_stopping = False
        self._has_silent = False
        """Was a request passed on that wants no answer?"""
        self._at_work: Steps[None] | None = None
        self._is_asking = False
        """Is it asked which topics the next request names?"""
        self._flush_planned = False
        self._own_correlation_id = 0
        self._is_by_topic = host.brokers_issue_ids
        """Do the brokers give idempotence on topics that are not the engine's?"""
        self._brokers_start = b""
        """Of the last produce request whose only topic is the brokers', from after its correlation id to the topic: one
        that begins so goes the same way. In this version."""
        self._brokers_version = -1

    # ------------------------------------------------------------------ asked by the shell
    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._asked) + (self._ready is not None)

    @property
    def has_produce_in_flight(self) -> bool:
        """Is something under way that a drain waits for?"""
        return self._unfinished > 0 or self._own_due > 0 or self._has_kept or self._is_asking

    @property
    def has_enough(self) -> bool:
        """Does something wait that came before, is the proxy ending (rule R15), has its address had its turn, or does
        the broker not take what it sends?"""
        if self._unpaid_bytes or self._has_kept:
            return True
        if self._host.is_draining and (
            self.has_produced or self.has_produce_in_flight or not (self._missing_bytes or self._requests.is_within)
        ):
            return True
        return self._upstream is not None and self._upstream.unsent > limits.STREAM_BYTES_MAX

    @property
    def is_owed_nothing(self) -> bool:
        """Has every request been answered?"""
        return not (self._has_kept or self.is_at_work) and super().is_owed_nothing

    @property
    def answers_after_fin(self) -> bool:
        """Nothing is served for a producer with an id (rule R17)."""
        return not self.is_idempotent

    @property
    def _has_kept(self) -> bool:
        return self._ready is not None or bool(self._kept)

    # ------------------------------------------------------------------ bytes, and turns
    def received(self, data: bytes, *, is_paid: bool = False) -> bool:
        """Bytes of requests. ``is_paid``: the turn of their address has been charged for them."""
        if self._take_at_once(data):
            return False
        if self._shell.fair_share.is_counted and not is_paid:
            self.pay(len(data))
        if self._has_kept or self.is_at_work:
            self._keep(self._kept + data)
            return True
        if not self._missing_bytes:
            if not self._pass(data):
                return False
            if not self._is_engines:  # nearly all, where it is the brokers who give idempotence
                super()._count_unfinished()
                return self._hand_to_stage() or self._is_to_be_controlled()
            data = self._begin_to_collect()
        self._taken = 0
        if not self._advance(data):
            return False
        is_watched = self._is_to_be_controlled()
        return self._hand_to_stage() or self._has_kept or is_watched

    def _take_at_once(self, data: bytes) -> bool:
        """Take a request like one before, if it has come alone and it is its turn. Nearly all do."""
        host, shell, size = self._host, self._shell, len(data) - SIZE_BYTES
        if (
            self._produce.prefixes
            and int.from_bytes(data[:SIZE_BYTES], "big") == size <= host.caps.request_bytes_max
            and self._requests.is_between
            and not (
                self._has_kept
                or self._missing_bytes
                or self.is_at_work
                or shell.fair_share.is_counted
                or shell.is_watched
                or shell.rests_until
                or host.is_draining
                or host.memory.bytes_held > host.caps.request_bytes_total_max
                or len(self._asked) + 1 >= host.caps.requests_in_flight_max
                or host.loop_budget.is_long
            )
            and self._produce.take_known(self, data, SIZE_BYTES, size + SIZE_BYTES)
        ):
            self._own_due += 1
            return True
        return False

    def _advance(self, data: bytes) -> bool:
        """Take bytes in order, as far as they may be taken now. False: nothing that comes after them is taken."""
        while True:
            if self._ready is not None:
                if self._has_to_wait():
                    break
                ready, self._ready = self._ready, None
                self._taken += 1
                if not self._take(ready):
                    return False
            elif not data or self.is_at_work:
                break
            elif self._missing_bytes:
                data = self._collect(data)
            else:
                if not self._pass(data):
                    return False
                if not self._is_engines:
                    data = b""
                    break  # a stage in front takes what is left, if any is
                data = self._begin_to_collect()
        self._keep(data)
        self._count_unfinished()
        return True

    def _begin_to_collect(self) -> bytes:
        """The stream has stopped at a request for the engine: return its bytes, and what comes after it."""
        data, self._is_engines = self.take_rest(), False
        self._missing_bytes = SIZE_BYTES + int.from_bytes(data[:SIZE_BYTES], "big")
        self._begins = True
        return data

    def _has_to_wait(self) -> bool:
        """Is it not the turn of the next request for the engine?"""
        host, shell = self._host, self._shell
        if self.is_at_work or (shell.rests_until and (shell.rests or (shell.has_rested and self._own_due))):
            return True  # until it has gone on, or the back-pressure looks again
        if len(self._asked) >= host.caps.requests_in_flight_max or (host.memory.is_full and self._own_due):
            return True  # until an answer leaves
        if self._taken >= limits.REQUESTS_PER_TURN_MAX or host.loop_budget.is_long:
            shell.plan_turn()
            return True
        return False

    def _collect(self, data: bytes) -> bytes:
        """Take bytes of the request that has begun to come, and return the others."""
        part, rest = (data, b"") if len(data) <= self._missing_bytes else self._parted(data)
        self._missing_bytes -= len(part)
        for whole in self._splitter.feed(part):
            self._ready = whole
        return rest

    def _parted(self, data: bytes) -> tuple[bytes, bytes]:
        return data[: self._missing_bytes], data[self._missing_bytes :]

    def _keep(self, data: bytes) -> None:
        self._kept = data
        count = WAITING_COUNTS * (len(data) + (0 if self._ready is None else len(self._ready)))
        self._host.memory.hold_bytes(count - self._held_kept)
        self._held_kept = count

    def _count_unfinished(self) -> None:
        if not self._missing_bytes:
            super()._count_unfinished()
            return
        begins, self._begins = self._begins, False
        self._shell.request_has(self._splitter.buffered_bytes, self._missing_bytes, begins=begins)

    def go_on(self) -> None:
        """Its address has its next turn, or it is looked whether the client may be read from again."""
        super().go_on()
        if not self._has_kept or self.is_closed or self._shell.has_backlog or self._unpaid_bytes:
            return
        shell, kept = self._shell, self._kept
        self._taken, self._kept = 0, b""
        try:
            is_going_on = self._advance(kept)
        except WireError as error:
            shell.refuse(str(error))
            return
        if not is_going_on or self.is_closed:
            return
        if self._requests.rest:
            if self._stage is None:
                self._hand_to_stage()
            else:
                self._stage.resume_at(self.take_rest())
        if self._is_stopping and not self._has_kept:
            self._stop()
        if shell.takes_no_more:
            shell.end_if_answered()
        self._count_unsent()
        shell.control()

    def rest(self, seconds: float) -> None:
        """Take nothing more of it for so long (``ConnectionShell.rest``)."""
        self._shell.rest(seconds)

    # ------------------------------------------------------------------ requests
    def _look_at_request(self, data: bytes, start: int, size: int) -> Cut | None:
        """Say what becomes of the request that begins here; None: more of it is needed to tell."""
        position = start + SIZE_BYTES
        if len(data) - position < HEAD.size:
            return super()._look_at_request(data, start, size)
        key, version, correlation_id = HEAD.unpack_from(data, position)
        if key in _OWN_KEYS:
            is_old = is_dropped(key, version)
            if is_old and (self._is_raised(key, version, size) or self._is_unserved(key, version)):
                return super()._look_at_request(data, start, size)
            if not self._is_served(key, version):
                return self._refuse(key, version, correlation_id)
            if self._is_by_topic and key == _PRODUCE:
                is_brokers = self._is_on_brokers_topic(data, position, size, version)
                if is_brokers is None:
                    return None
                if is_brokers:
                    cut = super()._look_at_request(data, start, size)
                    self._has_silent |= cut is PASSES and not self._has_last_answer
                    return cut
            self._is_engines = True
            return STOPS
        if key == _FETCH and not self._is_by_topic and self._host.hidden_ranges.is_any:
            raise WireError("hidden ranges are active now: the client gets them on its next connection")
        return super()._look_at_request(data, start, size)

    def _is_on_brokers_topic(self, data: bytes, position: int, size: int, version: int) -> bool | None:
        """Is the only topic of a produce request one on which the brokers give idempotence? Then it passes as it comes.
        None: too little of it has arrived."""
        start = self._brokers_start
        if start and data.startswith(start, position + _AFTER_HEAD) and version == self._brokers_version:
            return True
        found = acks_of(data, position, size, version)
        only = None if found is None else only_topic(data, found[1], version)
        if only is None:
            return None if len(data) - position < min(size, START_BYTES_MAX) else False
        topic, end = only
        name = self._name_of(topic, version)
        if name is None or self._host.way_of(name, BatchKind.IDEMPOTENT) is not Way.PASSES:
            return False
        if end - position <= limits.REQUEST_PREFIX_BYTES_MAX:
            self._brokers_start, self._brokers_version = data[position + _AFTER_HEAD : end], version
        return True

    def _name_of(self, topic: bytes, version: int) -> str | None:
        """None: there is no such name, or it is not known."""
        if version >= produce_topic_ids.VERSION and topic:
            return self._host.topic_names.known({topic.hex()}).get(topic.hex())
        try:
            return topic.decode() or None
        except UnicodeDecodeError:
            return None

    @staticmethod
    def _is_served(key: int, version: int) -> bool:
        return 0 <= version <= NATIVE_MAX[key]

    def _ranges(self) -> BrokerRanges:
        return self._host.engine_ranges()

    def _announced(self, listed: BrokerRanges) -> BrokerRanges:
        told = dict(super()._announced(listed))
        if not self._is_by_topic:  # about other topics the broker itself is asked
            told[_DESCRIBE_PRODUCERS] = OWN_RANGES[_DESCRIBE_PRODUCERS]
            told.setdefault(_INIT_PRODUCER_ID, OWN_RANGES[_INIT_PRODUCER_ID])  # a service may have none
        return {**told, CONDITIONAL_PUBLISH: (0, 0)} if self._host.conditional_topics.are_any else told

    def _take(self, whole: Frame) -> bool:
        """Take a request for the engine. One that cannot be read ends the connection, once those before it are
        answered. False: nothing that comes after it is taken."""
        return self._take_with(partial(self._handle, whole))

    def _take_with(self, take: Callable[[], None]) -> bool:
        last = self._asked[-1] if self._asked else None
        try:
            take()
        except WireError as error:
            while self._asked and self._asked[-1] is not last:
                self._asked.pop()
                self._own_due -= 1
            self._drop_kept()
            self._shell.refuse(str(error))
        return not self._shell.takes_no_more and not self.is_closed

    def _handle(self, whole: Frame) -> None:
        if self._produce.prefixes and self._produce.take_known(self, whole, 0, len(whole)):
            self._own_due += 1
            self.part_if_gone()
            return
        header = parse_request_header(whole)
        self._learn_name(header)
        if header.api_key == _INIT_PRODUCER_ID:
            self._init_producer_id(whole, header)
        elif header.api_key == _DESCRIBE_PRODUCERS:
            self._describe_producers(whole, header)
        else:
            self._take_produce(whole, header)

    def _take_produce(self, whole: Frame, header: RequestHeader) -> None:
        if is_dropped(_PRODUCE, header.api_version):
            self._host.old_clients.note_request(self, self._shell, _PRODUCE, header.api_version)
        if header.api_version < produce_topic_ids.VERSION:
            self._take_named(whole, header, parse_produce(whole, header), {})
            return
        request = produce_topic_ids.parse_request(memoryview(whole)[header.body_offset :])
        topic_ids = {item.topic for item in request.partitions}
        names = self._host.topic_names.known(topic_ids)
        if len(names) == len(topic_ids):
            self._take_named(whole, header, request, names)
            return
        broker = self.target()
        if broker is None:
            self._shell.abort("the broker is away")
            return
        self._is_asking = True
        held = Held(self._host.memory.hold_bytes, len(whole))

        def found(more: Mapping[str, str] | None, _held: Held = held) -> None:
            self._is_asking = False
            if self.is_closed:
                return
            if more is None:
                self._shell.abort("the broker does not say which topics the client names by their ids")
            elif self._take_with(partial(self._take_named, whole, header, request, {**names, **more})):
                self._has_gone_on()

        self._host.topic_names.look_for(topic_ids - names.keys(), broker, found)

    def _take_named(
        self, whole: Frame, header: RequestHeader, request: ProduceRequest, names: Mapping[str, str]
    ) -> None:
        """``names``: by topic id, where the request has those; an unknown one stays in the place of a name."""
        is_by_id = header.api_version >= produce_topic_ids.VERSION
        unknown = {item.topic for item in request.partitions} - names.keys() if is_by_id else set()
        for item in request.partitions:
            item.topic = names.get(item.topic, item.topic)
        if self._passes(request, header.api_version):
            self._pass_unconditional(whole, header, request.acks)
            return
        self._host.count_request(_PRODUCE)
        call = self._produce.made_of(self, whole, header, request)
        assert isinstance(call, BatchesCall), "that is what is made here"
        self._asked.append(call)
        self._own_due += 1
        if is_by_id:
            call.topic_ids = {name: topic_id for topic_id, name in names.items()}
            call.denied = dict.fromkeys(unknown, int(ErrorCode.UNKNOWN_TOPIC_ID))
        self._look_what_is_refused(call, whole, header.api_version)
        if unknown:
            call.begin_in_turns()
        else:
            call.begin()
        self.part_if_gone()

    def _look_what_is_refused(self, call: BatchesCall, whole: Frame, version: int) -> None:
        """Look what is refused of a request that is the engine's at least in part."""
        prefix, host = call.prefix, self._host
        if prefix.is_transactional:
            ways = (host.way_of(topic, BatchKind.TRANSACTIONAL) for topic, _ in prefix.places)
            call.refusal = next((way for way in ways if isinstance(way, Answer)), None)
        elif self._is_by_topic and len(prefix.places) > 1:
            found = acks_of(whole, 0, len(whole), version)
            assert found is not None, "all of it is here"
            walk = walk_through(whole, found[1], len(whole), version)
            if walk is not None:
                call.conditional = frozenset(index for index, part in enumerate(walk.parts) if part.is_wanted)

    def _passes(self, request: ProduceRequest, version: int) -> bool:
        """Is all of the request the broker's? A conditional batch is looked for afterwards."""
        host = self._host
        for item in request.partitions:
            kind = BatchKind.IDEMPOTENT
            if request.transactional_id is not None:
                kind = BatchKind.TRANSACTIONAL
            elif is_plain(item.records, version):
                kind = BatchKind.PLAIN
            if host.way_of(item.topic, kind) is not Way.PASSES:
                return False
        return True

    def _pass_unconditional(self, whole: Frame, header: RequestHeader, acks: int) -> None:
        version = header.api_version
        found = acks_of(whole, 0, len(whole), version)
        assert found is not None, "all of it is here"
        walk = walk_through(whole, found[1], len(whole), version)
        if walk is not None and walk.has_found:
            self._refuse_conditional(walk, version, header.correlation_id, has_answer=acks != 0)
            self.answer_is_ready()
        else:
            self._pass_whole(whole, header, acks)

    def _pass_whole(self, whole: Frame, header: RequestHeader, acks: int) -> None:
        key, version, correlation_id = header[:3]
        upstream = self.connect()
        if upstream is None:
            self._shell.abort("the broker is away")
            return
        self._host.count_request(key)
        upstream.send(len(whole).to_bytes(SIZE_BYTES, "big"), whole)
        if acks == 0:
            self._has_silent = True
            return
        arrived_at = 0.0 if self._host.measure_request is None else self._reactor.now()
        self._asked.append((correlation_id, key, version, arrived_at))
        self._unfinished += 1

    def _init_producer_id(self, whole: Frame, header: RequestHeader) -> None:
        version = header.api_version
        request = parse_init_producer_id(memoryview(whole)[header.body_offset :], version)
        if request.is_transactional:
            self._pass_whole(whole, header, acks=1)
            return
        if self._is_by_topic and self._host.names.of(request, header.client_id) is None:
            self._take_brokers_id(whole, header)
            return
        self.is_idempotent = True
        answer = self._place_for(header)

        def issued(error_code: int, producer_id: int, producer_epoch: int) -> None:
            answer(encode_init_producer_id(version, error_code, producer_id, producer_epoch))

        self._host.init_producer_id(request, version, header.client_id, self, issued)
        self.part_if_gone()

    def _take_brokers_id(self, whole: Frame, header: RequestHeader) -> None:
        """Have the broker issue a producer id, and note it before the client learns of it."""
        upstream = self.connect()
        if upstream is None:
            self._shell.abort("the broker is away")
            return
        key, version, correlation_id = header[:3]
        upstream.send(len(whole).to_bytes(SIZE_BYTES, "big"), whole)

        def taken(response: memoryview) -> None:
            answered_id, offset = parse_response_header(response, key, version)
            if answered_id != correlation_id:
                raise WireError(f"correlation id {answered_id} where {correlation_id} is due")
            body = bytes(response[offset:])
            error_code, producer_id = issued_id(body)
            if error_code or producer_id < 0:
                answer(body)
            else:
                self._host.note_issued(producer_id, self, partial(answer, body))

        self._asked.append(TakenAnswer(taken))
        answer = self._place_for(header)

    def _describe_producers(self, whole: Frame, header: RequestHeader) -> None:
        """What the engine has appended names no producer: its broker does not know where they stopped."""
        places = parse_describe_producers(memoryview(whole)[header.body_offset :])
        if any(self._host.way_of(topic, BatchKind.IDEMPOTENT) is Way.PASSES for topic, _ in places):
            self._pass_whole(whole, header, acks=1)
            return
        answer = self._place_for(header)
        self._host.describe_producers(places, self.principal, lambda found: answer(encode_describe_producers(found)))
        self.part_if_gone()

    def _place_for(self, header: RequestHeader) -> Callable[[bytes], None]:
        """Keep the place of an answer of the engine; call what is returned with its body."""
        self._host.count_request(header.api_key)
        arrived_at = 0.0 if self._host.measure_request is None else self._reactor.now()
        place = _EngineAnswer(header.api_key, arrived_at)
        self._asked.append(place)
        self._own_due += 1
        start = encode_response_header(header.api_key, header.api_version, header.correlation_id)

        def answer(body: bytes) -> None:
            place.chunks = (frame(start, body),)
            self.answer_is_ready()

        return answer

    def produce_plainly(self, acks: int, timeout_ms: int, parts: list[PlainPart], held: Held) -> None:
        """Batches that are the broker's, among others that are the engine's: send them on in a request of their
        own. ``held``: counts the bytes of their request."""
        upstream, call = self.connect(), self._asked[-1]
        assert isinstance(call, ProduceCall), "nothing is taken while it is at work"
        if upstream is None:
            self._shell.abort("the broker is away")
            return
        version = min(call.prefix.version, SENT_VERSION_MAX)
        self._own_correlation_id = correlation_id = (self._own_correlation_id + 1) & 0x7FFFFFFF
        waiting: dict[tuple[str, int], Callable[[Answer], None]] = {}
        sent: list[tuple[str, int, Buffer]] = []
        for item, answer in parts:
            waiting[(item.topic, item.partition)] = answer
            sent.append((item.topic, item.partition, item.records or b""))
        body = encode_request(version, acks, timeout_ms, sent)
        header = encode_request_header(_PRODUCE, version, correlation_id, self.name)
        size = len(header) + sum(map(len, body))
        upstream.send(size.to_bytes(SIZE_BYTES, "big"), header, *body)
        if acks == 0:
            self._has_silent = True
            for answer in waiting.values():
                answer(Answer(0))
            return

        def taken(response: memoryview, _held: Held = held) -> None:
            answered_id, offset = parse_response_header(response, _PRODUCE, version)
            if answered_id != correlation_id:
                raise WireError(f"correlation id {answered_id} where {correlation_id} is due")
            found, _throttle_ms = parse_response(response, offset, version)
            for one in found:
                done = waiting.pop((one.topic, one.partition), None)
                if done is not None:
                    done(Answer(one.error_code, one.base_offset, one.log_append_time_ms, one.message))
            if waiting:
                raise WireError(_MANY_ANSWERS)

        self._asked.insert(len(self._asked) - 1, TakenAnswer(taken))

    # ------------------------------------------------------------------ requests that take several steps
    @property
    def is_at_work(self) -> bool:
        """Is a request taken in steps? What came after it is not taken before it has gone on (rule R20)."""
        return self._at_work is not None or self._is_asking

    def take_in_turns(self, steps: Steps[None]) -> None:
        """Take a request: one step now, each other one in a later pass."""
        if next(steps, _IS_OVER) is not _IS_OVER:
            self._at_work = steps
            self._host.reactor.later(0, self._take_next_step)
        self.part_if_gone()

    def _take_next_step(self) -> None:
        if self._at_work is None:
            return
        if next(self._at_work, _IS_OVER) is not _IS_OVER:
            self._host.reactor.later(0, self._take_next_step)
            self.part_if_gone()
            return
        self._at_work = None
        self.part_if_gone()
        self._has_gone_on()

    def _has_gone_on(self) -> None:
        if not self.is_closed and not self.is_at_work:
            self._shell.end_if_answered()
            self._shell.plan_turn()

    def part_if_gone(self) -> None:
        """A request has begun, or gone on: end the connection if its client has left, and is a producer with an id."""
        # After a FIN nothing is begun for a producer with an id (rule R17). Whether a request names one is known once
        # its batches were read, which may take steps.
        if self._shell.has_hung_up and self.is_idempotent and not self.is_closed:
            self._shell.part(is_lost=True)

    # ------------------------------------------------------------------ answers
    def answer_is_ready(self) -> None:
        """One of the answers may leave, if those before it have left."""
        if not self.is_closed and not self._flush_planned:
            self._flush_planned = True
            self._host.reactor.at_flush(self.flush)

    def flush(self) -> None:
        """Hand over to the wire what is ready."""
        self._flush_planned = False
        self._own_is_there()
        if self.retry_notes.count or self._noted:
            self._count_notes()

    def _leaves(self, own: object) -> None:
        if isinstance(own, ProduceCall):
            own.held = None
            self.has_produced = True
        elif isinstance(own, _EngineAnswer) and own.arrived_at and (measure := self._host.measure_request):
            measure(own.api_key, self._reactor.now() - own.arrived_at)

    def _answers_left(self, wire: Wire) -> None:
        super()._answers_left(wire)
        if self._has_kept and not self.is_closed:
            self._shell.plan_turn()

    def _look_at_answer(self, data: bytes, start: int, size: int) -> Cut | None:
        cut = super()._look_at_answer(data, start, size)
        answered, self._last_answered = self._last_answered, -1
        if answered in _CHANGES_TOPICS:
            self._host.topics_changed()
        return cut

    def _count_notes(self) -> None:
        notes = self.retry_notes
        if not self._own_due:
            notes.all_answered()
        if notes.count != self._noted:
            self._noted = notes.count
            self._host.noted_failures.keep(self, notes.count)

    # ------------------------------------------------------------------ the end
    def _may_do_without_broker(self) -> bool:
        """The broker has closed the connection over which nothing is out. What the client produces goes over others,
        and a broker closes what is idle for ten minutes."""
        return not self._has_silent

    def abort(self, reason: str) -> None:
        """Close the connection."""
        self._shell.abort(reason)

    def close_soon(self, reason: str) -> None:
        """Close the connection in a later step, when what is ready has been sent."""
        self._host.reactor.later(0, partial(self._close, reason))

    def _close(self, reason: str) -> None:
        if not self.is_closed:
            self._shell.report_refusal(self.name, reason)
            self._shell.close()

    def stop(self) -> None:
        """Nothing more comes: what is complete is still served."""
        self._is_stopping = True
        if not self._has_kept:
            self._stop()

    def _stop(self) -> None:
        self._missing_bytes = 0
        self._splitter = FrameSplitter(self._host.caps.request_bytes_max)
        super().stop()

    def forsake(self) -> None:
        """Take nothing more of it, and answer nothing."""
        super().forsake()
        self._at_work = None

    def _drop_kept(self) -> None:
        self._ready = None
        self._keep(b"")

    # R16: what wants no answer is passed on though its sender has gone.
    def end(self, *, is_lost: bool) -> None:
        """The connection has ended. If the client has gone nothing is begun for it from here on (rule R17), but produce
        requests with acks=0 that it sent before."""
        for one in self._asked:
            if isinstance(one, ProduceCall):
                one.held = None
        self.retry_notes.end()
        self._host.noted_failures.end(self)
        if is_lost and self._has_kept:
            self._pass_silent()
        self._drop_kept()
        self._at_work = None
        super().end(is_lost=is_lost)

    def _pass_silent(self) -> None:
        ready = () if self._ready is None else (self._ready,)
        try:
            for whole in (*ready, *FrameSplitter(self._host.caps.request_bytes_max).feed(self._kept)):
                header = parse_request_header(whole)
                if header.api_key != _PRODUCE or not self._is_served(_PRODUCE, header.api_version):
                    continue
                if header.api_version < produce_topic_ids.VERSION:
                    request = parse_produce(whole, header)
                else:  # those whose names are not known are not passed
                    request = produce_topic_ids.parse_request(memoryview(whole)[header.body_offset :])
                if request.acks == 0 and self._passes(request, header.api_version):
                    self._pass_whole(whole, header, request.acks)
        except WireError:
            pass  # its broker would have read nothing of what came after this


def serving(
    upstream: Reactor,
    make_stage: Callable[[NativeSession, NativeHost, ConnectionShell, bytes], Stage],
    host: NativeHost,
    shell: ConnectionShell,
) -> Handler:
    """Return the handler of a client where the proxy gives idempotence, by how the broker of its listener stores
    batches. Hidden ranges are left out of answers that are read."""
    if host.stores_batches(shell.broker_id) and not host.hidden_ranges.is_any:
        return EngineSession(upstream, make_stage, host, shell)
    return Session(host, shell)
