"""Drives flows: hands each effect to its handler and sends the result back in. Knows no Kafka rule and no effect by
name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from .effects import Effect

Resume = Callable[[Any], None]
Handler = Callable[[Any, Resume], None]
Flow = Coroutine[Effect[Any], Any, Any]


class FlowRunner:
    """Runs any number of flows, each until it ends. Handlers may call back at once or later, exactly once."""

    def __init__(self, handlers: Mapping[type, Handler]) -> None:
        self._handlers = handlers
        self.on_effect: Callable[[Effect[Any]], None] | None = None
        """Called before each effect is performed: the test kit injects its crashes here."""

    def start(
        self,
        flow: Flow,
        done: Callable[[Any], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """Run ``flow`` up to its first unanswered effect. ``failed`` gets an internal error, which ends this flow
        only."""
        _Run(self, flow, done, failed).advance(None)

    def perform(self, effect: Effect[Any], resume: Resume) -> None:
        """Have one effect performed."""
        if self.on_effect is not None:
            self.on_effect(effect)
        self._handlers[type(effect)](effect, resume)


class _Run:
    """One running flow. Results that come back at once are taken in a loop, so that the stack does not grow."""

    __slots__ = ("_done", "_failed", "_flow", "_in_step", "_is_over", "_result", "_runner")

    _NOTHING = object()

    def __init__(
        self,
        runner: FlowRunner,
        flow: Flow,
        done: Callable[[Any], None] | None,
        failed: Callable[[Exception], None] | None,
    ) -> None:
        self._runner = runner
        self._flow = flow
        self._done = done
        self._failed = failed
        self._in_step = False
        self._is_over = False
        self._result: Any = self._NOTHING

    def resume(self, result: Any) -> None:
        """Take the result of the effect that the flow waits for."""
        if self._in_step:
            self._result = result
        elif not self._is_over:
            self.advance(result)

    def advance(self, value: Any) -> None:
        """Run the flow until an effect is not answered at once, or until the end."""
        nothing = self._NOTHING
        while True:
            try:
                effect = self._flow.send(value)
            except StopIteration as stop:
                if self._done is not None:
                    self._done(stop.value)
                return
            except Exception as error:
                self._end(error)
                return
            self._in_step = True
            try:
                self._runner.perform(effect, self.resume)
            except Exception as error:
                self._end(error)
                return
            finally:
                self._in_step = False
            if self._result is nothing:
                return
            value, self._result = self._result, nothing

    def _end(self, error: Exception) -> None:
        """End with an internal error, in the flow or in what it asked for: nothing waits for this flow any longer."""
        self._is_over = True
        self._flow.close()
        if self._failed is None:
            raise error
        self._failed(error)
