"""What a log had at which time, and which of its records were named as duplicates: the truth against which consumers
of worlds with hidden ranges are judged (rule R24).

An offset may have several records one after the other, each with a value of its own: a log that is cut off, or
recreated, ends records. Which ranges are named is sampled from Redis and from all proxies that live.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from testkit.virtual.client import EPOCH_MS
from testkit.virtual.consumer import Stand
from testkit.virtual.log import PartitionLog

PROMISED_SECONDS = 8.0
"""After which, with Redis at hand, a record that is named is in no fetch, and one that was shown again is in all."""
ILL_TIMES = 3
"""So much longer it may take where Redis was restarted or emptied."""
SAMPLE_SECONDS = 0.1

Message = tuple[int, int]
"""Offset and checksum of a stored message."""
Range = tuple[int, int, int]
"""Partition, first offset, offset after the last one."""


@dataclass(slots=True)
class ProxyInstance:
    """One record while it is in the log."""

    value: bytes
    message: Message
    since: float
    until: float = inf


@dataclass(slots=True)
class Naming:
    """One range while it counts. ``since`` and ``until``: of the last time without a gap."""

    messages: frozenset[Message]
    since: float
    until: float


Namings = dict[tuple[Range, frozenset[Message]], Naming]


@dataclass(slots=True)
class Truth:
    """``look``: takes a sample. ``problems``: what was wrong. ``hidden``: how many records consumers were spared."""

    logs: dict[int, PartitionLog]
    look: Callable[[], None]
    lives: dict[tuple[int, int], list[ProxyInstance]] = field(default_factory=dict)
    namings: Namings = field(default_factory=dict)
    """What counts, by the later word of all."""
    beliefs: Namings = field(default_factory=dict)
    """What one of them has for true, and could not know better."""
    redis_was_ill_at: float = -inf
    problems: list[str] = field(default_factory=list)
    delivered_count: int = 0
    hidden: int = 0
    now: float = 0.0

    # ------------------------------------------------------------------ what happens
    def appended(self, partition: int, base_offset: int, now: float) -> None:
        """All from this offset on are new."""
        for stored in self.logs[partition].messages:
            if stored.first_offset >= base_offset:
                message = stored.last_offset, int.from_bytes(stored.message.data[12:16], "big")
                for at, record in enumerate(stored.message.records, stored.first_offset):
                    self.lives.setdefault((partition, at), []).append(ProxyInstance(record.value or b"", message, now))

    def cut_off(self, partition: int, offset: int, now: float) -> None:
        """The log has nothing at this offset or after it any more."""
        for (number, at), lives in self.lives.items():
            if number == partition and at >= offset:
                lives[-1].until = min(lives[-1].until, now)

    def sampled(self, known: Sequence[Any], now: float) -> None:
        """``known``: the lists of Redis and of the proxies that live, which count together."""
        self.now = now
        merged: dict[Range, Any] = {}
        for hidden_ranges in known:
            for place, one in hidden_ranges.items():
                where = place.partition, place.first, place.end
                if where not in merged or _weight(merged[where]) < _weight(one):
                    merged[where] = one
        for where, one in merged.items():
            self._note(self.namings, where, one)
        for hidden_ranges in known:
            for place, one in hidden_ranges.items():
                where = place.partition, place.first, place.end
                said_at = (merged[where].at_ms - EPOCH_MS) / 1000
                if merged[where].state.value == "active" or now - said_at < PROMISED_SECONDS:
                    self._note(self.beliefs, where, one)

    def _note(self, namings: Namings, where: Range, one: Any) -> None:
        if one.state.value == "active":
            messages = frozenset((offset, crc) for offset, crc, _ in one.messages)
            naming = namings.setdefault((where, messages), Naming(messages, self.now, self.now))
            if self.now - naming.until > 1.5 * SAMPLE_SECONDS:
                naming.since = self.now
            naming.until = self.now

    # ------------------------------------------------------------------ what has to hold
    def delivered(
        self, who: str, partition: int, stand: Stand, asked_at: float, got: Sequence[tuple[int, bytes]]
    ) -> None:
        """Judge what a consumer was given."""
        expected = stand.offset
        self.look()
        for offset, value in got:
            self.delivered_count += 1
            if offset < expected:
                self.problems.append(f"{who}: offset {offset} of {partition} after {expected - 1}")
            for missing in range(expected, offset):
                self._look_whether_it_was_named(who, partition, missing, stand)
            expected = offset + 1
            lives = [one for one in self._lives(partition, offset, asked_at) if one.value == value]
            if not lives:
                self.problems.append(f"{who}: {value!r} is not what offset {offset} of {partition} has had")
            elif self.is_firmly_named(partition, offset, lives[-1]):
                self.problems.append(
                    f"{who}: {value!r} at {offset} of {partition} is named, and was delivered at {self.now:.1f}"
                )

    def _look_whether_it_was_named(self, who: str, partition: int, offset: int, stand: Stand) -> None:
        lives = self._lives(partition, offset, stand.since)
        if any(self.was_named(partition, offset, instance, stand.since) for instance in lives):
            self.hidden += 1
        else:
            values = [instance.value for instance in lives]
            self.problems.append(f"{who}: offset {offset} of {partition}, {values}, was not named, and was passed over")

    def _lives(self, partition: int, offset: int, since: float) -> list[ProxyInstance]:
        return [one for one in self.lives.get((partition, offset), ()) if one.until >= since]

    def was_named(self, partition: int, offset: int, instance: ProxyInstance, since: float) -> bool:
        """Was it, at this time or later, or not much longer before than it takes to show it again?"""
        was_ill = since - self.redis_was_ill_at < PROMISED_SECONDS
        seconds = PROMISED_SECONDS * (ILL_TIMES if was_ill else 1)
        return any(naming.until >= since - seconds for naming in _of(self.beliefs, partition, offset, instance))

    def is_firmly_named(self, partition: int, offset: int, instance: ProxyInstance) -> bool:
        """Is it now, and was it for so long that every proxy knows?"""
        since = max(instance.since, self.redis_was_ill_at)
        return any(
            self.now - max(naming.since, since) > PROMISED_SECONDS and self.now - naming.until < 2 * SAMPLE_SECONDS
            for naming in _of(self.namings, partition, offset, instance)
        )

    def left_for(self, partition: int, offset: int) -> list[int]:
        """Offsets from here on that a consumer has to get yet."""
        return [
            at
            for at in range(offset, self.logs[partition].end_offset)
            if not self.is_firmly_named(partition, at, self.lives[partition, at][-1])
        ]


def _of(namings: Namings, partition: int, offset: int, instance: ProxyInstance) -> list[Naming]:
    return [
        naming
        for ((number, first, end), _), naming in namings.items()
        if number == partition and first <= offset < end and instance.message in naming.messages
    ]


def _weight(hidden_range: Any) -> tuple[int, int]:
    return hidden_range.at_ms, ("asked", "active", "refused", "removed").index(hidden_range.state.value)
