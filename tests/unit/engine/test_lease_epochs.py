"""What was learned in an earlier Redis data generation, or before the lease was lost, is void (rule R10)."""

from dataclasses import replace
from typing import Any

import pytest

from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy import limits
from idemproxy.proxy.flow.effects import Ask, MemberAlive
from idemproxy.state.commit import reserved
from idemproxy.state.entry import NO_ANCHOR, Intent, IntentBatch
from testkit.stage.sequencer import DATA_GENERATION, KEY, NEXT_DATA_GENERATION, Client, Stage

STRANGER = b"stranger"


def new_lease_epoch_at(stage: Stage, kind: type, data_generation: bytes) -> None:
    """A new lease epoch begins in the step of the next effect of this type."""

    def begin(_effect: Any) -> None:
        del stage.before[kind]
        stage.begin_lease_epoch(data_generation)

    stage.before[kind] = begin


@pytest.mark.parametrize("data_generation", [DATA_GENERATION, NEXT_DATA_GENERATION])
def test_a_batch_is_not_reserved_by_what_was_known_before_a_new_lease_epoch(data_generation: bytes) -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(limits.BOUND_AGE_SECONDS + 5)
    stage.swapped.clear()
    new_lease_epoch_at(stage, Ask, data_generation)  # while the lower bound is asked for
    request = stage.send(client, 1)
    if data_generation != DATA_GENERATION:
        stage.run(5)
        assert stage.swapped == []
        assert len(stage.sent) == 1, "nothing is touched before the leases of the lost state have run out"
    stage.run(30)
    assert request.code == 0
    assert {entry.data_generation for entry in stage.swapped[1:]} == {data_generation}
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_a_commit_of_an_earlier_lease_epoch_is_not_written() -> None:
    stage = Stage()
    request = stage.send(Client(), 0)
    assert request.code == 0
    stage.begin_lease_epoch(NEXT_DATA_GENERATION)  # the commit waits for something to ride on
    stage.run(1)
    assert stage.entry().has_open_intent, "it is found again in the log"
    retry = stage.send(Client(), 0)
    stage.run(30)
    assert (retry.code, retry.offset) == (0, 0)
    assert stage.stored_values() == [b"value 0"]


def test_nothing_is_taken_over_by_what_was_known_before_a_new_lease_epoch() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    intent = Intent(STRANGER, 0, (IntentBatch(1, 1, b"digest-0"),), 0, NO_ANCHOR, bytes(8), 1)
    stage.put(reserved(stage.entry(), intent))
    before = stage.values[KEY]
    stage.stream.held.forget()
    new_lease_epoch_at(stage, MemberAlive, NEXT_DATA_GENERATION)
    stage.send(client, 1, b"of another client")
    stage.run(5)
    assert stage.values[KEY] == before
    stage.run(60)
    assert stage.failures() == []


# ---------------------------------------------------------------------- a store that has less than it had confirmed
def test_a_missing_value_makes_the_proxy_read_the_log_not_append_again() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    stage.values.clear()  # an operator's FLUSHALL: no restart, no new data generation
    next_one = stage.send(client, 1)
    stage.run(30)
    retry = stage.send(Client(), 0)
    stage.run(30)
    assert (next_one.offset, retry.offset) == (1, 0)
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_an_older_value_makes_the_log_be_read() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    before = dict(stage.values)
    for sequence in (1, 2):
        stage.send(client, sequence)
        stage.run(1)
    stage.values = before
    stage.stream.held.forget()
    retry, next_one = stage.send(Client(), 1), stage.send(Client(), 3)
    stage.run(30)
    assert (retry.offset, next_one.offset) == (1, 3)
    assert len(stage.stored_values()) == 4


def test_a_living_strangers_intent_in_an_older_value_is_left_alone() -> None:
    stage = Stage()
    client = Client()
    for sequence in (0, 1, 2):
        stage.send(client, sequence)
        stage.run(1)
    intent = Intent(STRANGER, 0, (IntentBatch(3, 1, b"digest-0"),), 0, NO_ANCHOR, bytes(8), 1)
    stage.put(replace(reserved(stage.entry(), intent), version=2))
    stage.alive.add(STRANGER)
    stage.stream.held.forget()
    stage.send(client, 3)
    stage.run(30)
    assert stage.entry().version == 2
    stage.alive.clear()
    stage.run(30)
    assert stage.entry().version > 9
    assert len(stage.stored_values()) == 4


def test_a_value_that_has_expired_is_no_loss() -> None:
    stage = Stage()
    stage.context.instance.wall_clock_ms = lambda: round(stage.now * 1000)
    client = Client()
    stage.send(client, 0)
    stage.run(limits.PRODUCER_EXPIRY_SECONDS + 1)
    del stage.values[KEY]
    asked = len(stage.asked)
    for code in (19, 0):
        request = stage.send(client, 1)
        stage.run(1)
        assert request.code == code
    assert len(stage.asked) - asked < 5, "the log of a whole day is not read"


# ---------------------------------------------------------------------- what retention has deleted
def test_a_producer_idle_for_longer_than_the_log_goes_back_is_rebuilt() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    other = stage.log
    for number in range(50):
        other.append(encode_set([(None, b"foreign %d" % number, 0)], magic=1), stage.now)
    other.advance(other.end_offset)
    stage.earliest = 30
    stage.begin_lease_epoch()
    request = stage.send(client, 1)
    stage.run(40)
    assert (request.code, request.offset) == (0, 51)


def test_a_first_batch_whose_place_retention_has_deleted_stays_in_doubt() -> None:
    stage = Stage()
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(Client(), 0)
    stage.log.messages.clear()
    stage.earliest = stage.log.end_offset
    stage.run(60)
    assert request.code == 87
    assert stage.stored_values() == [], "it was in the log, and is not appended again"


def test_an_open_intent_whose_place_retention_has_deleted_stays_in_doubt() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    stage.outcomes.append(stage.never_answers)
    stage.send(client, 1)
    for number in range(50):
        stage.log.append(encode_set([(None, b"foreign %d" % number, 0)], magic=1), stage.now)
    stage.log.advance(stage.log.end_offset)
    stage.earliest = 30
    stage.die()
    request = stage.send(client, 1)
    stage.run(60)
    assert request.code == 87
    assert stage.sent[-1].identities[0].base_sequence == 1
    assert len(stage.sent) == 2
