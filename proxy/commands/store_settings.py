"""Which Redis is used by the commands that talk to it directly, without a proxy: ``inspect``, ``forget``,
``hide``, ``rebuild``. Reads the configuration and one file of the data directory; connects to nothing."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from ...state.redis_facts import RedisAddress
from ..settings.config import CONFIG_VARIABLE, ConfigError, Settings
from ..settings.load import load

OTHERS = "--redis names a server, --data-directory another directory, --config a file that does"
_OPTIONS = ("redis", "data_directory", "cluster_name")
_NO_UPSTREAM = "localhost:9092"
"""For commands that ask no broker: the brokers' addresses are the only required setting."""


def store_settings(options: argparse.Namespace) -> Settings:
    """Return what ``idemproxy run`` would use with the same file and environment, except for the options given here;
    ``redis`` None: the private one of the data directory. Raises ConfigError."""
    given = {name: getattr(options, name, None) for name in _OPTIONS}
    if given["redis"] is not None and given["data_directory"] is not None:
        raise ConfigError("--redis and --data-directory name two servers: one of them")
    file = getattr(options, "config", None) or os.environ.get(CONFIG_VARIABLE)
    upstream = getattr(options, "upstream", _NO_UPSTREAM)
    settings = load(Path(file) if file else None, {**given, "upstream": upstream})
    return settings if given["data_directory"] is None else replace(settings, redis=None)


def redis_of(settings: Settings) -> RedisAddress:
    """Return the server that the state is in. Raises ConfigError where no proxy runs that would have a private one."""
    return settings.redis or private_redis(settings.data_directory)


def private_redis(data_directory: Path) -> RedisAddress:
    """Return where the private Redis of this data directory listens. Raises ConfigError where no proxy runs with it."""
    path = data_directory / "redis" / "redis.socket"
    try:
        return RedisAddress(os.fsdecode(path.read_bytes()))
    except OSError as error:
        why = "no proxy with a private Redis runs with this data directory"
        if not isinstance(error, FileNotFoundError):
            why = f"{path} cannot be read: {error.strerror}"
        raise ConfigError(f"no private Redis in {path.parent}: {why}; {OTHERS}") from None
