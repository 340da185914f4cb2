"""Where a publication resumes, by what a server tells: never where the manifest could not have led to."""

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
def test_a_publication_resumes_at_each_border_of_the_manifest(
    first: int, counts: list[int], data: st.DataObject
) -> None:
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


def test_a_server_that_reports_nothing_gives_no_place_to_resume() -> None:
    assert resumes_at(planned(10, [3, 5]), MINE, None) is None


def test_an_epoch_without_records_resumes_only_at_the_first_batch_of_all() -> None:
    assert resumes_at(planned(0, [3, 5]), MINE, Stopped(MINE, -1)) == 0
    assert resumes_at(planned(10, [3, 5]), MINE, Stopped(MINE, -1)) is None
    wraps = planned(LAST - 2, [3, 5])  # its first batch ends at the last sequence, so 0 comes next
    assert wraps[1].base_sequence == 0
    assert resumes_at(wraps, MINE, Stopped(MINE, -1)) is None
    assert resumes_at(wraps, MINE, Stopped(MINE, LAST)) == 1


def test_two_borders_of_one_sequence_are_ambiguous() -> None:
    assert resumes_at(planned(5, [LAST, 1]), MINE, Stopped(MINE, 4)) is None


@pytest.mark.parametrize(("last_sequence", "begin"), [(9, 0), (12, 0), (17, 1)])
def test_the_last_batch_that_a_broker_reports_is_resent_for_its_followers(last_sequence: int, begin: int) -> None:
    assert resumes_at(planned(10, [3, 5]), MINE, Stopped(MINE, last_sequence, WRITTEN_MS)) == begin
