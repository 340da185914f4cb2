"""A batch that an unverified entry knows is answered before the log is read for the others: what is stored is true, and
others' records that are equal to it are in nobody's way (rules R9, R10)."""

import pytest

from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy.events import UnknownOutcomeResolved
from testkit.stage.sequencer import KEY, Client, Stage

INVALID = 87
LIVES_OUT_SECONDS = 60


def with_batches(count: int, *, keeps_batch_markers: bool = True) -> Stage:
    stage = Stage(keeps_batch_markers=keeps_batch_markers)
    client = Client()
    for sequence in range(count):
        stage.send(client, sequence)
        stage.run(1)
    return stage


def beside_an_equal_record(count: int, *, is_empty: bool = False) -> Stage:
    """Somebody else's record equals the last of these batches; then the store begins another life, or is empty."""
    stage = with_batches(count)
    stage.log.append(encode_set([(None, b"value %d" % (count - 1), 0)], magic=1), stage.now)
    stage.log.advance(stage.log.end_offset)
    if is_empty:
        stage.values.clear()
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()
    return stage


def test_an_equal_record_of_others_does_not_block_a_known_batch() -> None:
    stage = beside_an_equal_record(3)
    client = Client()
    retry = stage.send(client, 2)
    stage.run(LIVES_OUT_SECONDS)
    following = stage.send(client, 3)
    stage.run(LIVES_OUT_SECONDS)
    assert (retry.offset, following.offset) == (2, 4)


def test_what_waits_together_with_a_known_batch_is_looked_for_alone() -> None:
    stage = beside_an_equal_record(3)
    client = Client()
    requests = [stage.send(client, sequence) for sequence in (1, 2, 3)]
    stage.run(LIVES_OUT_SECONDS)
    assert [one.offset for one in requests] == [1, 2, 4]
    assert [event.result for event in stage.events if isinstance(event, UnknownOutcomeResolved)] == ["not_found"]


def test_for_a_known_batch_alone_the_log_is_not_read_through() -> None:
    stage = with_batches(2)
    stage.begin_lease_epoch()
    retry = stage.send(Client(), 1)
    stage.run(LIVES_OUT_SECONDS)
    assert retry.offset == 1
    assert not [event for event in stage.events if isinstance(event, UnknownOutcomeResolved)]


def test_a_known_batch_that_vanished_from_the_log_gets_invalid_record() -> None:
    stage = with_batches(2)
    del stage.log.messages[1]
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()
    retry = stage.send(Client(), 1)
    stage.run(LIVES_OUT_SECONDS)
    assert retry.code == INVALID
    assert len(stage.sent) == 2


@pytest.mark.parametrize("had_batch_markers", [False, True])
def test_without_batch_markers_a_known_batch_does_not_vouch_for_later_ones(had_batch_markers: bool) -> None:
    stage = with_batches(1, keeps_batch_markers=had_batch_markers)
    stage.log.keeps_wrapper_keys = False
    known = stage.values[KEY]
    stage.send(Client(), 1)
    stage.run(1)
    stage.values[KEY] = known
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()
    client = Client()
    assert stage.send(client, 0).code is None
    stage.run(LIVES_OUT_SECONDS)
    retry = stage.send(client, 1)
    stage.run(LIVES_OUT_SECONDS)
    assert retry.code == INVALID
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_a_batch_found_by_its_batch_marker_is_certain_despite_equal_records() -> None:
    stage = beside_an_equal_record(2, is_empty=True)
    client = Client()
    requests = [stage.send(client, sequence) for sequence in (1, 2)]
    stage.run(LIVES_OUT_SECONDS)
    assert [one.offset for one in requests] == [1, 3]


def test_where_another_batch_with_the_same_content_waits_nobody_can_tell() -> None:
    stage = beside_an_equal_record(2, is_empty=True)
    client = Client()
    requests = [stage.send(client, 1), stage.send(client, 2, b"value 1")]
    stage.run(LIVES_OUT_SECONDS)
    assert [one.code for one in requests] == [INVALID, INVALID]
    assert len(stage.log.messages) == 3
