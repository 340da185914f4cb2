"""Rules R5, R6, R8, each in the shortest scene in which exactly it matters: what is concluded from an answer
and from the log."""

import pytest
from mutants.scenes import SleepingBroker, a_stage_with_one_batch, dies_after, foreign, unclean_election
from simulation.cases import Fault, run_case

from idemproxy.codecs.batch_marker import Identity, anchor_of
from idemproxy.codecs.message_set import iterate_shallow
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import FetchRecords
from idemproxy.proxy.events import UnknownOutcomeResolved
from idemproxy.proxy.flow.effects import Append, Ask, Unanswered
from idemproxy.proxy.flow.outcome import Appended, InDoubt, Outcome, Refused, classify
from idemproxy.proxy.partition_log.log_chunk import ReadLog
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.state.entry import NO_ANCHOR
from testkit.stage.logs import numbered, wrapper
from testkit.stage.sequencer import NEXT_INSTANCE_ID, PARTITION, PRODUCER_ID, TOPIC, Client, ProduceConnection, Stage
from testkit.virtual.broker_faults import BrokerFault

TIMED_OUT, INVALID = 7, 87
SECOND = b"the second batch"


# ---------------------------------------------------------------------- R5
@pytest.mark.promise("append-with-error")
def test_what_a_broker_appended_and_answered_with_an_error_is_not_sent_again() -> None:
    for seed in range(1, 6):
        assert run_case(Fault(BrokerFault.ERROR_AFTER_APPEND.value, 1), seed=seed).problems == []


@pytest.mark.promise("append-with-error")
def test_what_was_appended_with_an_error_and_has_vanished_is_no_success() -> None:
    stage = Stage()

    def appended_and_lost(effect: Append) -> Outcome:
        foreign(stage, b"another one's")
        return Appended(0, 6, -1, stage.produce_connection)

    stage.outcomes.append(appended_and_lost)
    request = stage.send(Client(), 0)
    stage.run(10)
    assert stage.stored_values() == [b"another one's", b"value 0"]
    assert request.offset == 1


def test_a_batch_answered_with_an_error_is_searched_for_in_another_group() -> None:
    """The wrapper there names the batch, but is not the one that was sent: its anchor would never fit."""
    stage = Stage()

    def answered_for_another(_effect: Append) -> Outcome:
        names = [Identity(PRODUCER_ID, 0, sequence, 1) for sequence in range(2)]
        stage.log.append(wrapper(numbered(0, 2), 0, *names), stage.now)
        stage.log.advance(stage.log.end_offset)
        return Appended(0, 6, -1, stage.produce_connection)

    stage.outcomes.append(answered_for_another)
    request = stage.send(Client(), 0)
    stage.run(10)
    assert [event.result for event in stage.events if isinstance(event, UnknownOutcomeResolved)] == ["found"]
    assert (request.offset, len(stage.sent)) == (0, 1)


def test_without_an_offset_code_0_means_refused_and_minus_1_in_doubt() -> None:
    assert isinstance(classify(0, -1, -1, ProduceConnection(), 1), Refused), "an empty set: no commit"
    assert isinstance(classify(-1, -1, -1, ProduceConnection(), 1), InDoubt)


def test_a_batch_that_an_unknown_error_hides_is_looked_for() -> None:
    for seed in range(1, 6):
        assert run_case(Fault(BrokerFault.UNKNOWN.value, 1), seed=seed).problems == []


# ---------------------------------------------------------------------- R6
def test_an_unknown_outcome_reads_only_fetches_after_the_quiescence_check() -> None:
    """An earlier fetch, for another unknown outcome, may show the log of a topic that was deleted and recreated
    since."""
    stage = Stage()
    stage.outcomes.append(stage.loses_answer)
    since: list[float] = []
    stage.before[Ask] = lambda ask: since.append(ask.question.since) if isinstance(ask.question, ReadLog) else None
    request = stage.send(Client(), 0)
    began = stage.now
    stage.run(10)
    assert request.offset == 0
    assert since
    assert min(since) >= began + limits.QUIESCENCE_SECONDS


def test_the_log_is_not_read_before_the_brokers_quiescence_check() -> None:
    stage = Stage()
    broker = SleepingBroker(stage)
    request = stage.send(Client(), 0)
    stage.run(0.5)
    broker.wake()
    stage.run(10)
    assert stage.stored_values() == [b"value 0"]
    assert request.offset == 0


