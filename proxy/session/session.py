"""The handler of the connection of a client for which the proxy acts, sans-IO: frames in, answers out in the order of
the requests. Knows which request goes where.

Produce, InitProducerId, ApiVersions, Metadata, DescribeCluster, DescribeProducers, and where the brokers have none
DescribeConfigs, are answered by the proxy itself; all other APIs are forwarded, through a bridge, over one upstream
connection that belongs to this client alone (``pipe.py``), so that a broker's one-after-the-other order is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from ...codecs.errors import WireError
from ...codecs.framing import SIZE_BYTES, Frame, FrameSplitter
from ...codecs.headers import RequestHeader, encode_response_header, parse_request_header
from ...codecs.produce import CLIENT_VERSION_MAX
from ...codecs.steps import Steps
from ...reactor import Buffer
from .. import limits
from ..admission.memory_budget import WAITING_COUNTS, Held
from ..admission.turns import in_turns
from ..bridge import api_versions, describe_configs
from ..bridge.base import Addresses, RequestRefused
from ..bridge.describe_cluster import METADATA_VERSION, encode_describe_cluster, refused_describe_cluster
from ..bridge.describe_producers import DescribedPartition, encode_describe_producers, parse_describe_producers
from ..bridge.fetch import small_limit
from ..bridge.init_producer_id import encode_init_producer_id, parse_init_producer_id
from ..bridge.metadata import ClientQuestion, parse_client_request
from ..bridge.refusals import refusal
from ..bridge.table import plan
from ..bridge.topics import created_topics, creates_topics, deleted_topics
from ..broker.broker import Broker
from ..connection.handler import Handler
from ..connection.shell import ConnectionShell
from ..events import ClientRefused, SmallFetch
from ..hidden_ranges.fetch import FetchWithoutHiddenRanges
from ..hidden_ranges.known import Skips
from ..producer.retry_notes import RetryNotes
from ..versions import DROPPED_MAX, OWN_WHERE_MISSING, ApiKey, is_dropped
from .backend import Backend, SharedBackend
from .host import SessionHost
from .non_idempotent import NonIdempotentBatches
from .pipe import RequestUpstream
from .produce import PlainPart, ProduceCall, ProduceRequests

_PRODUCE_KEY = int(ApiKey.PRODUCE)
_CHANGES_TOPICS = (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS)
_IS_OVER = object()
_FINISHED_KEYS = (ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID)


class _Slot:
    """The place of one answer in the order of the requests. ``chunks`` None: not there yet; empty: none is sent.
    ``held``: counts the bytes of the request. ``arrived_at``: reactor seconds, 0 while nobody measures.
    ``is_passed_on``: the answer is one of the broker's, and has come."""

    __slots__ = ("arrived_at", "chunks", "header", "held", "is_passed_on")

    def __init__(self, header: RequestHeader, held: Held, arrived_at: float) -> None:
        self.header = header
        self.arrived_at = arrived_at
        self.held: Held | None = held
        self.chunks: Sequence[Buffer] | None = None
        self.is_passed_on = False


