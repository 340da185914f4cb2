"""The arguments of ``idemproxy inspect`` and ``idemproxy forget``. Imports nothing heavy; runs nothing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ...settings.config import CONFIG_VARIABLE, DEFAULT_CLUSTER

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

COMMANDS = ("inspect", "forget")


def add_commands(commands: Commands) -> None:
    """Add both commands to the command line's."""
    inspect = commands.add_parser("inspect", help="show what is stored in Redis; changes nothing")
    _add_common(inspect)
    what = inspect.add_subparsers(dest="what", metavar="WHAT", title="what to show (default: an overview)")
    for name, text in (
        ("producers", "every producer on every partition, one a line"),
        ("intents", "what is reserved and not committed, and by whom"),
        ("proxies", "proxies that hold a lease, and those that have left something open"),
        ("blocks", "claimed blocks of producer ids"),
    ):
        _add_common(what.add_parser(name, help=text))
    producer = what.add_parser("producer", help="one producer: window, intent, bounds on each partition")
    producer.add_argument("producer_id", type=_producer_id, metavar="ID")
    _add_topic(producer)
    _add_common(producer)
    topic = what.add_parser("topic", help="the producers of one topic")
    topic.add_argument("topic", metavar="TOPIC")
    topic.add_argument("--partition", type=_partition, metavar="N", help="only this partition")
    _add_common(topic)

    forget = commands.add_parser("forget", help="drop what is stored of a producer, so that the log is read instead")
    what = forget.add_subparsers(dest="what", metavar="WHAT", required=True)
    producer = what.add_parser("producer", help="one producer, on all partitions or on one")
    producer.add_argument("producer_id", type=_producer_id, metavar="ID")
    _add_topic(producer)
    producer.add_argument("--yes", action="store_true", help="do not ask")
    producer.add_argument(
        "--force", action="store_true", help="also what a living proxy may be writing now: risks a duplicate"
    )
    _add_common(producer)


def _add_topic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", metavar="TOPIC", help="only this topic")
    parser.add_argument("--partition", type=_partition, metavar="N", help="only this partition of the topic")


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Each of these may stand before or behind what is to be shown: one that is missing behind it does not undo one
    before it."""
    absent = argparse.SUPPRESS
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=absent,
        help=f"the proxy's own configuration (default: ${CONFIG_VARIABLE}); its environment variables count too",
    )
    parser.add_argument("--redis", metavar="URL", default=absent, help="the server, redis:// or unix://")
    parser.add_argument(
        "--data-directory", metavar="DIR", default=absent, help="of a proxy with a private Redis (default: data)"
    )
    parser.add_argument(
        "--cluster-name", metavar="NAME", default=absent, help=f"name of the cluster (default: {DEFAULT_CLUSTER})"
    )
    parser.add_argument(
        "--json", action="store_true", default=absent, help="for machines: one JSON object a line, an overview is one"
    )


def _producer_id(text: str) -> int:
    """A producer id as Kafka's tools write it, or in hexadecimal with 0x as it stands in the keys."""
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no producer id: a number, or one in hexadecimal after 0x")
    return number


def _partition(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is no partition number")
    return int(text)
