"""How log lines look and where they go: standard error, as text for people or one JSON object each. Says nothing."""

from __future__ import annotations

import logging
import sys
import time

_TEXT = "%(asctime)s %(levelname)s %(message)s"


class _Utc(logging.Formatter):
    """Times as RFC 3339 has them, in UTC, with milliseconds."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


def set_up(level: str, form: str) -> None:
    """Send what is logged to standard error. ``level``: debug, info, warning or error; ``form``: text or json. May be
    called again with others."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_json() if form == "json" else logging.Formatter(_TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    sys.unraisablehook = _unraisable


def _unraisable(ignored: sys.UnraisableHookArgs) -> None:
    """An error that Python itself can hand to nobody, such as in a callback of its TLS: one line, no traceback."""
    what = ignored.err_msg or "Exception ignored"
    logging.getLogger("idemproxy").warning("%s: %.200r", what, ignored.exc_value)


def _json() -> logging.Formatter:
    """All that a line carries beside its text (``extra``, such as a trace's id) is a field of its own."""
    from pythonjsonlogger.json import JsonFormatter

    class OneObject(_Utc, JsonFormatter):
        pass

    names = {"asctime": "timestamp", "levelname": "level", "name": "logger", "exc_info": "exception"}
    return OneObject("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=names)
