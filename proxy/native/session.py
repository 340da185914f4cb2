"""One client of brokers that give idempotence themselves (mode native), sans-IO: its requests are forwarded as bytes
over a connection to one broker that belongs to this client alone, and the answers come back as bytes. Owns both sides
of that pair.

Only headers are read, the acks of Produce, what shows that a batch is published conditionally (``conditional.py``),
what a login needs (``login.py``), and the few answers in which addresses or API versions stand (``rewrites.py``). The
broker gives the client its guarantees: nothing is sent twice, held back or answered here, but a request for an API that
is not passed on, a version that Kafka 4 has dropped, and a conditional publish, which no broker has. What a client
without idempotence produces goes to a stage in front, where that is configured (``raising.py``). When one side ends,
the other one does."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct
from typing import Any, Protocol

from ...codecs.errors import LimitExceeded, Malformed, Truncated, WireError
from ...codecs.frame_stream import PASSES, STOPS, Cut, FrameStream
from ...codecs.framing import SIZE_BYTES, frame
from ...codecs.headers import RequestHeader, encode_response_header, parse_request_header, parse_response_header
from ...codecs.produce_acks import START_BYTES_MAX, acks_of
from ...codecs.produce_walk import ProduceWalk, begins_without_id
from ...reactor import Buffer, Reactor, Wire
from .. import limits
from ..bridge import api_versions as answered_versions
from ..bridge.base import Addresses
from ..bridge.upward.table import announced, is_raised
from ..broker.broker import Broker
from ..connection.handler import Handler
from ..connection.shell import ConnectionShell
from ..events import ClientRefused
from ..versions import DROPPED_MAX, NATIVE_MAX, SASL_KEYS, ApiKey, BrokerRanges, is_dropped, is_unserved
from . import refusing
from .conditional import walk_through
from .host import NativeHost
from .login import Login
from .rewrites import NOTHING, REWRITES, REWRITTEN_FROM, Replaced, api_versions
from .upstream import NativeUpstream

HEAD = Struct(">hhi")
"""API key, version, correlation id: the start of each request."""
_CORRELATION_ID = Struct(">i")
_PRODUCE = int(ApiKey.PRODUCE)
FINISHED = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.OFFSET_COMMIT,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
    }
)
"""A drain waits for answers to these, and not for a fetch that waits for records itself."""
_READ_FROM = {**REWRITTEN_FROM, int(ApiKey.API_VERSIONS): 0}
_NEVER = 1 << 15  # above every version
_Asked = tuple[int, int, int, float]
"""Correlation id, API key, version, reactor seconds (0 while nobody measures)."""
_TOKEN: _Asked = (0, -1, 0, 0.0)
"""A token that came alone, and is answered alone."""


class OwnAnswer(Protocol):
    """The place of an answer of our own among those of the broker. ``chunks``: the answer, with its size; None: it is
    not there yet, and what the broker answers to later requests waits; empty: none is sent."""

    chunks: Sequence[Buffer] | None


class ReadyAnswer:
    """It is there from the beginning."""

    __slots__ = ("chunks",)

    def __init__(self, answer: bytes) -> None:
        self.chunks: Sequence[Buffer] | None = (answer,)


class TakenAnswer:
    """The place of an answer of the broker that the client does not get: ``take`` gets all of it, without its size."""

    __slots__ = ("chunks", "take")

    def __init__(self, take: Callable[[memoryview], None]) -> None:
        self.chunks: Sequence[Buffer] | None = None
        self.take = take


class Stage(Handler):
    """A handler that stands in front of a session, from the first request on that is for it."""

    @abstractmethod
    def resume_at(self, rest: bytes) -> None:
        """The session has kept these bytes back, and now stops at them: they begin with a request for the stage."""


def _nothing() -> None:
    """Metadata is asked for; nobody waits for the answer."""


def _keeps_no_client() -> bool:
    """Without a stage nothing is left that a client whose broker has gone could wait for."""
    return False


class NativeSession(Handler):
    """The handler of the client's connection. ``upstream``: opens the connection to the broker. ``requires_login``: the
    client has to authenticate at the broker before anything else. ``make_stage``: makes the handler that serves the
    connection from the first request on that is to be raised, and begins with these bytes."""

    def __init__(
        self,
        upstream: Reactor,
        requires_login: bool,
        make_stage: Callable[[NativeSession, NativeHost, ConnectionShell, bytes], Stage],
        host: NativeHost,
        shell: ConnectionShell,
    ) -> None:
        self._host = host
        self._shell = shell
        self._reactor = upstream
        self._unpaid_bytes = 0
        """Read of the client though the turn of its address was over: it has to wait for the next one."""
        self._login = Login() if requires_login else None
        self._make_stage = make_stage
        self._stage: Stage | None = None
        self._keeps_client = _keeps_no_client
        self._is_produce_for_stage: bool | None = None
        """Is Produce 3 and above served by the stage? None: no such request has come yet."""
        self.passes_produce = False
        """Is the next one no matter for the stage?"""
        self.is_read_by_stage = False
        """Does the stage need the broker's answers, whatever the client takes of its own?"""
        self._broker: Broker | None = None
        self._chosen: Broker | None = None
        """The one that it will connect to: brokers may serve different versions."""
        self._upstream: NativeUpstream | None = None
        self._is_held = False
        self._held_bytes = 0
        """Counted in the memory of all clients: what the broker does not take."""
        self._requests = FrameStream(
            self._look_at_request, host.caps.request_bytes_max, limits.CONDITIONAL_REFUSED_BYTES_MAX
        )
        self._walk: ProduceWalk | None = None
        """Through a produce request of which a part has gone on already."""
        self._answers = FrameStream(self._look_at_answer, limits.RESPONSE_BYTES_MAX, limits.REWRITTEN_BYTES_MAX)
        self._asked: deque[Any] = deque()
        """``_Asked``, ``OwnAnswer`` or ``TakenAnswer``, in the order of the requests."""
        self._own_due = 0
        """Answers of our own that are among these."""
        self._own: list[Buffer] = []
        """Those of our own answers that are due before the next answer of the broker."""
        self._each_answer: Callable[[], None] | None = None
        self._last_answered = -1
        """The API of the answer that was looked at last."""
        self._unfinished = 0
        self._has_last_answer = False
        """Is there an answer to the request that was looked at last?"""

    # ------------------------------------------------------------------ asked by the shell
    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._asked)

    @property
    def has_produce_in_flight(self) -> bool:
        """Is something under way that a drain waits for?"""
        return self._unfinished > 0

    @property
    def has_enough(self) -> bool:
        """Has its address had its turn, does the broker not take what it sends, or is the proxy ending?"""
        if self._unpaid_bytes or (self._host.is_draining and self._requests.is_between):
            return True
        return self._upstream is not None and self._upstream.unsent > limits.STREAM_BYTES_MAX

    @property
    def is_owed_nothing(self) -> bool:
        """Has every request been answered?"""
        return not (self._asked or self._own) and self._answers.is_between

    @property
    def answers_after_fin(self) -> bool:
        """What it sent has gone on, and is answered, unless its broker has not accepted it."""
        return self._login is None or self._login.is_done

    # ------------------------------------------------------------------ bytes of the client
    def begin(self) -> None:
        """The client is there."""
        if (wire := self._shell.wire) is not None:
            wire.after_writing(self._client_took_all)
        if self._login is not None:
            self._shell.wait_for_login()

    def received(self, data: bytes, *, is_paid: bool = False) -> bool:
        """Bytes of requests. ``is_paid``: the turn of their address has been charged for them."""
        if not self._pass(data):
            return False
        self._count_unfinished()
        if self._shell.fair_share.is_counted and not is_paid:
            self.pay(len(data))
        return self._hand_to_stage() or self._is_to_be_controlled()

    def _pass(self, data: bytes) -> bool:
        """Send bytes on, up to the next request that does not pass. False: nothing that comes after them is taken."""
        shell = self._shell
        if self._walk is not None:
            self._walk_on(self._walk, data)
        passed = self._requests.feed(data)
        if self.is_closed:
            return False
        if passed and self._upstream is not None:
            self._upstream.send(*passed)
        if self._requests.error is not None:
            shell.refuse(str(self._requests.error))
            return False
        if self._login is not None and not self._login.is_done and self._login.has_asked and self._requests.is_between:
            # The whole request is on its way, and a broker that has not accepted the client disconnects it; so the time
            # limit for the login ends here, as the answer may take long. A request that has only begun does not end it:
            # a broker does not react to that, and an unauthenticated client could stay with it for ever.
            shell.is_known()
        if self._own_due:
            self._answer_itself()
        return True

    def _count_unfinished(self) -> None:
        if self._requests.start_bytes != self._shell.unfinished_bytes:
            self._shell.request_has(self._requests.start_bytes, 0, begins=True)

    def _hand_to_stage(self) -> bool:
        """Make the stage in front, if it has stopped at the first request for it."""
        if not self._requests.rest or self._stage is not None:
            return False
        shell = self._shell
        self._stage = stage = self._make_stage(self, self._host, shell, self.take_rest())
        shell.become(stage)
        stage.begin()
        return True

    def _is_to_be_controlled(self) -> bool:
        upstream = self._upstream
        is_busy = len(self._asked) >= self._host.caps.requests_in_flight_max or self._unpaid_bytes
        has_backlog = upstream is not None and upstream.unsent > limits.STREAM_BYTES_MAX
        if is_busy or has_backlog or self._shell.is_pressed:
            self._count_unsent()
            return True
        return False

    def pay(self, count: int) -> None:
        """Charge so many bytes to the turn of its address."""
        shell = self._shell
        if shell.fair_share.is_counted and not shell.fair_share.takes(count):
            self._unpaid_bytes += count
            shell.plan_turn()

    def go_on(self) -> None:
        """Its address has its next turn, or it is looked whether the client may be read from again."""
        if self._unpaid_bytes and not self._shell.waits_for_turn:
            self._shell.fair_share.takes(self._unpaid_bytes)
            self._unpaid_bytes = 0
            self._shell.control()

    def hold_upstream(self, is_held: bool) -> None:
        """Read nothing more of what the broker answers, or resume."""
        self._is_held = is_held
        self._read_answers_or_not()

    def _client_took_all(self) -> None:
        if self._upstream is not None and self._upstream.is_paused:
            self._read_answers_or_not()

    def _read_answers_or_not(self) -> None:
        wire = self._shell.wire
        if self._upstream is not None and wire is not None:
            is_behind = self._is_held or wire.unsent > limits.STREAM_BYTES_MAX
            has_kept = bool(self._answers.rest)
            self._upstream.read_or_not(has_kept or (is_behind and not self.is_read_by_stage))

    def _count_unsent(self) -> None:
        unsent = 0 if self._upstream is None else self._upstream.unsent
        unsent = unsent if unsent > limits.BACKLOG_BYTES else 0
        if unsent != self._held_bytes:
            self._host.memory.hold_bytes(unsent - self._held_bytes)
            self._held_bytes = unsent

    # ------------------------------------------------------------------ requests
    def _look_at_request(self, data: bytes, start: int, size: int) -> Cut | None:
        """Say what becomes of the request that begins here; None: more of it is needed to tell."""
        position, login = start + SIZE_BYTES, self._login
        if login is not None and login.takes_tokens:
            login.admit_token(bool(self._asked), size)
            self._asked.append(_TOKEN)
            self._has_last_answer = True
            return PASSES
        if len(data) - position < HEAD.size:
            if size < HEAD.size:
                raise Malformed(f"request header: {size} bytes")
            return None
        key, version, correlation_id = HEAD.unpack_from(data, position)
        if not 0 <= version <= NATIVE_MAX.get(key, -1) or (login is None and key in SASL_KEYS):
            return self._refuse(key, version, correlation_id)
        if login is not None and not login.admit(key, version, data, position, size):
            return None
        is_old = version <= DROPPED_MAX and is_dropped(key, version) and (login is None or login.is_done)
        if is_old and self._is_raised(key, version, size):
            return STOPS
        if is_old and self._is_unserved(key, version):
            return self._refuse_unserved(key, version, correlation_id, data, position, size)
        has_answer = True
        if key == _PRODUCE:
            found = acks_of(data, position, size, version)
            if found is None:
                if len(data) - position > START_BYTES_MAX:
                    raise LimitExceeded(f"produce request: its acks are not among its first {START_BYTES_MAX} bytes")
                return None
            if self._is_produce_for_stage is not False and not is_old and (login is None or login.is_done):
                if self._is_produce_for_stage is None and not self._choose(data, position, found[1], size, version):
                    return None
                if self._is_produce_for_stage and not self.passes_produce:
                    return STOPS
                self.passes_produce = False
            has_answer = found[0] != 0
            walk = walk_through(data, found[1], position + size, version)
            if walk is not None and (walk.has_found or not walk.is_over):
                if walk.has_found and walk.left and size <= limits.CONDITIONAL_REFUSED_BYTES_MAX:
                    return None  # its answer names all partitions: let the rest of it come
                if walk.has_found:
                    return self._refuse_conditional(walk, version, correlation_id, has_answer)
                if not walk.parts and len(data) - position < START_BYTES_MAX:
                    return None  # with its first batch nearly always all are known
                self._walk = walk
        if self._broker is None:
            self._begin(data[position : position + size])
        self._host.count_request(key)
        if is_old:
            self._host.old_clients.note_request(self, self._shell, key, version)
        self._has_last_answer = has_answer
        if has_answer:
            arrived_at = 0.0 if self._host.measure_request is None else self._reactor.now()
            self._asked.append((correlation_id, key, version, arrived_at))
            self._unfinished += key in FINISHED
        return PASSES

    def _begin(self, request: bytes) -> None:
        """The first request: learn the client's name, and connect to its broker."""
        with suppress(Truncated):  # it may not have arrived as a whole
            header = parse_request_header(request)
            self._learn_name(header)
            if header.api_key == ApiKey.API_VERSIONS:  # the first request of all clients that state their software
                self.software = answered_versions.software(header.api_version, request[header.body_offset :])
        broker = self.target()
        if broker is None:
            self._shell.abort("the broker is away")
            return
        self._connect(broker)

    def _connect(self, broker: Broker) -> None:
        self._broker = broker
        self._upstream = NativeUpstream(self._answered, self._broker_gone, self._broker_took_all)
        self._reactor.connect(broker.address, self._upstream)

    def _learn_name(self, header: RequestHeader) -> None:
        self.name = (header.client_id or self.name)[:64]

    # ------------------------------------------------------------------ for the stage in front
    def target(self) -> Broker | None:
        """Return the client's broker, at the bootstrap port always the same one. None: it is away."""
        if self._broker is not None:
            return self._broker
        if self._chosen is None:
            self._chosen = self._host.target(self._shell.broker_id)
        return self._chosen

    def take_rest(self) -> bytes:
        """Return the bytes from the request on at which it has stopped; empty if it has not."""
        rest, self._requests.rest = self._requests.rest, b""
        return rest

    def raises(self, start: Buffer) -> bool:
        """Is the request that begins so for the stage? It was when it came."""
        key, version, _ = HEAD.unpack_from(start, SIZE_BYTES)
        if key == _PRODUCE and not is_dropped(key, version):
            return bool(self._is_produce_for_stage)
        return self._is_raised(key, version, int.from_bytes(start[:SIZE_BYTES], "big"))

    def learn_name(self, header: RequestHeader) -> None:
        """The client has sent this request to the stage."""
        self._learn_name(header)

    def connect(self) -> NativeUpstream | None:
        """Return the connection to the broker, which may not be open yet. None: the broker is away."""
        if self._upstream is None and (broker := self.target()) is not None:
            self._connect(broker)
        return self._upstream

    def keep_client(self, keeps: Callable[[], bool]) -> None:
        """Ask this where the broker has ended the connection over which nothing is out. True: the client stays, and the
        next request that needs a connection opens another one. A broker closes what is idle for ten minutes, and what
        its clients write need not go over this connection (``raised_produce.py``)."""
        self._keeps_client = keeps

    def give_away(self) -> NativeUpstream | None:
        """The client has gone, and the stage needs its connection to the broker for a while."""
        upstream, self._upstream = self._upstream, None
        return upstream

    def read_answers_or_not(self) -> None:
        """``is_read_by_stage`` has changed."""
        self._read_answers_or_not()

    @property
    def to_other_brokers(self) -> Reactor | None:
        """Opens connections to other brokers than the client's own. None: it has authenticated at that one alone."""
        return self._reactor if self._login is None else None

    def each_answer(self, then: Callable[[], None]) -> None:
        """Call this whenever answers were passed on, until ``take_answers``."""
        self._each_answer = then

    def take_answers(self) -> None:
        """What the broker sends from now on answers what has passed here."""
        self._each_answer = None
        if self._upstream is not None:
            self._upstream.received = self._answered

    # ------------------------------------------------------------------ requests that are not passed
    def _choose(self, data: bytes, position: int, acks_end: int, size: int, version: int) -> bool:
        """Choose whether the stage serves what the client produces: by the client id and the first batch. False: more
        of the request is needed. A client with idempotence has it in all that it produces."""
        self._is_produce_for_stage = False
        patterns = self._host.upstream_idempotence
        if patterns is None or not patterns.fullmatch(parse_request_header(data[position:acks_end]).client_id or ""):
            return True
        broker = self.target()
        if broker is None or version > broker.ranges.get(_PRODUCE, (0, -1))[1]:
            return True
        has_no_id = begins_without_id(data, acks_end, position + size, version)
        self._is_produce_for_stage = has_no_id
        return has_no_id is not None

    def _is_raised(self, key: int, version: int, size: int) -> bool:
        translate, broker = self._host.old_client_settings.translate, self.target()
        if broker is None or translate == "never" or (size > limits.RAISED_REQUEST_BYTES_MAX and key != _PRODUCE):
            return False
        return is_raised(key, version, broker.ranges, always=translate == "always")

    def _is_unserved(self, key: int, version: int) -> bool:
        broker = self.target()
        return broker is not None and is_unserved(broker.ranges, key, version)

    def _refuse_unserved(
        self, key: int, version: int, correlation_id: int, data: bytes, position: int, size: int
    ) -> Cut | None:
        """None: more of the request is needed, as the response names all that it names."""
        is_kept, header = size <= limits.CONDITIONAL_REFUSED_BYTES_MAX, None
        if is_kept and len(data) - position < size:
            return None
        request = data[position : position + size]
        with suppress(Truncated):
            header = parse_request_header(request)
            self._learn_name(header)
        self._host.count_request(key)
        self._host.old_clients.note_request(self, self._shell, key, version, is_refused=True)
        body = refusing.unserved(header if is_kept else None, key, version, request, size)
        return self._answer_by_itself(key, version, correlation_id, body)

    def _refuse(self, key: int, version: int, correlation_id: int) -> Cut:
        body = refusing.unknown(key, version)
        self._shell.report_refusal(self.name, refusing.unknown_reason(key, version))
        return self._answer_by_itself(key, version, correlation_id, body)

    def _refuse_conditional(self, walk: ProduceWalk, version: int, correlation_id: int, has_answer: bool) -> Cut:
        body = refusing.conditional(walk, version, has_answer)
        self._shell.report_refusal(self.name, refusing.CONDITIONAL)
        return self._answer_by_itself(_PRODUCE, version, correlation_id, body)

    def _answer_by_itself(self, key: int, version: int, correlation_id: int, body: bytes) -> Cut:
        """Answer a request in place of the broker, once those before it are answered."""
        self._own_due += 1
        self._has_last_answer = False
        self._asked.append(ReadyAnswer(frame(encode_response_header(key, version, correlation_id), body)))
        return Cut(0, b"", drops_rest=True)

    def _walk_on(self, walk: ProduceWalk, data: bytes) -> None:
        """More of a request of which a part has been forwarded. Raises WireError for a conditional batch in it: the
        broker drops a request that ends too early."""
        walk.feed(data)
        if walk.has_found:
            raise WireError(refusing.CONDITIONAL)
        if walk.is_over:
            self._walk = None

    def _broker_took_all(self) -> None:
        if self._held_bytes:
            self._count_unsent()
        if self._shell.is_watched:
            self._shell.control()

    # ------------------------------------------------------------------ answers
    def _answered(self, data: bytes) -> None:
        """Bytes of the broker."""
        shell = self._shell
        wire = shell.wire
        if wire is None or self.is_closed:
            return
        if self._answers.rest:  # it waits for an answer of our own, and so does this
            self._answers.rest += data
            return
        try:
            passed = self._answers.feed(data)
        except WireError as error:
            shell.abort(f"the broker's answer cannot be read: {error}")
            return
        wire.send(*passed)
        if self._answers.error is not None:
            self._broker_gone(f"the broker's answer cannot be read: {self._answers.error}")
            return
        if self._own_due or self._own:
            self._answer_itself()
        if self._answers.rest:
            self._read_answers_or_not()
        self._answers_left(wire)

    def _answers_left(self, wire: Wire) -> None:
        """Answers were passed on, or given."""
        shell = self._shell
        if shell.takes_no_more:
            shell.end_if_answered()
        if wire.unsent > limits.BACKLOG_BYTES:
            shell.answers_wait()
            self._read_answers_or_not()
        if shell.is_watched:
            shell.control()
        if self._each_answer is not None and not self.is_closed:
            self._each_answer()

    def _look_at_answer(self, data: bytes, start: int, size: int) -> Cut | None:
        """Say what becomes of the answer that begins here; None: more of it is needed to tell."""
        if self._own_due:
            self._take_own()
        if not self._asked:
            raise WireError("an answer that nobody asked for")
        asked, position = self._asked[0], start + SIZE_BYTES
        if type(asked) is not tuple:
            return self._take_or_stop(asked, data, position, size)
        expected, key, version, arrived_at = asked
        if asked is _TOKEN:
            self._asked.popleft()
            self._token_answered()
            return self._with_own(PASSES)
        if len(data) - position < _CORRELATION_ID.size:
            return None
        (correlation_id,) = _CORRELATION_ID.unpack_from(data, position)
        if correlation_id != expected:
            raise WireError(f"correlation id {correlation_id} where {expected} is due")
        cut = PASSES
        is_read = version >= _READ_FROM.get(key, _NEVER)
        if is_read or self._login is not None:
            read = self._read(data, position, size, key, version, is_read)
            if read is None:
                return None
            cut = read
        self._asked.popleft()
        self._last_answered = key
        if arrived_at and (measure := self._host.measure_request) is not None:
            measure(key, self._reactor.now() - arrived_at)
        if key in FINISHED:
            self._unfinished -= 1
            self.has_produced |= key == _PRODUCE
        return cut if not self._own else self._with_own(cut)

    def _read(self, data: bytes, position: int, size: int, key: int, version: int, has_more: bool) -> Cut | None:
        """Read an answer: what it says of a login and, if ``has_more``, what is replaced in it. None: more of it is
        needed."""
        body = memoryview(data)[position : position + size]
        is_whole = len(body) == size
        if has_more and key != ApiKey.METADATA and not is_whole:
            return None
        if self._login is not None and not self._login.is_done:
            if key in SASL_KEYS and not is_whole:
                return None
            self._look_at_login(self._login, key, version, body)
        if not has_more:
            return PASSES
        try:
            _, offset = parse_response_header(body, key, version)
            replaced = self._replaced(key, version, body[offset:])
        except Truncated:
            if is_whole:
                raise
            return None
        if replaced is NOTHING:
            return PASSES
        if replaced.strangers:
            self._host.topology.refresh(None, _nothing)
        new_size = size - replaced.taken + len(replaced.instead)
        instead = b"".join((new_size.to_bytes(SIZE_BYTES, "big"), body[:offset], replaced.instead))
        return Cut(SIZE_BYTES + offset + replaced.taken, instead)

    def _replaced(self, key: int, version: int, body: memoryview) -> Replaced:
        if key != ApiKey.API_VERSIONS:
            return REWRITES[key](version, body, self._addresses)
        ranges = self._ranges()
        if self._login is None:
            ranges = {one: ranges[one] for one in ranges if one not in SASL_KEYS}
        return api_versions(version, body, ranges, self._announced)

    def _announced(self, listed: BrokerRanges) -> BrokerRanges:
        """Return what the client is told, given what both its broker and the proxy have."""
        return listed if self._host.old_client_settings.translate == "never" else announced(listed)

    def _ranges(self) -> BrokerRanges:
        """API versions as they are reported to the client."""
        return self._host.native_ranges()

    def _addresses(self) -> Addresses:
        return self._host.addresses(self._shell.place_of, self._shell.local_host)

    def _with_own(self, cut: Cut) -> Cut:
        """Put answers of our own in front of one of the broker."""
        own, self._own = b"".join(self._own), []
        return Cut(cut.taken, own + bytes(cut.instead), cut.drops_rest) if own else cut

    def _take_or_stop(self, asked: OwnAnswer | TakenAnswer, data: bytes, position: int, size: int) -> Cut | None:
        """An answer of the broker has come where it is not its turn to pass."""
        if not isinstance(asked, TakenAnswer):
            return STOPS
        if len(data) - position < size:
            return None
        self._asked.popleft()
        asked.take(memoryview(data)[position : position + size])
        return Cut(0, b"", drops_rest=True)

    def _take_own(self) -> None:
        """Find the answers of our own that are due: all before them were answered, and they are there."""
        asked = self._asked
        while asked and type(asked[0]) is not tuple and asked[0].chunks is not None:
            own = asked.popleft()
            self._own += own.chunks
            self._own_due -= 1
            self._leaves(own)

    def _leaves(self, own: OwnAnswer) -> None:
        """An answer of our own is sent."""

    def _answer_itself(self) -> None:
        """Give the answers of our own that are due, unless an answer of the broker is on its way."""
        wire = self._shell.wire
        if self._answers.is_between and wire is not None:
            self._take_own()
            own, self._own = self._own, []
            if own:
                wire.send(*own)

    def _own_is_there(self) -> None:
        """An answer of our own has come: it may be due, and those that wait for it."""
        wire = self._shell.wire
        if wire is None or self.is_closed:
            return
        self._answer_itself()
        rest, self._answers.rest = self._answers.rest, b""
        if rest:
            self._answered(rest)
            if not self._answers.rest:
                self._read_answers_or_not()
        else:
            self._answers_left(wire)

    # ------------------------------------------------------------------ logins
    def _look_at_login(self, login: Login, key: int, version: int, body: memoryview) -> None:
        offset = parse_response_header(body, key, version)[1] if key in SASL_KEYS else 0
        if not login.answered(key, version, body[offset:]):
            self._login_failed()
        self._look_whether_done(login)

    def _token_answered(self) -> None:
        assert self._login is not None
        self._login.token_answered()
        self._look_whether_done(self._login)

    def _look_whether_done(self, login: Login) -> None:
        if login.is_done:
            self._shell.is_known()

    def _login_failed(self) -> None:
        self._host.report(ClientRefused(self.name, f"authentication from {self._shell.address} failed"))

    def _look_whether_refused(self, broker: Broker) -> None:
        """A broker has closed the connection after a bare token: if the broker is still there, it has refused the
        login."""
        if broker.is_ready:
            self._login_failed()

    # ------------------------------------------------------------------ the end
    def _broker_gone(self, reason: str) -> None:
        """The broker's side has ended: the client gets what it has answered."""
        is_owed = any(type(one) is tuple or isinstance(one, TakenAnswer) for one in self._asked)
        is_between = self._answers.is_between and not self._answers.rest and self._requests.is_between
        if not is_owed and is_between and self._keeps_client():
            self._broker = self._upstream = None
            self._count_unsent()
            return
        if self._login is not None and self._login.takes_tokens and self._broker is not None:
            broker = self._broker
            self._host.reactor.later(limits.QUIESCENCE_SECONDS, lambda: self._look_whether_refused(broker))
        self._shell.part()

    def stop(self) -> None:
        """Nothing more comes: a request of which a part has been forwarded stays without its rest, and what was refused
        is answered."""
        if self._requests.is_within and self._has_last_answer:
            _, key, _, _ = self._asked.pop()
            self._unfinished -= key in FINISHED
        self._requests.close()
        if self._own_due:
            self._answer_itself()

    def end(self, *, is_lost: bool) -> None:
        """The connection has ended. What the client sent arrives."""
        self.is_closed = True
        self._keeps_client = _keeps_no_client
        self._host.memory.hold_bytes(-self._held_bytes)
        self._held_bytes = self._unfinished = 0
        self._asked.clear()
        self._own_due, self._each_answer, self._stage = 0, None, None
        self._requests.close()  # or these and the session would refer to each other
        self._answers.close()
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None
