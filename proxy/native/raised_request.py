"""One request of a version that the broker lacks: raised, asked for, and its answer lowered. Sans-IO; how versions
differ is known to ``bridge/upward``, whose turn it is to ``raising.py``. Produce is not among them
(``raised_produce.py``).

It speaks over the client's own connection to its broker, so the broker judges by the client's rights. Only what a
group's coordinator has to be asked for and clients ask any broker for may go over a connection of its own: if that is
another broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import Malformed, WireError
from ...codecs.framing import SIZE_BYTES, FrameSplitter, frame
from ...codecs.headers import RequestHeader, encode_request_header, encode_response_header, parse_response_header
from ...codecs.steps import Steps
from ...reactor import Buffer, Reactor
from .. import limits
from ..admission.long_work import Done
from ..admission.memory_budget import Reservation
from ..bridge.fields import Reader, string
from ..bridge.upward.fetch import FurtherFetch, RaisedFetch
from ..bridge.upward.table import Raised, group_of_any_broker
from ..connection.shell import ConnectionShell
from ..events import RecordsNotLowered
from ..versions import ApiKey, api_title
from .client_work import ClientWork
from .host import NativeHost
from .upstream import NativeUpstream

_FIND_COORDINATOR_VERSION: Final = 0
_COPIES: Final = 2
"""How often a large answer is in memory: as the broker has sent it, and as the client gets it."""

_BYTES_PER_BYTE: Final[Mapping[int, int]] = {ApiKey.LIST_OFFSETS: 16, ApiKey.FETCH: 12}
"""What a byte of a request takes in memory until it is answered: of these two each partition is noted. Of all others,
that byte and its copy for the broker."""

Failed = Callable[[str], None]
T = TypeVar("T")


def going_on(steps: Steps[T]) -> Callable[[], Steps[T]]:
    """Return what begins these steps; begun once more, it goes on with them. For those that note what they have done,
    as long work may begin twice."""

    def begin() -> Steps[T]:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                made: T = end.value
                return made
            yield

    return begin


class _AnswersOfBroker:
    """Takes the bytes of a broker until so many answers are there. ``done`` gets their bodies, ``failed`` a sentence
    when they cannot be read. ``version``: of the requests. Before a large answer is read, memory for it is reserved;
    ``is_waiting`` as long as there is none, and ``look`` is called when that changes."""

    def __init__(
        self,
        header: RequestHeader,
        version: int,
        count: int,
        shell: ConnectionShell,
        done: Callable[[Sequence[Buffer]], None],
        failed: Failed,
        look: Callable[[], None],
    ) -> None:
        self._header = header
        self._version = version
        self._count = count
        self._shell = shell
        self._done = done
        self._failed = failed
        self._look = look
        self._splitter = FrameSplitter(limits.RAISED_ANSWER_BYTES_MAX)
        self._bodies: list[Buffer] = []
        self._is_done = False
        self._reserved: Reservation | None = None

    @property
    def is_waiting(self) -> bool:
        """Is nothing more to be read until there is memory?"""
        return self._reserved is not None and not self._reserved.is_there

    def received(self, data: bytes) -> None:
        """Take bytes."""
        try:
            for answer in self._splitter.feed(data):
                correlation_id, offset = parse_response_header(answer, self._header.api_key, self._version)
                if correlation_id != self._header.correlation_id or len(self._bodies) == self._count:
                    raise Malformed(f"correlation id {correlation_id}, which nobody waits for")
                self._bodies.append(memoryview(answer)[offset:])
        except WireError as error:
            self._failed(f"the broker's answer cannot be read: {error}")
            return
        if len(self._bodies) == self._count and (self._is_done or self._splitter.buffered_bytes):
            self._failed("the broker's answer cannot be read: bytes that nobody waits for")
            return
        due_bytes = _COPIES * (self._splitter.buffered_bytes + self._splitter.missing_bytes)
        if self._reserved is None and due_bytes > _COPIES * limits.BACKLOG_BYTES:
            self._reserved = self._shell.memory.reserve(due_bytes, self._look, self._shell.looks_new())
            self._look()
        if len(self._bodies) == self._count:
            self._is_done = True
            bodies, self._bodies = self._bodies, []
            self._count = 0
            self._done(bodies)

    def end(self) -> None:
        """The client has been answered, or has gone. The memory is needed until it has taken the answer."""
        reserved, self._reserved = self._reserved, None
        if reserved is not None and reserved.is_there:
            self._shell.large_answer(reserved)
        elif reserved is not None:
            reserved.release()


class RaisedRequest:
    """``request``: without its size. ``upstream``: the client's connection to its broker, ``own_broker``.
    ``to_others``: opens one to another broker, None where the client has authenticated at its own. ``answered`` gets
    the frame for the client, in pieces, as it may have 50 MB; ``failed`` the sentence why there will be none, and
    whether it is the client's fault. One of them is called, once, unless ``cancel`` was. ``look``: called when
    ``waits_for_memory`` changes."""

    def __init__(
        self,
        host: NativeHost,
        shell: ConnectionShell,
        header: RequestHeader,
        request: memoryview,
        raised: Raised | RaisedFetch,
        own_broker: int,
        upstream: NativeUpstream,
        to_others: Reactor | None,
        answered: Callable[[Sequence[Buffer]], None],
        failed: Callable[[str, bool], None],
        look: Callable[[], None],
    ) -> None:
        self._host = host
        self._shell = shell
        self._header = header
        self._body = request[header.body_offset :]
        self._raised = raised
        self._own_broker = own_broker
        self._upstream = upstream
        self._to_others = to_others
        self._answered = answered
        self._failed = failed
        self._look = look
        self._began_at = host.reactor.now()
        self._coordinator: NativeUpstream | None = None
        self._tries_left = limits.COORDINATOR_TRIES
        self._answers: _AnswersOfBroker | None = None
        self._doing: ClientWork[Any] | None = None
        self._held_bytes = len(request) * _BYTES_PER_BYTE.get(header.api_key, 2)
        self._is_over = False
        host.memory.hold_bytes(self._held_bytes)

    @property
    def waits_for_memory(self) -> bool:
        """Is the broker not to be read from, as there is no memory for its answer?"""
        return self._answers is not None and self._answers.is_waiting

    def begin(self) -> None:
        """Ask."""
        header = self._header
        try:
            group = group_of_any_broker(header.api_key, header.api_version, self._body)
        except WireError as error:
            self._fail(f"{api_title(header.api_key)}: {error}", is_clients=True)
            return
        if group is None or self._to_others is None:
            self._work(self._raised.requests(self._body), self._ask, is_clients=True)
        else:
            self._find_coordinator(group)

    def cancel(self) -> None:
        """Neither ``answered`` nor ``failed`` is called any more."""
        self._is_over = True
        self._body = memoryview(b"")
        if self._doing is not None:
            self._doing.cancel()
        self._close_coordinator()
        self._host.memory.hold_bytes(-self._held_bytes)
        self._held_bytes = 0
        if self._answers is not None:
            self._answers.end()
            self._answers = None

    # ------------------------------------------------------------------ the coordinator of a group
    def _find_coordinator(self, group: str) -> None:
        asked = self._header._replace(api_key=int(ApiKey.FIND_COORDINATOR))
        found = partial(self._coordinator_is, group)
        self._send(self._upstream, asked, _FIND_COORDINATOR_VERSION, [string(group)], found)

    def _coordinator_is(self, group: str, bodies: Sequence[Buffer]) -> None:
        """Ask there; where there is none yet, ask again. The first group that a cluster sees makes it create the topic
        of offsets, which takes it a moment."""
        reader = Reader(bodies[0])
        error_code, broker_id = reader.int16("error_code"), reader.int32("node_id")
        self._tries_left -= 1
        if error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE and self._tries_left:
            self._host.reactor.later(limits.COORDINATOR_LOOK_SECONDS, lambda: self._find_again(group))
            return
        is_elsewhere = error_code == ErrorCode.NONE and broker_id != self._own_broker
        broker = self._host.topology.broker(broker_id) if is_elsewhere else None
        if broker is not None and self._to_others is not None:
            self._coordinator = NativeUpstream(lambda _data: None, self._fail_at_coordinator, lambda: None)
            self._to_others.connect(broker.address, self._coordinator)
        # Without a coordinator, the client's own broker says so in the answer.
        self._work(self._raised.requests(self._body), self._ask, is_clients=True)

    def _find_again(self, group: str) -> None:
        if not self._is_over:
            self._find_coordinator(group)

    def _fail_at_coordinator(self, reason: str) -> None:
        self._fail(f"the connection to the group's coordinator has ended: {reason}")

    def _close_coordinator(self) -> None:
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None

    # ------------------------------------------------------------------ request and answer
    def _ask(self, bodies: Sequence[Buffer]) -> None:
        self._body = memoryview(b"")
        self._send(self._coordinator or self._upstream, self._header, self._raised.broker_version, bodies, self._lower)

    def _send(
        self,
        upstream: NativeUpstream,
        header: RequestHeader,
        version: int,
        bodies: Sequence[Buffer],
        done: Callable[[Sequence[Buffer]], None],
    ) -> None:
        if self._answers is not None:
            self._answers.end()
        read = partial(self._unless_over, done)
        self._answers = _AnswersOfBroker(header, version, len(bodies), self._shell, read, self._fail, self._look)
        upstream.received = self._answers.received
        start = encode_request_header(header.api_key, version, header.correlation_id, header.client_id)
        upstream.send(*(frame(start, body) for body in bodies))

    def _unless_over(self, done: Callable[[Sequence[Buffer]], None], bodies: Sequence[Buffer]) -> None:
        if self._is_over:
            return
        try:
            done(bodies)
        except WireError as error:
            self._fail(f"the broker's answer cannot be read: {error}")

    def _lower(self, bodies: Sequence[Buffer]) -> None:
        elapsed_ms = int(1000 * (self._host.reactor.now() - self._began_at))
        steps: Steps[Buffer | FurtherFetch] = self._raised.response(bodies, elapsed_ms)
        self._work(steps, self._finish)

    def _finish(self, made: Buffer | FurtherFetch) -> None:
        if isinstance(made, FurtherFetch):
            self._ask(made.bodies)
            return
        if isinstance(self._raised, RaisedFetch):
            self._note(self._raised)
        header = self._header
        start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
        size_bytes = len(start) + len(made)
        self._answered((size_bytes.to_bytes(SIZE_BYTES, "big") + start, made))

    def _note(self, fetch: RaisedFetch) -> None:
        """Report what the client does not get."""
        self._host.old_clients.inventory.headers_dropped += sum(fetch.messages_without_headers.values())
        for refused in fetch.refused:
            self._host.report(RecordsNotLowered(self._shell.handler.name, *refused))

    def _work(self, steps: Steps[T], done: Callable[[T], None], *, is_clients: bool = False) -> None:
        """Do it; ``done`` gets what it makes. ``is_clients``: what it reads, the client has sent."""

        def ended(result: Done[T]) -> None:
            if self._is_over:
                return
            try:
                made = result.result()
            except WireError as error:
                error.__traceback__ = None  # it would refer to ``result``, and so to itself
                whose = api_title(self._header.api_key) if is_clients else "the broker's answer cannot be read"
                self._fail(f"{whose}: {error}", is_clients=is_clients)
                return
            done(made)

        self._doing = ClientWork(going_on(steps), ended)
        self._doing.begin(self._host, self._shell.address)

    def _fail(self, reason: str, *, is_clients: bool = False) -> None:
        if not self._is_over:
            self.cancel()
            self._failed(reason, is_clients)
