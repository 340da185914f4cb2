"""Appends that wait for a lane to one broker: a queue for each partition, and rings of those that are ready. Pure.

The cost of a request depends on what it takes, not on what waits. Partitions take turns, and at each partition the
senders take turns, by address: a sender that floods a partition delays no other. Appends that would delay each other
without need are not taken together: those of partitions of another pace (``slow_partitions.py``), and those of clients
with much shorter timeouts, as the broker is given the smallest timeout in a request (rule R5)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from .. import limits
from ..flow.outcome import NotSent
from .merge import Job, Load
from .slow_partitions import USUAL, Place

_Ring = OrderedDict["PartitionQueue", None]
_TIMEOUT_CLASSES = 4
_QUEUES_KEPT_MIN = 1024


def _timeout_class(timeout_ms: int) -> int:
    """Return the timeout class of an append. Upstream requests hold appends of one class, whose timeouts are no more
    than twice the smallest of them."""
    if timeout_ms >= 8000:
        return 3
    return 0 if timeout_ms < 2000 else 1 if timeout_ms < 4000 else 2


class PartitionQueue:
    """Appends of one partition and one timeout class; their senders take turns."""

    __slots__ = ("_again", "_by_sender", "count", "pace")

    def __init__(self, pace: int) -> None:
        self.pace = pace
        self.count = 0
        self._again: deque[Job] = deque()
        """The next ones. Nearly always one append waits alone, and is here."""
        self._by_sender: OrderedDict[object, deque[Job]] = OrderedDict()

    def push(self, job: Job) -> None:
        """Put one append behind the others of its sender."""
        self.count += 1
        if self.count == 1:
            self._again.append(job)
            return
        jobs = self._by_sender.get(job.append.sender)
        if jobs is None:
            self._by_sender[job.append.sender] = deque((job,))
        else:
            jobs.append(job)

    def pop(self) -> Job:
        """Take the next append."""
        self.count -= 1
        if self._again:
            return self._again.popleft()
        sender, jobs = self._by_sender.popitem(last=False)
        job = jobs.popleft()
        if jobs:
            self._by_sender[sender] = jobs
        return job

    def put_back(self, jobs: Sequence[Job]) -> None:
        """Put appends back that could not be taken: they are the next ones, in this order."""
        self.count += len(jobs)
        self._again.extendleft(reversed(jobs))


class AppendQueue:
    """All waiting appends of one broker."""

    def __init__(self, pace_of: Callable[[Place], int]) -> None:
        self.count = 0
        self.size_bytes = 0
        self._pace_of = pace_of
        self._queues: dict[tuple[str, int, int], PartitionQueue] = {}
        self._queues_max = _QUEUES_KEPT_MIN
        self._rings: dict[int, OrderedDict[int, _Ring]] = {}
        """By pace, then by timeout class; the class that was served last comes last."""

    def __bool__(self) -> bool:
        return self.count > 0

    def take_all(self) -> list[Job]:
        """Take everything out."""
        jobs = []
        for queue in self._queues.values():
            while queue.count:
                jobs.append(self._taken(queue.pop()))
        self._rings.clear()
        return jobs

    def push(self, job: Job) -> None:
        """Let one more append wait."""
        append = job.append
        timeout_class = _timeout_class(append.timeout_ms)
        key = (append.topic, append.partition, timeout_class)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._new_queue(key)
        if not queue.count:
            if queue.pace != USUAL:
                queue.pace = self._pace_of(key[:2])
            self._ring(queue.pace, timeout_class)[queue] = None
        queue.push(job)
        self.count += 1
        self.size_bytes += job.size_bytes

    def move(self, place: Place, pace: int) -> None:
        """The pace of a partition has changed."""
        for timeout_class in range(_TIMEOUT_CLASSES):
            queue = self._queues.get((*place, timeout_class))
            if queue is not None and queue.pace != pace:
                before, queue.pace = queue.pace, pace
                if queue.count:
                    del self._ring(before, timeout_class)[queue]
                    self._ring(pace, timeout_class)[queue] = None

    def has(self, pace: int) -> bool:
        """Does any append of this pace wait?"""
        return any(self._rings.get(pace, {}).values())

    def take(self, pace: int, bytes_max: int, lease_refusal: str | None, *, one: bool) -> list[Load]:
        """Take what one request may hold: at most one wrapper of a partition, or with ``one`` of one partition only.
        The last check of each append is made here, in the step of its send and before anything is merged, so that one
        that may not be sent leaves the others alone (rules R4, R17). The first append is taken however large it is."""
        ring = self._next_ring(pace)
        loads: list[Load] = []
        more: list[PartitionQueue] = []
        refused: list[tuple[Job, str]] = []
        room = bytes_max
        while ring:
            queue, _ = ring.popitem(last=False)
            job = queue.pop()
            fits = not loads or job.size_bytes <= room
            refusal = (lease_refusal or job.append.may_send()) if fits else None
            if not fits or refusal is not None:
                if refusal is not None:
                    refused.append((self._taken(job), refusal))
                else:
                    queue.put_back([job])
                if queue.count:
                    ring[queue] = None
                    ring.move_to_end(queue, last=False)
                if not fits:
                    break
                continue
            self.count -= 1
            self.size_bytes -= job.size_bytes
            load = job.load()
            loads.append(load)
            if queue.count and load.may_grow:
                self._merge(load, queue, room, lease_refusal, refused)
            room -= load.size_bytes
            if queue.count:
                more.append(queue)
            if one:
                break
        for queue in more:
            ring[queue] = None
        for job, reason in refused:
            job.done(NotSent(reason))
        return loads

    # ------------------------------------------------------------------ inside
    def _merge(
        self,
        load: Load,
        queue: PartitionQueue,
        room: int,
        lease_refusal: str | None,
        refused: list[tuple[Job, str]],
    ) -> None:
        """Put other appends that wait for its partition into the wrapper."""
        misfits: list[Job] = []
        while queue.count and len(misfits) < limits.MERGE_MISFITS_MAX:
            job = queue.pop()
            if load.size_bytes + job.size_bytes > room or not load.room_for(job):
                misfits.append(job)
                continue
            self._taken(job)
            refusal = lease_refusal or job.append.may_send()
            if refusal is not None:
                refused.append((job, refusal))
                continue
            load.add(job)
        queue.put_back(misfits)

    def _taken(self, job: Job) -> Job:
        self.count -= 1
        self.size_bytes -= job.size_bytes
        return job

    def _ring(self, pace: int, timeout_class: int) -> _Ring:
        rings = self._rings.get(pace)
        if rings is None:
            rings = self._rings[pace] = OrderedDict()
        ring = rings.get(timeout_class)
        if ring is None:
            ring = rings[timeout_class] = OrderedDict()
        return ring

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
