"""Refusals that one batch of a group, or one part of a batch, is to blame for (rules R5, R19); whom they name."""

import os

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.events import BatchAnswered
from idemproxy.proxy.flow.effects import Append, Swap
from idemproxy.proxy.flow.outcome import InDoubt, NotSent, Outcome, classify
from idemproxy.state.entry import principal_of
from idemproxy.state.producer_ids import pack_block
from testkit.stage.sequencer import BLOCK_KEY, DATA_GENERATION, Client, Stage

UNKNOWN, CORRUPT, TIMED_OUT, TOO_LARGE = -1, 2, 7, 10
OUT_OF_ORDER, FOREIGN, INVALID = 45, 49, 87


def dislikes(stage: Stage, sequence: int, code: int) -> None:
    """From now on the broker answers with this code, and without an offset, whatever has this batch in it."""

    def judge(effect: Append) -> Outcome:
        stage.outcomes.append(judge)
        if any(identity.base_sequence == sequence for identity in effect.identities):
            return classify(code, -1, -1, stage.produce_connection, effect.broker_id)
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


# ---------------------------------------------------------------------- batches in parts
def too_large_for(stage: Stage, size_max: int) -> None:
    """From now on the broker takes no message set of more than so many bytes."""

    def judge(effect: Append) -> Outcome:
        stage.outcomes.append(judge)
        return stage.refuses(TOO_LARGE)(effect) if len(effect.message_set) > size_max else stage.succeeds(effect)

    stage.outcomes.append(judge)


def test_a_batch_that_is_too_large_is_stored_in_parts() -> None:
    stage, client = Stage(), Client()
    too_large_for(stage, 2500)
    values = [os.urandom(1000) for _ in range(7)]
    request = stage.send(client, 0, *values)
    stage.run(5)
    assert request.offset == 0
    assert stage.stored_values() == values
    assert len(stage.log.messages) == 4
    assert stage.send(client, 7).offset == 7


def test_a_batch_with_a_too_large_later_record_fails_after_one_part() -> None:
    stage, client = Stage(), Client()
    too_large_for(stage, 2500)
    small, large = os.urandom(1000), os.urandom(5000)
    request = stage.send(client, 0, small, large)
    stage.run(5)
    assert request.code == INVALID
    assert "the first 1 records" in (request.answers[0].message or "")
    behind = stage.send(client, 2)
    stage.run(5)
    assert behind.code == OUT_OF_ORDER, "as behind any batch that fails for good"
    fresh = stage.send(client, 0, b"the next", epoch=1)
    stage.run(5)
    assert fresh.offset == 1
    assert stage.stored_values() == [small, b"the next"]


def test_a_single_record_that_is_too_large_gets_the_brokers_code() -> None:
    stage = Stage()
    too_large_for(stage, 2500)
    assert stage.send(Client(), 0, os.urandom(5000)).code == TOO_LARGE


def die_after_a_part(stage: Stage) -> None:
    """The append after the next one that succeeds is never answered."""
    end = stage.log.end_offset

    def look(_effect: Append) -> None:
        if stage.log.end_offset > end:
            stage.outcomes.appendleft(stage.never_answers)

    stage.before[Append] = look


def test_a_batch_is_not_completed_from_another_with_the_same_sequences() -> None:
    stage, client = Stage(), Client()
    values = [os.urandom(2000) for _ in range(2)]
    too_large_for(stage, 2500)
    stage.before[Append] = lambda _effect: (
        stage.outcomes.appendleft(stage.never_answers) if stage.log.messages else None
    )
    stage.send(client, 0, *values)
    assert stage.stored_values() == values[:1]
    del stage.before[Append]
    stage.die()
    other = stage.send(client, 0, os.urandom(2000), os.urandom(2000))
    stage.run(10)
    assert other.code == OUT_OF_ORDER
    again = stage.send(client, 0, *values)
    stage.run(10)
    assert again.offset == 0
    assert stage.stored_values() == values


def a_stage_where_a_batch_lacks_its_rest(values: list[bytes]) -> Stage:
    """Its first part is in the log after another batch, the proxy has died, and its state is whole."""
    stage = Stage()
    too_large_for(stage, 2500)
    assert stage.send(Client(), 0, b"before").offset == 0
    die_after_a_part(stage)
    stage.send(Client(), 1, *values)
    assert stage.stored_values() == [b"before", values[0]]
    del stage.before[Append]
    stage.die()
    return stage


def test_what_lies_before_a_batch_that_lacks_its_rest_is_answered() -> None:
    """Its client may not have heard of it, and sends nothing else before it has."""
    values = [os.urandom(2000) for _ in range(2)]
    stage = a_stage_where_a_batch_lacks_its_rest(values)
    before, behind = stage.send(Client(), 0, b"before"), stage.send(Client(), 3)
    stage.run(10)
    assert (before.offset, behind.code) == (0, OUT_OF_ORDER)
    assert stage.send(Client(), 1, *values).offset == 1
    assert stage.stored_values() == [b"before", *values]
    assert stage.failures() == []


