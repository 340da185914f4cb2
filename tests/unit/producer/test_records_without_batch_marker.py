"""A single record that a broker takes, but not with our batch marker around it: it goes as a plain message (rules R6,
R9). And sizes that a topic was seen to refuse: they count for a while, as its limit may be raised at any time."""

import os

import pytest

from idemproxy.codecs.batch_marker import parse_batch_marker
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy import limits
from idemproxy.proxy.events import BatchMarkerLost, NoRoomForBatchMarker
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import Appended, Outcome
from testkit.stage.sequencer import KEY, PARTITION, TOPIC, Client, Stage

TIMED_OUT, TOO_LARGE, LIST_TOO_LARGE, OUT_OF_ORDER, UNDECIDABLE = 7, 10, 18, 45, 87
BYTES_MAX = 2500
OVERHEAD_BYTES = 34
"""Of a plain message of format v1 without a key."""
BORDER = BYTES_MAX - OVERHEAD_BYTES
"""The largest value that the broker takes."""


def takes_no_more_than(stage: Stage, bytes_max: int = BYTES_MAX, code: int = TOO_LARGE) -> None:
    """From now on the broker takes no message set of more than so many bytes."""
    stage.outcomes.clear()

    def judge(effect: Append) -> Outcome:
        stage.outcomes.append(judge)
        return stage.refuses(code)(effect) if len(effect.message_set) > bytes_max else stage.succeeds(effect)

    stage.outcomes.append(judge)


def a_stage() -> Stage:
    stage = Stage()
    takes_no_more_than(stage)
    return stage


def record(count: int = BORDER) -> bytes:
    """A value that no codec makes smaller."""
    return os.urandom(count)


def batch_markers(stage: Stage) -> list[bool]:
    """For each stored message: has it a batch marker?"""
    return [parse_batch_marker(stored.message.key) is not None for stored in stage.log.messages]


def ends_with(stage: Stage, ending: str) -> None:
    """What becomes of the first append that the broker takes."""

    def judge(effect: Append) -> Outcome:
        if len(effect.message_set) > BYTES_MAX:
            stage.outcomes.append(judge)
            return stage.refuses(TOO_LARGE)(effect)
        takes_no_more_than(stage)
        outcome: Outcome = getattr(stage, ending)(effect)
        return outcome

    stage.outcomes.clear()
    stage.outcomes.append(judge)


def send_some(stage: Stage, client: Client, *sequences: int) -> None:
    for sequence in sequences:
        assert stage.send(client, sequence).offset == sequence
        stage.run(1)


# ---------------------------------------------------------------------- what the broker takes gets through
@pytest.mark.promise("stored-plain")
@pytest.mark.parametrize("bytes_below", [0, 1, 50, 100, 200])
def test_whatever_the_broker_takes_as_a_plain_message_gets_through(bytes_below: int) -> None:
    stage, client, value = a_stage(), Client(), record(BORDER - bytes_below)
    assert stage.send(client, 0).offset == 0
    request = stage.send(client, 1, value)
    stage.run(1)
    assert request.offset == 1
    assert stage.send(client, 2).offset == 2
    assert stage.stored_values() == [b"value 0", value, b"value 2"]
    assert stage.send(client, 1, value).offset == 1, "a retry"


@pytest.mark.promise("stored-plain")
def test_the_batch_marker_is_left_out_only_where_it_has_to_be() -> None:
    stage, client = a_stage(), Client()
    values = [record(BORDER - 200), record(BORDER), bytes(BORDER)]
    for sequence, value in enumerate(values):
        assert stage.send(client, sequence, value).offset == sequence
    assert batch_markers(stage) == [True, False, True]


def test_what_is_too_large_without_a_batch_marker_too_gets_the_brokers_code() -> None:
    stage = a_stage()
    assert stage.send(Client(), 0, record(BORDER + 1)).code == TOO_LARGE
    assert stage.stored_values() == []


@pytest.mark.promise("stored-plain")
def test_a_compressed_record_goes_as_a_wrapper_without_a_key() -> None:
    """As a plain message it is larger than the broker takes."""
    stage, value = Stage(), record().hex().encode()

    def refuses_this_size(effect: Append) -> Outcome:
        takes_no_more_than(stage, len(effect.message_set) - 1)
        return stage.refuses(TOO_LARGE)(effect)

    stage.outcomes.append(refuses_this_size)
    assert stage.send(Client(), 0, value, codec=Codec.GZIP).offset == 0
    assert stage.stored_values() == [value]
    assert [stored.message.codec for stored in stage.log.messages] == [Codec.GZIP]
    assert batch_markers(stage) == [False]


