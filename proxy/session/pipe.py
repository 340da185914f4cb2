"""The upstream connection that belongs to one client connection: requests on in order, answers back in order. Sans-IO.

Used for everything that the proxy does not answer itself. When it breaks, the client's connection is closed: to the
client that looks like the broker closing it, from which every client recovers in its own way. Parses no body."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ...codecs.errors import WireError
from ...codecs.framing import Frame, FrameSplitter
from ...codecs.headers import encode_request_header, parse_response_header
from ...reactor import Buffer, Reactor, Wire
from .. import limits
from ..admission.memory_budget import Reservation
from ..bridge.base import Chunks
from ..connection.shell import ConnectionShell

Answered = Callable[[memoryview], None]
_CLIENT_ID = "idemproxy-client"
_WHOLE = -1
"""Takes the place of a correlation id: the answer is passed on with its header."""


def _nobody_to_tell(_reason: str) -> None:
    """Nothing to do: the pipe has ended."""


class _Answers(FrameSplitter):
    __slots__ = ()

    @property
    def due_bytes(self) -> int:
        """Size of the answer that has begun to come; 0: none has, or its size is not known yet."""
        return self._need


def _nobody_looks() -> None:
    """Nothing to do."""


class RequestUpstream(Protocol):
    """Where requests of one client are forwarded, in their order."""

    @property
    def is_closed(self) -> bool: ...

    @property
    def backlog_bytes(self) -> int:
        """Bytes that the broker does not take, of requests that get no answer (acks=0), or of a client that has
        gone."""
        ...

    def share(self, client: ConnectionShell) -> None: ...

    def request(self, api_key: int, api_version: int, body: Chunks, answered: Answered | None) -> None: ...

    def hold(self, is_held: bool) -> None: ...

    def close(self) -> None: ...


class Pipe:
    """The endpoint of the connection; its owner opens the connection. ``broken`` is called when it ends; with
    ``may_end`` only if anything depends on it."""

    def __init__(
        self, reactor: Reactor, broken: Callable[[str], None], may_end: bool = False, client_id: str | None = _CLIENT_ID
    ) -> None:
        self.is_closed = False
        self.answers_came: Callable[[], None] = _nobody_looks
        """Called when answers have been passed on."""
        self._may_end = may_end
        self._client_id = client_id
        self._is_held = False
        self._is_paused = False
        self._broken = broken
        self._wire: Wire | None = None
        self._early: list[Buffer] = []
        self._early_bytes = 0
        self._closed_wire: Wire | None = None
        self.backlog_bytes = 0
        self._is_count_planned = False
        self._reactor = reactor
        self._client: ConnectionShell | None = None
        self._reserved: Reservation | None = None
        self._splitter = _Answers(limits.RESPONSE_BYTES_MAX)
        self._expected: deque[tuple[int, int, int, Answered]] = deque()
        self._correlation_id = 0
        self._waiting_bytes = 0

    def share(self, client: ConnectionShell) -> None:
        """From now on reserve memory before a large answer is read, and count the bytes of requests that get no
        answer, for this client."""
        self._client = client

    def request(self, api_key: int, api_version: int, body: Chunks, answered: Answered | None) -> None:
        """Send a request on; ``answered`` None: it has no answer (acks=0)."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(api_key, api_version, self._correlation_id, self._client_id)
        if answered is not None:
            self._expected.append((self._correlation_id, api_key, api_version, answered))
        else:
            self._may_end = False  # otherwise the outcome of this request would remain unknown
            self._plan_count()
        size = len(header) + sum(map(len, body))
        chunks = (size.to_bytes(4, "big"), header, *body)
        if self._wire is None:
            self._early.extend(chunks)
            self._early_bytes += size
        else:
            self._wire.send(*chunks)

    @property
    def is_quiet(self) -> bool:
        """Is the broker connected, and has it nothing to answer?"""
        return self._wire is not None and not self._expected

    def send_whole(self, chunks: Sequence[Buffer], answered: Answered) -> None:
        """Send a request with its header; its answer is handed on with its own. To be called when all is quiet."""
        assert self.is_quiet
        assert self._wire is not None
        self._expected.append((_WHOLE, 0, 0, answered))
        self._wire.send(*chunks)

    def fence(self, may_send: Callable[[], bool]) -> None:
        """From now on ask before and after every write (rule R4)."""
        if self._wire is not None:
            self._wire.fence(may_send)

    def count_waiting(self, more_bytes: int) -> None:
        """So many more bytes that have no answer wait elsewhere, to be sent here: they are counted with those that the
        broker does not take."""
        self._waiting_bytes += more_bytes
        if more_bytes > 0:
            self._plan_count()

    def hold(self, is_held: bool) -> None:
        """Leave the broker's answers unread, because the client does not read them; or resume."""
        self._is_held = is_held
        self._look_for_memory()
        self._read_or_not()

    def _look_for_memory(self) -> None:
        """Reserve memory before each read, but not while the client does not read what it has already: others need the
        memory more."""
        due_bytes = self._splitter.due_bytes
        if due_bytes <= limits.BACKLOG_BYTES or self._is_held or self._reserved is not None or self.is_closed:
            return
        if (client := self._client) is not None:
            self._reserved = client.memory.reserve(due_bytes, self._read_or_not, client.looks_new())

    @property
    def _unsent_bytes(self) -> int:
        wire = self._wire or self._closed_wire
        return self._waiting_bytes + (self._early_bytes if wire is None else wire.unsent)

    def _plan_count(self) -> None:
        if not self._is_count_planned:
            self._is_count_planned = True
            self._reactor.later(0, self._count_backlog)

    def _count_backlog(self) -> None:
        """Count unsent bytes in the memory of the process: those of requests that get no answer until the broker takes
        them, and once the client has gone, all of them."""
        unsent, client = self._unsent_bytes, self._client
        if client is None:
            return
        if unsent <= limits.BACKLOG_BYTES:
            unsent = 0
        client.memory.hold_bytes(unsent - self.backlog_bytes)
        self.backlog_bytes = unsent
        self._is_count_planned = unsent > 0
        if unsent:
            self._reactor.later(limits.PAUSED_LOOK_SECONDS, self._count_backlog)
        client.control()

    def _read_or_not(self) -> None:
        is_paused = self._is_held or (self._reserved is not None and not self._reserved.is_there)
        if self._wire is not None and is_paused != self._is_paused:
            self._is_paused = is_paused
            if is_paused:
                self._wire.pause()
            else:
                self._wire.resume()

    def close(self) -> None:
        """The client has gone. What was sent on arrives; its answers do not matter any more."""
        self._end()
        if self._wire is not None:
            self._wire.close()
            self._wire, self._closed_wire = None, self._wire
        if self._unsent_bytes > limits.BACKLOG_BYTES:
            self._plan_count()

    def reset(self, reason: str) -> None:
        """Drop the connection."""
        if self._wire is not None:
            self._wire.reset()
        self.lost(reason)

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """The broker's connection is open."""
        if self._early:
            wire.send(*self._early)
            self._early = []
            self._early_bytes = 0
        if self.is_closed:
            self._closed_wire = wire
            wire.close()
        else:
            self._wire = wire
            self._read_or_not()

    def received(self, data: bytes) -> None:
        """Bytes of answers."""
        try:
            for frame in self._splitter.feed(data):
                reserved, self._reserved = self._reserved, None
                try:
                    self._answer(frame)
                finally:
                    if reserved is not None and self._client is not None:
                        self._is_held = True  # until it was checked whether the client reads it
                        self._client.large_answer(reserved)
                if self.is_closed:
                    return
            self.answers_came()
            if self._splitter.missing_bytes > limits.RECEIVE_BYTES and self._wire is not None:
                self._wire.expect(self._splitter.missing_bytes)
            if self._is_held or self._splitter.due_bytes > limits.BACKLOG_BYTES:
                self._look_for_memory()
                self._read_or_not()
        except WireError as error:
            self.reset(f"the broker's answer cannot be read: {error}")

    def lost(self, reason: str) -> None:
        """The broker's connection has ended."""
        self._wire = None
        self._early_bytes = self._waiting_bytes = 0
        if not self.is_closed:
            broken, matters = self._broken, bool(self._expected) or not self._may_end
            self._end()
            if matters:
                broken(reason)

    def _end(self) -> None:
        self.is_closed = True
        self.answers_came = _nobody_looks
        self._broken = _nobody_to_tell  # otherwise it, its callbacks and waiting requests would refer to each other
        self._expected.clear()
        if self._reserved is not None:
            self._reserved.release()
            self._reserved = None

    def _answer(self, frame: Frame) -> None:
        if not self._expected:
            raise WireError("an answer that nobody asked for")
        expected, api_key, api_version, answered = self._expected.popleft()
        if expected == _WHOLE:
            answered(memoryview(frame))
            return
        correlation_id, body_offset = parse_response_header(frame, api_key, api_version)
        if correlation_id != expected:
            raise WireError(f"correlation id {correlation_id} where {expected} is due")
        answered(memoryview(frame)[body_offset:])
