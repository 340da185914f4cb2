"""Finds the private Redis of a proxy by its data directory. Reads one file; connects to nothing."""

from __future__ import annotations

import os
from pathlib import Path

from ...state.redis_facts import RedisAddress
from ..settings.config import ConfigError

OTHERS = "--redis names a server, --data-directory another directory, --config a file that does"


def private_redis(data_directory: Path) -> RedisAddress:
    """Return where it listens. Raises ConfigError with a sentence where no proxy runs with this directory."""
    path = data_directory / "redis" / "redis.socket"
    try:
        return RedisAddress(os.fsdecode(path.read_bytes()))
    except OSError as error:
        why = "no proxy with a private Redis runs with this data directory"
        if not isinstance(error, FileNotFoundError):
            why = f"{path} cannot be read: {error.strerror}"
        raise ConfigError(f"no private Redis in {path.parent}: {why}; {OTHERS}") from None
