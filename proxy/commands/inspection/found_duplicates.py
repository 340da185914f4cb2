"""Duplicates that were found: by ``idemproxy audit``, in its ``duplicates.json``; by a proxy's own duplicate
audit (rule R14), in its journal. Reads files; decides nothing about what is left out."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ....state.hidden_ranges import OFFSET_MAX, RANGE_MESSAGES_MAX, OffsetRange
from ...settings.config import ConfigError

FILE_NAME: Final = "duplicates.json"
FILE_BYTES_MAX: Final = 64 << 20
"""The largest file of an audit: half a million ranges, many times what Redis has room for."""
_FORMAT: Final = 1
_PARTITIONS: Final = 1 << 31
_DUPLICATE_FOUND: Final = b'"event":"duplicate_found"'
_IDENTITY: Final = re.compile(rb"\[(\d+),(\d+),(\d+),(\d+)\]")

Batch = tuple[str, int, int, int, int]
"""Topic, partition, producer id, epoch, base sequence."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Offsets that are a duplicate of as many records from ``first_copy`` on."""

    place: OffsetRange
    first_copy: int


@dataclass(slots=True)
class Found:
    """The duplicates in a file. ``by``: who has found them. ``notes``: sentences about what the file does not
    tell."""

    by: str
    copies: list[Duplicate] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def only(self, topic: str | None, partition: int | None) -> Found:
        """Return those of one topic, or of one partition."""
        kept = [
            one for one in self.copies if topic in (None, one.place.topic) and partition in (None, one.place.partition)
        ]
        return Found(self.by, kept, self.notes)


# ---------------------------------------------------------------------- of an audit
def found_by_audit(path: Path) -> Found:
    """Read what an audit has written: its directory, or the file. Raises ConfigError."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(f"{file} has more than {FILE_BYTES_MAX} bytes: audit one topic at a time")
        data = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise ConfigError(
            f"{file} does not exist: `idemproxy audit --out DIR` writes it, run the audit again"
        ) from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{file} is no {FILE_NAME} of an audit") from None
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise ConfigError(f"{file} is no {FILE_NAME} of an audit, or of another version than this one")
    found = Found("the audit")
    try:
        for row in data["duplicates"]:
            found.copies += _in_parts(_copy_of(row))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{file} is damaged: {type(error).__name__}: {error}") from None
    if not data.get("is_whole"):
        found.notes.append("the audit found more duplicates than it lists: add these, and run it again afterwards")
    return found


def _copy_of(row: Mapping[str, Any]) -> Duplicate:
    numbers = [row[name] for name in ("partition", "first", "last", "first_copy")]
    if not isinstance(row["topic"], str) or any(type(number) is not int for number in numbers):
        raise ValueError(f"this names no offsets: {row}")
    partition, first, last, first_copy = numbers
    if not (0 <= partition < _PARTITIONS and 0 <= first_copy < first <= last < OFFSET_MAX):
        raise ValueError(f"this is no duplicate: {row}")
    return Duplicate(OffsetRange(row["topic"], partition, first, last + 1), first_copy)


def _in_parts(copy: Duplicate) -> Iterator[Duplicate]:
    """Cut it into ranges that may be stored: a range has a limit of messages, and each record may be one."""
    place = copy.place
    for first in range(place.first, place.end, RANGE_MESSAGES_MAX):
        part = OffsetRange(place.topic, place.partition, first, min(first + RANGE_MESSAGES_MAX, place.end))
        yield Duplicate(part, copy.first_copy + first - place.first)


# ---------------------------------------------------------------------- of a journal
def found_by_proxy(path: Path) -> Found:
    """Read the duplicates that a journal tells of. Their lines have the offsets at which they begin; how many
    records the batch has is in the lines of its appends. Raises ConfigError."""
    try:
        with path.open("rb") as lines:
            offsets = _told_copies(lines)
        with path.open("rb") as lines:
            counts = _record_counts(lines, set(offsets)) if offsets else {}
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    found = Found("the proxy")
    for batch, at in sorted(offsets.items()):
        topic, partition, *name = batch
        first_copy, *copies = sorted(at)
        if (count := counts.get(batch)) is None:
            where = ", ".join(map(str, copies))
            found.notes.append(
                f"{topic}/{partition}: a duplicate begins at offset {where}, of producer {name[0]}, sequence "
                f"{name[2]}; how many records it has is in an earlier part of the journal: add it by its numbers"
            )
            continue
        for first in copies:
            found.copies += _in_parts(Duplicate(OffsetRange(topic, partition, first, first + count), first_copy))
    return found


def _told_copies(lines: Iterator[bytes]) -> dict[Batch, set[int]]:
    offsets: dict[Batch, set[int]] = defaultdict(set)
    for line in lines:
        if _DUPLICATE_FOUND not in line:
            continue
        event = _event_of(line)
        try:
            name = (event["producer_id"], event["producer_epoch"], event["base_sequence"])
            at = {int(offset) for offset in event["offsets"]}
            place = (str(event["topic"]), int(event["partition"]))
        except (KeyError, TypeError, ValueError):
            continue  # a line that was cut off, or somebody else's
        if len(at) > 1 and min(at) >= 0:
            offsets[(*place, *name)] |= at
    return offsets


def _record_counts(lines: Iterator[bytes], wanted: set[Batch]) -> dict[Batch, int]:
    counts: dict[Batch, int] = {}
    names = {batch[2:] for batch in wanted}
    for line in lines:
        for match in _IDENTITY.finditer(line):
            producer_id, epoch, sequence, count = map(int, match.groups())
            if (producer_id, epoch, sequence) in names:
                event = _event_of(line)
                batch = (event.get("topic"), event.get("partition"), producer_id, epoch, sequence)
                if batch in wanted and count > 0:
                    counts[batch] = count
    return counts


def _event_of(line: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}
