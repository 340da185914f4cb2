"""A wrapper of another writer whose inside cannot be read: what lies after it is found, and it proves no absence
(rules R6, R9, R10)."""

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import encode_message
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import FetchRecords
from idemproxy.proxy.flow.effects import Append, Unanswered
from idemproxy.proxy.flow.outcome import Outcome
from testkit.stage.sequencer import Client, Stage
from testkit.virtual.log import Stored
from testkit.virtual.messages import Message

UNDECIDABLE = 87
RECORDS = 3
LIVES_OUT_SECONDS = 30


def closed(first: int, records: int) -> Stored:
    """A wrapper of so many records that nothing unpacks."""
    last = first + records - 1
    data = encode_message(None, b"no gzip", magic=1, offset=last, codec=Codec.GZIP)
    return Stored(first, Message(last, 1, Codec.GZIP, -1, None, b"no gzip", data), 0, tuple(range(first, last + 1)))


def append_closed(stage: Stage) -> None:
    stage.log.messages.append(closed(stage.log.end_offset, RECORDS))
    stage.log.end_offset += RECORDS
    stage.log.advance(stage.log.end_offset)


def after_one_batch() -> tuple[Stage, Client]:
    stage, client = Stage(), Client()
    stage.send(client, 0)
    stage.run(1)
    return stage, client


def new_life(stage: Stage) -> None:
    stage.values.clear()
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()


# ---------------------------------------------------------------------- one batch in doubt
@pytest.mark.promise("log-cannot-tell")
def test_a_batch_after_a_wrapper_that_cannot_be_read_is_found() -> None:
    stage, client = after_one_batch()

    def comes_right_behind_it(effect: Append) -> Outcome:
        append_closed(stage)
        return stage.loses_answer(effect)

    stage.outcomes.append(comes_right_behind_it)
    request = stage.send(client, 1)
    stage.run(60)
    assert (request.code, request.offset) == (0, 1 + RECORDS)
    assert len(stage.sent) == 2


@pytest.mark.promise("log-cannot-tell")
def test_an_unreadable_wrapper_may_hide_a_batch_that_lost_its_batch_marker() -> None:
    stage, client = after_one_batch()

    def is_stored_so(effect: Append) -> Outcome:
        append_closed(stage)
        return stage.loses_request(effect)

    stage.outcomes.append(is_stored_so)
    request = stage.send(client, 1)
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert len(stage.sent) == 2, "it is not sent again"


def test_a_fetch_that_fails_at_such_a_wrapper_is_tried_again() -> None:
    stage, client = after_one_batch()
    failed = 0

    def comes_right_behind_it(effect: Append) -> Outcome:
        append_closed(stage)
        return stage.loses_answer(effect)

    def is_away(_broker: int, question: object) -> Unanswered | None:
        nonlocal failed
        if failed or not isinstance(question, FetchRecords) or question.bytes_max >= limits.FETCH_ONE_BYTES:
            return None
        failed += 1
        return Unanswered("away")

    stage.outcomes.append(comes_right_behind_it)
    stage.reply = is_away
    request = stage.send(client, 1)
    stage.run(60)
    assert (request.code, request.offset, failed) == (0, 1 + RECORDS, 1)


# ---------------------------------------------------------------------- a rebuild
def test_in_a_new_data_generation_everything_after_such_a_wrapper_is_known() -> None:
    stage, client = after_one_batch()
    append_closed(stage)
    for sequence in (1, 2, 3):
        stage.send(client, sequence)
        stage.run(1)
    new_life(stage)
    client = Client()
    retry, next_one = stage.send(client, 3), stage.send(client, 4)
    stage.run(60)
    assert (retry.offset, next_one.offset) == (3 + RECORDS, 4 + RECORDS)


def test_in_a_new_data_generation_such_a_wrapper_may_hide_later_batches() -> None:
    stage, _ = after_one_batch()
    append_closed(stage)
    new_life(stage)
    request = stage.send(Client(), 1)
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert len(stage.sent) == 1


def test_batches_possibly_hidden_below_a_rebuilt_window_are_never_out_of_order() -> None:
    stage, client = after_one_batch()
    stage.send(client, 1)
    stage.run(1)
    stage.log.messages[0] = closed(0, 1)
    new_life(stage)
    client = Client()
    hidden, known = stage.send(client, 0), stage.send(client, 1)
    stage.run(60)
    assert (hidden.code, known.offset) == (UNDECIDABLE, 1)
    assert len(stage.sent) == 2


# ---------------------------------------------------------------------- what is no wrapper
def test_nothing_is_looked_for_after_what_is_no_message_at_all() -> None:
    stage, client = after_one_batch()

    def comes_behind_another_format(effect: Append) -> Outcome:
        append_closed(stage)
        message = stage.log.messages[-1].message
        data = message.data[:16] + b"\x02" + message.data[17:]
        stage.log.messages[-1].message = message._replace(data=data)
        return stage.loses_answer(effect)

    stage.outcomes.append(comes_behind_another_format)
    request = stage.send(client, 1)
    stage.run(60)
    assert request.code == UNDECIDABLE
