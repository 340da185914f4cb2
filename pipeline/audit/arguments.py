"""The options of ``idemproxy audit``. Imports nothing of the extra, so that the command line can always show them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from .kinds import FAILING

DISTANCE: Final = 100_000
LOCAL: Final = "local[*]"


def add_audit(audit: argparse.ArgumentParser) -> None:
    """Add all options."""
    source = audit.add_mutually_exclusive_group(required=True)
    source.add_argument("--upstream", metavar="HOST:PORT", help="a broker of the cluster, or several with commas")
    source.add_argument(
        "--log-dir", metavar="DIR", type=Path, action="append", help="a data directory of a broker, which may be dead"
    )
    audit.add_argument("--topic", metavar="TOPIC", action="append", default=[], help="a topic to read (default: all)")
    audit.add_argument(
        "--pattern", metavar="REGEX", action="append", default=[], help="topics whose whole name fits, too"
    )
    audit.add_argument("--out", metavar="DIR", type=Path, required=True, help="where the report goes; it is created")
    audit.add_argument(
        "--journal", metavar="FILE", type=Path, help="the proxy's journal: what clients were told, against the log"
    )
    audit.add_argument(
        "--distance",
        metavar="N",
        type=int,
        default=DISTANCE,
        help="offsets within which equal records made at different times are told (default: %(default)s)",
    )
    audit.add_argument(
        "--fail-on",
        metavar="KINDS",
        default=",".join(FAILING),
        help="findings with which the exit status is 1, with commas (default: %(default)s)",
    )
    audit.add_argument("--master", metavar="URL", default=LOCAL, help="the Spark cluster (default: %(default)s)")
    audit.add_argument(
        "--conf", metavar="NAME=VALUE", action="append", default=[], help="a setting of Spark, as of spark-submit"
    )
