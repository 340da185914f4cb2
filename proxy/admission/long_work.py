"""What takes many steps, such as the conversion of a large batch: a few milliseconds of it in each pass of the reactor,
in turn by sender. Knows no Kafka.

Two are begun at any time, so memory does not depend on how many wait: one that may be short, and one that has shown
that it is not. What turns out to be long is begun again among the long ones: it costs others no more than its first
steps."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ...codecs.steps import Steps
from ...reactor import Reactor
from .. import limits
from .loop_budget import LoopBudget

T = TypeVar("T")


class Done(Generic[T]):
    """The end of a piece of work: what it made, or what it raised."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: T | None = None, error: Exception | None = None) -> None:
        self._value = value
        self._error = error

    def result(self) -> T:
        """Return what was made. Raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class _Job:
    __slots__ = ("done", "made", "sender", "start", "steps")

    def __init__(self, start: Callable[[], Steps[Any]], sender: str, done: Callable[[Done[Any]], None]) -> None:
        self.start = start
        self.sender = sender
        self.done = done
        self.steps: Steps[Any] | None = None
        self.made = 0


class _Line:
    """The waiting pieces of work, in turn by sender, and the one that has begun."""

    __slots__ = ("_by_sender", "begun")

    def __init__(self) -> None:
        self._by_sender: OrderedDict[str, deque[_Job]] = OrderedDict()
        self.begun: _Job | None = None

    def push(self, job: _Job) -> None:
        self._by_sender.setdefault(job.sender, deque()).append(job)

    @property
    def is_empty(self) -> bool:
        return self.begun is None and not self._by_sender

    def next(self) -> _Job | None:
        """Return the piece of work that has begun; if none has, begin the next one."""
        if self.begun is None and self._by_sender:
            sender, jobs = self._by_sender.popitem(last=False)
            self.begun = jobs.popleft()
            if jobs:
                self._by_sender[sender] = jobs
        return self.begun


class _Lines:
    """Short work and long work, alternately."""

    __slots__ = ("_is_turn_of_new", "long", "new")

    def __init__(self) -> None:
        self.new = _Line()
        self.long = _Line()
        self._is_turn_of_new = True

    @property
    def is_empty(self) -> bool:
        return self.new.is_empty and self.long.is_empty

    def step(self) -> tuple[_Job, Done[Any]] | None:
        """Do one step of what has its turn; return the job and its end if it has ended."""
        line = self.new if self.long.is_empty or (self._is_turn_of_new and not self.new.is_empty) else self.long
        self._is_turn_of_new = line is self.long
        job = line.next()
        if job is None:
            return None
        try:
            if job.steps is None:
                job.steps = job.start()
            next(job.steps)
        except StopIteration as end:
            line.begun = None
            return job, Done(end.value)
        except Exception as error:
            line.begun = None
            return job, Done(error=error)
        job.made += 1
        if line is self.new and job.made >= limits.SHORT_WORK_STEPS_MAX:
            job.steps.close()
            job.steps, line.begun = None, None
            self.long.push(job)
        return None


class LongWork:
    """The long work of one process."""

    def __init__(self, reactor: Reactor, loop_budget: LoopBudget) -> None:
        self._reactor = reactor
        self._pass = loop_budget
        self._lines = _Lines()
        self._modest = _Lines()
        self._is_planned = False
        self.count = 0
        """How many pieces wait, or have begun."""

    def begin(
        self,
        start: Callable[[], Steps[T]],
        sender: str,
        done: Callable[[Done[T]], None],
        *,
        is_late: bool,
    ) -> None:
        """Do it now, if it takes one step; otherwise, or if it is late for that in this pass, like ``add``."""
        if is_late:
            self.add(start, sender, done)
            return
        steps = start()
        try:
            next(steps)
        except StopIteration as end:
            done(Done(end.value))
        except Exception as error:
            done(Done(error=error))
        else:
            steps.close()
            self.add(start, sender, done)

    def add(
        self, start: Callable[[], Steps[T]], sender: str, done: Callable[[Done[T]], None], *, is_modest: bool = False
    ) -> None:
        """Do it, beginning in a later pass. ``start``: begins it, perhaps twice; ``done`` is called with its end.
        ``is_modest``: a pass of the reactor has one step of all such work, at its end, and all other work goes before
        it: somebody may have others do it without end."""
        (self._modest if is_modest else self._lines).new.push(_Job(start, sender, done))
        self.count += 1
        self._plan()

    def _plan(self) -> None:
        if self.count and not self._is_planned:
            self._is_planned = True
            self._reactor.later(0, self._work)

    def _work(self) -> None:
        """Do one step at least, as nothing would end otherwise while there is much else to do."""
        self._is_planned = False
        has_made_one = False
        try:
            while not self._lines.is_empty:
                if self._pass.has_worked_enough and has_made_one:  # a pass is timed from the first question
                    break
                self._step(self._lines)
                has_made_one = True
            self._step(self._modest)
        finally:
            self._pass.counts_again()
            self._plan()

    def _step(self, lines: _Lines) -> None:
        ended = lines.step()
        if ended is not None:
            job, done = ended
            self.count -= 1
            job.steps = None
            job.done(done)
