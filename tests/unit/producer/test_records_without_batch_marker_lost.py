"""What Redis has lost is rebuilt from the log (rule R10), and the log does not tell whose a record without a batch
marker is: a batch that may be such a one, or begin or continue with such ones, is not appended a second time."""

import os

import pytest

from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy.events import UnknownOutcomeOpened
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import Outcome
from testkit.stage.sequencer import Client, Request, Stage

TOO_LARGE, DUPLICATE, UNDECIDABLE = 10, 46, 87
BYTES_MAX = 2500
OVERHEAD_BYTES = 34
"""Of a plain message of format v1 without a key."""


def record() -> bytes:
    """The largest value that the broker takes, without a batch marker; no codec makes it smaller."""
    return os.urandom(BYTES_MAX - OVERHEAD_BYTES)


def takes_no_more_than(stage: Stage, bytes_max: int = BYTES_MAX, *, until: int | None = None) -> None:
    """From now on the broker takes no message set of more than so many bytes. ``until``: how many more it takes before
    the connection to it breaks down."""
    stage.outcomes.clear()
    taken = 0

    def judge(effect: Append) -> Outcome:
        nonlocal taken
        if taken == until:
            return stage.never_answers(effect)
        stage.outcomes.append(judge)
        if len(effect.message_set) > bytes_max:
            return stage.refuses(TOO_LARGE)(effect)
        taken += 1
        return stage.succeeds(effect)

    stage.outcomes.append(judge)


def a_stage() -> Stage:
    """The first batch of its producer is stored."""
    stage = Stage()
    takes_no_more_than(stage)
    assert stage.send(Client(), 0).offset == 0
    stage.run(1)
    return stage


def loses_what_came_since(stage: Stage, before: dict[bytes, bytes]) -> None:
    """The proxy dies, and the store loses its last writes."""
    stage.values = before
    stage.die()
    stage.begin_lease_epoch()
    takes_no_more_than(stage)


def deletes_below(stage: Stage, offset: int) -> None:
    """Retention."""
    stage.log.retain(offset)
    stage.earliest = offset


def unknown_outcomes(stage: Stage) -> int:
    return sum(isinstance(event, UnknownOutcomeOpened) for event in stage.events)


def told(stage: Stage, request: Request) -> int | None:
    stage.run(60)
    return request.code


def follows_a_known_one(stage: Stage, *values: bytes, is_taken: int | None = None) -> Client:
    """The store loses two batches, the second with these values. The retry of the first comes alone; it is found by its
    batch marker. ``is_taken``: so many messages of the second before its proxy dies."""
    before = dict(stage.values)
    client = Client()
    assert stage.send(client, 1).offset == 1
    stage.run(1)
    takes_no_more_than(stage, until=is_taken)
    stage.send(client, 2, *values)
    loses_what_came_since(stage, before)
    again = Client()
    assert told(stage, stage.send(again, 1)) in (0, DUPLICATE)
    return again


@pytest.mark.promise("no-room-for-marker")
def test_what_follows_a_rebuilt_batch_is_looked_for_when_it_comes() -> None:
    stage, value = a_stage(), record()
    client = follows_a_known_one(stage, value)
    assert told(stage, stage.send(client, 2, value)) == UNDECIDABLE
    assert stage.stored_values() == [b"value 0", b"value 1", value]
    assert stage.send(client, 0, b"the next", epoch=1).offset == 3


def test_the_next_proxy_instance_looks_for_it_too() -> None:
    stage, value = a_stage(), record()
    follows_a_known_one(stage, value)
    data_generation = stage.context.instance.data_generation
    stage.die()
    stage.context.instance.data_generation = data_generation
    takes_no_more_than(stage)
    assert told(stage, stage.send(Client(), 2, value)) == UNDECIDABLE
    assert stage.stored_values().count(value) == 1


def test_so_is_the_first_of_a_new_epoch() -> None:
    stage, value = a_stage(), record()
    before = dict(stage.values)
    assert stage.send(Client(), 1).offset == 1
    assert stage.send(Client(), 0, value, epoch=1).offset == 2
    loses_what_came_since(stage, before)
    assert told(stage, stage.send(Client(), 1)) == 0
    assert told(stage, stage.send(Client(), 0, value, epoch=1)) == UNDECIDABLE
    assert stage.stored_values().count(value) == 1


