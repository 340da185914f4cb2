"""What ``idemproxy hide restore`` takes from the topic, and what it leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.client import StoredRecord
from idemproxy.proxy.commands.inspection import hidden_ranges_topic
from idemproxy.proxy.commands.inspection.hidden_ranges import table_of
from idemproxy.proxy.commands.inspection.hidden_ranges_topic import TopicContents, filled_from
from idemproxy.proxy.hidden_ranges.records import key_of, value_of, word_of
from idemproxy.proxy.settings.config import ConfigError
from idemproxy.state.hidden_ranges import HiddenRange, HiddenRanges, OffsetRange, State, overlapping

PLACE = OffsetRange("orders", 3, 5, 8)
ACTIVE = HiddenRange(State.ACTIVE, 10, "why", ((7, 99, 5),))
REMOVED = HiddenRange(State.REMOVED, 20, "why")
words = st.one_of(
    st.integers(0, 4).map(lambda at: HiddenRange(State.ACTIVE, at, "", ((7, 99, 5),))),
    st.integers(0, 4).map(lambda at: HiddenRange(State.REMOVED, at)),
)
ranges = st.builds(lambda first, count: OffsetRange("t", 0, first, first + count), st.integers(0, 4), st.integers(1, 3))


def record(key: bytes | None, value: bytes | None) -> StoredRecord:
    return StoredRecord(0, 0, key, value)


def test_the_last_record_of_a_key_counts() -> None:
    contents = TopicContents()
    contents.take_record(record(None, b""))
    contents.take_record(record(key_of(PLACE), value_of(PLACE, REMOVED, "x")))
    contents.take_record(record(key_of(PLACE), value_of(PLACE, ACTIVE, "x")))
    assert (contents.hidden_ranges, contents.unreadable) == ({PLACE: ACTIVE}, 0)
    contents.take_record(record(key_of(PLACE), None))
    contents.take_record(record(b"other", b"{}"))
    contents.take_record(record(b"another", b"{}"))
    assert (contents.hidden_ranges, contents.unreadable) == ({}, 2)
    assert "other" in contents.problem


def test_a_topic_of_somebody_else_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_ranges_topic, "RANGES_MAX", 1)
    contents = TopicContents()
    contents.take_record(record(key_of(PLACE), value_of(PLACE, REMOVED, "x")))
    contents.take_record(record(key_of(PLACE), value_of(PLACE, ACTIVE, "x")))
    other = OffsetRange("orders", 4, 5, 8)
    with pytest.raises(ConfigError, match="more than 1 ranges"):
        contents.take_record(record(key_of(other), value_of(other, REMOVED, "x")))


def test_what_redis_lacks_is_written_and_a_later_word_there_stays() -> None:
    assert filled_from({}, {PLACE: ACTIVE}, []) == ({PLACE: ACTIVE}, {PLACE: ACTIVE})
    assert filled_from({PLACE: REMOVED}, {PLACE: ACTIVE}, []) == ({PLACE: REMOVED}, {})
    assert filled_from({PLACE: ACTIVE}, {PLACE: REMOVED}, []) == ({PLACE: REMOVED}, {PLACE: REMOVED})
    assert filled_from({PLACE: ACTIVE}, {PLACE: ACTIVE}, []) == ({PLACE: ACTIVE}, {})


def test_a_range_that_overlaps_another_active_one_is_reported_and_not_restored() -> None:
    wider = OffsetRange("orders", 3, 4, 6)
    left: list[tuple[OffsetRange, OffsetRange]] = []
    assert filled_from({wider: ACTIVE}, {PLACE: ACTIVE}, left) == ({wider: ACTIVE}, {})
    assert left == [(PLACE, wider)]


@given(st.dictionaries(ranges, words, max_size=4), st.dictionaries(ranges, words, max_size=4))
def test_nothing_in_redis_gets_an_older_word(known: HiddenRanges, topic: HiddenRanges) -> None:
    left: list[tuple[OffsetRange, OffsetRange]] = []
    filled, news = filled_from(known, topic, left)
    for place, one in known.items():
        assert word_of(filled[place]) >= word_of(one)
    for place, one in topic.items():
        assert filled.get(place) == one or place in dict(left) or word_of(known[place]) >= word_of(one)
    for place in news:
        if filled[place].state is State.ACTIVE and not any(overlapping(known, old) for old in known):
            assert overlapping(filled, place) is None


def test_any_time_that_a_record_names_can_be_shown() -> None:
    late = HiddenRange(State.REMOVED, (1 << 63) - 2)
    contents = TopicContents()
    contents.take_record(record(key_of(PLACE), value_of(PLACE, late, "x")))
    assert contents.hidden_ranges == {PLACE: late}
    assert "9999-12-31 23:59:59Z" in "\n".join(table_of(contents.hidden_ranges))
