"""Names as the configuration says them, in which * stands for any text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable


def matching(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return what ``fullmatch`` finds any of these with; with none of them, nothing."""
    found = [".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns]
    return re.compile("|".join(found or [r"(?!)"]), re.DOTALL)
