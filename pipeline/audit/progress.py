"""What a person sees while an audit runs: a bar for each stage on a terminal, plain lines elsewhere. Standard error."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark import SparkContext
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars

_LOOK_SECONDS: Final = 0.5
_PLAIN_SECONDS: Final = 10.0
"""Between two lines about the same stage where nothing can be drawn over."""


class Progress:
    """A context manager: leaving it leaves the terminal as it was."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._began = time.monotonic()
        self.seconds: dict[str, float] = {}
        """How long each stage took."""
        self._bars: Bars | None = None
        if self._console.is_terminal:
            share = TextColumn("{task.completed} of {task.total} tasks")
            self._bars = Bars("{task.description}", BarColumn(bar_width=20), share, console=self._console)

    def __enter__(self) -> Progress:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, text: str) -> None:
        """Print one line."""
        seconds = time.monotonic() - self._began
        self._console.print(f"[{seconds:5.1f} s] {text}", markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def stage(self, spark: SparkContext, title: str) -> Iterator[None]:
        """Show the tasks of what Spark is asked for within the block."""
        self.say(title)
        began = time.monotonic()
        group = f"idemproxy-{title}"
        spark.setJobGroup(group, title)
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(spark, group, title, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            self.seconds[title] = round(time.monotonic() - began, 2)

    def _watch(self, spark: SparkContext, group: str, title: str, over: threading.Event) -> None:
        tracker = spark.statusTracker()
        task = None if self._bars is None else self._bars.add_task(title, total=None)
        told_at = time.monotonic()
        while not over.wait(_LOOK_SECONDS):
            done = total = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info is not None else ():
                    known = tracker.getStageInfo(stage)
                    done += known.numCompletedTasks if known is not None else 0
                    total += known.numTasks if known is not None else 0
            if self._bars is not None and task is not None:
                self._bars.update(task, completed=done, total=total or None)
            elif time.monotonic() - told_at >= _PLAIN_SECONDS:
                told_at = time.monotonic()
                self.say(f"{title}: {done} of {total} tasks")
        if self._bars is not None and task is not None:
            self._bars.remove_task(task)
