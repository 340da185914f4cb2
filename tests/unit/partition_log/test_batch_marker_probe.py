"""Whether a topic keeps batch markers is looked at with the first append of a partition and again after a while: its
settings and the brokers' message format change under a proxy that runs."""

from typing import Any

import pytest

from idemproxy.codecs.batch_marker import parse_batch_marker
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import FetchAnswer, FetchRecords
from idemproxy.proxy.events import BatchMarkerLost, OperatorMessage, UnknownOutcomeResolved
from testkit.stage.sequencer import PARTITION, TOPIC, Client, Stage

UNDECIDABLE = 87


def raise_format(stage: Stage) -> None:
    """From now on brokers store record batches (format v2), without batch markers, and show them so."""
    first = stage.log.end_offset

    def shown(_broker_id: int, question: Any) -> FetchAnswer | None:
        if not isinstance(question, FetchRecords) or question.offset < first:
            return None
        log, batches = stage.log, []
        for stored in log.messages:
            if question.offset <= stored.last_offset < log.high_watermark:
                inner = stored.message.records
                records = [Record(at, one.timestamp, one.key, one.value) for at, one in enumerate(inner)]
                batches.append(encode_batch(records, base_offset=stored.first_offset))
        return FetchAnswer(0, log.high_watermark, memoryview(b"".join(batches)))

    stage.reply = shown


def lost(stage: Stage) -> list[BatchMarkerLost]:
    return [event for event in stage.events if isinstance(event, BatchMarkerLost)]


def said(stage: Stage) -> list[str]:
    return [event.what for event in stage.events if isinstance(event, OperatorMessage)]


def fetches(stage: Stage) -> int:
    return sum(isinstance(question, FetchRecords) for _, question in stage.asked)


def send_some(stage: Stage, client: Client, *sequences: int) -> None:
    for sequence in sequences:
        assert stage.send(client, sequence).offset == sequence
        stage.run(1)


def test_storage_in_message_format_v2_is_reported_after_the_first_append() -> None:
    stage = Stage()
    raise_format(stage)
    client = Client()
    assert stage.send(client, 0).offset == 0
    (event,) = lost(stage)
    assert (event.topic, event.partition) == (TOPIC, PARTITION)
    assert "format v2" in event.stored_as
    assert stage.context.topics.unmarked == {TOPIC}
    send_some(stage, client, 1)
    looked = fetches(stage)
    send_some(stage, client, 2, 3, 4)
    assert fetches(stage) == looked, "it is not asked again with every append"
    assert len(lost(stage)) == 1


def test_a_lost_answer_there_ends_in_an_error_and_in_one_copy() -> None:
    stage = Stage()
    raise_format(stage)
    client = Client()
    send_some(stage, client, 0)
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(client, 1)
    stage.run(60)
    assert request.code == UNDECIDABLE
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_with_format_v2_a_lost_request_is_resent_if_nothing_was_appended() -> None:
    stage = Stage()
    raise_format(stage)
    client = Client()
    send_some(stage, client, 0, 1)
    stage.run(limits.BOUND_AGE_SECONDS)
    stage.outcomes.append(stage.loses_request)
    request = stage.send(client, 2)
    stage.run(60)
    assert request.offset == 2


@pytest.mark.promise("raised-format")
def test_a_duplicate_there_whose_connection_is_gone_is_found_by_its_content() -> None:
    stage = Stage()
    raise_format(stage)
    send_some(stage, Client(), 0)
    stage.produce_connection.is_open = False
    retry = stage.send(Client(), 0)
    stage.run(1)
    assert (retry.code, retry.offset) == (0, 0)
    assert stage.stored_values() == [b"value 0"]


