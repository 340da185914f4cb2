"""What the compacted topic holds of a hidden range, as bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.proxy.hidden_ranges.records import (
    RECORDED,
    UnreadableHiddenRange,
    key_of,
    read_record,
    value_of,
    word_of,
)
from idemproxy.state.hidden_ranges import HiddenRange, OffsetRange, State, merged

PLACE = OffsetRange("orders", 3, 40277, 40297)
ACTIVE = HiddenRange(State.ACTIVE, 1_700_000_000_000, "ticket 4711", ((40296, 4023457891, 40277),))
firsts = st.integers(0, 1 << 62)
places = st.builds(
    lambda topic, partition, first, count: OffsetRange(topic, partition, first, first + count),
    st.sampled_from(("orders", "a.b_c-d", "0")),
    st.integers(0, (1 << 31) - 1),
    firsts,
    st.integers(1, 1 << 40),
)
messages = st.lists(st.tuples(firsts, st.integers(0, (1 << 32) - 1), firsts), min_size=1, max_size=3).map(tuple)
at = st.integers(0, 1 << 50)
hidden_ranges = st.one_of(
    st.builds(lambda at_ms, reason, rows: HiddenRange(State.ACTIVE, at_ms, reason, rows), at, st.text(), messages),
    st.builds(lambda at_ms, reason: HiddenRange(State.REMOVED, at_ms, reason), at, st.text()),
    st.builds(lambda at_ms, why: HiddenRange(State.REFUSED, at_ms, "", (), why), at, st.text(min_size=1)),
)


def test_key_and_value_are_what_the_page_says() -> None:
    assert key_of(PLACE) == b"orders/3/40277-40296"
    assert json.loads(value_of(PLACE, ACTIVE, "proxy 0a")) == {
        "format": 1,
        "topic": "orders",
        "partition": 3,
        "first": 40277,
        "last": 40296,
        "state": "active",
        "at_ms": 1_700_000_000_000,
        "reason": "ticket 4711",
        "by": "proxy 0a",
        "messages": [[40296, 4023457891, 40277]],
    }


@given(places, hidden_ranges)
def test_what_is_written_is_read_back(place: OffsetRange, hidden_range: HiddenRange) -> None:
    assert read_record(key_of(place), value_of(place, hidden_range, "x")) == (place, hidden_range)
    assert read_record(key_of(place), None) == (place, None)


@given(places, hidden_ranges, hidden_ranges)
def test_the_word_that_counts_is_the_one_that_counts_in_redis(
    place: OffsetRange, one: HiddenRange, other: HiddenRange
) -> None:
    later = max((one, other), key=word_of)
    if word_of(one) != word_of(other):
        assert merged({place: one}, {place: other}) == {place: later}


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"orders",
        b"orders/3",
        b"/3/1-2",
        b"orders/3/2-1",
        b"orders/3/01-2",
        b"orders/-1/1-2",
        b"orders/3/1",
        b"\xff",
    ],
)
def test_another_key_is_said(key: bytes) -> None:
    with pytest.raises(UnreadableHiddenRange, match="key"):
        read_record(key, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": 2},
        {"first": 40278},
        {"topic": "other"},
        {"last": "40296"},
        {"state": "asked"},
        {"state": "gone"},
        {"state": "removed"},
        {"messages": []},
        {"messages": [[1, 2]]},
        {"messages": [[1, 1 << 32, 1]]},
        {"messages": [[1, True, 1]]},
        {"messages": [[1, 2, 3]] * 2001},
        {"at_ms": -1},
        {"at_ms": 1.5},
        {"reason": None},
    ],
)
def test_another_value_is_said(wrong: dict[str, Any]) -> None:
    value = json.dumps(json.loads(value_of(PLACE, ACTIVE, "x")) | wrong).encode()
    with pytest.raises(UnreadableHiddenRange, match="orders/3/40277-40296"):
        read_record(key_of(PLACE), value)


@pytest.mark.parametrize("value", [b"", b"null", b"[]", b"7", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_said(value: bytes) -> None:
    with pytest.raises(UnreadableHiddenRange):
        read_record(key_of(PLACE), value)


def test_what_was_only_asked_for_is_not_written() -> None:
    assert set(State) - set(RECORDED) == {State.ASKED}
