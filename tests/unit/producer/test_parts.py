"""A batch in parts, in a topic whose compression.type changes between them: the first part has a batch marker, what
comes after it has none. Then the log does not tell of a later part whose it is: no duplicate of it is made, and the
client gets INVALID_RECORD (rules R6, R17, R19)."""

import os
from collections.abc import Callable

import pytest
from mutants.scenes import LATER, comes_again, takes_no_more_than

from idemproxy.codecs.batch_marker import parse_batch_marker
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.form import Form
from idemproxy.proxy.flow.outcome import Outcome
from testkit.stage.sequencer import Client, Stage

TOO_LARGE, UNDECIDABLE = 10, 87
RECORD_BYTES, PART_BYTES_MAX = 2000, 2500
Ending = Callable[[Append], Outcome]


def keeps_no_keys(stage: Stage) -> None:
    stage.log.keeps_wrapper_keys = False


def compresses_again(stage: Stage) -> None:
    stage.topic_codec = Codec.SNAPPY


def stores_plainly(stage: Stage) -> None:
    stage.topic_codec = Codec.NONE


LOSES_BATCH_MARKERS = pytest.mark.parametrize("changes", [keeps_no_keys, compresses_again, stores_plainly])


def records(count: int) -> list[bytes]:
    """Values that no codec makes smaller: each record is a part of its own."""
    return [os.urandom(RECORD_BYTES) for _ in range(count)]


def takes_parts(stage: Stage, changes: Callable[[Stage], None], endings: dict[int, Ending]) -> None:
    """The broker refuses more than one record at a time, and changes when it has stored the first one from now on.

    ``endings``: what becomes of the append that comes first when so many parts are stored; else it succeeds."""
    endings = dict(endings)
    stored_before = len(stage.log.messages)

    def judge(effect: Append) -> Outcome:
        stage.outcomes.append(judge)
        if len(effect.message_set) > PART_BYTES_MAX:
            return stage.refuses(TOO_LARGE)(effect)
        stored = len(stage.log.messages) - stored_before
        if stored:
            changes(stage)
        return endings.pop(stored, stage.succeeds)(effect)

    stage.outcomes.append(judge)


def is_marked(stage: Stage) -> list[bool]:
    """For each stored message: has it a batch marker?"""
    return [parse_batch_marker(stored.message.key) is not None for stored in stage.log.messages]


def stores_and_hears_nothing(stage: Stage) -> Ending:
    """For a process that dies meanwhile."""

    def ending(effect: Append) -> Outcome:
        stage.take(effect)
        return stage.never_answers(effect)

    return ending


# ---------------------------------------------------------------------- found by who sent it
@LOSES_BATCH_MARKERS
def test_a_second_part_without_a_batch_marker_whose_answer_is_lost_has_one_copy(
    changes: Callable[[Stage], None],
) -> None:
    stage, values = Stage(), records(2)
    takes_parts(stage, changes, {1: stage.loses_answer})
    request = stage.send(Client(), 0, *values)
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert stage.stored_values() == values
    assert is_marked(stage) == [True, False]
    assert stage.failures() == []


@pytest.mark.parametrize("is_stored", [True, False])
@LOSES_BATCH_MARKERS
def test_an_acknowledged_part_without_batch_marker_is_not_sent_with_the_next(
    changes: Callable[[Stage], None], is_stored: bool
) -> None:
    stage, values = Stage(), records(3)
    takes_parts(stage, changes, {2: stage.loses_answer if is_stored else stage.loses_request})
    request = stage.send(Client(), 0, *values)
    stage.run(60)
    assert request.code == (UNDECIDABLE if is_stored else 0)
    assert stage.stored_values() == values
    assert is_marked(stage)[:2] == [True, False]


def test_after_a_recovered_first_part_no_part_without_batch_marker_is_resent() -> None:
    stage, values = Stage(), records(3)
    takes_parts(stage, keeps_no_keys, {0: stage.loses_answer, 2: stage.loses_answer})
    request = stage.send(Client(), 0, *values)
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert stage.stored_values() == values
    assert is_marked(stage) == [True, False, False]