def test_the_broker_that_was_asked_is_waited_for_also_when_another_one_leads() -> None:
    stage = Stage()
    held: list[Append] = []

    def the_leader_moves(effect: Append) -> Outcome:
        held.append(effect)
        stage.leader = 2
        stage.reply = lambda broker_id, _question: Unanswered("it sleeps") if broker_id == 1 else None
        return InDoubt("no answer in time", 1)

    stage.outcomes.append(the_leader_moves)
    request = stage.send(Client(), 0)
    stage.run(5)
    stage.take(held[0])
    stage.leader, stage.reply = 1, lambda _broker_id, _question: None
    stage.run(10)
    assert stage.stored_values() == [b"value 0"]
    assert request.offset == 0


@pytest.mark.promise("proof-of-absence")
def test_the_log_is_read_to_its_end_once_that_is_replicated() -> None:
    stage = Stage()

    def appended_unreplicated(effect: Append) -> Outcome:
        stage.log.append(bytes(effect.message_set), stage.now)
        return InDoubt("the answer is lost", effect.broker_id)

    stage.outcomes.append(appended_unreplicated)
    request = stage.send(Client(), 0)
    stage.run(3)
    stage.log.advance(stage.log.end_offset)
    stage.run(10)
    assert stage.stored_values() == [b"value 0"]
    assert request.offset == 0


def test_the_intent_is_renewed_before_the_batch_is_sent_again() -> None:
    first = Stage()
    first.outcomes.append(first.loses_request)
    first.send(Client(), 0)
    first.run(0.5)
    second = Stage()  # the first one's lease is over, and it has not noticed
    second.values, second.log, second.context.instance.instance_id = first.values, first.log, NEXT_INSTANCE_ID
    first.alive.add(NEXT_INSTANCE_ID)
    broker = SleepingBroker(second, is_heard_of=False)
    second.send(Client(), 0)
    second.run(5)
    assert len(second.sent) == 1
    first.run(5)
    broker.wake()
    assert first.stored_values() == [b"value 0"]


@pytest.mark.promise("proof-of-absence")
def test_a_batch_is_sent_three_times_at_most() -> None:
    stage = Stage()
    stage.outcomes.extend([stage.loses_request] * 10)
    request = stage.send(Client(), 0)
    stage.run(60)
    assert len(stage.sent) == limits.FORWARDS_MAX == 3
    assert request.code == TIMED_OUT


def test_offsets_that_are_missing_from_the_log_prove_nothing() -> None:
    stage = Stage()

    def appended_and_compacted(effect: Append) -> Outcome:
        stage.take(effect)
        foreign(stage, b"a later one with the same key")
        del stage.log.messages[0]
        return InDoubt("the answer is lost", effect.broker_id)

    stage.outcomes.append(appended_and_compacted)
    request = stage.send(Client(), 0)
    stage.run(60)
    assert (len(stage.sent), request.code) == (1, INVALID)


def test_records_that_retention_has_deleted_prove_nothing() -> None:
    stage = Stage()
    foreign(stage, b"a", b"b")

    def appended_and_deleted(effect: Append) -> Outcome:
        stage.take(effect)
        foreign(stage, b"c", b"d")
        stage.earliest = 4
        return InDoubt("the answer is lost", effect.broker_id)

    stage.outcomes.append(appended_and_deleted)
    request = stage.send(Client(), 0)
    stage.run(60)
    assert (len(stage.sent), request.code) == (1, INVALID)


def test_a_search_that_retention_has_overtaken_begins_again_where_the_log_begins_now() -> None:
    stage = Stage()
    foreign(stage, *(b"%d" % number for number in range(8)))
    stage.values.clear()  # the producer is looked for in the whole log

    def deletes_what_is_read(_broker: int, question: object) -> None:
        if isinstance(question, FetchRecords):
            stage.earliest = 3

    stage.reply = deletes_what_is_read
    request = stage.send(Client(), 0)
    stage.run(60)
    assert (request.code, request.offset) == (0, 8)


