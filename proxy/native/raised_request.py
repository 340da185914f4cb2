"""One request of a version that the broker lacks: raised, asked for, and its answer lowered. Sans-IO; how versions
differ is known to ``bridge/upward``, whose turn it is to ``raising.py``.

It speaks over the client's own connection to its broker, so the broker judges by the client's rights. Only what a
group's coordinator has to be asked for and clients ask any broker for goes over a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import LimitExceeded, Malformed, WireError
from ...codecs.framing import SIZE_BYTES, frame
from ...codecs.headers import RequestHeader, encode_request_header, encode_response_header, parse_response_header
from ...codecs.steps import Steps
from ...reactor import Buffer, Reactor
from .. import limits
from ..admission.long_work import Done
from ..bridge.fields import Reader, string
from ..bridge.upward.table import Raised, group_of_any_broker
from ..versions import ApiKey, api_title
from .host import NativeHost
from .upstream import NativeUpstream

_FIND_COORDINATOR_VERSION: Final = 0

Failed = Callable[[str], None]
T = TypeVar("T")


class _AnswersOfBroker:
    """Takes the bytes of a broker until so many answers are there. ``done`` gets their bodies, ``failed`` a sentence
    when they cannot be read, ``hold`` how many bytes are there now. ``version``: of the requests."""

    def __init__(
        self,
        header: RequestHeader,
        version: int,
        count: int,
        done: Callable[[Sequence[Buffer]], None],
        failed: Failed,
        hold: Callable[[int], None],
    ) -> None:
        self._header = header
        self._version = version
        self._missing = count
        self._done = done
        self._failed = failed
        self._hold = hold
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._due = SIZE_BYTES
        """Bytes that have to be there before anything can be told."""
        self._bodies: list[Buffer] = []

    def received(self, data: bytes) -> None:
        """Take bytes."""
        self._pieces.append(data)
        self._bytes += len(data)
        self._hold(len(data))
        if self._bytes < self._due:
            return
        try:
            self._read()
        except WireError as error:
            self._failed(f"the broker's answer cannot be read: {error}")
            return
        if not self._missing:
            self._done(self._bodies)

    def _read(self) -> None:
        """Take whole answers off. Raises WireError."""
        view, start = memoryview(b"".join(self._pieces)), 0
        while self._missing and len(view) - start >= SIZE_BYTES:
            size = int.from_bytes(view[start : start + SIZE_BYTES], "big", signed=True)
            if not 0 <= size <= limits.RAISED_ANSWER_BYTES_MAX:
                raise LimitExceeded(f"{size} bytes, the limit is {limits.RAISED_ANSWER_BYTES_MAX} bytes")
            self._due = SIZE_BYTES + size
            if len(view) - start < self._due:
                break
            answer = view[start + SIZE_BYTES : start + self._due]
            correlation_id, offset = parse_response_header(answer, self._header.api_key, self._version)
            if correlation_id != self._header.correlation_id:
                raise Malformed(f"correlation id {correlation_id} where {self._header.correlation_id} is due")
            self._bodies.append(answer[offset:])
            self._missing -= 1
            start += self._due
            self._due = SIZE_BYTES
        if not self._missing and start < len(view):
            raise Malformed("an answer that nobody asked for")
        self._pieces, self._bytes = [bytes(view[start:])], len(view) - start


class RaisedRequest:
    """``request``: without its size. ``upstream``: the client's connection to its broker. ``to_others``: opens one to
    another broker, None where the client has authenticated at its own. ``answered`` gets the frame for the client,
    ``failed`` the sentence why there will be none, and whether it is the client's fault. One of them is called, once,
    unless ``cancel`` was. ``sender``: whose turn it is when its work takes long."""

    def __init__(
        self,
        host: NativeHost,
        header: RequestHeader,
        request: bytes,
        raised: Raised,
        upstream: NativeUpstream,
        to_others: Reactor | None,
        sender: str,
        answered: Callable[[bytes], None],
        failed: Callable[[str, bool], None],
    ) -> None:
        self._host = host
        self._header = header
        self._body = memoryview(request)[header.body_offset :]
        self._raised = raised
        self._upstream = upstream
        self._to_others = to_others
        self._sender = sender
        self._answered = answered
        self._failed = failed
        self._coordinator: NativeUpstream | None = None
        self._tries_left = limits.COORDINATOR_TRIES
        self._held_bytes = 0
        self._is_over = False
        self._hold(len(request))

    def begin(self) -> None:
        """Ask."""
        header = self._header
        try:
            group = group_of_any_broker(header.api_key, header.api_version, self._body)
        except WireError as error:
            self._fail(f"{api_title(header.api_key)}: {error}", is_clients=True)
            return
        if group is None or self._to_others is None:
            self._work(lambda: self._raised.requests(self._body), self._ask, is_clients=True)
        else:
            self._find_coordinator(group)

    def cancel(self) -> None:
        """Neither ``answered`` nor ``failed`` is called any more."""
        self._is_over = True
        self._close_coordinator()
        self._hold(-self._held_bytes)

    def _hold(self, count: int) -> None:
        self._host.memory.hold_bytes(count)
        self._held_bytes += count

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
        broker = self._host.topology.broker(broker_id) if error_code == ErrorCode.NONE else None
        if broker is not None and self._to_others is not None:
            self._coordinator = NativeUpstream(lambda _data: None, self._fail_at_coordinator, lambda: None)
            self._to_others.connect(broker.address, self._coordinator)
        # Without one, the client's own broker says so in the answer.
        self._work(lambda: self._raised.requests(self._body), self._ask, is_clients=True)

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
        answers = _AnswersOfBroker(
            header, version, len(bodies), partial(self._unless_over, done), self._fail, self._hold
        )
        upstream.received = answers.received
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
        self._close_coordinator()
        self._work(lambda: self._raised.response(bodies), self._finish)

    def _finish(self, body: Buffer) -> None:
        header = self._header
        self.cancel()
        self._answered(frame(encode_response_header(header.api_key, header.api_version, header.correlation_id), body))

    def _work(self, start: Callable[[], Steps[T]], done: Callable[[T], None], *, is_clients: bool = False) -> None:
        """Do it in steps; ``done`` gets what it makes. ``is_clients``: what it reads, the client has sent."""

        def ended(result: Done[T]) -> None:
            if self._is_over:
                return
            try:
                made = result.result()
            except WireError as error:
                whose = api_title(self._header.api_key) if is_clients else "the broker's answer cannot be read"
                self._fail(f"{whose}: {error}", is_clients=is_clients)
                return
            done(made)

        self._host.long_work.begin(start, self._sender, ended, is_late=self._host.loop_budget.is_long)

    def _fail(self, reason: str, *, is_clients: bool = False) -> None:
        if not self._is_over:
            self.cancel()
            self._failed(reason, is_clients)
