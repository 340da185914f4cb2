"""What the scenes of several rules have in common: a log that others write to, and brokers that say nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import InDoubt, Outcome
from testkit.stage.sequencer import Client, Request, Stage
from testkit.virtual.log import PartitionLog

LATER = 1_700_000_000_777
"""A timestamp, in ms, that no batch has which is not made again."""
_TOO_LARGE = 10
_TRIES_MAX = 12


def foreign(stage: Stage, *values: bytes, replicated: bool = True) -> None:
    """Records of a writer past the proxy."""
    for value in values:
        stage.log.append(encode_set([(None, value, 0)], magic=1), stage.now)
    if replicated:
        stage.log.advance(stage.log.end_offset)


def unclean_election(stage: Stage, *values: bytes) -> None:
    """The new leader never had what was here, and others have written to it."""
    stage.log = PartitionLog()
    foreign(stage, *values)


def a_stage_with_one_batch() -> tuple[Stage, Client]:
    stage, client = Stage(), Client()
    stage.send(client, 0)
    stage.run(1)
    return stage, client


def dies_after(stage: Stage, act: Callable[[Append], Any]) -> Callable[[Append], Outcome]:
    """The proxy that sent this hears nothing more of it."""

    def outcome(effect: Append) -> Outcome:
        act(effect)
        return stage.never_answers(effect)

    return outcome


def takes_no_more_than(stage: Stage, bytes_max: int) -> None:
    """From now on the broker refuses every message set of more than so many bytes as too large."""

    def judge(effect: Append) -> Outcome:
        stage.outcomes.append(judge)
        return stage.refuses(_TOO_LARGE)(effect) if len(effect.message_set) > bytes_max else stage.succeeds(effect)

    stage.outcomes.append(judge)


def comes_again(stage: Stage, sequence: int, *values: bytes, is_recreated: bool) -> Request:
    """A client waits for 0.75 s, and comes again 0.1 s later, at most a dozen times; returns the last try."""
    for number in range(_TRIES_MAX):
        client = Client()
        request = stage.send(client, sequence, *values, timestamp=LATER + number * is_recreated)
        stage.run(0.75)
        if request.is_done:
            break
        client.is_closed = True
        stage.run(0.1)
    return request


class SleepingBroker:
    """Says nothing to the next append, and carries it out on ``wake``."""

    def __init__(self, stage: Stage, *, is_heard_of: bool = True) -> None:
        self._stage = stage
        self._is_heard_of = is_heard_of
        self._held: Append | None = None
        stage.outcomes.append(self._hold)

    def _hold(self, effect: Append) -> Outcome:
        self._held = effect
        return (
            InDoubt("no answer in time", effect.broker_id) if self._is_heard_of else self._stage.never_answers(effect)
        )

    def wake(self) -> None:
        assert self._held is not None
        self._stage.take(self._held)
