"""Lanes: upstream connections with one unanswered produce each (rule R3), and the pool of them that a broker has.
Sans-IO.

Any idle lane takes all appends that are ready, at most one wrapper per partition (``load.py``): a partition twice in
one request loses the first silently.

Owns the send and its last checks (rules R4, R17), the answer's way back, and what a lost connection means: doubt. Never
looks into records and never sends anything twice."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..codecs.errors import WireError
from ..codecs.framing import FrameSplitter
from ..codecs.headers import encode_request_header, parse_response_header
from ..codecs.produce import API_KEY, BROKER_VERSION_MAX, encode_request, parse_response
from ..reactor import Address, Reactor, Wire
from . import limits
from .effects import Append
from .events import AppendMerged, AppendSent, LaneLost, Report
from .load import Job, Load
from .outcome import InDoubt, NotSent, Outcome, classify

_CLIENT_ID = "idemproxy"


class Lane:
    """One connection. Idle, or busy with exactly one produce request."""

    def __init__(self, pool: LanePool) -> None:
        self._pool = pool
        self._wire: Wire | None = None
        self._splitter = FrameSplitter(limits.RESPONSE_BYTES_MAX)
        self._loads: list[Load] = []
        self._correlation_id = 0
        self._has_begun = False
        self._is_late = False
        self.is_open = True
        self.sent_at = 0.0
        self.answered_at = 0.0
        self.timeout_seconds = 0.0
        self.is_forsaken = False
        """The broker was away since the request left: what it says of throttling is not true of this connection."""

    @property
    def is_idle(self) -> bool:
        """Connected, and nothing is out."""
        return self._wire is not None and not self._loads

    @property
    def is_busy(self) -> bool:
        """A request is out."""
        return bool(self._loads)

    # R3 lives here: one unanswered request for each lane, a partition once in it.
    def send(self, loads: list[Load], now: float) -> None:
        """Put the loads into one request. The caller has asked each append whether it may be sent, in this same
        step."""
        assert self._wire is not None
        assert not self._loads
        timeout = min([job.append.timeout_ms for load in loads for job in load.jobs]) / 2000
        timeout = max(limits.UPSTREAM_TIMEOUT_SECONDS_MIN, min(limits.UPSTREAM_TIMEOUT_SECONDS_MAX, timeout))
        self._loads = loads
        self._has_begun = False
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self.sent_at = now
        self.timeout_seconds = timeout
        header = encode_request_header(API_KEY, BROKER_VERSION_MAX, self._correlation_id, _CLIENT_ID)
        parts = [(load.topic, load.partition, load.message_set()) for load in loads]
        body = encode_request(BROKER_VERSION_MAX, -1, round(timeout * 1000), parts)
        size = len(header) + sum(map(len, body))
        self._wire.send(size.to_bytes(4, "big"), header, *body)

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """The connection is open: it may take work."""
        if not self.is_open:  # given up while it was being opened
            wire.reset()
            return
        self._wire = wire
        wire.fence(self._may_write)
        self._pool.lane_idle()

    def received(self, data: bytes) -> None:
        """Bytes of an answer."""
        try:
            for frame in self._splitter.feed(data):
                self._answer(frame)
        except WireError as error:
            self.give_up(f"the broker's answer cannot be read: {error}")

    def lost(self, reason: str) -> None:
        """The connection is gone; what was out is in doubt."""
        self._wire = None
        self._ended(reason)

    def give_up(self, reason: str) -> None:
        """Reset the connection: a request that waits behind another one in the broker dies with it."""
        if self._wire is not None:
            self._wire.reset()
            self._wire = None
        self._ended(reason)

    # ------------------------------------------------------------------ inside
    def _may_write(self) -> bool:
        """Asked before and after every write (rule R4)."""
        if self._pool.may_send():
            self._has_begun = True
            return True
        self._is_late = self._has_begun
        return False

    def _answer(self, frame: bytes) -> None:
        correlation_id, body_offset = parse_response_header(frame, API_KEY, BROKER_VERSION_MAX)
        if not self._loads or correlation_id != self._correlation_id:
            raise WireError(f"correlation id {correlation_id} was not asked for")
        answers, throttle_ms = parse_response(frame, body_offset, BROKER_VERSION_MAX)
        found = {(answer.topic, answer.partition): answer for answer in answers}
        loads, self._loads = self._loads, []
        self._pool.answered(self, loads, throttle_ms)
        broker_id = self._pool.broker_id
        doubt: Outcome = InDoubt("the broker's answer leaves this partition out", broker_id)
        for load in loads:
            answer = found.get((load.topic, load.partition))
            if answer is None:
                load.done(doubt)
            else:
                load.done(classify(answer.error_code, answer.base_offset, answer.log_append_time_ms, self, broker_id))
        self._pool.lane_idle()

    def _ended(self, reason: str) -> None:
        if not self.is_open:
            return
        self.is_open = False
        loads, self._loads = self._loads, []
        self._pool.lane_ended(self, reason, bool(loads))
        for load in loads:
            load.done(InDoubt(reason, self._pool.broker_id, is_late=self._is_late))


class LanePool:
    """The lanes to one broker. ``may_send`` tells whether the lease still allows to send (rule R4)."""

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        address: Address,
        *,
        may_send: Callable[[], bool],
        report: Report,
        lanes_max: int = limits.LANES_PER_BROKER,
    ) -> None:
        self.broker_id = broker_id
        self.address = address
        self.may_send = may_send
        self._reactor = reactor
        self._report = report
        self._lanes_max = lanes_max
        self._lanes: list[Lane] = []
        self._waiting: deque[Job] = deque()
        self._is_flush_planned = False
        self._is_watching = False
        self._throttled_until = 0.0
        self._slow: dict[tuple[str, int], float] = {}
        self.is_usable = False
        """Set while the broker's version is certain: nothing is produced before."""

    def append(self, effect: Append, done: Callable[[Outcome], None]) -> None:
        """Queue one append; ``done`` gets the outcome, once."""
        self._waiting.append(Job(effect, done, effect.size_bytes, self._reactor.now()))
        self.lane_idle()
        self._watch()

    def set_usable(self, usable: bool) -> None:
        """The broker's version became certain, or its control connection was lost."""
        self.is_usable = usable
        if usable:
            self.lane_idle()
        else:
            self.refuse_waiting("the broker is away")
            for lane in self._lanes:
                lane.is_forsaken = lane.is_busy

    def refuse_waiting(self, reason: str) -> None:
        """Give back what has not been sent."""
        waiting, self._waiting = self._waiting, deque()
        for job in waiting:
            job.done(NotSent(reason))

    def give_up_busy(self, reason: str) -> None:
        """Reset the lanes with a request out: a part of one that the lease of another incarnation was to cover must
        not leave under a new one (rule R4)."""
        for lane in list(self._lanes):
            if lane.is_busy:
                lane.give_up(reason)

    def close(self) -> None:
        """Reset all lanes; what was out is in doubt."""
        self.is_usable = False
        self.refuse_waiting("the proxy stops using this broker")
        for lane in list(self._lanes):
            lane.give_up("the proxy stops using this broker")

    @property
    def busy_lanes(self) -> int:
        """Lanes with a request out."""
        return sum(lane.is_busy for lane in self._lanes)

    @property
    def idle_lanes(self) -> int:
        """Lanes that could send now."""
        return sum(lane.is_idle for lane in self._lanes)

    @property
    def waiting_appends(self) -> int:
        """Appends that wait for a lane."""
        return len(self._waiting)

    # ------------------------------------------------------------------ from the lanes
    def lane_idle(self) -> None:
        """Something can be sent, or is there to be sent: put requests together at the end of this pass."""
        if self._waiting and self.is_usable and not self._is_flush_planned:
            self._is_flush_planned = True
            self._reactor.at_flush(self._dispatch)

    def lane_ended(self, lane: Lane, reason: str, was_busy: bool) -> None:
        """A connection is gone."""
        self._lanes.remove(lane)
        self._report(LaneLost(self.broker_id, reason, was_busy))
        if self._waiting and not self._lanes:
            self.refuse_waiting(reason)

    def answered(self, lane: Lane, loads: list[Load], throttle_ms: int) -> None:
        """An answer came; remember who is slow and whether the broker throttles."""
        now = lane.answered_at = self._reactor.now()
        if throttle_ms > 0:
            self._throttled_until = now + limits.LANE_THROTTLED_PATIENCE_SECONDS
        if now - lane.sent_at > limits.SLOW_APPEND_SECONDS:
            for load in loads:
                self._slow[(load.topic, load.partition)] = now + limits.SLOW_PARTITION_SECONDS

    # ------------------------------------------------------------------ inside
    def _dispatch(self) -> None:
        self._is_flush_planned = False
        while self._waiting and self.is_usable:
            lane = next((lane for lane in self._lanes if lane.is_idle), None)
            if lane is None:
                self._open_one()
                return
            loads = self._take()
            if not loads:
                return
            now = self._reactor.now()
            lane.send(loads, now)
            for load in loads:
                self._tell(load)

    def _tell(self, load: Load) -> None:
        for job in load.jobs:
            names = job.append.identities
            self._report(AppendSent(self.broker_id, load.topic, load.partition, names))
            if len(load.jobs) > 1:
                self._report(AppendMerged(self.broker_id, load.topic, load.partition, names))

    def _open_one(self) -> None:
        connecting = any(not lane.is_busy and not lane.is_idle for lane in self._lanes)
        if len(self._lanes) < self._lanes_max and not connecting:
            lane = Lane(self)
            self._lanes.append(lane)
            self._reactor.connect(self.address, lane)

    def _take(self) -> list[Load]:
        """Take what one request may hold. The last check of each append is made here, in the step of its send and
        before anything is merged: one that may not be sent leaves the others alone."""
        taken: dict[tuple[str, int], Load] = {}
        has_slow = False
        size = 0
        left: deque[Job] = deque()
        lease_refusal = None if self.may_send() else "the lease has ended"
        now = self._reactor.now()
        while self._waiting:
            job = self._waiting.popleft()
            partition = (job.append.topic, job.append.partition)
            load = taken.get(partition)
            slow = self._is_slow(partition, now)
            fits = not taken or size + job.size_bytes <= limits.LANE_REQUEST_BYTES_MAX
            if load is not None:
                fits = fits and load.room_for(job)
            elif taken and (slow or has_slow):
                fits = False
            if not fits:
                left.append(job)
                continue
            refusal = lease_refusal or job.append.may_send()
            if refusal is not None:
                job.done(NotSent(refusal))
                continue
            if load is not None:
                load.add(job)
            else:
                taken[partition] = Load(job)
            size += job.size_bytes
            has_slow = has_slow or slow
        self._waiting = left
        return list(taken.values())

    def _is_slow(self, partition: tuple[str, int], now: float) -> bool:
        until = self._slow.get(partition)
        if until is None:
            return False
        if now < until:
            return True
        del self._slow[partition]
        return False

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._reactor.later(1.0, self._look_after)

    def _look_after(self) -> None:
        """Once a second: requests that are out too long, and appends that no lane could take."""
        self._is_watching = False
        now = self._reactor.now()
        for lane in list(self._lanes):
            patience = limits.LANE_PATIENCE_SECONDS
            if now < self._throttled_until and not lane.is_forsaken:
                patience = limits.LANE_THROTTLED_PATIENCE_SECONDS
            if lane.is_busy and now - lane.sent_at > lane.timeout_seconds + patience:
                lane.give_up("no answer in time")
        if self._waiting and not any(lane.is_busy for lane in self._lanes):
            oldest = self._waiting[0].queued_at
            if now - oldest > limits.SLOW_APPEND_SECONDS:
                self.refuse_waiting("the broker takes no connection")
        self.lane_idle()  # a connection that could not be opened is tried again, also while others are busy
        if self._waiting or any(lane.is_busy for lane in self._lanes):
            self._watch()
