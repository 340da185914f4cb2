"""The options of ``idemproxy journal``. Imports nothing heavy; runs nothing."""

from __future__ import annotations

import argparse
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

EVENTS: Final = (
    *("sent", "outcome", "answered", "doubt", "resolved", "sent_again", "late_write", "second_copy", "taken_over"),
    *("generation", "incarnation", "said", "missing", "not_synced", "journal"),
)
"""What a line may be, as it stands in ``event``."""
_AGO: Final = re.compile(r"(\d{1,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def add_journal(journal: argparse.ArgumentParser) -> None:
    """Add what can be done with a journal, and the options."""
    what = journal.add_subparsers(dest="what", metavar="WHAT", title="what to do", required=True)
    cat = what.add_parser("cat", help="print the lines of journals in the order of time")
    cat.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="A journal, as the setting names it: with it come the files that were renamed, and those of workers. "
        "Example: /var/log/idemproxy/journal.jsonl.",
    )
    _add_chosen(cat.add_argument_group("which lines"))
    shown = cat.add_argument_group("how they are shown")
    form = shown.add_mutually_exclusive_group()
    form.add_argument("--table", action="store_true", help="For people: time, event and a sentence. (default)")
    form.add_argument("--json", action="store_true", help="For machines: the lines as they are in the files.")
    shown.add_argument("--follow", action="store_true", help="Go on with what is written from now on, until Ctrl-C.")


def _add_chosen(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--topic", metavar="TOPIC", help="Only of this topic. Example: --topic orders.")
    group.add_argument(
        "--partition", metavar="N", type=_number, help="Only of this partition of it. Example: --partition 3."
    )
    group.add_argument(
        "--producer-id",
        metavar="ID",
        type=_producer_id,
        help="Only of this producer; in decimal, or after 0x in hexadecimal. Example: --producer-id 314159265358979.",
    )
    group.add_argument(
        "--event",
        metavar="NAME",
        action="append",
        choices=EVENTS,
        help=f"Only these, repeatable: {', '.join(EVENTS)}. Example: --event answered.",
    )
    for name, text in (("--since", "From this time on"), ("--until", "Up to this time")):
        group.add_argument(
            name,
            metavar="TIME",
            type=_time_ms,
            help=f"{text}: of ISO 8601 (UTC if it does not say), or so long ago, as in 90s, 15m, 2h, 3d. "
            f"Example: {name} 2026-11-26T05:00:00Z.",
        )


def _time_ms(text: str) -> int:
    """Milliseconds since 1970."""
    if ago := _AGO.fullmatch(text):
        return int((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: one such as 2026-11-26T05:00:00Z, or 15m for 15 minutes ago"
        ) from None
    return int((found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _producer_id(text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no producer id: a number, or one in hexadecimal after 0x")
    return number


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is no partition number")
    return int(text)
