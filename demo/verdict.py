"""The oracle over numbered values ``<name>:<partition>:<n>``: what is in the log twice, missing, or out of order. Pure.

``name`` is one producer; it numbers its records of each partition 0, 1, 2, ... Values of another form count as foreign.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Position = tuple[str, int, int]
"""(producer's name, partition, number)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts over the whole topic. ``is_exactly_once`` says whether all is as it should be."""

    stored: int
    duplicates: int
    """Stored records that are a second (third, ...) copy."""
    lost: int
    """Records that were acknowledged to the producer and are not stored."""
    reordered: int
    """First copies that stand after a later one of the same producer and partition."""
    misplaced: int
    """Acknowledged records of which no copy is at the acknowledged offset."""
    foreign: int
    examples: tuple[str, ...] = ()
    """A few sentences about what is wrong."""

    @property
    def is_exactly_once(self) -> bool:
        """No duplicate, no loss, in order, every acknowledged offset right, and nothing else there."""
        return not (self.duplicates or self.lost or self.reordered or self.misplaced or self.foreign)


def value_of(name: str, partition: int, number: int) -> bytes:
    """Return the value that stands for this record."""
    return f"{name}:{partition}:{number}".encode()


def position_of(value: bytes | None) -> Position | None:
    """Return what a value stands for; None when it is none of ours."""
    parts = (value or b"").decode("utf-8", "replace").rsplit(":", 2)
    if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():
        return parts[0], int(parts[1]), int(parts[2])
    return None


def judge(
    stored: Mapping[int, Iterable[tuple[int, bytes | None]]],
    acknowledged: Mapping[Position, int | None] | None = None,
    *,
    examples_max: int = 10,
) -> Verdict:
    """Compare the log, (offset, value) by partition in the order of the log, with what was acknowledged.

    ``acknowledged`` has the offset per record, None or -1 where the acknowledgement had none.
    """
    offsets: dict[Position, list[int]] = {}
    newest: dict[tuple[str, int], int] = {}
    counts: Counter[str] = Counter()
    examples: list[str] = []

    def note(what: str, sentence: str) -> None:
        counts[what] += 1
        if len(examples) < examples_max:
            examples.append(sentence)

    for partition, records in stored.items():
        for offset, value in records:
            counts["stored"] += 1
            position = position_of(value)
            if position is None or position[1] != partition:
                note("foreign", f"partition {partition} offset {offset}: not one of ours: {value!r}")
                continue
            known = offsets.setdefault(position, [])
            known.append(offset)
            if len(known) > 1:
                note("duplicates", f"partition {partition}: {value!r} at the offsets {known}")
                continue
            number, last = position[2], newest.get(position[:2], -1)
            if number < last:
                note("reordered", f"partition {partition} offset {offset}: {value!r} comes after number {last}")
            newest[position[:2]] = max(number, last)
    for told, told_offset in (acknowledged or {}).items():
        if told not in offsets:
            note("lost", f"acknowledged and not stored: {told}")
        elif told_offset is not None and told_offset >= 0 and told_offset not in offsets[told]:
            note("misplaced", f"{told} was said to be at {told_offset}, is at {offsets[told]}")
    return Verdict(
        stored=counts["stored"],
        duplicates=counts["duplicates"],
        lost=counts["lost"],
        reordered=counts["reordered"],
        misplaced=counts["misplaced"],
        foreign=counts["foreign"],
        examples=tuple(examples),
    )
