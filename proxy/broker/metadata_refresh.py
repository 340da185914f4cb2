"""Questions about the cluster: which caller waits for which topics, what is asked together, and how often. Sans-IO.

Topics that are wanted at the same time are named in one question, and the number of questions per second is limited:
when a broker dies, all producers of its partitions ask at once. Knows nothing of the answers' content."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from ...codecs.steps import Steps
from ...reactor import Reactor
from .. import limits
from ..admission.turns import in_turns
from ..bridge.asks import Metadata
from ..bridge.cluster import Cluster, Topic
from ..flow.effects import Unanswered
from .broker import Broker

Topics = tuple[str, ...] | None
"""Topics by name, or all of them."""
Learn = Callable[[Topics, float, Mapping[str, Topic], Cluster], None]
"""Called with what was asked for, when, the topics that were known then, and the answer."""


class _WaitingCaller:
    """A caller that waits for some answers, for a short time."""

    __slots__ = ("_done", "due", "missing")

    def __init__(self, missing: int, due: float, done: Callable[[], None]) -> None:
        self.missing = missing
        self.due = due
        self._done: Callable[[], None] | None = done

    @property
    def is_over(self) -> bool:
        """Was the caller called back?"""
        return self._done is None

    def tell(self) -> None:
        """Call back: the time is up, or all was answered."""
        done, self._done = self._done, None
        if done is not None:
            done()


class MetadataRefresh:
    """The questions of one proxy about its cluster."""

    def __init__(
        self,
        reactor: Reactor,
        broker: Callable[[], Broker | None],
        known: Callable[[], Mapping[str, Topic]],
        learn: Learn,
    ) -> None:
        """``broker``: the one to ask next; None: none can be asked. ``known``: the topics as last learned."""
        self._reactor = reactor
        self._broker = broker
        self._known = known
        self._learn = learn
        self._all_waiting: deque[_WaitingCaller] = deque()
        """In the order of their deadlines."""
        self._for_all: list[_WaitingCaller] = []
        self._all_out: list[_WaitingCaller] | None = None
        self._wanted: dict[str, list[_WaitingCaller]] = {}
        self._first: dict[str, None] = {}
        """The wanted topics that go before the others."""
        self._out: dict[str, list[_WaitingCaller]] = {}
        self._next_at = self._next_all_at = float("-inf")
        self._is_planned = self._is_all_planned = False

    def ask(self, topics: Topics, done: Callable[[], None]) -> None:
        """Ask, and call back when all of it was answered, or soon in any case. A caller that asks what is being asked
        already waits for the same answer."""
        if topics is None:
            waiting = self._wait(1, done)
            if self._all_out is not None:
                self._all_out.append(waiting)
            else:
                self._for_all.append(waiting)
                self._ask_for_all()
            return
        waiting = self._wait(len(topics), done)
        for name in topics:
            out = self._out.get(name)
            if out is not None:
                out.append(waiting)
                continue
            self._wanted.setdefault(name, []).append(waiting)
            if len(topics) <= limits.METADATA_FEW_TOPICS:
                self._first[name] = None
        self._ask_for_topics()

    def forget(self) -> None:
        """Something has changed: later callers do not wait for the answers to what was asked before."""
        self._out, self._all_out = {}, None

    # ------------------------------------------------------------------ who waits
    def _wait(self, missing: int, done: Callable[[], None]) -> _WaitingCaller:
        waiting = _WaitingCaller(missing, self._reactor.now() + limits.METADATA_WAIT_SECONDS, done)
        self._all_waiting.append(waiting)
        if len(self._all_waiting) == 1:
            self._reactor.later(limits.METADATA_WAIT_SECONDS, self._sweep)
        return waiting

    def _sweep(self) -> None:
        """Call back the callers whose time is up. Each may then work on a batch, so not too many in one step."""
        waiting, now, reported = self._all_waiting, self._reactor.now(), 0
        while waiting and (waiting[0].is_over or waiting[0].due <= now) and reported < limits.METADATA_TOLD_PER_STEP:
            reported += not waiting[0].is_over
            waiting.popleft().tell()
        if waiting:
            self._reactor.later(max(0.0, waiting[0].due - now), self._sweep)

    def _tell(self, waiting: Iterable[_WaitingCaller]) -> None:
        """An answer has arrived, or none will."""
        in_turns(self._reactor, _reported(waiting), _nothing)

    # ------------------------------------------------------------------ all
    def _ask_for_all(self) -> None:
        now = self._reactor.now()
        if self._is_all_planned or not self._for_all:
            return
        if now < self._next_all_at:
            self._is_all_planned = True
            self._reactor.later(self._next_all_at - now, self._all_due)
            return
        waiting, self._for_all = self._for_all, []
        broker = self._broker()
        if broker is None:
            return  # callers get what is known when their time is up
        known = self._known()
        self._next_all_at = now + _pause(sum(len(topic.rows.leaders) for topic in known.values()))
        self._all_out = waiting
        broker.ask(Metadata(None, known=known), lambda answer: self._all_answered(waiting, now, known, answer))

    def _all_due(self) -> None:
        self._is_all_planned = False
        self._ask_for_all()

    def _all_answered(
        self, waiting: list[_WaitingCaller], asked_at: float, known: Mapping[str, Topic], answer: Cluster | Unanswered
    ) -> None:
        if self._all_out is waiting:
            self._all_out = None
        if isinstance(answer, Cluster):
            self._learn(None, asked_at, known, answer)
        self._tell(waiting)

    # ------------------------------------------------------------------ by name
    def _ask_for_topics(self) -> None:
        now = self._reactor.now()
        if self._is_planned or not self._wanted:
            return
        if now < self._next_at:
            self._is_planned = True
            self._reactor.later(self._next_at - now, self._due)
            return
        asked = self._next_topics()
        broker = self._broker() if asked else None
        if broker is None:
            self._wanted.clear()  # callers get what is known when their time is up
            self._first.clear()
            return
        known, names = self._known(), tuple(asked)
        self._next_at = now + _pause(sum(len(known[name].rows.leaders) for name in names if name in known))
        self._out.update(asked)
        broker.ask(Metadata(names, known=known), lambda answer: self._answered(asked, now, known, answer))
        self._ask_for_topics()

    def _due(self) -> None:
        self._is_planned = False
        self._ask_for_topics()

    def _next_topics(self) -> dict[str, list[_WaitingCaller]]:
        """Take the topics of the next question; those that no caller waits for any more are dropped."""
        wanted, first, taken = self._wanted, self._first, dict[str, list[_WaitingCaller]]()
        while wanted and len(taken) < limits.METADATA_TOPICS_PER_QUESTION_MAX:
            name = next(chain(first, wanted))
            first.pop(name, None)
            waiting = wanted.pop(name)
            if not all(one.is_over for one in waiting):
                taken[name] = waiting
        return taken

    def _answered(
        self,
        asked: dict[str, list[_WaitingCaller]],
        asked_at: float,
        known: Mapping[str, Topic],
        answer: Cluster | Unanswered,
    ) -> None:
        for name, waiting in asked.items():
            if self._out.get(name) is waiting:
                del self._out[name]
        if isinstance(answer, Cluster):
            self._learn(tuple(asked), asked_at, known, answer)
        self._tell([one for waiting in asked.values() for one in waiting])


def _reported(waiting: Iterable[_WaitingCaller]) -> Steps[None]:
    reported = 0
    for one in waiting:
        one.missing -= 1
        if one.missing or one.is_over:
            continue
        if reported == limits.METADATA_TOLD_PER_STEP:
            yield
            reported = 0
        one.tell()
        reported += 1


def _nothing(_: None) -> None:
    """Nothing to do: all callers were called back."""


def _pause(partitions: int) -> float:
    """Return how many seconds to wait after a question about so many partitions; unknown ones do not count."""
    return max(1 / limits.METADATA_QUESTIONS_PER_SECOND_MAX, partitions * limits.METADATA_PARTITION_SECONDS)
