"""What the compacted topic of hidden ranges holds (``topic.py``): one record for each range of offsets. Pure.

Key: ``topic/partition/first-last``, both offsets included. Value: a JSON object with ``format``, ``topic``,
``partition``, ``first``, ``last``, ``state`` (active, removed or refused), ``at_ms`` (of the last word, ms since 1970),
``reason``, ``by`` (who wrote the record); of a refused range ``refusal`` (why it cannot be left out); of an active
range ``messages``: [offset, CRC-32, offset of its first record] of every message in the log that has records of it. A
removed range keeps a value: it has to win over an older word that Redis or another reader still has. No value: nothing
is known of the range (any more).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ...codecs.primitives import Buffer
from ...state.hidden_ranges import OFFSET_MAX, RANGE_MESSAGES_MAX, HiddenRange, OffsetRange, State

FORMAT: Final = 1
RECORDED: Final = (State.ACTIVE, State.REMOVED, State.REFUSED)
"""What can be in the topic. A range that was only asked for is a request, which others need not know."""
_PARTITIONS: Final = 1 << 31
_CRCS: Final = 1 << 32
_RANKS: Final = {state: rank for rank, state in enumerate(State)}

Word = tuple[int, int]
"""When a state was given to a range (ms since 1970), and the rank of that state among those of the same time: the
greater word counts."""


class UnreadableHiddenRange(Exception):
    """A record that this version cannot read; the text is for people."""


def word_of(hidden_range: HiddenRange) -> Word:
    """Return what decides which of two words about a range counts."""
    return hidden_range.at_ms, _RANKS[hidden_range.state]


def key_of(place: OffsetRange) -> bytes:
    """Return the record's key."""
    return f"{place.topic}/{place.partition}/{place.first}-{place.end - 1}".encode()


def value_of(place: OffsetRange, hidden_range: HiddenRange, by: str) -> bytes:
    """Return the record's value. ``by``: who writes it."""
    assert hidden_range.state in RECORDED
    row: dict[str, Any] = {
        "format": FORMAT,
        "topic": place.topic,
        "partition": place.partition,
        "first": place.first,
        "last": place.end - 1,
        "state": hidden_range.state.value,
        "at_ms": hidden_range.at_ms,
        "reason": hidden_range.reason,
        "by": by,
    }
    if hidden_range.refusal:
        row["refusal"] = hidden_range.refusal
    if hidden_range.messages:
        row["messages"] = [list(message) for message in hidden_range.messages]
    return json.dumps(row, separators=(",", ":")).encode()


def record_of(place: OffsetRange, hidden_range: HiddenRange, by: str) -> tuple[bytes, bytes] | None:
    """Return key and value; None if no reader could read them, for example because a name is no valid UTF-8. Such a
    record would never be found in the topic, and be written again and again."""
    try:
        key, value = key_of(place), value_of(place, hidden_range, by)
        read_record(key, value)
    except (UnicodeEncodeError, UnreadableHiddenRange):
        return None
    return key, value


def read_record(key: Buffer, value: Buffer | None) -> tuple[OffsetRange, HiddenRange | None]:
    """Return the range and what is said of it; None: nothing any more. Raises UnreadableHiddenRange."""
    try:
        place = _place_of(bytes(key).decode())
        return (place, None) if value is None else (place, _hidden_range_of(place, json.loads(bytes(value))))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableHiddenRange(f"key {bytes(key[:80])!r}: {type(error).__name__}: {error}") from None


def _place_of(key: str) -> OffsetRange:
    topic, partition, offsets = key.rsplit("/", 2)
    first, last = offsets.split("-")
    place = OffsetRange(topic, int(partition), int(first), int(last) + 1)
    is_one = 0 <= place.partition < _PARTITIONS and 0 <= place.first < place.end <= OFFSET_MAX
    if not topic or not is_one or key_of(place) != key.encode():
        raise ValueError("it is no topic/partition/first-last")
    return place


def _hidden_range_of(place: OffsetRange, row: Mapping[str, Any]) -> HiddenRange:
    if row["format"] != FORMAT:
        raise ValueError(f"format {row['format']!r}, this version reads {FORMAT}")
    if (row["topic"], row["partition"], row["first"], row["last"] + 1) != (
        place.topic,
        place.partition,
        place.first,
        place.end,
    ):
        raise ValueError("the value is of another range than the key")
    state = State(row["state"])
    if state not in RECORDED:
        raise ValueError(f"state {state.value}")
    messages = tuple(map(_message, row.get("messages", ())))
    if len(messages) > RANGE_MESSAGES_MAX:
        raise ValueError(f"{len(messages)} messages, the limit is {RANGE_MESSAGES_MAX}")
    if (state is State.ACTIVE) != bool(messages):
        raise ValueError("an active range names the messages that are hidden, and no other one does")
    at_ms = _number(row["at_ms"], OFFSET_MAX)
    return HiddenRange(state, at_ms, _text(row["reason"]), messages, _text(row.get("refusal", "")))


def _message(row: Any) -> tuple[int, int, int]:
    offset, crc, first = row
    return _number(offset, OFFSET_MAX), _number(crc, _CRCS), _number(first, OFFSET_MAX)


def _number(given: Any, end: int) -> int:
    if type(given) is not int or not 0 <= given < end:
        raise ValueError(f"{given!r} is no number from 0 to {end - 1}")
    return given


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{given!r} is no text")
    return given
