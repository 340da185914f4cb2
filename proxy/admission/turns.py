"""Work in steps, one in each pass of the reactor: all else has its turn in between. Knows no Kafka."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ...codecs.steps import Steps
from ...reactor import Reactor

Result = TypeVar("Result")


def in_turns(reactor: Reactor, steps: Steps[Result], done: Callable[[Result], None]) -> None:
    """Do the first step now, each other one in a later pass; ``done`` gets the result, at once if there is one step."""
    try:
        next(steps)
    except StopIteration as end:
        done(end.value)
    else:
        reactor.later(0, partial(in_turns, reactor, steps, done))