def test_within_a_batch_only_the_large_record_loses_its_batch_marker() -> None:
    stage, client = a_stage(), Client()
    values = [b"one", record(), b"two", b"three"]
    assert stage.send(client, 0, *values).offset == 0
    assert stage.stored_values() == values
    assert batch_markers(stage).count(False) == 1
    assert stage.send(client, 4).offset == 4


def test_that_is_said_of_the_record_and_not_of_the_topic() -> None:
    """The append is not read back as one that lost its batch marker; the next one is."""
    stage, client = a_stage(), Client()
    assert stage.send(client, 0, record()).offset == 0
    stage.run(1)
    assert stage.context.topics.unmarked == set()
    assert not any(isinstance(event, BatchMarkerLost) for event in stage.events)
    (event,) = [event for event in stage.events if isinstance(event, NoRoomForBatchMarker)]
    assert event == NoRoomForBatchMarker(TOPIC, PARTITION, BYTES_MAX)
    assert stage.context.batch_marker_probe.probed == set()


# ---------------------------------------------------------------------- in doubt
@pytest.mark.promise("no-room-for-marker")
def test_a_lost_answer_ends_in_an_error_and_in_one_copy() -> None:
    stage, value = Stage(), record()
    ends_with(stage, "loses_answer")
    request = stage.send(Client(), 0, value)
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert stage.stored_values() == [value]
    again = stage.send(Client(), 0, value)
    stage.run(60)
    assert again.code == UNDECIDABLE
    assert stage.send(Client(), 0, b"the next", epoch=1).offset == 1


def test_a_lost_request_is_sent_again() -> None:
    stage, value = Stage(), record()
    ends_with(stage, "loses_request")
    request = stage.send(Client(), 0, value)
    stage.run(60)
    assert request.offset == 0
    assert stage.stored_values() == [value]


def answers_with_an_error(stage: Stage, *foreign: bytes, is_cut_off: bool = False) -> None:
    """To the next record that goes without a batch marker: appended, but not replicated in time. Then others write."""

    def answer(effect: Append) -> Outcome:
        base_offset = stage.log.append(bytes(effect.message_set), stage.now)
        if is_cut_off:
            stage.log.truncate(base_offset)
        for value in foreign:
            stage.log.append(encode_set([(None, value, 0)], magic=1), stage.now)
        stage.log.advance(stage.log.end_offset)
        takes_no_more_than(stage)
        return Appended(base_offset, TIMED_OUT, -1, stage.produce_connection)

    stage.outcomes.extend([stage.refuses(TOO_LARGE), answer])


@pytest.mark.promise("no-room-for-marker")
def test_what_was_appended_with_an_error_ends_in_an_error_and_in_one_copy() -> None:
    stage, client, value = Stage(), Client(), record()
    send_some(stage, client, 0)
    answers_with_an_error(stage, b"foreign")
    request = stage.send(client, 1, value)
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert stage.stored_values() == [b"value 0", value, b"foreign"]


def test_what_was_cut_off_then_is_sent_again() -> None:
    stage, value = Stage(), record()
    answers_with_an_error(stage, b"foreign", is_cut_off=True)
    request = stage.send(Client(), 0, value)
    stage.run(60)
    assert request.offset == 1
    assert stage.stored_values() == [b"foreign", value]


def test_an_equal_record_elsewhere_is_not_taken_for_it() -> None:
    stage, value = Stage(), record()
    answers_with_an_error(stage, b"foreign", value, is_cut_off=True)
    request = stage.send(Client(), 0, value)
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert stage.stored_values() == [b"foreign", value]


def test_nor_where_an_earlier_try_was_said_to_lie() -> None:
    """The next one is lost without an answer, and another writer has the same record."""
    stage, value = Stage(), record()
    answers_with_an_error(stage, is_cut_off=True)

    def foreign(_effect: Append) -> Outcome:
        stage.log.append(encode_set([(None, value, 0)], magic=1), stage.now)
        stage.log.advance(stage.log.end_offset)
        return stage.loses_request(_effect)

    def second_try(_effect: Append) -> None:
        if len(stage.sent) == 2:
            stage.outcomes.appendleft(foreign)

    stage.before[Append] = second_try
    request = stage.send(Client(), 0, value)
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert stage.stored_values() == [value]


