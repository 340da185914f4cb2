"""``idemproxy tombstone``: says what it means, asks, writes the wish into Redis and waits until a proxy has looked into
the log. Leaves nothing out by itself: the proxies do, once one of them has seen what lies there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from ....state.redis_inspection import RedisInspection
from ....state.tombstones import (
    REASON_CHARACTERS_MAX,
    OffsetRange,
    State,
    Tombstone,
    overlapping,
    replaced,
)
from ...settings.config import ConfigError
from .table import printable, table_lines

WAIT_SECONDS_MAX = 30.0
"""For a proxy to look into the log: it reads the list every other second."""
_LOOK_SECONDS = 0.5
_TITLES = ("TOPIC", "PARTITION", "FIRST", "LAST", "STATE", "SINCE", "REASON")
MEANING = """\
Consumers that fetch through the proxies will not see these records any more. They stay in the log: who reads the broker
itself still sees them, and `idemproxy tombstone remove` shows them again. A consumer group's lag counts them until its
members have read past them."""


def listed_tombstones(
    inspection: RedisInspection, topic: str | None, partition: int | None, *, as_json: bool
) -> Iterator[str]:
    """Yield a table, or one JSON object a line."""
    rows = [
        (place, tombstone)
        for place, tombstone in sorted(inspection.tombstones().items(), key=lambda item: _sort_key(item[0]))
        if topic in (None, place.topic) and partition in (None, place.partition)
    ]
    if as_json:
        for place, tombstone in rows:
            yield json.dumps(_fields(place, tombstone))
    elif rows:
        yield from table_lines(_TITLES, (_cells(place, tombstone) for place, tombstone in rows))


def add_tombstone(
    inspection: RedisInspection, place: OffsetRange, reason: str, *, ask: Callable[[], str] | None, out: TextIO
) -> int:
    """Ask for a range to be left out, and wait for a proxy's word; return the exit status. ``ask`` returns what was
    typed; None: no question is asked."""
    if len(reason) > REASON_CHARACTERS_MAX:
        raise ConfigError(f"--reason has {len(reason)} characters, the limit is {REASON_CHARACTERS_MAX}")
    print(f"{_where(place)}\n{MEANING}", file=out)
    if ask is not None:
        print("\nType the topic's name to go on: ", end="", file=out, flush=True)
        if ask().strip() != place.topic:
            print("that is not its name: nothing was changed", file=out)
            return 1

    def wish(known: dict[OffsetRange, Tombstone], now_ms: int) -> dict[OffsetRange, Tombstone]:
        if (other := overlapping(known, place)) is not None:
            raise ConfigError(f"{_where(other)} are left out already: remove that range first")
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
            return 1
        time.sleep(_LOOK_SECONDS)
    print(
        f"no proxy has looked into the log within {WAIT_SECONDS_MAX:g} s (is one running, and the partition's leader "
        "up?); it is done when one does: `idemproxy tombstone list` tells",
        file=out,
    )
    return 1


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
        print(f"{_where(place)}: there is no such range; `idemproxy tombstone list` has them all", file=out)
        return 1
    print(f"{_where(place)}: shown again within seconds, at every proxy", file=out)
    return 0


def _where(place: OffsetRange) -> str:
    return f"offsets {place.first} to {place.end - 1} of {printable(place.topic)}/{place.partition}"


def _sort_key(place: OffsetRange) -> tuple[str, int, int]:
    return place.topic, place.partition, place.first


def _cells(place: OffsetRange, tombstone: Tombstone) -> tuple[object, ...]:
    since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(tombstone.at_ms / 1000))
    why = tombstone.refusal or tombstone.reason
    return (place.topic, place.partition, place.first, place.end - 1, tombstone.state.value, since, why)


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
