"""Where a publication goes on, by what a server tells: never where the manifest could not have led to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.client import ProducerId, Stopped, sequence_after
from idemproxy.pipeline.sink.manifest import PlannedBatch
from idemproxy.pipeline.sink.publish import resumes_at

MINE = ProducerId(4711, 3)
LAST = 2**31 - 1
WRITTEN_MS = 1_700_000_000_000
COUNTS = st.lists(st.integers(1, 500), min_size=1, max_size=40)


def planned(first: int, counts: Sequence[int]) -> list[PlannedBatch]:
    batches: list[PlannedBatch] = []
    for count in counts:
        base = batches[-1].next_sequence if batches else first
        batches.append(PlannedBatch("x", 0, 100, count, 1, base))
    return batches


def last_of(batches: Sequence[PlannedBatch], stored: int) -> int:
    """The last sequence when so many of them are in the log, and all that came before."""
    following = batches[stored - 1].next_sequence if stored else batches[0].base_sequence
    return sequence_after(following, LAST)


@given(st.integers(1, LAST), COUNTS, st.data())
def test_each_border_of_the_manifest_is_where_it_goes_on(first: int, counts: list[int], data: st.DataObject) -> None:
    batches = planned(first, counts)
    stored = data.draw(st.integers(0, len(counts)))
    assert resumes_at(batches, MINE, Stopped(MINE, last_of(batches, stored))) == stored


@given(st.integers(0, LAST), COUNTS, st.integers(0, LAST))
def test_what_is_no_border_is_not_believed(first: int, counts: list[int], last_sequence: int) -> None:
    batches = planned(first, counts)
    borders = {last_of(batches, stored) for stored in range(len(counts) + 1)}
    found = resumes_at(batches, MINE, Stopped(MINE, last_sequence))
    assert (found is None) == (last_sequence not in borders)


@pytest.mark.parametrize(
    "last_sequence",
    [8, 11, 15, 20],
    ids=["before the manifest", "inside its first batch", "inside its second", "behind it"],
)
def test_an_end_that_the_manifest_does_not_have_tells_nothing(last_sequence: int) -> None:
    assert resumes_at(planned(10, [3, 5]), MINE, Stopped(MINE, last_sequence)) is None


@pytest.mark.parametrize("other", [ProducerId(4711, 2), ProducerId(4711, 4), ProducerId(4712, 3)])
def test_another_epoch_or_producer_tells_nothing(other: ProducerId) -> None:
    assert resumes_at(planned(10, [3, 5]), MINE, Stopped(other, 12)) is None


def test_nothing_told_tells_nothing() -> None:
    assert resumes_at(planned(10, [3, 5]), MINE, None) is None


def test_nothing_stored_of_the_epoch_is_the_begin_of_the_first_batch_of_all_and_no_other_border() -> None:
    assert resumes_at(planned(0, [3, 5]), MINE, Stopped(MINE, -1)) == 0
    assert resumes_at(planned(10, [3, 5]), MINE, Stopped(MINE, -1)) is None
    wraps = planned(LAST - 2, [3, 5])  # its first batch ends at the last sequence, so 0 comes next
    assert wraps[1].base_sequence == 0
    assert resumes_at(wraps, MINE, Stopped(MINE, -1)) is None
    assert resumes_at(wraps, MINE, Stopped(MINE, LAST)) == 1


def test_two_borders_of_one_sequence_are_not_told_apart() -> None:
    assert resumes_at(planned(5, [LAST, 1]), MINE, Stopped(MINE, 4)) is None


@pytest.mark.parametrize(("last_sequence", "begin"), [(9, 0), (12, 0), (17, 1)])
def test_the_last_batch_that_a_broker_tells_is_sent_again_as_its_followers_may_lack_it(
    last_sequence: int, begin: int
) -> None:
    assert resumes_at(planned(10, [3, 5]), MINE, Stopped(MINE, last_sequence, WRITTEN_MS)) == begin
