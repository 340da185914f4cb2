"""The lane of one client: his own connection to the broker, on which it knows him, as the one lane of a pool of his own
(rule R3). Sans-IO.

One produce is out on it, and then nothing else is: it leaves only when everything before it has been answered, so
nothing lies in front of it in the broker, and what the client asks meanwhile waits behind it (rule R3). While it is out
the lease is looked at around every write (rule R4). When the client goes, the connection stays until the answer is
there. What is left in doubt is looked for in the log by the proxy itself; nothing of it is ever appended by anybody
else than a client of the same principal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...codecs.error_codes import ErrorCode
from ...codecs.framing import Frame
from ...reactor import Address, Buffer, Endpoint, Reactor, Timer, Wire
from .. import limits
from ..bridge.base import Chunks
from ..broker.lane import Lane
from ..broker.lane_pool import LanePool
from ..events import ProduceConnectionLost, Report
from ..flow.effects import Append
from ..flow.outcome import Appended, NotSent, Outcome, Refused
from ..session.pipe import Answered, Pipe
from ..versions import ApiKey

if TYPE_CHECKING:
    from .write_acl import WriteAcl

_SIZE_BYTES = 4
_Request = tuple[int, int, Chunks, Answered | None]


class PassThroughPipe(Pipe):
    """A pipe that can be had alone: by one who has a request of his own to send, between those of the client."""

    def __init__(self, reactor: Reactor, address: Address, broken: Callable[[str], None]) -> None:
        super().__init__(reactor, address, broken)
        self.is_alone = False
        """Somebody has it for himself."""
        self.ended: Callable[[str], None]
        """Told when the connection is over, for whatever reason."""
        self.left: Callable[[], None]
        """Told when the client has gone."""
        self.has_work: Callable[[], bool]
        """Is there something that has to be sent though the client has gone?"""
        self.forget_lanes()
        self.is_leaving = False
        self._granted: Callable[[], None] | None = None
        self._behind: deque[_Request] = deque()
        self._behind_bytes = 0
        self._is_last_silent = False
        self._wants_hold = False
        self._is_fenced = False
        self._is_barrier_out = False

    def forget_lanes(self) -> None:
        """Nobody of the proxy uses it: it tells nobody."""
        self.ended = lambda _reason: None
        self.left = lambda: None
        self.has_work = lambda: False
        self._answered: Endpoint | None = None

    # ------------------------------------------------------------------ for the client
    def request(self, api_key: int, api_version: int, body: Chunks, answered: Answered | None) -> None:
        """Send a request of the client's on, or keep it until the connection is no longer wanted alone."""
        if self._granted is None and not self.is_alone:
            self._is_last_silent = answered is None
            super().request(api_key, api_version, body, answered)
            return
        self._behind.append((api_key, api_version, body, answered))
        if answered is None:
            self._behind_bytes += sum(map(len, body))
            self._plan_count()

    def hold(self, is_held: bool) -> None:
        """As for every client; but an answer that somebody alone waits for is no large one, and is read."""
        self._wants_hold = is_held
        super().hold(is_held and not self.is_alone)

    def close(self) -> None:
        """The client has gone. The connection stays as long as it is used by somebody alone, or is to be."""
        if self.is_closed:
            return
        if not self.is_leaving:
            self.is_leaving = True
            self.left()
        self._leave_if_done()

    # ------------------------------------------------------------------ alone
    def want_alone(self, granted: Callable[[], None]) -> None:
        """From now on requests of the client wait. ``granted`` is called once everything before them has been
        answered, perhaps at once; who is granted it sends with ``send_alone``, or gives it back."""
        if not self.is_alone:
            self._granted = granted
            self._grant()

    def send_alone(self, *chunks: Buffer) -> None:
        """Send one whole request; its answer goes to the lane that sits on this connection."""
        assert self.is_alone
        if self._wire is not None:
            self._wire.send(*chunks)

    def give_back(self) -> None:
        """Others go on: what has waited leaves."""
        self.is_alone = False
        super().hold(self._wants_hold)
        behind, self._behind, self._behind_bytes = self._behind, deque(), 0
        for api_key, api_version, body, answered in behind:
            if answered is None or not self.is_leaving:
                self.request(api_key, api_version, body, answered)
        self._grant()
        self._leave_if_done()

    def seat(self, lane: Endpoint) -> None:
        """From now on this lane is told what is answered to whoever has the connection alone."""
        self._answered = lane

    def fence(self, may_send: Callable[[], bool]) -> None:
        """Rule R4, for what is sent alone: the client's own requests need no lease."""
        if self._wire is not None:
            self._is_fenced = True
            self._wire.fence(lambda: not self.is_alone or may_send())

    def reset(self) -> None:
        """Drop the connection, and the client with it: he comes again, and shows the broker anew who he is."""
        wire = self._wire
        if wire is not None:
            wire.reset()
            self._end_here("the connection to the broker was given up")

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """The broker is there."""
        super().connected(wire)
        self._grant()

    def lost(self, reason: str) -> None:
        """The broker's side is gone: for the client, and for what was out."""
        self._end_here(reason)
        self.ended(reason)

    # ------------------------------------------------------------------ inside
    @property
    def _unsent_bytes(self) -> int:
        return super()._unsent_bytes + self._behind_bytes

    def _read_or_not(self) -> None:
        if self.is_alone or self.is_leaving:
            self._is_held = False  # also if a large answer came right before
        super()._read_or_not()

    def _end_here(self, reason: str) -> None:
        self.is_alone = False
        self._granted = None
        self._behind.clear()
        self._behind_bytes = 0
        super().lost(reason)

    def _answer(self, frame: Frame) -> None:
        if self.is_alone and self._answered is not None:
            self._answered.received(len(frame).to_bytes(_SIZE_BYTES, "big") + frame)
            if self.is_alone and not self.is_closed:
                self.give_back()
            return
        super()._answer(frame)
        self._grant()
        self._leave_if_done()

    def _grant(self) -> None:
        if self._granted is None or self._expected or self.is_alone or self.is_closed or self._wire is None:
            return
        if self._is_last_silent:  # it may still lie in the broker
            self._ask_behind()
            return
        granted, self._granted = self._granted, None
        self.is_alone = True
        super().hold(False)
        granted()

    def _leave_if_done(self) -> None:
        if not self.is_leaving or self.is_alone or self.is_closed or self.has_work() or self._is_barrier_out:
            return
        if self._behind:  # whoever wanted it alone wants it no more
            self._granted = None
            self.give_back()
        elif self._is_fenced and self._is_last_silent:  # closing such a connection drops what the broker has not read
            self._ask_behind()
        else:
            super().close()
            self.ended("the client has gone")

    def _ask_behind(self) -> None:
        """Ask something harmless: its answer says that what was sent before, and has none, has been taken."""
        self._is_last_silent = False
        self._is_barrier_out = True

        def answered(_body: memoryview) -> None:
            self._is_barrier_out = False

        super().request(ApiKey.API_VERSIONS, 0, [b""], answered)


