"""Checks the files and directories that a configuration names, as ``idemproxy run`` would use them. Changes and creates
nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..net.tls import TlsError, TlsSide
from ..settings.partial import Partial
from ..settings.problems import JOURNAL_PATH, Place, dotted

_EFFECTIVE = os.access in os.supports_effective_ids


def file_problems(said: Partial) -> Iterator[tuple[Place, str]]:
    """Yield what would prevent ``run`` from starting: the place of the setting, and a message."""
    for place, tls in said.tls.items():
        try:
            TlsSide(tls, dotted(place))
        except TlsError as error:
            yield place, str(error)
    if said.data_directory is not None and (problem := _directory_problem(said.data_directory)):
        yield ("data_directory",), f"the data directory {said.data_directory} cannot be used: {problem}"
    if said.journal is not None and (problem := _journal_problem(said.journal)):
        yield JOURNAL_PATH, f"{said.journal} cannot be written: {problem}"


def _directory_problem(path: Path) -> str | None:
    """Return what is wrong with a directory. A missing one is not wrong: ``run`` makes it, with its parents."""
    above = path
    while not os.path.lexists(above) and above != above.parent:
        above = above.parent
    if not os.path.isdir(above):
        return f"{above} is no directory"
    if not _may(above, os.W_OK | os.X_OK):
        return f"{above} may not be written"
    lock = path / "proxy.lock"
    if os.path.lexists(lock) and not _may(lock, os.R_OK | os.W_OK):
        return f"{lock} may not be written"
    return None


def _journal_problem(path: Path) -> str | None:
    """Return what is wrong with the journal's path. The file may be missing, its directory may not."""
    if os.path.isdir(path):
        return "it is a directory"
    if os.path.exists(path):
        return None if _may(path, os.W_OK) else "it may not be written"
    if not os.path.isdir(path.parent):
        return f"{path.parent} is no directory" if os.path.lexists(path.parent) else f"{path.parent} is missing"
    return None if _may(path.parent, os.W_OK | os.X_OK) else f"{path.parent} may not be written"


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=_EFFECTIVE)
