"""Options that several commands have, and types of values: which Redis, which Spark, which producer. Imports nothing
heavy; runs nothing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..settings.config import CONFIG_VARIABLE, DEFAULT_CLUSTER
from .parsing import explained

LOCAL_SPARK = "local[*]"


def add_store(group: argparse._ArgumentGroup, absent: Any = None) -> None:
    """Add what ``store_settings`` reads. ``absent``: the default of all these options."""
    group.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=absent,
        help=explained(
            "The proxy's own configuration; its environment variables count too",
            "--config /etc/idemproxy/idemproxy.yaml",
            f"${CONFIG_VARIABLE}",
        ),
    )
    group.add_argument(
        "--redis",
        metavar="URL",
        default=absent,
        help=explained("The server, redis:// or unix://", "--redis redis://redis.example:6379/0"),
    )
    group.add_argument(
        "--data-directory",
        metavar="DIR",
        default=absent,
        help=explained("That of a proxy with a private Redis", "--data-directory /var/lib/idemproxy", "data"),
    )
    group.add_argument(
        "--cluster-name",
        metavar="NAME",
        default=absent,
        help=explained("Name of the cluster", "--cluster-name orders", DEFAULT_CLUSTER),
    )


def add_spark(group: argparse._ArgumentGroup, master: str | None = LOCAL_SPARK) -> None:
    """Add ``master`` and ``conf``. ``master``: the default; None: the command's own process."""
    group.add_argument(
        "--master",
        metavar="URL",
        default=master,
        help=explained(
            "The Spark cluster, or local[*]", "--master spark://spark.example:7077", master or "this process, no Spark"
        ),
    )
    group.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help=explained("A setting of Spark, as of spark-submit; may be given again", "--conf spark.executor.memory=4g"),
    )


def producer_id(text: str) -> int:
    """A producer id as Kafka's tools write it, or in hexadecimal with 0x as it stands in the keys."""
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no producer id: a number, or one in hexadecimal after 0x")
    return number


def partition_number(text: str) -> int:
    """The number of a partition."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is no partition number")
    return int(text)
