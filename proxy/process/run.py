"""One ``idemproxy run`` from its settings to its exit status: log, metrics and journal are set up around the server."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import trio

from ...state.redis_server import EmbeddedRedisError
from ..events import Report
from ..settings.child_process import Reading, load_apart
from ..settings.config import ConfigError
from ..telemetry.journal import Journal, JournalFile
from ..telemetry.logs import set_up
from ..telemetry.otel import spans_from_environment
from ..telemetry.reports import Telemetry
from .free_memory import tune
from .server import EndedItselfError, Server


def run(options: argparse.Namespace, reading: Reading) -> int:
    """Serve until a signal; return the exit status. ``reading``: the configuration that ``options`` name."""
    try:
        settings = reading.settings()
        set_up(settings.log_level, settings.log_format)
        telemetry = Telemetry(spans_from_environment())
        journal = _open_journal(settings.journal) if settings.journal is not None else None
        report: Report = telemetry
        if journal is not None:
            report = Journal(journal.write, lambda: time.time_ns() // 1_000_000, telemetry)
        tune()
        try:
            trio.run(
                Server(
                    settings,
                    report,
                    telemetry=telemetry,
                    wants_spans=telemetry.spans is not None,
                    journal=journal,
                    load=lambda: load_apart(options.config, vars(options)),
                ).run
            )
        finally:
            telemetry.close()
    except ConfigError as problem:
        for sentence in problem.problems:
            print(f"idemproxy: {sentence}", file=sys.stderr)
        return 2
    except EndedItselfError:
        return 2
    except EmbeddedRedisError as problem:
        print(f"idemproxy: {problem}", file=sys.stderr)
        return 2
    return 0


def _open_journal(path: Path) -> JournalFile:
    try:
        return JournalFile(path)
    except OSError as error:
        raise ConfigError(f"journal {path}: {error.strerror}") from None
