"""Rules R9 and R14, each in the shortest scene in which exactly it matters: a batch that comes again, and copies."""

from dataclasses import replace

import pytest
from mutants.scenes import SleepingBroker, a_stage_with_one_batch, foreign, unclean_election

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import encode_message
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import FetchRecords
from idemproxy.proxy.events import DuplicateFound
from idemproxy.proxy.flow.effects import Append, Unanswered
from idemproxy.proxy.flow.outcome import InDoubt, Outcome
from idemproxy.state.sequence import SEQUENCE_MODULUS
from testkit.stage.sequencer import Client, ProduceConnection, Stage

TIMED_OUT, OUT_OF_ORDER, DUPLICATE, INVALID = 7, 45, 46, 87


# ---------------------------------------------------------------------- R9
def test_a_duplicate_lost_from_the_log_is_neither_confirmed_nor_sent_again() -> None:
    stage, _ = a_stage_with_one_batch()
    stage.produce_connection.is_open = False
    unclean_election(stage, b"another one's")
    retry = stage.send(Client(), 0)
    stage.run(40)
    assert stage.stored_values() == [b"another one's"], "later batches may be in the log: it would come after them"
    assert retry.code == INVALID


def test_an_unreadable_foreign_message_in_a_duplicates_place_means_invalid_record() -> None:
    """It ends at the very offset, and what is in it is no gzip."""
    stage, _ = a_stage_with_one_batch()
    stage.produce_connection.is_open = False
    unreadable = encode_message(None, b"no gzip at all", magic=1, offset=0, codec=Codec.GZIP)
    there = stage.log.messages[0]
    stage.log.messages[0] = replace(there, message=there.message._replace(data=unreadable))
    retry = stage.send(Client(), 0)
    stage.run(40)
    assert (retry.code, stage.failures()) == (INVALID, [])


def a_stage_with_seven_batches() -> Stage:
    stage, client = Stage(), Client()
    for sequence in range(7):
        stage.send(client, sequence)
        stage.run(1)
    return stage


def test_a_duplicate_from_before_the_window_is_known_because_the_log_has_it() -> None:
    stage = a_stage_with_seven_batches()
    retry = stage.send(Client(), 1)
    stage.run(5)
    assert retry.code == DUPLICATE


def test_an_epoch_is_searched_from_its_least_offset_after_a_truncation() -> None:
    stage, client = Stage(), Client()
    foreign(stage, b"a", b"b", b"c")
    stage.send(client, 0)
    stage.run(1)
    unclean_election(stage)
    for sequence in range(1, 7):
        stage.send(client, sequence)
        stage.run(1)
        foreign(stage, b"d", b"e")
    retry = stage.send(Client(), 1)
    stage.run(5)
    assert retry.code == DUPLICATE


def test_a_client_that_restarts_its_sequences_gets_no_success_for_other_records() -> None:
    stage = a_stage_with_seven_batches()
    retry = stage.send(Client(), 1, b"another content")
    stage.run(5)
    assert retry.code == OUT_OF_ORDER


def test_a_batch_after_a_possible_sequence_wrap_is_not_out_of_order() -> None:
    """So many records of others lie between that 2^31 of this producer might."""
    stage = a_stage_with_seven_batches()
    stage.log.end_offset += SEQUENCE_MODULUS
    stage.send(Client(), 7)
    stage.run(1)
    retry = stage.send(Client(), 1, b"another content")
    stage.run(5)
    assert retry.code == INVALID
    assert "come round" in retry.message


def test_old_batches_retried_in_order_are_searched_for_after_the_one_before() -> None:
    """However many there are, nothing before the last one is read again."""
    stage, client = Stage(), Client()
    for sequence in range(20):
        stage.send(client, sequence)
        stage.run(1)
        foreign(stage, b"another one's")
    again = Client()
    stage.send(again, 0)
    stage.run(5)
    stage.asked.clear()
    retries = [stage.send(again, sequence) for sequence in range(1, 15)]
    stage.run(5)
    assert [retry.code for retry in retries] == [DUPLICATE] * 14
    read = [question.offset for _, question in stage.asked if isinstance(question, FetchRecords)]
    assert read == sorted(read)
    assert read[0] == 1


