"""The upstream connection that belongs to one client connection: requests on in order, answers back in order. Sans-IO.

Used for everything that the proxy does not answer itself. When it breaks, the client's connection is closed: to the
client it looks like the broker's own, and it knows what to do then. Parses no body."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..codecs.errors import WireError
from ..codecs.framing import FrameSplitter
from ..codecs.headers import encode_request_header, parse_response_header
from ..reactor import Address, Buffer, Reactor, Wire
from . import limits
from .bridge.base import Chunks

Answered = Callable[[memoryview], None]
_CLIENT_ID = "idemproxy-client"


class Pipe:
    """Opened at the first request."""

    def __init__(self, reactor: Reactor, address: Address, broken: Callable[[str], None]) -> None:
        self.is_closed = False
        self._is_held = False
        self._broken = broken
        self._wire: Wire | None = None
        self._early: list[Buffer] = []
        self._splitter = FrameSplitter(limits.RESPONSE_BYTES_MAX)
        self._expected: deque[tuple[int, int, int, Answered]] = deque()
        self._correlation_id = 0
        reactor.connect(address, self)

    def request(self, api_key: int, api_version: int, body: Chunks, answered: Answered | None) -> None:
        """Send a request on; ``answered`` None: it has no answer (acks=0)."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(api_key, api_version, self._correlation_id, _CLIENT_ID)
        if answered is not None:
            self._expected.append((self._correlation_id, api_key, api_version, answered))
        size = len(header) + sum(map(len, body))
        chunks = (size.to_bytes(4, "big"), header, *body)
        if self._wire is None:
            self._early.extend(chunks)
        else:
            self._wire.send(*chunks)

    def hold(self, is_held: bool) -> None:
        """Leave what the broker answers with the broker, because the client does not take it; or go on."""
        if self._wire is not None and is_held != self._is_held:
            self._is_held = is_held
            if is_held:
                self._wire.pause()
            else:
                self._wire.resume()

    def close(self) -> None:
        """The client has gone. What was sent on arrives; what it waits for does not matter any more."""
        self.is_closed = True
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """The broker is there."""
        if self._early:
            wire.send(*self._early)
            self._early = []
        if self.is_closed:
            wire.close()
        else:
            self._wire = wire

    def received(self, data: bytes) -> None:
        """Bytes of answers."""
        try:
            for frame in self._splitter.feed(data):
                self._answer(frame)
                if self.is_closed:
                    return
        except WireError as error:
            if self._wire is not None:
                self._wire.reset()
            self.lost(f"the broker's answer cannot be read: {error}")

    def lost(self, reason: str) -> None:
        """The broker's side is gone."""
        self._wire = None
        if not self.is_closed:
            self.is_closed = True
            self._broken(reason)

    def _answer(self, frame: bytes) -> None:
        if not self._expected:
            raise WireError("an answer that nobody asked for")
        expected, api_key, api_version, answered = self._expected.popleft()
        correlation_id, body_offset = parse_response_header(frame, api_key, api_version)
        if correlation_id != expected:
            raise WireError(f"correlation id {correlation_id} where {expected} is due")
        answered(memoryview(frame)[body_offset:])
