"""Two proxies on one store and one log, of which one is at work at a time, and a store that loses data."""

from __future__ import annotations

from testkit.stage.sequencer import Stage


def beside(first: Stage) -> Stage:
    """Another proxy on the same store and log, for the same producer."""
    second = Stage(producer_id=first.producer_id)
    second.values, second.log = first.values, first.log
    second.context.life.incarnation = b"proxy..B"
    at_the_time_of(first, second)
    return second


def at_the_time_of(before: Stage, now: Stage) -> None:
    """The producer moves from one to the other."""
    now.now = now.context.time.now = before.now


def lost(values: dict[bytes, bytes], generation: bytes, *stages: Stage) -> None:
    """The store has these values only; all proxies see that, in the same life of its data or in another one."""
    stages[0].values.clear()
    stages[0].values.update(values)
    for stage in stages:
        incarnation = stage.context.life.incarnation
        stage.begin_era(generation)
        stage.context.life.incarnation = incarnation[:-1] + b"2"
