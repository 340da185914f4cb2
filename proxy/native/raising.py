"""A stage in front of a native session, for clients of versions that their broker lacks: such a request is raised to
one that it has, and the answer lowered. Sans-IO; what a request becomes is up to ``raised_request.py``. Also for
producers that have no idempotence, where that is configured: their batches get a producer id (``raised_produce.py``).

It is made at the first such request of a connection. All others go to the session behind it as bytes, as before. While
a request is raised nothing else of the client is on its way: it begins when those before it are answered, and those
behind it are taken when it is. A broker does the same, one request of a connection after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...codecs.errors import WireError
from ...codecs.framing import SIZE_BYTES
from ...codecs.headers import RequestHeader, parse_request_header
from ...codecs.produce_acks import acks_of
from ...reactor import Buffer
from .. import limits
from ..bridge.upward.fetch import RaisedFetch
from ..bridge.upward.positions import FetchPositions
from ..bridge.upward.produce_formats import is_written
from ..bridge.upward.table import Raised, plan, plan_fetch
from ..broker.broker import Broker
from ..connection.shell import ConnectionShell
from ..versions import ApiKey, is_dropped
from .conditional import walk_through
from .host import NativeHost
from .raised_produce import ProducingClient
from .raised_request import RaisedRequest
from .session import FINISHED, NativeSession, Stage


class RaisingSession(Stage):
    """The handler of the connection from the first old request on. ``start``: begins with it."""

    def __init__(self, behind: NativeSession, host: NativeHost, shell: ConnectionShell, start: bytes) -> None:
        self._behind = behind
        self._host = host
        self._shell = shell
        self._kept = bytearray(start)
        """Begins with an old request, whose turn has not come or which is not complete."""
        self._held_bytes = 0
        """Counted in the memory of all clients: what is complete and waits for its turn."""
        self._asked_at = 0.0
        self._is_awaited = False
        """Does a drain wait for the answer to what is raised?"""
        self._is_resting = False
        """Is what has come left for a later pass?"""
        self._positions = FetchPositions(host.old_producers.positions)
        self._producing: ProducingClient | None = None
        """Since its first Produce that is served here."""
        self._request: RaisedRequest | ProducingClient | None = None
        self._is_waiting = False
        """For the answers to what was asked before?"""
        self._is_stopping = False
        """Nothing more comes of the client."""
        self._is_held = False
        """Is the broker not to be read from, as the client does not take its answers?"""

    def begin(self) -> None:
        """Take the first old request."""
        self._behind.keep_client(self._keeps_client)
        self._advance()
        self._count_kept()

    # ------------------------------------------------------------------ asked by the shell
    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return self._behind.in_flight + (self._request is not None)

    @property
    def has_produce_in_flight(self) -> bool:
        """Is something under way that a drain waits for?"""
        return self._is_awaited or self._behind.has_produce_in_flight

    @property
    def has_enough(self) -> bool:
        """Is one raised, or due once others are answered, or is nothing more to be read for another reason? While one
        waits nothing of it is read: many that wait would fill the memory of all."""
        if self._request is not None or (self._kept and not (self._missing_bytes and self._behind.is_owed_nothing)):
            return True
        return self._behind.has_enough

    @property
    def is_owed_nothing(self) -> bool:
        """Has every request been answered?"""
        return self._request is None and not self._kept and self._behind.is_owed_nothing

    @property
    def answers_after_fin(self) -> bool:
        """What came before it is raised, too."""
        return self._behind.answers_after_fin

    # ------------------------------------------------------------------ bytes of the client
    def received(self, data: bytes) -> bool:
        """Bytes of requests."""
        if self._request is None and not self._kept:
            return self._pass(data)
        self._kept += data
        self._behind.pay(len(data))
        self._advance()
        self._count_kept()
        return True

    def go_on(self) -> None:
        """It has its turn."""
        self._behind.go_on()
        self._learn()

    def resume_at(self, rest: bytes) -> None:
        """The session behind has come to an old request."""
        self._kept += rest
        self._advance()
        self._count_kept()

    def hold_upstream(self, is_held: bool) -> None:
        """Read nothing more of what the broker answers, or resume."""
        self._is_held = is_held
        self._read_answers_or_not()

    def _keeps_client(self) -> bool:
        """The broker has closed the connection over which nothing is out. What the client writes goes over others: as
        soon as its connection ended, it would send again what is being written, and that would be there twice."""
        is_read_from = isinstance(self._request, RaisedRequest)
        return self._producing is not None and not self._producing.uses_clients_own and not is_read_from

    def _read_answers_or_not(self) -> None:
        waits = self._request is not None and self._request.waits_for_memory
        self._behind.hold_upstream(self._is_held or waits)

    def _pass(self, data: bytes, *, is_paid: bool = False) -> bool:
        """Hand bytes on, up to the next old request. ``is_paid``: the turn of its address has been charged for them."""
        is_to_be_controlled = self._behind.received(data, is_paid=is_paid)
        self._learn()
        self._kept = bytearray(self._behind.take_rest())
        self._advance()
        self._count_kept()
        return is_to_be_controlled or bool(self._kept)

    def _learn(self) -> None:
        """Know what the session behind knows."""
        self.has_produced |= self._behind.has_produced
        self.is_idempotent |= self._behind.is_idempotent
        self.is_closed = self._behind.is_closed

    @property
    def _missing_bytes(self) -> int:
        """Of the request that begins ``_kept``."""
        size = int.from_bytes(self._kept[:SIZE_BYTES], "big")
        return max(SIZE_BYTES + size - len(self._kept), 0)

    def _advance(self) -> None:
        """Raise the old request if it is complete and its turn."""
        if self._request is not None or not self._kept or self.is_closed or self._is_resting:
            return
        missing = self._missing_bytes
        if missing and self._is_stopping:
            self._kept.clear()
            return
        self._shell.request_has(len(self._kept) if missing else 0, missing, begins=not missing)
        if missing:
            return
        if not self._behind.is_owed_nothing:  # the rest of an answer may be missing though none is in flight
            self._wait()
            return
        if not self._behind.raises(self._kept):  # the settings have changed since it came
            self._pass_kept()
            return
        end = SIZE_BYTES + int.from_bytes(self._kept[:SIZE_BYTES], "big")
        request, self._kept = self._kept, self._kept[end:]  # what comes after it is short, and it may be 100 MB
        del request[end:]
        self._raise(request)

    def _count_kept(self) -> None:
        is_unfinished = self._request is None and self._kept and self._missing_bytes
        count = 0 if is_unfinished else len(self._kept)
        self._host.memory.hold_bytes(count - self._held_bytes)
        self._held_bytes = count

    def _wait(self) -> None:
        """Look again once the broker has answered what came before."""
        if not self._is_waiting:
            self._is_waiting = True
            self._behind.each_answer(self._answered_before)

    def _answered_before(self) -> None:
        if self._behind.is_owed_nothing:
            self._is_waiting = False
            self._behind.take_answers()
            self._resume(self._advance)

    # ------------------------------------------------------------------ the old request
    def _raise(self, whole: bytearray) -> None:
        """Take a request, with its size. Raises WireError for a header that cannot be read."""
        request = memoryview(whole)[SIZE_BYTES:]
        try:
            header = parse_request_header(request)
        except WireError:
            self._kept.clear()  # what comes behind it is not served
            raise
        key, version = header.api_key, header.api_version
        is_old = is_dropped(key, version)
        if not is_old and not self._is_written(header, whole, request):
            self._pass_produce(whole)
            return
        self._behind.learn_name(header)
        self.name, self.software = self._behind.name, self._behind.software
        self._host.count_request(key)
        if is_old:
            self._host.old_clients.note_request(self, self._shell, key, version, is_raised=True)
        self._asked_at = self._host.reactor.now()
        self._is_awaited = key in FINISHED
        if key == ApiKey.PRODUCE:
            self._produce(header, request)
            return
        broker, upstream = self._behind.target(), self._behind.connect()
        if upstream is None or broker is None:
            self._shell.abort("the broker is away")
            return
        plan = self._plan(key, version, broker)
        assert plan is not None, "it is raised"
        self._request = RaisedRequest(
            self._host,
            self._shell,
            header,
            request,
            plan,
            broker.id,
            upstream,
            self._behind.to_other_brokers,
            lambda answer: self._answered(key, answer),
            self._failed,
            self._read_answers_or_not,
        )
        self._request.begin()

    @staticmethod
    def _is_written(header: RequestHeader, whole: bytearray, request: memoryview) -> bool:
        """Is a request that a broker serves itself written here? One that is published conditionally is refused by the
        session behind."""
        version = header.api_version
        if not is_written(request[header.body_offset :], version):
            return False
        found = acks_of(whole, SIZE_BYTES, len(request), version)
        assert found is not None, "all of it is here"
        walk = walk_through(whole, found[1], len(whole), version)
        return walk is None or not walk.has_found

    def _pass_produce(self, whole: bytearray) -> None:
        """It is not for this stage. What comes after it is looked at later: a thousand such requests may be there."""
        kept, self._kept = self._kept, bytearray()
        self._behind.passes_produce = True
        self._pass(bytes(whole), is_paid=True)
        self._kept = kept
        if kept:
            self._rest()

    def _plan(self, key: int, version: int, broker: Broker) -> Raised | RaisedFetch | None:
        settings = self._host.old_client_settings
        is_always = settings.translate == "always"
        if key == ApiKey.FETCH:
            is_committed = settings.fetch == "committed"
            return plan_fetch(version, broker.ranges, self._positions, always=is_always, committed=is_committed)
        return plan(key, version, broker.ranges, always=is_always)

    def _produce(self, header: RequestHeader, request: memoryview) -> None:
        producing = self._producing_client(header.client_id)
        if producing is None:
            self._shell.abort("the broker is away")
            return
        self._request = producing
        self._read_for_stage(producing.uses_clients_own)
        producing.begin(header, request)

    def _producing_client(self, client_id: str | None) -> ProducingClient | None:
        """None: its broker is away."""
        if self._producing is None:
            broker, to_others = self._behind.target(), self._behind.to_other_brokers
            upstream = self._behind.connect() if to_others is None else None
            if broker is not None and (to_others is not None or upstream is not None):
                self._producing = ProducingClient(
                    *(self._host, self._shell, broker, upstream, to_others, client_id),
                    self._written,
                    self._failed,
                )
        return self._producing

    def _read_for_stage(self, is_read: bool) -> None:
        if is_read != self._behind.is_read_by_stage:
            self._behind.is_read_by_stage = is_read
            self._behind.read_answers_or_not()

    def _written(self, answer: bytes | None, is_last: bool) -> None:
        self._read_for_stage(False)
        if is_last:
            self._kept.clear()
            if answer is not None and self._shell.wire is not None:
                self._shell.wire.send(answer)
            self._shell.part()
        else:
            self._answered(int(ApiKey.PRODUCE), () if answer is None else (answer,))

    def _answered(self, api_key: int, answer: Sequence[Buffer]) -> None:
        request, self._request, self._is_awaited = self._request, None, False
        self._behind.take_answers()
        self.has_produced |= api_key == ApiKey.PRODUCE
        shell, wire = self._shell, self._shell.wire
        if wire is None:
            return
        if (measure := self._host.measure_request) is not None:
            measure(api_key, self._host.reactor.now() - self._asked_at)
        if answer:
            wire.send(*answer)
        if isinstance(request, RaisedRequest):
            request.cancel()  # its memory is the answer's now
        self._read_answers_or_not()
        if wire.unsent > limits.BACKLOG_BYTES:
            shell.answers_wait()
        if self._kept and self._host.loop_budget.is_long:
            self._rest()  # a client may send a thousand requests at once that cost a broker nothing
        else:
            self._resume(self._pass_kept)

    def _rest(self) -> None:
        self._is_resting = True
        self._host.reactor.later(0, self._rested)

    def _rested(self) -> None:
        self._is_resting = False
        if not self.is_closed:
            self._resume(self._pass_kept)

    def _pass_kept(self) -> None:
        kept = bytes(self._kept)
        self._kept.clear()
        if kept:
            self._pass(kept, is_paid=True)

    def _resume(self, take: Callable[[], None]) -> None:
        """Take what has come meanwhile."""
        shell = self._shell
        try:
            take()
        except WireError as error:
            shell.refuse(str(error))
            return
        self._count_kept()
        if self._is_stopping and not self._kept and self._request is None:
            self._behind.stop()
        if shell.takes_no_more:
            shell.end_if_answered()
        shell.control()

    def _failed(self, reason: str, is_clients_fault: bool) -> None:
        self._request, self._is_awaited = None, False
        if is_clients_fault:
            self._kept.clear()  # what comes behind it is not served
            self._count_kept()
            self._shell.refuse(reason)
        else:
            self._shell.report_refusal(self.name, reason)  # nobody else says why the connection ends
            self._shell.abort(reason)

    # ------------------------------------------------------------------ the end
    def stop(self) -> None:
        """Nothing more comes: what is complete is still served."""
        self._is_stopping = True
        if self._request is None and (not self._kept or self._missing_bytes):
            self._kept.clear()
            self._behind.stop()

    def forsake(self) -> None:
        """Take nothing more, and answer nothing."""
        super().forsake()
        self._behind.forsake()

    def flush(self) -> None:
        """Hand over to the wire what is ready."""
        self._behind.flush()

    def end(self, *, is_lost: bool) -> None:
        """The connection has ended."""
        self.is_closed = True
        left = self._left_requests()
        self._kept.clear()
        self._count_kept()
        request, self._request, self._is_awaited = self._request, None, False
        if isinstance(request, RaisedRequest):
            request.cancel()
        self._positions.clear()
        producing = self._producing_client(left[0][0].client_id) if left else self._producing
        if producing is not None:
            producing.cancel(left, self._behind.give_away)
            self._producing = None
        self._behind.end(is_lost=is_lost)

    def _left_requests(self) -> list[tuple[RequestHeader, memoryview]]:
        """Take from what has come the requests that a broker appends though their client has gone: those to be raised
        that want no answer, and have come completely. Given without their size."""
        is_owed = isinstance(self._request, RaisedRequest) or not self._behind.is_owed_nothing
        if is_owed and self._behind.to_other_brokers is None:
            return []  # they would take the connection over which other answers come
        found: list[tuple[RequestHeader, memoryview]] = []
        kept, self._kept = memoryview(self._kept), bytearray()
        while len(kept) > SIZE_BYTES and len(kept) >= (end := SIZE_BYTES + int.from_bytes(kept[:SIZE_BYTES], "big")):
            whole, kept = kept[:end], kept[end:]
            request = whole[SIZE_BYTES:]
            try:
                header = parse_request_header(request)
            except WireError:
                break  # what comes behind it is not served
            key, version = header.api_key, header.api_version
            if key != ApiKey.PRODUCE or not self._behind.raises(whole) or not _wants_no_answer(whole, version):
                continue
            is_old = is_dropped(key, version)
            if not is_old and not self._is_written(header, bytearray(whole), request):
                continue
            self._host.count_request(key)
            if is_old:
                self._host.old_clients.note_request(self, self._shell, key, version, is_raised=True)
            found.append((header, request))
        return found


def _wants_no_answer(whole: Buffer, version: int) -> bool:
    """Has a Produce request, given with its size, no acks?"""
    try:
        found = acks_of(whole, SIZE_BYTES, len(whole) - SIZE_BYTES, version)
    except WireError:
        return False
    return found is not None and found[0] == 0
