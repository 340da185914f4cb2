"""Brokers that are away, leases that have to run out, batches that were given up: nobody is asked in a loop, and what
is remembered stays so (rules R6, R10, R17, R18)."""

from idemproxy.proxy.effects import Leader, Read
from testkit.staged_sequencer import GENERATION, NEXT_GENERATION, Client, Stage

UNDECIDABLE = 87


def test_nothing_is_reserved_for_a_leader_that_cannot_be_reached() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    stage.swapped.clear()
    asked: list[object] = []
    stage.before[Leader] = asked.append
    is_up = False
    stage.shared.is_reachable = lambda _broker_id: is_up
    request = stage.send(client, 1)
    stage.run(20)
    assert stage.swapped == []
    assert len(asked) < 60
    assert request.code is None
    is_up = True
    stage.run(1)
    assert request.offset == 1


def test_while_leases_of_a_lost_state_run_out_the_store_is_not_asked_in_a_loop() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    stage.begin_era()
    read: list[object] = []
    stage.before[Read] = read.append
    request = stage.send(client, 1)
    stage.run(6)
    assert request.code is None
    assert len(read) < 5
    stage.run(5)
    assert request.offset == 1


def test_a_batch_that_was_given_up_is_remembered_over_a_new_life_of_the_store() -> None:
    stage = Stage(keeps_markers=False)
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    stage.outcomes.append(stage.loses_answer)
    stage.send(client, 1)
    client.is_closed = True
    stage.run(60)
    assert stage.entry().intent is not None
    stage.begin_era()
    assert GENERATION != NEXT_GENERATION
    behind = stage.send(Client(), 2)
    stage.run(60)
    assert behind.code == 45
    assert stage.entry().generation == NEXT_GENERATION
    retry = stage.send(Client(), 1)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == [b"value 0", b"value 1"]
