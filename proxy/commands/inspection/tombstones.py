"""``idemproxy tombstone``: says what a tombstone means, asks, writes it into Redis as *asked*, and waits until a proxy
has looked into the log. The proxies apply it, once one of them has read the log there; they also write the copy in the
compacted topic."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TextIO

from ....state.redis_inspection import RedisInspection
from ....state.tombstones import (
    REASON_CHARACTERS_MAX,
    OffsetRange,
    State,
    Tombstone,
    Tombstones,
    overlapping,
    replaced,
)
from ...settings.config import ConfigError
from .found_copies import Found, SecondCopy
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
    "no proxy of the cluster name {cluster!r} uses this Redis, so no fetch would leave anything out, and nothing was "
    "changed. Is one running, with this Redis and this name? In front of brokers that give idempotence themselves "
    "(native) there are no tombstones"
)
MEANING = """\
Consumers that fetch through the proxies will not see these records any more. They stay in the log: who reads the broker
itself still sees them, and `idemproxy tombstone remove` shows them again. A consumer group's lag counts them until its
members have read past them."""


def listed_tombstones(
    inspection: RedisInspection, topic: str | None, partition: int | None, *, as_json: bool
) -> Iterator[str]:
    """Yield a table, or one JSON object a line."""
    shown = {
        place: tombstone
        for place, tombstone in inspection.tombstones().items()
        if topic in (None, place.topic) and partition in (None, place.partition)
    }
    if as_json:
        for place in sorted(shown, key=_sort_key):
            yield json.dumps(_fields(place, shown[place]))
    else:
        yield from table_of(shown)


def table_of(shown: Tombstones) -> Iterator[str]:
    """Yield the lines of a table; none if there is nothing to show."""
    if shown:
        yield from table_lines(_TITLES, (_cells(place, shown[place]) for place in sorted(shown, key=_sort_key)))


def add_tombstone(
    inspection: RedisInspection, place: OffsetRange, reason: str, *, ask: Callable[[], str] | None, out: TextIO
) -> int:
    """Ask for a range to be left out, and wait until a proxy has looked into the log; return the exit status. ``ask``
    returns what was typed; None: no question is asked."""
    _check_reason(reason)
    _check_proxies(inspection)
    if _is_active(inspection.tombstones(), place):
        print(
            f"{where_is(place)} are left out already. If the log was made anew since, remove the range, and add it "
            "again: a proxy looks into the log then",
            file=out,
        )
        return 0
    print(f"{where_is(place)}\n{MEANING}", file=out)
    if ask is not None:
        print("\nType the topic's name to go on: ", end="", file=out, flush=True)
        if ask().strip() != place.topic:
            print("that is not its name: nothing was changed", file=out)
            return 1

    is_new = False

    def wish(known: dict[OffsetRange, Tombstone], now_ms: int) -> dict[OffsetRange, Tombstone]:
        nonlocal is_new
        is_new = place not in known
        if (other := overlapping(known, place)) is not None:
            raise ConfigError(f"{where_is(other)} are left out already: remove that range first")
        if _is_active(known, place):  # to ask for it anew would show it until a proxy has looked
            return known
        if place in known:
            return replaced(known, place, now_ms, state=State.ASKED, reason=reason, messages=(), refusal="")
        return {**known, place: Tombstone(State.ASKED, now_ms, reason)}

    inspection.change_tombstones(wish)
    until = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < until:
        tombstone = inspection.tombstones().get(place)
        if tombstone is not None and tombstone.state is State.ACTIVE:
            print("a proxy has looked into the log: left out of fetches within seconds, at every proxy", file=out)
            return 0
        if tombstone is not None and tombstone.state is State.REFUSED:
            print(f"not left out: {tombstone.refusal}", file=out)
            if is_new:
                inspection.change_tombstones(lambda known, _now_ms: _without_refused(known, place))
            return 1
        time.sleep(_LOOK_SECONDS)
    print(
        f"no proxy has looked into the log within {WAIT_SECONDS_MAX:g} s (is one running, and the partition's leader "
        "up?); it is done when one does: `idemproxy tombstone list` tells",
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
    known = inspection.tombstones()
    news = [one for one in found.copies if known.get(one.place) is None or known[one.place].state is State.REFUSED]
    if len(news) < len(found.copies):
        print(f"{len(found.copies) - len(news)} ranges are named already, as they are or as removed ones", file=out)
    if not news:
        print("there is nothing to add", file=out)
        return 1 if found.notes else 0
    for line in table_lines(_TITLES_FOUND, map(_cells_found, news)):
        print(line, file=out)
    records = sum(one.place.end - one.place.first for one in news)
    print(f"{len(news)} ranges, {records} records, found by {found.by}\n{MEANING}", file=out)
    if ask is not None:
        print("\nType the number of records to go on: ", end="", file=out, flush=True)
        if ask().strip() != str(records):
            print("that is not their number: nothing was changed", file=out)
            return 1
    asked = _ask_for(inspection, news, reason, found.by, out)
    is_done = _wait_for(inspection, asked, out)
    return 0 if is_done and len(asked) == len(news) and not found.notes else 1


def _ask_for(
    inspection: RedisInspection, news: Sequence[SecondCopy], reason: str, by: str, out: TextIO
) -> list[OffsetRange]:
    """Write all ranges as *asked*, in one step; return those that were written, which overlap no other range."""
    asked: list[OffsetRange] = []
    met: list[tuple[OffsetRange, OffsetRange]] = []

    def wish(known: dict[OffsetRange, Tombstone], now_ms: int) -> dict[OffsetRange, Tombstone]:
        asked.clear()
        met.clear()
        changed = dict(known)
        for one in news:
            place = one.place
            if (other := overlapping(changed, place)) is not None:
                met.append((place, other))
                continue
            why = reason or f"second copy of offsets from {one.first_copy} on, found by {by}"
            at_ms = max(now_ms, known[place].at_ms + 1) if place in known else now_ms
            changed[place] = Tombstone(State.ASKED, at_ms, why)
            asked.append(place)
        return changed

    inspection.change_tombstones(wish)
    for place, other in met:
        print(f"left as it is: {where_is(place)} meets {where_is(other)}, left out already", file=out)
    return asked


def _wait_for(inspection: RedisInspection, asked: Sequence[OffsetRange], out: TextIO) -> bool:
    """Wait for the proxies, and print what became of the ranges. Return whether all are left out."""
    until = time.monotonic() + WAIT_SECONDS_MAX + WAIT_SECONDS_EACH * len(asked)
    while True:
        known = inspection.tombstones()
        open_ones = [place for place in asked if place in known and known[place].state is State.ASKED]
        if not open_ones or time.monotonic() >= until:
            break
        time.sleep(_LOOK_SECONDS)
    active = [place for place in asked if place in known and known[place].state is State.ACTIVE]
    for place in asked:
        if place in known and known[place].state is State.REFUSED:
            print(f"not left out: {where_is(place)}: {known[place].refusal}", file=out)
    print(f"{len(active)} ranges are left out of fetches within seconds, at every proxy", file=out)
    if open_ones:
        print(
            f"{len(open_ones)} ranges: no proxy has looked into their logs yet (is one running, and are the "
            "partitions' leaders up?); it is done when one does: `idemproxy tombstone list` tells",
            file=out,
        )
    return len(active) == len(asked)


def remove_tombstone(inspection: RedisInspection, place: OffsetRange, *, out: TextIO) -> int:
    """Have a range shown again; return the exit status."""
    was_there = False

    def take_back(known: dict[OffsetRange, Tombstone], now_ms: int) -> dict[OffsetRange, Tombstone]:
        nonlocal was_there
        was_there = place in known and known[place].state is not State.REMOVED
        if not was_there:
            return known
        return replaced(known, place, now_ms, state=State.REMOVED, messages=(), refusal="")

    inspection.change_tombstones(take_back)
    if not was_there:
        print(f"{where_is(place)}: there is no such range; `idemproxy tombstone list` has them all", file=out)
        return 1
    print(f"{where_is(place)}: shown again within seconds, at every proxy", file=out)
    return 0


def _without_refused(known: dict[OffsetRange, Tombstone], place: OffsetRange) -> dict[OffsetRange, Tombstone]:
    """Return the list without a range that was asked for in vain."""
    return {one: what for one, what in known.items() if one != place or what.state is not State.REFUSED}


def _is_active(known: Tombstones, place: OffsetRange) -> bool:
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


def _cells(place: OffsetRange, tombstone: Tombstone) -> tuple[object, ...]:
    since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(min(tombstone.at_ms // 1000, _SHOWN_SECONDS_MAX)))
    why = tombstone.refusal or tombstone.reason
    return (place.topic, place.partition, place.first, place.end - 1, tombstone.state.value, since, why)


def _cells_found(one: SecondCopy) -> tuple[object, ...]:
    return (one.place.topic, one.place.partition, one.place.first, one.place.end - 1, one.first_copy)


def _fields(place: OffsetRange, tombstone: Tombstone) -> dict[str, object]:
    return {
        "topic": place.topic,
        "partition": place.partition,
        "first": place.first,
        "last": place.end - 1,
        "state": tombstone.state.value,
        "at_ms": tombstone.at_ms,
        "reason": tombstone.reason,
        "refusal": tombstone.refusal,
        "messages": len(tombstone.messages),
    }
