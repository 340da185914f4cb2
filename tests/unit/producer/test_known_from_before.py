"""What a proxy knows of a producer from before Redis lost it, when another proxy has continued that producer since:
what Redis has goes further, though its version is lower, as versions have begun again (rules R10, R11)."""

from __future__ import annotations

from random import Random

import pytest
from mutants.scenes import takes_no_more_than

from testkit.stage.sequencer import DATA_GENERATION, NEXT_DATA_GENERATION, Client, Stage
from testkit.stage.two_proxies import at_the_time_of, beside, lost

WITH_BATCH_MARKER_BYTES_MAX = 2500
UNMARKED = Random(1).randbytes(WITH_BATCH_MARKER_BYTES_MAX - 34)
"""A record that the broker takes only without a batch marker next to it."""


def two_proxies(batches: int, *, keeps_batch_markers: bool = True) -> tuple[Stage, Stage]:
    """The first one has served the producer so far; then Redis is emptied."""
    first = Stage(keeps_batch_markers=keeps_batch_markers)
    for sequence in range(batches):
        first.send(Client(), sequence)
        first.run(1)
    second = beside(first)
    lost({}, DATA_GENERATION, first, second)
    return first, second


def goes_on(stage: Stage, *sequences: int, epoch: int = 0) -> None:
    for sequence in sequences:
        request = stage.send(Client(), sequence, *[b"new %d" % sequence] * epoch, epoch=epoch)
        stage.run(30)
        assert request.code == 0, request.message
    stage.run(3600)


@pytest.mark.parametrize("comes", ["next", "retry"])
def test_a_record_without_a_batch_marker_is_not_forgotten(comes: str) -> None:
    first, second = two_proxies(10)
    goes_on(second, 10)
    takes_no_more_than(second, WITH_BATCH_MARKER_BYTES_MAX)
    assert second.send(Client(), 11, UNMARKED).code == 0
    second.run(3600)
    assert (first.entry().next_sequence, first.entry().intent) == (12, None)
    at_the_time_of(second, first)
    back = first.send(Client(), 12) if comes == "next" else first.send(Client(), 11, UNMARKED)
    first.run(60)
    assert (back.code, back.offset) == (0, 12 if comes == "next" else 11)
    assert first.entry().next_sequence == (13 if comes == "next" else 12)


@pytest.mark.parametrize("sequence", [2, 3])
def test_a_newer_epoch_on_a_topic_without_batch_markers_is_not_forgotten(sequence: int) -> None:
    first, second = two_proxies(10, keeps_batch_markers=False)
    goes_on(second, 0, 1, 2, epoch=1)
    stored = len(first.stored_values())
    at_the_time_of(second, first)
    back = first.send(Client(), sequence, b"new %d" % sequence, epoch=1)
    first.run(60)
    assert (back.code, len(first.stored_values())) == (0, stored + (sequence == 3))


def test_what_retention_has_deleted_is_no_gap() -> None:
    first, second = two_proxies(10)
    goes_on(second, 10, 11)
    first.log.retain(12)
    first.earliest = 12
    at_the_time_of(second, first)
    back = first.send(Client(), 12)
    first.run(60)
    assert (back.code, back.offset) == (0, 12)


def test_a_recent_batch_that_redis_has_is_not_appended_again_after_retention() -> None:
    """Its answer was lost."""
    first, second = two_proxies(10)
    goes_on(second, 10)
    first.log.retain(11)
    first.earliest = 11
    at_the_time_of(second, first)
    sent = len(first.sent)
    first.send(Client(), 10)
    first.run(60)
    assert len(first.sent) == sent


def test_nor_is_it_forgotten_after_a_failover_that_lost_the_last_second() -> None:
    """Another data generation, in which the last writes of a busy producer are missing."""
    first = Stage()
    for sequence in range(5):
        first.send(Client(), sequence)
        first.run(1)
    replica = dict(first.values)
    for sequence in range(5, 15):
        first.send(Client(), sequence)
        first.run(0.1)
    first.run(1)
    second = beside(first)
    lost(replica, NEXT_DATA_GENERATION, first, second)
    goes_on(second, 15)
    takes_no_more_than(second, WITH_BATCH_MARKER_BYTES_MAX)
    assert second.send(Client(), 16, UNMARKED).code == 0
    second.run(1)
    at_the_time_of(second, first)
    back = first.send(Client(), 17)
    first.run(60)
    assert (back.code, back.offset) == (0, 17)


def test_what_goes_less_far_is_still_a_loss() -> None:
    """Redis has lost the last writes, and nobody has gone on since: what this proxy knows counts."""
    first = Stage(keeps_batch_markers=False)
    for sequence in range(5):
        first.send(Client(), sequence)
        first.run(1)
    replica = dict(first.values)
    for sequence in (5, 6):
        first.send(Client(), sequence)
        first.run(1)
    lost(replica, DATA_GENERATION, first)
    back = first.send(Client(), 6)
    first.run(60)
    assert (back.code, back.offset) == (0, 6)
    assert first.stored_values() == [b"value %d" % sequence for sequence in range(7)]
