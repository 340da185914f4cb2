"""Two proxies on one store and one log, of which one is at work at a time, and a store that loses data."""

from __future__ import annotations

from testkit.stage.sequencer import Stage


def beside(first: Stage) -> Stage:
    """Another proxy on the same store and log, for the same producer."""
    second = Stage(producer_id=first.producer_id)
    second.values, second.log = first.values, first.log
    second.context.instance.instance_id = b"proxy..B"
    at_the_time_of(first, second)
    return second


def at_the_time_of(before: Stage, now: Stage) -> None:
    """The producer moves from one to the other."""
    now.now = now.context.time.now = before.now


def lost(values: dict[bytes, bytes], data_generation: bytes, *stages: Stage) -> None:
    """The store has these values only; all proxies see that, in the same data generation or in another one."""
    stages[0].values.clear()
    stages[0].values.update(values)
    for stage in stages:
        instance_id = stage.context.instance.instance_id
        stage.begin_lease_epoch(data_generation)
        stage.context.instance.instance_id = instance_id[:-1] + b"2"
