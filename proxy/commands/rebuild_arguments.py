"""The options of ``idemproxy rebuild``. Imports nothing heavy; runs nothing."""

from __future__ import annotations

import argparse

from .parsing import Parser, explained
from .shared_arguments import add_spark, add_store


def add_rebuild(rebuild: Parser) -> None:
    """Add all options."""
    _add_places(rebuild)
    _add_range(rebuild)
    _add_ways(rebuild)


def _add_places(rebuild: Parser) -> None:
    where = rebuild.add_argument_group("which cluster, which Redis")
    where.add_argument(
        "--upstream",
        metavar="HOST:PORT",
        help=explained("A broker of the cluster, or several with commas", "--upstream kafka.example:9092"),
    )
    add_store(where)


def _add_range(rebuild: Parser) -> None:
    what = rebuild.add_argument_group("what is read")
    what.add_argument(
        "--topic",
        metavar="TOPIC",
        action="append",
        default=[],
        help=explained("A topic to read, may be given again", "--topic orders", "all"),
    )
    what.add_argument(
        "--pattern",
        metavar="REGEX",
        action="append",
        default=[],
        help=explained("Topics whose whole name fits, too", "--pattern 'orders-.*'"),
    )
    since = what.add_mutually_exclusive_group()
    since.add_argument(
        "--since-seconds",
        metavar="N",
        type=_seconds,
        help=explained(
            "Producers that have written in so many seconds, by the times in the log",
            "--since-seconds 3600",
            "producers.expiry_seconds",
        ),
    )
    since.add_argument("--all", action="store_true", help=explained("All producers that the logs have"))


def _add_ways(rebuild: Parser) -> None:
    how = rebuild.add_argument_group("how")
    how.add_argument(
        "--dry-run",
        action="store_true",
        help=explained("Write nothing; print what Redis lacks, and exit with 1 where it lacks something"),
    )
    how.add_argument("--verbose", action="store_true", help=explained("Print each producer that differs"))
    how.add_argument("--json", action="store_true", help=explained("Print the result for machines"))
    add_spark(how, master=None)


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return int(text)
