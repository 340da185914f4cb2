"""Runs ``idemproxy journal``: prints lines of journals, returns the exit status."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from .files import JournalProblem, Line, Reader, journals, merged
from .shown import shown

_LOOK_SECONDS: Final = 0.2
"""How often journals that are followed are looked at."""
_NOTES_MAX: Final = 20
"""Unreadable lines that are named; the others are only counted."""


def run_journal(options: argparse.Namespace) -> int:
    """Return 0; 1 where there was nothing to print, or lines were left out that are none of a journal; 2 with a
    sentence on the error output."""
    try:
        return _cat(options)
    except JournalProblem as problem:
        return _complain(str(problem))
    except BrokenPipeError:  # no trouble of a file: the reader has closed the pipe
        raise
    except OSError as problem:
        return _complain(f"{problem.filename or 'the journal'}: {problem.strerror or problem}")
    except KeyboardInterrupt:
        return 130


def _cat(options: argparse.Namespace) -> int:
    if options.partition is not None and options.topic is None:
        return _complain("--partition needs --topic: a partition of which topic?")
    notes = _Notes()
    readers = [Reader(path, notes, options.since or 0) for path in journals(options.files)]
    is_wanted, text = _filter(options), _writer(options, [reader.path for reader in readers])
    printed = 0

    def print_all(lines: Iterable[Line]) -> None:
        nonlocal printed
        for line in lines:
            if is_wanted(line.said):
                sys.stdout.write(text(line))
                printed += 1
        sys.stdout.flush()

    try:
        print_all(merged(readers))
        while options.follow:
            time.sleep(_LOOK_SECONDS)
            print_all(merged(readers))
    finally:
        for reader in readers:
            reader.end()
        notes.end()
    return 0 if printed and not any(reader.unreadable for reader in readers) else 1


class _Notes:
    """What was left out, on the error output."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, what: str) -> None:
        self._count += 1
        if self._count <= _NOTES_MAX:
            print(f"idemproxy: {what}", file=sys.stderr)

    def end(self) -> None:
        """Say how many there were more."""
        if self._count > _NOTES_MAX:
            print(f"idemproxy: and {self._count - _NOTES_MAX} more", file=sys.stderr)


def _filter(options: argparse.Namespace) -> Callable[[Mapping[str, Any]], bool]:
    events = frozenset(options.event or ())
    topic, partition, producer_id = options.topic, options.partition, options.producer_id
    since_ms, until_ms = options.since, options.until

    def is_wanted(said: Mapping[str, Any]) -> bool:
        return (
            (not events or said["event"] in events)
            and (topic is None or said.get("topic") == topic)
            and (partition is None or said.get("partition") == partition)
            and (producer_id is None or producer_id in _producers(said))
            and (since_ms is None or said["time_ms"] >= since_ms)
            and (until_ms is None or said["time_ms"] <= until_ms)
        )

    return is_wanted


def _producers(said: Mapping[str, Any]) -> set[Any]:
    found = {one[0] for one in said.get("identities", ())}
    return found | {said["producer_id"]} if "producer_id" in said else found


def _writer(options: argparse.Namespace, paths: list[Path]) -> Callable[[Line], str]:
    if options.json:
        return lambda line: line.raw.decode(errors="backslashreplace")
    if len(paths) == 1:
        return lambda line: shown(line.said) + "\n"
    names = {path: path.name for path in paths}
    if len(set(names.values())) < len(names):
        names = {path: os.fspath(path) for path in paths}
    return lambda line: shown(line.said, names[line.journal]) + "\n"


def _complain(problem: str) -> int:
    sys.stdout.flush()
    print(f"idemproxy: {problem}", file=sys.stderr)
    return 2