def test_and_what_comes_while_the_one_before_is_looked_for() -> None:
    stage, value = a_stage(), record()
    before = dict(stage.values)
    client = Client()
    assert stage.send(client, 1).offset == 1
    assert stage.send(client, 2, value).offset == 2
    loses_what_came_since(stage, before)
    client = Client()
    first = stage.send(client, 1)
    stage.run(8)
    assert first.code is None
    second = stage.send(client, 2, value)
    assert told(stage, second) == UNDECIDABLE
    assert first.offset == 1
    assert stage.stored_values().count(value) == 1


def test_where_nobody_waited_for_the_rebuild_the_next_batch_is_looked_for() -> None:
    """The client is gone while the log is read."""
    stage, value = a_stage(), record()
    before = dict(stage.values)
    assert stage.send(Client(), 1, value).offset == 1
    loses_what_came_since(stage, before)
    other = Client()
    stage.send(other, 1, b"of another client that begins anew")
    stage.run(7.5)
    other.is_closed = True
    stage.run(10)
    assert told(stage, stage.send(Client(), 1, value)) == UNDECIDABLE
    assert stage.stored_values() == [b"value 0", value]


@pytest.mark.parametrize("is_foreign_there", [True, False])
def test_what_is_not_there_is_appended(is_foreign_there: bool) -> None:
    """Where nothing without a batch marker was seen after what is known, the log is not read once more."""
    stage = a_stage()
    before = dict(stage.values)
    assert stage.send(Client(), 1).offset == 1
    if is_foreign_there:
        stage.log.append(encode_set([(None, b"foreign", 0)], magic=1), stage.now)
        stage.log.advance(stage.log.end_offset)
    loses_what_came_since(stage, before)
    client = Client()
    assert told(stage, stage.send(client, 1)) == 0
    assert unknown_outcomes(stage) == 1
    assert told(stage, stage.send(client, 2, value := record())) == 0
    assert told(stage, stage.send(client, 3)) == 0
    assert unknown_outcomes(stage) == (2 if is_foreign_there else 1)
    assert stage.stored_values()[-2:] == [value, b"value 3"]


@pytest.mark.promise("no-room-for-marker")
@pytest.mark.parametrize("taken", [1, 2, 3])
def test_a_batch_that_begins_with_such_a_record_is_not_begun_again(taken: int) -> None:
    stage, values = a_stage(), [record(), b"two", record()]
    client = follows_a_known_one(stage, *values, is_taken=taken)
    assert stage.stored_values() == [b"value 0", b"value 1", *values[:taken]]
    assert told(stage, stage.send(client, 2, *values)) == UNDECIDABLE
    assert stage.stored_values() == [b"value 0", b"value 1", *values[:taken]]


@pytest.mark.parametrize("taken", [1, 2, 3])
def test_a_batch_is_completed_only_where_no_such_record_is_stored(taken: int) -> None:
    stage, values = a_stage(), [b"one", record(), b"three"]
    client = follows_a_known_one(stage, *values, is_taken=taken)
    code = told(stage, stage.send(client, 2, *values))
    assert code == (0 if taken == 1 else UNDECIDABLE)
    assert stage.stored_values() == [b"value 0", b"value 1", *(values if taken == 1 else values[:taken])]


@pytest.mark.parametrize("taken", [1, 2, 3, 4])
@pytest.mark.parametrize("is_known_one_first", [True, False])
def test_one_with_such_a_record_between_others_is_no_gap(taken: int, is_known_one_first: bool) -> None:
    """What comes after that record has a batch marker, so the batch seems to be in the log in part."""
    stage, values = a_stage(), [b"one", record(), b"three", record()]
    if is_known_one_first:
        client, first = follows_a_known_one(stage, *values, is_taken=taken), 2
    else:
        before, client, first = dict(stage.values), Client(), 1
        takes_no_more_than(stage, until=taken)
        stage.send(client, 1, *values)
        loses_what_came_since(stage, before)
        client = Client()
    request = stage.send(client, first, *values)
    assert told(stage, request) == (0 if taken == 1 else UNDECIDABLE)
    assert ("cannot be decided" in request.message) == (taken != 1)
    assert stage.stored_values()[first:] == (values if taken == 1 else values[:taken])


def test_a_producer_that_was_idle_beyond_the_logs_retention_continues() -> None:
    stage = a_stage()
    for _ in range(3):
        stage.log.append(encode_set([(None, b"foreign", 0)], magic=1), stage.now)
    stage.log.advance(stage.log.end_offset)
    loses_what_came_since(stage, dict(stage.values))
    deletes_below(stage, 3)
    value = record()
    assert told(stage, stage.send(Client(), 1, value, b"two")) == 0
    assert stage.stored_values() == [b"foreign", value, b"two"]
