"""The options of ``idemproxy audit``. Imports nothing of the extra, so that the command line can always show them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from .kinds import FAILING

DISTANCE: Final = 100_000
LOCAL: Final = "local[*]"


def add_audit(audit: argparse.ArgumentParser) -> None:
    """Add all options, in groups."""
    _add_source(audit.add_argument_group("what is read"))
    _add_report(audit.add_argument_group("what is told"))
    _add_spark(audit.add_argument_group("Spark"))


def _add_source(group: argparse._ArgumentGroup) -> None:
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--upstream",
        metavar="HOST:PORT",
        help="A broker of the cluster, or several with commas. Example: --upstream kafka.example:9092.",
    )
    source.add_argument(
        "--log-dir",
        metavar="DIR",
        type=Path,
        action="append",
        help="A data directory of a broker, which may be dead; repeatable. Example: --log-dir /var/lib/kafka.",
    )
    group.add_argument(
        "--topic",
        metavar="TOPIC",
        action="append",
        default=[],
        help="A topic to read; repeatable. Example: --topic orders. (default: all)",
    )
    group.add_argument(
        "--pattern",
        metavar="REGEX",
        action="append",
        default=[],
        help="Topics whose whole name fits, too; repeatable. Example: --pattern 'orders-.*'. (default: none)",
    )
    group.add_argument(
        "--journal",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="The proxy's journal: what clients were told is compared with the log. With it come the files that were "
        "renamed, and those of workers; repeatable for several proxies. Example: --journal journal.jsonl.",
    )


def _add_report(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        required=True,
        help="Where the report goes; it is created. Example: --out audit-orders.",
    )
    group.add_argument(
        "--distance",
        metavar="N",
        type=int,
        default=DISTANCE,
        help="Offsets within which equal records made at different times are told. Example: --distance 1000. "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--fail-on",
        metavar="KINDS",
        default=",".join(FAILING),
        help="Findings with which the exit status is 1, with commas. Example: --fail-on duplicate,gap. "
        "(default: %(default)s)",
    )


def _add_spark(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--master",
        metavar="URL",
        default=LOCAL,
        help="The Spark cluster. Example: --master spark://spark.example:7077. (default: %(default)s)",
    )
    group.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="A setting of Spark, as of spark-submit; repeatable. Example: --conf spark.executor.memory=4g.",
    )
