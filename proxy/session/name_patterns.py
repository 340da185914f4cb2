"""Patterns of names in the configuration, in which * stands for any text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...codecs.convert import expression_of


def matching(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return an expression whose ``fullmatch`` finds the names that match any of the patterns; without patterns,
    none."""
    return re.compile("|".join(list(map(expression_of, patterns)) or [r"(?!)"]), re.DOTALL)
