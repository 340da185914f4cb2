"""Refusals that one batch of a group, or one part of a batch, is to blame for (rules R5, R19)."""

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.effects import Append
from idemproxy.proxy.outcome import InDoubt, Outcome, classify
from testkit.staged_sequencer import Client, Stage

UNKNOWN, CORRUPT, TIMED_OUT, INVALID = -1, 2, 7, 87


def dislikes(stage: Stage, sequence: int, code: int) -> None:
    """From now on the broker answers with this code, and without an offset, whatever has this batch in it."""

    def judge(effect: Append) -> Outcome:
        stage.outcomes.append(judge)
        if any(identity.base_sequence == sequence for identity in effect.identities):
            return classify(code, -1, -1, stage.lane, effect.broker_id)
        return stage.succeeds(effect)

    stage.outcomes.append(judge)


def group_of_three(stage: Stage) -> list[int | None]:
    """Three batches that become one group, sent again as long as they fail retriably."""
    stage.store_away = True
    client = Client()
    requests = [stage.send(client, sequence) for sequence in range(3)]
    stage.run(1)
    stage.store_away = False
    stage.run(60)
    return [request.code for request in requests]


@pytest.mark.parametrize(("code", "told"), [(CORRUPT, INVALID), (UNKNOWN, TIMED_OUT)])
def test_the_batches_before_one_that_the_broker_does_not_like_are_appended(code: int, told: int) -> None:
    stage = Stage()
    dislikes(stage, 2, code)
    assert group_of_three(stage) == [0, 0, told]
    assert stage.stored_values() == [b"value 0", b"value 1"]
    assert [len(effect.identities) for effect in stage.sent[:3]] == [3, 1, 1]
    assert len(stage.sent) <= 3 + limits.FORWARDS_MAX


def test_a_lost_group_is_sent_again_as_a_group() -> None:
    stage = Stage()
    stage.outcomes.append(lambda effect: InDoubt("the connection is lost", effect.broker_id))
    assert group_of_three(stage) == [0, 0, 0]
    assert [len(effect.identities) for effect in stage.sent] == [3, 3]
