"""``idemproxy audit``: checks the options, runs the job, writes the report. Exit status 0, 1 or 2: audit-a-topic.md."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ... import installation_of
from ..options import WrongOption, named_values, pattern_of
from .kinds import Finding

if TYPE_CHECKING:
    from .job import Audited
    from .plan import Plan
    from .progress import Progress

EXIT_CLEAN, EXIT_FINDINGS, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 2, 130
_MODULES_OF_EXTRA: Final = ("numpy", "pandas", "pyarrow", "pyspark", "rich")


def run_audit(options: argparse.Namespace) -> int:
    """Return 0 where nothing was found, 1 where something was, 2 with a sentence where the audit could not be made."""
    missing = [name for name in _MODULES_OF_EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        return _complain(f"it needs {', '.join(missing)}: {installation_of('spark')}")
    try:
        return _run(options)
    except WrongOption as problem:
        return _complain(str(problem))
    except KeyboardInterrupt:
        _complain("interrupted; nothing was written")
        return EXIT_INTERRUPTED
    except Exception:
        traceback.print_exc()  # Python's own exit status would be 1, which means findings
        return _complain("this is an error of the audit itself; please report it with the lines above")


def _run(options: argparse.Namespace) -> int:
    # These modules import what the extra brings.
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from ..journal.files import JournalProblem, Reader, journals
    from ..reading.broker import BrokerProblem
    from ..reading.places import NothingToRead
    from ..spark import NoJava, cause_of
    from .progress import Progress

    failing = _kinds(options.fail_on)
    settings = named_values("--conf", options.conf)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        for path in journals(options.journal):
            Reader(path, lambda _: None).look()  # before Spark is started, which takes a while
        plan = _plan(options)
        with Progress() as progress:
            audited = _audited(options, plan, settings, progress)
        return _reported(options, audited, failing)
    except (BrokerProblem, JournalProblem, NoJava, NothingToRead) as problem:
        return _complain(str(problem))
    except OSError as problem:
        return _complain(f"{problem.filename or 'the log'}: {problem.strerror or problem}")
    except (PySparkException, Py4JError) as problem:
        return _complain(f"Spark failed: {cause_of(str(problem))}")


def _audited(options: argparse.Namespace, plan: Plan, settings: Mapping[str, str], progress: Progress) -> Audited:
    from ..spark import session
    from .job import audit

    progress.say(f"{len(plan.places)} partitions in {len(plan.ranges)} ranges; Spark is started: {options.master}")
    with session(options.master, settings) as spark:
        return audit(spark, plan, progress, distance=options.distance, journals=options.journal)


def _reported(options: argparse.Namespace, audited: Audited, failing: Sequence[Finding]) -> int:
    from .duplicates import duplicates_of
    from .outputs import summary_of, told, write_findings, write_summary
    from .report import write_report

    summary = summary_of(audited, failing)
    write_findings(audited, options.out / "findings.parquet")
    write_summary(summary, options.out / "summary.json")
    write_summary(duplicates_of(audited, summary["source"]), options.out / "duplicates.json")
    write_report(audited, summary, options.out / "report.html")
    for line in told(summary):
        print(line)
    print(f"report: {options.out / 'report.html'}")
    return EXIT_FINDINGS if summary["failing"] else EXIT_CLEAN


def _plan(options: argparse.Namespace) -> Plan:
    from .plan import of_cluster, of_files

    patterns = [pattern_of("--pattern", text) for text in options.pattern]
    if options.log_dir:
        return of_files(options.log_dir, options.topic, patterns)
    return of_cluster(_addresses(options.upstream), options.topic, patterns)


def _addresses(text: str) -> list[tuple[str, int]]:
    addresses = []
    for one in text.split(","):
        host, colon, port = one.strip().rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise WrongOption(f"--upstream {one}: HOST:PORT is wanted")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def _kinds(text: str) -> list[Finding]:
    try:
        return [Finding(name.strip()) for name in text.split(",") if name.strip()]
    except ValueError as problem:
        known = ", ".join(Finding)
        raise WrongOption(f"--fail-on: {problem}; there are {known}") from None


def _complain(sentence: str) -> int:
    print(f"idemproxy audit: {sentence}", file=sys.stderr)
    return EXIT_FAILED
