"""The shell of ``bridge/upward/produce.py`` for one client: does what that asks for, over connections to brokers that
belong to this client alone. Sans-IO.

A client that has authenticated at its broker has one connection there, over which its batches go as well: no other one
has its rights. Once that has ended nothing is sent again. Where the client leaves first, the connection is kept until
what is out on it has an outcome.

Where the client wants no answers it may leave right after its last request. What was read of it is still begun, one
request after the other, for some time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, assert_never
from uuid import UUID

from ...codecs import messages
from ...codecs.errors import WireError
from ...codecs.framing import frame
from ...codecs.headers import RequestHeader, encode_response_header
from ...producing.cluster import cluster_of, metadata_fields
from ...reactor import Buffer, Reactor, Timer, Wire
from .. import limits
from ..admission.long_work import Done
from ..bridge.upward.departed_clients import ClientIdentity
from ..bridge.upward.produce import RaisedProduce, RaisedProduceSettings
from ..bridge.upward.produce_effects import (
    AnswerClient,
    AskLeaders,
    AskProducerId,
    CloseClient,
    DisconnectBroker,
    Effect,
    RunSteps,
    SendProduce,
)
from ..broker.broker import Broker
from ..connection.shell import ConnectionShell
from ..producer import answers
from ..session.pipe import Pipe
from ..versions import ApiKey
from .client_work import ClientWork
from .host import NativeHost
from .upstream import NativeUpstream

_METADATA_VERSION: Final = 4
_METADATA_BY_ID_VERSION: Final = 12
"""The first one that asks for topics by their ids. Brokers that take these in a Produce (13) have it."""
_CLIENT_ID_BYTES_MAX: Final = 2**15 - 1
"""Of what is passed to brokers. One that is not UTF-8 was read with replacement characters, of three bytes each."""


class _Connection(Pipe):
    """``was_open``: False if it could not be opened, so that nothing has left."""

    was_open = False

    def connected(self, wire: Wire) -> None:
        """It is open."""
        self.was_open = True
        super().connected(wire)


class ProducingClient:
    """``broker``: the one that the client has connected to. ``to_brokers``: opens connections; None where the client
    has authenticated over ``upstream``, which is None otherwise. ``answered`` gets the frame for the client, None if it
    wants none, and whether its connection ends with it; ``failed`` the sentence why that is to end, and whether it is
    the client's fault; neither after ``cancel``."""

    def __init__(
        self,
        host: NativeHost,
        shell: ConnectionShell,
        broker: Broker,
        upstream: NativeUpstream | None,
        to_brokers: Reactor | None,
        client_id: str | None,
        answered: Callable[[bytes | None, bool], None],
        failed: Callable[[str, bool], None],
    ) -> None:
        self._host = host
        self._reactor = host.reactor
        self._sender = shell.address
        self._broker = broker
        self._upstream = upstream
        self._to_brokers = to_brokers
        has_room = client_id is None or len(client_id.encode()) <= _CLIENT_ID_BYTES_MAX
        self._client_id = client_id if has_room else None
        self._answered = answered
        self._failed = failed
        shared = host.old_producers
        settings = RaisedProduceSettings(
            broker.id,
            broker.ranges[ApiKey.PRODUCE][1],
            limits.DECOMPRESSED_BYTES_MAX,
            host.old_client_settings.timestamps == "missing",
            self._refusal_of,
        )
        client = ClientIdentity(shell.address, client_id, shell.principal_name or None)
        self._machine = RaisedProduce(settings, client, shared.pools, shared.departed, shared.limits, self._wake)
        self._connections: dict[int, _Connection] = {}
        self._asked_for_leaders: set[int] = set()
        """Brokers that have not answered who leads."""
        self._has_left = False
        self._left: deque[tuple[RequestHeader, memoryview]] = deque()
        """Requests that want no answer, of a client that has gone."""
        self._left_until = 0.0
        self._has_rested = False
        """Has the next one of these waited for a later pass?"""
        self._is_cut = False
        """Has the client's own connection to its broker ended, or brought no answer in time? Nothing more is sent."""
        self._due: tuple[bytes | None] | None = None
        """The client's answer, while its broker owes another one on the connection that the client's requests take."""
        self._header: RequestHeader | None = None
        self._work: ClientWork[Any] | None = None
        self._todo: deque[Effect] = deque()
        self._is_doing = False
        self._timer: Timer | None = None
        self._held_bytes = 0
        self._body: Buffer = b""

    def _refusal_of(self, topic: str) -> int:
        is_conditional = self._host.conditional_topics.has(topic)
        return answers.not_conditional(topic).error_code if is_conditional else 0

    @property
    def waits_for_memory(self) -> bool:
        """Its answers are small."""
        return False

    @property
    def uses_clients_own(self) -> bool:
        """Do batches go over the client's own connection to its broker?"""
        return self._to_brokers is None

    def begin(self, header: RequestHeader, request: memoryview) -> None:
        """Serve a request, given without its size."""
        self._header = header
        self._body = request[header.body_offset :]
        if self._upstream is not None and self._broker.id in self._connections:
            self._upstream.received = self._connections[self._broker.id].received
        arrived_ms = self._host.old_producers.wall_clock_ms()
        self._do(self._machine.begin(self._body, header.api_version, self._reactor.now(), arrived_ms))

    def cancel(
        self, left: Sequence[tuple[RequestHeader, memoryview]], give_away: Callable[[], NativeUpstream | None]
    ) -> None:
        """The client has gone. What is out still gets an outcome. ``left``: its requests, without their size, that are
        begun after it; they want no answer. ``give_away``: lets go of the client's own connection to its broker."""
        self._has_left, self._due = True, None
        self._left += left
        self._left_until = self._reactor.now() + limits.LEFT_REQUESTS_SECONDS_MAX
        self._answered, self._failed = _ignore_answer, _ignore_failure
        if self._upstream is not None and not (self._machine.is_idle and not left) and not self._is_cut:
            self._keep(give_away())
        self._do(self._machine.left(self._reactor.now(), leaves_more=bool(left)))

    def _keep(self, upstream: NativeUpstream | None) -> None:
        """Take over the client's own connection."""
        connection = self._connections.get(self._broker.id)
        if upstream is None or upstream.wire is None:
            self._lost(self._broker.id, "it has ended")
        else:
            received = _ignore_bytes if connection is None else connection.received
            upstream.hand_over(received, partial(self._lost, self._broker.id))

    # ------------------------------------------------------------------ effects
    def _do(self, effects: Sequence[Effect]) -> None:
        """Do these, and what follows of them."""
        self._todo += effects
        if self._is_doing:
            return
        self._is_doing = True
        try:
            while self._todo or self._ends_request():
                if self._todo:
                    self._do_one(self._todo.popleft())
        finally:
            self._is_doing = False
        self._settle()

    def _ends_request(self) -> bool:
        """Answer a client whose request has ended, if it was not answered by an effect: it wants no answer, or its
        connection was not quiet. Its next request may begin in here; of one that has gone it begins here."""
        if not self._machine.is_idle:
            return False
        if self._has_left:
            return self._begin_left()
        if self._due is not None:
            self._answer_if_quiet(*self._due)
            return self._due is None
        if self._header is None:
            return False
        self._end_request(None)
        return True

    def _begin_left(self) -> bool:
        now = self._reactor.now()
        if now >= self._left_until or self._is_cut:
            self._left.clear()
        if not self._left:
            self._machine.leaves_no_more()
            return False
        if self._host.loop_budget.is_long and not self._has_rested:
            self._has_rested = True  # thousands may be left that cost a broker nothing
            self._wake()
            return False
        self._has_rested = False
        header, request = self._left.popleft()
        self._body = request[header.body_offset :]
        arrived_ms = self._host.old_producers.wall_clock_ms()
        self._todo += self._machine.begin(self._body, header.api_version, now, arrived_ms)
        return True

    def _do_one(self, effect: Effect) -> None:
        now = self._reactor.now()
        match effect:
            case RunSteps():
                self._drop_work()
                self._work = ClientWork(effect.start, partial(self._worked, effect.number))
                self._work.begin(self._host, self._sender)
            case SendProduce():
                connection = self._connection(effect.broker)
                if connection is None:
                    self._do(self._machine.lost(effect.broker, now, was_sent=False))
                    return
                answered = partial(self._produced, effect.number)
                connection.request(ApiKey.PRODUCE, effect.api_version, effect.body, answered)
            case AskProducerId():
                connection = self._connection(effect.broker)
                if connection is None:
                    self._do(self._machine.lost(effect.broker, now, was_sent=False))
                    return
                connection.request(ApiKey.INIT_PRODUCER_ID, effect.api_version, (effect.body,), self._got_id)
            case AskLeaders():
                self._ask_leaders(effect.topics, effect.are_ids)
            case DisconnectBroker():
                self._disconnect(effect.broker)
            case AnswerClient():
                assert self._header is not None
                header = self._header
                start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
                self._end_request(frame(start, effect.body))
            case CloseClient():
                self._left.clear()  # a broker drops what comes behind it
                self._failed(effect.reason, True)
            case _:
                assert_never(effect)

    def _worked(self, number: int, done: Done[Any]) -> None:
        self._body = b""
        self._do(self._machine.worked(number, done.result(), self._reactor.now()))

    def _drop_work(self) -> None:
        """Nobody waits for what is under way: the request that it belongs to has ended."""
        if self._work is not None:
            self._work.cancel()
            self._work = None

    def _produced(self, number: int, body: memoryview) -> None:
        self._do(self._machine.answered(number, body, self._reactor.now()))

    def _got_id(self, body: memoryview) -> None:
        self._do(self._machine.answered_id(body, self._reactor.now()))

    def _ask_leaders(self, topics: Sequence[str], are_ids: bool) -> None:
        broker = self._broker
        if self._to_brokers is not None and not broker.is_ready:
            broker = next((one for one in self._host.topology.brokers if one.is_ready), broker)
        connection = self._connection(broker.id)
        if connection is None:
            self._do(self._machine.not_learned(self._reactor.now()))
            return
        version = _METADATA_BY_ID_VERSION if are_ids else _METADATA_VERSION
        fields = metadata_fields(topics)
        if are_ids:
            fields["topics"] = [{"topic_id": UUID(topic), "name": None} for topic in topics]
        body = messages.encode_request(ApiKey.METADATA, version, **fields)
        self._asked_for_leaders.add(broker.id)
        connection.request(ApiKey.METADATA, version, (body,), partial(self._learned, topics, version, broker.id))

    def _learned(self, topics: Sequence[str], version: int, broker_id: int, body: memoryview) -> None:
        self._asked_for_leaders.discard(broker_id)
        now = self._reactor.now()
        try:
            answer = messages.decode_response(ApiKey.METADATA, version, body)
        except WireError:
            self._do(self._machine.not_learned(now))
            return
        if version == _METADATA_BY_ID_VERSION:
            for topic in answer.topics:
                topic.name = topic.topic_id.hex
        self._do(self._machine.learned(topics, cluster_of(answer), now))

    # ------------------------------------------------------------------ connections
    def _connection(self, broker_id: int) -> _Connection | None:
        """The connection to a broker, opened if there is none. None: there can be none."""
        if (found := self._connections.get(broker_id)) is not None:
            return found
        made = _Connection(self._reactor, partial(self._lost, broker_id), client_id=self._client_id)
        if self._to_brokers is not None:
            broker = self._host.topology.broker(broker_id)
            if broker is None:
                return None
            self._to_brokers.connect(broker.address, made)
        else:
            assert self._upstream is not None
            wire = self._upstream.wire
            if broker_id != self._broker.id or wire is None or self._is_cut:
                return None
            made.connected(wire)
            self._upstream.received = made.received
        self._connections[broker_id] = made
        return made

    def _lost(self, broker_id: int, _reason: str) -> None:
        self._is_cut = self._upstream is not None
        connection, now = self._connections.pop(broker_id, None), self._reactor.now()
        effects = self._machine.lost(broker_id, now, was_sent=connection is None or connection.was_open)
        self._do([*effects, *self._not_learned(broker_id)])

    def _disconnect(self, broker_id: int) -> None:
        connection = self._connections.pop(broker_id, None)
        if connection is not None and self._upstream is None:
            connection.close()
        elif connection is not None and self._upstream is not None:
            self._is_cut, self._upstream.received = True, _ignore_bytes
        self._do(self._not_learned(broker_id))

    def _not_learned(self, broker_id: int) -> Sequence[Effect]:
        if broker_id not in self._asked_for_leaders:
            return ()
        self._asked_for_leaders.discard(broker_id)
        return self._machine.not_learned(self._reactor.now())

    # ------------------------------------------------------------------ after each event
    def _settle(self) -> None:
        machine, now = self._machine, self._reactor.now()
        if machine.is_idle:
            self._body = b""
            self._drop_work()
            self._leave_others()
        held_bytes = len(self._body) + machine.buffered_bytes + sum(len(request) for _, request in self._left)
        self._host.memory.hold_bytes(held_bytes - self._held_bytes)
        self._held_bytes = held_bytes
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not machine.is_idle:
            if machine.wakes_at is not None:
                self._timer = self._reactor.later(max(0.0, machine.wakes_at - now), self._woken)
        elif self._has_left:
            if not self._left:
                self._close_all()
        elif self._due is not None:
            self._timer = self._reactor.later(limits.ASK_SECONDS_MAX, self._cut_off)

    def _leave_others(self) -> None:
        """Close the connections to other brokers than the client's own: a set has followed its leader there. What the
        client writes next goes to a broker that it chooses, and descriptors are scarce."""
        for broker_id in [one for one in self._connections if one != self._broker.id]:
            self._connections.pop(broker_id).close()
            self._asked_for_leaders.discard(broker_id)

    def _close_all(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _wake(self) -> None:
        self._reactor.later(0, self._woken)

    def _woken(self) -> None:
        self._do(self._machine.woken(self._reactor.now()))

    def _end_request(self, answer: bytes | None) -> None:
        self._header, self._body = None, b""
        self._answer_if_quiet(answer)

    def _answer_if_quiet(self, answer: bytes | None) -> None:
        """Answer the client. Its next requests take the same connection as its batches if it has authenticated there:
        so what the broker owes for these has to have come before."""
        connection = self._connections.get(self._broker.id) if self._upstream is not None else None
        if connection is None or connection.is_quiet:
            self._due = None
            self._answered(answer, self._is_cut)
        else:
            self._due = (answer,)

    def _cut_off(self) -> None:
        """The broker owes an answer for too long."""
        self._timer = None
        if self._due is not None:
            self._disconnect(self._broker.id)


def _ignore_answer(_answer: bytes | None, _is_last: bool) -> None:
    """The client has gone."""


def _ignore_failure(_reason: str, _is_clients_fault: bool) -> None:
    """The client has gone."""


def _ignore_bytes(_data: bytes) -> None:
    """They come too late."""
