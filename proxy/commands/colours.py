"""Colours for people: only on a terminal that has them, and never where ``NO_COLOR`` is set (no-color.org)."""

from __future__ import annotations

import os
from typing import IO

_CODES = {"bold": "1", "cyan": "36", "green": "32", "yellow": "33", "red": "31;1"}


def coloured(text: str, colour: str, out: IO[str]) -> str:
    """Return the text as it is written to ``out``. ``colour``: bold, cyan, green, yellow or red."""
    if not out.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"
