"""Where searches in the logs of partitions begin: the newest positions that are safe as a lower bound (rule R8), and
where these were some time ago (rule R10). Reads a position from the broker when the known one is too old."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...codecs.steps import Steps
from ...state.entry import Entry
from .. import limits
from ..flow.recent_time import RecentTime
from .log_offsets import Later, Position, newest_position
from .offset_checkpoints import OffsetCheckpoints, Place


class LowerBounds:
    """The lower bounds of all partitions, as one process knows them. ``known``: when the newest position was learned
    (reactor seconds), and that position. ``checkpoints``: such positions from some time ago."""

    def __init__(self, time: RecentTime) -> None:
        self.known: dict[Place, tuple[float, Position]] = {}
        self.checkpoints = OffsetCheckpoints()
        self._time = time
        self._checkpoints_at = float("-inf")

    def note(self, topic: str, partition: int, position: Position) -> None:
        """Remember a position, unless a higher one was learned within ``BOUND_AGE_SECONDS``. An older one is replaced
        even if it is higher: a log may become shorter."""
        place, now, known = (topic, partition), self._time.now, self.known
        if place in known:
            since, newest = known[place]
            if newest.offset > position.offset and now - since <= limits.BOUND_AGE_SECONDS:
                return
        known[place] = (now, position)

    def drop(self, topic: str, partition: int) -> None:
        """Forget the newest position, as an append was answered with an error and may vanish: the bound of the next one
        is read again (rule R8). Checkpoints stay: their anchors are compared when they are used."""
        self.known.pop((topic, partition), None)

    def forget(self, topic: str, partition: int) -> None:
        """Forget all positions, checkpoints included: they were seen not to fit this log."""
        self.drop(topic, partition)
        self.checkpoints.forget((topic, partition))

    def are_checkpoints_due(self, now: float) -> bool:
        """Is it time to take checkpoints?"""
        every = self.checkpoints.horizon_seconds / limits.CHECKPOINTS_PER_HORIZON
        return bool(self.known) and now - self._checkpoints_at >= every

    def taking_checkpoints(self, now: Callable[[], float]) -> Steps[None]:
        """Take a checkpoint of every partition at its newest position, and forget positions that were not learned again
        for long (``BOUND_KEPT_SECONDS``). ``now`` returns reactor seconds and is asked in each step: a position that is
        learned during the steps may lie above appends from before them."""
        self._checkpoints_at = now()
        places = list(self.known)
        for at in range(0, len(places), limits.CHECKPOINTS_PER_STEP):
            if at:
                yield
            self._take_some(now(), places[at : at + limits.CHECKPOINTS_PER_STEP])

    def _take_some(self, now: float, places: Sequence[Place]) -> None:
        for place in places:
            if place in self.known:
                since, position = self.known[place]
                self.checkpoints.note(now, place, position)
                if now - since > limits.BOUND_KEPT_SECONDS:
                    del self.known[place]

    # R8 lives here: where a search begins.
    async def lower_bound(self, topic: str, partition: int, entry: Entry | None) -> Position | Later:
        """Rule R8: return the higher of the end of the producer's last commit and the newest position known of the
        partition, which is read again when it is old. A position with an anchor is preferred to one without; of two
        without, the lower one is taken. Later: there is none, as the leader cannot be asked.

        Two without occur only where the newest record cannot be read (a topic that stores format v2). The model's row
        t3 has no such bound, as the topic may be recreated while a batch is in doubt. Here a lost request is sent again
        only because of it: otherwise each search reads the whole log, and fails at its first record."""
        known = self.known.get((topic, partition))
        if known is None or self._time.now - known[0] > limits.BOUND_AGE_SECONDS:
            position = await newest_position(topic, partition)
            if isinstance(position, Position):
                self.note(topic, partition, position)
            known = self.known.get((topic, partition))
        own = Position(entry.end_offset, entry.anchor) if entry is not None and entry.end_offset >= 0 else None
        if known is None:
            if own is not None and own.is_recognised:
                return own
            return Later("the partition's leader cannot be asked")
        newest = known[1]
        if own is None:
            return newest
        if own.is_recognised and newest.is_recognised:
            return newest if newest.offset > own.offset else own
        if own.is_recognised or newest.is_recognised:
            return own if own.is_recognised else newest
        return newest if newest.offset < own.offset else own
