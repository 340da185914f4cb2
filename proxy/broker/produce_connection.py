"""A produce connection: an upstream connection with at most one unanswered produce request (rule R3). Sans-IO.

Owns the request and the way back of its answer, the check of the lease around every write (rule R4), and what a lost
connection means: unknown outcome. What goes into a request is chosen by ``produce_connection_pool.py``. Never looks
into records and never sends anything twice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from struct import Struct
from typing import Protocol

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...codecs.framing import FrameSplitter
from ...codecs.headers import encode_request_header, parse_response_header
from ...codecs.produce import (
    API_KEY,
    BATCH_VERSIONS,
    BROKER_VERSION_MAX,
    PartitionAnswer,
    encode_request,
    parse_response,
)
from ...reactor import Buffer
from .. import limits
from ..flow.outcome import InDoubt, Outcome
from .queued_append import QueuedAppend
from .slow_partitions import USUAL, Place

_CLIENT_ID = "idemproxy"
_HEADERS = {
    version: encode_request_header(API_KEY, version, 0, _CLIENT_ID) for version in (BROKER_VERSION_MAX, *BATCH_VERSIONS)
}
_HEADER = _HEADERS[BROKER_VERSION_MAX]
_HEADER_STARTS, _HEADER_END = {version: one[:4] for version, one in _HEADERS.items()}, _HEADER[8:]
"""What is before the correlation id, by version, and after it."""
_SIZE_AND_HEADER = Struct(f">i4si{len(_HEADER_END)}s")
_TIMEOUT_MS_MAX = round(limits.UPSTREAM_TIMEOUT_SECONDS_MAX * 2000)
"""The longest timeout of an append that counts: the broker is given half of the shortest one in a request."""
_TIMEOUT_MS_MIN = round(limits.UPSTREAM_TIMEOUT_SECONDS_MIN * 1000)
"""The shortest timeout that the broker is given."""
_TIMED_OUT = int(ErrorCode.REQUEST_TIMED_OUT)


class Pool(Protocol):
    """What a produce connection needs of the pool of its broker."""

    broker_id: int
    batch_version: int
    """The version of Produce in which batches of format v2 are sent."""
    may_send: Callable[[], bool]
    """Does the lease still allow to send (rule R4)?"""

    def produce_connection_opened(self, produce_connection: ProduceConnection) -> None: ...

    def produce_connection_idle(self, produce_connection: ProduceConnection) -> None: ...

    def produce_connection_ended(self, produce_connection: ProduceConnection, reason: str) -> None: ...

    def answered(
        self, produce_connection: ProduceConnection, timed_out: Collection[Place], throttle_ms: int
    ) -> None: ...


class ProduceConnectionWire(Protocol):
    """What a produce connection needs of its connection; see ``idemproxy.reactor.Wire``."""

    def send(self, *chunks: Buffer) -> None: ...

    def fence(self, may_send: Callable[[], bool]) -> None: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...


class ProduceConnection:
    """One connection: idle, or busy with exactly one produce request."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._wire: ProduceConnectionWire | None = None
        self._splitter = FrameSplitter(limits.RESPONSE_BYTES_MAX)
        self._appends: list[QueuedAppend] = []
        """What is in the request that is out."""
        self.count = 0
        """How many appends are in it."""
        self._correlation_id = 0
        self._version = BROKER_VERSION_MAX
        """Of the request that is out."""
        self._has_begun = False
        self._is_late = False
        self.is_open = True
        self.sent_at = 0.0
        self.answered_at = 0.0
        self.timeout_seconds = 0.0
        self.pace = USUAL
        """The pace of the partitions in the request that is out."""
        self.looks = 0
        """How often the request was seen unanswered. Time in which this process did not run does not count."""
        self.is_late = False
        """The request was seen unanswered too often."""
        self.is_overdue = False
        """The request was reported to the operator as unanswered."""
        self.is_forsaken = False
        """Set when the broker was away while a request was out here. The request may be lost, so it is not waited for
        as long as an answer that the broker delays to throttle."""

    @property
    def is_idle(self) -> bool:
        """Is it connected, with no request out?"""
        return self._wire is not None and not self._appends

    @property
    def is_busy(self) -> bool:
        """Is a request out?"""
        return bool(self._appends)

    @property
    def places(self) -> Sequence[Place]:
        """The partitions in the request that is out."""
        return [(append.topic, append.partition) for append in self._appends]

    # R3 lives here: one unanswered request for each produce connection, a partition once in it.
    def send(self, appends: list[QueuedAppend], pace: int, now: float) -> None:
        """Send them in one request. The caller has asked each append whether it may be sent, in this same step."""
        assert self._wire is not None
        assert not self._appends
        count, timeout_ms = 0, _TIMEOUT_MS_MAX
        parts: list[tuple[str, int, Buffer]] = []
        for append in appends:
            count += 1
            if append.timeout_ms < timeout_ms:
                timeout_ms = append.timeout_ms
            parts += ((append.topic, append.partition, append.message_set),)
        timeout_ms //= 2
        if timeout_ms < _TIMEOUT_MS_MIN:
            timeout_ms = _TIMEOUT_MS_MIN
        self._appends, self.count = appends, count
        self._has_begun = False
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self.sent_at = now
        self.timeout_seconds = timeout_ms / 1000
        self.pace = pace
        self.looks = 0
        self.is_late = self.is_overdue = False
        version = self._version = self._pool.batch_version if appends[0].form.is_v2 else BROKER_VERSION_MAX
        body = encode_request(version, -1, timeout_ms, parts)
        size = len(_HEADER) + sum(map(len, body))
        self._wire.send(_SIZE_AND_HEADER.pack(size, _HEADER_STARTS[version], self._correlation_id, _HEADER_END), *body)

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: ProduceConnectionWire) -> None:
        """The connection is open: it can take requests."""
        if not self.is_open:  # closed while it was being opened
            wire.reset()
            return
        self._wire = wire
        wire.fence(self._may_write)
        self._pool.produce_connection_opened(self)

    def received(self, data: bytes) -> None:
        """Bytes of an answer."""
        try:
            for frame in self._splitter.feed(data):
                self._answer(frame)
            if self._splitter.error is not None:
                raise self._splitter.error
        except WireError as error:
            self.give_up(f"the broker's answer cannot be read: {error}")

    def answered(self, frame: Buffer) -> None:
        """A whole answer without its size, from a connection that is cut into frames elsewhere
        (``pass_through/produce_connections.py``)."""
        try:
            self._answer(frame)
        except WireError as error:
            self.give_up(f"the broker's answer cannot be read: {error}")

    def lost(self, reason: str) -> None:
        """The connection ended; the appends in the request that is out are in doubt."""
        self._wire = None
        self._ended(reason)

    def give_up(self, reason: str) -> None:
        """Reset the connection: a request that waits in the broker for an earlier one ends with it."""
        if self._wire is not None:
            self._wire.reset()
            self._wire = None
        self._ended(reason)

    def close(self) -> None:
        """Close the connection: no request is out, and it is not needed any more."""
        assert self.is_idle
        assert self._wire is not None
        self.is_open = False
        self._wire.close()
        self._wire = None

    # ------------------------------------------------------------------ inside
    def _may_write(self) -> bool:
        """May bytes be written now? Asked before and after every write (rule R4)."""
        if self._pool.may_send():
            self._has_begun = True
            return True
        self._is_late = self._has_begun
        return False

    def _answer(self, frame: Buffer) -> None:
        correlation_id, body_offset = parse_response_header(frame, API_KEY, self._version)
        if not self._appends or correlation_id != self._correlation_id:
            raise WireError(f"correlation id {correlation_id} was not asked for")
        answers, throttle_ms = parse_response(frame, body_offset, self._version)
        found: dict[Place, PartitionAnswer] = {}
        timed_out: list[Place] = []
        for answer in answers:
            found[answer.topic, answer.partition] = answer
            if answer.error_code == _TIMED_OUT:
                timed_out += ((answer.topic, answer.partition),)
        self._pool.answered(self, timed_out, throttle_ms)
        appends, self._appends = self._appends, []
        broker_id = self._pool.broker_id
        unknown_outcome: Outcome = InDoubt("the broker's answer leaves this partition out", broker_id)
        for append in appends:
            place = append.topic, append.partition
            if place not in found:
                append.done(unknown_outcome)
            else:
                answer = found[place]
                append.answered(answer.error_code, answer.base_offset, answer.log_append_time_ms, self, broker_id)
        if self._wire is not None:
            self._pool.produce_connection_idle(self)

    def _ended(self, reason: str) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._pool.produce_connection_ended(self, reason)
        appends, self._appends = self._appends, []
        for append in appends:
            append.done(InDoubt(reason, self._pool.broker_id, is_late=self._is_late))
