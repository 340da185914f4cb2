"""What a client wants no answer to: it is counted as long as it waits, and also what was sent right before the client
hung up is taken, as at a broker (rule R16).

Of all else nothing is taken from a client that has gone (rule R17). Handled in turns like every client's requests, so
that thousands of them at a hang-up hold nobody up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from ...codecs.errors import WireError
from ...codecs.framing import Frame
from ...codecs.headers import parse_request_header
from ...codecs.produce import API_KEY as PRODUCE_KEY
from ...codecs.produce import PartitionRecords, ProduceRequest, parse_request
from ...codecs.record_batch import parse_single_batch
from ...codecs.steps import Steps
from ...reactor import Reactor
from .. import limits
from ..admission.loop_budget import LoopBudget
from ..admission.memory_budget import WAITING_COUNTS, Held
from ..producer.batch import Answer, Connection
from .produce import Client, Outside, ProduceCall

PlainPart = tuple[PartitionRecords, Callable[[Answer], None]]


class Silent(Client, Protocol):
    """Who sends requests that want no answer."""

    def hold_silent(self, count: int) -> None:
        """So many bytes of them wait to be appended by the proxy, or (negative) do so no more."""
        ...


# R16 lives here: what wants no answer is appended all the same.
class SilentCall(ProduceCall):
    """A request that wants no answer. Its place among the answers is free at once, and so nobody else counts what it
    leaves to be appended."""

    client: Silent

    def starting(self) -> Steps[None]:
        """Check every partition and send it on its way."""
        size = sum(len(item.records) for item in self.request.partitions if item.records is not None)
        objects = len(self.request.partitions) * limits.PARTITION_OBJECTS_BYTES
        self.held = Held(self.client.hold_silent, size + objects)
        yield from super().starting()


class Host(Outside, Protocol):
    """What is needed of the engine."""

    @property
    def reactor(self) -> Reactor: ...

    @property
    def loop_budget(self) -> LoopBudget: ...


class Gone(Connection, Protocol):
    """A session whose client has hung up."""

    @property
    def principal(self) -> bytes: ...

    @property
    def requires_authentication(self) -> bool:
        """Has the client to show that, so that nothing is appended for it by us?"""
        ...

    def produce_plainly(self, acks: int, timeout_ms: int, parts: list[PlainPart]) -> None: ...

    @property
    def is_at_work(self) -> bool:
        """Is a request of it taken in steps, to go on before what comes after it?"""
        ...

    def take_in_turns(self, steps: Steps[None]) -> None:
        """Take a request in steps."""
        ...

    def when_done(self, go_on: Callable[[], None]) -> None:
        """Call this when it has gone on."""
        ...

    def close_upstream(self) -> None:
        """Nothing more is passed on."""
        ...


class AcksZero:
    """Of one client: stands for it as long as anything is left. Begins when it is made."""

    is_closed = True

    def __init__(self, host: Host, gone: Gone, waiting: deque[Frame]) -> None:
        """``waiting``: requests in their order, whose bytes are held (``WAITING_COUNTS``)."""
        self.is_idempotent = False
        self.retry_notes = gone.retry_notes
        self.name = gone.name
        self.address = gone.address
        self.principal = gone.principal
        self.way = gone.way
        self.produce_plainly = gone.produce_plainly
        self._host = host
        self._gone = gone
        self._waiting = waiting
        self._turn()

    def abort(self, reason: str) -> None:
        """One of them was refused: a broker would have hung up there."""
        self._drop()

    def hold_silent(self, count: int) -> None:
        """Count it for all clients together."""
        self._host.memory.hold_bytes(count)

    def _turn(self) -> None:
        for _ in range(limits.REQUESTS_PER_TURN_MAX):
            if self._gone.is_at_work:
                break
            if not self._waiting or self._host.loop_budget.is_long:
                break
            frame = self._waiting.popleft()
            self._host.memory.hold_bytes(-WAITING_COUNTS * len(frame))
            try:
                self._take(frame)
            except WireError:
                self._drop()
        if self._gone.is_at_work:
            self._gone.when_done(self._turn)
        elif self._waiting:
            self._host.reactor.later(0, self._turn)
        else:
            self._gone.close_upstream()

    def _take(self, frame: Frame) -> None:
        header = parse_request_header(frame)
        if header.api_key != PRODUCE_KEY:
            return
        request = parse_request(frame, header.body_offset, header.api_version)
        if request.acks == 0 and not (self._gone.requires_authentication and names_a_producer(request)):
            call = SilentCall(self._host, self, request, header.api_version, lambda _nothing: None)
            self._gone.take_in_turns(call.starting())

    def _drop(self) -> None:
        self._host.memory.hold_bytes(-WAITING_COUNTS * sum(map(len, self._waiting)))
        self._waiting.clear()


def names_a_producer(request: ProduceRequest) -> bool:
    """Would the proxy itself append any of it, and not the client's own connection? What cannot be read is refused by
    whoever looks at it next."""
    for item in request.partitions:
        try:
            if item.records is not None and parse_single_batch(item.records).producer_id >= 0:
                return True
        except WireError:
            continue
    return False