class _Seat:
    """What a lane sees of the connection: a reactor that has it, and the wire."""

    local_host = ""
    unsent = 0

    def __init__(self, reactor: Reactor, pipe: PassThroughPipe) -> None:
        self.now = reactor.now
        self._reactor = reactor
        self._pipe = pipe
        self.send = pipe.send_alone
        self.fence = pipe.fence
        self.reset = pipe.reset
        self.close = pipe.reset

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._reactor.later(seconds, callback)

    def at_flush(self, callback: Callable[[], None]) -> None:
        self._reactor.at_flush(callback)

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        self._pipe.seat(endpoint)

        def tell() -> None:
            if self._pipe.is_closed:
                endpoint.lost("the client's connection has ended")
            else:
                endpoint.connected(self)

        self._reactor.later(0, tell)

    def before_reading(self, look: Callable[[], None]) -> None:
        """Its own client is asked."""

    def pause(self) -> None:
        """Its answers are small."""

    def resume(self) -> None:
        """It never stops."""


class PassThroughLanes(LanePool):
    """The way of one client's batches: a pool of one lane. ``is_there``: is the broker that the connection leads to
    still the one with this id, and known (None: it never will be again)? ``is_over``: told when nothing more can come
    of it. ``write_acl``: hears what the broker says of appends."""

    look_seconds = limits.GUEST_LANE_LOOK_SECONDS

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        pipe: PassThroughPipe,
        write_acl: WriteAcl,
        *,
        may_send: Callable[[], bool],
        is_there: Callable[[], bool | None],
        is_over: Callable[[PassThroughLanes], None],
        report: Report,
    ) -> None:
        seat = _Seat(reactor, pipe)
        super().__init__(seat, broker_id, "", may_send=may_send, report=report, lanes_max=lambda: 1)
        self.is_usable = True
        self._pipe = pipe
        self._write_acl = write_acl
        self._is_there = is_there
        self._tell_over = is_over
        self._is_over = False
        self._sent_at = 0.0
        pipe.ended = self._ended
        pipe.left = self._client_left
        pipe.has_work = lambda: bool(self._waiting)

    def append(self, effect: Append, done: Callable[[Outcome], None]) -> None:
        """Queue one append; ``done`` gets the outcome, once. For another broker than this one it is refused at once, as
        this one would: only the client himself can show that one who he is."""
        outcome: Outcome | None = None
        if self._is_over:
            outcome = NotSent("the client's connection has ended")
        elif effect.broker_id != self.broker_id:
            outcome = Refused(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif not (is_there := self._is_there()):
            outcome = NotSent("the broker is away")
            if is_there is None:
                self._reactor.later(0, self._send_away)
        if outcome is not None:
            told = outcome
            self._reactor.later(0, lambda: done(told))
        else:
            super().append(effect, partial(self._hear, effect.topic, done))

    # ------------------------------------------------------------------ from the lane
    def lane_ended(self, lane: Lane, reason: str) -> None:
        """The connection is over, and with it the client's."""
        if self._forget(lane):
            self._report(ProduceConnectionLost(self.broker_id, reason, True))
        self._over(reason)

    # ------------------------------------------------------------------ inside
    def _dispatch(self) -> None:
        """Have the connection alone first. What may be sent is asked when it is (rules R4, R17)."""
        self._is_flush_planned = False
        if not self._lanes and not self._is_over:
            self._open_one()
        if self._waiting and self.idle_lanes:
            self._pipe.want_alone(self._go)

    def _may_open(self) -> bool:
        return not self._lanes

    def _go(self) -> None:
        if not self._is_there():
            self.refuse_waiting("the broker is away")
        self._sent_at = self._reactor.now()
        super()._dispatch()
        if not self.busy_lanes:
            self._pipe.give_back()

    def _look_after(self) -> None:
        if not self._is_there():
            for lane in self._lanes:
                lane.is_forsaken = lane.is_busy
        super()._look_after()

    def _send_away(self) -> None:
        """Where his connection leads there is no broker with this id any more: he comes again and finds the new one."""
        self._pipe.reset()
        self._ended("the broker has moved")

    def _hear(self, topic: str, done: Callable[[Outcome], None], outcome: Outcome) -> None:
        if isinstance(outcome, Appended):
            self._write_acl.told(topic, 0, self._sent_at)
        elif isinstance(outcome, Refused) and outcome.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._write_acl.told(topic, outcome.error_code, self._sent_at)
        done(outcome)

    def _client_left(self) -> None:
        """What nobody waits for any more is given back at once (rule R17)."""
        for job in self._waiting.take_all():
            refusal = job.append.may_send()
            if refusal is None:
                self._waiting.push(job)
            else:
                job.done(NotSent(refusal))

    def _ended(self, reason: str) -> None:
        for lane in list(self._lanes):
            lane.lost(reason)
        self._over(reason)

    def _over(self, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._tell_over(self)
            self._pipe.forget_lanes()  # or they would hold each other
            self._paces.end()
        self.refuse_waiting(reason)
