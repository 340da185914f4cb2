"""``idemproxy hide``: says what a hidden range means, asks, writes it into Redis as *asked*, and waits until a proxy
has looked into the log. The proxies apply it, once one of them has read the log there; they also write the copy in the
compacted topic."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TextIO

from ....state.hidden_ranges import (
    REASON_CHARACTERS_MAX,
    HiddenRange,
    HiddenRanges,
    OffsetRange,
    State,
    overlapping,
    replaced,
)
from ....state.redis_inspection import RedisInspection
from ...settings.config import ConfigError
from .found_duplicates import Duplicate, Found
from .table import printable, table_lines

WAIT_SECONDS_MAX = 30.0
"""For a proxy to look into the log: it reads the list every other second."""
WAIT_SECONDS_EACH: Final = 0.1
"""Longer for each of many ranges: a proxy looks at one after the other."""
_LOOK_SECONDS = 0.5
_SHOWN_SECONDS_MAX: Final = 253_402_300_799
"""The end of the year 9999: a record of the compacted topic may name any time."""
_TITLES_FOUND = ("TOPIC", "PARTITION", "FIRST", "LAST", "COPY OF")
_TITLES = ("TOPIC", "PARTITION", "FIRST", "LAST", "STATE", "SINCE", "REASON")
NO_PROXY = (
    "no proxy with the cluster name {cluster!r} uses this Redis, so no fetch would hide anything; nothing was changed. "
    "Check that a proxy runs with this Redis and this name. In front of Kafka 0.11 or later (native) there are no "
    "hidden ranges"
)
MEANING = """\
Consumers that fetch through the proxies no longer get these records. They stay in the log: clients that read the
brokers directly still get them, and `idemproxy hide remove` shows them again. A consumer group's lag counts them until
its members have read past them."""


def listed_hidden_ranges(
    inspection: RedisInspection, topic: str | None, partition: int | None, *, as_json: bool
) -> Iterator[str]:
    """Yield a table, or one JSON object a line."""
    shown = {
        place: hidden_range
        for place, hidden_range in inspection.hidden_ranges().items()
        if topic in (None, place.topic) and partition in (None, place.partition)
    }
    if as_json:
        for place in sorted(shown, key=_sort_key):
            yield json.dumps(_fields(place, shown[place]))
    else:
        yield from table_of(shown)


def table_of(shown: HiddenRanges) -> Iterator[str]:
    """Yield the lines of a table; none if there is nothing to show."""
    if shown:
        yield from table_lines(_TITLES, (_cells(place, shown[place]) for place in sorted(shown, key=_sort_key)))


def add_hidden_range(
    inspection: RedisInspection, place: OffsetRange, reason: str, *, ask: Callable[[], str] | None, out: TextIO
) -> int:
    """Ask for a range to be left out, and wait until a proxy has looked into the log; return the exit status. ``ask``
    returns what was typed; None: no question is asked."""
    _check_reason(reason)
    _check_proxies(inspection)
    if _is_active(inspection.hidden_ranges(), place):
        print(
            f"{where_is(place)} are hidden already. If the topic was recreated since, remove the range and add it "
            "again: a proxy then reads the new log",
            file=out,
        )
        return 0
    print(f"{where_is(place)}\n{MEANING}", file=out)
    if ask is not None:
        print("\nType the topic's name to confirm: ", end="", file=out, flush=True)
        if ask().strip() != place.topic:
            print("that is not the topic's name: nothing was changed", file=out)
            return 1

    is_new = False

    def request(known: dict[OffsetRange, HiddenRange], now_ms: int) -> dict[OffsetRange, HiddenRange]:
        nonlocal is_new
        is_new = place not in known
        if (other := overlapping(known, place)) is not None:
            raise ConfigError(f"{where_is(other)} overlap it and are hidden already: remove that range first")
        if _is_active(known, place):  # a new request would show it until a proxy has read the log
            return known
        if place in known:
            return replaced(known, place, now_ms, state=State.ASKED, reason=reason, messages=(), refusal="")
        return {**known, place: HiddenRange(State.ASKED, now_ms, reason)}

    inspection.change_hidden_ranges(request)
    until = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < until:
        hidden_range = inspection.hidden_ranges().get(place)
        if hidden_range is not None and hidden_range.state is State.ACTIVE:
            print("a proxy has read the log: every proxy hides these offsets from fetches within seconds", file=out)
            return 0
        if hidden_range is not None and hidden_range.state is State.REFUSED:
            print(f"not hidden: {hidden_range.refusal}", file=out)
            if is_new:
                inspection.change_hidden_ranges(lambda known, _now_ms: _without_refused(known, place))
            return 1
        time.sleep(_LOOK_SECONDS)
    print(
        f"no proxy has read the log within {WAIT_SECONDS_MAX:g} s. The range stays in the list, and is hidden once one "
        "has: check that a proxy runs and that the partition has a leader, then see `idemproxy hide list`",
        file=out,
    )
    return 1


def add_found(
    inspection: RedisInspection, found: Found, reason: str, *, ask: Callable[[], str] | None, out: TextIO
) -> int:
    """Ask for all ranges that were found to be left out, and wait for the proxies; return the exit status. Ranges that
    a person has removed are not asked for again."""
    _check_reason(reason)
    _check_proxies(inspection)
    for note in found.notes:
        print(printable(note), file=out)
    known = inspection.hidden_ranges()
    news = [one for one in found.copies if known.get(one.place) is None or known[one.place].state is State.REFUSED]
    if len(news) < len(found.copies):
        print(f"{len(found.copies) - len(news)} ranges are in the list already, hidden or removed", file=out)
    if not news:
        print("nothing to add", file=out)
        return 1 if found.notes else 0
    for line in table_lines(_TITLES_FOUND, map(_cells_found, news)):
        print(line, file=out)
    records = sum(one.place.end - one.place.first for one in news)
    print(f"{len(news)} ranges, {records} records, found by {found.by}\n{MEANING}", file=out)
    if ask is not None:
        print("\nType the number of records to confirm: ", end="", file=out, flush=True)
        if ask().strip() != str(records):
            print("that is not the number of records: nothing was changed", file=out)
            return 1
    asked = _ask_for(inspection, news, reason, found.by, out)
    is_done = _wait_for(inspection, asked, out)
    return 0 if is_done and len(asked) == len(news) and not found.notes else 1


def _ask_for(
    inspection: RedisInspection, news: Sequence[Duplicate], reason: str, by: str, out: TextIO
) -> list[OffsetRange]:
    """Write all ranges as *asked*, in one step; return those that were written, which overlap no other range."""
    asked: list[OffsetRange] = []
    met: list[tuple[OffsetRange, OffsetRange]] = []

    def request(known: dict[OffsetRange, HiddenRange], now_ms: int) -> dict[OffsetRange, HiddenRange]:
        asked.clear()
        met.clear()
        changed = dict(known)
        for one in news:
            place = one.place
            if (other := overlapping(changed, place)) is not None:
                met.append((place, other))
                continue
            why = reason or f"duplicate of the offsets from {one.first_copy} on, found by {by}"
            at_ms = max(now_ms, known[place].at_ms + 1) if place in known else now_ms
            changed[place] = HiddenRange(State.ASKED, at_ms, why)
            asked.append(place)
        return changed

    inspection.change_hidden_ranges(request)
    for place, other in met:
        print(f"not hidden: {where_is(place)} overlap {where_is(other)}, which are hidden already", file=out)
    return asked


def _wait_for(inspection: RedisInspection, asked: Sequence[OffsetRange], out: TextIO) -> bool:
    """Wait for the proxies, and print what became of the ranges. Return whether all are left out."""
    until = time.monotonic() + WAIT_SECONDS_MAX + WAIT_SECONDS_EACH * len(asked)
    while True:
        known = inspection.hidden_ranges()
        open_ones = [place for place in asked if place in known and known[place].state is State.ASKED]
        if not open_ones or time.monotonic() >= until:
            break
        time.sleep(_LOOK_SECONDS)
    active = [place for place in asked if place in known and known[place].state is State.ACTIVE]
    for place in asked:
        if place in known and known[place].state is State.REFUSED:
            print(f"not hidden: {where_is(place)}: {known[place].refusal}", file=out)
    print(f"every proxy hides {len(active)} ranges from fetches within seconds", file=out)
    if open_ones:
        print(
            f"no proxy has read the logs of {len(open_ones)} ranges yet. They stay in the list, and are hidden once "
            "one has: check that a proxy runs and that the partitions have leaders, then see `idemproxy hide list`",
            file=out,
        )
    return len(active) == len(asked)


def remove_hidden_range(inspection: RedisInspection, place: OffsetRange, *, out: TextIO) -> int:
    """Have a range shown again; return the exit status."""
    was_there = False

    def take_back(known: dict[OffsetRange, HiddenRange], now_ms: int) -> dict[OffsetRange, HiddenRange]:
        nonlocal was_there
        was_there = place in known and known[place].state is not State.REMOVED
        if not was_there:
            return known
        return replaced(known, place, now_ms, state=State.REMOVED, messages=(), refusal="")

    inspection.change_hidden_ranges(take_back)
    if not was_there:
        print(f"{where_is(place)}: no such hidden range; `idemproxy hide list` shows all", file=out)
        return 1
    print(f"{where_is(place)}: every proxy shows them again within seconds", file=out)
    return 0


def _without_refused(known: dict[OffsetRange, HiddenRange], place: OffsetRange) -> dict[OffsetRange, HiddenRange]:
    """Return the list without a range that was asked for in vain."""
    return {one: what for one, what in known.items() if one != place or what.state is not State.REFUSED}


def _is_active(known: HiddenRanges, place: OffsetRange) -> bool:
    return place in known and known[place].state is State.ACTIVE


def _check_reason(reason: str) -> None:
    if len(reason) > REASON_CHARACTERS_MAX:
        raise ConfigError(f"--reason has {len(reason)} characters, the limit is {REASON_CHARACTERS_MAX}")


def _check_proxies(inspection: RedisInspection) -> None:
    """Raise ConfigError where nobody would leave anything out."""
    if not inspection.has_proxies():
        raise ConfigError(NO_PROXY.format(cluster=inspection.cluster))


def where_is(place: OffsetRange) -> str:
    """Return the range for people."""
    return f"offsets {place.first} to {place.end - 1} of {printable(place.topic)}/{place.partition}"


def _sort_key(place: OffsetRange) -> tuple[str, int, int]:
    return place.topic, place.partition, place.first


def _cells(place: OffsetRange, hidden_range: HiddenRange) -> tuple[object, ...]:
    since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(min(hidden_range.at_ms // 1000, _SHOWN_SECONDS_MAX)))
    why = hidden_range.refusal or hidden_range.reason
    return (place.topic, place.partition, place.first, place.end - 1, hidden_range.state.value, since, why)


def _cells_found(one: Duplicate) -> tuple[object, ...]:
    return (one.place.topic, one.place.partition, one.place.first, one.place.end - 1, one.first_copy)


def _fields(place: OffsetRange, hidden_range: HiddenRange) -> dict[str, object]:
    return {
        "topic": place.topic,
        "partition": place.partition,
        "first": place.first,
        "last": place.end - 1,
        "state": hidden_range.state.value,
        "at_ms": hidden_range.at_ms,
        "reason": hidden_range.reason,
        "refusal": hidden_range.refusal,
        "messages": len(hidden_range.messages),
    }
