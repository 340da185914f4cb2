"""The command line. Parses, starts, and turns each problem into one clear sentence."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import __version__
from ..codecs.convert import TRACING_HEADERS
from ..pipeline.arguments import add_audit
from . import limits
from .commands.check import COMMANDS as CHECK_COMMANDS
from .commands.check import add_commands as add_check_commands
from .commands.check import run_check
from .commands.inspection import arguments as inspection_arguments
from .settings.child_process import Reading
from .settings.config import CONFIG_VARIABLE, DEFAULT_CLUSTER, DEFAULT_DATA_DIRECTORY, DEFAULT_LISTEN, ConfigError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command == "demo":
        from ..demo.command import run_demo

        return run_demo(options)
    if options.command == "audit":
        from ..pipeline.command import run_audit

        return run_audit(options)
    if options.command in inspection_arguments.COMMANDS:
        from .commands.inspection.command import run_inspection

        return run_inspection(options)
    if options.command in CHECK_COMMANDS:
        return run_check(options)
    return _run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="idemproxy", description="Gives Kafka producers idempotence in front of brokers that have none."
    )
    parser.add_argument("--version", action="version", version=f"idemproxy {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_run(commands.add_parser("run", help="serve clients in front of a cluster"))
    add_check_commands(commands)
    inspection_arguments.add_commands(commands)
    add_audit(commands.add_parser("audit", help="count what is wrong in topics: duplicates, gaps, inversions"))
    demo = commands.add_parser("demo", help="show it: a real old broker, a real producer, injected faults")
    demo.add_argument("--json", action="store_true", help="print the result for machines")
    demo.add_argument("--records", type=int, default=100_000, help="records per run (default: %(default)s)")
    demo.add_argument("--seed", type=int, default=1, help="of the injected faults")
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    """Every option is a setting of the file under another name, and overrides it."""
    run.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=os.environ.get(CONFIG_VARIABLE) or None,
        help=f"the configuration, YAML; see docs/CONFIGURE.md (default: ${CONFIG_VARIABLE}, or none)",
    )
    run.add_argument("--upstream", metavar="HOST:PORT", help="a broker of the cluster, or several with commas")
    run.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help=f"bootstrap address; broker N gets this port + 1 + N (default: {DEFAULT_LISTEN})",
    )
    run.add_argument("--redis", metavar="URL", help="redis:// or unix:// (default: a private server)")
    run.add_argument(
        "--data-directory", metavar="DIR", help=f"this process's own directory (default: {DEFAULT_DATA_DIRECTORY})"
    )
    run.add_argument(
        "--cluster-name",
        metavar="NAME",
        help=f"name of the cluster, part of every key in Redis (default: {DEFAULT_CLUSTER})",
    )
    run.add_argument(
        "--advertised-host", metavar="HOST", help="host that clients are told (default: the address they came to)"
    )
    run.add_argument(
        "--dropped-headers",
        metavar="NAMES",
        help=f"record headers that may be dropped, as the old format has none; * stands for any text "
        f"(default: {','.join(TRACING_HEADERS)})",
    )
    run.add_argument(
        "--producer-expiry-seconds",
        metavar="N",
        help=f"forget the state of a producer that is idle for so long (default: {limits.PRODUCER_EXPIRY_SECONDS})",
    )
    run.add_argument(
        "--client-retry-seconds-max",
        metavar="N",
        help=f"longest time after which any client may still retry (default: {limits.CLIENT_RETRY_SECONDS_MAX})",
    )
    run.add_argument(
        "--merge-producers",
        action="store_true",
        default=None,
        help="put batches of several producers for one partition into one wrapper: cheaper for many small producers "
        "(default: each producer's batches apart)",
    )
    run.add_argument("--admin-bind", metavar="HOST:PORT", help="health, metrics and status page (default: none)")
    run.add_argument(
        "--workers",
        metavar="N",
        help="processes that serve the same ports side by side; auto: one for each core (default: 1)",
    )
    run.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error (default: info)")
    run.add_argument("--log-format", metavar="FORMAT", help="text or json (default: text)")
    run.add_argument(
        "--journal", metavar="FILE", help="add a JSON line for every append, its outcome and its answer (default: none)"
    )


def _run(options: argparse.Namespace) -> int:
    try:
        reading = Reading(options.config, vars(options))
    except ConfigError as problem:
        print(f"idemproxy: {problem}", file=sys.stderr)
        return 2
    from .process.run import run  # what serves is imported while the configuration is read

    return run(options, reading)
