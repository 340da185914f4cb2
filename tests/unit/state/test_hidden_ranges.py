"""What is stored of ranges that fetches leave out, and how two views of it come together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.state.hidden_ranges import (
    HiddenRange,
    HiddenRanges,
    HiddenRangesFormatError,
    OffsetRange,
    State,
    active_by_partition,
    asked_for,
    merged,
    overlapping,
    pack_hidden_ranges,
    replaced,
    unpack_hidden_ranges,
)

PLACE = OffsetRange("orders", 3, 120, 125)
places = st.builds(OffsetRange, st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 3), st.integers(4, 6))
hidden_ranges = st.builds(
    HiddenRange,
    st.sampled_from(State),
    st.integers(0, 5),
    st.sampled_from(("", "why", "\u00e9")),
    st.sampled_from(((), ((4, 7, 3),))),
    st.sampled_from(("", "no")),
)
lists = st.dictionaries(places, hidden_ranges, max_size=4)


@given(lists, st.integers(1, (1 << 63) - 1))
def test_what_is_stored_is_read_back(one: HiddenRanges, version: int) -> None:
    assert unpack_hidden_ranges(pack_hidden_ranges(version, one)) == (version, one)


@pytest.mark.parametrize(
    "stored", [b"", b"\x01", b"\x02" + bytes(8) + b"[]", b"\x01" + bytes(8) + b"{", b"\x01" + bytes(8) + b"[{}]"]
)
def test_what_cannot_be_read_is_said(stored: bytes) -> None:
    with pytest.raises(HiddenRangesFormatError, match="hidden ranges"):
        unpack_hidden_ranges(stored)


def states_of(known: HiddenRanges) -> dict[OffsetRange, tuple[State, int]]:
    return {place: (one.state, one.at_ms) for place, one in known.items()}


@given(lists, lists, lists)
def test_views_come_together_in_any_order(one: HiddenRanges, two: HiddenRanges, three: HiddenRanges) -> None:
    assert states_of(merged(merged(one, two), three)) == states_of(merged(three, merged(two, one)))
    assert merged(one, one) == one
    assert merged(merged(one, two), two) == merged(one, two)


def test_the_later_word_counts() -> None:
    active = {PLACE: HiddenRange(State.ACTIVE, 10, "", ((124, 1, 120),))}
    removed = replaced(active, PLACE, 5, state=State.REMOVED, messages=())
    assert removed[PLACE].at_ms == 11, "whatever the clocks say, it is later than what it answers"
    assert merged(active, removed) == merged(removed, active) == removed


def test_at_the_same_time_what_shows_records_wins_over_what_hides_them() -> None:
    hidden, shown = ({PLACE: HiddenRange(state, 10)} for state in (State.ACTIVE, State.REMOVED))
    assert merged(hidden, shown) == merged(shown, hidden) == shown


def test_ranges_that_meet_are_found() -> None:
    known = {PLACE: HiddenRange(State.ACTIVE, 1)}
    assert overlapping(known, OffsetRange("orders", 3, 124, 130)) == PLACE
    assert overlapping(known, OffsetRange("orders", 3, 125, 130)) is None
    assert overlapping(known, OffsetRange("orders", 2, 120, 125)) is None
    assert overlapping(known, PLACE) is None, "the same one is asked for again"
    assert overlapping({PLACE: HiddenRange(State.REMOVED, 1)}, OffsetRange("orders", 3, 124, 130)) is None


def test_only_active_ranges_are_left_out() -> None:
    known = {OffsetRange("t", 0, 10 * n, 10 * n + 1): HiddenRange(state, 1) for n, state in enumerate(State)}
    assert {key: [place.first for place, _ in found] for key, found in active_by_partition(known).items()} == {
        ("t", 0): [10]
    }
    assert [place.first for place in asked_for(known)] == [0]
