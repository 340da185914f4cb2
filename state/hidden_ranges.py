"""Hidden ranges: ranges of offsets that turned out to be duplicates, and are left out of fetches. Pure.

Owns what is stored of them: one value for a whole cluster, so that proxies see all or nothing of a change. Two values
are merged range by range, and the later word about a range counts: so a proxy that knows more than Redis, after Redis
has lost writes, can write it back. Never says whether a range is a duplicate; people and audits do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from ..values import value

_FORMAT: Final = 1
_HEAD_BYTES: Final = 9
_VERSIONS: Final = 1 << 63
STORED_BYTES_MAX: Final = 1 << 20
"""The stored value is no larger: every proxy reads it again when it has changed."""
RANGE_MESSAGES_MAX: Final = 2_000
"""Messages in the log that one range may touch. A batch that came through the proxy is one message; what others have
stored may be one for each record, and clients put ten thousand of these into a batch at most: five ranges."""
REASON_CHARACTERS_MAX: Final = 200
OFFSET_MAX: Final = (1 << 63) - 1


class State(StrEnum):
    """The state of one range. A later word (``at_ms``) wins over an earlier one; of two words of the same time, the one
    further down in this list."""

    ASKED = "asked"
    """Somebody wants it; no proxy has looked into the log yet."""
    ACTIVE = "active"
    """A proxy has noted what lies there; fetches leave it out."""
    REFUSED = "refused"
    """The log does not have it as a whole."""
    REMOVED = "removed"
    """It is shown again."""


_RANKS: Final = {state: rank for rank, state in enumerate(State)}


@value(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``first`` up to, and without, ``end`` of one partition."""

    topic: str
    partition: int
    first: int
    end: int


@value(frozen=True, slots=True)
class HiddenRange:
    """What is known of one range. ``at_ms``: of the last word about it, ms since 1970. ``reason``: for people.
    ``messages``: (offset, CRC-32, offset of its first record) of every message in the log that has records of it, once
    it is active.
    ``refusal``: why it is refused."""

    state: State
    at_ms: int
    reason: str = ""
    messages: tuple[tuple[int, int, int], ...] = ()
    refusal: str = ""


HiddenRanges = Mapping[OffsetRange, HiddenRange]


class HiddenRangesFormatError(Exception):
    """A stored value that this version cannot read; the text is for people."""


def merged(one: HiddenRanges, other: HiddenRanges) -> dict[OffsetRange, HiddenRange]:
    """Return what both know. The order does not matter."""
    result = dict(one)
    for place, hidden_range in other.items():
        known = result.get(place)
        if known is None or _weight(known) < _weight(hidden_range):
            result[place] = hidden_range
    return result


def _weight(hidden_range: HiddenRange) -> tuple[int, int, str, str]:
    return hidden_range.at_ms, _RANKS[hidden_range.state], hidden_range.reason, hidden_range.refusal


def overlapping(known: HiddenRanges, wanted: OffsetRange) -> OffsetRange | None:
    """Return another range of the same partition that has some of these offsets, and is asked for or active."""
    for place, hidden_range in known.items():
        is_same_log = (place.topic, place.partition) == (wanted.topic, wanted.partition)
        meets = is_same_log and place.first < wanted.end and wanted.first < place.end
        if meets and place != wanted and hidden_range.state in (State.ASKED, State.ACTIVE):
            return place
    return None


def replaced(known: HiddenRanges, place: OffsetRange, at_ms: int, **changes: Any) -> dict[OffsetRange, HiddenRange]:
    """Return the list with a later word about one range that is in it."""
    return {
        **known,
        place: replace(known[place], at_ms=max(at_ms, known[place].at_ms + 1), **changes),
    }


# ---------------------------------------------------------------------- stored format
def pack_hidden_ranges(version: int, known: HiddenRanges) -> bytes:
    """Return the value to be stored: format, version (8 bytes, for the swap), a list in JSON."""
    rows = [_row(place, hidden_range) for place, hidden_range in sorted(known.items(), key=_sort_key)]
    text = json.dumps(rows, separators=(",", ":"))
    return bytes([_FORMAT]) + version.to_bytes(8, "big") + text.encode()


def unpack_hidden_ranges(stored: bytes) -> tuple[int, dict[OffsetRange, HiddenRange]]:
    """Return version and ranges. Raises HiddenRangesFormatError."""
    if len(stored) < _HEAD_BYTES or stored[0] != _FORMAT:
        found = stored[0] if stored else "missing"
        raise HiddenRangesFormatError(f"hidden ranges: format {found}, this version reads {_FORMAT}")
    version = int.from_bytes(stored[1:_HEAD_BYTES], "big")
    if version >= _VERSIONS:
        raise HiddenRangesFormatError(f"hidden ranges: version {version}")
    try:
        return version, dict(map(_read_row, json.loads(stored[_HEAD_BYTES:])))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise HiddenRangesFormatError(f"hidden ranges: {type(error).__name__}: {error}") from None


def _sort_key(item: tuple[OffsetRange, HiddenRange]) -> tuple[str, int, int, int]:
    place = item[0]
    return place.topic, place.partition, place.first, place.end


def _row(place: OffsetRange, hidden_range: HiddenRange) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": place.topic,
        "partition": place.partition,
        "first": place.first,
        "end": place.end,
        "state": hidden_range.state.value,
        "at_ms": hidden_range.at_ms,
        "reason": hidden_range.reason,
    }
    if hidden_range.messages:
        row["messages"] = [list(message) for message in hidden_range.messages]
    if hidden_range.refusal:
        row["refusal"] = hidden_range.refusal
    return row


def _read_row(row: Mapping[str, Any]) -> tuple[OffsetRange, HiddenRange]:
    messages = tuple((int(offset), int(crc), int(first)) for offset, crc, first in row.get("messages", ()))
    hidden_range = HiddenRange(
        State(row["state"]), int(row["at_ms"]), str(row["reason"]), messages, str(row.get("refusal", ""))
    )
    return OffsetRange(str(row["topic"]), int(row["partition"]), int(row["first"]), int(row["end"])), hidden_range


def active_by_partition(known: HiddenRanges) -> dict[tuple[str, int], list[tuple[OffsetRange, HiddenRange]]]:
    """Return the active ranges of each partition, in order."""
    found: dict[tuple[str, int], list[tuple[OffsetRange, HiddenRange]]] = {}
    for place, hidden_range in sorted(known.items(), key=_sort_key):
        if hidden_range.state is State.ACTIVE:
            found.setdefault((place.topic, place.partition), []).append((place, hidden_range))
    return found


def asked_for(known: HiddenRanges) -> Iterable[OffsetRange]:
    """Return the ranges that no proxy has looked for in the log yet."""
    return [place for place, hidden_range in sorted(known.items(), key=_sort_key) if hidden_range.state is State.ASKED]
