"""The arguments of ``idemproxy probe``. Imports nothing heavy; runs nothing."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from ...settings.config import CONFIG_VARIABLE
from ..parsing import Parser, explained

EPILOG = (
    "Writes some 30 small batches to a topic of its own, which it deletes. Exit status: 0 it can be served, 1 it "
    "cannot, or there is no verdict, 2 wrong options."
)


def add_probe(probe: Parser) -> None:
    """Add all of them."""
    probe.epilog = EPILOG
    probe.add_argument(
        "upstream",
        metavar="HOST:PORT",
        nargs="?",
        help=explained(
            "A broker of the cluster, or several with commas", "kafka.example:9092", "upstream.bootstrap of the file"
        ),
    )
    probe.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=os.environ.get(CONFIG_VARIABLE) or None,
        help=explained(
            "The proxy's own configuration, of which upstream is used: TLS, SASL",
            "--config /etc/idemproxy/idemproxy.yaml",
            f"${CONFIG_VARIABLE}, or none",
        ),
    )
    probe.add_argument(
        "--topic",
        metavar="TOPIC",
        type=topic_name,
        help=explained(
            "An existing, empty topic to use instead, which is left with the records in it", "--topic scratch"
        ),
    )
    probe.add_argument("--json", action="store_true", help=explained("Print one JSON object for machines"))


def topic_name(text: str) -> str:
    """The name of a topic. Source: Kafka, Topic.java."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", text) or text in (".", ".."):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a topic")
    return text