@pytest.mark.promise("raised-format")
def test_with_format_v2_a_producer_gets_invalid_record_after_a_store_loss() -> None:
    stage = Stage()
    raise_format(stage)
    send_some(stage, Client(), 0)
    before = dict(stage.values)
    send_some(stage, Client(), 1)
    stage.values = before
    stage.die()
    stage.begin_lease_epoch()
    retry = stage.send(Client(), 1)
    stage.run(60)
    assert retry.code == UNDECIDABLE
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_a_format_that_is_raised_later_is_noticed() -> None:
    stage = Stage()
    client = Client()
    send_some(stage, client, 0, 1)
    raise_format(stage)
    send_some(stage, client, 2, 3)
    assert lost(stage) == [], "it was looked at a moment ago"
    stage.run(limits.BATCH_MARKER_PROBE_SECONDS)
    send_some(stage, client, 4, 5)
    assert len(lost(stage)) == 1
    assert stage.context.topics.unmarked == {TOPIC}


@pytest.mark.promise("no-markers")
def test_a_later_loss_of_batch_markers_is_reported_once_like_their_return() -> None:
    stage = Stage()
    client = Client()
    send_some(stage, client, 0, 1)
    stage.log.keeps_wrapper_keys = False
    stage.run(limits.BATCH_MARKER_PROBE_SECONDS)
    send_some(stage, client, 2, 3)
    stage.run(limits.BATCH_MARKER_PROBE_SECONDS)
    send_some(stage, client, 4, 5)
    assert len(lost(stage)) == 1
    stage.log.keeps_wrapper_keys = True
    stage.run(limits.BATCH_MARKER_PROBE_SECONDS)
    send_some(stage, client, 6, 7)
    assert said(stage) == [f"topic {TOPIC} keeps batch markers again"]
    assert stage.context.topics.unmarked == set()
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(client, 8)
    stage.run(10)
    assert request.offset == 8
    assert [event.result for event in stage.events if isinstance(event, UnknownOutcomeResolved)] == ["found"]


def test_a_codec_that_the_topic_is_given_later_is_taken_over() -> None:
    stage = Stage()
    client = Client()
    send_some(stage, client, 0, 1)
    stage.topic_codec = Codec.SNAPPY
    stage.run(limits.BATCH_MARKER_PROBE_SECONDS)
    send_some(stage, client, 2, 3)
    assert [parse_batch_marker(stored.message.key) is not None for stored in stage.log.messages] == [
        True,
        True,
        False,
        True,
    ]
    assert lost(stage) == []


def test_a_later_look_leaves_the_bound_that_was_read_of_such_a_topic() -> None:
    stage = Stage(keeps_batch_markers=False)
    client = Client()
    send_some(stage, client, 0, 1)
    stage.run(limits.BATCH_MARKER_PROBE_SECONDS)
    send_some(stage, client, 2)
    assert (TOPIC, PARTITION) in stage.context.bounds.known


def test_a_topic_is_not_marked_again_while_another_partition_of_it_loses_batch_markers() -> None:
    """Brokers are upgraded one by one: for a while each of them stores what it leads in its own format."""
    stage = Stage()
    client = Client()
    send_some(stage, client, 0)
    sent = bytes(stage.sent[-1].message_set)
    stage.log.keeps_wrapper_keys = False
    stage.run(limits.BATCH_MARKER_PROBE_SECONDS)
    send_some(stage, client, 1)
    assert len(lost(stage)) == 1

    def look_at_another_partition() -> None:
        stage.runner.start(stage.context.batch_marker_probe.probe((TOPIC, PARTITION + 1), sent, 0))

    look_at_another_partition()
    assert stage.context.topics.unmarked == {TOPIC}
    stage.run(3 * limits.BATCH_MARKER_PROBE_SECONDS)
    look_at_another_partition()
    assert stage.context.topics.unmarked == set(), "nothing was written to the other one since"


def test_until_an_append_was_read_back_no_append_reservation_is_taken() -> None:
    """Under one a batch without its batch marker could not be found again (seed 7028329)."""
    stage, client = Stage(owns=True), Client()
    stage.log_seconds = 1.0
    for sequence in range(4):
        assert stage.send(client, sequence).offset == sequence
        assert stage.sequencer.stream.held.append_reservation is None
    assert stage.context.batch_marker_probe.pending == {(TOPIC, PARTITION)}
    stage.run(2)
    for sequence in range(4, 8):
        assert stage.send(client, sequence).offset == sequence
    assert stage.context.batch_marker_probe.probed == {(TOPIC, PARTITION)}
    assert stage.sequencer.stream.held.append_reservation is not None
