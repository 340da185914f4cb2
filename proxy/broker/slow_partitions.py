"""Which partitions of a broker are slow, judged by the requests that they were in (rule R19). Pure.

A request that stays out for too long makes each of its partitions possibly slow while it is still out: one of them
holds up the answer for all. A possibly slow partition gets one request of its own, its trial, which shows whether it is
slow. Says which are slow; ``append_queue.py`` keeps them apart."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from .. import limits

Place = tuple[str, int]
"""Topic and partition."""

USUAL, SLOW, SUSPECT, ON_TRIAL = range(4)
"""SLOW: goes in requests with other slow ones only. SUSPECT: was late together with others, and goes alone, once: that
is its trial. ON_TRIAL: the request of its trial is out."""


def _nobody_to_tell(_place: Place, _pace: int) -> None:
    """For a pool that sends nothing any more."""


class PartitionPaces:
    """The partitions of one broker that are not as usual. ``moved`` is called when the pace of one changes."""

    def __init__(self, now: Callable[[], float], moved: Callable[[Place, int], None]) -> None:
        self._now = now
        self._moved = moved
        self.known: dict[Place, tuple[int, float]] = {}
        """The pace of each, and since when in reactor seconds; empty: all are as usual."""
        self.answer_seconds = 0.0
        """Seconds that an answer takes on average; 0 before the first one."""

    @property
    def slow(self) -> Collection[Place]:
        """The partitions that are known to be slow."""
        return [place for place, (pace, _) in self.known.items() if pace == SLOW]

    @property
    def late_seconds(self) -> float:
        """A request that is out for more seconds than this is late."""
        return max(limits.LATE_SECONDS_MIN, min(self.answer_seconds * limits.LATE_TIMES, limits.SLOW_APPEND_SECONDS))

    def of(self, place: Place) -> int:
        """Return the pace of a partition. One that was slow a while ago, and not tried since, is possibly slow
        again."""
        pace, since = self.known.get(place, (USUAL, 0.0))
        if pace == SLOW and self._now() - since > limits.SLOW_PARTITION_SECONDS:
            self._set(place, SUSPECT)
            return SUSPECT
        return pace

    def measure(self, seconds: float) -> None:
        """An answer took so many seconds. What counts as late depends on what is usual at this broker."""
        if seconds > limits.SLOW_APPEND_SECONDS:
            seconds = limits.SLOW_APPEND_SECONDS
        before = self.answer_seconds
        self.answer_seconds = before + (seconds - before) / limits.ANSWERS_AVERAGED if before else seconds

    def end(self) -> None:
        """Nothing is sent any more. Drops the callback, as otherwise this object and its pool would refer to each
        other."""
        self._moved = _nobody_to_tell

    # ------------------------------------------------------------------ what was seen
    def tried(self, place: Place) -> None:
        """The trial request of a possibly slow partition has left."""
        self._set(place, ON_TRIAL)

    def late(self, places: Sequence[Place]) -> None:
        """A request with these is out for too long."""
        for place in places:
            if len(places) == 1:
                self._set(place, SLOW)
            elif place not in self.known:
                self._set(place, SUSPECT)

    def answered(self, places: Sequence[Place], timed_out: Collection[Place], was_late: bool) -> None:
        """An answer came. ``timed_out``: the partitions whose replicas lag, as the broker itself says; the others then
        only waited for these. A late answer says nothing more: its partitions were judged when it became late, and may
        have shown since that they are not slow."""
        if was_late and not timed_out:
            return
        for place in places:
            if place in timed_out:
                self._set(place, SLOW)
            elif place in self.known:
                self._set(place, USUAL)

    def unanswered(self, places: Sequence[Place]) -> None:
        """The connection was lost, so a trial has shown nothing."""
        for place in places:
            if self.known.get(place, (USUAL, 0.0))[0] == ON_TRIAL:
                self._set(place, SUSPECT)

    # ------------------------------------------------------------------ inside
    def _set(self, place: Place, pace: int) -> None:
        now = self._now()
        before = self.known.pop(place, (USUAL, 0.0))[0]
        if pace != USUAL:
            self.known[place] = (pace, now)  # the newest ones come last
            self._forget_old(now)
        if pace != before:
            self._moved(place, pace)

    def _forget_old(self, now: float) -> None:
        """Forget what is old: a partition whose leader has moved gets no more answers here."""
        while True:
            place, (_, since) = next(iter(self.known.items()))
            if now - since <= limits.PACE_KEPT_SECONDS:
                return
            del self.known[place]
            self._moved(place, USUAL)
