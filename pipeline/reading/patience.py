"""How long a reader waits for a leader that shows less of the log than another one has shown."""

from __future__ import annotations

import time
from typing import Final

LAG_SECONDS_MAX: Final = 10.0
"""For so long a new leader may show a lower high watermark than the old one: it learns it from its followers."""
BETWEEN_LOOKS_SECONDS: Final = 0.5


class Patience:
    """Counts from the first ``waits``, and again after ``ends``."""

    def __init__(self) -> None:
        self._since: float | None = None

    def ends(self) -> None:
        """There was something to read."""
        self._since = None

    def waits(self) -> bool:
        """Sleep a little and return True. False, at once: this lasts for too long to be a lag."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now >= self._since + LAG_SECONDS_MAX:
            return False
        time.sleep(BETWEEN_LOOKS_SECONDS)
        return True
