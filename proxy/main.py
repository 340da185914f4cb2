"""The command line. Parses, starts, and turns each problem into one clear sentence."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from .. import __version__
from .commands.audit_arguments import add_audit
from .commands.check import COMMANDS as CHECK_COMMANDS
from .commands.check import add_commands as add_check_commands
from .commands.check import run_check
from .commands.inspection import arguments as inspection_arguments
from .commands.job_arguments import JOBS, add_job
from .commands.journal_arguments import add_journal
from .commands.parsing import SHELLS, Parser, complete, completion_script, explained
from .commands.probing.arguments import add_probe
from .commands.rebuild_arguments import add_rebuild
from .commands.run_arguments import add_settings
from .settings.config import ConfigError

_EXAMPLES = """\
begin with:
  idemproxy demo                                       see what it does, on this machine alone
  idemproxy check --upstream kafka.example:9092 --connect
  idemproxy run --upstream kafka.example:9092 --admin-bind 127.0.0.1:9644
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status. A reader that closes the pipe, as ``head`` does, ends it quietly."""
    try:
        try:
            return _command(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it ends
        return 0


def _command(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    complete(parser)
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help(sys.stderr)
        parser.exit(2)
    if options.command == "completion":
        print(completion_script(options.shell))
        return 0
    if options.command == "demo":
        from ..demo.command import run_demo

        return run_demo(options)
    if options.command == "audit":
        from ..pipeline.audit.command import run_audit

        return run_audit(options)
    if options.command == "journal":
        from ..pipeline.journal.command import run_journal

        return run_journal(options)
    if options.command in JOBS:
        from ..pipeline.jobs.command import run_job

        return run_job(options)
    if options.command == "rebuild":
        return _rebuild(options)
    if options.command == "probe":
        from .commands.probing.command import run_probe

        return run_probe(options)
    if options.command in inspection_arguments.COMMANDS:
        from .commands.inspection.command import run_inspection

        return run_inspection(options)
    if options.command in CHECK_COMMANDS:
        return run_check(options)
    return _run(options)


def _parser() -> Parser:
    parser = Parser(
        prog="idemproxy",
        description="Gives Kafka producers idempotence in front of brokers that have none.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"idemproxy {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    add_settings(commands.add_parser("run", help="serve clients in front of a cluster"))
    add_check_commands(commands)
    add_probe(commands.add_parser("probe", help="try on a cluster whether, and how, it can be served"))
    inspection_arguments.add_commands(commands)
    add_journal(commands.add_parser("journal", help="show what a proxy's journal says of every batch"))
    add_audit(commands.add_parser("audit", help="count what is wrong in topics: duplicates, gaps, inversions"))
    add_rebuild(commands.add_parser("rebuild", help="compare Redis with the logs, and write into it what it has lost"))
    for name, text in JOBS.items():
        add_job(name, commands.add_parser(name, help=text))
    _add_demo(commands.add_parser("demo", help="show it: a real old broker, a real producer, injected faults"))
    completion = commands.add_parser(
        "completion",
        help="print what a shell needs to complete these words",
        epilog='For bash, in ~/.bashrc: eval "$(idemproxy completion bash)"',
    )
    completion.add_argument("shell", choices=SHELLS, help=explained("The shell that evaluates it"))
    return parser


def _add_demo(demo: argparse.ArgumentParser) -> None:
    demo.add_argument("--json", action="store_true", help=explained("Print the result for machines"))
    demo.add_argument(
        "--records",
        metavar="N",
        type=int,
        default=100_000,
        help=explained("Records per run", "--records 5000", 10**5),
    )
    demo.add_argument(
        "--seed", metavar="N", type=int, default=1, help=explained("Which faults are injected, and when", "--seed 7", 1)
    )


def _rebuild(options: argparse.Namespace) -> int:
    from ..pipeline.rebuild.command import run_rebuild
    from .commands.store_settings import redis_of, store_settings

    try:
        settings = store_settings(options)
        redis = redis_of(settings)
    except ConfigError as problem:
        print(f"idemproxy: {problem}", file=sys.stderr)
        return 2
    return run_rebuild(options, settings, redis)


def _end_at_once(number: int, _frame: object) -> None:
    """End as by a signal without a handler, by which the kernel ends every process but process 1."""
    os._exit(128 + number)


def _run(options: argparse.Namespace) -> int:
    if os.getpid() == 1:  # in a container: unhandled signals are dropped, and the server handles none for seconds
        signal.signal(signal.SIGTERM, _end_at_once)
    from .process.run import run

    return run(options)
