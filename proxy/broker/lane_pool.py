"""The lanes to one broker, and the appends that wait for them. Sans-IO.

Any idle lane takes all appends that are ready and go together (``append_queue.py``), at most one wrapper per partition:
of a partition that is twice in one request the broker silently loses the first. Lanes are opened as
appends have to wait, and closed when they are idle. When they are scarce, requests leave one after the other, with all
that has arrived meanwhile (``lane_demand.py``).

All slow partitions together (``slow_partitions.py``) have two lanes at most. A request of others that turns out to hold
a slow partition keeps its lane for as long as it is out; another lane is opened in its place, so that no other
partition waits for it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import chain, islice
from math import ceil

from ...reactor import Reactor
from .. import limits
from ..events import ProduceConnectionLost, ProduceOverdue, Report
from ..flow.effects import Append
from ..flow.outcome import NotSent, Outcome
from .append_queue import AppendQueue
from .lane import Lane
from .lane_demand import LaneDemand
from .queued_append import AppendOfFlow, QueuedAppend
from .slow_partitions import SLOW, SUSPECT, USUAL, PartitionPaces, Place

_SERVED = (USUAL, SLOW, SUSPECT)
"""In the order of their numbers. Partitions on trial wait."""


@dataclass(frozen=True, slots=True)
class LaneStatistics:
    """Connections to one broker that may carry a batch, and appends that wait for one, at one moment. ``overdue``: what
    is in requests that have no answer for ``OVERDUE_SECONDS``; ``overdue_seconds``: of the oldest of these."""

    busy: int = 0
    idle: int = 0
    waiting_appends: int = 0
    overdue_seconds: float = 0.0
    overdue: tuple[Place, ...] = ()

    def __add__(self, other: LaneStatistics) -> LaneStatistics:
        waiting = self.waiting_appends + other.waiting_appends
        seconds = max(self.overdue_seconds, other.overdue_seconds)
        overdue = (*self.overdue, *other.overdue)[: limits.OVERDUE_SHOWN_MAX]
        return LaneStatistics(self.busy + other.busy, self.idle + other.idle, waiting, seconds, overdue)


NO_LANES = LaneStatistics()


def _nobody_to_open(_lane: Lane) -> None:
    """There are no more connections."""


def _is_there() -> bool:
    """Nothing to do: the pool is told when the broker is away."""
    return False


class LanePool:
    """The lanes to one broker. ``open_lane``: opens a connection; the lane is told when it is open. ``may_send``: does
    the lease still allow to send (rule R4)? ``lanes_max``: how many lanes there may be at this moment for partitions
    that are not slow. ``look_seconds``: how often the requests that are out are checked. ``is_away``: asked then; is
    the broker away though ``set_usable`` was not called?"""

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        open_lane: Callable[[Lane], None],
        *,
        may_send: Callable[[], bool],
        report: Report,
        lanes_max: Callable[[], int] = lambda: limits.LANES_PER_BROKER,
        look_seconds: float = limits.LANE_LOOK_SECONDS,
        is_away: Callable[[], bool] = _is_there,
    ) -> None:
        self.broker_id = broker_id
        self.may_send = may_send
        self._open_lane = open_lane
        self._look_seconds = look_seconds
        self._overdue_looks = ceil(limits.OVERDUE_SECONDS / look_seconds)
        self._is_away = is_away
        self._reactor = reactor
        self._report = report
        self._lanes_max = lanes_max
        self._lanes: list[Lane] = []
        self._idle: list[Lane] = []
        """The lane that was busy last comes last, and is used next."""
        self._usual_out = 0
        self._slow_out = 0
        self._late_out = 0
        """Number of lanes whose request was found to hold a slow partition while it was out."""
        self._paces = PartitionPaces(reactor.now, self._moved)
        self._waiting = AppendQueue(self._paces.of)
        self._demand = LaneDemand()
        self._is_holding = False
        self._turn = 0
        self._stands_still_since = 0.0
        self._is_flush_planned = False
        self._is_watching = False
        self._is_closing_idle = False
        self._throttled_until = 0.0
        self.is_usable = False
        """May batches be sent to the broker? Not before its version is certain, nor while it stores format v2."""

    def append(self, effect: Append, done: Callable[[Outcome], None]) -> None:
        """Queue one append; ``done`` is called with the outcome, once."""
        self.push(AppendOfFlow(effect, done))

    def push(self, append: QueuedAppend) -> None:
        """Queue one append; it gets its outcome, once."""
        if not self._waiting.count:
            self._stands_still_since = self._reactor.now()
        self._waiting.push(append)
        if not self._is_flush_planned:
            self._plan_dispatch()
        if not self._is_watching:
            self._watch()

    def set_usable(self, usable: bool) -> None:
        """Batches may be sent to the broker from now on, or not: its control connection was lost, or it
        stores format v2."""
        self.is_usable = usable
        if usable:
            self._plan_dispatch()
        else:
            self.refuse_waiting("the broker is away")
            self._forsake_busy()

    def refuse_waiting(self, reason: str) -> None:
        """End all waiting appends as not sent."""
        for append in self._waiting.take_all():
            append.done(NotSent(reason))

    def refuse_unwanted(self) -> None:
        """Give back what may not be sent any more (rule R17)."""
        for append in self._waiting.take_all():
            refusal = append.may_send()
            if refusal is None:
                self._waiting.push(append)
            else:
                append.done(NotSent(refusal))

    def give_up_busy(self, reason: str) -> None:
        """Reset the lanes with a request out: a part of a request that was covered by the lease of another incarnation
        must not leave under a new one (rule R4)."""
        for lane in list(self._lanes):
            if lane.is_busy:
                lane.give_up(reason)

    def close_idle(self) -> None:
        """Close the lanes over which nothing is out."""
        for lane in list(self._idle):
            self._forget(lane)
            lane.close()

    def end(self, reason: str) -> None:
        """There are no more connections. Drops the callbacks, as otherwise the pool and their owner would refer to each
        other."""
        self.is_usable = False
        self.refuse_waiting(reason)
        self._paces.end()
        self._open_lane, self._is_away = _nobody_to_open, _is_there

    def close(self) -> None:
        """Reset all lanes; the appends that are out are in doubt."""
        self.is_usable = False
        self.refuse_waiting("the proxy stops using this broker")
        for lane in list(self._lanes):
            lane.give_up("the proxy stops using this broker")

    def statistics(self) -> LaneStatistics:
        """Return the figures of this moment."""
        return LaneStatistics(self.busy_lanes, self.idle_lanes, self.waiting_appends, *self.overdue())

    def overdue(self) -> tuple[float, tuple[Place, ...]]:
        """Return the age in seconds of the oldest overdue request, and what is in all of them."""
        found = [lane for lane in list(self._lanes) if lane.is_busy and lane.is_overdue]
        return self._overdue_of(found) if found else (0.0, ())

    @property
    def busy_lanes(self) -> int:
        """Lanes with a request out."""
        return self._usual_out + self._slow_out + self._late_out

    @property
    def idle_lanes(self) -> int:
        """Lanes that could send now."""
        return len(self._idle)

    @property
    def waiting_appends(self) -> int:
        """Appends that wait for a lane."""
        return self._waiting.count

    @property
    def slow_partitions(self) -> int:
        """Partitions that have lanes of their own for now."""
        return len(self._paces.slow)

    def _overdue_of(self, lanes: Collection[Lane]) -> tuple[float, tuple[Place, ...]]:
        oldest = min(lane.sent_at for lane in lanes)
        places = tuple(islice(chain.from_iterable(lane.places for lane in lanes), limits.OVERDUE_SHOWN_MAX))
        return self._reactor.now() - oldest, places

    # ------------------------------------------------------------------ from the lanes
    def lane_opened(self, lane: Lane) -> None:
        """A lane's connection is open."""
        lane.answered_at = self._reactor.now()
        self.lane_idle(lane)

    def lane_idle(self, lane: Lane) -> None:
        """A lane can take a request."""
        self._idle.append(lane)
        self._plan_dispatch()

    def lane_ended(self, lane: Lane, reason: str) -> None:
        """A lane's connection has ended."""
        was_busy = self._forget(lane)
        self._report(ProduceConnectionLost(self.broker_id, reason, was_busy))
        if self._waiting and not self._lanes:
            self.refuse_waiting(reason)

    def answered(self, lane: Lane, timed_out: Collection[Place], throttle_ms: int) -> None:
        """An answer came: note which partitions are slow, and whether the broker throttles. ``timed_out``: the
        partitions whose replicas are behind, as the broker says."""
        now = lane.answered_at = self._reactor.now()
        self._count_out(lane)
        if throttle_ms > 0:
            self._throttled_until = now + limits.LANE_THROTTLED_ANSWER_SECONDS_MAX
        elif lane.pace != SLOW and not timed_out:
            self._paces.measure(now - lane.sent_at)
        if timed_out or lane.is_late or self._paces.known:
            self._paces.answered(lane.places, timed_out, lane.is_late and throttle_ms == 0)

    # ------------------------------------------------------------------ inside
    def _moved(self, place: Place, pace: int) -> None:
        self._waiting.move(place, pace)
        self._plan_dispatch()

    def _plan_dispatch(self) -> None:
        """Make requests at the end of this pass."""
        if not self._is_flush_planned and self._waiting.count and self.is_usable:
            self._is_flush_planned = True
            self._reactor.at_flush(self._dispatch)

    def _dispatch(self) -> None:
        self._is_flush_planned = False
        self._demand.came(self._waiting.count)
        while self._waiting.count and self.is_usable:
            most = self._lanes_max()
            pace, lanes = self._next(most)
            if not lanes:
                return
            if not self._idle:
                self._open_one()
                return
            if pace == USUAL and self._holds_back(most):
                return
            appends = self._take(pace, lanes)
            if appends:
                now = self._stands_still_since = self._reactor.now()
                lane = self._idle.pop()
                lane.send(appends, pace, now)
                if pace == SLOW:
                    self._slow_out += 1
                else:
                    self._usual_out += 1
                    self._demand.sent(now, lane.count)
                for append in appends:
                    append.has_left(self._report, self.broker_id)

    def _next(self, most: int) -> tuple[int, int]:
        """Return the pace whose turn it is and how many more of its requests may be out; zeros if none may leave.
        ``most``: so many lanes there may be."""
        usual = max(0, most - self._usual_out - max(0, self._late_out - most))
        if not self._paces.known:
            return USUAL, usual
        slow = limits.SLOW_LANES_PER_BROKER - self._slow_out
        for step in range(1, len(_SERVED) + 1):
            pace = _SERVED[(self._turn + step) % len(_SERVED)]
            lanes = slow if pace == SLOW else usual
            if lanes and self._waiting.has(pace):
                self._turn = pace
                return pace, lanes
        return USUAL, 0

    def _holds_back(self, most: int) -> bool:
        """Is the next request to wait for more appends? Then a timer checks again."""
        paces, now = self._paces, self._reactor.now()
        seconds = self._demand.hold_seconds(now, self._waiting.count, most, paces.answer_seconds)
        if seconds > 0 and not self._is_holding:
            self._is_holding = True
            self._reactor.later(seconds, self._held_long_enough)
        return seconds > 0

    def _held_long_enough(self) -> None:
        self._is_holding = False
        self._plan_dispatch()

    def _take(self, pace: int, lanes: int) -> list[QueuedAppend]:
        """Take the appends of the next request: what waits, divided by ``lanes``, the requests that may still be out;
        within the limits for the bytes of a request."""
        bytes_max = self._waiting.size_bytes // lanes
        if bytes_max < limits.LANE_REQUEST_BYTES:
            bytes_max = limits.LANE_REQUEST_BYTES
        elif bytes_max > limits.LANE_REQUEST_BYTES_MAX:
            bytes_max = limits.LANE_REQUEST_BYTES_MAX
        lease_refusal = None if self.may_send() else "the lease has ended"
        appends = self._waiting.take(pace, bytes_max, lease_refusal, one=pace == SUSPECT)
        if pace == SUSPECT and appends:
            self._paces.tried((appends[0].topic, appends[0].partition))
        return appends

    def _open_one(self) -> None:
        """Open another lane if all are busy; only one is being opened at a time. It is asked for only where one more
        request may be out, so there are never more lanes than may be busy at a time."""
        if len(self._lanes) == self.busy_lanes:
            lane = Lane(self)
            self._lanes.append(lane)
            self._open_lane(lane)
            self._close_idle_later()

    def _forget(self, lane: Lane) -> bool:
        """Remove a lane; return whether a request was out."""
        self._lanes.remove(lane)
        if lane.is_busy:
            self._count_out(lane)
            if self._paces.known:
                self._paces.unanswered(lane.places)
            return True
        if lane in self._idle:
            self._idle.remove(lane)
        return False

    def _count_out(self, lane: Lane) -> None:
        """The lane's request is out no longer."""
        if lane.pace == SLOW:
            self._slow_out -= 1
        elif lane.is_late:
            self._late_out -= 1
        else:
            self._usual_out -= 1
            self._demand.done(lane.count)

    def _forsake_busy(self) -> None:
        for lane in self._lanes:
            lane.is_forsaken = lane.is_busy

    # ------------------------------------------------------------------ from time to time
    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._reactor.later(self._look_seconds, self._look_after)

    def _look_after(self) -> None:
        """Check for requests that are late or out too long, and for appends that no lane could take."""
        self._is_watching = False
        now = self._reactor.now()
        late_after = 1 + ceil(self._paces.late_seconds / self._look_seconds)
        if self._is_away():
            self._forsake_busy()
        overdue: list[Lane] = []
        for lane in list(self._lanes):
            if not lane.is_busy:
                continue
            is_throttled = now < self._throttled_until and not lane.is_forsaken
            answer_seconds_max = limits.LANE_ANSWER_SECONDS_MAX
            if is_throttled:
                answer_seconds_max = limits.LANE_THROTTLED_ANSWER_SECONDS_MAX
            if now - lane.sent_at > lane.timeout_seconds + answer_seconds_max:
                lane.give_up("no answer in time")
                continue
            lane.looks += 1
            if is_throttled:
                continue
            if lane.looks >= late_after and not lane.is_late:
                self._is_late(lane)
            if lane.looks >= self._overdue_looks and not lane.is_overdue:
                lane.is_overdue = True
                overdue.append(lane)
        if overdue:
            self._report(ProduceOverdue(self.broker_id, *self._overdue_of(overdue)))
        if self._waiting and not self.busy_lanes and now - self._stands_still_since > limits.SLOW_APPEND_SECONDS:
            self.refuse_waiting("the broker takes no connection")
        self._plan_dispatch()  # a connection that could not be opened is tried again, also while others are busy
        if self._waiting or self.busy_lanes:
            self._watch()

    def _is_late(self, lane: Lane) -> None:
        """The lane's request is late: other appends get a lane in its place, and its partitions go alone."""
        self._count_out(lane)
        lane.is_late = True
        if lane.pace == SLOW:
            self._slow_out += 1
        else:
            self._late_out += 1
        self._paces.late(lane.places)

    def _close_idle_later(self) -> None:
        if not self._is_closing_idle and len(self._lanes) > 1:
            self._is_closing_idle = True
            self._reactor.later(limits.LANE_IDLE_SECONDS, self._close_unneeded)

    def _close_unneeded(self) -> None:
        """Close lanes that were idle for ``LANE_IDLE_SECONDS``, all but one."""
        self._is_closing_idle = False
        before = self._reactor.now() - limits.LANE_IDLE_SECONDS
        while len(self._lanes) > 1 and self._idle and self._idle[0].answered_at <= before:
            lane = self._idle[0]
            self._forget(lane)
            lane.close()
        self._close_idle_later()