def test_other_records_with_the_next_old_sequences_are_no_duplicate() -> None:
    stage = a_stage_with_seven_batches()
    retries = [stage.send(Client(), 0), stage.send(Client(), 1, b"another content")]
    stage.run(5)
    assert [retry.code for retry in retries] == [DUPLICATE, OUT_OF_ORDER]


def test_an_old_batch_not_found_after_the_one_before_is_searched_for() -> None:
    """The log was cut between the two, and the second one is in it no more."""
    stage = a_stage_with_seven_batches()
    first = stage.send(Client(), 0)
    stage.run(5)
    stage.log.truncate(1, unclean=True)
    foreign(stage, *[b"another one's"] * 6)
    second = stage.send(Client(), 1)
    stage.run(5)
    assert [first.code, second.code] == [DUPLICATE, INVALID], "it may be one of those without a batch marker"


def test_while_the_log_is_unreadable_batches_below_the_window_are_no_gap() -> None:
    stage = a_stage_with_seven_batches()
    stage.reply = lambda _broker_id, _question: Unanswered("away")
    retry = stage.send(Client(), 1)
    stage.run(2 * limits.SCAN_SECONDS_MAX)
    assert retry.code == TIMED_OUT


def a_stage_with_four_batches() -> tuple[Stage, Client]:
    stage, client = Stage(), Client()
    for sequence in range(4):
        stage.send(client, sequence)
        stage.run(1)
    return stage, client


@pytest.mark.promise("truncated-batch")
def test_a_batch_that_lies_where_one_that_was_cut_off_lay_is_found_there() -> None:
    stage, client = a_stage_with_four_batches()
    stage.log.truncate(2, unclean=True)
    stage.send(client, 4)
    stage.run(30)
    stage.produce_connection.is_open = False
    retry = stage.send(Client(), 4)
    stage.run(60)
    assert (retry.code, retry.offset) == (0, 2)
    assert stage.stored_values() == [b"value 0", b"value 1", b"value 4"]


@pytest.mark.promise("truncated-batch")
def test_a_truncated_batch_is_not_confirmed_by_its_successors_connection() -> None:
    """The unclean election happens while its successor is out; that one is sent again, and no answer was heard."""
    stage, client = a_stage_with_four_batches()
    stage.outcomes.append(stage.loses_request)
    stage.send(client, 4)
    stage.produce_connection.is_open = False
    stage.produce_connection = ProduceConnection()
    stage.log.truncate(2, unclean=True)
    client.is_closed = True
    client = Client()
    retries = [stage.send(client, sequence) for sequence in (2, 3, 4)]
    stage.run(60)
    assert stage.stored_values() == [b"value 0", b"value 1", b"value 4"]
    assert [retry.code for retry in retries] == [INVALID, INVALID, 0]


# ---------------------------------------------------------------------- R14
def test_what_was_sent_again_is_looked_for_twice_in_the_log() -> None:
    stage = Stage()
    broker = SleepingBroker(stage)
    stage.send(Client(), 0)
    stage.run(10)
    broker.wake()
    stage.run(limits.DUPLICATE_AUDITS_SECONDS[0] + 10)
    assert [event.offsets for event in stage.events if isinstance(event, DuplicateFound)] == [(0, 1)]


def test_what_was_not_found_and_is_dropped_is_looked_for_too() -> None:
    stage, client = Stage(), Client()
    broker = SleepingBroker(stage)
    stage.send(client, 0)
    client.is_closed = True
    stage.run(10)
    assert stage.send(Client(), 0).offset == 0
    broker.wake()
    stage.run(limits.DUPLICATE_AUDITS_SECONDS[0] + 10)
    assert [event.offsets for event in stage.events if isinstance(event, DuplicateFound)] == [(0, 1)]


def test_what_was_written_late_is_looked_for_too() -> None:
    stage = Stage()

    def written_late(effect: Append) -> Outcome:
        stage.take(effect)
        stage.take(effect)  # by another proxy that has taken it over, before that
        return InDoubt("the deadline passed over the write", effect.broker_id, is_late=True)

    stage.outcomes.append(written_late)
    stage.send(Client(), 0)
    stage.run(limits.DUPLICATE_AUDITS_SECONDS[0] + 10)
    assert [event.offsets for event in stage.events if isinstance(event, DuplicateFound)] == [(0, 1)]
