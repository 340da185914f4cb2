"""Topics whose compression.type makes the broker store our wrappers without their key: nothing proves there what is
whose. An unknown outcome ends in an error that says so, never in a duplicate and never in
OUT_OF_ORDER_SEQUENCE_NUMBER."""

from typing import Any

import pytest

from idemproxy.codecs.batch_marker import parse_batch_marker
from idemproxy.codecs.compression import Codec
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import LatestOffset
from idemproxy.proxy.events import BatchMarkerLost, OperatorMessage, UnknownOutcomeResolved
from idemproxy.proxy.flow.effects import Ask, Unanswered
from idemproxy.state.entry import NO_ANCHOR
from testkit.stage.sequencer import KEY, PARTITION, TOPIC, Client, Stage

NO_LEADER, UNDECIDABLE, OUT_OF_ORDER = 6, 87, 45
HIDES_BATCH_MARKERS = pytest.mark.parametrize(
    "how", [{"topic_codec": Codec.NONE}, {"keeps_batch_markers": False}], ids=["plain", "no key"]
)


def a_stage_that_lost_the_last_commit() -> Stage:
    """Two batches are in the log, the store has a new data generation and knows of the first one only, as does the
    proxy."""
    stage = Stage(keeps_batch_markers=False)
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    before = dict(stage.values)
    stage.send(client, 1)
    stage.run(1)
    stage.values = before
    stage.die()
    stage.begin_lease_epoch()
    return stage


def test_a_lost_answer_ends_in_an_error_and_in_one_copy() -> None:
    stage = Stage(keeps_batch_markers=False)
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(Client(), 0)
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert stage.stored_values() == [b"value 0"]


def test_a_lost_request_is_sent_again() -> None:
    stage = Stage(keeps_batch_markers=False)
    stage.outcomes.append(stage.loses_request)
    request = stage.send(Client(), 0)
    stage.run(60)
    assert request.code == 0
    assert stage.stored_values() == [b"value 0"]


@pytest.mark.promise("log-cannot-tell")
def test_after_redis_lost_a_commit_the_retry_makes_no_duplicate() -> None:
    stage = a_stage_that_lost_the_last_commit()
    retry = stage.send(Client(), 1)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_after_redis_lost_a_commit_batches_missing_from_the_log_are_appended() -> None:
    stage = a_stage_that_lost_the_last_commit()
    request = stage.send(Client(), 1, b"another")
    stage.run(60)
    assert request.code == 0
    assert stage.stored_values()[-1] == b"another"


def test_a_batch_below_the_window_that_may_be_in_the_log_is_no_gap() -> None:
    stage = Stage(keeps_batch_markers=False)
    client = Client()
    for sequence in range(8):
        stage.send(client, sequence)
        stage.run(1)
    retry = stage.send(Client(), 1)
    stage.run(60)
    assert retry.code == UNDECIDABLE


def test_a_duplicate_whose_connection_is_gone_is_found_by_its_content_at_its_offset() -> None:
    stage = Stage(keeps_batch_markers=False)
    client = Client()
    stage.send(client, 0)
    stage.send(client, 1)
    stage.run(1)
    stage.produce_connection.is_open = False
    retry = stage.send(Client(), 1)
    other = stage.send(Client(), 0, b"another")
    stage.run(60)
    assert (retry.code, retry.offset) == (0, 1)
    assert other.code == OUT_OF_ORDER, "by the digest of what was committed"


@pytest.mark.promise("log-cannot-tell")
def test_where_batch_markers_end_a_found_batch_proves_nothing_about_the_next() -> None:
    stage, client = Stage(), Client()
    stage.send(client, 0)
    stage.log.keeps_wrapper_keys = False
    stage.send(client, 1)
    stage.run(1)
    del stage.values[KEY]
    stage.die()
    stage.begin_lease_epoch()
    found = stage.send(Client(), 0)
    stage.run(60)
    retry = stage.send(Client(), 1)
    stage.run(60)
    assert (found.offset, retry.code) == (0, UNDECIDABLE)
    assert stage.stored_values() == [b"value 0", b"value 1"]


# ---------------------------------------------------------------------- the first append is read back
def batch_markers(stage: Stage) -> list[bool]:
    """For each stored message: has it a batch marker?"""
    return [parse_batch_marker(stored.message.key) is not None for stored in stage.log.messages]


def resolved(stage: Stage) -> list[UnknownOutcomeResolved]:
    return [event for event in stage.events if isinstance(event, UnknownOutcomeResolved)]


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4])
def test_where_the_broker_compresses_with_another_codec_the_second_append_has_that_one(
    codec: Codec,
) -> None:
    stage = Stage(topic_codec=codec)
    client = Client()
    for sequence in range(3):
        assert stage.send(client, sequence).offset == sequence
        stage.run(1)
    assert batch_markers(stage) == [False, True, True]
    assert len([event for event in stage.events if isinstance(event, OperatorMessage)]) == 1
    assert not any(isinstance(event, BatchMarkerLost) for event in stage.events)
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(client, 3)
    stage.run(10)
    assert request.offset == 3
    assert [event.result for event in resolved(stage)] == ["found"]


