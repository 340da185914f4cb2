"""The arguments of ``idemproxy inspect``, ``forget`` and ``hide``. Imports nothing heavy; runs nothing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...settings.addresses import parse_host_and_port
from ..parsing import Parser, explained
from ..shared_arguments import add_store, partition_number, producer_id

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[Parser]

COMMANDS = ("inspect", "forget", "hide")
SORTS = ("topic", "producer", "used")
"""What a list of producers can be sorted by."""


def add_commands(commands: Commands) -> None:
    """Add ``inspect``, ``forget`` and ``hide`` to the command line."""
    inspect = commands.add_parser("inspect", help="show what Redis and running proxies know; changes nothing")
    _add_common(inspect)
    _add_admin(inspect, "admin_before")
    what = inspect.add_subparsers(dest="what", metavar="WHAT", title="what to show (default: an overview)")
    for name, text, is_long in (
        ("producers", "every producer on every partition, one a line", True),
        ("intents", "what is reserved and not committed, and by whom", True),
        ("names", "producer names: the newest producer id and epoch of each", False),
    ):
        below = what.add_parser(name, help=text)
        if is_long:
            _add_order(below)
            _add_admin(below, "admin")
        _add_common(below)
    producer = what.add_parser("producer", help="one producer: epoch, last five batches and intent on each partition")
    _add_producer(producer)
    _add_admin(producer, "admin")
    _add_common(producer)
    old_clients = what.add_parser(
        "old-clients",
        help="clients that send versions which Kafka 4 lacks, as running proxies have seen them",
        epilog="Asks the admin ports of running proxies, and no Redis. Exit status: 1 if there are none.",
    )
    _add_admin(old_clients, "admin")
    _add_common(old_clients)
    topic = what.add_parser("topic", help="the producers of one topic")
    topic.add_argument("topic", metavar="TOPIC", help=explained("Its name, as it is in Kafka", "orders"))
    topic.add_argument(
        "--partition", type=partition_number, metavar="N", help=explained("Only this partition", "--partition 3")
    )
    _add_order(topic)
    _add_admin(topic, "admin")
    _add_common(topic)

    forget = commands.add_parser("forget", help="drop what is stored of a producer, or of a name")
    what = forget.add_subparsers(dest="what", metavar="WHAT", title="what to forget", required=True)
    producer = what.add_parser("producer", help="one producer, on all partitions or on one")
    _add_producer(producer)
    producer.add_argument("--yes", action="store_true", help=explained("Do not ask"))
    producer.add_argument(
        "--force",
        action="store_true",
        help=explained("Also what a living proxy may be writing now: risks a duplicate"),
    )
    _add_redis(producer)
    named = what.add_parser("name", help="a producer's name: its instances are fenced, and anybody may have it next")
    named.add_argument("name", metavar="NAME", help=explained("The name, as inspect names shows it", "orders-1"))
    named.add_argument("--yes", action="store_true", help=explained("Do not ask"))
    _add_redis(named)

    _add_hide(commands.add_parser("hide", help="hide duplicates that are in a log from consumers"))


def _add_hide(hide: Parser) -> None:
    what = hide.add_subparsers(dest="what", metavar="WHAT", title="what to do", required=True)
    listed = what.add_parser("list", help="show the hidden ranges, and those that were asked for")
    _add_topic(listed)
    _add_common(listed)
    add = what.add_parser("add", help="hide these offsets from consumers that fetch through the proxies")
    add.add_argument(
        "--reason", metavar="TEXT", default="", help=explained("For those who read the list", "--reason 'ticket 4711'")
    )
    add.add_argument("--yes", action="store_true", help=explained("Do not ask"))
    source = add.add_mutually_exclusive_group()
    source.add_argument(
        "--from-audit",
        metavar="DIR",
        type=Path,
        help=explained(
            "Instead of offsets: all certain duplicates that this audit has found, or those of TOPIC and PARTITION",
            "--from-audit audit-orders",
        ),
    )
    source.add_argument(
        "--from-journal",
        metavar="FILE",
        type=Path,
        help=explained(
            "Instead of offsets: the duplicates that a proxy has found itself, from its journal",
            "--from-journal journal.jsonl",
        ),
    )
    remove = what.add_parser("remove", help="show these offsets again")
    for one in (add, remove):
        number: dict[str, Any] = {"nargs": "?"} if one is add else {}
        one.add_argument("topic", metavar="TOPIC", help=explained("Its name, as it is in Kafka", "orders"), **number)
        one.add_argument(
            "partition", type=partition_number, metavar="PARTITION", help=explained("Its number", "3"), **number
        )
        one.add_argument("first", type=_offset, metavar="FIRST", help=explained("The first offset", "40277"), **number)
        one.add_argument("last", type=_offset, metavar="LAST", help=explained("The last offset", "40296"), **number)
        _add_redis(one)
    _add_restore(
        what.add_parser(
            "restore", help="write the hidden ranges that the compacted topic has and Redis lacks into Redis"
        )
    )


def _add_restore(restore: Parser) -> None:
    restore.add_argument(
        "--upstream",
        metavar="HOST:PORT",
        default=None,
        help=explained(
            "Brokers, or a proxy, to read the topic from, with commas",
            "--upstream kafka.example:9092",
            "as the configuration says",
        ),
    )
    restore.add_argument(
        "--from-topic",
        metavar="TOPIC",
        help=explained("The topic to read", "--from-topic idemproxy-hidden-ranges", "hidden_ranges.topic"),
    )
    restore.add_argument("--dry-run", action="store_true", help=explained("Only tell what would be written"))
    _add_redis(restore)


def _add_producer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "producer_id",
        type=producer_id,
        metavar="ID",
        help=explained("A producer id, in decimal or after 0x in hexadecimal", "3141592653589793001"),
    )
    _add_topic(parser)


def _add_topic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", metavar="TOPIC", help=explained("Only this topic", "--topic orders"))
    parser.add_argument(
        "--partition",
        type=partition_number,
        metavar="N",
        help=explained("Only this partition of the topic", "--partition 3"),
    )


def _add_order(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("order and pages")
    group.add_argument(
        "--sort",
        choices=SORTS,
        help=explained(
            "By topic and partition, by producer id, or those that were used last first", "--sort used", "as found"
        ),
    )
    group.add_argument("--limit", type=_count, metavar="N", help=explained("Lines of one page", "--limit 50", "all"))
    group.add_argument(
        "--page",
        type=_count,
        metavar="N",
        default=1,
        help=explained("Which page of --limit lines, sorted by topic if --sort says nothing else", "--page 2", 1),
    )


def _add_admin(parser: argparse.ArgumentParser, dest: str) -> None:
    """Add the option that names admin ports to ask for client ids. ``dest``: what is given before the subcommand and
    what is given after it are kept as two lists, as argparse would drop the first one."""
    parser.add_argument_group("running proxies").add_argument(
        "--admin",
        metavar="HOST:PORT",
        dest=dest,
        action="append",
        type=_host_and_port,
        help=explained(
            "The admin port of a running proxy, which knows the client ids; may be given again",
            "--admin proxy-1.example:9644",
            "admin.bind of the configuration",
        ),
    )


def _add_redis(parser: argparse.ArgumentParser) -> None:
    """Each of these may stand before or after the subcommand. Without ``SUPPRESS`` the default of one that is missing
    after it would overwrite what was given before it."""
    add_store(parser.add_argument_group("which Redis"), argparse.SUPPRESS)


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that show something: which Redis, and ``--json``."""
    _add_redis(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help=explained("For machines: one JSON object a line, an overview is one"),
    )


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 2**63 - 1):
        raise argparse.ArgumentTypeError(f"{text!r} is no offset")
    return int(text)


def _host_and_port(text: str) -> tuple[str, int]:
    try:
        return parse_host_and_port(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)
