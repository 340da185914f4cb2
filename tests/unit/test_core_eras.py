"""What was learned before the data of the store began a new life, or the lease was lost, is void (rule R10)."""

from typing import Any

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.effects import Ask, MemberAlive, Pause
from idemproxy.state.commit import reserved
from idemproxy.state.entry import NO_ANCHOR, Intent, IntentBatch
from testkit.staged_sequencer import GENERATION, KEY, NEXT_GENERATION, Client, Stage

STRANGER = b"stranger"


def new_era_at(stage: Stage, kind: type, generation: bytes) -> None:
    """A new era begins in the step of the next effect of this type."""

    def begin(_effect: Any) -> None:
        del stage.before[kind]
        stage.begin_era(generation)

    stage.before[kind] = begin


@pytest.mark.parametrize("generation", [GENERATION, NEXT_GENERATION])
def test_a_batch_is_not_reserved_by_what_was_known_before_a_new_era(generation: bytes) -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(limits.BOUND_AGE_SECONDS + 5)
    stage.swapped.clear()
    new_era_at(stage, Ask, generation)  # while the lower bound is asked for
    request = stage.send(client, 1)
    if generation != GENERATION:
        stage.run(5)
        assert stage.swapped == []
        assert len(stage.sent) == 1, "nothing is touched before the leases of the lost state have run out"
    stage.run(30)
    assert request.code == 0
    assert {entry.generation for entry in stage.swapped[1:]} == {generation}
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_a_commit_of_an_earlier_era_is_not_written() -> None:
    stage = Stage()
    new_era_at(stage, Pause, NEXT_GENERATION)  # the commit waits for something to ride on
    request = stage.send(Client(), 0)
    stage.run(1)
    assert request.code == 0
    assert stage.entry().has_open_intent, "it is found again in the log"
    retry = stage.send(Client(), 0)
    stage.run(30)
    assert (retry.code, retry.offset) == (0, 0)
    assert stage.stored_values() == [b"value 0"]


def test_nothing_is_taken_over_by_what_was_known_before_a_new_era() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    intent = Intent(STRANGER, 0, (IntentBatch(1, 1, 0),), 0, NO_ANCHOR, bytes(8), 1)
    stage.put(reserved(stage.entry(), intent))
    before = stage.values[KEY]
    stage.sequencer.held.forget()
    new_era_at(stage, MemberAlive, NEXT_GENERATION)
    stage.send(client, 1, b"of another client")
    stage.run(5)
    assert stage.values[KEY] == before
    stage.run(60)
    assert stage.failures() == []