class Session(Handler):
    """The handler of one client connection for which the proxy acts. ``backend``: answers what depends on how the
    client is authenticated; None: the brokers as the proxy itself reaches them."""

    def __init__(self, host: SessionHost, shell: ConnectionShell, backend: Backend | None = None) -> None:
        self._backend = backend or SharedBackend(host)
        self.route = self._backend.route
        """The only way by which its batches reach the broker; None: the produce connections that all clients share."""
        self.retry_notes = RetryNotes()
        self._noted = 0
        """How many notes the host knows of."""
        self.principal = shell.principal
        self.principal_name = shell.principal_name
        self.address = shell.address
        self._has_fetched = False
        self._host = host
        self._shell = shell
        self._request_bytes_max = host.caps.request_bytes_max
        self._splitter = FrameSplitter(self._request_bytes_max)
        self._slots: deque[_Slot | ProduceCall] = deque()
        self._requests = ProduceRequests(host, self._backend.calls, self._backend.begin, self._slots)
        self._waiting: deque[Frame] = deque()  # requests that are not taken yet
        self._flush_planned = False
        self._pipe: RequestUpstream | None = None
        self._broker: Broker | None = None
        """At the other end of the pipe."""
        self._skips: Skips | None = None
        self._at_work: Steps[None] | None = None
        self._converting: NonIdempotentBatches | None = None

    # ------------------------------------------------------------------ asked by the shell
    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._slots) + len(self._waiting)

    @property
    def has_produce_in_flight(self) -> bool:
        """Has a Produce or InitProducerId been read that is not answered yet? A drain waits for these, and not for a
        fetch that waits for records itself."""
        return any(type(slot) is not _Slot or slot.header.api_key in _FINISHED_KEYS for slot in self._slots) or any(
            int.from_bytes(frame[:2], "big") in _FINISHED_KEYS for frame in self._waiting
        )

    @property
    def has_ready_answers(self) -> bool:
        """Are there answers of the broker that wait for an earlier one? That one is the proxy's: the broker answers in
        order. What waits for one of the broker's must not keep that one unread."""
        return any(isinstance(slot, _Slot) and slot.is_passed_on for slot in self._slots)

    @property
    def has_enough(self) -> bool:
        """Does it belong to a producer while the proxy is ending (rule R15), so that what it has in flight would have
        no end? Or has it sent much that the broker does not take?"""
        return self._is_leaving or self._has_pipe_backlog

    @property
    def _is_leaving(self) -> bool:
        return self._host.is_draining and (self.has_produced or self.has_produce_in_flight)

    @property
    def _has_pipe_backlog(self) -> bool:
        """Is there much that the broker does not take, of requests that get no answer (acks=0)?"""
        return self._pipe is not None and self._pipe.backlog_bytes > self._host.caps.client_response_bytes_max

    @property
    def is_owed_nothing(self) -> bool:
        """Has every request been answered?"""
        return not (self._slots or self._waiting or self.is_at_work)

    @property
    def answers_after_fin(self) -> bool:
        """Nothing is served for a producer with an id, which may have sent its records elsewhere under a new epoch
        (rule R17)."""
        return not self.is_idempotent

    # ------------------------------------------------------------------ bytes, and turns
    def received(self, data: bytes) -> bool:
        """Take bytes of requests."""
        host, slots, shell = self._host, self._slots, self._shell
        budget, size = host.loop_budget, len(data) - SIZE_BYTES
        if (
            self._requests.prefixes
            and self.route is None
            and int.from_bytes(data[:SIZE_BYTES], "big") == size  # one request has come alone, and it is its turn
            and size <= self._request_bytes_max
            and not (
                shell.unfinished_bytes
                or self._waiting
                or self._at_work is not None
                or self._converting is not None
                or shell.fair_share.is_counted
                or shell.is_watched
                or shell.rests_until
                or host.memory.bytes_held > host.caps.request_bytes_total_max
                or (len(slots) + 1 if slots else 1) >= host.caps.requests_in_flight_max
                or (budget.seconds() if budget.began_at is None else host.now() - budget.began_at) > limits.PASS_SECONDS
            )
            and self._requests.take_known(self, data, SIZE_BYTES, size + SIZE_BYTES)
        ):
            return False
        frames = self._splitter.feed(data)
        has_many, fair_share = len(frames) > limits.REQUESTS_PER_TURN_MAX or self._waiting, shell.fair_share
        is_held = has_many or host.loop_budget.is_long or host.is_draining or shell.rests_until
        if is_held or (fair_share.is_counted and fair_share.stops(frames)):
            frames = self._first_of(frames)
        for index, frame in enumerate(frames):
            if self.is_at_work:  # the frames after it wait, in front of those that wait already
                self._waiting.extendleft(reversed(frames[index:]))
                host.memory.hold_bytes(WAITING_COUNTS * sum(map(len, frames[index:])))
                break
            self._take(frame)
            if shell.takes_no_more:
                return False
        if self._splitter.error is not None:
            shell.refuse(str(self._splitter.error))
            return False
        unfinished_bytes = self._splitter.buffered_bytes
        if unfinished_bytes != shell.unfinished_bytes or (unfinished_bytes and frames):
            shell.request_has(unfinished_bytes, self._splitter.missing_bytes, begins=bool(frames))
        return bool(self._waiting) or len(slots) >= host.caps.requests_in_flight_max or shell.is_pressed

    def _first_of(self, frames: list[Frame]) -> list[Frame]:
        """Return the frames that are taken now; the others wait for their turn, with turns for all other clients in
        between."""
        shell = self._shell
        is_held = (
            self._waiting or self._host.loop_budget.is_long or self._is_leaving or (shell.rests_until and shell.rests)
        )
        free = 0 if is_held else min(self._free, len(frames))
        if shell.fair_share.is_counted:
            free = sum(1 for frame in frames[:free] if shell.fair_share.takes(len(frame)))
        if free < len(frames):
            self._waiting.extend(frames[free:])
            shell.plan_turn()
            self._host.memory.hold_bytes(WAITING_COUNTS * sum(map(len, frames[free:])))
        return frames[:free]

    @property
    def _free(self) -> int:
        if self._shell.rests_until and self._shell.has_rested:
            return 0 if self._slots else 1
        if self._host.memory.is_full:  # each takes more at work than while it waits; one ends, and the next may begin
            return 0 if self._slots else 1
        return min(max(self._host.caps.requests_in_flight_max - len(self._slots), 0), limits.REQUESTS_PER_TURN_MAX)

    def go_on(self) -> None:
        """Take requests that wait, some now and the others in later passes: clients that sent less have their turn in
        between."""
        shell = self._shell
        if not self._waiting or self.is_closed or shell.has_backlog or self._has_pipe_backlog:
            return  # until it has been taken
        if shell.rests_until and shell.rests:
            return  # until the back-pressure looks again
        if not self._free or self.is_at_work:
            return  # until an answer leaves, or a request is forwarded
        for _ in range(min(self._free, len(self._waiting))):
            if not self._waiting or self._host.loop_budget.is_long or self.is_at_work:
                break
            if shell.fair_share.is_counted and not shell.fair_share.takes(len(self._waiting[0])):
                break
            frame = self._waiting.popleft()
            self._host.memory.hold_bytes(-WAITING_COUNTS * len(frame))
            self._take(frame)
            if self.is_closed:
                return
        if self._waiting:
            shell.plan_turn()

    def hold_upstream(self, is_held: bool) -> None:
        """Read nothing more of what the broker answers, or resume."""
        if self._pipe is not None:
            self._pipe.hold(is_held)

    def rest(self, seconds: float) -> None:
        """Take nothing more of it for so long (``ConnectionShell.rest``)."""
        self._shell.rest(seconds)

    # ------------------------------------------------------------------ the end
    def stop(self) -> None:
        """Nothing more comes."""
        self._splitter = FrameSplitter(self._request_bytes_max)

    def flush(self) -> None:
        """Hand over to the wire what is ready."""
        self._flush()

    def forsake(self) -> None:
        """Take nothing more of it, and answer nothing."""
        self.is_closed = True
        self._converting = self._at_work = None

    # R16 lives here: what wants no answer is passed on though its sender has gone.
    def end(self, *, is_lost: bool) -> None:
        """The connection has ended. If the client has gone nothing is forwarded for it from here on (rule R17), but
        produce requests with acks=0 that it sent before."""
        self.is_closed = True
        for slot in self._slots:
            slot.held = None
        self._slots.clear()
        self.retry_notes.end()
        self._host.noted_failures.end(self)
        self._backend.end()
        if is_lost and (self._waiting or self.is_at_work):
            self._take_left()
            return
        self._drop_waiting()
        self._converting = self._at_work = None
        self._close_upstream()

    def _drop_waiting(self) -> None:
        self._host.memory.hold_bytes(-WAITING_COUNTS * sum(map(len, self._waiting)))
        self._waiting.clear()

    def _take_left(self) -> None:
        """Take the requests with acks=0 that came before it hung up, some in each pass, as there may be thousands; drop
        the others."""
        for _ in range(limits.REQUESTS_PER_TURN_MAX):
            if not self._waiting or self.is_at_work or self._host.loop_budget.is_long:
                break
            frame = self._waiting.popleft()
            self._host.memory.hold_bytes(-WAITING_COUNTS * len(frame))
            try:
                self._take_if_silent(frame)
            except WireError:
                self._drop_waiting()
        if self.is_at_work:
            return
        if self._waiting:
            self._host.reactor.later(0, self._take_left)
        else:
            self._close_upstream()

    def _take_if_silent(self, frame: Frame) -> None:
        header = parse_request_header(frame)
        if header.api_key == _PRODUCE_KEY:
            backend = SharedBackend(self._host)
            call = ProduceRequests(self._host, backend.calls, backend.begin, deque()).parse(self, frame, header)
            if call.prefix.acks == 0:
                call.begin()

    def _close_upstream(self) -> None:
        if self._pipe is not None:
            self._pipe.close()

    def abort(self, reason: str) -> None:
        """Close the connection."""
        if self.is_closed:
            self._drop_waiting()  # its broker would have read nothing of what came after this
        self._shell.abort(reason)

    def close_soon(self, reason: str) -> None:
        """Close the connection in a later step, when what is ready has been sent."""
        self._host.reactor.later(0, partial(self._close, reason))

    def _close(self, reason: str) -> None:
        if not self.is_closed:
            self._report_refusal(reason)
            self._shell.close()

    # ------------------------------------------------------------------ requests
    def _take(self, frame: Frame) -> None:
        """Take a request. One that cannot be read ends the connection, once those before it are answered."""
        last = self._slots[-1] if self._slots else None
        try:
            self._handle(frame)
        except WireError as error:
            self._leave_out_behind(last)
            self._shell.refuse(str(error))

    def _leave_out_behind(self, last: _Slot | ProduceCall | None) -> None:
        """Answer none of the requests that were taken after this one, and take none that waits."""
        while self._slots and self._slots[-1] is not last:
            self._slots.pop().held = None
        self._drop_waiting()

    def _handle(self, frame: Frame) -> None:
        if self._requests.prefixes and self._requests.take_known(self, frame, 0, len(frame)):
            self.part_if_gone()
            return
        header = parse_request_header(frame)
        if header.client_id:
            self.name = header.client_id[:64]
        key, version = header.api_key, header.api_version
        if version <= DROPPED_MAX and is_dropped(key, version):
            self._host.old_clients.note_request(self, self._shell, key, version)
        if key == _PRODUCE_KEY and 0 <= version <= CLIENT_VERSION_MAX:
            self._host.count_request(key)
            self._requests.take(self, frame, header)
            self.part_if_gone()
            return
        arrived_at = 0.0 if self._host.measure_request is None else self._host.reactor.now()
        slot = _Slot(header, Held(self._host.memory.hold_bytes, len(frame) + limits.REQUEST_OBJECTS_BYTES), arrived_at)
        self._slots.append(slot)
        self._host.count_request(key)
        if (body := self._backend.answer(key, version)) is not None:
            if key == ApiKey.API_VERSIONS:
                self.software = api_versions.software(version, memoryview(frame)[header.body_offset :])
            self._answer(slot, body)
            return
        first, last = self._host.advertised().get(key, (0, -1))
        if not first <= version <= last:
            self._refuse(slot, frame, f"API {key} is not served in version {version}")
        elif key == ApiKey.INIT_PRODUCER_ID:
            self._init_producer_id(slot, memoryview(frame)[header.body_offset :])
        elif key == ApiKey.METADATA:
            question = parse_client_request(version, memoryview(frame)[header.body_offset :])
            self._backend.metadata(version, question, self._addresses, partial(self._answer, slot))
        elif key == ApiKey.DESCRIBE_PRODUCERS:
            self._describe_producers(slot, memoryview(frame)[header.body_offset :])
        elif key == ApiKey.DESCRIBE_CLUSTER:
            self._describe_cluster(slot, memoryview(frame)[header.body_offset :])
        else:
            self._pass_on(slot, frame)

    def _init_producer_id(self, slot: _Slot, body: memoryview) -> None:
        request = parse_init_producer_id(body, slot.header.api_version)
        self.is_idempotent = True

        version = slot.header.api_version

        def issued(error_code: int, producer_id: int, producer_epoch: int) -> None:
            self._answer(slot, encode_init_producer_id(version, error_code, producer_id, producer_epoch))

        self._host.init_producer_id(request, version, slot.header.client_id, self, issued)
        self.part_if_gone()

    def _describe_producers(self, slot: _Slot, body: memoryview) -> None:
        def reported(partitions: Sequence[DescribedPartition]) -> None:
            self._answer(slot, encode_describe_producers(partitions))

        self._host.describe_producers(parse_describe_producers(body), self.principal, reported)

    def _describe_cluster(self, slot: _Slot, body: memoryview) -> None:
        version = slot.header.api_version
        if (refused := refused_describe_cluster(version, body)) is not None:
            self._answer(slot, refused)
            return
        only_brokers = ClientQuestion((), allow_auto_topic_creation=False)

        def reported(metadata: bytes) -> None:
            self._answer(slot, encode_describe_cluster(version, metadata))

        self._backend.metadata(METADATA_VERSION, only_brokers, self._addresses, reported)

    def _describe_configs(self, slot: _Slot, body: memoryview, release: str) -> None:
        request = describe_configs.parse_describe_configs(slot.header.api_version, body)
        topics = ClientQuestion(request.topics, allow_auto_topic_creation=False)

        def reported(metadata: bytes) -> None:
            steps = describe_configs.answer_describe_configs(request, metadata, release)
            in_turns(self._host.reactor, steps, partial(self._answer, slot))

        self._backend.metadata(describe_configs.METADATA_VERSION, topics, self._addresses, reported)

    def _pass_on(self, slot: _Slot, frame: Frame) -> None:
        broker = self._target()
        if broker is None:
            self.abort("the broker is away")
            return
        key, version = slot.header.api_key, slot.header.api_version
        if key in OWN_WHERE_MISSING and key not in broker.ranges:
            self._describe_configs(slot, memoryview(frame)[slot.header.body_offset :], broker.version)
            return
        bridge = plan(key, version, broker.ranges, self._addresses(), self._host.topic_defaults)
        if isinstance(bridge, RequestRefused):
            self._refuse(slot, frame, bridge.reason)
            return
        if key == ApiKey.FETCH and not self._has_fetched:
            self._look_at_fetch(version, memoryview(frame)[slot.header.body_offset :])
        if key == ApiKey.FETCH and self._host.hidden_ranges.is_any:
            if self._skips is None:
                self._skips = Skips(self._host.hidden_ranges.now)
            bridge = FetchWithoutHiddenRanges(bridge, version, self._host.hidden_ranges, self._skips)
        request = bridge.request(memoryview(frame)[slot.header.body_offset :])
        if isinstance(request, RequestRefused):
            self._host.report(ClientRefused(self.name, request.reason))
            self._answer(slot, request.answer)
            return

        asked = memoryview(frame)[slot.header.body_offset :]
        gone = deleted_topics(asked) if key == ApiKey.DELETE_TOPICS else ()
        creates = key == ApiKey.CREATE_TOPICS and creates_topics(version, asked)

        def answered(response: memoryview) -> None:
            if key in _CHANGES_TOPICS:
                self._host.topics_changed(gone, created_topics(bridge.broker_version, response) if creates else ())
            slot.is_passed_on = True
            self._answer(slot, *bridge.response(response))

        self._upstream(broker).request(slot.header.api_key, bridge.broker_version, request, answered)

    def _look_at_fetch(self, version: int, asked: memoryview) -> None:
        """Report a consumer that a large batch would stop for ever, with its first fetch."""
        self._has_fetched = True
        with suppress(WireError):
            if (bytes_max := small_limit(version, asked)) is not None:
                self._host.report(SmallFetch(self.name, version, bytes_max))

    def produce_plainly(self, acks: int, timeout_ms: int, parts: list[PlainPart], held: Held) -> None:
        """Rule R20: forward batches without a producer id."""
        broker = self._target()
        if broker is None:
            self.abort("the broker is away")
            return
        version = broker.pool.batch_version if broker.form.is_v2 else None
        batches = self._converting = NonIdempotentBatches(
            parts, held, self._host, self.address, self._report_refusal, version
        )
        is_at_once = True

        def ready() -> None:
            if self._converting is batches:
                self._converting = None
                self._send_plainly(batches, acks, timeout_ms)
                if not is_at_once:
                    self._look_whether_done()

        batches.convert(ready)
        is_at_once = False

    def _send_plainly(self, batches: NonIdempotentBatches, acks: int, timeout_ms: int) -> None:
        """Send them, now that they are converted. If the client has gone meanwhile, only with acks=0 (rules R16,
        R17)."""
        broker = self._target()
        if broker is None:
            self.abort("the broker is away")
        elif batches.sendable and not (self.is_closed and acks):
            try:
                batches.send(self._upstream(broker), acks, timeout_ms, self.abort)
            except WireError as error:
                self._report_refusal(str(error))
                self.abort(str(error))

    # ------------------------------------------------------------------ requests that take several steps
    @property
    def is_at_work(self) -> bool:
        """Is a request taken in steps? What came after it is not taken before it has gone on (rule R20)."""
        return self._at_work is not None or self._converting is not None

    def take_in_turns(self, steps: Steps[None]) -> None:
        """Take a request: one step now, each other one in a later pass."""
        if next(steps, _IS_OVER) is not _IS_OVER:
            self._at_work = steps
        self._has_made_step()

    def _take_next_step(self) -> None:
        if self._at_work is None:
            return
        is_over = next(self._at_work, _IS_OVER) is _IS_OVER
        if is_over:
            self._at_work = None
        self._has_made_step()
        if is_over:
            self._look_whether_done()

    def _has_made_step(self) -> None:
        if self._at_work is not None:
            self._host.reactor.later(0, self._take_next_step)
        self.part_if_gone()

    def part_if_gone(self) -> None:
        """A request has begun, or gone on: end the connection if its client has left, and is a producer with an id."""
        # After a FIN nothing is begun for a producer with an id (rule R17). Whether a request names one is known once
        # its batches were read, which may take steps.
        if self._shell.has_hung_up and self.is_idempotent and not self.is_closed:
            self._shell.part(is_lost=True)

    def _look_whether_done(self) -> None:
        if self.is_at_work:
            return
        if self.is_closed:
            self._take_left()
            return
        self._shell.end_if_answered()
        if self._waiting:
            self._shell.plan_turn()
        self._backend.go_on()

    def _report_refusal(self, what: str) -> None:
        self._shell.report_refusal(self.name, what)

    def _target(self) -> Broker | None:
        """Return the broker that requests go to. None: it is away. Requests of the bootstrap port go to any broker, and
        all later ones to the same while the connection to it is open: another broker may be of another release."""
        if self._shell.broker_id is None and self._pipe is not None and not self._pipe.is_closed:
            return self._broker
        return self._host.target(self._shell.broker_id)

    def _upstream(self, broker: Broker) -> RequestUpstream:
        if self._pipe is None or self._pipe.is_closed:
            self.use(self._backend.upstream(broker, self.abort), broker)
        assert self._pipe is not None
        return self._pipe

    def use(self, upstream: RequestUpstream, broker: Broker) -> None:
        """Requests are forwarded over this, to this broker, from now on."""
        self._pipe, self._broker = upstream, broker
        upstream.share(self._shell)

    def _addresses(self) -> Addresses:
        return self._host.addresses(self._shell.place_of, self._shell.local_host)

    # ------------------------------------------------------------------ answers
    def _answer(self, slot: _Slot, *chunks: Buffer | None) -> None:
        """Take the body of an answer; one chunk that is None: this request gets none."""
        slot.chunks = [chunk for chunk in chunks if chunk is not None]
        self.answer_is_ready()

    def answer_is_ready(self) -> None:
        """One of the answers may leave, if those before it have left."""
        if not self.is_closed and not self._flush_planned:
            self._flush_planned = True
            self._host.reactor.at_flush(self._flush)

    def _refuse(self, slot: _Slot, frame: Frame, reason: str) -> None:
        header = slot.header
        body = refusal(header.api_key, header.api_version, memoryview(frame)[header.body_offset :])
        if body is None:
            raise WireError(reason)
        self._report_refusal(reason)
        self._answer(slot, body)

    def _flush(self) -> None:
        self._flush_planned = False
        shell = self._shell
        wire = shell.wire
        if self.is_closed or wire is None:
            return
        out: list[Buffer] = []
        while self._slots and self._slots[0].chunks is not None:
            slot = self._slots.popleft()
            chunks, slot.held = slot.chunks or (), None
            if type(slot) is not _Slot:
                self.has_produced = True
                out += chunks
                continue
            if not chunks:
                continue
            header = slot.header
            if slot.arrived_at:
                self._measure(slot)
            start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
            size = len(start) + sum(map(len, chunks))
            out.append(size.to_bytes(4, "big") + start)
            out.extend(chunks)
        if out:
            wire.send(*out)
            if wire.unsent > limits.BACKLOG_BYTES:
                shell.answers_wait()
        if self.retry_notes.count or self._noted:
            self._count_notes()
        if shell.takes_no_more:
            shell.end_if_answered()
        if self._waiting:
            shell.plan_turn()
        if shell.is_watched:
            shell.control()

    def _count_notes(self) -> None:
        notes = self.retry_notes
        if not self._slots:
            notes.all_answered()
        if notes.count != self._noted:
            self._noted = notes.count
            self._host.noted_failures.keep(self, notes.count)

    def _measure(self, slot: _Slot) -> None:
        if (measure := self._host.measure_request) is not None:
            measure(slot.header.api_key, self._host.reactor.now() - slot.arrived_at)
