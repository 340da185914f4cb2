"""What the two exceptions that ask for more than a code are for, and what they are not for."""

from __future__ import annotations

import pytest
from simulation.allowed import is_behind_a_failure, was_left_behind
from simulation.log_records import InLog

from testkit.virtual.producer import Batch, Identity

OLD, NEW = 7, 8


def sent(first: int, *names: tuple[int, int, int], failed: float | None = None) -> Batch:
    """A batch of one record that was sent under these producer ids, epochs and sequences."""
    batch = Batch(("t", 0), first, [b"%d" % first], 0.0, sent_as=[Identity(*name, 1) for name in names])
    batch.failed = None if failed is None else (failed, "gave up")
    return batch


def placed(batch: Batch, producer_id: int, offset: int, at: float) -> dict[bytes, list[InLog]]:
    """Where its record lies."""
    return {batch.values[0]: [InLog(offset, batch.values[0], producer_id, 0, 0, at)]}


def test_a_batch_behind_one_of_its_epoch_that_failed_before_is_behind_a_failure() -> None:
    batch = sent(1, (OLD, 3, 1), failed=2.0)
    assert is_behind_a_failure(batch, [sent(0, (OLD, 3, 0), failed=1.0), batch])


@pytest.mark.parametrize(
    "other",
    [
        sent(0, (OLD, 3, 0)),
        sent(0, (OLD, 3, 0), failed=2.5),
        sent(0, (OLD, 2, 0), failed=1.0),
        sent(0, failed=1.0),
        sent(2, (OLD, 3, 2), failed=1.0),
    ],
    ids=["did not fail", "failed later", "of another epoch", "was never sent", "was sent later"],
)
def test_a_batch_beside_any_other_is_not(other: Batch) -> None:
    batch = sent(1, (OLD, 3, 1), failed=2.0)
    assert not is_behind_a_failure(batch, [other, batch])


@pytest.mark.parametrize(
    ("failed", "new_id", "offset", "appended_at", "is_left"),
    [
        (1.0, NEW, 4, 2.0, True),
        (None, NEW, 4, 2.0, False),
        (3.0, NEW, 4, 2.0, False),
        (1.0, OLD, 4, 2.0, False),
        (1.0, NEW, 6, 2.0, False),
    ],
    ids=["given up", "not given up", "given up too late", "of the same id", "nothing before it"],
)
def test_only_what_was_given_up_lies_behind_another_id(
    failed: float | None, new_id: int, offset: int, appended_at: float, is_left: bool
) -> None:
    older, newer = sent(0, (OLD, 0, 0), failed=failed), sent(1, (new_id, 0, 0))
    assert was_left_behind(older, 5, [newer], placed(newer, new_id, offset, appended_at)) is is_left