# ---------------------------------------------------------------------- found by another proxy instance
@pytest.mark.parametrize("parts", [2, 3])
@LOSES_BATCH_MARKERS
def test_who_takes_over_sends_no_rest_that_may_be_stored_without_a_batch_marker(
    changes: Callable[[Stage], None], parts: int
) -> None:
    stage, values = Stage(), records(parts)
    takes_parts(stage, changes, {parts - 1: stores_and_hears_nothing(stage)})
    stage.send(Client(), 0, *values)
    stage.die()
    assert is_marked(stage) == [True] + [False] * (parts - 1)
    retry = stage.send(Client(), 0, *values)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == values
    again = stage.send(Client(), 0, *values)
    stage.run(60)
    assert again.code == UNDECIDABLE
    assert stage.stored_values() == values
    assert stage.failures() == []


@pytest.mark.promise("parts")
@pytest.mark.parametrize("stored", [0, 1, 2])
@pytest.mark.parametrize("behind", [[], [b"next"]])
def test_of_a_partly_stored_batch_only_the_rest_is_sent(stored: int, behind: list[bytes]) -> None:
    """The next proxy instance finds the part that was out, and no other one."""
    stage, values = Stage(), records(4)
    takes_parts(stage, lambda _stage: None, {stored: stores_and_hears_nothing(stage)})
    stage.send(Client(), 0, *values)
    assert stage.stored_values() == values[: stored + 1]
    stage.die()
    takes_parts(stage, lambda _stage: None, {})
    client = Client()
    requests = [stage.send(client, 0, *values), *(stage.send(client, 4, value) for value in behind)]
    stage.run(60)
    assert [request.offset for request in requests] == [0, 4][: len(requests)]
    assert stage.stored_values() == [*values, *behind]
    assert stage.send(Client(), 0, *values).offset == 0
    assert stage.entry().window[0].record_count == 4, "one batch"
    assert stage.failures() == []


@pytest.mark.parametrize("is_recreated", [False, True])
def test_the_rest_is_sent_though_its_client_times_out_during_the_search(is_recreated: bool) -> None:
    stage, values = Stage(), records(3)
    stage.send(Client(), 0, b"before")
    stage.run(1)
    takes_parts(stage, lambda _stage: None, {1: stage.never_answers})
    stage.send(Client(), 1, *values, timestamp=LATER)
    stage.run(1)
    stage.die()
    client = Client()
    stage.send(client, 1, *values, timestamp=LATER)
    stage.run(0.3)
    client.is_closed = True
    stage.run(20)
    assert stage.stored_values() == [b"before", values[0]]
    takes_no_more_than(stage, PART_BYTES_MAX)
    stage.log_seconds = 1.9
    request = comes_again(stage, 1, *values, is_recreated=is_recreated)
    assert (request.code, request.offset) == (0, 1)
    assert stage.stored_values() == [b"before", *values]


@pytest.mark.promise("parts")
def test_a_batch_with_foreign_records_between_parts_gets_its_first_records_offset() -> None:
    stage, values = Stage(), records(3)

    def others_write(stage: Stage) -> None:
        stage.log.append(encode_set([(None, b"foreign", 0)], magic=1), stage.now)

    takes_parts(stage, others_write, {})
    assert stage.send(Client(), 0, *values).offset == 0
    assert [value for value in stage.stored_values() if value != b"foreign"] == values
    assert stage.stored_values().count(b"foreign") == 2
    stage.produce_connection.is_open = False
    assert stage.send(Client(), 0, *values).offset == 0


def test_a_batch_whose_client_leaves_between_parts_resumes_with_its_retry() -> None:
    stage, values, client = Stage(), records(3), Client()

    def goes(effect: Append) -> Outcome:
        client.is_closed = True
        return stage.succeeds(effect)

    takes_parts(stage, lambda _stage: None, {0: goes})
    stage.send(client, 0, *values)
    stage.run(1)
    assert stage.stored_values() == values[:1]
    assert (stage.entry().next_sequence, stage.entry().intent) == (1, None)
    assert stage.send(Client(), 0, *values).offset == 0
    assert stage.stored_values() == values


