"""What a person sees while the demo runs: a live line on a terminal, plain lines elsewhere. On standard error only."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

_PLAIN_SECONDS = 5.0
"""Between two lines about the same step where nothing can be drawn over."""


class Progress:
    """A context manager: leaving it leaves the terminal as it was."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._started = time.monotonic()
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last_line = 0.0
        if self._console.is_terminal:
            # As narrow as it goes: all of it fits into 80 columns.
            share, facts = TextColumn("{task.percentage:3.0f} %"), TextColumn("{task.fields[facts]}")
            self._bars = Bars("{task.description}", BarColumn(bar_width=8), share, facts, console=self._console)

    def __enter__(self) -> Progress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, text: str) -> None:
        """One step begins."""
        self._line(text)

    def show(self, title: str, done: int, total: int, facts: Mapping[str, int]) -> None:
        """How far a run is: records acknowledged, of so many, and what has happened."""
        shown = ", ".join(f"{name} {count}" for name, count in facts.items())
        if self._bars is not None:
            if title not in self._tasks:
                self._tasks[title] = self._bars.add_task(title, total=total, facts="")
            self._bars.update(self._tasks[title], completed=done, total=total, facts=shown)
        elif time.monotonic() - self._last_line >= _PLAIN_SECONDS:
            self._line(f"{title}: {done} of {total} acknowledged, {shown}")

    def _line(self, text: str) -> None:
        self._last_line = time.monotonic()
        self._console.print(
            f"[{self._last_line - self._started:5.1f} s] {text}", markup=False, highlight=False, soft_wrap=True
        )
