"""Names as the configuration says them, in which * stands for any text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...codecs.convert import expression_of


def matching(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return what ``fullmatch`` finds any of these with; with none of them, nothing."""
    return re.compile("|".join(list(map(expression_of, patterns)) or [r"(?!)"]), re.DOTALL)