@pytest.mark.parametrize("values", [[record()], [b"one", record()], [record(), b"two"]])
def test_it_is_committed_before_its_client_is_answered(values: list[bytes]) -> None:
    """A proxy that dies then leaves no unknown outcome that the log could not decide."""
    stage = a_stage()
    assert stage.send(Client(), 0, *values).offset == 0
    stage.die()
    assert stage.send(Client(), 0, *values).offset == 0
    assert stage.send(Client(), len(values)).offset == len(values)


@pytest.mark.promise("no-room-for-marker")
@pytest.mark.parametrize("is_stored", [True, False])
def test_who_takes_over_makes_no_duplicate(is_stored: bool) -> None:
    stage, value = Stage(), record()

    def dies(effect: Append) -> Outcome:
        if is_stored:
            stage.take(effect)
        return stage.never_answers(effect)

    stage.outcomes.extend([stage.refuses(TOO_LARGE), dies])
    stage.send(Client(), 0, value)
    stage.die()
    takes_no_more_than(stage)
    retry = stage.send(Client(), 0, value)
    stage.run(60)
    assert retry.code == (UNDECIDABLE if is_stored else 0)
    assert stage.stored_values() == [value]


def test_a_duplicate_whose_connection_is_gone_is_known_by_its_content_at_its_offset() -> None:
    stage, value = a_stage(), record()
    send_some(stage, Client(), 0)
    assert stage.send(Client(), 1, value).offset == 1
    stage.run(1)
    stage.produce_connection.is_open = False
    assert stage.send(Client(), 1, value).offset == 1
    assert stage.send(Client(), 1, record()).code == OUT_OF_ORDER
    assert len(stage.log.messages) == 2


@pytest.mark.promise("no-room-for-marker")
def test_from_before_the_last_five_it_is_no_gap() -> None:
    stage, client, value = a_stage(), Client(), record()
    assert stage.send(client, 0, value).offset == 0
    send_some(stage, client, *range(1, 8))
    retry = stage.send(Client(), 0, value)
    stage.run(60)
    assert retry.code == UNDECIDABLE


@pytest.mark.parametrize("first", [[b"one"], [b"one", b"two"]])
@pytest.mark.parametrize("last", [[], [b"three"]])
def test_nor_is_a_batch_of_which_a_later_part_went_so(first: list[bytes], last: list[bytes]) -> None:
    stage, client = a_stage(), Client()
    values = [*first, record(), *last]
    assert stage.send(client, 0, *values).offset == 0
    send_some(stage, client, *range(len(values), len(values) + 6))
    retry = stage.send(Client(), 0, *values)
    stage.run(60)
    assert (retry.code, "cannot be decided" in retry.message) == (UNDECIDABLE, True)
    other = stage.send(Client(), 0, *first, record(), *last)
    stage.run(60)
    assert other.code == UNDECIDABLE, "its first records are in the log: brokers may have lost the others"
    other = stage.send(Client(), 0, *(b"other" for _ in first), record(), *(b"last" for _ in last))
    stage.run(60)
    assert other.code == OUT_OF_ORDER, "a client that begins its sequences again"


@pytest.mark.promise("no-room-for-marker")
def test_after_a_loss_in_the_store_its_retry_is_no_duplicate() -> None:
    stage, value = a_stage(), record()
    send_some(stage, Client(), 0)
    before = dict(stage.values)
    assert stage.send(Client(), 1, value).offset == 1
    stage.run(1)
    stage.values = before
    stage.die()
    stage.begin_lease_epoch()
    takes_no_more_than(stage)
    retry = stage.send(Client(), 1, value)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == [b"value 0", value]


@pytest.mark.parametrize("is_first", [True, False])
def test_nor_where_what_came_after_it_tells_of_the_producer(is_first: bool) -> None:
    stage, client, value = a_stage(), Client(), record()
    at = 0 if is_first else 1
    send_some(stage, client, *range(at))
    assert stage.send(client, at, value).offset == at
    send_some(stage, client, at + 1)
    del stage.values[KEY]
    stage.die()
    stage.begin_lease_epoch()
    takes_no_more_than(stage)
    behind = stage.send(Client(), at + 1)
    stage.run(60)
    assert behind.offset == at + 1
    retry = stage.send(Client(), at, value)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values().count(value) == 1


