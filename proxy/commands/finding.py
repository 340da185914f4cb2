"""One line of what ``idemproxy check`` reports. Only data."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """``sign``: ok, warning or problem; ``what``: what was looked at; ``text``: what was found, and what to do."""

    sign: str
    what: str
    text: str
