"""One ``idemproxy run`` from its settings to its exit status: log, metrics and journal are set up around the server, or
around the supervisor of several workers."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence

import trio

from ... import __version__
from ...state.redis_server import EmbeddedRedisError
from .. import limits
from ..events import Report
from ..net.event_loop import now
from ..settings.config import ConfigError, Settings
from ..telemetry.journal import Journal
from ..telemetry.journal_file import JournalFile
from ..telemetry.logs import set_up
from ..telemetry.otel import spans_from_environment
from ..telemetry.reports import Telemetry
from .free_memory import tune
from .journal_upkeep import JournalUpkeep
from .server import EndedItselfError, Server
from .worker import COULD_NOT_START, ENDED_WHILE_SERVING, Place

WRONG_CONFIGURATION = 78
"""Exit status where only another configuration helps: EX_CONFIG of sysexits.h, which systemd shows as CONFIG. Other
starts that fail (2) may succeed later: the unit of deploy/systemd repeats those and not this."""


def run(options: argparse.Namespace) -> int:
    """Serve until a signal with the configuration that ``options`` name; return the exit status."""
    from ..settings.load import load  # not at the top: no worker needs it before a reload, and it takes 14 MB

    try:
        settings = load(options.config, vars(options))
    except ConfigError as problem:
        _print(problem.problems)
        return WRONG_CONFIGURATION

    def start() -> int:
        workers = settings.workers or min(limits.WORKERS_MAX, len(os.sched_getaffinity(0)))
        if workers == 1:
            return _serve(settings, lambda: load(options.config, vars(options)), None)
        from .supervisor import supervise

        set_up(settings.log_level, settings.log_format)
        supervise(settings, workers, options.config, vars(options))
        return 0

    return _reported(start, lambda sentences: _with_lines(sentences, options))


def serve(settings: Settings, load: Callable[[], Settings], place: Place) -> int:
    """Serve in this process as a worker; return the exit status. ``load``: reads the settings again."""

    def start() -> int:
        try:
            return _serve(settings, load, place)
        except EndedItselfError as end:  # it was said in the log
            return ENDED_WHILE_SERVING if end.has_served else COULD_NOT_START

    return _reported(start)


def _serve(settings: Settings, load: Callable[[], Settings], place: Place | None) -> int:
    set_up(settings.log_level, settings.log_format, None if place is None else place.number)
    telemetry = Telemetry(spans_from_environment())
    upkeep = _open_journal(settings, telemetry)
    report: Report = telemetry if upkeep is None else upkeep.journal
    tune()
    try:
        server = Server(settings, report, telemetry=telemetry, upkeep=upkeep, load=load, place=place)
        trio.run(server.run)
    finally:
        if upkeep is not None:
            upkeep.close()
        telemetry.close()
    return 0


def _reported(
    start: Callable[[], int], located: Callable[[Sequence[str]], Sequence[str]] = lambda reported: reported
) -> int:
    """Run ``start`` and return its exit status; print as sentences what ends it, and return 2. ``located``: adds to the
    sentences about settings where these stand in the file."""
    try:
        return start()
    except ConfigError as problem:
        _print(located(problem.problems))
    except EndedItselfError:
        pass  # it was said in the log
    except EmbeddedRedisError as problem:
        print(f"idemproxy: {problem}", file=sys.stderr)
    return 2


def _print(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        print(f"idemproxy: {sentence}", file=sys.stderr)


def _with_lines(sentences: Sequence[str], options: argparse.Namespace) -> Sequence[str]:
    """Say file and line of certificates that cannot be used, as ``check`` does. They are read after the settings, so
    the sentence has the key's name alone."""
    from ..settings.load import examine  # not at the top: see ``run``
    from ..settings.problems import dotted

    try:
        found = examine(options.config, vars(options))
        places = {dotted(place): place for place in found.written.partial().tls}
    except (ConfigError, OSError):  # changed or gone meanwhile
        return sentences
    located: list[str] = []
    for sentence in sentences:
        name, _, text = sentence.partition(": ")
        located += found.problems([(places[name], text)]) if name in places else [sentence]
    return located


def _open_journal(settings: Settings, report: Report) -> JournalUpkeep | None:
    """Open the journal that is to be kept; None: none is."""
    if settings.journal is None:
        return None
    try:
        file = JournalFile(settings.journal, _wall_clock_ms, now)
    except OSError as error:
        raise ConfigError(f"journal {settings.journal.path}: {error.strerror}") from None
    about = {"proxy": __version__, "cluster": settings.cluster, "host": os.uname().nodename, "pid": os.getpid()}
    journal = Journal(file.write, _wall_clock_ms, report, now=now, about=about)
    file.header = journal.header
    journal.is_required = settings.journal.required
    return JournalUpkeep(journal, file, report)


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
