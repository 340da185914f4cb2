"""The options of ``idemproxy audit``. Imports nothing of the extra, so that the command line can always show them; the
run is ``pipeline.audit``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from ...pipeline.audit.kinds import FAILING
from .parsing import explained
from .shared_arguments import add_spark

DISTANCE: Final = 100_000


def add_audit(audit: argparse.ArgumentParser) -> None:
    """Add all options, in groups."""
    _add_source(audit.add_argument_group("what is read"))
    _add_report(audit.add_argument_group("what is reported"))
    add_spark(audit.add_argument_group("Spark"))


def _add_source(group: argparse._ArgumentGroup) -> None:
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--upstream",
        metavar="HOST:PORT",
        help=explained("A broker of the cluster, or several with commas", "--upstream kafka.example:9092"),
    )
    source.add_argument(
        "--log-dir",
        metavar="DIR",
        type=Path,
        action="append",
        help=explained(
            "A data directory of a broker, which may be dead; may be given again", "--log-dir /var/lib/kafka"
        ),
    )
    group.add_argument(
        "--topic",
        metavar="TOPIC",
        action="append",
        default=[],
        help=explained("A topic to read, may be given again", "--topic orders", "all"),
    )
    group.add_argument(
        "--pattern",
        metavar="REGEX",
        action="append",
        default=[],
        help=explained("Topics whose whole name fits, too; may be given again", "--pattern 'orders-.*'", "none"),
    )
    group.add_argument(
        "--journal",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help=explained(
            "The proxy's journal: what clients got is compared with the log. With it come the files that were "
            "renamed, and those of workers; may be given again, for several proxies",
            "--journal journal.jsonl",
        ),
    )


def _add_report(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        required=True,
        help=explained("Where the report goes; it is created", "--out audit-orders"),
    )
    group.add_argument(
        "--distance",
        metavar="N",
        type=int,
        default=DISTANCE,
        help=explained(
            "Offsets within which equal records made at different times are reported", "--distance 1000", DISTANCE
        ),
    )
    failing = ",".join(FAILING)
    group.add_argument(
        "--fail-on",
        metavar="KINDS",
        default=failing,
        help=explained("Findings with which the exit status is 1, with commas", "--fail-on duplicate,gap", failing),
    )
