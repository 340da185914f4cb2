"""What waits after a batch in trouble: joined by its retries only, and not kept for nobody (rules R2, R13, R17)."""

from idemproxy.proxy import limits
from idemproxy.proxy.flow.effects import Unanswered
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.proxy.producer import answers
from testkit.stage.sequencer import PARTITION, TOPIC, Client, Stage

TIMED_OUT = 7


def leave(stage: Stage, count: int) -> None:
    """So many batches are sent whose client has gone a moment later."""
    client = Client()
    for sequence in range(1, 1 + count):
        stage.send(client, sequence)
    client.is_closed = True


def test_abandoned_batches_do_not_wait_for_a_long_unknown_outcome() -> None:
    stage = Stage()
    stage.outcomes.append(stage.loses_answer)
    stage.send(Client(), 0)
    stage.leader = None
    leave(stage, 20)
    stage.run(120)
    assert len(stage.stream.queue) == 0
    assert len(stage.stream.out) == 1


def test_abandoned_batches_do_not_wait_for_a_dead_proxys_intent() -> None:
    stage = Stage()
    stage.outcomes.append(stage.never_answers)
    stage.send(Client(), 0)
    stage.die()
    stage.leader = None
    leave(stage, 20)
    stage.run(120)
    assert len(stage.stream.queue) == 0


def test_while_the_store_is_away_nothing_is_kept_that_nobody_wants() -> None:
    stage = Stage()
    stage.send(Client(), 0)
    stage.store_away = True
    leave(stage, 20)
    stage.run(120)
    assert len(stage.stream.queue) == 0


def test_a_batch_of_the_same_name_and_other_content_does_not_join() -> None:
    stage = Stage()
    stage.outcomes.append(stage.loses_request)
    first = stage.send(Client(), 0, b"given up")
    other = stage.send(Client(), 0, b"of a client that begins its sequences anew")
    first.answer(answers.in_doubt("its time is up"))
    stage.run(30)
    assert other.offset == 0
    assert stage.stored_values() == [b"of a client that begins its sequences anew"]


def test_a_retry_waits_for_the_store_as_long_as_a_first_try() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    stage.store_away = True
    first = stage.send(client, 1)
    stage.run(limits.STORE_WAIT_SECONDS_MAX + 1)
    assert first.code == TIMED_OUT
    retry = stage.send(client, 1)
    stage.run(limits.STORE_WAIT_SECONDS_MAX / 2)
    assert retry.code is None
    stage.store_away = False
    stage.run(1)
    assert retry.offset == 1


def test_a_bound_above_a_shortened_log_is_not_requested_again_and_again() -> None:
    stage = Stage()
    stage.send(Client(), 0)
    stage.run(1)
    stage.context.bounds.note(TOPIC, PARTITION, Position(1000, b"vanished"))
    stage.run(limits.BOUND_AGE_SECONDS + 1)
    for sequence in range(1, 4):
        stage.send(Client(), sequence)
    asked = len(stage.asked)
    for sequence in range(4, 10):
        assert stage.send(Client(), sequence).offset == sequence
    assert len(stage.asked) == asked


def test_an_unanswered_bound_request_does_not_stop_a_producer_with_a_bound() -> None:
    stage = Stage()
    stage.send(Client(), 0)
    stage.run(limits.BOUND_AGE_SECONDS + 1)
    stage.reply = lambda _broker, _question: Unanswered("away")
    assert stage.send(Client(), 1).offset == 1
