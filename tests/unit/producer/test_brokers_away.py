"""Brokers that are away, leases that have to run out, batches that were unrecoverable: nobody is asked in a loop, and
what is remembered stays so (rules R6, R10, R17, R18)."""

from idemproxy.proxy.flow.effects import Leader, Read, Swap
from testkit.stage.sequencer import DATA_GENERATION, NEXT_DATA_GENERATION, Client, Stage

TIMED_OUT, UNDECIDABLE = 7, 87


def test_nothing_is_reserved_for_a_leader_that_cannot_be_reached() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    stage.swapped.clear()
    asked: list[object] = []
    stage.before[Leader] = asked.append
    stage.outside.leader.takes_batches = False
    stage.context.is_reachable = lambda _broker_id: stage.outside.leader.takes_batches
    request = stage.send(client, 1)
    stage.run(20)
    assert stage.swapped == []
    assert len(asked) < 60
    assert request.code is None
    stage.outside.leader.takes_batches = True
    stage.run(1)
    assert request.offset == 1


def test_redis_is_not_read_in_a_loop_while_lost_leases_run_out() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    stage.begin_lease_epoch()
    read: list[object] = []
    stage.before[Read] = read.append
    request = stage.send(client, 1)
    stage.run(6)
    assert request.code is None
    assert len(read) < 5
    stage.run(5)
    assert request.offset == 1


def test_an_unrecoverable_batch_is_remembered_over_a_new_data_generation() -> None:
    stage = Stage(keeps_batch_markers=False)
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    stage.outcomes.append(stage.loses_answer)
    stage.send(client, 1)
    client.is_closed = True
    stage.run(60)
    assert stage.entry().intent is not None
    stage.begin_lease_epoch()
    assert DATA_GENERATION != NEXT_DATA_GENERATION
    behind = stage.send(Client(), 2)
    stage.run(60)
    assert behind.code == 45
    assert stage.entry().data_generation == NEXT_DATA_GENERATION
    retry = stage.send(Client(), 1)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_an_intent_in_a_temporarily_unreadable_value_is_resolved_later() -> None:
    """The swap was executed, its reply was lost, and somebody spoiled the value. Its owner lives, so it has to."""
    stage = Stage()
    stage.send(Client(), 0)
    stage.run(1)
    written: list[Swap] = []

    def spoils(effect: Swap) -> None:
        if not written:
            written.append(effect)
        stage.values[effect.key] = b"\xff" + effect.value[1:]

    stage.before[Swap] = spoils
    request = stage.send(Client(), 1)
    stage.run(10)
    assert request.code == TIMED_OUT
    del stage.before[Swap]
    stage.values[written[0].key] = written[0].value
    assert stage.entry().has_open_intent
    stage.run(5)
    assert not stage.entry().has_open_intent
    assert stage.stored_values() == [b"value 0"]
