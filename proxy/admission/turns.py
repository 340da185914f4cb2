"""Work in steps, one in each pass of the reactor: all else has its turn in between. Knows no Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ...codecs.steps import Steps
from ...reactor import Reactor
from .. import limits

Result = TypeVar("Result")


def in_turns(reactor: Reactor, steps: Steps[Result], done: Callable[[Result], None]) -> None:
    """Do the first step now, each other one in a later pass; ``done`` gets the result, at once if there is one step."""
    try:
        next(steps)
    except StopIteration as end:
        done(end.value)
    else:
        reactor.later(0, partial(in_turns, reactor, steps, done))


def tell_all(reactor: Reactor, listeners: Sequence[Callable[[Result], None]], reported: Result) -> None:
    """Call each of them with the same; the first of many now, the others in later passes."""
    in_turns(reactor, _telling(listeners, reported), lambda _none: None)


def _telling(listeners: Sequence[Callable[[Result], None]], reported: Result) -> Steps[None]:
    for number, listener in enumerate(listeners, 1):
        listener(reported)
        if number % limits.LISTENERS_PER_STEP == 0:
            yield
