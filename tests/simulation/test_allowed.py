"""What the exceptions that ask for more than a code are for, and what they are not for."""

from __future__ import annotations

import gzip

import pytest
from simulation.allowed import (
    is_forgotten,
    is_gap_of_failures,
    keeps_batch_markers,
    was_ahead,
    was_left_behind,
    went_with_its_topic,
)
from simulation.log_records import InLog

from idemproxy.codecs.batch_marker import Identity as BatchMarker
from idemproxy.codecs.batch_marker import encode_batch_marker
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import encode_message, encode_set
from testkit.virtual.cluster import Partition
from testkit.virtual.log import PartitionLog
from testkit.virtual.producer import Answer, Batch, Identity

OLD, NEW = 7, 8


def sent(first: int, *names: tuple[int, int, int], failed: float | None = None) -> Batch:
    """A batch of one record that was sent under these producer ids, epochs and sequences."""
    batch = Batch(("t", 0), first, [b"%d" % first], 0.0, sent_as=[Identity(*name, 1) for name in names])
    batch.failed = None if failed is None else (failed, "gave up")
    return batch


def placed(batch: Batch, producer_id: int, offset: int, at: float) -> dict[bytes, list[InLog]]:
    """Where its record lies."""
    return {batch.values[0]: [InLog(offset, batch.values[0], producer_id, 0, 0, at)]}


@pytest.mark.parametrize(
    ("failed", "new_id", "offset", "appended_at", "is_left"),
    [
        (1.0, NEW, 4, 2.0, True),
        (None, NEW, 4, 2.0, False),
        (3.0, NEW, 4, 2.0, False),
        (1.0, OLD, 4, 2.0, False),
        (1.0, NEW, 6, 2.0, False),
    ],
    ids=["unrecoverable", "not unrecoverable", "unrecoverable too late", "of the same id", "nothing before it"],
)
def test_only_an_unrecoverable_batch_may_lie_after_one_of_another_id(
    failed: float | None, new_id: int, offset: int, appended_at: float, is_left: bool
) -> None:
    older, newer = sent(0, (OLD, 0, 0), failed=failed), sent(1, (new_id, 0, 0))
    assert was_left_behind(older, 5, [newer], placed(newer, new_id, offset, appended_at)) is is_left


# ---------------------------------------------------------------------- out of order for what is due by its client
def test_a_batch_came_early_only_while_the_one_before_it_was_not_in_the_log() -> None:
    told = Answer(3.0, Identity(OLD, 0, 5, 1), 45, -1, ahead_since=1.0)
    batch, numbered_again = sent(5, (OLD, 0, 5)), sent(5, (OLD, 0, 5))
    numbered_again.ahead_as.append(told.identity)
    unaware = Answer(3.0, told.identity, 45, -1)

    def at(seconds: float) -> list[InLog]:
        return [InLog(4, b"4", OLD, 0, 4, seconds)]

    assert was_ahead(batch, told, 2.0, [], at(1.5))
    assert not was_ahead(batch, told, 2.0, [], at(0.5)), "the one before it was there when it was sent"
    assert not was_ahead(batch, told, 2.0, at(1.5), []), "it was in the log when it was refused"
    assert was_ahead(batch, told, 2.0, at(2.5), [])
    assert not was_ahead(batch, unaware, 2.0, [], [])
    assert was_ahead(numbered_again, unaware, 2.0, [], at(2.5))
    assert not was_ahead(numbered_again, unaware, 2.0, [], at(1.5))


def test_only_a_batch_that_was_lost_as_a_whole_with_a_recreated_topic_went_with_it() -> None:
    batch = Batch(("t", 0), 0, [b"0", b"1"], 0.0, sent_as=[Identity(OLD, 0, 0, 2)])
    partition = Partition(PartitionLog(), (1,), 1)
    assert not went_with_its_topic(partition, batch, {b"0", b"1"})
    partition.met.add("topic recreated")
    assert went_with_its_topic(partition, batch, {b"0", b"1", b"2"})
    assert not went_with_its_topic(partition, batch, {b"0"})


def stored(batch: Batch, *, is_marked: bool = True) -> Partition:
    """A partition whose log has this batch, and another producer's after it."""
    partition = Partition(PartitionLog(), (1,), 1)
    for one, name in ((batch, batch.sent_as[0]), (sent(90, (NEW, 0, 0)), Identity(NEW, 0, 0, 1))):
        batch_marker = encode_batch_marker([BatchMarker(*name)]) if is_marked else None
        records = gzip.compress(encode_set([(None, one.values[0], 0)], magic=1))
        partition.log.append(encode_message(batch_marker, records, magic=1, timestamp=0, codec=Codec.GZIP), 0.0)
    partition.log.advance(partition.log.end_offset)
    return partition


@pytest.mark.parametrize("what", ["retention", "topic recreated"])
def test_a_record_that_was_stored_and_is_gone_is_forgotten(what: str) -> None:
    before = sent(0, (OLD, 0, 4))
    partition = stored(before)
    assert not is_forgotten(partition, Identity(OLD, 0, 5, 1), [before])
    partition.log.retain(1) if what == "retention" else partition.log.begin_again()
    assert is_forgotten(partition, Identity(OLD, 0, 5, 1), [before])
    assert not is_forgotten(partition, Identity(OLD, 0, 6, 1), [before]), "the record right before it was never sent"
    assert not is_forgotten(partition, Identity(OLD, 1, 5, 1), [before]), "it is of another epoch"


def test_batches_after_a_refused_follower_of_a_forgotten_one_are_forgotten() -> None:
    before, following = sent(0, (OLD, 0, 4)), sent(1, (OLD, 0, 5))
    partition = stored(before)
    partition.log.begin_again()
    assert not is_forgotten(partition, Identity(OLD, 0, 6, 1), [before, following])
    following.answers.append(Answer(1.0, Identity(OLD, 0, 5, 1), 45, -1))
    assert is_forgotten(partition, Identity(OLD, 0, 6, 1), [before, following])
    assert not is_forgotten(partition, Identity(OLD, 0, 7, 1), [before, following]), "one between them was not refused"
    assert not is_forgotten(partition, Identity(OLD, 1, 6, 1), [before, following]), "it is of another epoch"


def test_a_log_with_one_record_without_batch_marker_keeps_no_batch_markers() -> None:
    assert keeps_batch_markers(stored(sent(0, (OLD, 0, 4))))
    assert not keeps_batch_markers(stored(sent(0, (OLD, 0, 4)), is_marked=False))


@pytest.mark.parametrize(
    ("other", "is_gap"),
    [
        (sent(0, (OLD, 3, 0), failed=1.0), True),
        (sent(0, (OLD, 3, 0)), False),
        (sent(0, (OLD, 3, 0), failed=2.1), False),
        (sent(0, (OLD, 2, 0), failed=1.0), False),
        (sent(2, (OLD, 3, 2), failed=1.0), False),
    ],
    ids=["failed", "did not fail", "told later", "of another epoch", "was sent later"],
)
def test_only_a_reported_failure_of_the_same_epoch_makes_a_gap(other: Batch, is_gap: bool) -> None:
    batch = sent(1, (OLD, 3, 1))
    assert is_gap_of_failures(batch, Answer(2.0, batch.sent_as[0], 45, -1), [other, batch]) is is_gap
