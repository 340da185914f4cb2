"""How long a reader waits for a leader that shows less of the log than another one has shown."""

from __future__ import annotations

import time
from typing import Final

LAG_SECONDS_MAX: Final = 10.0
"""For which a new leader may show less than the old one has shown: it learns the high watermark from its followers."""
BETWEEN_LOOKS_SECONDS: Final = 0.5


class Patience:
    """Begins when somebody waits, and anew after ``ends``."""

    def __init__(self) -> None:
        self._since: float | None = None

    def ends(self) -> None:
        """There was something to read."""
        self._since = None

    def waits(self) -> bool:
        """Wait a little. False, at once: it has lasted for too long, and is no lag any more."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now >= self._since + LAG_SECONDS_MAX:
            return False
        time.sleep(BETWEEN_LOOKS_SECONDS)
        return True
