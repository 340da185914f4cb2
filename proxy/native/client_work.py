"""Long work for one client, of which nothing is done or kept any more once it is not wanted. Sans-IO.

What waits for its turn (``admission/long_work.py``) refers to all that it will read: a request of 100 MB, an answer of
50 MB. A client may leave meanwhile, or have its error as the time for the request is over, and ask for the next such
thing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ...codecs.steps import Steps
from ..admission.long_work import Done
from .host import NativeHost

T = TypeVar("T")


class ClientWork(Generic[T]):
    """One piece. ``start``: begins it, perhaps twice. ``done``: gets its end, unless ``cancel`` was called."""

    __slots__ = ("_done", "_start")

    def __init__(self, start: Callable[[], Steps[T]], done: Callable[[Done[T]], None]) -> None:
        self._start: Callable[[], Steps[T]] | None = start
        self._done: Callable[[Done[T]], None] | None = done

    def begin(self, host: NativeHost, sender: str) -> None:
        """Do it, at once if it is short."""
        host.long_work.begin(self._steps, sender, self._ended, is_late=host.loop_budget.is_long)

    def cancel(self) -> None:
        """It is not wanted any more."""
        self._start = self._done = None

    def _steps(self) -> Steps[T | None]:
        if self._start is None:
            return None
        steps = self._start()
        while self._start is not None:
            try:
                next(steps)
            except StopIteration as end:
                made: T = end.value
                return made
            yield
        return None

    def _ended(self, done: Done[T | None]) -> None:
        then = self._done
        self.cancel()
        if then is not None:
            then(done)  # type: ignore[arg-type]  # None is made only where it is not wanted
