"""How log lines look and where they go: standard error, as text for people or one JSON object each. Says nothing."""

from __future__ import annotations

import logging
import sys
import time

_TEXT = "%(asctime)s %(levelname)s %(message)s"
_FIELDS = "%(levelname)s %(name)s %(message)s"


def set_up(level: str, form: str) -> None:
    """Send what is logged to standard error. ``level``: debug, info, warning or error; ``form``: text or json. May be
    called again with others."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_json() if form == "json" else logging.Formatter(_TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _json() -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter

    formatter = JsonFormatter(
        f"%(asctime)s {_FIELDS}",
        datefmt="%Y-%m-%dT%H:%M:%S",
        rename_fields={"asctime": "timestamp", "levelname": "level", "name": "logger", "exc_info": "exception"},
    )
    formatter.converter = time.gmtime
    formatter.default_msec_format = "%s.%03dZ"
    return formatter
