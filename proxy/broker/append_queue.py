"""Appends that wait for a produce connection to one broker: a queue for each partition, and rings of those that are
ready. Pure.

The cost of a request depends on what it takes, not on what waits. Partitions take turns, and at each partition the
senders take turns, by address: a sender that floods a partition delays no other. Appends that would delay each other
without need are not taken together: those of partitions of another pace (``slow_partitions.py``), and those of clients
with much shorter timeouts, as the broker is given the smallest timeout in a request (rule R5)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from ..flow.outcome import NotSent
from .queued_append import QueuedAppend
from .slow_partitions import ON_TRIAL, USUAL, Place

_Ring = OrderedDict["PartitionQueue", None]
_TIMEOUT_CLASSES = 4
"""Of append timeouts: below 2 s, below 4 s, below 8 s, and from 8 s on. A request holds appends of one class, so that
between 2 and 8 s no timeout in it is more than twice the smallest."""
_QUEUES_KEPT_MIN = 1024


class PartitionQueue:
    """Appends of one partition and one timeout class; their senders take turns. ``only``: the append that came while
    the queue was empty, as nearly all do; it is the next one."""

    __slots__ = ("_by_sender", "again", "count", "only", "pace")

    def __init__(self, pace: int) -> None:
        self.pace = pace
        self.count = 0
        self.only: QueuedAppend | None = None
        self.again: QueuedAppend | None = None
        """The next one, which was put back."""
        self._by_sender: OrderedDict[object, QueuedAppend | deque[QueuedAppend]] = OrderedDict()
        """By sender, what came while others waited: its only append, or a deque of several."""

    def queue_append(self, append: QueuedAppend) -> None:
        """Queue one append after the others of its sender; some wait already."""
        self.count += 1
        sender, waiting = append.sender, self._by_sender
        if sender not in waiting:
            waiting[sender] = append
            return
        appends = waiting[sender]
        if type(appends) is deque:
            appends.append(append)
        else:
            waiting[sender] = deque((appends, append))  # type: ignore[arg-type]

    def pop(self) -> QueuedAppend:
        """Take the next append."""
        self.count -= 1
        if self.again is not None:
            append, self.again = self.again, None
            return append
        if self.only is not None:
            append, self.only = self.only, None
            return append
        sender, appends = self._by_sender.popitem(last=False)
        if type(appends) is not deque:
            return appends  # type: ignore[return-value]
        append = appends.popleft()
        if appends:
            self._by_sender[sender] = appends
        return append

    def put_back(self, append: QueuedAppend) -> None:
        """Put back an append that did not fit into the request: it is the next one."""
        assert self.again is None
        self.count += 1
        self.again = append


class AppendQueue:
    """All waiting appends of one broker."""

    def __init__(self, pace_of: Callable[[Place], int]) -> None:
        self.count = 0
        self.size_bytes = 0
        self._pace_of = pace_of
        self._queues: dict[tuple[str, int, int], PartitionQueue] = {}
        self._queues_max = _QUEUES_KEPT_MIN
        self._rings: dict[int, OrderedDict[int, _Ring]] = _no_rings()
        """By pace, then by timeout class; the class that was served last comes last."""

    def __bool__(self) -> bool:
        return self.count > 0

    def take_all(self) -> list[QueuedAppend]:
        """Take everything out."""
        appends = []
        for queue in self._queues.values():
            while queue.count:
                appends.append(self._taken(queue.pop()))
        self._rings = _no_rings()
        return appends

    def queue_append(self, append: QueuedAppend) -> None:
        """Let one more append wait."""
        timeout_ms = append.timeout_ms
        timeout_class = 3 if timeout_ms >= 8000 else 0 if timeout_ms < 2000 else 1 if timeout_ms < 4000 else 2
        key = (append.topic, append.partition, timeout_class)
        queue = self._queues[key] if key in self._queues else self._new_queue(key)
        if queue.count:
            queue.queue_append(append)
        else:
            if queue.pace != USUAL:
                queue.pace = self._pace_of(key[:2])
            queue.count, queue.only = 1, append
            self._rings[queue.pace][timeout_class][queue] = None
        self.count += 1
        self.size_bytes += append.size_bytes

    def move(self, place: Place, pace: int) -> None:
        """The pace of a partition has changed."""
        for timeout_class in range(_TIMEOUT_CLASSES):
            queue = self._queues.get((*place, timeout_class))
            if queue is not None and queue.pace != pace:
                before, queue.pace = queue.pace, pace
                if queue.count:
                    del self._rings[before][timeout_class][queue]
                    self._rings[pace][timeout_class][queue] = None

    def has(self, pace: int) -> bool:
        """Does any append of this pace wait?"""
        return any(self._rings[pace].values())

    def take_appends(self, pace: int, bytes_max: int, lease_refusal: str | None, *, one: bool) -> list[QueuedAppend]:
        """Take what one request may hold, of the timeout class whose turn it is: at most one append for each partition,
        or with ``one`` a single append. Each append is checked for the last time here, in the step of its send; one
        that may not be sent ends as ``NotSent`` and does not affect the others (rules R4, R17). The first append is
        taken however large it is."""
        ring = self._next_ring(pace)
        taken: list[QueuedAppend] = []
        more: list[PartitionQueue] = []
        refused: list[tuple[QueuedAppend, str]] = []
        room = bytes_max
        is_v2 = False
        while ring:
            queue, _ = ring.popitem(last=False)
            if queue.only is not None and queue.again is None:
                append, queue.only = queue.only, None
                queue.count -= 1
            else:
                append = queue.pop()
            fits = not taken or (append.size_bytes <= room and append.form.is_v2 is is_v2)
            refusal = (lease_refusal or append.may_send()) if fits else None
            if not fits or refusal is not None:
                if refusal is not None:
                    refused.append((self._taken(append), refusal))
                else:
                    queue.put_back(append)
                if queue.count:
                    ring[queue] = None
                    ring.move_to_end(queue, last=False)
                if not fits:
                    break
                continue
            self.count -= 1
            self.size_bytes -= append.size_bytes
            if not taken:
                is_v2 = append.form.is_v2
            taken += (append,)
            room -= append.size_bytes
            if queue.count:
                more += (queue,)
            if one:
                break
        for queue in more:
            ring[queue] = None
        for append, reason in refused:
            append.done(NotSent(reason))
        return taken

    # ------------------------------------------------------------------ inside
    def _taken(self, append: QueuedAppend) -> QueuedAppend:
        self.count -= 1
        self.size_bytes -= append.size_bytes
        return append

    def _next_ring(self, pace: int) -> _Ring:
        """Return the next ring of this pace: timeout classes take turns, too."""
        rings = self._rings[pace]
        timeout_class = 0
        for timeout_class in rings:
            if rings[timeout_class]:
                break
        rings.move_to_end(timeout_class)
        return rings[timeout_class]

    def _new_queue(self, key: tuple[str, int, int]) -> PartitionQueue:
        if len(self._queues) >= self._queues_max:
            self._queues = {name: queue for name, queue in self._queues.items() if queue.count}
            self._queues_max = max(_QUEUES_KEPT_MIN, 2 * len(self._queues))
        queue = self._queues[key] = PartitionQueue(self._pace_of(key[:2]))
        return queue


def _no_rings() -> dict[int, OrderedDict[int, _Ring]]:
    return {pace: OrderedDict((one, OrderedDict()) for one in range(_TIMEOUT_CLASSES)) for pace in range(ON_TRIAL + 1)}
