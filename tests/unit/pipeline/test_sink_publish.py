"""What a server tells of a producer, held against the batches of a manifest."""

from __future__ import annotations

import itertools

import pytest

from idemproxy.client import ProducerId, Stopped
from idemproxy.pipeline.sink.manifest import PlannedBatch
from idemproxy.pipeline.sink.publish import told_to_be_stored

PRODUCER = ProducerId(7000, 2)
MODULUS = 1 << 31


def planned(*borders: int) -> list[PlannedBatch]:
    """Batches between these sequences."""
    return [
        PlannedBatch("part-0", 0, 100, (end - begin) % MODULUS, 0, begin) for begin, end in itertools.pairwise(borders)
    ]


@pytest.mark.parametrize(("next_sequence", "stored"), [(10, 0), (15, 1), (30, 2), (31, 3)])
def test_as_many_are_stored_as_lie_before_the_sequence_that_is_due(next_sequence: int, stored: int) -> None:
    told = Stopped(PRODUCER, next_sequence - 1)
    assert told_to_be_stored(told, PRODUCER, planned(10, 15, 30, 31)) == stored


def test_the_first_sequence_of_an_epoch_and_the_wrap_are_borders_too() -> None:
    assert told_to_be_stored(Stopped(PRODUCER, -1), PRODUCER, planned(0, 5)) == 0
    assert told_to_be_stored(Stopped(PRODUCER, MODULUS - 1), PRODUCER, planned(MODULUS - 4, 0, 6)) == 1
    assert told_to_be_stored(Stopped(PRODUCER, 5), PRODUCER, planned(MODULUS - 4, 0, 6)) == 2


@pytest.mark.parametrize("next_sequence", [9, 12, 29, 32])
def test_what_is_no_border_of_these_batches_tells_nothing(next_sequence: int) -> None:
    assert told_to_be_stored(Stopped(PRODUCER, next_sequence - 1), PRODUCER, planned(10, 15, 30, 31)) is None


def test_nothing_told_and_another_epoch_tell_nothing() -> None:
    assert told_to_be_stored(None, PRODUCER, planned(10, 15)) is None
    assert told_to_be_stored(Stopped(ProducerId(7000, 3), 9), PRODUCER, planned(10, 15)) is None
