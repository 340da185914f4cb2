"""In a new data generation, in a log of format v2 whose batches do not tell their producers: what is known all the
same, and what nobody can tell (rules R9, R10, R11)."""

from dataclasses import replace

import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.logged import anchor_of, iterate_logged
from idemproxy.proxy import limits
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.state.commit import fresh
from idemproxy.state.entry import NO_PRINCIPAL
from idemproxy.state.producer_ids import pack_block
from testkit.stage.logs import marked_batch
from testkit.stage.sequencer import (
    BLOCK_KEY,
    NEXT_DATA_GENERATION,
    PARTITION,
    PRODUCER_ID,
    TOPIC,
    Client,
    Request,
    Stage,
    batch_of,
)

OUT_OF_ORDER, INVALID = 45, 87
RETRIABLE = (7, 19)
LIVES_OUT_SECONDS = 30
OTHER = PRODUCER_ID + 1


def after_a_loss(*sequences: int, epoch: int = 0, deleted: int = 0, producer_id: int = PRODUCER_ID) -> Stage:
    """These batches of one record are in the log, but for the first ones, which retention has deleted; the store knows
    nothing of any."""
    stage = Stage()
    stage.store_v2()
    for sequence in sequences:
        append(stage, sequence, epoch, producer_id)
    stage.log.retain(deleted)
    stage.earliest = deleted
    stage.values.clear()
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()
    return stage


def append(stage: Stage, sequence: int, epoch: int = 0, producer_id: int = PRODUCER_ID) -> None:
    """A batch is appended by another proxy."""
    batch = batch_of((b"value %d" % sequence,), sequence, epoch)
    stage.log.append(bytes(marked_batch(batch, Identity(producer_id, epoch, sequence, 1))), stage.now, stores=2)
    stage.log.advance(stage.log.end_offset)


def answered(stage: Stage, sequence: int, epoch: int = 0) -> Request:
    """The answer to a batch."""
    request = stage.send(Client(), sequence, epoch=epoch)
    stage.run(LIVES_OUT_SECONDS)
    return request


def last_answer(stage: Stage, sequence: int, epoch: int = 0) -> Request:
    """The same once it is not retriable any more; its client sends it again until then."""
    client = Client()
    for _ in range(20):
        request = stage.send(client, sequence, epoch=epoch)
        stage.run(LIVES_OUT_SECONDS)
        if request.code not in RETRIABLE:
            break
    return request


@pytest.mark.parametrize("sequence", [0, 2])
def test_a_batch_is_undecidable_where_retention_may_have_deleted_it_before_others_of_its_producer(
    sequence: int,
) -> None:
    stage = after_a_loss(*range(6), deleted=4)
    assert answered(stage, sequence).code == INVALID
    assert answered(stage, sequence).code == INVALID
    assert len(stage.log.messages) == 2


def test_a_front_that_was_deleted_is_missed_also_where_the_bound_does_not_hold() -> None:
    stage = after_a_loss(*range(6), deleted=4)
    end = replace(fresh(bytes(16), NO_PRINCIPAL, 0, 1), version=1, end_offset=6, anchor=b"another.")
    stage.put(end)
    assert answered(stage, 1).code == INVALID
    assert len(stage.log.messages) == 2


def test_what_is_recognised_after_the_deleted_beginning_decides() -> None:
    stage = after_a_loss(*range(6), deleted=4)
    assert answered(stage, 5).offset == 5
    assert answered(stage, 6).offset == 6


def test_a_deleted_beginning_hides_nothing_where_no_batch_with_a_marker_follows() -> None:
    stage = after_a_loss(0, 1, deleted=2)
    assert answered(stage, 0).offset == 2


def test_a_producer_id_of_this_data_generation_begins_in_any_log() -> None:
    stage = after_a_loss(*range(6), deleted=4, producer_id=OTHER)
    stage.values[BLOCK_KEY] = pack_block(NEXT_DATA_GENERATION, 0)
    assert answered(stage, 0).offset == 6


@pytest.mark.parametrize(
    ("checkpoint", "sequence", "code"), [(5, 0, 0), (5, 2, OUT_OF_ORDER), (3, 0, INVALID), (3, 2, INVALID)]
)
def test_what_was_deleted_below_a_checkpoint_is_older_than_any_retry(checkpoint: int, sequence: int, code: int) -> None:
    stage = after_a_loss(*range(6), deleted=4, producer_id=OTHER)
    behind = Position(checkpoint, anchor_of(next(iterate_logged(stage.log.history[checkpoint - 1].message.data))))
    stage.context.bounds.checkpoints.note(stage.now, (TOPIC, PARTITION), behind)
    stage.run(limits.CLIENT_RETRY_SECONDS_MAX + 1)
    assert last_answer(stage, sequence).code == code


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored, nothing waits", "nothing stored, an old one waits"])
def test_a_batch_of_an_epoch_that_a_rebuild_did_not_look_for_is_undecidable(is_stored: bool) -> None:
    stage = after_a_loss(0, 1)
    for sequence in range(3):
        append(stage, sequence, 9)
    if is_stored:
        stage.put(replace(fresh(bytes(16), NO_PRINCIPAL, 0, 2), version=1))
        stage.sequencer.resolve_open(stage.now + LIVES_OUT_SECONDS)
        stage.run(LIVES_OUT_SECONDS)
    else:
        assert answered(stage, 1).offset == 1
    assert (stage.entry().producer_epoch, stage.entry().next_sequence) == (0, 2)
    assert last_answer(stage, 2, epoch=9).code == INVALID
    assert last_answer(stage, 3, epoch=9).code == INVALID
    assert len(stage.log.messages) == 5
    assert answered(stage, 0, epoch=10).offset == 5
