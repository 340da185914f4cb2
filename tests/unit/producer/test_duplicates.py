"""A batch, or a part of one, that is in the log twice (the limit of R6): a retry of it is a duplicate, and no gap
(rules R9, R23)."""

from random import Random

import pytest
from mutants.scenes import SleepingBroker

from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import InDoubt, Outcome
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.stage.sequencer import Client, Stage

STORED_BEFORE, TOO_LARGE = 46, 10


def stored_twice(stage: Stage, sequence: int) -> None:
    """The broker sleeps with it for longer than anybody expects, and writes it when it was sent again."""
    sleeper = SleepingBroker(stage)
    request = stage.send(Client(), sequence)
    stage.run(10)
    assert request.code == 0
    sleeper.wake()
    assert stage.stored_values().count(b"value %d" % sequence) == 2


def test_a_retry_from_before_the_window_is_a_duplicate() -> None:
    stage = Stage()
    for sequence in range(9):
        if sequence == 2:
            stored_twice(stage, 2)
        else:
            stage.send(Client(), sequence)
        stage.run(10)
    stage.sequencer = stage.new_sequencer()
    request = stage.send(Client(), 2)
    stage.run(10)
    assert request.code == STORED_BEFORE


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("further", [0, 6])
def test_a_retry_of_a_batch_in_parts_is_a_duplicate(part: int, further: int) -> None:
    """In the window, or below it."""
    stage = Stage()
    late: list[Append] = []

    def judge(effect: Append) -> Outcome:
        stage.outcomes.append(judge)
        if len(effect.message_set) > 2500:
            return stage.refuses(TOO_LARGE)(effect)
        if len(stage.log.messages) == part and not late:
            late.append(effect)
            return InDoubt("no answer in time", effect.broker_id)
        return stage.succeeds(effect)

    stage.outcomes.append(judge)
    values = [Random(seed).randbytes(2000) for seed in (1, 2)]
    request = stage.send(Client(), 0, *values)
    stage.run(20)
    assert (request.code, stage.stored_values()) == (0, values)
    stage.take(late[0])
    for sequence in range(2, 2 + further):
        stage.send(Client(), sequence)
        stage.run(10)
    stage.sequencer, stage.produce_connection.is_open = stage.new_sequencer(), False
    retry = stage.send(Client(), 0, *values)
    stage.run(20)
    assert retry.code == (STORED_BEFORE if further else 0), retry.message


def test_a_conditional_batch_gets_the_offset_where_it_lies() -> None:
    stage = Stage(producer_id=CONDITIONAL_ID)
    for sequence in range(2):
        stage.send(Client(), sequence)
        stage.run(10)
    stored_twice(stage, 2)
    retry = stage.send(Client(), 2)
    stage.run(20)
    assert (retry.code, retry.offset) == (0, 2), retry.message