def test_nor_where_its_retry_comes_after_that_of_a_found_batch() -> None:
    stage, client, value = a_stage(), Client(), record()
    send_some(stage, client, 0)
    assert stage.send(client, 1, value).offset == 1
    del stage.values[KEY]
    stage.die()
    stage.begin_lease_epoch()
    takes_no_more_than(stage)
    before = stage.send(Client(), 0)
    stage.run(60)
    assert before.offset == 0
    retry = stage.send(Client(), 1, value)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == [b"value 0", value]
    assert stage.failures() == []


def test_a_missing_batch_after_one_that_was_found_is_appended() -> None:
    stage, client = a_stage(), Client()
    send_some(stage, client, 0)
    del stage.values[KEY]
    stage.die()
    stage.begin_lease_epoch()
    takes_no_more_than(stage)
    before = stage.send(Client(), 0)
    stage.run(60)
    assert before.offset == 0
    following = stage.send(Client(), 1)
    stage.run(60)
    assert following.offset == 1
    assert stage.entry().data_generation == stage.context.instance.data_generation


def test_the_next_batch_is_looked_for_from_there_on() -> None:
    stage, client = a_stage(), Client()
    assert stage.send(client, 0, record()).offset == 0
    stage.run(1)
    stage.outcomes.clear()
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(client, 1)
    stage.run(10)
    assert request.offset == 1
    intents = [entry.intent for entry in stage.swapped if entry.intent is not None]
    assert intents[-1].lower_bound == 1, "what lies there was recognised"


# ---------------------------------------------------------------------- sizes that were refused
def test_a_size_that_was_refused_is_not_tried_with_every_record() -> None:
    stage, client = a_stage(), Client()
    for sequence in range(3):
        assert stage.send(client, sequence, record()).offset == sequence
    assert len(stage.sent) == 4


def test_what_is_larger_than_what_was_refused_is_sent_once() -> None:
    stage, client = a_stage(), Client()
    assert stage.send(client, 0, record()).offset == 0
    sent = len(stage.sent)
    assert stage.send(client, 1, record(2 * BORDER)).code == TOO_LARGE
    assert len(stage.sent) == sent + 1


@pytest.mark.promise("raised-size-limit")
def test_a_raised_limit_is_learnt_with_the_next_larger_batch_after_a_while() -> None:
    stage, client = a_stage(), Client()
    values = [record(1000) for _ in range(7)]
    assert stage.send(client, 0, *values).offset == 0
    assert len(stage.log.messages) == 4
    takes_no_more_than(stage, 4 * BYTES_MAX)
    stage.run(limits.TOO_LARGE_SECONDS + 1)
    assert stage.send(client, 7, *values).offset == 7
    assert len(stage.log.messages) == 5


@pytest.mark.promise("raised-size-limit")
def test_it_is_learnt_at_once_from_a_larger_record_that_is_taken() -> None:
    stage, client = a_stage(), Client()
    assert stage.send(client, 0, record()).offset == 0
    takes_no_more_than(stage, 2 * BYTES_MAX)
    assert stage.send(client, 1, record(BORDER + 500)).offset == 1
    assert stage.send(client, 2, record()).offset == 2
    assert batch_markers(stage) == [False, True, True]


def test_a_limit_that_was_not_raised_costs_one_refused_request_in_a_while() -> None:
    stage, client = a_stage(), Client()
    values = [record(1000) for _ in range(7)]
    for turn in range(40):
        assert stage.send(client, 7 * turn, *values).offset == 7 * turn
        stage.run(limits.TOO_LARGE_SECONDS / 10)
    refused = len(stage.sent) - len(stage.log.messages)
    assert refused <= 4 * 4, "in each of four minutes: whole, compressed, and two halves"


def test_larger_ones_that_are_refused_meanwhile_do_not_put_that_off() -> None:
    stage, client = a_stage(), Client()
    stage.context.topics.note_too_large(TOPIC, 300)
    for _ in range(10):
        assert stage.send(client, 0, record(2 * BORDER)).code == TOO_LARGE
        stage.run(limits.TOO_LARGE_SECONDS / 5)
    assert (stage.context.topics.refused_size(TOPIC) or BORDER) > 300, "what was seen first is forgotten"


@pytest.mark.parametrize("code", [TOO_LARGE, LIST_TOO_LARGE])
def test_a_batch_that_is_larger_than_a_segment_is_stored_in_parts_too(code: int) -> None:
    stage, client = Stage(), Client()
    takes_no_more_than(stage, code=code)
    values = [record(1000) for _ in range(7)]
    assert stage.send(client, 0, *values).offset == 0
    assert stage.stored_values() == values
