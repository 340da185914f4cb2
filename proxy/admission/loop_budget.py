"""How long a pass of the reactor has taken. One large batch may take long to convert, and so may many small ones: after
so much work the rest is left for the next pass, so that everything else, and the renewal of the lease, has its turn in
between. Bytes are sent only at the end of a pass, so the work of flows is spread over short passes. Knows no Kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ...reactor import Reactor
from .. import limits

Value = TypeVar("Value")


class LoopBudget:
    """The present pass of one reactor. Its time counts from the first question."""

    __slots__ = ("_due", "_is_planned", "_now", "_reactor", "began_at")

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._now = reactor.now
        self.began_at: float | None = None
        """When somebody asked first in this pass; None: nobody has."""
        self._due: deque[Callable[[], None]] = deque()
        self._is_planned = False

    @property
    def has_worked_enough(self) -> bool:
        """Should work of many steps continue in the next pass?"""
        return self.seconds() > limits.STEPS_SECONDS

    @property
    def is_long(self) -> bool:
        """Has the pass taken so long that what can wait should wait?"""
        return self.seconds() > limits.PASS_SECONDS

    def looks_long(self) -> bool:
        """The same, for the hot path."""
        began_at = self.began_at
        return (self.seconds() if began_at is None else self._now() - began_at) > limits.PASS_SECONDS

    @property
    def is_too_long(self) -> bool:
        """Has the pass taken so long that the rest of a request has to be sent again?"""
        return self.seconds() > limits.PASS_SECONDS_MAX

    def counts_again(self) -> None:
        """Count the pass from now on. What it did until now has a time limit of its own (``long_work.py``), and is no
        reason for other work to wait for the next pass."""
        if self.began_at is not None:
            self.began_at = self._now()

    def in_turn(self, resume: Callable[[Value], None]) -> Callable[[Value], None]:
        """Return a function that calls ``resume``: at once, or in a later pass if this one has done enough. Those that
        wait are called in their order."""
        return partial(self._tell, resume)

    def _tell(self, resume: Callable[[Value], None], value: Value) -> None:
        if self._due or self.seconds() > limits.TURN_SECONDS:
            self._due.append(partial(resume, value))
            self._plan()
        else:
            resume(value)

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            self._reactor.later(0, self._go_on)

    def _go_on(self) -> None:
        begun = self._now()
        try:
            while self._due:  # one at least, however long the pass is: nothing waits for ever
                self._due.popleft()()
                if self._now() - begun > limits.TURN_SECONDS:
                    break
        finally:
            self._is_planned = False
            if self._due:
                self._plan()

    def seconds(self) -> float:
        """Return how long this pass has taken, since that was asked first."""
        now = self._now()
        if self.began_at is None:
            self.began_at = now
            self._reactor.at_flush(self._ends)
        return now - self.began_at

    def _ends(self) -> None:
        self.began_at = None