@HIDES_BATCH_MARKERS
def test_where_no_codec_helps_it_is_said_once(how: dict[str, Any]) -> None:
    stage = Stage(**how)
    client, other = Client(), Client()
    for sequence in range(3):
        assert stage.send(client, sequence).offset == sequence
        stage.run(1)
    (lost,) = (event for event in stage.events if isinstance(event, BatchMarkerLost))
    assert (lost.topic, lost.partition) == (TOPIC, PARTITION)
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(other, 3)
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert stage.stored_values() == [b"value %d" % sequence for sequence in range(4)]


def test_where_batch_markers_are_kept_one_append_is_looked_at_and_no_more() -> None:
    stage = Stage()
    client = Client()
    asked: list[object] = []
    stage.send(client, 0)
    stage.before[Ask] = asked.append
    for sequence in range(1, 5):
        stage.send(client, sequence)
        stage.run(1)
    assert asked == []
    assert not any(isinstance(event, BatchMarkerLost | OperatorMessage) for event in stage.events)


def test_an_append_that_cannot_be_read_back_leaves_it_to_the_next_one() -> None:
    stage = Stage(topic_codec=Codec.NONE)
    client = Client()
    stage.send(client, 0)
    stage.context.batch_marker_probe.probed.clear()
    stage.context.topics.unmarked.clear()
    leader, stage.leader = stage.leader, None
    stage.context.leader_of = lambda _topic, _partition: leader
    stage.send(client, 1)
    assert stage.context.topics.unmarked == set()
    stage.leader = leader
    stage.send(client, 2)
    assert stage.context.topics.unmarked == {TOPIC}


def test_an_outcome_without_batch_markers_is_recovered_without_reading_the_whole_log() -> None:
    stage = Stage(topic_codec=Codec.NONE)
    client = Client()
    for sequence in range(50):
        stage.send(client, sequence, b"x" * 1000 + b"%d" % sequence)
        stage.run(limits.BOUND_AGE_SECONDS / 5)
    stage.outcomes.append(stage.loses_request)
    request = stage.send(client, 50)
    stage.run(30)
    assert request.offset == 50
    (absent,) = resolved(stage)
    assert absent.result == "not_found"
    assert absent.bytes_read < 15_000


# ---------------------------------------------------------------------- a topic that was recreated
def recreated(stage: Stage) -> Client:
    """Two batches are committed, then the topic is deleted and made again: its log begins at 0."""
    client = Client()
    for sequence in range(2):
        assert stage.send(client, sequence).offset == sequence
        stage.run(1)
    assert (stage.entry().end_offset, stage.entry().anchor) == (2, NO_ANCHOR)
    stage.log.begin_again()
    stage.run(limits.BOUND_AGE_SECONDS + 1)
    return client


@HIDES_BATCH_MARKERS
def test_a_batch_in_a_recreated_topics_log_is_not_appended_twice(how: dict[str, Any]) -> None:
    """It does not lie above where the last commit ended in the log before."""
    stage = Stage(**how)
    client = recreated(stage)
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(client, 2, b"one", b"two")
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert stage.stored_values() == [b"one", b"two"]


@HIDES_BATCH_MARKERS
def test_who_takes_over_finds_it_there_too(how: dict[str, Any]) -> None:
    stage = Stage(**how)
    client = recreated(stage)
    stage.outcomes.append(lambda effect: (stage.take(effect), stage.never_answers(effect))[1])
    stage.send(client, 2, b"one", b"two")
    stage.die()
    retry = stage.send(Client(), 2, b"one", b"two")
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == [b"one", b"two"]


@HIDES_BATCH_MARKERS
def test_after_redis_lost_a_commit_the_whole_new_log_is_searched(how: dict[str, Any]) -> None:
    stage = Stage(**how)
    client = recreated(stage)
    before = dict(stage.values)
    assert stage.send(client, 2, b"one", b"two").offset == 0
    stage.run(1)
    stage.values = before
    stage.die()
    stage.begin_lease_epoch()
    retry = stage.send(Client(), 2, b"one", b"two")
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == [b"one", b"two"]


@HIDES_BATCH_MARKERS
def test_while_nobody_tells_where_such_a_log_ends_nothing_is_appended(how: dict[str, Any]) -> None:
    stage = Stage(**how)
    client = recreated(stage)
    stage.context.bounds.known.clear()
    stage.reply = lambda _broker, question: Unanswered("away") if isinstance(question, LatestOffset) else None
    request = stage.send(client, 2)
    stage.run(1)
    assert request.code == NO_LEADER
    assert stage.stored_values() == []
