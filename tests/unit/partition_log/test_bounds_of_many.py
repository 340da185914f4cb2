"""Of how many partitions bounds and checkpoints are kept, and for how long (rules R8 and R10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from idemproxy.codecs.steps import at_once
from idemproxy.proxy.flow.recent_time import RecentTime
from idemproxy.proxy.limits import BOUND_KEPT_SECONDS, CHECKPOINTS_PER_STEP
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.proxy.partition_log.lower_bounds import LowerBounds
from testkit.stage.sequencer import PARTITION, TOPIC, Client, Stage

HORIZON_SECONDS = 600.0


def at(offset: int) -> Position:
    return Position(offset, offset.to_bytes(8, "big"))


class Process:
    """The bounds of one process, and its clock."""

    def __init__(self) -> None:
        self.time = RecentTime(0.0)
        self.bounds = LowerBounds(self.time)

    def taking(self) -> Iterator[None]:
        return self.bounds.taking_checkpoints(lambda: self.time.now)

    def take(self) -> None:
        at_once(self.bounds.taking_checkpoints(lambda: self.time.now))

    def tick(self, now: float) -> None:
        """As the engine does every second."""
        self.time.now = now
        if self.bounds.are_checkpoints_due(now):
            self.take()

    def found(self, topic: str, now: float) -> Position | None:
        return self.bounds.checkpoints.before_horizon((topic, 0), now)


@pytest.fixture
def process() -> Process:
    return Process()


def test_the_newest_bounds_are_taken_ten_times_in_a_horizon(process: Process) -> None:
    for now in range(601):
        process.bounds.note("t", 0, at(now + 1))
        process.tick(float(now))
    assert [process.found("t", now) for now in (601, 659, 661)] == [at(1), at(1), at(61)]


def test_the_first_bounds_are_taken_as_soon_as_there_are_some(process: Process) -> None:
    process.tick(0.0)
    process.bounds.note("t", 0, at(5))
    process.tick(1.0)
    assert process.found("t", 602.0) == at(5)


def test_partitions_that_are_not_appended_to_are_forgotten_and_their_checkpoints_stay(process: Process) -> None:
    """Topics that come and go, too: of ten thousand that are no more nothing is kept but a checkpoint."""
    process.bounds.note("live", 0, at(1))
    process.tick(0.0)
    for number in range(10_000):
        process.bounds.note(f"deleted-{number}", 0, at(5))
    for minute in range(1, 30):
        now = minute * 60.0
        process.bounds.note("live", 0, at(1 + minute))
        process.tick(now)
    assert list(process.bounds.known) == [("live", 0)]
    assert process.found("deleted-7", now) == at(5), "it was used between two looks, and has its checkpoint"
    assert process.found("live", now) == at(19)


def test_what_was_learned_a_moment_ago_is_kept(process: Process) -> None:
    process.bounds.note("t", 0, at(5))
    process.time.now = BOUND_KEPT_SECONDS
    process.take()
    assert process.bounds.known
    process.time.now += 1
    process.take()
    assert not process.bounds.known


def test_many_are_taken_in_steps_and_each_at_its_own_time(process: Process) -> None:
    """A position that was learned between two steps is none of the time before: what came then may lie below it."""
    last = 3 * CHECKPOINTS_PER_STEP - 1
    for number in range(last + 1):
        process.bounds.note(f"t{number}", 0, at(1))
    steps = process.taking()
    next(steps)
    assert len(process.bounds.checkpoints) == CHECKPOINTS_PER_STEP
    process.time.now = 100.0
    process.bounds.note(f"t{last}", 0, at(9))
    process.bounds.forget(f"t{last - 1}", 0)
    assert sum(1 for _ in steps) == 1
    assert process.found(f"t{last}", HORIZON_SECONDS + 99) is None
    assert process.found(f"t{last}", HORIZON_SECONDS + 101) == at(9)
    assert process.found(f"t{last - 1}", 2 * HORIZON_SECONDS) is None, "it was seen not to fit meanwhile"


def test_a_bound_that_was_forgotten_is_read_again_before_the_next_reserve() -> None:
    """Others have appended meanwhile, and the log was cut: what is known again is what there is (rule R8)."""
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(BOUND_KEPT_SECONDS + 1)
    at_once(stage.context.bounds.taking_checkpoints(lambda: stage.now))
    assert not stage.context.bounds.known
    asked: list[Any] = []
    stage.reply = lambda _broker_id, question: asked.append(question)
    request = stage.send(client, 1)
    stage.run(1)
    assert (request.code, request.offset) == (0, 1)
    assert asked
    assert stage.context.bounds.known[TOPIC, PARTITION][1].offset == 2