@pytest.mark.parametrize("earliest", [0, 3])
def test_clients_that_recreate_a_batch_during_the_search_are_finally_served(earliest: int) -> None:
    """Records without a batch marker are looked for by their content, a second for each search; the batch that comes
    then is another one by its checksum only."""
    stage = Stage()
    foreign(stage, *(b"%d" % number for number in range(8)))
    stage.values.clear()  # the producer is looked for in the whole log, of which a part may have been deleted
    stage.earliest = earliest
    tries = []
    for number in range(20):
        client = Client()
        tries.append(stage.send(client, 0, b"a", b"b", timestamp=number))
        stage.run(0.75)
        if tries[-1].is_done:
            break
        client.is_closed = True
    assert tries[-1].code == 0
    assert len(tries) < 6
    assert stage.stored_values()[-2:] == [b"a", b"b"]
    assert stage.stored_values().count(b"a") == 1


def test_a_record_of_the_same_content_without_a_batch_marker_proves_nothing() -> None:
    stage = Stage(keeps_batch_markers=False)
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(Client(), 0)
    stage.run(60)
    assert (len(stage.sent), request.code) == (1, INVALID)


def test_of_a_batch_whose_first_part_is_found_only_the_rest_is_sent() -> None:
    stage = Stage()
    values = [b"record %d of a batch in parts" % number for number in range(8)]
    stage.context.topics.note_too_large(TOPIC, 200)
    stage.outcomes.extend([stage.succeeds, stage.loses_request])
    request = stage.send(Client(), 0, *values)
    stage.run(20)
    assert stage.stored_values() == values
    assert request.offset == 0


# ---------------------------------------------------------------------- R8
def test_a_first_batchs_bound_is_a_high_watermark_not_the_log_end() -> None:
    stage = Stage()
    foreign(stage, b"replicated")
    foreign(stage, b"soon lost", b"too", replicated=False)

    def led_by_another_broker(effect: Append) -> Outcome:
        stage.log.truncate(stage.log.high_watermark)
        stage.take(effect)
        foreign(stage, b"c", b"d", b"e")
        return InDoubt("the answer is lost", effect.broker_id)

    stage.outcomes.append(led_by_another_broker)
    request = stage.send(Client(), 0)
    stage.run(10)
    assert stage.stored_values().count(b"value 0") == 1
    assert request.offset == 1


def test_a_search_whose_anchor_is_another_record_begins_at_the_logs_start() -> None:
    stage, client = a_stage_with_one_batch()

    def an_unclean_leader_appends(effect: Append) -> Outcome:
        unclean_election(stage)
        stage.take(effect)
        foreign(stage, b"c", b"d")
        return InDoubt("the answer is lost", effect.broker_id)

    stage.outcomes.append(an_unclean_leader_appends)
    request = stage.send(client, 1, SECOND)
    stage.run(10)
    assert stage.stored_values().count(SECOND) == 1
    assert request.offset == 0


def test_who_takes_an_intent_over_searches_from_its_own_bound() -> None:
    stage = Stage()
    stage.outcomes.append(dies_after(stage, stage.take))
    stage.send(Client(), 0)
    foreign(stage, b"b", b"c")
    stage.die()
    stage.context.bounds.note(TOPIC, PARTITION, Position(3, NO_ANCHOR))
    retry = stage.send(Client(), 0)
    stage.run(10)
    assert stage.stored_values().count(b"value 0") == 1
    assert retry.offset == 0


def test_an_unverified_entry_has_no_other_bound_than_its_own_last_commit() -> None:
    stage, client = a_stage_with_one_batch()
    before = dict(stage.values)
    stage.send(client, 1, SECOND)
    stage.run(1)
    stage.values = before
    stage.die()
    stage.begin_lease_epoch()
    stage.context.bounds.note(TOPIC, PARTITION, Position(2, NO_ANCHOR))
    retry = stage.send(Client(), 1, SECOND)
    stage.run(20)
    assert stage.stored_values() == [b"value 0", SECOND]
    assert retry.offset == 1


def test_a_bound_whose_record_is_the_batch_itself_hides_no_copy_of_it() -> None:
    stage = Stage()
    stage.outcomes.append(dies_after(stage, stage.take))
    stage.send(Client(), 0)
    (wrapper,) = iterate_shallow(stage.log.messages[0].message.data)
    stage.die()
    stage.context.bounds.note(TOPIC, PARTITION, Position(1, anchor_of(wrapper)))
    unclean_election(stage)
    stage.outcomes.append(stage.loses_answer)
    retry = stage.send(Client(), 0)
    stage.run(20)
    assert stage.stored_values() == [b"value 0"]
    assert retry.offset == 0
