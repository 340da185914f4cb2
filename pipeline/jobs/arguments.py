"""The options of ``idemproxy copy``, ``merge``, ``repartition`` and ``clean``. Imports nothing of the extra."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

JOBS: Final[Mapping[str, str]] = {
    "copy": "write a topic into another one, each record once and in order",
    "merge": "write several topics into one, each record once",
    "repartition": "write a topic by key into one with other partitions; records say where they were",
    "clean": "write a topic without its second copies, in order, into another one",
}


def add_job(name: str, job: argparse.ArgumentParser) -> None:
    """Add all options of one job."""
    where = job.add_argument_group("from where to where")
    where.add_argument(
        "--from", dest="source", metavar="HOST:PORT", required=True, help="brokers or proxies to read from"
    )
    where.add_argument(
        "--to", dest="target", metavar="HOST:PORT", help="proxies to write to (default: where it reads from)"
    )
    where.add_argument("--topic", metavar="TOPIC", action="append", required=True, help="a topic to read")
    where.add_argument("--out", metavar="TOPIC", required=True, help="the topic to write to, which has to be there")
    where.add_argument(
        "--checkpoint",
        metavar="DIR",
        required=True,
        help="what the job has read and written; the same one for every start of the same job",
    )
    how = job.add_argument_group("how")
    if name in ("repartition", "clean"):
        carriers = ["headers", "value", *(["batches"] if name == "clean" else [])]
        how.add_argument(
            "--coordinates",
            choices=carriers,
            default=carriers[0],
            help="where records say which place they had; brokers before 0.11 store no headers (default: %(default)s)",
        )
    if name == "clean":
        how.add_argument(
            "--name", metavar="NAME", default="clean", help="of this run: repeated under it nothing is written twice"
        )
    else:
        how.add_argument(
            "--follow",
            action="store_true",
            help="go on with what comes (default: end when all that is there is through)",
        )
    how.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an option of the reader or, beginning with to., of the writer: kafka.security.protocol=SASL_SSL",
    )
    how.add_argument("--master", metavar="URL", default="local[*]", help="the Spark cluster (default: %(default)s)")
    how.add_argument(
        "--conf", metavar="NAME=VALUE", action="append", default=[], help="a setting of Spark, as of spark-submit"
    )
