"""The options of ``idemproxy copy``, ``merge``, ``repartition`` and ``clean``. Imports nothing heavy; the jobs are
``pipeline.jobs``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from .parsing import Parser, explained
from .shared_arguments import add_spark

JOBS: Final[Mapping[str, str]] = {
    "copy": "write a topic into another one, each record once and in order",
    "merge": "write several topics into one, each record once",
    "repartition": "write a topic by key into one with other partitions; records say where they were",
    "clean": "write a topic without its duplicates, in order, into another one",
}
_HEADERS, _VALUE, _BATCHES = "headers", "value", "batches"


def add_job(name: str, job: Parser) -> None:
    """Add all options of one job."""
    job.set_defaults(coordinates=_HEADERS, name="", follow=False)  # for jobs without these options
    _add_places(job)
    how = job.add_argument_group("how")
    if name in ("repartition", "clean"):
        _add_coordinates(name, how)
    if name == "clean":
        how.add_argument(
            "--name",
            metavar="NAME",
            default="clean",
            help=explained("Of this run: repeated under it nothing is written twice", "--name may", "clean"),
        )
    else:
        how.add_argument(
            "--follow",
            action="store_true",
            help=explained("Continue with new records, instead of ending when all is through"),
        )
    how.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help=explained(
            "More for the reader, or, beginning with to., for the writer", "--option to.kafka.compression.type=lz4"
        ),
    )
    add_spark(how)


def _add_places(job: Parser) -> None:
    where = job.add_argument_group("from where to where")
    where.add_argument(
        "--from",
        dest="source",
        metavar="HOST:PORT",
        required=True,
        help=explained("Brokers or proxies to read from", "--from kafka.example:9092"),
    )
    where.add_argument(
        "--to",
        dest="target",
        metavar="HOST:PORT",
        help=explained("Proxies to write to", "--to proxy.example:9092", "where it reads from"),
    )
    where.add_argument(
        "--topic",
        metavar="TOPIC",
        action="append",
        required=True,
        help=explained("A topic to read; of a merge there are several", "--topic orders"),
    )
    where.add_argument(
        "--out",
        metavar="TOPIC",
        required=True,
        help=explained("The topic to write to, which has to be there", "--out orders-copy"),
    )
    where.add_argument(
        "--checkpoint",
        metavar="DIR",
        required=True,
        help=explained("What was read and written, the same for every start of the same job", "--checkpoint /mnt/copy"),
    )


def _add_coordinates(name: str, how: argparse._ArgumentGroup) -> None:
    carriers = [_HEADERS, _VALUE, *([_BATCHES] if name == "clean" else [])]
    how.add_argument(
        "--coordinates",
        choices=carriers,
        default=_HEADERS,
        help=explained(
            "Where records say which place they had; brokers before 0.11 store no headers",
            "--coordinates value",
            _HEADERS,
        ),
    )
