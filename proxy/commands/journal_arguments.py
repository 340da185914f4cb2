"""The options of ``idemproxy journal``. Imports nothing heavy; the run is ``pipeline.journal``."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from ..telemetry.journal import JOURNALED
from .parsing import explained
from .shared_arguments import partition_number, producer_id

EVENTS: Final = (*JOURNALED.values(), "missing", "not_synced", "journal")
"""The values of the field ``event`` of a line."""
_AGO: Final = re.compile(r"(\d{1,5})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def add_journal(journal: argparse.ArgumentParser) -> None:
    """Add the subcommands and their options."""
    what = journal.add_subparsers(dest="what", metavar="WHAT", title="what to do", required=True)
    cat = what.add_parser("cat", help="print the lines of journals in the order of time")
    cat.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help=explained(
            "A journal, as the setting names it: with it come the files that were renamed, and those of workers",
            "/var/log/idemproxy/journal.jsonl",
        ),
    )
    _add_chosen(cat.add_argument_group("which lines"))
    shown = cat.add_argument_group("how they are shown")
    form = shown.add_mutually_exclusive_group()
    form.add_argument(
        "--table",
        action="store_true",
        help=explained("For people: time, event and a sentence", default="if --json is not given"),
    )
    form.add_argument("--json", action="store_true", help=explained("For machines: the lines as they are in the files"))
    shown.add_argument(
        "--follow", action="store_true", help=explained("Continue with what is written from then on, until Ctrl-C")
    )


def _add_chosen(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--topic", metavar="TOPIC", help=explained("Only of this topic", "--topic orders"))
    group.add_argument(
        "--partition",
        metavar="N",
        type=partition_number,
        help=explained("Only of this partition of the topic", "--partition 3"),
    )
    group.add_argument(
        "--producer-id",
        metavar="ID",
        type=producer_id,
        help=explained(
            "Only of this producer, in decimal or after 0x in hexadecimal", "--producer-id 3141592653589793001"
        ),
    )
    group.add_argument(
        "--event",
        metavar="NAME",
        action="append",
        choices=EVENTS,
        help=explained(f"Only these, may be given again: {', '.join(EVENTS)}", "--event answered"),
    )
    for name, text in (("--since", "From this time on"), ("--until", "Up to this time")):
        group.add_argument(
            name,
            metavar="TIME",
            type=_time_ms,
            help=explained(
                f"{text}: of ISO 8601 (UTC if it does not say), or so long ago, as in 90s, 15m, 2h, 3d",
                f"{name} 2026-11-26T05:00:00Z",
            ),
        )


def _time_ms(text: str) -> int:
    """Milliseconds since 1970."""
    if ago := _AGO.fullmatch(text):
        found = datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    else:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no time: one such as 2026-11-26T05:00:00Z, or 15m for 15 minutes ago"
            ) from None
    return int((found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp() * 1000)
