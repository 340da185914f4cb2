"""The oracle: what is in the log twice, missing or out of order, against the answers of producers. Pure, and strict:
what an anomaly is due to is not its business (``attribution.py``)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .payload import decode

Place = tuple[str, int]
"""Topic and partition."""
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Copy:
    """A record that is in the log a second time (or a third): ``offsets`` in the order of the log."""

    name: str
    place: Place
    number: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loss:
    """A record that was acknowledged at ``told_offset``, and that is not in the log."""

    name: str
    place: Place
    number: int
    told_offset: int
    told_ms: int


@dataclass(frozen=True, slots=True)
class Inversion:
    """A record whose first copy stands after that of a later one of its producer."""

    name: str
    place: Place
    number: int
    offset: int
    later_number: int


@dataclass(slots=True)
class Findings:
    """Counts and anomalies over all that was judged."""

    stored: int = 0
    acknowledged: int = 0
    failed: int = 0
    failed_but_stored: int = 0
    misplaced: int = 0
    """Acknowledged records of which no copy is at the offset of the answer."""
    foreign: list[str] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    inversions: list[Inversion] = field(default_factory=list)
    examples_of_misplaced: list[str] = field(default_factory=list)


class Series:
    """One producer on one partition: where each of its records first stands, by number."""

    def __init__(self) -> None:
        self.offsets = array("q")
        self.more: dict[int, list[int]] = {}
        self.newest = -1

    def put(self, number: int, offset: int) -> int | None:
        """Note a stored record; return the number of a later one that stands before it, if it is a first copy."""
        if number >= len(self.offsets):
            self.offsets.extend([NOWHERE] * (number + 1 - len(self.offsets)))
        if self.offsets[number] != NOWHERE:
            self.more.setdefault(number, [self.offsets[number]]).append(offset)
            return None
        self.offsets[number] = offset
        ahead = self.newest if number < self.newest else None
        self.newest = max(self.newest, number)
        return ahead

    def at(self, number: int) -> int:
        """The offset of the first copy, NOWHERE when there is none."""
        return self.offsets[number] if number < len(self.offsets) else NOWHERE


class Oracle:
    """Takes the log first, partition by partition, then the answers that each producer got."""

    def __init__(self) -> None:
        self.findings = Findings()
        self._series: dict[tuple[str, Place], Series] = {}

    def take_log(self, place: Place, records: Iterable[tuple[int, bytes]]) -> None:
        """``records``: (offset, value) of one partition in the order of the log."""
        findings, partition = self.findings, place[1]
        for offset, value in records:
            findings.stored += 1
            payload = decode(value)
            if payload is None or payload.partition != partition:
                findings.foreign.append(f"{place} offset {offset}: nobody sent {value[:80]!r}")
                continue
            series = self._series.get((payload.name, place))
            if series is None:
                series = self._series[payload.name, place] = Series()
            ahead = series.put(payload.number, offset)
            if ahead is not None:
                findings.inversions.append(Inversion(payload.name, place, payload.number, offset, ahead))
        for (name, there), series in self._series.items():
            if there == place:
                for number, offsets in series.more.items():
                    findings.copies.append(Copy(name, place, number, tuple(offsets)))

    def take_told(self, name: str, topic: str, lines: Iterable[str]) -> None:
        """``lines``: of the file that the producer wrote."""
        findings, nothing = self.findings, Series()
        for line in lines:
            kind, partition, number_text, *rest = line.split(" ", 4)
            place, number = (topic, int(partition)), int(number_text)
            series = self._series.get((name, place), nothing)
            at = series.at(number)
            if kind == "f":
                findings.failed += 1
                findings.failed_but_stored += at != NOWHERE
                continue
            findings.acknowledged += 1
            told = int(rest[0])
            if at == NOWHERE:
                findings.losses.append(Loss(name, place, number, told, int(rest[1])))
            elif told not in (at, NOWHERE) and told not in series.more.get(number, ()):
                findings.misplaced += 1
                if len(findings.examples_of_misplaced) < 10:
                    findings.examples_of_misplaced.append(f"{name} {place} number {number}: told {told}, is at {at}")


def whole_lines(text: Iterator[str]) -> Iterator[str]:
    """Yield the lines that were written to their end: a producer that was killed may leave a part of one."""
    return (line for line in text if line.endswith("\n"))
