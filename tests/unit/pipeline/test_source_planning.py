"""Which task reads what, how much a trigger takes, and offsets as Spark keeps them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.pipeline.reading.broker import TopicPartition
from idemproxy.pipeline.source.offsets import (
    BEGINS_AT,
    StreamOffset,
    named,
    parse_offsets,
    parse_stream_offset,
    stream_offset_json,
)
from idemproxy.pipeline.source.planning import Range, limited, ranges_between, split

PLACES = st.tuples(st.sampled_from(["orders", "payments"]), st.integers(0, 3))
SIZES = st.dictionaries(PLACES, st.integers(0, 10_000), min_size=1)


def test_only_what_has_something_to_read_gets_a_task() -> None:
    starts = {("b", 1): 5, ("a", 0): 0, ("a", 1): 7, ("a", 2): 9}
    ends = {("b", 1): 6, ("a", 0): 3, ("a", 1): 7, ("a", 2): 8}
    assert ranges_between(starts, ends) == [Range("a", 0, 0, 3), Range("b", 1, 5, 6)]


def test_ranges_are_cut_so_that_there_are_enough_and_none_is_too_long() -> None:
    ranges = [Range("a", 0, 100, 400), Range("a", 1, 0, 10)]
    assert split(ranges) == ranges
    assert split(ranges, 2) == ranges
    cut = split(ranges, 4)
    assert [one.end for one in cut if one.partition == 0] == [175, 250, 325, 400]
    assert [one for one in cut if one.partition == 1] == [ranges[1]]
    assert [one.end - one.start for one in split(ranges, records_max=100)] == [100, 100, 100, 10]
    assert split([], 4, 5) == []


@given(SIZES, st.integers(1, 50), st.one_of(st.none(), st.integers(1, 1000)))
def test_cut_ranges_cover_the_same_offsets(
    sizes: dict[TopicPartition, int], partitions_min: int, records_max: int | None
) -> None:
    ranges = ranges_between(dict.fromkeys(sizes, 3), {place: 3 + size for place, size in sizes.items()})
    pieces = split(ranges, partitions_min, records_max)
    assert len(pieces) >= min(partitions_min, sum(sizes.values()))
    assert all(one.start < one.end for one in pieces)
    if records_max is not None:
        assert all(one.end - one.start <= records_max for one in pieces)
    for whole in ranges:
        parts = [one for one in pieces if one.place == whole.place]
        assert [one.end for one in parts[:-1]] == [one.start for one in parts[1:]]
        assert (parts[0].start, parts[-1].end) == (whole.start, whole.end)


@given(SIZES, st.integers(1, 30_000))
def test_a_trigger_takes_exactly_its_limit_or_everything(sizes: dict[TopicPartition, int], rows_max: int) -> None:
    starts = dict.fromkeys(sizes, 50)
    ends = limited(starts, {place: 50 + size for place, size in sizes.items()}, rows_max)
    taken = {place: end - 50 for place, end in ends.items()}
    assert all(0 <= taken[place] <= size for place, size in sizes.items())
    assert sum(taken.values()) == min(rows_max, sum(sizes.values()))
    if rows_max >= len(sizes):
        assert all(taken[place] > 0 for place, size in sizes.items() if size)


def test_a_limit_is_shared_as_large_as_what_waits() -> None:
    starts = {("a", 0): 0, ("a", 1): 0, ("a", 2): 0}
    assert limited(starts, {("a", 0): 9000, ("a", 1): 900, ("a", 2): 1}, 101) == {
        ("a", 0): 91,
        ("a", 1): 9,
        ("a", 2): 1,
    }
    assert limited(starts, {("a", 0): 5, ("a", 1): 9, ("a", 2): 7}, 2) == {("a", 0): 0, ("a", 1): 1, ("a", 2): 1}


def test_a_limit_does_not_raise_an_end_below_its_start() -> None:
    assert limited({("a", 0): 10, ("a", 1): 0}, {("a", 0): 4, ("a", 1): 8}, 3) == {("a", 0): 4, ("a", 1): 3}


@given(st.dictionaries(PLACES, st.integers(0, 1 << 62)), st.dictionaries(PLACES, st.integers(0, 1 << 62)))
def test_offsets_of_a_stream_survive_the_checkpoint(
    ends: dict[TopicPartition, int], begins: dict[TopicPartition, int]
) -> None:
    kept = json.loads(json.dumps(stream_offset_json(StreamOffset(ends, begins))))
    assert parse_stream_offset(kept) == (ends, begins)
    assert parse_offsets(json.dumps(kept), "startingOffsets") == ends


def test_offsets_look_as_those_of_sparks_own_source() -> None:
    ends = {("b", 0): 3, ("a", 10): 2, ("a", 9): 1}
    assert stream_offset_json(StreamOffset(ends, {})) == {"a": {"9": 1, "10": 2}, "b": {"0": 3}}
    assert stream_offset_json(StreamOffset(ends, {("a", 9): 0}))[BEGINS_AT] == {"a": {"9": 0}}


@pytest.mark.parametrize(("count", "said"), [(1, "t-0"), (7, "t-0, t-1, t-2, t-3, t-4 and 2 more")])
def test_partitions_in_a_sentence(count: int, said: str) -> None:
    assert named(("t", number) for number in range(count)) == said
