"""How log lines look and where they go: standard error, as text for people or one JSON object each. Logs nothing
itself."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable

from .. import limits
from .log_rate_limit import LogRateLimit

_COLLECTOR_LINES_PER_MINUTE = 1
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Of syslog, by the least level; what is below these has 7."""
_TEXT = "%(asctime)s %(levelname)s {}%(message)s"


class _Utc(logging.Formatter):
    """Times as RFC 3339 has them, in UTC, with milliseconds."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class _WithPriorities(logging.Formatter):
    """Begins each line with the priority that systemd's journal keeps for it and takes off (sd-daemon(3))."""

    def __init__(self, below: logging.Formatter) -> None:
        super().__init__()
        self._below = below

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or the lines of one with a traceback."""
        start = f"<{next((one for level, one in _PRIORITIES if record.levelno >= level), 7)}>"
        return start + self._below.format(record).replace("\n", f"\n{start}")


def _is_journal() -> bool:
    """Does standard error lead to systemd's journal (systemd.exec(5), JOURNAL_STREAM)?"""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def set_up(level: str, form: str, worker: int | None = None) -> None:
    """Send what is logged to standard error. ``level``: debug, info, warning or error; ``form``: text or json.
    ``worker``: which of several processes this is, None: the only one, or their supervisor. May be called again with
    other values."""
    handler = logging.StreamHandler(sys.stderr)
    text = _TEXT.format("" if worker is None else f"worker {worker}: ")
    formatter = _json(worker) if form == "json" else logging.Formatter(text)
    handler.setFormatter(_WithPriorities(formatter) if _is_journal() else formatter)
    handler.addFilter(_collector)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    sys.unraisablehook = _unraisable


class Collector(logging.Filter):
    """Limits what OpenTelemetry's SDK logs about a collector that is down: one line a minute without a traceback,
    instead of one with a traceback for each try."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._rate_limit = LogRateLimit()

    def filter(self, record: logging.LogRecord) -> bool:
        """May this line be written?"""
        if not record.name.startswith("opentelemetry.") or record.levelno < logging.WARNING:
            return True
        now = self._now()
        missing = sum(count for _, count in self._rate_limit.ended(now))
        if not self._rate_limit.admits("collector", _COLLECTOR_LINES_PER_MINUTE, now):
            return False
        why = f"{record.exc_info[1]!r}" if record.exc_info else record.getMessage()
        more = f" ({missing} lines like this were left out)" if missing else ""
        record.msg, record.args, record.exc_info, record.exc_text = (
            f"spans or metrics cannot be sent to the collector (OTEL_EXPORTER_OTLP_*), producers are not disturbed: "
            f"{why:.300}{more}",
            (),
            None,
            None,
        )
        return True


class _Unraisable:
    """An error that Python cannot raise anywhere, such as in a callback of its TLS, where any client can cause it: one
    line without a traceback, and limited in number."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._rate_limit = LogRateLimit()

    def __call__(self, ignored: sys.UnraisableHookArgs) -> None:
        log, now = logging.getLogger("idemproxy"), self._now()
        for _, count in self._rate_limit.ended(now):
            log.warning("%d more errors of this kind were not logged", count)
        if self._rate_limit.admits("unraisable", limits.LINES_PER_MINUTE_MAX, now):
            log.warning("%s: %.200r", ignored.err_msg or "Exception ignored", ignored.exc_value)


_unraisable = _Unraisable()
_collector = Collector()


def _json(worker: int | None) -> logging.Formatter:
    """Everything that a line carries in addition to its text (``extra``, such as a trace's id) is a field of its
    own."""
    from pythonjsonlogger.json import JsonFormatter

    class OneObject(_Utc, JsonFormatter):
        pass

    names = {"asctime": "timestamp", "levelname": "level", "name": "logger", "exc_info": "exception"}
    static = {} if worker is None else {"worker": worker}
    return OneObject("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=names, static_fields=static)