def test_a_batch_in_many_parts_pushes_no_other_one_out_of_the_last_five() -> None:
    stage, values, client = Stage(), records(12), Client()
    takes_parts(stage, lambda _stage: None, {})
    for sequence in range(4):
        assert stage.send(client, sequence).offset == sequence
    assert stage.send(client, 4, *values).offset == 4
    assert len(stage.log.messages) == 16
    stage.produce_connection.is_open = False
    assert [stage.send(Client(), sequence).offset for sequence in range(4)] == [0, 1, 2, 3]
    assert stage.send(Client(), 4, *values).offset == 4


def test_who_has_begun_a_new_epoch_between_the_parts_gets_no_rest() -> None:
    stage, values, client = Stage(), records(3), Client()

    def begins_again(stage: Stage) -> None:
        if not client.is_closed:
            client.is_closed = True
            stage.send(Client(), 0, b"again", epoch=1)

    takes_parts(stage, begins_again, {})
    stage.send(client, 0, *values)
    stage.run(60)
    assert stage.stored_values()[0] == values[0]
    assert stage.stored_values()[-1] == b"again"
    assert values[2] not in stage.stored_values()
    assert stage.failures() == []


def test_no_record_of_a_batch_in_parts_is_decoded_twice() -> None:
    """Once it was converted, what its client has sent is not looked at any more."""
    stage, values = Stage(), records(9)

    def takes_it_away(_effect: Append) -> None:
        for batch in stage.stream.out:
            batch.records = memoryview(b"")

    stage.before[Append] = takes_it_away
    takes_parts(stage, lambda _stage: None, {3: stage.loses_request, 5: stage.loses_answer})
    request = stage.send(Client(), 0, *values)
    stage.run(60)
    assert request.offset == 0
    assert stage.stored_values() == values
    assert stage.failures() == []


def test_who_has_taken_over_before_the_client_came_sends_no_rest_either() -> None:
    """While nobody brings the batch it is not known what to look for."""
    stage, values = Stage(), records(2)
    takes_parts(stage, keeps_no_keys, {1: stores_and_hears_nothing(stage)})
    stage.send(Client(), 0, *values)
    stage.die()
    following = stage.send(Client(), 2)
    stage.run(60)
    assert following.code == UNDECIDABLE
    retry = stage.send(Client(), 0, *values)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == values


def test_a_batch_rebuilt_from_its_marked_part_alone_gets_no_second_rest() -> None:
    stage, values = Stage(), records(2)
    assert stage.send(Client(), 0, b"before").offset == 0
    stage.run(1)
    before = dict(stage.values)
    takes_parts(stage, keeps_no_keys, {1: stores_and_hears_nothing(stage)})
    stage.send(Client(), 1, *values)
    stage.values = before
    stage.die()
    stage.begin_lease_epoch()
    retry = stage.send(Client(), 1, *values)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == [b"before", *values]
    assert is_marked(stage) == [True, True, False]
    assert stage.failures() == []


def test_a_missing_rest_is_sent_though_the_topic_keeps_no_batch_markers() -> None:
    stage, values = Stage(), records(3)
    takes_parts(stage, keeps_no_keys, {1: stage.never_answers})
    stage.send(Client(), 0, *values)
    stage.die()
    takes_parts(stage, keeps_no_keys, {1: stage.loses_answer})
    stage.log.keeps_wrapper_keys = False
    retry = stage.send(Client(), 0, *values)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == values


def test_the_rest_of_a_batch_is_not_appended_where_its_leader_stores_v2_now() -> None:
    """There a batch is appended as a whole, and its first record is in the log already."""
    stage, values = Stage(), records(2)
    takes_parts(stage, lambda _stage: None, {0: stores_and_hears_nothing(stage)})
    stage.send(Client(), 0, *values)
    stage.die()
    stage.outside.leader.form = Form.MARKED_V2
    retry = stage.send(Client(), 0, *values)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == values[:1]
    assert stage.failures() == []
