"""Reads the configuration in a process of its own that ends with it: what checks it (pydantic, YAML) is loaded there,
and a proxy that runs for months does not keep those 17 MB. Reports what is wrong in the same words as ``load.py``.

The settings come back over a pipe and are never on disk. The child has our environment, our working directory and our
import path; it starts while this process imports what serves."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from .config import ConfigError, Settings

_PROGRAM = "import pickle, sys; given = pickle.load(sys.stdin.buffer); sys.path[:] = given[0]; "
_PROGRAM += f"from {__name__} import answer; answer(*given[1:])"


class Reading:
    """One child that reads; ``settings`` waits for it."""

    def __init__(self, path: Path | None, options: Mapping[str, Any]) -> None:
        """``options``: values of the command line by argparse's names. Raises ConfigError where no process starts."""
        # -P: the working directory is not on the import path. A session of its own: Ctrl-C must not reach the child.
        command = [sys.executable, "-P", "-c", _PROGRAM]
        try:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise ConfigError(f"the configuration cannot be read, as no process starts: {error.strerror}") from None
        assert self._child.stdin is not None
        with suppress(BrokenPipeError), self._child.stdin as given:  # its exit status says more
            pickle.dump((sys.path, path, dict(options)), given)

    def settings(self) -> Settings:
        """Return what was read. Raises ConfigError with a sentence per problem."""
        with self._child:
            assert self._child.stdout is not None
            said = self._child.stdout.read()
        if self._child.returncode != 0:
            raise ConfigError(f"the configuration was not read: what reads it ended with {self._child.returncode}")
        problems, settings = pickle.loads(said)
        if settings is None:
            raise ConfigError(*problems)
        assert isinstance(settings, Settings)
        return settings


def load_apart(path: Path | None, options: Mapping[str, Any]) -> Settings:
    """Do what ``load`` does, in a process of its own."""
    return Reading(path, options).settings()


def answer(path: Path | None, options: Mapping[str, Any]) -> NoReturn:
    """The child's part: write (problems, settings) and end."""
    from .load import load

    found: tuple[tuple[str, ...], Settings | None]
    try:
        found = (), load(path, options)
    except ConfigError as error:
        found = tuple(error.problems), None
    with suppress(BrokenPipeError):  # who asked has ended
        sys.stdout.buffer.write(pickle.dumps(found))
        sys.stdout.flush()
    raise SystemExit(0)
