"""One broker's logs, read for all searches at once: of each partition one fetch is out at a time, and its chunk serves
every search that waits within it (rule R6). Sans-IO; concludes nothing.

All searches of a partition share one *pass*: it goes up, chunk by chunk, from the search that waits next above it to
the end of the log, and then to the lowest offset that a search still waits for. So a hundred searches cost two
readings of the log at most, whenever they begin. There is one pass for each ``Reach``, and they alternate: a search
that needs only the last few seconds of a log does not wait for a long one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from cachetools import TLRUCache

from ...codecs.steps import Steps
from ...reactor import Reactor
from .. import limits
from ..admission.turns import in_turns
from ..bridge.asks import FetchAnswer
from ..flow.effects import Unanswered
from .log_chunk import LogChunk, Reach, ReadLog, taking_apart

Done = Callable[[LogChunk | Unanswered], None]
Place = tuple[str, int]
Reader = tuple[ReadLog, Done]
_NOT_YET = float("inf")


@dataclass(slots=True)
class _Pass:
    """One way through one log, for all that wait on it. ``readers``: what each of them waits for. ``at``: where its
    last chunk ended. ``behind``: where its last few chunks began: a search that took long over one of these is still
    part of the pass, which goes back for it."""

    readers: list[Reader] = field(default_factory=list)
    at: int = 0
    behind: deque[int] = field(default_factory=lambda: deque(maxlen=limits.PASS_WAITS_CHUNKS))

    def next_offset(self) -> int:
        """Return where to read: at the next offset above that a search waits for, else at the lowest. A search that
        joins the pass where it is waits for no offset below, unless no other search waits at all."""
        bound = [question.offset for question, _ in self.readers if question.offset >= self.at or not question.joins]
        if not bound:
            return min(question.offset for question, _ in self.readers)
        start = self.behind[0] if self.behind else self.at
        return min(bound, key=lambda offset: (offset < start, offset))

    def goes_on_at(self, offset: int, left_at: float) -> bool:
        """Does a search wait for this offset that had begun to read when a fetch left then?"""
        return any(question.offset == offset and question.since <= left_at for question, _ in self.readers)

    def has_come_to(self, chunk: LogChunk) -> None:
        """This is what the pass has read last."""
        if chunk.start != self.at:
            self.behind.clear()
        self.behind.append(chunk.start)
        self.at = chunk.end

    def take_served(self, chunk: LogChunk, left_at: float, *, is_own: bool) -> list[Done]:
        """Take the readers that this chunk serves, of a fetch that left then. ``is_own``: it is of this pass."""
        served: list[Reader] = []
        left: list[Reader] = []
        for one in self.readers:
            (served if one[0].is_served_by(chunk, left_at, is_own=is_own) else left).append(one)
        self.readers = left
        return [done for _, done in served]


@dataclass(slots=True)
class _WaitingSearches:
    """The searches that wait for one partition. ``last``: whose turn it was. ``left_at``: when the fetch left for the
    broker, in reactor seconds; ``_NOT_YET`` while it waits for others."""

    bytes_max: int
    passes: dict[Reach, _Pass]
    is_reading: bool = False
    last: Reach = Reach.WHOLE_LOG
    left_at: float = _NOT_YET

    def next_turn(self) -> Reach | None:
        """Return whose turn it is; None: nobody waits."""
        for ahead in range(1, len(Reach) + 1):
            reach = Reach((self.last + ahead) % len(Reach))
            if self.passes[reach].readers:
                self.last = reach
                return reach
        return None

    def drop_unwanted(self) -> list[Done]:
        """Take the readers for which nobody waits any more."""
        gone: list[Done] = []
        for one_pass in self.passes.values():
            wanted = [one for one in one_pass.readers if one[0].is_wanted()]
            if len(wanted) < len(one_pass.readers):
                gone += [done for question, done in one_pass.readers if not question.is_wanted()]
                one_pass.readers = wanted
        return gone


class LogReader:
    """The reader of one broker. ``fetch`` asks the broker. It calls its second argument when the question leaves, and
    its third one, later, with the chunk that was taken apart, or Unanswered. ``take_apart`` does steps that return a
    chunk, with turns for others, and calls its last argument with that; its second one says for which topic."""

    def __init__(
        self,
        reactor: Reactor,
        fetch: Callable[[ReadLog, Callable[[], None], Done], None],
        take_apart: Callable[[Callable[[], Steps[LogChunk]], str, Done], None],
    ) -> None:
        self._reactor = reactor
        self._fetch = fetch
        self._take_apart = take_apart
        self._instance = 0
        """Counts the losses of the connection, so that a chunk from before the last loss is recognised."""
        self._fetch_bytes = limits.FETCH_BYTES
        """Bytes of one fetch: fewer after a slow one (a slow link, or a quota for which the broker delays answers),
        then more again."""
        self._waiting: dict[Place, _WaitingSearches] = {}
        self._kept: TLRUCache[tuple[Place, Reach], tuple[float, LogChunk], float] = TLRUCache(
            limits.CHUNKS_KEPT_BYTES_MAX,
            ttu=lambda _, kept, __: kept[0] + limits.CHUNK_KEPT_SECONDS,
            timer=reactor.now,
            getsizeof=lambda kept: kept[1].held_bytes,
        )
        """The last chunk of each pass, with the time at which the question left, in reactor seconds."""

    def read(self, question: ReadLog, done: Done) -> None:
        """Call ``done`` with a chunk that serves the question (``ReadLog.is_served_by``), or Unanswered; never from
        inside this call."""
        place = (question.topic, question.partition)
        for reach in Reach:
            left_at, chunk = self._kept.get((place, reach)) or (_NOT_YET, None)
            is_own = reach == question.reach
            if chunk is not None and chunk.end > chunk.start and question.is_served_by(chunk, left_at, is_own=is_own):
                self._reactor.later(0, partial(done, chunk))
                return
        waiting = self._waiting.get(place)
        if waiting is None:
            passes = {reach: self._new_pass(place, reach) for reach in Reach}
            waiting = self._waiting[place] = _WaitingSearches(self._fetch_bytes, passes)
        waiting.passes[question.reach].readers.append((question, done))
        if not waiting.is_reading:
            waiting.is_reading = True
            # Searches that ask from now on are served as well.
            self._reactor.later(0, lambda: self._read_next(place, waiting))

    def forget(self) -> None:
        """The connection was lost: the log may have become another one."""
        self._instance += 1
        self._kept.clear()

    def _new_pass(self, place: Place, reach: Reach) -> _Pass:
        """Return the pass where it was left a moment ago: all of its searches may be busy with its last chunk."""
        kept = self._kept.get((place, reach))
        if kept is None:
            return _Pass()
        return _Pass(at=kept[1].end, behind=deque([kept[1].start], limits.PASS_WAITS_CHUNKS))

    def _read_next(self, place: Place, waiting: _WaitingSearches) -> None:
        gone = waiting.drop_unwanted()
        if gone:
            self._tell(gone, Unanswered("nobody waits for it any more"), lambda: self._read_next(place, waiting))
            return
        reach = waiting.next_turn()
        if reach is None:
            del self._waiting[place]
        else:
            self._read_of(place, waiting, reach)

    def _read_of(self, place: Place, waiting: _WaitingSearches, reach: Reach) -> None:
        """Read the next chunk of this pass, for which somebody waits."""
        one_pass = waiting.passes[reach]
        offset = one_pass.next_offset()
        answered = partial(self._answered, place, waiting, reach, self._instance)
        left_at, last = self._kept.get((place, reach)) or (_NOT_YET, None)
        if last is not None and len(last.rest) and one_pass.goes_on_at(last.end, left_at):
            # The last fetch brought more than one chunk may have.
            rest = FetchAnswer(0, last.high_watermark, last.rest)
            offset, waiting.left_at = last.end, left_at
            self._take_apart(partial(taking_apart, offset, rest), place[0], partial(answered, is_rest=True))
            return
        waiting.left_at = _NOT_YET
        self._fetch(ReadLog(*place, offset, waiting.bytes_max), partial(self._leaves, waiting), answered)

    def _leaves(self, waiting: _WaitingSearches) -> None:
        waiting.left_at = self._reactor.now()

    def _answered(
        self,
        place: Place,
        waiting: _WaitingSearches,
        reach: Reach,
        instance: int,
        chunk: LogChunk | Unanswered,
        *,
        is_rest: bool = False,
    ) -> None:
        if not is_rest:
            # Measured from when it left: the wait after fetches of other partitions says nothing of the broker.
            self._adapt(self._reactor.now() - waiting.left_at, is_answered=not isinstance(chunk, Unanswered))
        if isinstance(chunk, Unanswered):
            served = [done for each in waiting.passes.values() for _, done in each.readers]
            for each in waiting.passes.values():
                each.readers.clear()
        elif instance != self._instance:  # the connection was lost while the chunk was taken apart
            self._read_next(place, waiting)
            return
        elif is_rest and chunk.end == chunk.start:  # no whole message is left: it is fetched
            self._kept.pop((place, reach), None)
            self._read_of(place, waiting, reach)
            return
        else:
            is_cut = chunk.end == chunk.start and chunk.size_bytes > 0 and chunk.unreadable is None
            if is_cut and waiting.bytes_max < limits.FETCH_BYTES_MAX:
                waiting.bytes_max = min(waiting.bytes_max * 8, limits.FETCH_BYTES_MAX)
                self._read_of(place, waiting, reach)
                return
            own = waiting.passes[reach]
            own.has_come_to(chunk)
            served = [
                done
                for each in waiting.passes.values()
                for done in each.take_served(chunk, waiting.left_at, is_own=each is own)
            ]
            self._keep(place, reach, waiting.left_at, chunk)
        waiting.bytes_max = self._fetch_bytes
        self._tell(served, chunk, lambda: self._read_next(place, waiting))

    def _tell(self, served: list[Done], reported: LogChunk | Unanswered, then: Callable[[], None]) -> None:
        """Tell all of them, then continue in a later step: by then most of them have asked for what comes next."""

        def go_on(_none: None) -> None:
            self._reactor.later(0, then)

        def telling() -> Steps[None]:
            for number, done in enumerate(served, 1):
                done(reported)
                if number % limits.READERS_PER_STEP == 0:
                    yield

        in_turns(self._reactor, telling(), go_on)

    def _adapt(self, seconds: float, *, is_answered: bool) -> None:
        if seconds >= limits.ASK_SECONDS_MAX / 2:
            self._fetch_bytes = max(self._fetch_bytes // 4, limits.FETCH_ONE_BYTES)
        elif is_answered and seconds <= limits.ASK_SECONDS_MAX / 10:
            self._fetch_bytes = min(self._fetch_bytes * 2, limits.FETCH_BYTES)

    def _keep(self, place: Place, reach: Reach, left_at: float, chunk: LogChunk) -> None:
        if chunk.size_bytes <= limits.CHUNK_KEPT_BYTES_MAX and chunk.held_bytes <= limits.CHUNKS_KEPT_BYTES_MAX:
            self._kept[place, reach] = (left_at, chunk)
            self._reactor.later(limits.CHUNK_KEPT_SECONDS, self._drop_old)

    def _drop_old(self) -> None:
        """Drop chunks that are too old, also when no search asks any more."""
        self._kept.expire()