def test_no_rest_is_sent_for_a_client_answered_while_redis_was_away() -> None:
    values = [os.urandom(2000) for _ in range(2)]
    stage = a_stage_where_a_batch_lacks_its_rest(values)
    swaps = 0

    def goes_away(_effect: Swap) -> None:
        nonlocal swaps
        swaps += 1
        stage.store_away = swaps > 1  # the first one takes the intent over

    stage.before[Swap] = goes_away
    request = stage.send(Client(), 1, *values)
    stage.run(10)
    assert request.code == TIMED_OUT
    del stage.before[Swap]
    stage.store_away = False
    stage.run(10)
    assert stage.stored_values() == [b"before", values[0]]
    assert stage.failures() == []
    again = stage.send(Client(), 1, *values)
    stage.run(10)
    assert again.offset == 1
    assert stage.stored_values() == [b"before", *values]


def a_stage_that_died_after_one_of_two_parts(values: list[bytes]) -> Stage:
    """And a new data generation of the store began without the reserve."""
    stage = Stage()
    too_large_for(stage, 2500)
    assert stage.send(Client(), 0, b"before").offset == 0
    stage.run(1)
    before = dict(stage.values)
    die_after_a_part(stage)
    stage.send(Client(), 1, *values)
    assert stage.stored_values() == [b"before", values[0]]
    del stage.before[Append]
    stage.values = before
    stage.die()
    stage.begin_lease_epoch()
    return stage


def test_a_batch_of_which_a_rebuild_found_the_first_part_gets_its_rest() -> None:
    values = [os.urandom(2000) for _ in range(2)]
    stage = a_stage_that_died_after_one_of_two_parts(values)
    request = stage.send(Client(), 1, *values)
    stage.run(30)
    assert request.offset == 1
    assert stage.stored_values() == [b"before", *values]
    again, next_one = stage.send(Client(), 1, *values), stage.send(Client(), 3)
    stage.run(30)
    assert (again.offset, next_one.offset) == (1, 3)
    assert stage.failures() == []


def test_another_batch_overlapping_with_a_rebuilt_part_is_out_of_order() -> None:
    stage = a_stage_that_died_after_one_of_two_parts([os.urandom(2000) for _ in range(2)])
    request = stage.send(Client(), 1, os.urandom(2000), os.urandom(2000))
    stage.run(30)
    assert request.code == OUT_OF_ORDER
    assert len(stage.stored_values()) == 2


def test_of_a_batch_begun_by_any_client_only_the_rest_is_appended() -> None:
    stage, client = Stage(), Client()
    stage.send(client, 0, b"one", b"two")
    stage.run(1)
    assert stage.send(Client(), 0, b"one", b"zwei", b"three").code == OUT_OF_ORDER
    assert stage.send(Client(), 0, b"one", b"two", b"three").offset == 0
    assert stage.send(Client(), 0, b"one", b"two", b"three").offset == 0, "a duplicate"
    assert stage.stored_values() == [b"one", b"two", b"three"]


# ---------------------------------------------------------------------- a group of which only the first batch is there
def first_batch_alone() -> Append:
    """What leaves of a group when its first batch goes alone."""
    twin = Stage()
    twin.send(Client(), 0)
    (sent,) = twin.sent
    return sent


def test_of_a_group_whose_first_batch_is_there_the_others_are_sent() -> None:
    stage = Stage()
    first_alone = first_batch_alone()

    def late_copy(effect: Append) -> Outcome:
        assert len(effect.identities) == 2
        stage.take(first_alone)
        return InDoubt("the request is lost", effect.broker_id)

    stage.outcomes += [lambda _effect: NotSent("the broker is away"), late_copy]
    client = Client()
    requests = [stage.send(client, sequence) for sequence in (0, 1)]
    stage.run(20)
    assert stage.failures() == []
    assert [request.offset for request in requests] == [0, 1]
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_who_takes_over_a_group_whose_first_batch_is_there_drops_the_others() -> None:
    stage = Stage()
    first_alone = first_batch_alone()

    def late_copy(effect: Append) -> Outcome:
        assert len(effect.identities) == 2
        stage.take(first_alone)
        return stage.never_answers(effect)

    stage.outcomes += [lambda _effect: NotSent("the broker is away"), late_copy]
    client = Client()
    for sequence in (0, 1):
        stage.send(client, sequence)
    stage.run(1)
    stage.die()
    retries = [stage.send(Client(), sequence) for sequence in (0, 1)]
    stage.run(20)
    assert stage.failures() == []
    assert [retry.offset for retry in retries] == [0, 1]
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_events_of_a_batch_name_the_client_that_sent_it() -> None:
    """Also where somebody came first who has no right to the producer id."""
    stage, owner, thief = Stage(), Client("owner"), Client("thief")
    owner.name, thief.name = "owner", "thief"
    stage.values[BLOCK_KEY] = pack_block(DATA_GENERATION, 0, principal_of("owner"))
    for client, sequence in ((thief, 0), (owner, 0), (owner, 1), (thief, 2)):
        stage.send(client, sequence)
        stage.run(1)
    told = [(event.client, event.error_code) for event in stage.events if isinstance(event, BatchAnswered)]
    assert told == [("thief", FOREIGN), ("owner", 0), ("owner", 0), ("thief", FOREIGN)]
    assert stage.sequencer.statistics().client == "owner"
