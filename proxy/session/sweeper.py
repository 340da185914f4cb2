"""When the time of produce requests is up (rule R18): one timer for all of them. A sweep looks only at what can be due,
and answers in steps: a broker that hangs makes the requests of all its producers due together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from ...codecs.steps import Steps
from ...reactor import Reactor
from .. import limits

UNORDERED: Final = -1
"""The line of requests that were taken in steps: others came meanwhile, and are due later. All of it is looked at."""
_IS_OVER: Final = object()


class SweptClient(Protocol):
    """The client that waits."""

    @property
    def is_closed(self) -> bool: ...


class Sweepable(Protocol):
    """A request that is to be answered at ``answer_by``, in reactor seconds, at the latest. ``sweep_line``: its timeout
    in ms, if it was taken in one step; else ``UNORDERED``."""

    @property
    def client(self) -> SweptClient: ...

    @property
    def answer_by(self) -> float: ...

    @property
    def sweep_line(self) -> int: ...

    def time_is_up(self, parts: Sequence[Any]) -> None:
        """Answer these parts of it. If it was watched without parts, ``parts`` is empty and all of it is to be
        answered."""
        ...


Line = dict[Sweepable, Sequence[Any]]


class Sweeper:
    """The requests of one process that wait for an answer. ``lines``: by ``sweep_line``, in the order in which they
    came, which is that of their deadlines (but for ``UNORDERED``); with their parts as ``time_is_up`` gets them.
    ``is_planned``: the timer runs. ``has_left``: a client has gone, and its requests are still here."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._now = reactor.now
        self.lines: dict[int, Line] = {}
        self.is_planned = False
        self.has_left = False

    def add(self, call: Sweepable, parts: Sequence[Any]) -> None:
        """Watch a request until it is answered, or no answer is wanted."""
        if call.sweep_line in self.lines:
            self.lines[call.sweep_line][call] = parts
        else:
            self.lines[call.sweep_line] = {call: parts}
        if call.client.is_closed:
            self.has_left = True
        if not self.is_planned:
            self.plan()

    def plan(self) -> None:
        """Start the timer."""
        self.is_planned = True
        self._reactor.later(limits.ANSWER_SWEEP_SECONDS, self._sweep)

    def remove(self, call: Sweepable) -> None:
        """It is answered. Its bytes are given back at once, to be used for the next request while they are warm."""
        if call.sweep_line in self.lines and call in self.lines[call.sweep_line]:
            del self.lines[call.sweep_line][call]

    # ------------------------------------------------------------------ the timer
    def _sweep(self) -> None:
        """Look at the first of each line. If there is nothing to do, that is all."""
        now, is_any_here, is_any_due, empty_lines = self._now(), False, self.has_left, 0
        for name, line in self.lines.items():
            for call in line:
                is_any_here = True
                if name == UNORDERED or call.answer_by <= now:
                    is_any_due = True
                break
            else:
                empty_lines += 1
        if empty_lines > limits.SWEPT_LINES_EMPTY_MAX:  # clients choose their timeouts freely
            self.lines = {name: line for name, line in self.lines.items() if line}
        self.is_planned = False
        if is_any_due:
            self._go_on(self._sweeping(now))
        elif is_any_here:
            self.plan()

    def _go_on(self, steps: Steps[None]) -> None:
        self.is_planned = is_over = True
        try:
            is_over = next(steps, _IS_OVER) is _IS_OVER
        finally:
            if is_over:
                self.plan()
            else:
                self._reactor.later(0, partial(self._go_on, steps))

    def _sweeping(self, now: float) -> Steps[None]:
        if self.has_left:
            self.has_left = False
            yield from self._forgetting()
        due: list[tuple[Line, Sweepable]] = []
        for name, line in self.lines.items():
            for call in line:
                if call.answer_by <= now:
                    due += ((line, call),)
                elif name != UNORDERED:
                    break
        yield from self._answering(due)

    def _answering(self, due: Iterable[tuple[Line, Sweepable]]) -> Steps[None]:
        answered = 0
        for line, call in due:
            if call not in line:
                continue  # it was answered while others were
            parts = line[call]
            for at in range(0, max(1, len(parts)), limits.ANSWERED_PER_STEP):
                if call.client.is_closed:
                    break
                some = parts[at : at + limits.ANSWERED_PER_STEP]
                call.time_is_up(some)
                answered += max(1, len(some))
                if answered >= limits.ANSWERED_PER_STEP:
                    answered = 0
                    yield
            line.pop(call, None)  # what is left of it waits for the broker's own answer (rule R20)

    def _forgetting(self) -> Steps[None]:
        """Let go what nobody waits for any more."""
        looked_at = 0
        for line in list(self.lines.values()):
            for call in list(line):
                if call.client.is_closed:
                    line.pop(call, None)
                looked_at += 1
                if not looked_at % limits.SWEPT_PER_STEP:
                    yield
