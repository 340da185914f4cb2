"""The proxy's settings that ``idemproxy rebuild`` uses. Reads the configuration; the run is ``pipeline.rebuild``."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from ...state.redis_facts import RedisAddress
from ..settings.config import CONFIG_VARIABLE, Settings
from ..settings.load import load
from .private_redis import private_redis

_OPTIONS = ("upstream", "redis", "data_directory", "cluster_name")


def settings_of(options: argparse.Namespace) -> tuple[Settings, RedisAddress]:
    """Return what ``idemproxy run`` would use with the same file and environment, except for the options given here,
    and the server that its state is in. Raises ConfigError."""
    given = {name: getattr(options, name) for name in _OPTIONS}
    file = options.config or os.environ.get(CONFIG_VARIABLE)
    settings = load(Path(file) if file else None, given)
    if options.data_directory is not None and options.redis is None:
        settings = replace(settings, redis=None)
    return settings, settings.redis or private_redis(settings.data_directory)
