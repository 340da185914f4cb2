"""``idemproxy copy``, ``merge``, ``repartition`` and ``clean``: checks the options, runs the job. Exit status 0, 2 with
a sentence, or 130."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ... import installation_of
from ..options import WrongOption, named_values

if TYPE_CHECKING:
    from .run import Job

EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED = 0, 2, 130
_MODULES_OF_EXTRA: Final = ("numpy", "pandas", "pyarrow", "pyspark")
_TO: Final = "to."
_TOPIC: Final = "--topic names what is read"
_SAID: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "--from names the brokers to read from",
    "subscribe": _TOPIC,
    "subscribepattern": _TOPIC,
    "assign": _TOPIC,
    "includeheaders": "a job always reads the headers",
    "to.kafka.bootstrap.servers": "--to names the proxies to write to",
    "to.topic": "--out names the topic to write to",
    "to.checkpointlocation": "--checkpoint names the folder",
}
"""Options of the formats that a job sets itself, in lower case, and the option of the command to use instead."""
_SAID_OF_A_CLEAN_UP: Final[Mapping[str, str]] = {
    "rows": "--coordinates says what is read",
    "to.producername": "--name names the run",
    "to.staginglocation": "--checkpoint names the folder",
}


def run_job(options: argparse.Namespace) -> int:
    """Return the exit status."""
    missing = [name for name in _MODULES_OF_EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        return _complain(options, f"it needs {', '.join(missing)}: {installation_of('spark')}")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from ..reading.broker import BrokerProblem
    from ..spark import NoJava, cause_of, session
    from .run import Job, run

    try:
        read, written = format_options(options.command, named_values("--option", options.option))
        if len(options.topic) > 1 and options.command != "merge":
            raise WrongOption(f"--topic: {options.command} reads one topic; merge reads several")
        job = Job(
            name=options.command,
            source=options.source,
            target=options.target or options.source,
            topics=options.topic,
            out=options.out,
            checkpoint=options.checkpoint,
            carrier=options.coordinates,
            run_name=options.name,
            follows=options.follow,
            read_options=read,
            write_options=written,
        )
        settings = {"spark.app.name": f"idemproxy {options.command}", **named_values("--conf", options.conf)}
        with session(options.master, settings) as spark:
            run(spark, job)
    except (ValueError, WrongOption, BrokerProblem) as problem:
        return _complain(options, str(problem))
    except NoJava as problem:
        return _complain(options, str(problem))
    except KeyboardInterrupt:
        _complain(options, "interrupted; started again with the same checkpoint it resumes")
        return EXIT_INTERRUPTED
    except (PySparkException, Py4JError) as problem:
        return _complain(options, f"Spark ended it: {cause_of(str(problem))}")
    print(f"{', '.join(job.topics)} went to {job.out}; {_again(job)}")
    return EXIT_DONE


def _again(job: Job) -> str:
    """Return what a second start does."""
    if job.name == "clean":
        return f"the run {job.run_name} writes nothing twice; a topic that has grown since needs another --name"
    return "started again with the same checkpoint it resumes after that"


def format_options(command: str, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what is for the reader, and what is for the writer. Raises WrongOption for what the job says itself."""
    said = {**_SAID, **(_SAID_OF_A_CLEAN_UP if command == "clean" else {})}
    for name, value in given.items():
        if name.lower() in said:
            raise WrongOption(f"--option {name}={value}: {said[name.lower()]}")
    return (
        {name: value for name, value in given.items() if not name.startswith(_TO)},
        {name.removeprefix(_TO): value for name, value in given.items() if name.startswith(_TO)},
    )


def _complain(options: argparse.Namespace, sentence: str) -> int:
    print(f"idemproxy {options.command}: {sentence}", file=sys.stderr)
    return EXIT_FAILED
