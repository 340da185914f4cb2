"""In a new data generation, in a log that compaction has left gaps in: what is known all the same, what nobody can
tell, and that a producer continues (rules R9, R10, R11)."""

import pytest

from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy.events import UnknownOutcomeResolved
from testkit.stage.sequencer import Client, Stage

OUT_OF_ORDER, INVALID, FENCED = 45, 87, 47
LIVES_OUT_SECONDS = 30


def after_a_loss(stored: int, removed: range) -> Stage:
    """So many batches were written, compaction has removed some, and the store knows nothing of any."""
    stage = Stage()
    client = Client()
    for sequence in range(stored):
        stage.send(client, sequence)
        stage.run(1)
    stage.log.messages[:] = [one for one in stage.log.messages if one.first_offset not in removed]
    stage.values.clear()
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()
    return stage


def test_a_gap_before_the_producers_last_batch_does_not_affect_the_next() -> None:
    stage = after_a_loss(4, range(1, 3))
    answer = stage.send(Client(), 4)
    stage.run(LIVES_OUT_SECONDS)
    assert answer.offset == 4


def test_a_retry_of_a_batch_stored_after_a_gap_is_a_duplicate() -> None:
    stage = after_a_loss(4, range(1, 3))
    answer = stage.send(Client(), 3)
    stage.run(LIVES_OUT_SECONDS)
    assert answer.offset == 3


def test_a_retry_of_what_a_gap_hides_never_gets_out_of_order() -> None:
    for sequence in (1, 2):
        stage = after_a_loss(4, range(1, 3))
        answer = stage.send(Client(), sequence)
        stage.run(LIVES_OUT_SECONDS)
        assert answer.code == INVALID
        assert len(stage.log.messages) == 2


def test_a_retry_in_an_initial_gap_never_gets_out_of_order() -> None:
    stage = after_a_loss(4, range(2))
    answer = stage.send(Client(), 1)
    stage.run(LIVES_OUT_SECONDS)
    assert answer.code == INVALID


def test_a_retry_of_what_retention_deleted_never_gets_out_of_order() -> None:
    stage = Stage()
    client = Client()
    for sequence in range(6):
        stage.send(client, sequence)
        stage.run(1)
    stage.log.retain(3)
    stage.earliest = 3
    stage.values.clear()
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()
    retry, next_one = stage.send(Client(), 2), stage.send(Client(), 6)
    stage.run(LIVES_OUT_SECONDS)
    assert (retry.code, next_one.offset) == (INVALID, 6)


def test_an_epoch_whose_beginning_is_there_is_known_below_the_window() -> None:
    stage = Stage()
    stage.log.append(encode_set([(None, b"foreign", 0)] * 2, magic=1), stage.now)
    client = Client()
    for sequence in range(8):
        stage.send(client, sequence)
        stage.run(1)
    stage.log.retain(2)
    stage.earliest = 2
    stage.values.clear()
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()
    there, other = stage.send(Client(), 1), stage.send(Client(), 0, b"other", b"two")
    stage.run(LIVES_OUT_SECONDS)
    assert (there.code, other.code) == (46, OUT_OF_ORDER)


def test_a_gap_after_the_last_batch_may_hide_the_next_one() -> None:
    stage = after_a_loss(4, range(2, 4))
    client = Client()
    hidden = stage.send(client, 2)
    stage.run(LIVES_OUT_SECONDS)
    assert hidden.code == INVALID
    later = [stage.send(client, sequence) for sequence in (3, 4, 7)]
    stage.run(LIVES_OUT_SECONDS)
    assert [one.code for one in later] == [INVALID] * 3
    assert len(stage.log.messages) == 2


def test_the_log_is_read_once_for_what_it_cannot_tell() -> None:
    stage = after_a_loss(4, range(4))
    client = Client()
    for sequence in range(4):
        stage.send(client, sequence)
        stage.run(LIVES_OUT_SECONDS)
    assert [event.result for event in stage.events if isinstance(event, UnknownOutcomeResolved)] == ["unrecoverable"]


@pytest.mark.promise("log-with-gaps")
def test_a_new_epoch_of_a_client_that_got_invalid_record_continues() -> None:
    stage = after_a_loss(4, range(4))
    client = Client()
    assert stage.send(client, 3).code is None
    stage.run(LIVES_OUT_SECONDS)
    first, second = stage.send(client, 0, epoch=1), stage.send(client, 1, epoch=1)
    stage.run(1)
    assert (first.offset, second.offset) == (4, 5)
    assert not stage.entry().is_ambiguous
    assert stage.send(client, 4).code == FENCED
    assert stage.send(Client(), 7, epoch=1).code == OUT_OF_ORDER


def test_a_new_epoch_that_may_have_begun_before_is_hidden_too() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.send(client, 0, epoch=1)
    stage.run(1)
    stage.log.messages.clear()
    stage.values.clear()
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()
    elsewhere, here = Client(), Client()
    stage.send(elsewhere, 0)
    stage.run(LIVES_OUT_SECONDS)
    retry = stage.send(here, 0, epoch=1)
    stage.run(LIVES_OUT_SECONDS)
    assert retry.code == INVALID
    assert stage.log.messages == []
    newer = stage.send(here, 0, epoch=2)
    stage.run(1)
    assert newer.code == 0


def test_a_proxy_that_has_an_old_picture_of_it_looks_again() -> None:
    stage = after_a_loss(2, range(2))
    client = Client()
    stage.send(client, 1)
    stage.run(LIVES_OUT_SECONDS)
    other = stage.new_sequencer()
    mine, stage.sequencer = stage.sequencer, other
    assert stage.send(client, 0, epoch=1).offset == 2
    stage.run(1)
    stage.sequencer = mine
    assert stage.send(Client(), 1, epoch=1).offset == 3


def test_what_a_gap_hides_stays_hidden_in_a_new_data_generation() -> None:
    stage = after_a_loss(2, range(2))
    client = Client()
    stage.send(client, 1)
    stage.run(LIVES_OUT_SECONDS)
    assert stage.entry().is_ambiguous
    stage.begin_lease_epoch(bytes(16))
    again = stage.send(Client(), 1)
    stage.run(LIVES_OUT_SECONDS)
    assert again.code == INVALID
    assert stage.log.messages == []


def test_a_record_of_the_same_content_without_a_batch_marker_stops_nobody_for_good() -> None:
    stage = Stage(keeps_batch_markers=False)
    stage.send(Client(), 0)
    stage.run(1)
    stage.values.clear()
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()
    client = Client()
    retry = stage.send(client, 0)
    stage.run(LIVES_OUT_SECONDS)
    assert retry.code == INVALID
    newer = stage.send(client, 0, b"something else", epoch=1)
    stage.run(1)
    assert newer.offset == 1
