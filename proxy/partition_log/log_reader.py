"""One broker's logs, read for all searches at once: of each partition one fetch is out at a time, and its chunk serves
every search that waits within it (rule R6). Sans-IO; concludes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from cachetools import TLRUCache

from ...reactor import Reactor
from .. import limits
from ..flow.effects import Unanswered
from .log_chunk import LogChunk, ReadLog

Done = Callable[[LogChunk | Unanswered], None]
Place = tuple[str, int]
_NOT_YET = float("inf")


@dataclass(slots=True)
class _Waiting:
    """The searches that wait for a chunk of one partition, each with the time at which it asked, in reactor seconds.
    ``left_at``: when the fetch left for the broker, in reactor seconds; ``_NOT_YET`` while it waits for others."""

    bytes_max: int
    readers: list[tuple[float, ReadLog, Done]] = field(default_factory=list)
    is_reading: bool = False
    left_at: float = _NOT_YET


class LogReader:
    """The reader of one broker. ``fetch`` asks the broker. It calls its second argument when the question leaves, and
    its third one, later, with the chunk that was taken apart, or Unanswered."""

    def __init__(self, reactor: Reactor, fetch: Callable[[ReadLog, Callable[[], None], Done], None]) -> None:
        self._reactor = reactor
        self._fetch = fetch
        self._life = 0
        """Counts the losses of the connection, so that a chunk from before the last loss is recognised."""
        self._fetch_bytes = limits.FETCH_BYTES
        """Bytes of one fetch: fewer after a slow one (a slow link, or a quota for which the broker delays answers),
        then more again."""
        self._waiting: dict[Place, _Waiting] = {}
        self._kept: TLRUCache[Place, tuple[float, LogChunk], float] = TLRUCache(
            limits.CHUNKS_KEPT_BYTES_MAX,
            ttu=lambda _, kept, __: kept[0] + limits.CHUNK_KEPT_SECONDS,
            timer=reactor.now,
            getsizeof=lambda kept: kept[1].held_bytes,
        )
        """Chunks, each with the time at which the question left, in reactor seconds."""

    def read(self, question: ReadLog, done: Done) -> None:
        """Call ``done`` with a chunk that begins at or below the offset, or Unanswered; never from inside this call."""
        place = (question.topic, question.partition)
        now = self._reactor.now()
        kept = self._kept.get(place)
        if kept is not None:
            left_at, chunk = kept
            if question.since <= left_at and chunk.start <= question.offset < chunk.end:
                self._reactor.later(0, lambda: done(chunk))
                return
        waiting = self._waiting.setdefault(place, _Waiting(self._fetch_bytes))
        waiting.readers.append((now, question, done))
        if not waiting.is_reading:
            waiting.is_reading = True
            # Searches that ask from now on are served as well.
            self._reactor.later(0, lambda: self._read_next(place, waiting))

    def forget(self) -> None:
        """The connection was lost: the log may have become another one."""
        self._life += 1
        self._kept.clear()

    def _read_next(self, place: Place, waiting: _Waiting) -> None:
        if not waiting.readers:
            del self._waiting[place]
            return
        # The search that has waited longest comes first, and of those that asked at the same time the lowest offset. So
        # none waits for the long scan of another.
        _, question, _ = min(waiting.readers, key=lambda one: (round(one[0] / limits.PROBE_SECONDS), one[1].offset))
        question = ReadLog(question.topic, question.partition, question.offset, waiting.bytes_max)
        waiting.left_at = _NOT_YET
        self._fetch(question, partial(self._leaves, waiting), partial(self._answered, place, waiting, self._life))

    def _leaves(self, waiting: _Waiting) -> None:
        waiting.left_at = self._reactor.now()

    def _answered(self, place: Place, waiting: _Waiting, life: int, chunk: LogChunk | Unanswered) -> None:
        served: list[Done] = []
        # Measured from when it left: the wait behind fetches of other partitions says nothing of the broker.
        self._adapt(self._reactor.now() - waiting.left_at, is_answered=not isinstance(chunk, Unanswered))
        if isinstance(chunk, Unanswered):
            served = [done for _, _, done in waiting.readers]
            waiting.readers.clear()
        elif life != self._life:  # the connection was lost while the chunk was taken apart
            self._read_next(place, waiting)
            return
        else:
            is_cut = chunk.end == chunk.start and chunk.size_bytes > 0 and chunk.unreadable is None
            if is_cut and waiting.bytes_max < limits.FETCH_BYTES_MAX:
                waiting.bytes_max = min(waiting.bytes_max * 8, limits.FETCH_BYTES_MAX)
                self._read_next(place, waiting)
                return
            left = []
            for one in waiting.readers:
                question = one[1]
                is_in_it = question.offset == chunk.start or chunk.start <= question.offset < chunk.end
                if is_in_it and question.since <= waiting.left_at:
                    served.append(one[2])
                else:
                    left.append(one)
            waiting.readers = left
            self._keep(place, waiting.left_at, chunk)
        waiting.bytes_max = self._fetch_bytes
        self._reactor.later(0, lambda: self._read_next(place, waiting))
        for done in served:
            done(chunk)

    def _adapt(self, seconds: float, *, is_answered: bool) -> None:
        if seconds >= limits.ASK_SECONDS_MAX / 2:
            self._fetch_bytes = max(self._fetch_bytes // 4, limits.FETCH_ONE_BYTES)
        elif is_answered and seconds <= limits.ASK_SECONDS_MAX / 10:
            self._fetch_bytes = min(self._fetch_bytes * 2, limits.FETCH_BYTES)

    def _keep(self, place: Place, left_at: float, chunk: LogChunk) -> None:
        if chunk.size_bytes <= limits.CHUNK_KEPT_BYTES_MAX and chunk.held_bytes <= limits.CHUNKS_KEPT_BYTES_MAX:
            self._kept[place] = (left_at, chunk)
            self._reactor.later(limits.CHUNK_KEPT_SECONDS, self._drop_old)

    def _drop_old(self) -> None:
        """Drop chunks that are too old, also when no search asks any more."""
        self._kept.expire()
