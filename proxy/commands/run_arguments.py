"""The options of ``idemproxy run``, which ``idemproxy check`` takes as well. Each is a setting of the file under
another name, and overrides it. Imports nothing heavy."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ... import DOCUMENTATION
from ...codecs.convert import TRACING_HEADERS
from .. import limits
from ..settings.config import CONFIG_VARIABLE, DEFAULT_CLUSTER, DEFAULT_DATA_DIRECTORY, DEFAULT_LISTEN
from .parsing import explained


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add all of them, in groups."""
    _add_file(parser.add_argument_group("the configuration file"))
    _add_ways(parser.add_argument_group("brokers and clients"))
    _add_state(parser.add_argument_group("state"))
    _add_producers(parser.add_argument_group("producers"))
    _add_operation(parser.add_argument_group("operation"))


def _add_file(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=os.environ.get(CONFIG_VARIABLE) or None,
        help=explained(
            f"YAML; every setting and its variable: {DOCUMENTATION}/reference/settings.html",
            "--config /etc/idemproxy/idemproxy.yaml",
            f"${CONFIG_VARIABLE}, or none",
        ),
    )


def _add_ways(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--upstream",
        metavar="HOST:PORT",
        help=explained(
            "A broker of the cluster, or several with commas; the others are found",
            "--upstream kafka1.example:9092,kafka2.example:9092",
        ),
    )
    group.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help=explained(
            "Bootstrap address for clients; broker N gets this port + 1 + N", "--listen 0.0.0.0:9092", DEFAULT_LISTEN
        ),
    )
    group.add_argument(
        "--advertised-host",
        metavar="HOST",
        help=explained("The host that clients get", "--advertised-host proxy.example", "the address that they came to"),
    )


def _add_state(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--redis",
        metavar="URL",
        help=explained(
            "The Redis that keeps what is known of producers, redis:// or unix://",
            "--redis redis://redis.example:6379/0",
            "a private server in the data directory",
        ),
    )
    group.add_argument(
        "--data-directory",
        metavar="DIR",
        help=explained("This process's own directory", "--data-directory /var/lib/idemproxy", DEFAULT_DATA_DIRECTORY),
    )
    group.add_argument(
        "--cluster-name",
        metavar="NAME",
        help=explained(
            "Name of the cluster, part of every key in Redis: proxies of one cluster share it",
            "--cluster-name orders",
            DEFAULT_CLUSTER,
        ),
    )


def _add_producers(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--dropped-headers",
        metavar="NAMES",
        help=explained(
            "Record headers that may be dropped, as message format v1 has none; * stands for any text",
            "--dropped-headers 'traceparent,x-debug-*'",
            ",".join(TRACING_HEADERS),
        ),
    )
    group.add_argument(
        "--producer-expiry-seconds",
        metavar="N",
        help=explained(
            "Forget the state of a producer that is idle for so long",
            "--producer-expiry-seconds 604800",
            limits.PRODUCER_EXPIRY_SECONDS,
        ),
    )
    group.add_argument(
        "--client-retry-seconds-max",
        metavar="N",
        help=explained(
            "Longest time after which any client may still retry: twice its delivery.timeout.ms",
            "--client-retry-seconds-max 900",
            limits.CLIENT_RETRY_SECONDS_MAX,
        ),
    )


def _add_operation(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--admin-bind",
        metavar="HOST:PORT",
        help=explained(
            "Health, metrics and status page",
            "--admin-bind 127.0.0.1:9644",
            "none; with a section admin in the file 127.0.0.1:9644",
        ),
    )
    group.add_argument(
        "--workers",
        metavar="N",
        help=explained(
            "Processes that serve the same ports side by side; auto: one for each core", "--workers auto", 1
        ),
    )
    group.add_argument(
        "--log-level",
        metavar="{debug,info,warning,error}",
        help=explained("The least that is written to the log", "--log-level warning", "info"),
    )
    group.add_argument(
        "--log-format",
        metavar="{text,json}",
        help=explained("text for people, json for collectors", "--log-format json", "text"),
    )
    group.add_argument(
        "--journal",
        metavar="FILE",
        help=explained(
            "Add a JSON line for every append, its outcome and its answer",
            "--journal /var/log/idemproxy/journal.jsonl",
            "none",
        ),
    )
