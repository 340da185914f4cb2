"""How much is done in one step of what is done in steps."""

from __future__ import annotations

from typing import Any

from idemproxy.codecs.steps import Steps


class MessagesRead:
    """Counts the messages of format v0 and v1 that are read, shallow ones and those inside wrappers."""

    def __init__(self) -> None:
        self.count = 0
        self.largest = 0
        """Of all steps that have ended."""

    def end_step(self) -> None:
        """What was read since the last one belongs to one step."""
        self.largest, self.count = max(self.largest, self.count), 0

    def largest_step(self, steps: Steps[Any]) -> int:
        """Run all steps; return how many were read in the one that reads most."""
        self.largest = self.count = 0
        for _ in steps:
            self.end_step()
        self.end_step()
        return self.largest
